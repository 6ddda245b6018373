"""Posteriors made after an optimiser has stopped."""
