"""A prediction server over HTTP: `lamu serve`."""

from lamu.serving.app import application
from lamu.serving.requests import ArrayRows, HttpProtocol, Limits, TableRows

__all__ = ["ArrayRows", "HttpProtocol", "Limits", "TableRows", "application"]
