"""The versions of what ran."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

__all__ = ["version"]


def version(package: str) -> str:
    """Returns the version of a package as it is installed; "unknown" where it runs without being installed.

    Examples:
        >>> from lamu.cli.versions import version
        >>> version("no such package")
        'unknown'
    """
    try:
        return installed(package)
    except PackageNotFoundError:
        return "unknown"
