"""Beliefs moved by their moments: assumed-density filtering."""
