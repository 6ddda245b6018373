"""The versions of Python and the packages; light, so that `lamu --version` is fast."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

__all__ = ["package_versions", "version"]

_PACKAGES = ("lamu", "jax", "jaxlib", "numpy", "optax", "scikit-learn", "pandas")


def version(package: str) -> str:
    """Returns the version of an installed package; "unknown" if it is not installed."""
    try:
        return installed(package)
    except PackageNotFoundError:
        return "unknown"


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
