"""Lamu as its users run it: in single precision, compiled with every optimisation, and with nothing patched.

The other tests run in double precision, without optimisation, under run-time type checks and without the measurement
of convergence. `make users` runs these, and `make test` does: `--confcutdir` leaves the conftest of the others out.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest


def pytest_configure() -> None:
    if jax.config.jax_enable_x64 or "optimization_level" in os.environ.get("XLA_FLAGS", ""):
        raise pytest.UsageError(
            "run these tests with `make users`: users have neither double precision nor other flags"
        )
