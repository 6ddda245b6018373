"""Closed forms: one exact step of the rule."""
