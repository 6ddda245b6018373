"""Mode connectivity of chains: the loss barrier on a path from a draw of one chain to a draw of another."""

# With \(\bar\ell = \ell/N\) and a path \(\varphi\) from a draw \(\varphi(0)\) to a draw \(\varphi(1)\), its barrier is
#
# \[ b(\varphi) = \max_{t \in [0, 1]} \; \bar\ell(\varphi(t)) - (1 - t)\, \bar\ell(\varphi(0)) - t\,
# \bar\ell(\varphi(1)),
#    \qquad \varphi(t) = (1 - t)^2 \theta_a + 2 t (1 - t)\, c + t^2 \theta_b \]
#
# A straight line is the path whose middle point c is \((\theta_a + \theta_b)/2\); a curved one has a c that is trained
# to minimise \(\mathbb E_t\, \bar\ell(\varphi(t))\). The barrier of a path is an upper bound of that of the best path,
# so that a low one proves a connection, and a high one does not disprove it.

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import require, require_whole_field, whole_number
from lamu.base.compile_once import lenient
from lamu.data.batch import Batch
from lamu.density import Density
from lamu.families import Draws, Ensemble
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.record import record, static
from lamu.target import Target
from lamu.typing import Array, Data, Number, Params, RandomKey, State

__all__ = ["BezierCurve", "Connectivity", "StraightLine", "barriers"]

_ROWS = 1024  # at a time
_LEAST = 1.0  # nats over all rows: chains cross lower barriers


@record
class StraightLine:
    """Straight paths.

    Examples:
        >>> from lamu.mcmc import StraightLine
        >>> StraightLine().words
        'straight lines'
    """

    words = "straight lines"

    def middles(self, key: RandomKey, loss: _PathLoss, starts: Params, ends: Params) -> None:
        """Returns None: the middle point is the mean of the ends."""
        return None


@record
class BezierCurve:
    """Quadratic Bézier curves, each with a middle point trained by Adam.

    A step takes one gradient a path, on at most 1,024 rows, at a uniformly drawn point of the path.

    Attributes:
        steps: the number of steps.
        learning_rate: the initial rate, which falls to zero by a cosine.

    Raises:
        ValueError: for steps or a learning rate that are not positive.

    Source: Garipov, Izmailov, Podoprikhin, Vetrov & Wilson (2018), section 3.

    Examples:
        >>> from lamu.mcmc import BezierCurve
        >>> BezierCurve(steps=100).words
        'curves of 100 steps'
    """

    steps: int = static(default=300)
    learning_rate: Number = 0.03

    def __post_init__(self) -> None:
        require_whole_field(self, "steps")
        require(self.learning_rate > 0, f"learning_rate={self.learning_rate!r} must be positive")

    @property
    def words(self) -> str:
        """The name of the paths in a verdict."""
        return f"curves of {self.steps} steps"

    def middles(self, key: RandomKey, loss: _PathLoss, starts: Params, ends: Params) -> Params:
        """Returns the trained middle points, leaves `[paths, ...]`."""
        import optax

        optimiser = optax.adam(optax.cosine_decay_schedule(float(self.learning_rate), self.steps))
        middles = _halfway(starts, ends)
        with lenient():
            memory = optimiser.init(middles)
        paths = jax.tree.leaves(middles)[0].shape[0]

        @jax.jit
        def step(key: RandomKey, middles: Params, memory: State, batch: Batch) -> tuple[Params, State]:
            def slope(terms: tuple[Params, Params, Params, Array]) -> Params:
                a, b, c, t = terms
                return jax.grad(lambda c: loss.on(_at(a, b, c, t), batch))(c)

            t = jax.random.uniform(key, (paths,), jnp.result_type(float))
            gradient = jax.lax.map(slope, (starts, ends, middles, t))
            with lenient():
                move, memory = optimiser.update(gradient, memory, middles)
            return jax.tree.map(lambda c, by: c + by.astype(c.dtype), middles, move), memory

        for number in range(self.steps):
            batch = loss.batches[number % len(loss.batches)]
            middles, memory = step(jax.random.fold_in(key, number), middles, memory, batch)
        return middles


@dataclass(frozen=True)
class Connectivity:
    """Result of `barriers`. Losses are in nats a row, and in nats for a density.

    Attributes:
        pairs: the pairs of chains, `[pairs, 2]`.
        between: the barriers of the paths between the two chains, `[pairs, paths]`; infinite on a path that leaves the
            support.
        within: the barriers from draws of a chain to its later ones, `[chains, paths]`, for comparison. Empty for the
            members of an ensemble, `[members, 0]`.
        profiles: the loss along every path between chains, `[pairs, paths, points]`.
        profiles_within: the same within chains, `[chains, paths, points]`.
        rows: N; 1 for a density.
        apart: whether each pair is apart: the lowest barrier between the chains, over all rows, is more than a nat
            above the highest within either.
        verdict: the conclusion, in words.

    Examples:
        >>> import numpy as np
        >>> from lamu.mcmc import Connectivity
        >>> high, low, flat = np.array([[2.0, 3.0]]), np.array([[0.1], [0.3]]), np.zeros((1, 2, 3))
        >>> found = Connectivity(np.array([[0, 1]]), high, low, flat, flat, 100.0, np.array([True]), "apart")
        >>> found.connected, found.matrix.tolist()
        (False, [[0.1, 2.5], [2.5, 0.3]])
    """

    pairs: np.ndarray
    between: np.ndarray
    within: np.ndarray
    profiles: np.ndarray
    profiles_within: np.ndarray
    rows: float
    apart: np.ndarray
    verdict: str

    @property
    def connected(self) -> bool:
        """Whether no two chains are apart."""
        return not bool(np.any(self.apart))

    @property
    def matrix(self) -> np.ndarray:
        """The median barrier of every two chains, `[chains, chains]`, and within each on the diagonal."""
        medians = np.zeros((len(self.within), len(self.within)))
        if self.within.shape[1]:
            np.fill_diagonal(medians, np.median(self.within, axis=1))
        first, second = self.pairs.T
        medians[first, second] = medians[second, first] = np.median(self.between, axis=1)
        return medians

    def __str__(self) -> str:
        return self.verdict


def barriers(
    posterior: Posterior,
    data: Data = None,
    points: int = 11,
    draws: int = 4,
    path: object = None,
    model: Any = None,
) -> Connectivity:
    r"""Returns the loss barriers between chains, and whether the chains are in several basins.

    The loss is \(\bar\ell = \ell/N\), the negative log posterior without its constant, at temperature one: a chain at
    the temperature T has a barrier of \(N b / T\) nats. Where the log posterior is concave no straight line has a
    barrier. Two chains whose hidden units are permuted are apart along straight lines, although they are equivalent,
    and a curved path may avoid the barrier of a straight one.

    It takes a pass over the data for every point of every path: with C chains and D draws of each,
    \(\tfrac12 C (C - 1) D + \tfrac12 C D (D - 1)\) paths.

    Args:
        posterior: draws of a sampler, or an ensemble, whose members' means stand for chains of one draw.
        data: the rows that were learned from: `(x, y)`, a mapping, or what `lamu.fit` took; None for a density.
        points: where a path is looked at, both ends among them.
        draws: how many draws of a chain are taken, evenly spaced, the last among them.
        path: `StraightLine()`, which is taken where none is given, or `BezierCurve()`.
        model: a density with constraints, as it was sampled: paths are then straight in the real numbers that chains
            move in. A posterior knows the constrained parameters alone, and without this paths are straight in them.

    Returns:
        The barriers, and a verdict in words: `print(barriers(posterior, data))`.

    Raises:
        TypeError: for a belief that is made neither of draws nor of members, or a path that is none.
        ValueError: for fewer than two chains, draws or members, fewer than three points, a network without data, or an
            ensemble with states (batch statistics), which belong to its members' weights alone.

    Source: Draxler, Veschgini, Salmhofer & Hamprecht (2018); Garipov et al. (2018); Izmailov, Vikram, Hoffman & Wilson
        (2021), on what posteriors of networks look like.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta**2), jnp.zeros(2))
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(chains=2, warmup=0, draws=20, step_size=0.8))
        >>> found = lamu.mcmc.barriers(fit.posterior)
        >>> found.connected, found.between.shape
        (True, (1, 4))
    """
    path = StraightLine() if path is None else path
    if not isinstance(path, StraightLine | BezierCurve):
        raise TypeError(f"path={path!r} is not a path; give StraightLine() or BezierCurve()")
    points, draws = whole_number("points", points, 3), whole_number("draws", draws, 2)
    picked = _picked(posterior, draws)
    if model is not None:
        posterior, picked = _in_the_sampled_space(posterior, picked, model)
    loss = _PathLoss.of(posterior, data)
    chains, each = jax.tree.leaves(picked)[0].shape[:2]
    pairs = list(combinations(range(chains), 2))
    later = list(combinations(range(each), 2))
    across = [((a, k), (b, k)) for a, b in pairs for k in range(each)]
    inside = [((chain, j), (chain, k)) for chain in range(chains) for j, k in later]
    pairs = np.array(pairs)
    starts, ends = (_chosen(picked, [line[side] for line in across + inside]) for side in (0, 1))
    middles = path.middles(jax.random.clone(posterior.key), loss, starts, ends)
    t = np.linspace(0, 1, points)
    profiles = loss.along(starts, ends, middles, t)
    with np.errstate(invalid="ignore"):
        excess = profiles - (profiles[:, :1] * (1 - t) + profiles[:, -1:] * t)
    # The ends are no excess, to rounding; a place where the loss is no number is none that a chain can cross.
    excess = np.where(np.isnan(excess), np.inf, excess)[:, 1:-1].max(axis=1, initial=0.0)
    between, within = excess[: len(across)].reshape(len(pairs), each), excess[len(across) :].reshape(chains, len(later))
    floor = within.max(axis=1, initial=0.0)[pairs].max(axis=1)
    apart = loss.rows * between.min(axis=1) > loss.rows * floor + _LEAST
    return Connectivity(
        pairs=pairs,
        between=between,
        within=within,
        profiles=profiles[: len(across)].reshape(*between.shape, points),
        profiles_within=profiles[len(across) :].reshape(*within.shape, points),
        rows=loss.rows,
        apart=apart,
        verdict=_verdict(pairs, between, within, apart, loss, path.words),
    )


@dataclass(frozen=True)
class _PathLoss:
    """The mean loss on all rows, some of them at a time."""

    objective: Objective
    network_state: State
    batches: list[Batch]

    @classmethod
    def of(cls, posterior: Posterior, data: Data) -> _PathLoss:
        model = posterior.model
        if data is None and model.has_rows:
            raise ValueError("the loss of a network is of its data; give them: barriers(posterior, (x, y))")
        rows = model.rows(data)
        objective = Objective(model, rows.count)
        return cls(objective, posterior.network_state, list(rows.batches(min(_ROWS, rows.count))))

    @property
    def rows(self) -> float:
        return float(self.objective.data_size)

    def on(self, params: Params, batch: Batch) -> Array:
        """Returns the mean loss in nats a row, estimated from a batch."""
        return self.objective.mean_loss(params, batch, self.network_state)[0]

    def along(self, starts: Params, ends: Params, middles: Params, t: np.ndarray) -> np.ndarray:
        """Returns the mean loss on all rows at points of paths, `[paths, points]`."""
        points = jnp.asarray(t, jnp.result_type(float))

        @jax.jit
        def on(batch: Batch) -> Array:
            def one(path: tuple[Params, Params, Params]) -> Array:
                a, b, c = path
                return jax.lax.map(lambda t: self.on(_at(a, b, _halfway(a, b) if c is None else c, t), batch), points)

            return jax.lax.map(one, (starts, ends, middles))

        weights = [float(batch.count) / self.rows for batch in self.batches]
        parts = zip(weights, self.batches, strict=True)
        return sum((weight * np.asarray(on(batch), np.float64) for weight, batch in parts), np.zeros(()))


def _halfway(a: Params, b: Params) -> Params:
    return jax.tree.map(lambda x, y: (x + y) / 2, a, b)


def _at(a: Params, b: Params, c: Params, t: Array) -> Params:
    """Returns a point of a path."""

    def leaf(x: Array, y: Array, z: Array) -> Array:
        s = t.astype(x.dtype)
        return (1 - s) ** 2 * x + 2 * s * (1 - s) * z + s**2 * y

    return jax.tree.map(leaf, a, b, c)


def _picked(posterior: Posterior, draws: int) -> Params:
    """Returns some draws of every chain, leaves `[chains, draws, ...]`; other draws on disk are not read."""
    belief = posterior.belief
    if isinstance(belief, Ensemble):
        if jax.tree.leaves(posterior.network_state):
            raise ValueError(
                "the members' batch statistics belong to their weights alone, and none are known in between; use a "
                "network without, such as MLP(normalise=None)"
            )
        means = [member.mean for member in belief.members]
        picked = jax.tree.map(lambda *leaves: jnp.stack(leaves)[:, None], *means)
    elif isinstance(belief, Draws):
        count = jax.tree.leaves(belief.samples)[0].shape[1]
        number = min(draws, count)
        if number < 2:
            raise ValueError("there is one draw a chain, and so no path within one; draw at least two")
        chosen = (np.arange(number) + 1) * count // number - 1
        picked = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, chosen]), belief.samples)
    else:
        raise TypeError(
            f"a {type(belief).__name__} belief has no chains to connect; give what a sampler of lamu.mcmc or an "
            "ensemble made"
        )
    if jax.tree.leaves(picked)[0].shape[0] < 2:
        raise ValueError("there is only one chain; run at least two")
    return picked


def _chosen(picked: Params, where: list[tuple[int, int]]) -> Params:
    """Returns draws by chain and number, leaves `[paths, ...]`."""
    chain, number = np.array(where).T
    return jax.tree.map(lambda leaf: leaf[chain, number], picked)


def _in_the_sampled_space(posterior: Posterior, picked: Params, model: Target) -> tuple[Posterior, Params]:
    if not isinstance(model, Density) or not isinstance(posterior.model, Density):
        raise TypeError(
            f"model={type(model).__name__} is not a density; give the LogDensity that was sampled, or leave model out"
        )
    return replace(posterior, model=model), model.unconstrained(picked)


def _verdict(
    pairs: np.ndarray, between: np.ndarray, within: np.ndarray, apart: np.ndarray, loss: _PathLoss, words: str
) -> str:
    density = not loss.objective.model.has_rows
    unit = "nats" if density else "nats a row"
    inside = f"; from draws of a chain to its own by up to {within.max():.3g}" if within.size else ""
    lowest = between.min(axis=1)
    if not apart.any():
        return (
            f"Connected: on the lowest of the {words} between two chains the loss rises by at most {lowest.max():.3g} "
            f"{unit} above its ends{inside}."
        )
    examples = ", ".join(f"{a} and {b}" for a, b in pairs[apart][:3]) + (" and others" if apart.sum() > 3 else "")
    height = lowest[apart].min()
    total = "" if density else f" ({loss.rows * height:.3g} nats over all rows)"
    curve = "; curves may lead round: path=BezierCurve()" if words == StraightLine.words else ""
    order = "; units in another order look like this too, so compare what the chains predict"
    hidden = "" if loss.objective.model.identified else order
    return (
        f"Apart: {int(apart.sum())} of {len(pairs)} pairs of chains ({examples}); on the lowest of the {words} between "
        f"them the loss rises by {height:.3g} {unit}{total} or more above its ends{inside}{curve}{hidden}."
    )
