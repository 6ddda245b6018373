"""Beliefs that are mixtures of Gaussians."""
