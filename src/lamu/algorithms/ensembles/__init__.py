"""Posteriors of several runs side by side."""
