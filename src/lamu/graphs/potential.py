"""Non-conjugate factors: likelihoods of outputs that expressions or networks compute."""

# \[ E_q[\log p(y \mid f)] \approx \sum_k w_k \log p(y \mid f_k) \]
#
# where the outputs f have a mean and a variance under the belief, each entry separately, or are known. Of a target with
# two outputs, as `ZeroInflated(Poisson())`, the nodes are a grid in both.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import require_whole_field, sized
from lamu.graphs.expressions import Environment, lifted
from lamu.graphs.factor import Factor, summed
from lamu.graphs.statistics import Observed
from lamu.likelihoods import Likelihood, MultivariateGaussian, PerPosition
from lamu.record import record, static
from lamu.supports import TwoClasses
from lamu.typing import Array, Inputs, Params, RandomKey, Targets

__all__ = ["AtMean", "Potential", "Quadrature"]


@record
class AtMean:
    r"""\(\log p(y \mid E_q f)\), the delta method; exact if f is known, as for samples.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs import AtMean
        >>> float(AtMean().expected(lambda f: jnp.sum(f**2), jnp.array([2.0]), jnp.array([9.0])))
        4.0
    """

    def expected(self, log_density: Callable[[Array], Array], mean: Array, variance: Array) -> Array:
        """Returns the log density at the mean.

        Args:
            log_density: a function of f, a sum over entries.
            mean: E f.
            variance: Var f of every entry.
        """
        del variance
        return log_density(mean)


@record
@sized
class Quadrature:
    r"""\(\sum_k w_k \log p(y \mid m + \sqrt{2v}\, x_k)\), Gauss–Hermite in each entry of f, which is Gaussian under q.

    Exact for polynomials of degree 2K − 1, and for log densities that are sums over entries of f.
    The entries are taken as independent given their variances: of a target with two outputs (`ZeroInflated`), a belief
    does not learn how these are correlated.

    Attributes:
        nodes: K.

    Raises:
        ValueError: for fewer than one node.

    Source: Knowles & Minka (2011), section 4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs import Quadrature
        >>> round(float(Quadrature(8).expected(lambda f: jnp.sum(f**2), jnp.array([2.0]), jnp.array([9.0]))), 4)
        13.0
    """

    nodes: int = static(default=20)

    def __post_init__(self) -> None:
        require_whole_field(self, "nodes")

    def expected(self, log_density: Callable[[Array], Array], mean: Array, variance: Array, width: int = 1) -> Array:
        """Returns the weighted sum.

        Args:
            log_density: as that of `AtMean`.
            mean: as that of `AtMean`.
            variance: as that of `AtMean`.
            width: the number of adjacent numbers in f of which each entry is a function.
        """
        nodes, weights = self._rule(width, mean.dtype)
        # At a value the variance is zero up to rounding, where a root has no derivative.
        spread = variance > 0
        root = jnp.where(spread, jnp.sqrt(jnp.where(spread, 2.0 * variance, jnp.ones_like(variance))), 0.0)
        root = root.astype(mean.dtype)
        moved = lambda node: mean + root * jnp.reshape(jnp.broadcast_to(node, (mean.size // width, width)), mean.shape)
        return jax.vmap(lambda node: log_density(moved(node)))(nodes) @ weights

    def _rule(self, width: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns nodes `[nodes, width]`, of variance one half, and weights: of many outputs two nodes on each axis."""
        if width > 2:
            nodes = np.sqrt(width / 2.0) * np.eye(width)
            return np.concatenate([nodes, -nodes]).astype(dtype), np.full(2 * width, 0.5 / width, dtype)
        rule = np.polynomial.hermite.hermgauss(self.nodes if width == 1 else max(self.nodes // 2, 1))
        node, weight = (np.asarray(part, dtype) for part in rule)
        nodes = np.stack([part.ravel() for part in np.meshgrid(*[node] * width)], axis=-1)
        weights = np.meshgrid(*[weight / np.sqrt(np.asarray(np.pi, dtype))] * width)
        return nodes, np.prod(weights, axis=0).ravel()


@record
class Potential(Factor):
    r"""The targets of a likelihood, \(p(y \mid f)\), with any expressions for f: messages through it are not exact.

    `m.sample("y", lamu.likelihoods.Bernoulli()(f))` makes one. Its targets are observed; if they are not in the data it
    is left out. A latent of a row on which a network in f depends needs a `Local` that samples it. Dispersions that the
    likelihood learns are at `params["likelihood"]` by the name of the target, a point.

    Attributes:
        likelihood: p(y | f).
        outputs: f: one for each entry if the likelihood has one output (a plate of them), else `[..., outputs]`.
        expectation: how \(E_q[\log p(y \mid f)]\) is taken for an f with variance under the belief: `Quadrature()`
            or `AtMean()`; where None the first for targets with one or two outputs each, the second otherwise.
        name: name of the targets; the program sets it.

    Source: Knowles & Minka (2011); Khan & Lin (2017), section 3.

    Examples:
        >>> import lamu
        >>> from lamu import graphs
        >>> from lamu.graphs.expressions import Environment
        >>> from lamu.graphs.statistics import Observed
        >>> factor = graphs.Potential(lamu.likelihoods.Bernoulli(), [0.0, 0.0, 0.0])
        >>> import jax.numpy as jnp
        >>> round(float(factor.log_density(Observed(jnp.ones(3)), Environment({}))), 4)
        -2.0794
    """

    likelihood: Any
    outputs: Any
    expectation: Any = None
    name: str = static(default="")

    kind = Observed
    affine: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    is_likelihood: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.likelihood, Likelihood):
            raise TypeError(f"the likelihood is {self.likelihood!r}; give one of lamu.likelihoods")
        if isinstance(self.likelihood, MultivariateGaussian):
            raise TypeError(
                "MultivariateGaussian() ties the entries of a target together, which a graph takes one by one; give "
                "Gaussian(), or a graphs.MultivariateNormal without a likelihood"
            )
        object.__setattr__(self, "outputs", lifted(self.outputs))
        if self.expectation is None:
            object.__setattr__(self, "expectation", Quadrature() if self.width <= 2 else AtMean())

    @property
    def shape(self) -> None:
        """None: the data determine it."""
        return None

    @property
    def neutral(self) -> Any:
        """A valid value of the support."""
        return self.likelihood.support.zeros(1)[0]

    @property
    def of_entry(self) -> Likelihood:
        """The likelihood of one target; for `PerPosition` its base, whose dispersions all targets share."""
        return self.likelihood.base if isinstance(self.likelihood, PerPosition) else self.likelihood

    @property
    def width(self) -> int:
        """The number of outputs of one target."""
        return self.of_entry.outputs(self.of_entry.support.zeros(1))

    def at_values(self) -> Potential:
        """Returns the potential for known outputs."""
        return replace(self, expectation=AtMean())

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        """Returns log p(y | f), or its expectation."""
        mean = jnp.asarray(self.outputs.first(environment))
        dispersions = self._dispersions(environment)
        if isinstance(self.expectation, AtMean):
            return self._of_row(dispersions, mean, x.value, observed)
        square = jax.grad(lambda weight: self.outputs.quadratic(weight, environment))(jnp.ones_like(mean))
        of_row = lambda f: self._of_row(dispersions, f, x.value, observed)
        variance = square - mean**2
        rounding = 16.0 * jnp.finfo(mean.dtype).eps * square
        width = self.width if mean.size % self.width == 0 else 1
        return self.expectation.expected(of_row, mean, jnp.where(variance > rounding, variance, 0.0), width)

    def _of_row(self, dispersions: Params, f: Array, y: Targets, observed: Any) -> Array:
        """Returns the log density of one row's targets: a joint one, or the sum over a plate of them."""
        width, y_size = self.width, jnp.size(y)
        # Targets of several outputs each have them adjacent, as when they are sampled or some are missing; as one
        # row of a likelihood they may have another order.
        adjacent = y_size > 1 and width > 1 and f.size == y_size * width
        joint = jnp.ndim(y) < 2 and not adjacent and self.of_entry.outputs(jnp.asarray(y)[None]) == f.size
        if joint and (observed is None or jnp.ndim(observed) == 0):
            value = self.of_entry.log_prob(dispersions, jnp.reshape(f, (1, -1)), jnp.asarray(y)[None])[0]
            return value if observed is None else jnp.where(observed, value, jnp.zeros_like(value))
        rows = jnp.reshape(f, (-1, self.width))
        y = jnp.broadcast_to(y, (len(rows),)) if jnp.ndim(y) == 0 else jnp.reshape(y, (len(rows),))
        if not jax.tree.leaves(dispersions):  # one call: under vmap a row with one entry would not be a vector
            values = self.of_entry.log_prob(dispersions, rows, y)
        else:
            own = _by_entry(dispersions, len(rows))
            values = jax.vmap(lambda part, f, y: self.of_entry.log_prob(part, f[None], y[None])[0])(own, rows, y)
        return summed(values, None if observed is None else jnp.reshape(observed, (len(rows),)))

    def _dispersions(self, environment: Environment) -> Params:
        return environment.statistics.get("likelihood", {}).get(self.name, {})

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        """Raises a ValueError for targets outside the likelihood's support, or more of them than outputs."""
        support = self.likelihood.support
        if isinstance(support, TwoClasses) and value.ndim > 1:
            _require_bits(f"{name}, of {self.likelihood.name},", value, observed)
        support.check(value[observed], f"{name}, of {self.likelihood.name},")
        if self.outputs.shape is not None:
            entries, given = math.prod(value.shape[1:]), math.prod(self.outputs.shape)
            of_row = self.of_entry.outputs(value[:1])  # for a likelihood of whole rows: several for every entry
            fits = given == entries * self.width or (given == of_row and of_row % entries == 0)
            if not (fits or (value.ndim == 1 and given % self.width == 0)):
                raise ValueError(
                    f"a row of {name} has {entries} entries, and {self.likelihood.name} is given {given} outputs for "
                    f"them; give the network outputs={entries * self.width}, or a variable that many numbers"
                )

    def entries(self, environment: Environment) -> tuple[Array, Params]:
        """Returns the outputs of every target of a row, `[targets, outputs]`, and the dispersions of each.

        Args:
            environment: the environment.
        """
        rows = jnp.reshape(jnp.asarray(self.outputs.first(environment)), (-1, self.width))
        return rows, _by_entry(self._dispersions(environment), len(rows))

    def sample(self, key: RandomKey, environment: Environment) -> Array:
        """Returns a sample of the targets of a row, in the shape of the outputs of one target each.

        Args:
            key: a random key.
            environment: the environment.
        """
        rows, own = self.entries(environment)
        keys = jax.random.split(key, len(rows))
        return jax.vmap(lambda part, k, f: self.of_entry.sample(k, part, f[None])[0])(own, keys, rows)

    def targets(self, environment: Environment) -> Array:
        # Of classes one number a target, which has a mean and maybe outputs for each of them.
        mean, (rows, _) = self.predicted(environment)[0], self.entries(environment)
        if self.of_entry.support.shape((len(rows), 2)) != (len(rows),):
            return mean
        outputs = jnp.shape(self.outputs.first(environment))
        return jnp.zeros(outputs if self.width == 1 else () if len(rows) == 1 else len(rows), mean.dtype)

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        """Returns mean and variance of the targets at the expected outputs; for classes the probabilities."""
        rows, own = self.entries(environment)
        mean, variance = (
            jax.vmap(lambda part, f, moment=moment: moment(part, f[None])[0])(own, rows)
            for moment in (self.of_entry.mean, self.of_entry.variance)
        )
        outputs = jnp.shape(self.outputs.first(environment))
        # One number for each target's several outputs.
        shape = outputs if mean.size == math.prod(outputs) else mean.shape
        return jnp.reshape(mean, shape), jnp.reshape(variance, shape)


def _require_bits(name: str, value: np.ndarray, observed: np.ndarray) -> None:
    """Raises a ValueError for entries that are neither 0 nor 1: grey values, for example."""
    wrong = observed & (value != 0) & (value != 1)
    if wrong.any():
        low, high = value[observed].min(), value[observed].max()
        raise ValueError(
            f"the target in row {np.argwhere(wrong)[0][0]} is {value[wrong][0]:g}, and {name} takes 0 and 1; its "
            f"values lie between {low:g} and {high:g}: cut them to bits, y > {(low + high) / 2:g}, or divide them by "
            f"{high:g} and take Gaussian()"
        )


def _by_entry(dispersions: Params, count: int) -> Params:
    """Returns the dispersions of every target of a plate: those of its own column, if there is one per column."""
    of_leaf = lambda leaf: (
        leaf[:, None] if jnp.shape(leaf) == (count,) else jnp.broadcast_to(leaf, (count, *leaf.shape))
    )
    return jax.tree.map(of_leaf, dispersions)
