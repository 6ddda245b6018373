"""Curvatures that cost one gradient: none, squared gradients, Price's identity, damping; and the exact Hessian."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.products import hessian_product, without_padding
from lamu.record import record
from lamu.typing import Number, Params, RandomKey

__all__ = ["Damped", "Hessian", "NoCurvature", "Price", "RootScaledGradient", "SquaredGradient"]


@record
class NoCurvature(Curvature):
    """The gradient alone, one backward pass."""

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
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

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = self.base.evaluate(loss, theta, belief, structure, key)
        floor = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.damping), theta)
        return replace(at, curvature=at.curvature.add_diagonal(floor))
