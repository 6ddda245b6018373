"""Optimisers: rows of the rule whose posterior is a point."""
