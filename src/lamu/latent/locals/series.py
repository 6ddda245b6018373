"""Encoders of series: one that reads backwards, and one that reads the image at every step of a decoder."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.families import Gaussian
from lamu.graphs.elimination import Eliminated, Local, ProductProposal, Proposal, Rest
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.network import applications
from lamu.graphs.statistics import Numbers
from lamu.latent.drawing import Drawing, lstm_step
from lamu.latent.locals.amortised import MeanField
from lamu.latent.locals.encoder import RowOfGraph, latent_site, natural, soft_clipped
from lamu.networks import GRU, LSTM, MLP
from lamu.networks.interface import adapted, outputs
from lamu.networks.recurrent import EveryStep
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, RandomKey, State

__all__ = ["Recurrent", "Smoother"]


@record
@sized
class Recurrent(Local):
    r"""Latents of T steps, with each step's belief conditioned on the decoder's previous canvas.

    \[ \hat y_t = y - E[y \mid c_{t-1}], \quad
       h_t = \mathrm{LSTM}(h_{t-1}, [\mathrm{read}(y, \hat y_t), h^{dec}_{t-1}]), \quad
       q(z_t \mid z_{<t}, y) = N(m(h_t), \mathrm{diag}(s(h_t)^2)) \]
    \[ \mathcal L = E_q\Big[\log p(y \mid c_T) - \sum_t KL\big(q(z_t \mid z_{<t}, y) \,\|\, p(z_t)\big)\Big] \]

    by one path of z, with the divergences in closed form. The latent is `[T, latents]` with a Normal prior, and the
    likelihood's outputs are a `Drawing` of it, which defines the reading. Missing entries count as zero.

    Attributes:
        hidden: the width of h.

    Raises:
        TypeError: if no `Drawing` is called with the latent.
        ValueError: for a width that is not a positive number.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015), equations 3 to 6, and 12.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.DRAW(3, 2, 6, hidden=8)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(6)}, lamu.algorithms.adam(0.01), steps=5).posterior
        >>> posterior.local({"y": jnp.eye(6)})["z"].mean.shape
        (6, 3, 2)
    """

    hidden: int = static(default=100)

    random: ClassVar[bool] = True
    per_unit_kl: ClassVar[bool] = True

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of the cell and of the beliefs."""
        site, drawing = _drawn(name, row)
        y = _image(site, row, dtype_of(row.known))
        latents = shape_of(latent_site(name, row))[-1]
        features = 2 * drawing.read.size(y.size) + drawing.hidden
        return LSTM((self.hidden,)).init(key, jnp.zeros((1, 1, features), y.dtype), 2 * latents)[0]

    def importance_weighted(self) -> Recurrent:
        """Returns the local whose value is the log of an importance weight of its path."""
        return _WeighedPath(self.hidden)

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the belief about the whole path, each step given the steps before it."""
        shape = shape_of(latent_site(name, row))
        return ProductProposal({name: _PathBelief(self, name, own, row, environment, shape)})

    def path(
        self, name: str, own: Params, row: Row, environment: Environment, key: RandomKey
    ) -> tuple[Array, Array, Array]:
        """Returns z of all steps as a vector, and mean and precision of the steps' beliefs at that path.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row.
            environment: the statistics of shared variables.
            key: a random key.
        """
        shape = shape_of(latent_site(name, row))
        noise = jax.random.normal(key, shape, dtype_of(own))
        moved = lambda centre, log_scale, noise: centre + jnp.exp(log_scale) * noise
        return self.along(noise, moved, name, own, row, environment)

    def along(
        self, inputs: Array, step_of: Any, name: str, own: Params, row: Row, environment: Environment
    ) -> tuple[Array, Array, Array]:
        """Returns `path` with steps as a function of mean, log deviation and an input of each step.

        Args:
            inputs: `[T, latents]`.
            step_of: the function.
            name: the latent.
            own: the local's parameters.
            row: the row.
            environment: the statistics of shared variables.
        """
        site, drawing = _drawn(name, row)
        decoder, likelihood = environment.statistics[_call(name, site).of.name], site.factor.likelihood
        dispersions = environment.statistics.get("likelihood", {}).get(site.name, {})
        y, cell = _image(site, row, dtype_of(own)), LSTM((self.hidden,))
        is_observed = jnp.reshape(row.observed.get(site.name, jnp.ones(y.shape, bool)), y.shape)

        def step(carry: Any, given: Array) -> tuple[Any, Any]:
            h, (memory, canvas) = carry
            mean = jnp.reshape(likelihood.mean(dispersions, canvas.reshape(y.size, -1)), y.shape)
            where = drawing.read_controls(decoder, memory)
            seen = [drawing.read.read(where, part) for part in (y, jnp.where(is_observed, y - mean, 0.0))]
            h = lstm_step(cell, own, h, jnp.concatenate([*seen, memory[0]]))
            layer = own["layers"][0]
            centre, log_scale = jnp.split(h[0] @ layer["kernel"] + layer["bias"], 2)
            log_scale = soft_clipped(log_scale)
            z = step_of(centre, log_scale, given)
            return (h, drawing.draw_step(decoder, memory, canvas, z)), (z, centre, jnp.exp(-2 * log_scale))

        start = jnp.zeros(self.hidden, y.dtype)
        _, (z, mean, precision) = jax.lax.scan(step, ((start, start), drawing.first(decoder)), inputs)
        return z.reshape(-1), mean.reshape(-1), precision.reshape(-1)

    def unit_divergences(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Array | None:
        """Returns the divergence of every unit of every step at one path."""
        _, mean, precision = self.path(name, own, row, environment, key)
        return RowOfGraph(name, row, environment, rest).unit_divergences(Gaussian(mean, Diagonal(precision)))

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        of_path, of_rest, of_others = jax.random.split(key, 3)
        z, mean, precision = self.path(name, own, row, environment, of_path)
        joint = RowOfGraph(name, row, environment, rest)
        divergence = self.divergence(z, Gaussian(mean, Diagonal(precision)), joint)
        bound = joint.log_likelihood(z, of_rest) - divergence
        if environment.values_only:
            return bound, {}
        with_path = row.given(name, jnp.reshape(z, joint.site.shape or ()))
        others = rest(with_path, environment, of_others)[1]
        return bound, {**others, name: natural(joint.site, mean, precision)}

    def divergence(self, z: Array, belief: Gaussian, joint: RowOfGraph) -> Array:
        """Returns the sum of the steps' divergences at a path, in nats; by the path itself under a learned prior.

        Args:
            z: the path.
            belief: the beliefs of the steps at it.
            joint: the row.
        """
        terms = joint.divergences(belief)
        return belief.log_prob(z) - joint.log_prior(z) if terms is None else jnp.sum(terms)


class _PathBelief:
    """The belief about a path, with samples and a density."""

    def __init__(self, *parts: Any) -> None:
        self.local, self.name, self.own, self.row, self.at, self.shape = parts

    def draw(self, key: RandomKey) -> tuple[Array, Array]:
        z, mean, precision = self.local.path(self.name, self.own, self.row, self.at, key)
        return jnp.reshape(z, self.shape), Gaussian(mean, Diagonal(precision)).log_prob(z)

    def log_prob(self, value: Array) -> Array:
        keep_value = lambda centre, log_scale, z: z
        z, mean, precision = self.local.along(value, keep_value, self.name, self.own, self.row, self.at)
        return Gaussian(mean, Diagonal(precision)).log_prob(z)


@record
class _WeighedPath(Recurrent):
    """The log importance weight of a path instead of its bound."""

    def divergence(self, z: Array, belief: Gaussian, joint: RowOfGraph) -> Array:
        # Returns log q(z | y) − log p(z).
        return belief.log_prob(z) - joint.log_prior(z)


def _call(name: str, site: Any) -> Any:
    return next((c for c in applications(site.factor) if name in c.names and isinstance(c.of.network, Drawing)), None)


def _drawn(name: str, row: Row) -> tuple[Any, Drawing]:
    """Returns the site of the image, and the network that draws it."""
    for site in row.sites:
        call = _call(name, site)
        if call is not None and site.factor.is_likelihood and site.name in row.data:
            return site, call.of.network
    raise TypeError(
        f"no Drawing is called with {name!r} for data of a likelihood, and a Recurrent local looks at what it draws; "
        "use Amortised(network) with another decoder"
    )


def _image(site: Any, row: Row, dtype: DTypeLike) -> Array:
    """Returns y as a vector, with missing entries as zero."""
    value = jnp.asarray(row.data[site.name], dtype)
    observed = row.observed.get(site.name)
    return jnp.reshape(value if observed is None else jnp.where(observed, value, jnp.zeros_like(value)), -1)


_BACKWARD, _COMBINER = GRU((50,), EveryStep()), MLP((50,))


@record
@sized
class Smoother(Local):
    r"""A series of latents \(z_1, \dots, z_T\) with the dependence structure of a Markov chain's posterior.

    \[ q(z \mid y) = \prod_t q(z_t \mid z_{t-1}, h_t), \qquad h_T, \dots, h_1 = \mathrm{RNN}(y_T, \dots, y_1) \]

    since given \(z_{t-1}\) the posterior of \(z_t\) depends only on \(y_t, \dots, y_T\). The mean and the log scale
    are the combiner's outputs for \(z_{t-1}\) (zero at first) and \(h_t\). The value of a row is
    \(\log p(y, z) - \log q(z \mid y)\) at one path. The row observes series `[T, ...]`, missing entries as zero.

    Attributes:
        backward: the network of h, which reads the series from its end to its start and returns `width` numbers for
            every step, concatenated: `GRU` or `LSTM` with `EveryStep()`.
        combiner: the network of mean and log scale.
        width: dimension of \(h_t\).

    Raises:
        TypeError: for a latent that is not a series of numbers `[T, D]`.
        ValueError: for data that are not series of T steps, or a width that is not a positive number.

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

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of both networks."""
        site = latent_site(name, row)
        if site.kind is not Numbers or len(shape_of(site)) != 2:
            raise TypeError(f"the latent {name!r} is not a series of numbers [T, D], which a Smoother needs")
        steps, latents = shape_of(site)
        series = _series(name, row, steps, dtype_of(row.known))
        of_backward, of_combiner = jax.random.split(key)
        both = jnp.zeros((1, latents + self.width), series.dtype)
        return {
            "backward": self.backward.init(of_backward, series[None], steps * self.width)[0],
            "combiner": self.combiner.init(of_combiner, both, 2 * latents)[0],
        }

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the log importance weight of a path, and λ of all latents at it."""
        site = latent_site(name, row)
        steps, latents = shape_of(site)
        of_path, of_rest = jax.random.split(key)
        series = _series(name, row, steps, dtype_of(own))
        h, _ = outputs(self.backward, own["backward"], {}, series[None], None, False, None)
        h = jnp.reshape(h, (steps, self.width))

        def step(before: Array, of_step: tuple[Array, Array]) -> tuple[Array, State]:
            summary, noise = of_step
            both = jnp.concatenate([before, summary])[None]
            belief = MeanField().belief({}, outputs(self.combiner, own["combiner"], {}, both, None, False, None)[0][0])
            precision: Any = belief.precision
            z = belief.mean + noise / jnp.sqrt(precision.values)
            return z, (z, belief.mean, precision.values, belief.log_prob(z))

        noise = jax.random.normal(of_path, (steps, latents), h.dtype)
        # The network has read the end first.
        _, (z, mean, precision, log_q) = jax.lax.scan(step, jnp.zeros(latents, h.dtype), (h[::-1], noise))
        bound, others = rest(row.given(name, z), environment, of_rest)
        return bound - jnp.sum(log_q), {**others, name: natural(site, mean, precision)}


def _series(name: str, row: Row, steps: int, dtype: DTypeLike) -> Array:
    """Returns the row's observations, features concatenated, from the end to the start, `[T, features]`."""
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
