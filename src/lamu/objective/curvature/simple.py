"""Curvatures from one gradient (none, squares, Price's identity), damping, gradient clipping and the exact Hessian."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lamu import tree
from lamu.base.arguments import require
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss, Gradient
from lamu.objective.curvature.interface import Curvature, Evaluation, evaluated, hessian_product, without_padding
from lamu.operators import AnyStructure
from lamu.record import record
from lamu.supports import value_of
from lamu.typing import Number, Params, RandomKey

__all__ = [
    "ClippedGradient",
    "Damped",
    "Hessian",
    "NoCurvature",
    "Price",
    "RootScaledGradient",
    "SquaredGradient",
    "fisher_diagonal",
]


class _OfGradient(Curvature):
    """Base class of curvatures that are functions of the batch's (possibly clipped) gradient."""

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        return self.from_gradient(loss.gradient(theta, key), loss, theta, belief, structure)

    def from_gradient(
        self, point: Gradient, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any
    ) -> Evaluation:
        """Returns the evaluation at a point from its gradient."""
        raise NotImplementedError


@record
class NoCurvature(_OfGradient):
    """The gradient alone, one backward pass."""

    def from_gradient(
        self, point: Gradient, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any
    ) -> Evaluation:
        return Evaluation.of(point, None)


@record
class Price(Curvature):
    r"""\(S(\theta - m)\, \hat g(\theta)^\top\), symmetric part, in the belief's structure."""

    # For \(\theta \sim N(m, S^{-1})\), Stein's lemma gives \(E[S(\theta - m) g(\theta)^\top] = E[\nabla^2 \bar\ell]\):
    # an unbiased, noisy estimate of the expected Hessian from one gradient, also on minibatches. It is zero at the
    # mean, so that it needs an expectation by samples.
    #
    # Source: Lin, Schmidt & Khan (2020), equation (13); Shen et al. (2024), algorithm 1, line 4.

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and the estimate of the expected Hessian.
        point = loss.gradient(theta, key)
        offset = belief.precision.matvec(tree.add(theta, belief.mean, -1.0))
        return Evaluation.of(point, structure.from_outer(offset, point.coordinates))


@record
class SquaredGradient(_OfGradient):
    r"""\(\hat g \hat g^\top\) in the belief's structure, with \(\hat g\) the gradient of the mean loss on the batch."""

    # For a batch of B rows its expectation is \(\bar g \bar g^\top\) plus 1/B of the covariance of the rows' gradients:
    # as an estimate of curvature it is biased, depends on the batch size, and is not linear in the rows. RMSprop and
    # Adam use it.

    def from_gradient(
        self, point: Gradient, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any
    ) -> Evaluation:
        return Evaluation.of(point, structure.from_outer(point.coordinates, point.coordinates))


@record
class RootScaledGradient(_OfGradient):
    r"""\(\sqrt{s}\,|\hat g|\), coordinate by coordinate, with s the belief's precision a row."""

    # Its fixed point is \(\sqrt s = |\hat g|\) on average, as that of the squared minibatch gradient, but it grows
    # linearly with the gradient. It also depends on the batch size, and is not linear in the rows.
    #
    # Source: Möllenhoff & Khan (2023), algorithm 1 (bSAM).

    def from_gradient(
        self, point: Gradient, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any
    ) -> Evaluation:
        # Returns value, gradient and its scaled absolute value.
        scale = belief.precision.scale(1.0 / loss.objective.concentration).diagonal(theta)
        size = jax.tree.map(lambda s, g: jnp.sqrt(s) * jnp.abs(g), scale, point.coordinates)
        return Evaluation.of(point, structure.from_diagonal(size))


@record
class Hessian(Curvature):
    r"""\(\nabla^2\bar\ell(\theta)\), by one Hessian-vector product per coordinate: for small problems."""

    # It may be indefinite; a step of the rule without retraction can then make the precision indefinite.

    def accumulates(self, structure: AnyStructure) -> str:
        return "rows"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        point = loss.gradient(theta, key)
        return Evaluation.of(point, structure.from_hessian(hessian_product(loss, theta, key), theta))


@record
class Damped(Curvature):
    r"""Damped curvature, \(H + \gamma I\)."""

    # The belief's precision becomes larger, by as much as a prior of precision \(N\gamma\) would add; the fixed point
    # of the mean does not change.

    base: Curvature  # the choice of curvature
    damping: Number  # γ, in the units of the curvature of a row

    departure = "damping"

    @property
    def name(self) -> str:
        # The name of the curvature that is damped.
        return self.base.name

    def accumulates(self, structure: AnyStructure) -> str:
        return getattr(self.base, "accumulates", lambda _: "")(structure)

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        evaluation = self.base.evaluate(loss, theta, belief, structure, key)
        floor = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.damping), theta)
        return replace(evaluation, curvature=evaluation.curvature.add_diagonal(floor))


@record
class ClippedGradient(Curvature):
    r"""Another curvature with gradient clipping to a norm of c: \(g \min(1, c / \lVert g \rVert)\)."""

    # The gradient is that of the mean loss on all rows of a batch, at each draw of the weights, and the norm is over
    # all of the belief's coordinates: microbatches and devices change neither. Curvatures that estimate the Hessian are
    # those of the loss and stay unbiased. The squared gradient and its kin are functions of the gradient, and so of the
    # clipped one, as in `optax.chain(optax.clip_by_global_norm(c), optax.adam(...))`.

    base: Curvature  # the choice of curvature
    norm: Number  # c, in the units of the mean loss, as in optax

    def __post_init__(self) -> None:
        require(self.norm > 0, f"norm={self.norm!r} clips every gradient to zero; give a positive number")

    @property
    def departure(self) -> str:
        # What the base changes, and the gradient.
        return ", ".join(word for word in (self.base.departure, "clipped gradient") if word)

    @property
    def name(self) -> str:
        # The name of the curvature.
        return self.base.name

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"  # the base adds up what it does

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        if isinstance(self.base, _OfGradient):
            point = loss.gradient(theta, key)
            clipped = replace(point, coordinates=self._clip(point.coordinates))
            return self.base.from_gradient(clipped, loss, theta, belief, structure)
        evaluation = evaluated(self.base, loss, theta, belief, structure, key)
        return replace(evaluation, gradient=self._clip(evaluation.gradient))

    def _clip(self, gradient: Params) -> Params:
        return optax.clip_by_global_norm(self.norm).update(gradient, optax.EmptyState())[0]


def fisher_diagonal(key: RandomKey, loss: BatchLoss, theta: Params, probes: int = 1) -> Params:
    """Returns an unbiased estimate of the diagonal of the mean Fisher information, without the prior."""
    # \[ E_{s, \tilde y} \Big[ \Big( \tfrac{1}{\sqrt B} \sum_i s_i \sqrt{r_i B}\, \nabla \log p(\tilde y_i \mid x_i,
    #    \theta) \Big)^2 \Big] = \mathrm{diag} \sum_i r_i\, E_{\tilde y}[g_i g_i^\top],
    #    \qquad s_i = \pm 1, \quad \tilde y_i \sim p(\cdot \mid x_i, \theta) \]
    #
    # with \(r_i\) what the row counts in the mean. A probe costs one forward pass and one gradient, for any network,
    # also where rows cannot be told apart (batch statistics); its relative standard deviation is about \(\sqrt 2\) a
    # coordinate, and much less averaged over a leaf.
    #
    # Source: Hutchinson (1990), in the space of rows; the identity of the Fisher information and the Gauss–Newton
    # matrix
    #     is Kunstner, Hennig & Balles (2019), section 2.
    loss = without_padding(loss)
    model, batch = loss.objective.model, loss.batch
    factor = loss.objective.row_factor(batch)
    if model.has_outputs:  # a row of several trials is redrawn as one, and counts as often as it has trials
        dispersion = loss.space.join(theta, loss.rest)["likelihood"]
        f = jax.lax.stop_gradient(loss.outputs(theta))
        factor = model.likelihood.counted(dispersion, f, batch.y, factor)

    def probe(key: RandomKey) -> Params:
        label_key, sign_key, layer_key = jax.random.split(key, 3)
        rows = _redrawn(label_key, loss, theta) if model.has_outputs else batch
        signs = jax.random.rademacher(sign_key, factor.shape, factor.dtype) * jnp.sqrt(factor)

        def signed(theta: Params) -> jax.Array:
            params = loss.space.join(theta, loss.rest)
            values, _ = model.log_likelihood(params, loss.network_state, rows, layer_key, True)
            return jnp.sum(jnp.where(factor > 0, values, jnp.zeros_like(values)) * signs.astype(values.dtype))

        return jax.tree.map(jnp.square, jax.grad(signed)(theta))

    if probes == 1:
        return probe(key)
    probes_squared = jax.lax.map(lambda i: probe(jax.random.fold_in(key, i)), jnp.arange(probes))
    return tree.scale(jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), probes_squared), 1.0 / probes)


def _redrawn(key: RandomKey, loss: BatchLoss, theta: Params) -> Batch:
    """Returns the batch with targets drawn from the model."""
    f = jax.lax.stop_gradient(loss.outputs(theta))
    params = loss.space.join(theta, loss.rest)
    drawn = loss.objective.model.likelihood.sample(key, params["likelihood"], f)
    targets = value_of(loss.batch.y)
    return replace(loss.batch, y=drawn.astype(targets.dtype).reshape(targets.shape))
