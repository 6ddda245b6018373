"""Which factors of a program are conjugate in which sites, by an identity test."""

# For random values of the other sites, the slopes of log p in a site's real coordinates at some points determine λ of
# \(\log p = \langle\lambda, T(\theta)\rangle + c\); at further points they must be those of this λ. All in float64, so
# that a true identity holds to 1e-12 and a false one fails by far. For the Gaussian the identity is that slopes are
# affine: the slope half-way between two points is the mean of theirs.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.transforms import biject_to

from lamu.dtype_policy import lenient
from lamu.programs.families import CANDIDATES, candidates, jacobian, message
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Verdict", "verdicts"]

TOLERANCE = 1e-8
_ROUNDS = 3  # values of the others, each with points of its own


@record
class Verdict:
    """What the test found of a factor and one of its arguments.

    Attributes:
        factor: the site whose log density it is.
        site: the argument.
        residuals: the largest relative residual of the identity, by family.
        coupling: how the numbers of the site meet in the factor: 0 where each enters by itself, 1 where those along the
            last axis meet, 2 where others do.

    Examples:
        >>> from lamu.programs.conjugacy import Verdict
        >>> Verdict("y", "mu", (("Normal", 1e-16),)).families
        ('Normal',)
    """

    factor: str = static()
    site: str = static()
    residuals: tuple[tuple[str, float], ...] = static()
    coupling: int = static(default=0)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of which the identity holds."""
        return tuple(name for name, residual in self.residuals if residual < TOLERANCE)


def verdicts(terms: Callable[[Any], Any], supports: Mapping[str, Any], shapes: Mapping[str, Any]) -> list[Verdict]:
    """Returns the verdict of every factor and site that it depends on."""
    with jax.enable_x64(True), lenient():
        transforms = {name: biject_to(support) for name, support in supports.items()}
        constrained = lambda u: {name: transforms[name](leaf) for name, leaf in u.items()}

        @jax.jit
        def slopes(u: Any) -> Any:
            return jax.jacrev(lambda u: terms(constrained(u)))(u)

        random = np.random.default_rng(0)
        point = lambda: {name: jnp.asarray(random.normal(size=shape)) for name, shape in shapes.items()}
        worst: dict[tuple[str, str], dict[str, float]] = {}
        meeting: dict[tuple[str, str], int] = {}
        for _ in range(_ROUNDS):
            others = point()
            for site in shapes:
                _tested(site, slopes, others, point, supports[site], transforms[site], worst, meeting)
    return [Verdict(*pair, tuple(residuals.items()), meeting[pair]) for pair, residuals in worst.items() if residuals]


def _tested(
    site: str,
    slopes: Any,
    others: Any,
    point: Any,
    support: Any,
    transform: Any,
    worst: dict[Any, dict[str, float]],
    meeting: dict[Any, int],
) -> None:
    """Adds the residuals of all factors in one site at one value of the others, and how its numbers meet in them."""
    known: dict[bytes, Any] = {}

    def at(u: Any) -> dict[str, Any]:
        """Slopes of every factor in the site."""
        mark = np.asarray(u).tobytes()
        if mark not in known:
            found = slopes({**others, site: u})
            known[mark] = {factor: leaf[site] for factor, leaf in found.items()}
        return known[mark]

    start = point()[site]
    one, two, three = (2.0 * point()[site] for _ in range(3))
    for factor in at(start):
        size = max(float(jnp.max(jnp.abs(at(u)[factor]))) for u in (start, one, two, three)) if start.size else 0.0
        residuals = worst.setdefault((factor, site), {})
        if size == 0.0:
            continue  # the factor does not know the site
        thirds = [((a + b) / 2.0, (at(a)[factor] + at(b)[factor]) / 2.0) for a, b in ((one, two), (two, three))]
        thirds.append((one / 4 + 3 * three / 4, at(one)[factor] / 4 + 3 * at(three)[factor] / 4))
        off = max(float(jnp.max(jnp.abs(at(u)[factor] - expected))) for u, expected in thirds)
        _note(residuals, "Normal", off / size)
        own = lambda u, factor=factor: at(u)[factor]
        coupling = next((axes for axes in range(min(start.ndim, 1) + 1) if _apart(own, one, two, axes, size)), 2)
        meeting[factor, site] = max(meeting.get((factor, site), 0), coupling)
        for name in candidates(support):
            kind, theta = CANDIDATES[name], transform(start)
            natural = message(kind, theta, lambda u, factor=factor: at(u)[factor], transform)
            off = 0.0
            for u in (one / 2, two / 2):
                expected = jnp.einsum(
                    "...ed,...d->...e", jacobian(kind, transform, u, theta.ndim - kind.event), natural
                )
                off = max(off, float(jnp.max(jnp.abs(at(u)[factor] - expected.reshape(u.shape)))))
            _note(residuals, name, off / size)


def _apart(slope: Callable[[Array], Array], one: Array, two: Array, axes: int, size: float) -> bool:
    """Whether slopes depend on no other member, each of them with the last `axes` axes."""
    # Members take their values at one of two points, by the bits of their numbers: any two differ in one of these.
    shape = one.shape[: one.ndim - axes]
    number = np.arange(int(np.prod(shape))).reshape(shape + (1,) * axes)
    for bit in range(int(number.max(initial=0)).bit_length()):
        first = (number >> bit) % 2 == 1
        away = slope(jnp.where(first, one, two)) - jnp.where(first, slope(one), slope(two))
        if not float(jnp.max(jnp.abs(away))) < TOLERANCE * size:
            return False
    return True


def _note(residuals: dict[str, float], name: str, residual: float) -> None:
    """Keeps the largest; what is no number is no identity."""
    residuals[name] = max(residuals.get(name, 0.0), residual if np.isfinite(residual) else float("inf"))
