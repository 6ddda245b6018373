"""Closed forms: exact steps of the rule."""
