"""Encoders as locals of real-valued latents."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.families import Gaussian
from lamu.graphs.elimination import Eliminated, Local, ProductProposal, Proposal, Reshaped, Rest
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.statistics import Numbers, Vectors
from lamu.latent.bounds import ELBO, Bound, Importance, WarmUp
from lamu.latent.flows import Flow, Flowed, init_flows
from lamu.latent.locals.encoder import (
    EncoderLocal,
    RowOfGraph,
    encoded,
    first_encoder,
    latent_site,
    natural,
    soft_clipped,
)
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.typing import Array, Belief, DTypeLike, Number, Params, RandomKey

__all__ = [
    "Amortised",
    "BeliefFamily",
    "Corruption",
    "Delta",
    "Denoising",
    "Flows",
    "GaussianNoise",
    "Masking",
    "MeanField",
    "Refined",
    "proposal_of",
]


class BeliefFamily:
    """How an encoder's outputs parameterise a belief about a vector z of D numbers; here a mean-field Gaussian.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import BeliefFamily
        >>> class Halved(BeliefFamily):
        ...     def belief(self, params, outputs):
        ...         return super().belief(params, outputs - jnp.log(2.0))
        >>> Halved().outputs(3), float(Halved().belief({}, jnp.zeros(2)).precision.values[0].round(3))
        (6, 4.0)
    """

    def outputs(self, size: int) -> int:
        """Returns the number of the encoder's outputs.

        Args:
            size: D.
        """
        return 2 * size

    def init(self, key: RandomKey, size: int, dtype: DTypeLike) -> Params:
        """Returns initial parameters that all rows share besides the encoder's; empty if there are none.

        Args:
            key: a random key.
            size: D.
            dtype: dtype of the parameters.
        """
        return {}

    def belief(self, params: Params, outputs: Array) -> Belief:
        """Returns q(z | y).

        Args:
            params: the parameters from `init`.
            outputs: the encoder's outputs, one vector.
        """
        mean, log_scale = jnp.split(outputs, 2)
        return Gaussian(mean, Diagonal(jnp.exp(-2 * soft_clipped(log_scale))))


@record
class MeanField(BeliefFamily):
    r"""\(q(z \mid y) = N(m(y), \mathrm{diag}(s(y)^2))\), with m and log s as the encoder's outputs.

    Beyond \(\pm 15\) log s grows like the logarithm of its output, so that \(s^2\) and \(s^{-2}\) are finite.

    Source: Kingma & Welling (2014), equation 9.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import MeanField
        >>> MeanField().belief({}, jnp.array([3.0, 0.0])).mean.tolist()
        [3.0]
    """


@record
class Flows(BeliefFamily):
    """A mean-field Gaussian transformed by flows, which read a context from the encoder.

    Attributes:
        flows: the flows, the first to be applied first.
        context: number of further outputs of the encoder that the flows read.

    Raises:
        ValueError: for no flow, or a negative context.

    Source: Rezende & Mohamed (2015), figure 2; Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016).

    Examples:
        >>> from lamu.latent import Flows, Planar
        >>> Flows((Planar(), Planar()), context=16).outputs(2)
        20
    """

    flows: tuple[Flow, ...]
    context: int = static(default=16)

    def __post_init__(self) -> None:
        if not self.flows:
            raise ValueError("Flows(()) has no flow; give at least one, or use MeanField()")
        if self.context < 0:
            raise ValueError(f"context={self.context!r} is negative; give how many outputs the flows read, from 0")

    def outputs(self, size: int) -> int:
        """Returns 2 D plus the size of the context."""
        return super().outputs(size) + self.context

    def init(self, key: RandomKey, size: int, dtype: DTypeLike) -> Params:
        """Returns initial parameters of every flow by its number."""
        return init_flows(self.flows, key, size, self.context, dtype)

    def belief(self, params: Params, outputs: Array) -> Flowed:
        """Returns the flowed belief."""
        size = (outputs.size - self.context) // 2
        base = super().belief({}, outputs[: 2 * size])
        return Flowed(base, self.flows, tuple(params[n] for n in range(len(self.flows))), outputs[2 * size :])


_DRAWS = 64  # samples of a belief for estimated moments; not tuned


@record
class Amortised(EncoderLocal):
    r"""A latent with a belief \(q(z \mid y)\) that a network, the encoder, computes from the row.

    \[ \log p(y) \ge E_q[\log p(y, z) - \log q(z \mid y)] \]

    or any other of the bounds. The network reads the row's data, and the latents in `given`, which other
    locals sample first. Missing entries count as zero; counts c are read as
    \(\log(1 + c)\). Its weights are at
    `params["network"]["local"][name]` and have no prior; train them with an optimiser,
    `blocks({"local/*": adam(1e-3), ...})`, or everything with `adam`.

    Attributes:
        network: the encoder; its output width comes from the latent and the family.
        family: family of the belief, `MeanField()` or `Flows(...)`.
        given: latents that the encoder reads in addition to the data.
        bound: one of `lamu.latent.bounds`; a `WarmUp` follows the training steps.
        marked: whether the encoder also reads which entries are observed, and classes as one-hot vectors, for rows with
            missing entries or categories.

    Raises:
        TypeError: if `bound` or `family` is none; if it is used for a category (`Enumerated`).

    Source: Kingma & Welling (2014); Rezende, Mohamed & Wierstra (2014).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.latent import Amortised
        >>> from lamu.networks import MLP
        >>> def vae(m):
        ...     decode = m.network("decode", MLP((8,)), outputs=5)
        ...     with m.rows():
        ...         z = m.sample("z", graphs.Normal(jnp.zeros(2), 1.0))
        ...         m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))
        >>> graph = lamu.Graph(vae, local={"z": Amortised(MLP((8,)))})
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> posterior.local({"y": jnp.eye(5)})["z"].mean.shape
        (5, 2)
    """

    network: Any
    family: BeliefFamily | Any = MeanField()
    given: tuple[str, ...] = static(default=())
    bound: Bound | Any = ELBO()
    marked: bool = static(default=False)

    random: ClassVar[bool] = True
    per_unit_kl: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.bound, Bound):
            raise TypeError(f"the bound is {self.bound!r}; give one of lamu.latent, for instance ELBO()")
        if not isinstance(self.family, BeliefFamily):
            raise TypeError(f"the family is {self.family!r}; give MeanField() or Flows(...)")

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of the encoder, and the family's parameters."""
        site = latent_site(name, row)
        if site.kind not in (Numbers, Vectors):
            raise TypeError(
                f"the latent {name!r} is {site.kind.words}, and an encoder's Gaussian needs numbers; use "
                "Enumerated(network) for a category"
            )
        size = math.prod(shape_of(site))
        of_network, of_family = jax.random.split(key)
        outputs = self.family.outputs(size)
        weights = first_encoder(self.network, of_network, name, self.given, row, outputs, self.marked)
        return {"network": weights, "family": self.family.init(of_family, size, dtype_of(environment, row.known))}

    @property
    def counts(self) -> bool:
        """Whether the bound warms up."""
        return isinstance(self.bound, WarmUp)

    def importance_weighted(self) -> Amortised:
        """Returns the local with the bound of one sample, the log of an importance weight."""
        return replace(self, bound=Importance(1))

    def belief(self, name: str, own: Params, row: Row, environment: Environment) -> Belief:
        """Returns q(z | y) about the vector of the latent's entries.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row.
            environment: the statistics of shared variables.
        """
        outputs = encoded(self.network, own["network"], name, self.given, row, environment, self.marked)
        return self.family.belief(own["family"], outputs)

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the encoder's belief, with the flows of its family."""
        return proposal_of(self.belief(name, own, row, environment), name, row)

    def unit_divergences(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Array | None:
        """Returns the divergence of every unit; None under flows, a learned prior, or a prior with open latents."""
        return RowOfGraph(name, row, environment, rest).unit_divergences(self.belief(name, own, row, environment))

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the bound by samples of the encoder's belief, and λ of all latents: of others at one sample."""
        return self.at_belief(self.belief(name, own, row, environment), name, own, row, environment, key, rest)

    def at_belief(
        self, belief: Belief, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns `marginalise` at a belief that may differ from the encoder's.

        Args:
            belief: belief about the vector of the latent's entries.
            name: the latent.
            own: the local's parameters.
            row: the row.
            environment: the statistics of shared variables.
            key: a random key of the row.
            rest: eliminates the other latents.
        """
        joint = RowOfGraph(name, row, environment, rest)
        weight = 1.0 if environment.step is None else self.bound.weight(environment.step).astype(dtype_of(own))
        if environment.values_only:
            return self.bound.of_row(key, joint, belief, weight), {}
        of_bound, of_draw, of_rest, of_moments = jax.random.split(key, 4)
        bound = self.bound.of_row(of_bound, joint, belief, weight)
        with_sample = row.given(name, jnp.reshape(belief.sample(of_draw), joint.site.shape or ()))
        own_natural = natural(joint.site, *_moments(belief, of_moments))
        return bound, {**rest(with_sample, environment, of_rest)[1], name: own_natural}


def proposal_of(belief: Belief, name: str, row: Row) -> Proposal:
    """Returns a belief about the vector of a latent's entries as a belief about the latent."""
    site = latent_site(name, row)
    return ProductProposal({name: Reshaped(belief, shape_of(site))})


def _moments(belief: Belief, key: RandomKey) -> tuple[Array, Array]:
    """Returns mean and precision of every entry: exact for a mean-field Gaussian, otherwise by samples."""
    if isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
        return belief.mean, belief.precision.values
    draws = jax.vmap(belief.sample)(jax.random.split(key, _DRAWS))
    return jnp.mean(draws, axis=0), 1 / jnp.var(draws, axis=0, ddof=1)


@record
class Delta(EncoderLocal):
    r"""A latent \(z = f(y)\) that a network computes from the row: an autoencoder's code.

    A row contributes \(\log p(y \mid z) + \log p(z)\) there, the log joint density. It is neither the row's density nor
    a bound of it: a point has no entropy.

    Attributes:
        network: the encoder f.

    Source: Rumelhart, Hinton & Williams (1986); Vincent, Larochelle, Bengio & Manzagol (2008) for the picture.

    Examples:
        >>> from lamu.latent import Delta
        >>> from lamu.networks import MLP
        >>> Delta(MLP((16,))).random
        False
    """

    network: Any

    has_density: ClassVar[bool] = False

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        site = latent_site(name, row)
        return first_encoder(self.network, key, name, (), row, math.prod(shape_of(site)))

    def importance_weighted(self) -> Delta:
        """Raises a TypeError: a code has no density."""
        raise TypeError("a Delta local has no density of a row, because a point has no entropy; use Amortised(network)")

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the log joint density at the code, and λ of a narrow belief around it."""
        return self.at_code(self.code(name, own, row, environment), name, row, environment, key, rest)

    def code(self, name: str, own: Params, row: Row, environment: Environment) -> Array:
        """Returns f(y), a vector.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row that the encoder reads.
            environment: the statistics of shared variables.
        """
        return encoded(self.network, own, name, (), row, environment)

    def at_code(self, code: Array, name: str, row: Row, environment: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns `marginalise` at a code.

        Args:
            code: a vector.
            name: the latent.
            row: the row.
            environment: the statistics of shared variables.
            key: a random key of the row, or None.
            rest: eliminates the other latents.
        """
        site = latent_site(name, row)
        code = jnp.reshape(code, shape_of(site))
        bound, others = rest(row.given(name, code), environment, key)
        narrow = jnp.full((code.size,), 1 / jnp.finfo(code.dtype).eps, code.dtype)
        return bound, {**others, name: natural(site, code.reshape(-1), narrow)}


class Corruption:
    """The corruption of a row before a denoising autoencoder reads it; the base class does nothing.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Corruption
        >>> class Flipped(Corruption):
        ...     def apply(self, key, value):
        ...         return jnp.where(jax.random.bernoulli(key, 0.1, value.shape), 1 - value, value)
        >>> sorted(set(Flipped().apply(jax.random.key(0), jnp.zeros(100)).tolist()))
        [0.0, 1.0]
    """

    def apply(self, key: RandomKey, value: Array) -> Array:
        """Returns the corrupted values.

        Args:
            key: a random key.
            value: value of one variable of a row.
        """
        return value


@record
class Masking(Corruption):
    r"""Sets each entry to zero with probability ν.

    Attributes:
        share: ν.

    Raises:
        ValueError: for a share outside [0, 1).

    Source: Vincent, Larochelle, Bengio & Manzagol (2008), section 2.3.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Masking
        >>> sorted(set(Masking(0.5).apply(jax.random.key(0), jnp.full(100, 3.0)).tolist()))
        [0.0, 3.0]
    """

    share: Number = 0.25

    def __post_init__(self) -> None:
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share={self.share!r} is not a share of entries to hide; give a number in [0, 1)")

    def apply(self, key: RandomKey, value: Array) -> Array:
        """Returns the values, some of them set to zero."""
        return jnp.where(jax.random.bernoulli(key, self.share, value.shape), jnp.zeros_like(value), value)


@record
class GaussianNoise(Corruption):
    r"""Adds a sample of \(N(0, s^2)\) to each entry.

    Attributes:
        scale: s, in the unit of the data.

    Raises:
        ValueError: for a scale that is not positive.

    Source: Vincent, Larochelle, Lajoie, Bengio & Manzagol (2010), section 3.3.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import GaussianNoise
        >>> bool(abs(jnp.std(GaussianNoise(2.0).apply(jax.random.key(0), jnp.zeros(1000))) - 2.0) < 0.3)
        True
    """

    scale: Number = 0.3

    def __post_init__(self) -> None:
        if not self.scale > 0.0:
            raise ValueError(f"scale={self.scale!r} must be positive; for no corruption take Delta(network)")

    def apply(self, key: RandomKey, value: Array) -> Array:
        """Returns the values with noise."""
        return value + jnp.asarray(self.scale, value.dtype) * jax.random.normal(key, value.shape, value.dtype)


@record
class Denoising(Delta):
    r"""A latent \(z = f(\tilde y)\) that a network computes from a corrupted row \(\tilde y \sim C(\tilde y \mid y)\).

    A row contributes \(\log p(y \mid z) + \log p(z)\), y being the clean row. Only training corrupts rows, anew
    at every step; codes and evaluations use clean rows. As with `Delta`, a row has no density.

    Attributes:
        network: the encoder f.
        corruption: C, `Masking(share)`, `GaussianNoise(scale)`, or a custom subclass of `Corruption`.

    Raises:
        TypeError: if `corruption` is not a corruption.

    Source: Vincent, Larochelle, Bengio & Manzagol (2008).

    Examples:
        >>> from lamu.latent import Denoising, Masking
        >>> from lamu.networks import MLP
        >>> Denoising(MLP((16,)), Masking(0.3)).counts
        True
    """

    corruption: Corruption | Any = Masking()

    random: ClassVar[bool] = True
    counts = True  # training steps are counted, since only training has a step

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.corruption, Corruption):
            raise TypeError(f"the corruption is {self.corruption!r}; give for instance latent.Masking(0.25)")

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the log joint density at the code of the corrupted row, in training, and λ around the code."""
        of_noise, of_rest = jax.random.split(key)
        if environment.step is None:
            return super().marginalise(name, own, row, environment, of_rest, rest)
        code = self.code(name, own, self._corrupted(of_noise, row), environment)
        return self.at_code(code, name, row, environment, of_rest, rest)

    def _corrupted(self, key: RandomKey, row: Row) -> Row:
        """Returns the row as the encoder reads it."""
        data = {
            name: self.corruption.apply(jax.random.fold_in(key, number), jnp.asarray(value, jnp.result_type(float)))
            for number, (name, value) in enumerate(row.data.items())
        }
        return replace(row, data=data)


@record
@sized
class Refined(Local):
    r"""An encoder's belief after natural-gradient steps on the row's own bound.

    \[ \lambda \leftarrow (1 - \rho)\, \lambda + \rho\, \nabla_\mu E_{q_\lambda}[\log p(y, z)], \qquad
       \lambda_0 = \lambda_\mathrm{encoder}(y) \]

    with expectations over the same few samples in every step, pairs ±ε of unit second moments, and the retraction that
    keeps precisions positive; exact where \(\log p\) is a sum of quadratic functions of the entries of z. Gradients of
    the bound pass through the steps to the encoder. A step takes one gradient of the decoder a sample. As the local of
    a graph with a trained encoder it measures the encoder's distance from the best belief of its family
    (`lamu.scores.amortisation_gap`).

    Attributes:
        local: the encoder, an `Amortised` with a mean-field belief.
        steps: number of steps.
        rate: ρ.
        pairs: number of pairs of samples.

    Raises:
        TypeError: for a local that is not an `Amortised`, or has flows.
        ValueError: for fewer than one step or pair, or a rate outside (0, 1].

    Source: Khan & Rue (2021), equation 3; Lin, Schmidt & Khan (2020); Kim, Wiseman, Miller, Sontag & Rush (2018).

    Examples:
        >>> from lamu.latent import Amortised, Refined
        >>> from lamu.networks import MLP
        >>> Refined(Amortised(MLP((16,))), steps=5).rate
        0.3
    """

    local: Amortised | Any
    steps: int = static()
    rate: float = 0.3
    pairs: int = static(default=4)

    random: ClassVar[bool] = True
    per_unit_kl: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.local, Amortised) or not isinstance(self.local.family, MeanField):
            raise TypeError(f"steps are taken on a mean-field belief, and the local is {self.local!r}; give Amortised")
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate={self.rate!r} is outside (0, 1]; give for instance 0.3")

    @property
    def given(self) -> tuple[str, ...]:
        """The latents that the encoder reads."""
        return self.local.given

    @property
    def counts(self) -> bool:
        """Whether the encoder's bound warms up."""
        return self.local.counts

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        return self.local.init(key, name, row, environment)

    def importance_weighted(self) -> Refined:
        """Returns the local with the bound of one sample of the refined belief."""
        return Refined(self.local.importance_weighted(), self.steps, self.rate, self.pairs)

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        return proposal_of(self.belief(name, own, row, environment, key, rest), name, row)

    def unit_divergences(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Array | None:
        """Returns the divergence of every unit of the refined belief; None if the encoder has none."""
        return RowOfGraph(name, row, environment, rest).unit_divergences(
            self.belief(name, own, row, environment, key, rest)
        )

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the bound at the refined belief, and λ of all latents."""
        of_belief, of_bound = jax.random.split(key)
        refined = self.belief(name, own, row, environment, of_belief, rest)
        return self.local.at_belief(refined, name, own, row, environment, of_bound, rest)

    def belief(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Gaussian:
        """Returns the refined belief about the vector of the latent's entries; arguments as of `marginalise`."""
        of_noise, of_rest = jax.random.split(key)
        joint, belief = RowOfGraph(name, row, environment, rest), self.local.belief(name, own, row, environment)
        noise = jax.random.normal(of_noise, (self.pairs, belief.mean.size), belief.mean.dtype)
        noise = noise / jnp.sqrt(jnp.mean(noise**2, axis=0, keepdims=True))
        noise = jnp.concatenate([noise, -noise])
        keys = jax.random.split(of_rest, len(noise))

        def expected(mean: Array, variance: Array) -> Array:
            def log_joint(noise: Array, key: RandomKey) -> Array:
                z = mean + jnp.sqrt(variance) * noise
                return joint.log_likelihood(z, jax.random.clone(key)) + joint.log_prior(z)

            return jnp.mean(jax.vmap(log_joint)(noise, keys))

        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            mean, precision = state
            of_mean, of_variance = jax.grad(expected, argnums=(0, 1))(mean, 1 / precision)
            rate = jnp.asarray(self.rate, mean.dtype)
            change = -2 * of_variance - precision
            precision = precision + rate * change + (rate * change) ** 2 / (2 * precision)
            return (mean + rate * of_mean / precision, precision), None

        (mean, precision), _ = jax.lax.scan(step, (belief.mean, belief.precision.values), None, length=self.steps)
        return Gaussian(mean, Diagonal(precision))
