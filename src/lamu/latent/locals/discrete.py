"""Encoders of discrete latents: binary ones by sampling with a learned baseline, categories by enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.expectations import Control, LeaveOneOut, MovingAverageBaseline, Relaxed, ScoreFunction
from lamu.expectations.samplers import own_key
from lamu.families import Bernoulli, Categorical
from lamu.graphs.elimination import Eliminated, Local, ProductProposal, Proposal, Rest
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.statistics import Bits, Categories
from lamu.latent.locals.encoder import EncoderLocal, RowOfGraph, encoded, first_encoder, latent_site
from lamu.networks.interface import adapted
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["AmortisedBernoulli", "Baseline", "Enumerated", "SummedOut"]


@record
class Baseline(Control):
    r"""A control variate that is learned by regression together with the encoder of an `AmortisedBernoulli` local.

    \[ b(y) = D_y\,\big(c + C(y)\big), \qquad
       \text{by minimising } \tfrac12 \Big( \frac{\ell}{D_y} - c - C(y) \Big)^2 \]

    for the learning signals \(\ell\) of rows with \(D_y\) observed entries. The number c follows the average signal
    like a moving average at the optimiser's rate; the network C, if any, makes the baseline
    depend on the row. A baseline does not depend on its sample, so that the gradient stays unbiased.

    Attributes:
        network: C, which reads the encoder's inputs; None for c alone.

    Source: Mnih & Gregor (2014), section 2.3.

    Examples:
        >>> from lamu.expectations import ScoreFunction
        >>> from lamu.latent import AmortisedBernoulli, Baseline
        >>> from lamu.networks import MLP
        >>> AmortisedBernoulli(MLP((50,)), ScoreFunction(1, Baseline(MLP((50,))))).estimator.samples
        1
    """

    network: Any = None

    def __post_init__(self) -> None:
        if self.network is not None:
            object.__setattr__(self, "network", adapted(self.network))

    def weights(self, losses: Array, kernel: Callable[[], Array]) -> Array:
        """Raises a TypeError: a baseline needs a row."""
        raise TypeError(
            "a Baseline is learned beside the encoder of a row; give it to AmortisedBernoulli, or take LeaveOneOut()"
        )

    def init(self, key: RandomKey, name: str, given: tuple[str, ...], row: Row) -> Params:
        """Returns c = 0, and initial weights of C.

        Args:
            key: a random key.
            name: the latent.
            given: the latents that the encoder reads in addition to the data.
            row: a row, for shapes.
        """
        offset = {"offset": jnp.zeros((), dtype_of(row.known))}
        return (
            offset
            if self.network is None
            else {
                **offset,
                "network": first_encoder(self.network, key, name, given, row, 1),
            }
        )

    def an_entry(self, name: str, own: Params, given: tuple[str, ...], row: Row, environment: Environment) -> Array:
        """Returns c + C(y), in nats per observed entry.

        Args:
            name: the latent.
            own: the parameters from `init`.
            given: the latents that the encoder reads in addition to the data.
            row: the row.
            environment: the statistics of shared variables.
        """
        if self.network is None:
            return own["offset"]
        return own["offset"] + encoded(self.network, own["network"], name, given, row, environment)[0]

    def entries(self, row: Row) -> Any:
        """Returns D, the number of observed entries of a row.

        Args:
            row: the row.
        """
        sizes = [
            jnp.sum(row.observed[name]) if name in row.observed else math.prod(jnp.shape(value))
            for name, value in row.data.items()
            if name not in row.evidence
        ]
        return jnp.maximum(sum(sizes[1:], sizes[0]), 1)


@record
class AmortisedBernoulli(EncoderLocal):
    r"""Binary latents with an encoder's belief \(q(b \mid y) = \prod_j \mathrm{Ber}(b_j; \sigma(\lambda_j(y)))\).

    \[ \log p(y) \ge E_q[\ell(b)], \qquad \ell(b) = \log p(y, b) - \log q(b \mid y) \]

    A sample of b has no derivative in λ. Two estimators of the gradient, both of `lamu.expectations`:

    - `ScoreFunction(draws, control)`, unbiased:
      \(\nabla_\lambda \approx \frac1S \sum_s (\ell(b_s) - \mathrm{control})\, \nabla_\lambda \log q(b_s \mid y)\),
      with the controls `ConstantBaseline`, `LeaveOneOut`, `Regression`, and `Baseline`, which is learned (NVIL). The
      model's parameters get the average gradient of \(\log p(y, b_s)\).
    - `Relaxed(temperature, draws)`, **biased**: the gradient, in all parameters, of
      \(E[\log p(y, w_\tau)] + H(q)\) at relaxed samples \(w = \sigma((\lambda + \epsilon)/\tau)\) between zero and one.
      The value is still \(\ell\) at the corners, \(b = 1[w > \tfrac12]\), a bound.

    The encoder reads the row's data, and the latents in `given`. Its parameters are at
    `params["network"]["local"][name]`, below `encoder` and `baseline`, and have no prior.

    Attributes:
        network: the encoder, of the logits λ.
        estimator: estimator of the gradient.
        given: latents that the encoder reads in addition to the data.

    Raises:
        TypeError: for another estimator, a `MovingAverageBaseline`, whose state rows cannot store, or a latent that
            is not binary.
        ValueError: for a `Relaxed` with a floor, which is for gradients in the probabilities.

    Source: Mnih & Gregor (2014), equations 3 to 7; Kool, van Hoof & Welling (2019) for `LeaveOneOut`; Maddison, Mnih &
        Teh (2017), and Jang, Gu & Poole (2017) for `Relaxed`.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.latent import AmortisedBernoulli
        >>> from lamu.networks import MLP
        >>> def binary_codes(m):
        ...     decode = m.network("decode", MLP((8,)), outputs=5)
        ...     with m.rows():
        ...         b = m.sample("b", graphs.Bernoulli(jnp.full(3, 0.5)))
        ...         m.sample("y", lamu.likelihoods.Bernoulli()(decode(b)))
        >>> graph = lamu.Graph(binary_codes, local={"b": AmortisedBernoulli(MLP((8,)))})
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> posterior.local({"y": jnp.eye(5)})["b"].mean.shape
        (5, 3)
    """

    network: Any
    estimator: ScoreFunction | Relaxed | Any = ScoreFunction(4, LeaveOneOut())
    given: tuple[str, ...] = static(default=())

    random: ClassVar[bool] = True
    per_unit_kl: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.estimator, ScoreFunction | Relaxed):
            raise TypeError(
                f"the estimator is {self.estimator!r}, and a draw of zeros and ones has no derivative; give "
                "ScoreFunction(draws, control) or Relaxed(temperature)"
            )
        if isinstance(self.estimator, ScoreFunction) and isinstance(self.estimator.control, MovingAverageBaseline):
            raise TypeError(
                "MovingAverageBaseline() keeps a state, and rows are seen one by one; give latent.Baseline(), a number "
                "that follows the average signal, or LeaveOneOut()"
            )
        if isinstance(self.estimator, Relaxed) and self.estimator.departure:
            raise ValueError(
                f"Relaxed has the floor {self.estimator.floor!r}, which bounds slopes in probabilities, and an encoder "
                "has logits; leave it out"
            )

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of the encoder, and of a learned baseline."""
        site = latent_site(name, row)
        if site.kind is not Bits:
            raise TypeError(
                f"the latent {name!r} is {site.kind.words}, and AmortisedBernoulli draws zeros and ones; use "
                "Amortised(network) for numbers, Enumerated(network) for a category"
            )
        of_encoder, of_baseline = jax.random.split(key)
        encoder = first_encoder(self.network, of_encoder, name, self.given, row, math.prod(shape_of(site)))
        control: Any = getattr(self.estimator, "control", None)
        learned = {"baseline": control.init(of_baseline, name, self.given, row)} if _learned(control) else {}
        return {"encoder": encoder, **learned}

    def importance_weighted(self) -> AmortisedBernoulli:
        """Returns the local with one sample, whose value is the log of an importance weight."""
        return replace(self, estimator=ScoreFunction(1))

    def belief(self, name: str, own: Params, row: Row, environment: Environment) -> Bernoulli:
        """Returns q(b | y) about the vector of the latent's entries.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row.
            environment: the statistics of shared variables.
        """
        return Bernoulli(encoded(self.network, own["encoder"], name, self.given, row, environment))

    def unit_divergences(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Array | None:
        """Returns the divergence of every bit; None under a learned prior, or a prior with open latents."""
        return RowOfGraph(name, row, environment, rest).unit_divergences(self.belief(name, own, row, environment))

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the average of ℓ with the estimator's gradient, and λ of all latents: of others at one sample."""
        shape = shape_of(latent_site(name, row))
        belief = self.belief(name, own, row, environment)
        of_draws, of_rest = jax.random.split(key)
        keys = jax.random.split(of_rest, self.estimator.samples)

        def at_draws(draws: Array) -> Eliminated:
            # The same keys at corners and at relaxed samples, since both belong to the same row.
            own = jax.random.clone(keys)
            return jax.vmap(lambda b, k: rest(row.given(name, jnp.reshape(b, shape)), environment, k))(draws, own)

        if isinstance(self.estimator, Relaxed):
            bound, others = _relaxed(self.estimator, of_draws, belief, at_draws)
        else:
            bound, others = self._scored(of_draws, belief, at_draws, name, own, row, environment)
        first = jax.tree.map(lambda leaf: leaf[0], others)
        return bound, {**first, name: Bits(jnp.reshape(belief.logit, shape))}

    def _scored(
        self, key: Any, belief: Bernoulli, at_draws: Any, name: str, own: Params, row: Row, environment: Environment
    ) -> Eliminated:
        """Returns the average of ℓ with the score-function gradient in the encoder, and λ of the others."""
        estimator: Any = self.estimator
        fixed = jax.lax.stop_gradient
        count = estimator.samples
        draws = jax.vmap(lambda i: estimator.sampler.draw(key, fixed(belief), i, count))(jnp.arange(count))
        log_joint, others = at_draws(draws)
        log_q = jax.vmap(belief.log_prob)(draws)
        signals, control, fit = fixed(log_joint - log_q), estimator.control, jnp.zeros((), log_q.dtype)
        if _learned(control):
            entries = control.entries(row)
            expected = control.an_entry(name, own["baseline"], self.given, row, environment)
            fit = -jnp.mean((signals / entries - expected) ** 2) / 2
            weights = (signals - fixed(expected) * entries) / count
        else:
            weights = control.weights(signals, lambda: _kernel(fixed(belief.mean), draws))
        differentiable = jnp.sum(fixed(weights) * log_q) + fit
        return jnp.mean(log_joint - fixed(log_q)) + (differentiable - fixed(differentiable)), others


def _learned(control: Any) -> bool:
    return isinstance(control, Baseline)


def _kernel(mean: Array, draws: Array) -> Array:
    r"""Returns \(s_i^\top F^{-1} s_j\) of the scores of logits; logits that are certain have none."""
    scores = draws - mean[None]
    information = jnp.maximum(mean * (1 - mean), jnp.finfo(mean.dtype).eps)
    return (scores / information[None]) @ scores.T


def _relaxed(estimator: Relaxed, key: Any, belief: Bernoulli, at_draws: Any) -> Eliminated:
    """Returns the average of ℓ at corners with the gradient at relaxed samples, and λ of the others at corners."""
    fixed, count = jax.lax.stop_gradient, estimator.samples
    soft = jax.vmap(lambda i: estimator.point(own_key(key, i, count), belief)[0])(jnp.arange(count))
    corners = fixed(jnp.asarray(soft > 0.5, soft.dtype))
    log_joint, others = at_draws(corners)
    value = fixed(jnp.mean(log_joint - jax.vmap(belief.log_prob)(corners)))
    differentiable = jnp.mean(at_draws(soft)[0]) + belief.entropy()
    return value + (differentiable - fixed(differentiable)), others


@record
class Enumerated(EncoderLocal):
    r"""A category with a network's belief \(q(c \mid y)\), and the exact sum over its values.

    \[ \log p(y) \ge \sum_c q(c \mid y) \big( \mathcal L(y, c) - \log q(c \mid y) \big) \]

    with \(\mathcal L(y, c)\) the bound of the remaining row at c. In a labelled row, q is the label: the row's
    bound is \(\mathcal L(y, c)\), to which \(\alpha \log q(c \mid y)\) of the network is added so that it learns from
    labels. That term is negative, so that the sum is still a bound.

    Attributes:
        network: the classifier.
        weight: α, for a labelled row.
        given: latents that the network reads in addition to the data.

    Raises:
        ValueError: for a negative α.
        TypeError: if it is used for a latent that is not a category.

    Source: Kingma, Rezende, Mohamed & Welling (2014), equations 6 to 9.

    Examples:
        >>> from lamu.latent import Enumerated
        >>> from lamu.networks import MLP
        >>> Enumerated(MLP((500,)), weight=0.1).weight
        0.1
    """

    network: Any
    weight: float = static(default=0.1)
    given: tuple[str, ...] = static(default=())

    random: ClassVar[bool] = True
    supervised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight >= 0:
            raise ValueError(
                f"weight={self.weight!r} is negative; give what log q(c | y) of a labelled row counts, from 0"
            )

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns initial weights of the classifier."""
        site = latent_site(name, row)
        if site.kind is not Categories or len(shape_of(site)) != 1:
            raise TypeError(
                f"the latent {name!r} is {site.kind.words}, which cannot be enumerated; use Amortised(network)"
            )
        return first_encoder(self.network, key, name, self.given, row, shape_of(site)[-1])

    def importance_weighted(self) -> SummedOut:
        """Returns the exact sum, without a classifier."""
        return SummedOut()

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the classifier's belief, or the label if the row has one."""
        logits, tie = self._logits(name, own, row, environment)
        return ProductProposal({name: Categorical(jax.nn.log_softmax(logits + tie))})

    def _logits(self, name: str, own: Params, row: Row, environment: Environment) -> tuple[Array, Array]:
        """Returns log q(c | y) of the network, and the evidence of the row's label."""
        logits = jax.nn.log_softmax(encoded(self.network, own, name, self.given, row, environment))
        label = (
            row.evidence[name].probabilities.astype(logits.dtype) if name in row.evidence else jnp.zeros_like(logits)
        )
        return logits, label

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the weighted sum of the bounds at every value, and λ of all latents: of others at the most likely."""
        logits, tie = self._logits(name, own, row, environment)
        log_q = jax.nn.log_softmax(logits + tie)
        values = jnp.eye(log_q.size, dtype=log_q.dtype)
        keys = jax.random.split(key, log_q.size)
        if name in row.labelled:  # all rows are labelled: one pass of the remaining row, not one for each value
            label = jnp.argmax(tie)
            bound, others = rest(row.given(name, values[label]), environment, keys[label])
            return bound + self.weight * logits[label], {**others, name: Categories(log_q)}
        bounds, others = jax.vmap(lambda value, k: rest(row.given(name, value), environment, k))(values, keys)
        q = jnp.exp(log_q)
        # Values that the label excludes have q = 0 and a bound of minus infinity.
        terms = jnp.where(q > 0, q * (jnp.where(q > 0, bounds - log_q, 0.0)), 0.0)
        labelled = jnp.any(tie < 0)
        learned = jnp.where(labelled, jnp.sum(jnp.where(tie < 0, 0.0, logits)), 0.0)
        likeliest = jax.tree.map(lambda leaf: leaf[jnp.argmax(log_q)], others)
        return jnp.sum(terms) + self.weight * learned, {**likeliest, name: Categories(log_q)}


@record
class SummedOut(Local):
    r"""A category that is summed out at samples of the other latents, \(\log \sum_c e^{\mathcal L(y, c)}\).

    where L(y, c) is the log density, or the bound, of the remaining row at c: one pass of it for each value.

    Examples:
        >>> from lamu.latent import SummedOut
        >>> SummedOut().random
        True
    """

    random: ClassVar[bool] = True

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the log of the sum, and λ of all latents: of others at the most likely value."""
        site = latent_site(name, row)
        values = jnp.eye(shape_of(site)[-1], dtype=dtype_of(environment, row.known))
        keys = jax.random.split(key, len(values))
        bounds, others = jax.vmap(lambda value, k: rest(row.given(name, value), environment, k))(values, keys)
        likeliest = jax.tree.map(lambda leaf: leaf[jnp.argmax(bounds)], others)
        return jax.nn.logsumexp(bounds), {**likeliest, name: Categories(jax.nn.log_softmax(bounds))}
