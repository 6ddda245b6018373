r"""The Laplace marginal likelihood as a function of the prior's precisions, the noise and the temperature.

With \(\delta\) the precisions, c a factor of every noise deviation, and all else held at the mode,

\[ \log Z(\delta, c, T) = \frac{\log p(D \mid m, c) + \log p(m \mid \delta)}{T} + \frac D2 \log 2\pi
   - \frac12 \log\det \frac{H / c^2 + \Delta}{T} \]

whose determinant is a sum over eigenvalues that are kept: of the whole matrix for one common precision, of a layer's
Kronecker product for one precision a layer, of a low rank, of the quadrature's nodes. What has no common eigenvectors
with H, precisions of single weights beside a dense H, is factored anew. Everything is differentiable.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.post_hoc.at_mode import Mode, look_at_mode, with_prior
from lamu.algorithms.post_hoc.mode_polish import LARGEST_RESIDUAL, residual_at
from lamu.convergence import Unconverged
from lamu.data.arrays import Arrays
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.operators import (
    BlockDiagonal,
    Dense,
    DenseBlocks,
    Diagonal,
    LowRank,
    MatrixFree,
    OutputBlocks,
    OutputEigen,
)
from lamu.operators.interface import is_operator
from lamu.posterior import Posterior
from lamu.priors import gaussian_belief
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Evidence", "evidence"]


@record
class Evidence:
    r"""The evidence of a mode as a function, cheap to ask again.

    Attributes:
        mode: what one pass over the data found.
        objective: the loss, whose prior, temperature and noise are the defaults.
        centre: the prior's mean.
        spectrum: eigenvalues of the curvature, block by block.

    Examples:
        >>> import jax, lamu
        >>> from lamu.algorithms.post_hoc.evidence import evidence
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> log_evidence = evidence(posterior, (x, y))
        >>> abs(float(log_evidence(precision=1.0) - posterior.evidence)) < 1e-2
        True
        >>> jax.grad(log_evidence)(1.0).shape
        ()
    """

    mode: Mode
    objective: Objective
    centre: Params
    spectrum: Any

    @classmethod
    def of(cls, mode: Mode, objective: Objective) -> Evidence:
        """Returns the evidence of a mode that was looked at; a dense curvature is decomposed here, once.

        Args:
            mode: what was found.
            objective: the loss, of a Gaussian prior.

        Raises:
            TypeError: for a prior that is not Gaussian, or a structure of curvature whose determinant is not known.
        """
        mean = mode.params["network"]
        known = gaussian_belief(objective.model.prior, mean)
        if known is None:
            raise TypeError(
                f"the evidence as a function is of a Gaussian prior, not of {type(objective.model.prior).__name__}; "
                "use Normal(...)"
            )
        return cls(mode, objective, known.mean, _decomposed(mode.curvature))

    def __call__(self, precision: Any = None, noise: Any = None, temperature: Any = None) -> Array:
        """Returns the log evidence in nats.

        Args:
            precision: δ: a number, or a tree of numbers and arrays that begins like the weights and may stop anywhere;
                the objective's own prior where none is given.
            noise: c, a factor of every noise deviation, for Gaussian likelihoods that learn theirs; 1 where none is
                given.
            temperature: T; the objective's own where none is given.

        Raises:
            ValueError: for a number that is not positive, or a tree that is no prefix of the weights.
            TypeError: for a noise where there is none to widen.
        """
        for name, value in (("precision", precision), ("noise", noise), ("temperature", temperature)):
            if isinstance(value, int | float) and not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r} is not positive and finite; give a positive number")
        if noise is not None and not _learns_noise(self.mode, self.objective):
            raise TypeError("the noise of this likelihood is not learned; use Gaussian() without a scale")
        return _value(self, precision, noise, temperature)

    @property
    def learns_noise(self) -> bool:
        """Whether there is a noise to widen."""
        return _learns_noise(self.mode, self.objective)

    def posterior(self, prior: Any, key: RandomKey, noise: Any = None) -> Posterior:
        """Returns the posterior at the same mode under another prior.

        Args:
            prior: the prior.
            key: the seed of its predictions.
            noise: c, as above.
        """
        objective = replace(self.objective, model=replace(self.objective.model, prior=prior))
        mode = self.mode if noise is None else self.mode.widened(objective, noise)
        return mode.posterior(objective, key)


def evidence(
    posterior: Posterior,
    data: Any,
    structure: Any = Dense,
    curvature: Any = None,
    temperature: Number = 1.0,
    likelihood_power: Number = 1.0,
) -> Evidence:
    """Returns the Laplace evidence at a posterior's mean as a function, after one pass over the data.

    Args:
        posterior: a posterior whose mean is a mode, of any algorithm.
        data: `(x, y)`, a mapping, or the rows that `lamu.fit` took.
        structure: that of the curvature, as in `laplace`.
        curvature: the choice of curvature, as in `laplace`.
        temperature: T, at which the mode was found.
        likelihood_power: what scales the data alone.

    Warns:
        Unconverged: where the mean is no mode: one gradient over all rows tells.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.evidence import evidence
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> mode = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> log_evidence = evidence(mode, (x, y))
        >>> bool(log_evidence(precision=1.0) > log_evidence(precision=100.0))
        True
    """
    rows: Any = data if isinstance(data, Arrays | Stream) else posterior.model.rows(data)
    objective = Objective(posterior.model, rows.count, temperature, likelihood_power)
    mode = look_at_mode(structure, posterior, objective, rows, curvature)
    away = residual_at(mode, objective, rows)
    if not away.found:
        warnings.warn(
            f"the residual at the posterior's mean is {away.residual:.2g} nats under its own prior, where an evidence "
            f"needs {LARGEST_RESIDUAL}; take the posterior of laplace(), which finds the mode to its end",
            Unconverged,
            stacklevel=2,
        )
    return Evidence.of(mode, objective)


@jax.jit
def _value(self: Evidence, precision: Any, noise: Any, temperature: Any) -> Array:
    objective, mode, mean = self.objective, self.mode, self.mode.params["network"]
    temperature = objective.temperature if temperature is None else temperature
    factor: Any = 1.0 if noise is None else noise
    params = mode.params
    likelihood = mode.likelihood
    if noise is not None:
        wide: Any = objective.model.likelihood
        params = {**params, "likelihood": wide.widened(params["likelihood"], factor)}
        likelihood = likelihood - mode.misfit + mode.misfit / factor**2 + mode.observed * jnp.log(factor)
    dispersions = objective.model.dispersion_log_prior(params["likelihood"])
    size, share = tree.dimension(mean), objective.data_size / factor**2
    dtype = jnp.result_type(*jax.tree.leaves(mean))
    if precision is None:
        log_prior = objective.model.prior.log_prob(mean)
        known: Any = gaussian_belief(objective.model.prior, mean)
        whole = known.precision if isinstance(mode.curvature, Dense) else Diagonal(known.precision.diagonal(mean))
        total = with_prior(mode.curvature.scale(share), whole, mean)
        logdet = total.logdet(mean)
    else:
        spread = _spread(precision, mean, dtype)
        away = tree.add(mean, self.centre, -1.0)
        quadratic = tree.dot(away, jax.tree.map(jnp.multiply, spread, away))
        logs = _sum_of_logs(precision, mean, dtype)
        log_prior = (logs - quadratic - size * math.log(2 * math.pi)) / 2
        logdet = _logdet(self.spectrum, mode.curvature, precision, spread, mean, share)
    energy = (likelihood - log_prior - dispersions.astype(log_prior.dtype)) / temperature
    return size / 2 * jnp.log(2 * math.pi * jnp.asarray(temperature, dtype)) - logdet / 2 - energy


def _learns_noise(mode: Mode, objective: Objective) -> bool:
    dispersions = mode.params["likelihood"]
    if not (objective.model.quadratic and jax.tree.leaves(dispersions)):
        return False
    return objective.model.likelihood.widened(dispersions, 1.0) is not None


def _spread(precision: Any, mean: Params, dtype: Any) -> Params:
    """The precision of every weight, a tree like the weights."""
    try:
        return jax.tree.map(
            lambda p, below: jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(p, dtype), x.shape), below),
            precision,
            mean,
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"the precisions ({', '.join(tree.paths(precision)) or 'one'}) are no prefix of the weights, whose leaves "
            f"are {', '.join(tree.paths(mean))}; give one number, or a tree that begins like them"
        ) from error


def _sum_of_logs(precision: Any, mean: Params, dtype: Any) -> Array:
    """The sum over weights of log δ, with one logarithm a number."""

    def part(p: Any, below: Any) -> Array:
        value = jnp.asarray(p, dtype)
        return jnp.sum(jnp.log(value)) * (tree.dimension(below) / value.size)

    return sum(jax.tree.leaves(jax.tree.map(part, precision, mean)), jnp.zeros((), dtype))


def _decomposed(curvature: Any) -> Any:
    """The eigenvalues of what has any to keep, in a tree of blocks."""
    if isinstance(curvature, Dense):
        return _eigenvalues(curvature.matrix)
    if isinstance(curvature, DenseBlocks):
        return jax.tree.map(lambda block: _eigenvalues(block.matrix), curvature.blocks, is_leaf=is_operator)
    if isinstance(curvature, OutputBlocks):
        return _eigenvalues(curvature.matrices)
    if isinstance(curvature, LowRank):
        flat = jax.vmap(lambda u: tree.ravel(u)[0])(curvature.root)
        return _eigenvalues(flat @ flat.T)
    if isinstance(curvature, Diagonal | BlockDiagonal | OutputEigen | MatrixFree):
        return None
    raise TypeError(f"the evidence of a {type(curvature).__name__} curvature as a function is not known")


@jax.jit
def _eigenvalues(matrix: Array) -> Array:
    values = jnp.linalg.eigvalsh((matrix + jnp.swapaxes(matrix, -1, -2)) / 2)
    error = matrix.shape[-1] * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values), axis=-1, keepdims=True)
    return jnp.where(jnp.abs(values) < error, jnp.zeros_like(values), values)


def _logdet(spectrum: Any, curvature: Any, precision: Any, spread: Params, mean: Params, share: Any) -> Array:
    """The log det of (share · H + Δ): by the eigenvalues where δ is one number for all that they are of."""
    common = jax.tree_util.all_leaves([precision]) and jnp.ndim(precision) == 0
    one: Any = tree.ravel(spread)[0][:1] if common else None
    if isinstance(curvature, Dense | OutputBlocks) and common:
        return jnp.sum(jnp.log(share * spectrum + one))
    if isinstance(curvature, LowRank) and common:
        rest = tree.dimension(mean) - spectrum.shape[0]
        return jnp.sum(jnp.log(share * spectrum + one)) + rest * jnp.log(one[0])
    if isinstance(curvature, MatrixFree):
        if not common:
            raise TypeError("a matrix-free evidence is a function of one precision for all weights; give a number")
        return jnp.sum(curvature.weights * jnp.log(share * jnp.maximum(curvature.nodes, 0) + one))
    if isinstance(curvature, DenseBlocks):
        numbers = jax.tree.map(lambda p, below: jax.tree.map(lambda _: p, below), precision, mean)
        blocks = jax.tree.leaves(curvature.blocks, is_leaf=is_operator)
        parts = zip(blocks, jax.tree.leaves(spectrum), jax.tree.leaves(numbers), jax.tree.leaves(spread), strict=True)
        return sum((_of_block(*part, share) for part in parts), jnp.zeros((), jnp.result_type(*jax.tree.leaves(mean))))
    return with_prior(curvature.scale(share), Diagonal(spread), mean).logdet(mean)


def _of_block(block: Dense, values: Array, number: Any, spread: Array, share: Any) -> Array:
    if jnp.ndim(number) == 0:
        return jnp.sum(jnp.log(share * values + jnp.ravel(spread)[:1]))
    return Dense(share * block.matrix + jnp.diag(jnp.ravel(spread))).logdet(spread)
