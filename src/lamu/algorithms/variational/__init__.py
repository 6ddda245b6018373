"""Variational learning: instances of the rule whose posterior is a Gaussian."""
