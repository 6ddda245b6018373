"""Laws of the transitions of a sampler: an invariant target, and consistent states."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.batch import Batch
from lamu.density import LogDensity, nothing
from lamu.mcmc.chains import Kernel, LogTarget
from lamu.objective import Objective
from lamu.testing.laws import check, close, within_errors

__all__ = ["KERNEL_LAWS", "check_kernel"]

_CHAINS, _MOVES = 20_000, 3
_SLOPE, _NOISE = 0.5, 0.6  # of the second coordinate given the first


def _log_density(u: Any) -> Any:
    """The log density of the logarithm of a Gamma(2) variable, which is skewed, and of a normal variable given it."""
    return 2.0 * u[0] - jnp.exp(u[0]) - 0.5 * ((u[1] - _SLOPE * u[0]) / _NOISE) ** 2


def _exact() -> jax.Array:
    """Returns independent draws from that density, `[chains, 2]`."""
    numbers = np.random.default_rng(0)
    first = np.log(numbers.gamma(2.0, size=_CHAINS))
    return jnp.asarray(np.stack([first, _SLOPE * first + _NOISE * numbers.normal(size=_CHAINS)], axis=1))


class _Case(NamedTuple):
    """A kernel with a step size."""

    kernel: Kernel
    step_size: float

    @property
    def target(self) -> LogTarget:
        return LogTarget(Objective(LogDensity(_log_density, jnp.zeros(2)), 1.0), Batch.of(*nothing()), {})

    def moved(self, scales: tuple[float, float]) -> tuple[Any, Any, Any]:
        """Returns chains before and after some moves, with their statistics."""
        target, inverse_mass = self.target, jnp.asarray(scales) ** 2

        def run(key: Any, start: Any) -> Any:
            position = {"network": start, "likelihood": {}}
            chain, size = self.kernel.begin(position, target), jnp.asarray(self.step_size)
            statistics: dict[str, Any] = {}
            for move_key in jax.random.split(key, _MOVES):
                chain, statistics = self.kernel.move(move_key, chain, target, size, inverse_mass, False)
            return chain, statistics

        start = _exact()
        chains, statistics = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), _CHAINS), start)
        return start, chains, statistics


def the_target_stays(case: _Case) -> None:
    """Chains that start at exact draws keep their moments over some moves, with two mass matrices."""
    for scales in ((1.0, 1.0), (1.5, 0.4)):
        start, chains, _ = case.moved(scales)
        end = chains.position["network"]
        moments = lambda u: jnp.stack([u[:, 0], u[:, 1], u[:, 0] ** 2, u[:, 0] * u[:, 1], u[:, 1] ** 2, u[:, 0] ** 3])
        changes = np.asarray(moments(end) - moments(start)).T
        within_errors(changes, 0.0, f"the change of a moment in {_MOVES} moves, with the scales {scales},")


def chains_move(case: _Case) -> None:
    """At least one chain in ten has moved after some moves, and acceptance rates are probabilities."""
    start, chains, statistics = case.moved((1.0, 1.0))
    moved = float(jnp.mean(jnp.any(chains.position["network"] != start, axis=1)))
    assert moved > 0.1, f"{moved:.0%} of the chains are elsewhere after {_MOVES} moves; try another step_size"
    acceptance = np.asarray(statistics["acceptance"])
    assert ((acceptance >= 0) & (acceptance <= 1)).all(), "an acceptance is not a probability"


def a_chain_knows_where_it_is(case: _Case) -> None:
    """The log density and the gradient in a chain's state are those of its position."""
    _, chains, _ = case.moved((1.0, 1.0))
    some = jax.tree.map(lambda leaf: leaf[:50], chains)
    fresh = jax.vmap(lambda position: case.kernel.begin(position, case.target))(some.position)
    for carried, due in zip(jax.tree.leaves(some), jax.tree.leaves(fresh), strict=True):
        close(carried, due, 1e-3, "the log density or the gradient that a chain carries", 1e-3)


KERNEL_LAWS = (the_target_stays, chains_move, a_chain_knows_where_it_is)


def check_kernel(kernel: Kernel, step_size: float = 0.7) -> None:
    """Runs every law of the kernels that move a sampler's chains, on a skewed density of two numbers.

    20,000 chains start at exact draws, so that moves with this invariant distribution change no moment by more than
    five standard errors. A kernel with a bias from its step size, such as an unadjusted one, is rejected.

    Args:
        kernel: a `lamu.mcmc.chains.Kernel`.
        step_size: the step size; the test has most power if about half of the moves are accepted.

    Raises:
        AssertionError: names every broken law, with its values.

    Examples:
        >>> from lamu.mcmc.metropolis import RandomWalk
        >>> from lamu.testing import check_kernel
        >>> check_kernel(RandomWalk())
    """
    check(type(kernel).__name__, _Case(kernel, step_size), KERNEL_LAWS)
