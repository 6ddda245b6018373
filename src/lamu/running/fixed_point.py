"""Measures the distance of a posterior from the fixed point of the rule over its training data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import compiled_lightly, compiled_once, subkey
from lamu.conjugacy import ConjugateModel
from lamu.conjugate_target import MessageTarget
from lamu.convergence import Convergence
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Analytic, Antithetic, Delta, Exact, MonteCarlo, Quadrature
from lamu.families import Draws, Ensemble, Gaussian, Point, Product
from lamu.mcmc.diagnostics import mixing
from lamu.natural_rule import NaturalRule
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import (
    ClippedGradient,
    Curvature,
    Damped,
    GaussNewton,
    LowRankGradients,
    Price,
    RootScaledGradient,
    SquaredGradient,
    SquaredGradients,
    fisher_diagonal,
    hessian_product,
)
from lamu.operators import Dense, Diagonal, Operator
from lamu.posterior import Posterior
from lamu.protocol import Wrapper
from lamu.rate import PolynomialDecay
from lamu.record import record, static
from lamu.rule import Rule
from lamu.typing import Array, Belief, Numeric, Params, PyTree, RandomKey, State

__all__ = ["AtNatural", "convergence_of"]


@record
class _Place:
    """Base class of beliefs whose distance is measured: unbiased estimates of gradient and curvature a row."""

    objective: Objective  # the loss
    deterministic = True

    def averaged(self, draws: int) -> _Place:
        """Returns the same with more draws, in pairs; by default itself."""
        return self

    def on_target_scale(self, gradient: Params, curvature: Params) -> tuple[Params, Params]:
        """Returns both on the scale of the target."""
        kappa = self.objective.concentration
        return tree.scale(gradient, kappa), tree.scale(curvature, kappa)

    def in_metric(self, curvature: Params) -> _Place:
        """Returns the same with a known metric; by default itself."""
        return self

    def distances(self, mean: Params, error: Params) -> dict[str, float]:
        """Returns the distances of the precision; by default none."""
        return {}


@record
class AtNatural(_Place):
    r"""Estimates \(d = \lambda - \lambda_0/T + \kappa\nabla_\mu E_q[\bar\ell]\), of norm \(\sqrt{d^\top F d}\)."""

    algorithm: NaturalRule  # the algorithm, for its expectation
    belief: Belief  # q
    dispersions: Params | None = None  # learned dispersions; None for none

    network_state: ClassVar[State] = {}

    @property
    def deterministic(self) -> bool:
        """Whether the expectation has a closed form in μ."""
        return isinstance(self.algorithm.expectation, Analytic)

    @property
    def dimension(self) -> int:
        """The number of coordinates of θ."""
        return max(tree.dimension(self.belief.mean), 1)

    @property
    def metric(self) -> AtNatural:
        """F."""
        return self

    def solve(self, direction: Params) -> Params:
        r"""Returns \(F d\), which corresponds to multiplying a gradient by an inverse precision."""
        return self.belief.fisher_product(direction)

    def estimate(self, batch: Batch, key: RandomKey) -> tuple[Params, Params]:
        """Returns the estimate of d from these rows, without curvature."""
        return self.algorithm.direction(key, self.belief, batch, self.objective, self.dispersions), {}

    def on_target_scale(self, gradient: Params, curvature: Params) -> tuple[Params, Params]:
        """Returns both unchanged: d is on the scale of the target."""
        return gradient, curvature


# For a Gaussian \(q = N(m, S^{-1})\) with draws in antithetic pairs, \(\theta_\pm = m \pm \epsilon\), pair k gives
# unbiased estimates \(g_k\) of \(E_q[\nabla\ell]/T\) and \(h_k\) of the diagonal of \(E_q[\nabla^2\ell]/T\). The pairs
# are independent, so that
#
# \[ \widehat{\|E g\|^2} = \frac{1}{K(K-1)} \sum_{k \ne l} g_k^\top S^{-1} g_l \]
#
# is unbiased for any noise of the draws. The distance of a precision is that to the nearest end of the interval \(\bar
# h_j \pm 3 s_j\), with \(s_j\) the standard error over the pairs, because curvature from draws is noisy.


# The cost of the measurement: more gives smaller standard errors, which the verdict takes into account. None of these
# was tuned.
_SHARE, _UNNOTICED = 0.1, 2e5  # share of the run's gradients; and gradients of a row with a hundred weights
_AVERAGED = 16  # draws instead of each pair's one, where affordable
_PAIRS, _MOST_PAIRS = 8, 64  # pairs of draws: the fewest give a standard error accurate to a quarter
_PROBES, _FISHER_ROWS = 8, 256  # probes of the Fisher information of a point's metric, and the rows of its batches
_CHUNK, _MOST_NUMBERS = 1024, 2e7  # rows at once; numbers of all pairs' gradients together
_MOST_IN_MATRIX, _MATRIX_WORK = 512, 2e9  # weights whose metric is a matrix; and their square times the rows
_BATCHES_READ, _ROWS_A_WEIGHT = 3, 4  # batches of a stream that its matrix is from; and rows that it needs a weight
_MEMBERS = 4  # first members of an ensemble, of which the worst decides
_FARTHEST = 5.0  # bound of a log ratio
# Curvatures with a lower bound, or that depend on the batch size, are not means over all rows.
_NO_ESTIMATES = (Damped, RootScaledGradient, SquaredGradient)
_SLOWEST = 0.8  # power of a falling rate beyond which the influence of the start vanishes too slowly
_ERRORS = 3.0  # standard errors: with eight pairs, two would leave a tenth of all coordinates outside


def convergence_of(
    posterior: Posterior,
    algorithm: object,
    objective: Objective,
    rows: object,
    key: RandomKey,
    work: float,
    batch_size: int,
) -> Convergence | None:
    """Returns the distance of a posterior from the fixed point; None for other beliefs than those below."""
    # | belief | measured |
    # |---|---|
    # | Gaussian of the rule | both distances, with the recipe's own curvature where that is a mean over the rows |
    # | other Gaussian | both distances, the curvature by Price's identity |
    # | that of an algorithm in λ | the natural norm of a step of rate one, with its own expectation |
    # | a point | the gradient, in the metric of the Fisher information and the prior: a matrix for few weights |
    # | draws | R-hat and effective sample size |
    # | an ensemble | the worst of its first members |
    #
    # `work`: the number of row gradients of the run; the measurement takes at most a tenth of that, on fewer rows if
    # necessary.
    belief = posterior.belief
    if isinstance(belief, Draws):
        return mixing(posterior, rows)
    if isinstance(belief, Ensemble):
        members = [
            convergence_of(
                Posterior(posterior.model, belief.member(i), _member(posterior.network_state, i), posterior.rule, key),
                algorithm.base if isinstance(algorithm, Wrapper) else algorithm,
                objective,
                rows,
                jax.random.fold_in(key, i),
                work / _MEMBERS,
                batch_size,
            )
            for i in range(min(belief.count, _MEMBERS))
        ]
        of_members = [each for each in members if each is not None]
        return max(of_members, key=lambda each: (not each.converged, each.offset or 0.0), default=None)
    parts = belief.factors if isinstance(belief, Product) else {}
    gaussian, dispersion = parts.get("network"), parts.get("likelihood")
    objective = replace(objective, model=posterior.model)
    if isinstance(gaussian, Gaussian) and isinstance(dispersion, Point):
        choices = _choices(algorithm)
        around_belief = _AtGaussian(objective, gaussian, dispersion.mean, posterior.network_state, *choices)
        measured = _measured(around_belief, rows, key, work, batch_size)
        return measured if measured is None else replace(measured, remedy=_remedy(algorithm, measured))
    if isinstance(algorithm, NaturalRule) and algorithm.subject.settles:
        fixed = dispersion.mean if isinstance(dispersion, Point) else None
        measured = _measured(AtNatural(objective, algorithm, gaussian, fixed), rows, key, work, batch_size)
        return (
            measured if measured is None else replace(measured, remedy=_faster_forgetting(algorithm, objective.model))
        )
    if isinstance(belief, Point):
        return _measured(_at_point(posterior, objective, rows, batch_size), rows, key, work, batch_size)
    return None


def _choices(algorithm: object) -> tuple[Any, Any, Any]:
    """Returns expectation, curvature and structure: the rule's own, with draws in pairs, or Price's identity."""
    paired = MonteCarlo(2, Antithetic())
    if not isinstance(algorithm, Rule):
        return paired, Price(), Diagonal
    curvature = algorithm.curvature
    if isinstance(curvature, ClippedGradient):
        curvature = curvature.base
    if isinstance(curvature, LowRankGradients):  # its diagonal is that of all rows' squares
        curvature = SquaredGradients()
    if isinstance(curvature, _NO_ESTIMATES):
        curvature = Price()
    expectation = algorithm.expectation if isinstance(algorithm.expectation, Delta | Exact | Quadrature) else paired
    return expectation, curvature, algorithm.structure if algorithm.structure.by_factors else Diagonal


def _remedy(algorithm: Any, convergence: Convergence) -> str:
    """Returns the remedy for precisions that do not converge to the expected Hessian in any number of steps."""
    curvature = algorithm.curvature if isinstance(algorithm, Rule) else None
    curvature = curvature.base if isinstance(curvature, ClippedGradient) else curvature
    close = replace(convergence, precision_error=None, precision_error_90=None).complaints == convergence.complaints
    if close or not isinstance(curvature, _NO_ESTIMATES):
        return "" if close else algorithm.traits.spread_remedy
    return (
        f"curvature={type(curvature).__name__}(...) is not an unbiased estimate of the Hessian, so that a longer run "
        "would not mend them; leave curvature= out"
    )


def _faster_forgetting(algorithm: NaturalRule, model: object) -> str:
    """Returns the remedy for a rate that falls so fast that a longer run would hardly move."""
    rate = algorithm.learning_rate
    adds_up = isinstance(model, ConjugateModel) or (isinstance(model, MessageTarget) and model.rows_add_up)
    if not isinstance(rate, PolynomialDecay) or adds_up:
        return ""
    if float(rate.power) <= _SLOWEST or float(rate.scale) > 1:
        return ""
    return (
        f"a rate of kappa={float(rate.power):g} forgets the start too slowly for a longer run to help; leave kappa out"
    )


@record
class _AtGaussian(_Place):
    """Unbiased estimates of the expected gradient and of the diagonal of the expected Hessian, a row, under q."""

    belief: Gaussian
    dispersion: Params
    network_state: State
    expectation: Any
    curvature: Curvature
    structure: Any = static()

    @property
    def deterministic(self) -> bool:
        """Whether all draws are equal."""
        return not isinstance(self.expectation, MonteCarlo)

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return tree.dimension(self.belief.mean)

    def estimate(self, batch: Batch, key: RandomKey) -> tuple[Params, Params]:
        """Returns gradient and curvature of the likelihood, and of a prior that is not Gaussian."""
        mean, objective = self.belief.mean, self.objective
        loss = BatchLoss.beside(
            self.prior, objective, batch, self.network_state, NetworkParameters(), self.dispersion, mean
        )
        evaluation = self.expectation.evaluate(key, self.belief, loss, self.curvature, self.structure)
        return evaluation.gradient, evaluation.curvature.diagonal(self.belief.mean)

    @property
    def prior(self) -> tuple[Params, Operator] | None:
        """Returns mean and precision a row of the prior's Gaussian leaves, which enter exactly."""
        return NetworkParameters().conjugate_prior(self.objective, self.belief.mean)

    def averaged(self, draws: int) -> _AtGaussian:
        """Returns the same with more draws, in pairs."""
        return replace(self, expectation=MonteCarlo(draws, Antithetic()))

    def on_target_scale(self, gradient: Params, curvature: Params) -> tuple[Params, Params]:
        """Returns both on the scale of the target, with a Gaussian prior."""
        if self.prior is not None:
            mean, (center, delta) = self.belief.mean, self.prior
            gradient = tree.add(gradient, delta.matvec(tree.add(mean, center, -1.0)))
            curvature = tree.add(curvature, delta.diagonal(mean))
        return super().on_target_scale(gradient, curvature)

    @property
    def metric(self) -> Any:
        """S."""
        return self.belief.precision

    def distances(self, mean: Params, error: Params) -> dict[str, float]:
        """Returns the distances of the precision, after subtracting the noise."""
        precision = _flat(self.belief.precision.diagonal(self.belief.mean))
        estimate, noise = _flat(mean), _ERRORS * _flat(error)
        # To the nearest end of the confidence interval.
        nearest = np.clip(precision, estimate - noise, estimate + noise)
        nearest = np.maximum(nearest, precision * np.exp(-_FARTHEST))
        own = np.abs(np.log(precision / nearest))
        return {"precision_error": float(np.median(own)), "precision_error_90": float(np.quantile(own, 0.9))}


@record
class _AtPoint(_Place):
    """The gradient at a point, in the metric of the Fisher information plus the prior's curvature: its diagonal."""

    point: Params
    network_state: State
    scale: PyTree = None  # of that metric, on the scale of the target; None before it is computed

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return tree.dimension(self.point)

    def estimate(self, batch: Batch, key: RandomKey) -> tuple[Params, PyTree]:
        """Returns gradient and curvature of loss and prior; the curvature once, and zero afterwards."""
        loss = BatchLoss(self.objective, batch, self.network_state, AllParameters(), {})
        gradient = loss.gradient(self.point, jax.random.fold_in(key, 1)).coordinates
        return gradient, self.curvature(loss, key) if self.scale is None else tree.zeros_like(self.scale)

    def curvature(self, loss: BatchLoss, key: RandomKey) -> PyTree:
        """Returns the diagonal of the curvature of loss and prior."""
        if not self.objective.model.has_rows:
            product = hessian_product(loss, self.point)
            probes = jnp.arange(2, 2 + _PROBES)
            squares = jax.lax.map(lambda i: jax.tree.map(jnp.square, product(_signs(key, i, self.point))), probes)
            return jax.tree.map(lambda leaf: jnp.sqrt(jnp.mean(leaf, axis=0)), squares)
        some = replace(loss, batch=jax.tree.map(lambda leaf: leaf[:_FISHER_ROWS], loss.batch), conjugate=True)
        information = fisher_diagonal(jax.random.fold_in(key, 2), some, self.point, _PROBES)
        ones = jax.tree.map(jnp.ones_like, self.point)
        prior = jax.jvp(jax.grad(self.objective.negative_log_prior), (self.point,), (ones,))[1]
        return jax.tree.map(lambda i, p: i + jnp.maximum(p, 0).astype(i.dtype), information, prior)

    def on_target_scale(self, gradient: Params, curvature: PyTree) -> tuple[Params, PyTree]:
        """Returns both on the scale of the target; at a kink of the prior the shortest subgradient, zero at a mode."""
        return super().on_target_scale(self.objective.shortest_subgradient(self.point, gradient), curvature)

    def in_metric(self, curvature: PyTree) -> _AtPoint:
        """Returns the same with a known metric, bounded below where neither rows nor prior have curvature."""
        return replace(self, scale=_with_floor(curvature))

    @property
    def metric(self) -> _AtPoint:
        """S."""
        return self

    def solve(self, direction: Params) -> Params:
        r"""Returns \(S^{-1} d\)."""
        return Diagonal(self.scale).solve(direction)


@record
class _AtFewWeights(_AtPoint):
    """The same in the metric of the whole matrix, in which the residual is that of a Newton step."""

    # Along weights of correlated columns a diagonal metric is too short: of the ridge regression of `diabetes`, 1.87
    # nats above its mode, it left .023.

    def curvature(self, loss: BatchLoss, key: RandomKey) -> Array:
        """Returns the Gauss-Newton matrix of the network, with the Hessian of the dispersions and of the prior."""
        objective, rows = self.objective, loss.batch.filled()
        if not objective.model.has_outputs:
            return Dense.from_hessian(hessian_product(loss, self.point), self.point).matrix

        def without_network(params: Params) -> Array:
            at = {**self.point, "likelihood": params["likelihood"]}
            value, _ = objective.negative_log_likelihood(at, rows, {}, jax.random.fold_in(key, 1), train=True)
            return value + objective.negative_log_prior(params).astype(value.dtype)

        product = jax.linearize(jax.grad(without_network), self.point)[1]
        network = GaussNewton().matrix(replace(loss, conjugate=True), self.point, Dense)
        return network.add(Dense.from_hessian(product, self.point)).matrix

    def in_metric(self, curvature: Array) -> _AtFewWeights:
        # Weights at a kink of the prior stay there, so that the others move without them.
        kinks = self.objective.model.free_prior.kinks(self.point["network"])
        held = tree.zeros_like(self.point)
        if kinks is not None:
            at_kink = lambda theta, m, a: ((theta == m) & (a > 0)).astype(theta.dtype)
            held = {**held, "network": jax.tree.map(at_kink, self.point["network"], *kinks)}
        return replace(self, scale=_inverse_root(curvature, held))

    def solve(self, direction: Params) -> Params:
        vector, unravel = tree.ravel(direction)
        return unravel(self.scale @ (self.scale.T @ vector))


def _at_point(posterior: Posterior, objective: Objective, rows: Any, batch_size: int) -> _AtPoint:
    """Returns the point with a metric that is affordable, and determined by the rows that are read."""
    point, state = posterior.mean, posterior.network_state
    size, in_memory = tree.dimension(point), isinstance(rows, Arrays)
    few = size <= _MOST_IN_MATRIX and size**2 * float(objective.data_size) <= _MATRIX_WORK
    determined = in_memory or _ROWS_A_WEIGHT * size <= _BATCHES_READ * batch_size
    # The mode of a network is one of many, whose predictions hardly depend on reaching it exactly.
    one_mode = objective.model.identified and not state
    return (_AtFewWeights if few and determined and one_mode else _AtPoint)(objective, point, state)


def _signs(key: RandomKey, index: Any, like: Params) -> Params:
    keys = tree.keys_like(jax.random.fold_in(key, index), like)
    return jax.tree.map(lambda leaf, sign_key: jax.random.rademacher(sign_key, leaf.shape, leaf.dtype), like, keys)


@dataclass(frozen=True)
class _Deal:
    """The rows for each pair of draws: all, or separate ones within the limit of work."""

    rows: Any
    pairs: int
    each: int
    chunk: int
    order: np.ndarray
    averaged: int = 1  # draws instead of each pair's one

    @classmethod
    def of(cls, rows: Any, point: Any, key: RandomKey, work: float, batch_size: int) -> _Deal:
        if not isinstance(rows, Arrays):
            # Of a few batches each pair reads all: one pair alone has no standard error.
            few = list(itertools.islice(rows, _PAIRS))
            if len(few) < _PAIRS:
                return cls(few, 1 if point.deterministic else _PAIRS, 1, batch_size, np.empty(0))
            return cls(rows, _PAIRS, 1, batch_size, np.empty(0))
        # Gradients of rows, over all pairs; for a small problem as many as take a negligible time.
        affordable = max(_SHARE * work, min(_UNNOTICED, 100 * _UNNOTICED / point.dimension))
        affordable /= 1 if point.deterministic else 2
        most = int(np.clip(_MOST_NUMBERS / point.dimension, 4, _MOST_PAIRS))
        pairs = int(np.clip(affordable / rows.count, min(_PAIRS, most), most))
        averaged = 1
        if point.deterministic and affordable >= rows.count:
            pairs = 1  # all rows at one place: no noise
        elif affordable >= _AVERAGED * _PAIRS * rows.count:
            averaged, pairs = _AVERAGED, int(np.clip(affordable / (_AVERAGED * rows.count), _PAIRS, most))
        each = int(np.clip(affordable / pairs, min(rows.count, batch_size), rows.count))
        example = rows.example(1)
        dense = point.objective.model.scan_friendly(example) and not point.network_state
        chunk = min(each, _CHUNK if dense else batch_size)
        order = np.random.default_rng(int(_seed(key))).permutation(rows.count)
        return cls(rows, pairs, each, chunk, order, averaged)

    def batches(self, pair: int) -> Iterator[Batch]:
        """Yields the rows of a pair."""
        if isinstance(self.rows, list):
            yield from self.rows
        elif not isinstance(self.rows, Arrays):
            for number, batch in enumerate(self.rows):
                if number % self.pairs == pair:
                    yield batch
                if number >= 2 * self.pairs:
                    return
        elif self.each >= self.rows.count:
            yield from self.rows.batches(self.chunk)
        else:
            chosen = self.order[(pair * self.each + np.arange(self.each)) % self.rows.count]
            yield from self.rows.take(chosen).batches(self.chunk)


def _measured(point: Any, rows: Any, key: RandomKey, work: float, batch_size: int) -> Convergence | None:
    deal = _Deal.of(rows, point, subkey(key, 0), work, batch_size)
    if deal.averaged > 1:
        point = point.averaged(2 * deal.averaged)
    gradients: list[Params] = []
    curvature: Any = None
    for pair in range(deal.pairs):
        draw_key = subkey(key, pair + 1)
        total: Any = None
        for batch in deal.batches(pair):
            part = _batch_sums(point, batch, jax.random.clone(draw_key))
            total = part if total is None else _added(total, part)
        if total is None:
            continue
        gradient, curvature_sums = _on_target_scale(point, total)
        if not gradients:
            point = point.in_metric(curvature_sums)
        gradients.append(gradient)
        moments = _moments(curvature_sums)
        curvature = moments if curvature is None else _added(curvature, moments)
    if not gradients:
        return None
    squared, error = _squared_norm(point.metric, gradients)
    count = len(gradients)
    mean, spread = _mean_and_error(curvature, float(count))
    residual = math.sqrt(max(squared, 0.0)) if math.isfinite(squared) else math.nan
    distances = point.distances(mean, spread)
    return Convergence(residual=residual, dimension=point.dimension, squared_error=error, **distances)


def _squared_norm(metric: object, gradients: list[Params]) -> tuple[float, float]:
    """Returns the squared norm of the mean gradient without the bias of noise, and its standard error (jackknife)."""
    matrix = np.stack([_flat(gradient) for gradient in gradients])
    whitened = np.stack([_flat(_solved(metric, gradient)) for gradient in gradients])
    products = matrix @ whitened.T
    count = len(gradients)
    if count == 1:
        return float(products[0, 0]), 0.0
    of = lambda chosen: _off_diagonal_mean(products[np.ix_(chosen, chosen)])
    everything = np.arange(count)
    if count == 2:
        return of(everything), 0.0
    left_out = np.array([of(np.delete(everything, k)) for k in range(count)])
    return of(everything), float(np.sqrt((count - 1) * left_out.var()))


@compiled_once()
def _solved(metric: Any, gradient: Params) -> Params:
    return metric.solve(gradient)


def _off_diagonal_mean(products: np.ndarray) -> float:
    count = len(products)
    return float((products.sum() - np.trace(products)) / (count * (count - 1)))


@compiled_lightly()
def _batch_sums(point: Any, batch: Batch, key: RandomKey) -> PyTree:
    """Returns the sums over a batch's rows, and their number."""
    count = batch.count.astype(jnp.result_type(float))
    gradient, curvature = point.estimate(batch, key)
    return tree.scale(gradient, count), tree.scale(curvature, count), count


@compiled_once()
def _with_floor(curvature: Params, share: float = 1e-6) -> Params:
    largest = jnp.max(jnp.stack([jnp.max(leaf).astype(float) for leaf in jax.tree.leaves(curvature)]))
    least = share * largest + jnp.finfo(largest.dtype).tiny
    return jax.tree.map(lambda leaf: jnp.maximum(leaf, least.astype(leaf.dtype)), curvature)


@compiled_once()
def _inverse_root(matrix: Array, held: Params) -> Array:
    r"""Returns R with \(R R^\top = |S|^{-1}\), by the eigenvalues on the scale of its diagonal, bounded below."""
    alone = tree.ravel(held)[0] > 0
    coupled = ~(alone[:, None] | alone[None]) | jnp.eye(len(matrix), dtype=bool)
    # Columns may have very different units.
    unit = jnp.sqrt(_with_floor(jnp.abs(jnp.diagonal(matrix)), 1e-12))
    values, basis = jnp.linalg.eigh(jnp.where(coupled, matrix, 0) / (unit[:, None] * unit[None]))
    return basis / (unit[:, None] * jnp.sqrt(_with_floor(jnp.abs(values)))[None])


@compiled_once()
def _added(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, a, b)


@compiled_once()
def _moments(curvature: PyTree) -> tuple[PyTree, PyTree]:
    return curvature, jax.tree.map(jnp.square, curvature)


@compiled_once()
def _mean_and_error(moments: tuple[PyTree, PyTree], count: Numeric) -> tuple[PyTree, PyTree]:
    """Returns the mean of the pairs' curvatures and its standard error, from sums of them and of their squares."""
    mean, square = (tree.scale(each, 1 / count) for each in moments)
    return mean, jax.tree.map(lambda s, m: jnp.sqrt(jnp.maximum(s - m**2, 0) / jnp.maximum(count - 1, 1)), square, mean)


@compiled_once()
def _seed(key: RandomKey) -> Array:
    return jax.random.randint(key, (), 0, 2**31 - 1)


@compiled_once()
def _on_target_scale(point: Any, total: PyTree) -> tuple[Params, Params]:
    """Returns gradient and curvature of one pair on the scale of the target."""
    gradient, curvature, count = total
    return point.on_target_scale(tree.scale(gradient, 1 / count), tree.scale(curvature, 1 / count))


def _flat(leaves: Params) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(leaves)])


def _member(state: State, index: int) -> State:
    """Returns the network state of a member, where each has its own."""
    return jax.tree.map(lambda leaf: leaf[index], state)
