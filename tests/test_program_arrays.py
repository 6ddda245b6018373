"""NumPyro programs that use NumPy arrays of their module or of what they close over."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lamu
from lamu.programs.program import with_own_arrays

POINTS = np.linspace(-1.0, 1.0, 20)


def _doubled() -> np.ndarray:
    return 2.0 * POINTS


def scaled() -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(slope * POINTS, scale), obs=_doubled())


def precise() -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    precision = numpyro.sample("precision", dist.Gamma(1.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * POINTS, precision**-0.5), obs=_doubled())


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_programs_share_an_array_of_their_module() -> None:
    """JAX keeps what it made of the array in one precision while a compiled step lives that holds it."""
    with jax.enable_x64(False):
        for program in (scaled, precise, scaled):
            target = lamu.from_numpyro(program, {})
            posterior = lamu.fit(target, None, lamu.algorithms.cvi(), steps=3, progress=False).posterior
            assert posterior.mean["network"]["slope"].dtype == jnp.float32


def test_a_program_gets_arrays_of_its_own() -> None:
    inner = np.arange(3.0)

    def program(extra: Any, *, more: float = 1.0) -> Any:
        return POINTS, inner, extra, more, recursive(0), _doubled

    def recursive(depth: int) -> Any:
        return inner if depth else recursive(depth + 1)

    copy = with_own_arrays(partial(program, inner, more=2.0))
    points, closed, given, more, deep, doubled = copy()
    for one, other in ((points, POINTS), (closed, inner), (given, inner), (deep, inner)):
        assert one is not other
        np.testing.assert_array_equal(one, other)
    assert more == 2.0
    np.testing.assert_array_equal(doubled(), _doubled())
    assert with_own_arrays(print) is print
