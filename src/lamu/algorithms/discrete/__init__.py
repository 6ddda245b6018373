"""Beliefs about what is on or off: binary weights, and units that are dropped."""
