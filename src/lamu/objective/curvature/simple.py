"""Curvatures that cost one gradient: none, squared gradients, Price's identity, damping; and the exact Hessian."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.products import hessian_product, without_padding
from lamu.operators import AnyStructure
from lamu.record import record
from lamu.supports import value_of
from lamu.typing import Number, Params, RandomKey

__all__ = ["Damped", "Hessian", "NoCurvature", "Price", "RootScaledGradient", "SquaredGradient", "fisher_diagonal"]


@record
class NoCurvature(Curvature):
    """The gradient alone, one backward pass."""

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        return Evaluation.of(loss.gradient(theta, key), None)


@record
class Price(Curvature):
    r"""\(S(\theta - m)\, \hat g(\theta)^\top\), symmetric part, in the belief's structure."""

    # For \(\theta \sim N(m, S^{-1})\), Stein's lemma gives \(E[S(\theta - m) g(\theta)^\top] = E[\nabla^2 \bar\ell]\):
    # an unbiased estimate of the expected Hessian from one gradient, also on minibatches, and noisy. It means nothing
    # at the mean, so it needs an expectation that draws.
    #
    # Source: Lin, Schmidt & Khan (2020), equation (13); Shen et al. (2024), algorithm 1, line 4.

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and the estimate of the expected Hessian.
        at = loss.gradient(theta, key)
        away = belief.precision.matvec(tree.add(theta, belief.mean, -1.0))
        return Evaluation.of(at, structure.from_outer(away, at.coordinates))


@record
class SquaredGradient(Curvature):
    r"""\(\hat g \hat g^\top\) in the belief's structure, with \(\hat g\) the gradient of the mean loss on the batch."""

    # For a batch of B rows its expectation is \(\bar g \bar g^\top\) plus 1/B of the covariance of the rows' gradients:
    # as an estimate of curvature it is biased, it depends on the batch size, and it is not linear in the rows. It is
    # what RMSprop and Adam use.

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = loss.gradient(theta, key)
        return Evaluation.of(at, structure.from_outer(at.coordinates, at.coordinates))


@record
class RootScaledGradient(Curvature):
    r"""\(\sqrt{s}\,|\hat g|\), coordinate by coordinate, with s the belief's precision a row."""

    # It moves s towards where \(\sqrt s = |\hat g|\) on average, as the squared minibatch gradient does, but grows with
    # the gradient's size only. Like that one it depends on the batch size, and is not linear in the rows.
    #
    # Source: Möllenhoff & Khan (2023), algorithm 1 (bSAM).

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and its scaled absolute value.
        at = loss.gradient(theta, key)
        scale = belief.precision.scale(1.0 / loss.objective.concentration).diagonal(theta)
        size = jax.tree.map(lambda s, g: jnp.sqrt(s) * jnp.abs(g), scale, at.coordinates)
        return Evaluation.of(at, structure.from_diagonal(size))


@record
class Hessian(Curvature):
    r"""\(\nabla^2\bar\ell(\theta)\), by one Hessian-vector product a coordinate: for small problems."""

    # It may be indefinite; a straight step of the rule with it can then leave the cone of precisions.

    def accumulates(self, structure: AnyStructure) -> str:
        return "rows"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = without_padding(loss).gradient(theta, key)
        return Evaluation.of(at, structure.from_hessian(hessian_product(loss, theta, key), theta))


@record
class Damped(Curvature):
    r"""\(H + \gamma I\): another choice of curvature, with a floor under it."""

    # The belief becomes narrower than the curvature says, by as much as a prior of precision \(N\gamma\) would make it;
    # the mean's fixed point stays where it is.

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
        at = self.base.evaluate(loss, theta, belief, structure, key)
        floor = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.damping), theta)
        return replace(at, curvature=at.curvature.add_diagonal(floor))


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
    found = jax.lax.map(lambda i: probe(jax.random.fold_in(key, i)), jnp.arange(probes))
    return tree.scale(jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), found), 1.0 / probes)


def _redrawn(key: RandomKey, loss: BatchLoss, theta: Params) -> Batch:
    """Returns the batch with targets drawn from the model."""
    f = jax.lax.stop_gradient(loss.outputs(theta))
    params = loss.space.join(theta, loss.rest)
    drawn = loss.objective.model.likelihood.sample(key, params["likelihood"], f)
    known = value_of(loss.batch.y)
    return replace(loss.batch, y=drawn.astype(known.dtype).reshape(known.shape))
