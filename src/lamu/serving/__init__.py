"""A prediction server over HTTP: `lamu serve`."""

from lamu.serving.app import application
from lamu.serving.batching import HttpProtocol, Limits
from lamu.serving.rows import ArrayRows, TableRows

__all__ = ["ArrayRows", "HttpProtocol", "Limits", "TableRows", "application"]
