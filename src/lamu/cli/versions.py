"""The versions of what ran; light, so that `lamu --version` waits for nothing."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

__all__ = ["package_versions", "version"]

_PACKAGES = ("lamu", "jax", "jaxlib", "numpy", "optax", "scikit-learn", "pandas")


def version(package: str) -> str:
    """Returns the version of a package as it is installed; "unknown" where it runs without being installed."""
    try:
        return installed(package)
    except PackageNotFoundError:
        return "unknown"


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
