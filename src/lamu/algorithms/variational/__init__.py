"""Variational learning: rows of the rule that keep a Gaussian."""
