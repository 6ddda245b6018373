"""Runs laws and reports all broken ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

__all__ = ["Inapplicable", "check", "close", "within_errors"]

ERRORS = 5.0  # standard errors of an average over draws; one number fails by chance once in two million


class Inapplicable(Exception):
    """Raised by a law that cannot be asked of a subject."""


def check(what: str, subject: object, laws: Iterable[Callable[[Any], None]]) -> None:
    """Runs every law on the subject."""
    broken = []
    for law in laws:
        try:
            law(subject)
        except Inapplicable as error:
            raise ValueError(f"{what} {error}") from error
        except Exception as error:  # any other error breaks the law
            told = " ".join(str(error).split())
            broken.append(f"{law.__name__}: {type(error).__name__}: {told}")
    if broken:
        raise AssertionError(f"{what} breaks {len(broken)} laws:\n  " + "\n  ".join(broken))


def close(actual: object, expected: object, rtol: float, what: str, atol: float = 0.0) -> None:
    """Raises an AssertionError unless two arrays agree."""
    actual, expected = np.asarray(actual, float), np.asarray(expected, float)
    assert actual.shape == expected.shape, f"{what} has the shape {actual.shape} where {expected.shape} is due"
    bad = ~np.isclose(actual, expected, rtol=rtol, atol=atol)
    if bad.any():
        raise AssertionError(f"{what} is {actual[bad].ravel()[0]:.6g} where {expected[bad].ravel()[0]:.6g} is due")


def within_errors(draws: object, expected: object, what: str, slack: float = 0.0) -> None:
    """Raises an AssertionError unless the mean of independent draws is as expected, within five standard errors."""
    draws = np.asarray(draws, float)
    mean, error = draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    expected = np.broadcast_to(np.asarray(expected, float), mean.shape)
    bad = ~(np.abs(mean - expected) <= ERRORS * error + slack)
    if bad.any():
        where = np.flatnonzero(bad.ravel())[0]
        raise AssertionError(
            f"{what} is {mean.ravel()[where]:.4g} over {len(draws)} draws, with a standard error of "
            f"{error.ravel()[where]:.2g}, where {expected.ravel()[where]:.4g} is due"
        )
