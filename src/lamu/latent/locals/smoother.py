"""A recurrent encoder of a series, which reads it backwards."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.local import Eliminated, Local, Rest
from lamu.graphs.statistics import Numbers
from lamu.latent.locals.families import MeanField
from lamu.latent.locals.row_of_graph import natural
from lamu.networks import GRU, MLP
from lamu.networks.adapted import adapted
from lamu.networks.interface import outputs
from lamu.networks.readouts import EveryStep
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["Smoother"]

_BACKWARD, _COMBINER = GRU((50,), EveryStep()), MLP((50,))


@record
@sized
class Smoother(Local):
    r"""A series of latents \(z_1, \dots, z_T\) with the belief that the posterior of a Markov chain has.

    \[ q(z \mid y) = \prod_t q(z_t \mid z_{t-1}, h_t), \qquad h_T, \dots, h_1 = \mathrm{RNN}(y_T, \dots, y_1) \]

    since given \(z_{t-1}\) the posterior of \(z_t\) depends on \(y_t, \dots, y_T\) alone. The mean and the log scale
    are what the combiner makes of \(z_{t-1}\) (zero at first) and \(h_t\). The value of a row is
    \(\log p(y, z) - \log q(z \mid y)\) at one path. The row observes series `[T, ...]`, missing entries as zero.

    Attributes:
        backward: the network of h, which is given the series from its end to its start and returns `width` numbers for
            every step, side by side: `GRU` or `LSTM` with `EveryStep()`.
        combiner: the network of mean and log scale.
        width: numbers of \(h_t\).

    Raises:
        TypeError: for a latent that is no series of numbers `[T, D]`.
        ValueError: for data that are not series of T steps, or a width that is no positive number.

    Source: Krishnan, Shalit & Sontag (2017), equations 7 and 8, the deep Kalman smoother.

    Examples:
        >>> from lamu.latent import Smoother
        >>> Smoother(width=20).random
        True
    """

    backward: Any = _BACKWARD
    combiner: Any = _COMBINER
    width: int = static(default=50)

    random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("backward", "combiner"):
            object.__setattr__(self, name, adapted(getattr(self, name)))
        if not isinstance(self.width, int) or self.width < 1:
            raise ValueError(f"width={self.width!r} is no number of units; give a whole number from 1")

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        """Returns fresh weights of both networks."""
        site = next(site for site in row.latent if site.name == name)
        if site.kind is not Numbers or len(shape_of(site)) != 2:
            raise TypeError(f"the latent {name!r} is no series of numbers [T, D], which a Smoother draws step by step")
        steps, latents = shape_of(site)
        series = _series(name, row, steps, dtype_of(row.known))
        of_backward, of_combiner = jax.random.split(key)
        both = jnp.zeros((1, latents + self.width), series.dtype)
        return {
            "backward": self.backward.init(of_backward, series[None], steps * self.width)[0],
            "combiner": self.combiner.init(of_combiner, both, 2 * latents)[0],
        }

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the log importance weight of a path, and λ of all latents at it."""
        site = next(site for site in row.latent if site.name == name)
        steps, latents = shape_of(site)
        of_path, of_rest = jax.random.split(key)
        series = _series(name, row, steps, dtype_of(own))
        h, _ = outputs(self.backward, own["backward"], {}, series[None], None, False, None)
        h = jnp.reshape(h, (steps, self.width))

        def step(before: Array, of_step: tuple[Array, Array]) -> tuple[Array, Any]:
            summary, noise = of_step
            both = jnp.concatenate([before, summary])[None]
            belief = MeanField().belief({}, outputs(self.combiner, own["combiner"], {}, both, None, False, None)[0][0])
            precision: Any = belief.precision
            z = belief.mean + noise / jnp.sqrt(precision.values)
            return z, (z, belief.mean, precision.values, belief.log_prob(z))

        noise = jax.random.normal(of_path, (steps, latents), h.dtype)
        # The network has read the end first.
        _, (z, mean, precision, log_q) = jax.lax.scan(step, jnp.zeros(latents, h.dtype), (h[::-1], noise))
        bound, others = rest(row.given(name, z), at, of_rest)
        return bound - jnp.sum(log_q), {**others, name: natural(site, mean, precision)}


def _series(name: str, row: Row, steps: int, dtype: Any) -> Array:
    """Returns what the row observes, features side by side, from the end to the start, `[T, features]`."""
    parts = []
    for site in row.sites:
        if site.name not in row.data or site.name in row.evidence:
            continue
        value = jnp.asarray(row.data[site.name], dtype)
        if value.ndim < 1 or len(value) != steps:
            raise ValueError(
                f"a row of {site.name} has the shape {value.shape}, and {name!r} has {steps} steps; give "
                f"[N, {steps}, features]"
            )
        observed = row.observed.get(site.name)
        value = value if observed is None else jnp.where(observed, value, jnp.zeros_like(value))
        parts.append(jnp.reshape(value, (steps, -1)))
    return jnp.concatenate(parts, axis=1)[::-1]
