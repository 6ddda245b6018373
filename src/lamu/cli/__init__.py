"""The command line: `lamu fit`, `lamu predict`, `lamu compare`, `lamu algorithms`, `lamu verify`."""

from lamu.cli.app import main

__all__ = ["main"]
