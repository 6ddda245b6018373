"""Algorithms that look at values of the loss alone."""
