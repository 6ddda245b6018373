"""Lamu's sides that are commands of their own."""
