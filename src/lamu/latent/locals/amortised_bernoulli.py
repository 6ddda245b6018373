"""An encoder as the local of zeros and ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.expectations import LeaveOneOut, MovingAverageBaseline, Relaxed, ScoreFunction
from lamu.expectations.samplers import own_key
from lamu.families import Bernoulli
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, shape_of
from lamu.graphs.local import Eliminated, Local, Rest
from lamu.graphs.statistics import Bits
from lamu.latent.locals.baseline import Baseline
from lamu.latent.locals.encoder import encoded, first_encoder
from lamu.latent.locals.row_of_graph import RowOfGraph
from lamu.networks.adapted import adapted
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["AmortisedBernoulli"]


@record
class AmortisedBernoulli(Local):
    r"""Zeros and ones with a belief \(q(b \mid y) = \prod_j \mathrm{Ber}(b_j; \sigma(\lambda_j(y)))\) of an encoder.

    \[ \log p(y) \ge E_q[\ell(b)], \qquad \ell(b) = \log p(y, b) - \log q(b \mid y) \]

    A draw of b has no derivative in λ. Two estimators of the gradient, both of `lamu.expectations`:

    - `ScoreFunction(draws, control)`, unbiased:
      \(\nabla_\lambda \approx \frac1S \sum_s (\ell(b_s) - \mathrm{control})\, \nabla_\lambda \log q(b_s \mid y)\),
      with the controls `ConstantBaseline`, `LeaveOneOut`, `Regression`, and `Baseline`, which is learned (NVIL). The
      model's parameters get the average gradient of \(\log p(y, b_s)\).
    - `Relaxed(temperature, draws)`, **biased**: the gradient, in all parameters, of
      \(E[\log p(y, w_\tau)] + H(q)\) at relaxed draws \(w = \sigma((\lambda + \epsilon)/\tau)\) between zero and one.
      The value is still \(\ell\) at the corners, \(b = 1[w > \tfrac12]\), a bound.

    The encoder reads all that the row holds, and the latents in `given`. Its parameters stand at
    `params["network"]["local"][name]`, below `encoder` and `baseline`, and have no prior.

    Attributes:
        network: the encoder, of the logits λ.
        estimator: of the gradient.
        given: latents that the encoder reads beside the data.

    Raises:
        TypeError: for another estimator, a `MovingAverageBaseline`, whose state rows cannot hold, or a latent that
            is not zeros and ones.
        ValueError: for a `Relaxed` with a floor, which is one for gradients in the probabilities.

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
    tells_by_units: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))
        object.__setattr__(self, "given", tuple(self.given))
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

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        """Returns fresh weights of the encoder, and of a learned baseline."""
        site = next(site for site in row.latent if site.name == name)
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

    def weighed(self) -> AmortisedBernoulli:
        """Returns the local with one draw, whose value is the log of an importance weight."""
        return replace(self, estimator=ScoreFunction(1))

    def belief(self, name: str, own: Params, row: Row, at: Environment) -> Bernoulli:
        """Returns q(b | y) about the vector of the latent's entries.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row.
            at: the statistics of what all rows share.
        """
        return Bernoulli(encoded(self.network, own["encoder"], name, self.given, row, at))

    def unit_divergences(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Array | None:
        """Returns the divergence of every bit; None under a learned prior, or one of latents that are open."""
        return RowOfGraph(name, row, at, rest).unit_divergences(self.belief(name, own, row, at))

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the average of ℓ with the estimator's gradient, and λ of all latents: of others at one draw."""
        shape = shape_of(next(site for site in row.latent if site.name == name))
        belief = self.belief(name, own, row, at)
        of_draws, of_rest = jax.random.split(key)
        keys = jax.random.split(of_rest, self.estimator.samples)

        def at_draws(draws: Array) -> Eliminated:
            # The same keys at corners and at relaxed draws, since both are of the same row.
            own = jax.random.clone(keys)
            return jax.vmap(lambda b, k: rest(row.given(name, jnp.reshape(b, shape)), at, k))(draws, own)

        if isinstance(self.estimator, Relaxed):
            bound, others = _relaxed(self.estimator, of_draws, belief, at_draws)
        else:
            bound, others = self._scored(of_draws, belief, at_draws, name, own, row, at)
        first = jax.tree.map(lambda leaf: leaf[0], others)
        return bound, {**first, name: Bits(jnp.reshape(belief.logit, shape))}

    def _scored(
        self, key: Any, belief: Bernoulli, at_draws: Any, name: str, own: Params, row: Row, at: Environment
    ) -> Eliminated:
        """Returns the average of ℓ whose gradient in the encoder is that of the score function, and λ of the others."""
        estimator: Any = self.estimator
        held = jax.lax.stop_gradient
        count = estimator.samples
        draws = jax.vmap(lambda i: estimator.sampler.draw(key, held(belief), i, count))(jnp.arange(count))
        log_joint, others = at_draws(draws)
        log_q = jax.vmap(belief.log_prob)(draws)
        signals, control, fit = held(log_joint - log_q), estimator.control, jnp.zeros((), log_q.dtype)
        if _learned(control):
            entries = control.entries(row)
            expected = control.an_entry(name, own["baseline"], self.given, row, at)
            fit = -jnp.mean((signals / entries - expected) ** 2) / 2
            weights = (signals - held(expected) * entries) / count
        else:
            weights = control.weights(signals, lambda: _kernel(held(belief.mean), draws))
        moving = jnp.sum(held(weights) * log_q) + fit
        return jnp.mean(log_joint - held(log_q)) + (moving - held(moving)), others


def _learned(control: Any) -> bool:
    return isinstance(control, Baseline)


def _kernel(mean: Array, draws: Array) -> Array:
    r"""Returns \(s_i^\top F^{-1} s_j\) of the scores of logits, of which those that are certain have none."""
    scores = draws - mean[None]
    information = jnp.maximum(mean * (1 - mean), jnp.finfo(mean.dtype).eps)
    return (scores / information[None]) @ scores.T


def _relaxed(estimator: Relaxed, key: Any, belief: Bernoulli, at_draws: Any) -> Eliminated:
    """Returns the average of ℓ at corners with the gradient at relaxed draws, and λ of the others at corners."""
    held, count = jax.lax.stop_gradient, estimator.samples
    soft = jax.vmap(lambda i: estimator.point(own_key(key, i, count), belief)[0])(jnp.arange(count))
    corners = held(jnp.asarray(soft > 0.5, soft.dtype))
    log_joint, others = at_draws(corners)
    value = held(jnp.mean(log_joint - jax.vmap(belief.log_prob)(corners)))
    moving = jnp.mean(at_draws(soft)[0]) + belief.entropy()
    return value + (moving - held(moving)), others
