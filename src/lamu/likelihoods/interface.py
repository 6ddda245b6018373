"""Base classes of likelihoods and of likelihood wrappers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from lamu.base.compile_once import lenient
from lamu.families.special import cdf_of_count, log_between, log_tails_of_density, log_tails_of_masses
from lamu.record import record
from lamu.supports import Classes, OpenRange, Support, value_of
from lamu.typing import Array, Number, Params, PyTree, RandomKey, Targets

__all__ = ["Likelihood", "LikelihoodOf", "LikelihoodWrapper"]


@record
class LikelihoodOf:
    r"""A likelihood \(p(y \mid f)\) bound to outputs f of a graph, the result of calling a likelihood."""

    likelihood: Any  # p(y | f)
    outputs: PyTree  # f


# NumPyro is imported where it is used: its types are for type checkers alone.
if TYPE_CHECKING:
    from numpyro.distributions import Distribution
else:
    Distribution = Any

_DRAWS, _AT_ONCE = 1024, 32  # draws of y for methods that average: in all, and in memory at once; a convention
_SAME = 3.0  # standard errors of both forms of the information within which they are the same, a convention
_FEW = 1e-2  # tails below it are integrated, as 1 − cdf loses precision


class Likelihood:
    r"""The distribution \(p(y \mid f)\) of a target given the network's outputs.

    Shapes: outputs `f` are `[batch, outputs]`, always with the outputs' axis. Targets `y` are `[batch]` where there is
    one value a row (classes, binary, one-output regression), `[batch, outputs]` for regression with several outputs.
    Log densities are in nats, one a row. `params` are the dispersion parameters, unconstrained (an empty dictionary
    where there are none). Methods accept any floating dtype and return that of `f`.

    Where a row has more than a value, `y` is a dictionary of arrays with the value under `"value"`: `lamu.fit(model,
    (x, {"value": times, "censored": status}), ...)`. A draw of `sample` is the value alone, so `log_prob` accepts that
    too, as a row without further entries.

    A custom likelihood inherits from this class, is a `lamu.record.record`, and has a `support`. It defines one of the
    following, from which all other methods are derived:

    * `distribution`, a distribution of NumPyro, with its density, moments, entropy and draws;
    * `log_prob` and `sample`: moments and entropy are averages over 1,024 draws, with a standard error of 3 % of a
      standard deviation. The key is fixed and the same for every row, so that they are functions of f alone.

    In both cases the Fisher information is derived from the density by automatic differentiation, as an average over
    such draws. Override a method where a formula is known: it is exact, and faster.

    Attributes:
        support: the values that a target can take, one of `lamu.supports`.
        log_concave: whether \(\log p(y \mid f)\) is concave in f for every y.
        quadratic: whether \(\log p(y \mid f)\) is quadratic in f for given dispersion (then Gaussian beliefs are
            exact).
        logits: whether f is the log odds of two classes, or logits of several, to which the softmax is applied; the
            closed forms for the probabilities of classes need it.
        takes_trials: whether predictions may have a number of trials for each row.

    Examples:
        >>> import jax.numpy as jnp, lamu, numpyro.distributions as dist
        >>> from lamu.record import record
        >>> @record
        ... class MyPoisson(lamu.likelihoods.Likelihood):
        ...     support, log_concave = lamu.supports.Counts(), True
        ...
        ...     def distribution(self, params, f):
        ...         return dist.Poisson(jnp.exp(f[:, 0]))
        >>> f = jnp.log(jnp.array([[2.0], [5.0]]))
        >>> MyPoisson().mean({}, f).round(4).tolist()
        [2.0, 5.0]
        >>> MyPoisson().information({}, f).ravel().round(4).tolist()
        [2.0, 5.0]
    """

    support: Support | Any
    log_concave: bool | Any = False
    quadratic: bool | Any = False
    logits: bool | Any = False
    takes_trials: bool | Any = False

    _checks_arguments = True  # of constructors, by `record`

    def __call__(self, outputs: PyTree) -> LikelihoodOf:
        r"""Returns \(p(y \mid f)\) for outputs of a `lamu.Graph`, `m.sample("y", Bernoulli()(decode(z)))`."""
        if isinstance(outputs, tuple | list):
            raise TypeError(
                f"{self.name} takes its outputs as one value, and got {len(outputs)}; give those of one network "
                "that makes all, m.network(name, network, outputs=number)(...), or of a vector of as many entries, "
                'table[m.data("group")] of a plate of vectors, in the order of the likelihood'
            )
        return LikelihoodOf(self, outputs)

    # A likelihood must define the first, or the second and the third.

    def distribution(self, params: Params, f: Array) -> Any:
        """Returns the distribution of the targets, one of NumPyro's; None where the methods are overridden instead.

        Its batch and event shapes together are the targets' shape. For classes it has `probs`, `[batch, classes]`.
        """
        del params, f

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log p(y | f), shape `[batch]`."""
        with lenient():  # NumPyro's own code mixes dtypes
            values = self._given(params, f, "log_prob").log_prob(self._targets(y, f))
        return jnp.sum(jnp.reshape(values, (f.shape[0], -1)), axis=1).astype(f.dtype)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw of y a row, in the target's shape."""
        with lenient():
            draws = self._given(params, f, "sample").sample(key)
        return draws if self.support.has_classes else draws.astype(f.dtype)

    # Defaults, which a likelihood may override.

    def outputs(self, y: Targets) -> int:
        """Returns the width that the network's output must have: one for each value of a row, or for each class."""
        if isinstance(self.support, Classes):
            return self.support.number
        value = value_of(y)
        return 1 if jnp.ndim(value) == 1 else jnp.shape(value)[1]

    def output_scales(self, width: int) -> tuple[str, ...]:
        """Returns the scale of each of a row's outputs; a network that applies the inverse link itself is refused.

        Args:
            width: the number of outputs.

        Returns:
            For every output "log odds", "scores" (for a probability link other than the logistic), "logits" (of several
            classes), "ordinal scores", "log means", "log deviations", or "means", which may have any range.

        Examples:
            >>> from lamu.likelihoods import Gaussian, Poisson, ZeroInflated
            >>> Gaussian().output_scales(2), ZeroInflated(Poisson()).output_scales(2)
            (('means', 'means'), ('log means', 'log odds'))
        """
        if self.logits and self.support.has_classes and width > 1:
            return ("logits",) * width
        return ("log odds" if self.logits else getattr(getattr(self, "link", None), "scale", "means"),) * width

    def output_start(self, mean: Array, f: Array) -> Array:
        """Returns outputs from which the best constant ones are searched; by default those of the link, else f.

        Args:
            mean: the mean of the targets, in the shape of one.
            f: outputs, `[..., outputs]`.
        """
        start = getattr(getattr(self, "link", None), "start", None)
        return f if start is None else jnp.broadcast_to(start(mean, f), f.shape)

    def output_units(self, f: Array) -> Array:
        """Returns the step of each output about f, `[..., outputs]`, that a prior of scale one takes for one.

        By default that of the link: one, except under a link where a step of one is not about one in the log mean.
        """
        unit = getattr(getattr(self, "link", None), "unit", None)
        return jnp.ones_like(f) if unit is None else unit(f)

    def least_output(self) -> float:
        """The output at and below which the mean ends, far from any target; by default that of the link, or none."""
        return getattr(getattr(self, "link", None), "least", -math.inf)

    def displaced(self, f: Array, step: Array) -> Array:
        """Returns outputs a step of a normal belief away from its mean f; by default by the link, else f + step."""
        displaced = getattr(getattr(self, "link", None), "displaced", jnp.add)
        return displaced(f, step)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns E[y | f] in the target's shape; for classes the probabilities `[batch, classes]`."""
        distribution = self.distribution(params, f)
        if distribution is None:
            rows = jax.eval_shape(lambda key: self.sample(key, params, f), jax.random.key(0))
            width = (f.shape[0], self.outputs(rows)) if isinstance(self.support, Classes) else rows.shape
            like = jnp.zeros(width, f.dtype)
            return self._average(params, f, lambda f, y: self.support.indicators(y, like[: f.shape[0]]))
        with lenient():
            return jnp.asarray(distribution.probs if self.support.has_classes else distribution.mean).astype(f.dtype)

    def variance(self, params: Params, f: Array) -> Array:
        """Returns Var[y | f] in the shape of `mean`."""
        distribution = self.distribution(params, f)
        if self.support.has_classes:
            mean = self.mean(params, f)
            return mean * (1 - mean)
        if distribution is None:
            mean = self.mean(params, f)
            return self._average(params, f, lambda f, y: (y.astype(f.dtype) - mean) ** 2)
        with lenient():
            return jnp.asarray(distribution.variance).astype(f.dtype)

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns H[y | f] in nats, shape `[batch]`."""
        with contextlib.suppress(NotImplementedError), lenient():  # where NumPyro has no formula
            distribution = self.distribution(params, f)
            if distribution is not None:
                values = jnp.reshape(distribution.entropy(), (f.shape[0], -1))
                return jnp.sum(values, axis=1).astype(f.dtype)
        return -self._average(params, f, lambda f, y: self.log_prob(params, f, y))

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns the Fisher information about f, `[batch, outputs, outputs]`.

        \[ \Lambda = E\big[-\nabla_f^2 \log p(y \mid f)\big]
            = E\big[\nabla_f \log p(y \mid f)\, \nabla_f \log p(y \mid f)^\top\big] \]

        By default an average over draws of y: of the first form where the density is log-concave (exact where f is the
        natural parameter, for which the Hessian does not depend on y). Else it is the one that varies less over the
        draws: the second where the first is not positive, or where both differ, as for densities with kinks.
        """

        def density(row: Array, y: Array) -> Array:
            return self.log_prob(params, row[None], y[None])[0]

        def hessian(f: Array, y: Array) -> Array:
            return -jax.vmap(jax.hessian(density))(f, y)

        def both(f: Array, y: Array) -> Array:
            score = jax.vmap(jax.grad(density))(f, y)
            forms = jnp.stack([hessian(f, y), score[:, :, None] * score[:, None, :]])
            return jnp.stack([forms, forms**2])

        if self.log_concave:
            return self._average(params, f, hessian)
        (second, squares), moments = self._average(params, f, both)
        errors = jnp.sqrt(jnp.maximum(moments - jnp.stack([second, squares]) ** 2, 0.0) / _DRAWS)
        sums = jnp.sum(errors, axis=(2, 3))
        # A density with kinks, as Laplace's, has second derivatives that miss them: then the forms differ.
        same = jnp.all(jnp.abs(second - squares) <= _SAME * (errors[0] + errors[1]), axis=(1, 2))
        positive = jnp.linalg.eigvalsh(jnp.where(jnp.isfinite(second), second, 0.0))[:, 0] > 0
        better = same & positive & (sums[0] < sums[1])
        return jnp.where(better[:, None, None], second, squares)

    @property
    def name(self) -> str:
        """The name of the likelihood in messages."""
        return type(self).__name__

    def check(self, y: Targets) -> None:
        """Raises a ValueError if the targets are invalid for this likelihood, before any computation.

        A likelihood whose rows have more than a value (`y["trials"]`) checks that too. By default they must be in the
        support.
        """
        self.support.check(value_of(y), self.name)

    def _split_targets(self, y: Targets, second: str) -> tuple[Targets, Targets]:
        """Returns the value and the entry `second` of each row, None for plain targets.

        Raises:
            ValueError: for a mapping of other names.
        """
        if not isinstance(y, Mapping):
            return y, None
        if set(y) != {"value", second}:
            raise ValueError(
                f"the targets bring {sorted(y)}, and {self.name} takes 'value' and {second!r}; rename them"
            )
        return y["value"], y[second]

    def check_training(self, y: Targets) -> None:
        """Raises a ValueError if nothing can be learned from these targets as the whole training set.

        By default it is `check`, which alone is called for rows of a test set or of a fold, and that of the link.
        """
        self.check(y)
        check = getattr(getattr(self, "link", None), "check", None)
        if check is not None:
            check(value_of(y), self.name)

    @property
    def task(self) -> str:
        """The support's task in `lamu fit --task`."""
        return self.support.task

    def init(self, y: Targets) -> Params:
        """Returns the initial dispersion parameters; none by default."""
        del y
        return {}

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the dispersion parameters' prior, a scalar in nats; zero by default."""
        del params
        return jnp.asarray(0.0)

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        """Returns dispersion parameters drawn from their prior, a tree like `params`.

        Args:
            key: a random key.
            params: the dispersion parameters, for shapes and dtypes.

        Raises:
            NotImplementedError: for dispersions without a prior to draw from; a likelihood that overrides `log_prior`
                must override this too.
        """
        del key
        if jax.tree.leaves(params):
            raise NotImplementedError(
                f"{self.name} learns {sorted(params)} and has no `sample_prior`; define it beside `log_prior`, or give "
                "the dispersion"
            )
        return params

    def dispersion_information(self, params: Params) -> Params:
        """Returns the expected Fisher information of one row about each dispersion leaf, in a tree like `params`.

        It scales the steps of a dispersion. One by default, its order for the logarithm of a scale.
        """
        return jax.tree.map(jnp.ones_like, params)

    def scale_noise(self, params: Params, factor: Number) -> Params | None:
        """Returns the parameters with every noise scale multiplied by a factor; None where there is no such scale."""
        del params, factor
        return None

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y ≤ y | f) in the shape of `mean`; raises a TypeError where there is no distribution function."""
        if self.support.has_classes:
            raise TypeError(
                f"{self.name} has no cdf, which is for regression; use mean, the probabilities of the classes"
            )
        if not self.support.ordered:
            raise TypeError(f"{self.name} has no cdf: {self.support.values} have no order; use sample")
        probability = self._cdf_formula(params, f, y)
        if probability is not None:
            return probability
        y = self._targets(y, f)
        return self._average(params, f, lambda f, drawn: (drawn.astype(f.dtype) <= y).astype(f.dtype))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns log P(Y ≤ y | f) and log P(Y > y | f) of one number a row, each `[batch]`.

        By default from `cdf`, and by quadrature of the density (for counts by a sum) where a tail is below a hundredth,
        or there is no formula of `cdf`.
        """
        y, (lower, upper) = jnp.asarray(y).astype(f.dtype), (self.support.lower, self.support.upper)
        formula = self._cdf_formula(params, f, y)
        if formula is None and type(self).cdf is not Likelihood.cdf:
            formula = self.cdf(params, f, y)
        if not self._integrable(y):
            p = self.cdf(params, f, y) if formula is None else formula
            return _log(p), _log(1.0 - p)
        below, above = self._integrated_tails(params, f, y)
        if formula is not None:
            small = (formula < _FEW) | (formula > 1.0 - _FEW)
            p = jnp.where(small, 0.5, formula)
            below, above = jnp.where(small, below, jnp.log(p)), jnp.where(small, above, jnp.log1p(-p))
        below = jnp.where(y < lower, -jnp.inf, jnp.where(y >= upper, 0.0, below))
        return below, jnp.where(y < lower, 0.0, jnp.where(y >= upper, -jnp.inf, above))

    def log_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log P(Y ≤ y | f) of one number a row, `[batch]`."""
        return self.log_tails(params, f, y)[0]

    def log_survival(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log P(Y > y | f) of one number a row, `[batch]`."""
        return self.log_tails(params, f, y)[1]

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns log P(lower < Y ≤ upper | f) of one number a row, `[batch]`."""
        ends = jnp.asarray(lower).astype(f.dtype), jnp.asarray(upper).astype(f.dtype)
        tails = [(self.log_cdf(params, f, end), self.log_survival(params, f, end)) for end in ends]
        density = lambda y: self.log_prob(params, f, y)
        return log_between(tails[0], tails[1], None if self._has_masses else density, ends)

    def marginal(self, params: Params, mean: Array, covariance: Array) -> PyTree:
        r"""Returns \(\int p(y \mid f)\, N(f)\, df\) as `(mean, covariance)` where it is Gaussian, else None.

        Args:
            params: the dispersion parameters.
            mean: `[batch, outputs]`.
            covariance: `[batch, outputs, outputs]`.
        """
        del params, mean, covariance

    @property
    def n_positions(self) -> int:
        """The number of targets of a row, independent given f and each with its own outputs; one by default."""
        return 1

    @property
    def of_position(self) -> Likelihood:
        """The likelihood of one of these targets."""
        return self

    def counted(self, params: Params, f: Array, y: Targets, weights: Array) -> Array:
        """Returns the factor of the information of each row, `[batch]`; by default its weight.

        A row of n trials has n times the information of one, a censored row a part of it, and `information` does not
        depend on the further entries of a row.

        Args:
            params: the dispersion parameters.
            f: the outputs, `[batch, outputs]`.
            y: the targets.
            weights: the weights of the rows, `[batch]`.
        """
        del params, f, y
        return weights

    def information_blocks(self, params: Params, f: Array) -> Array:
        """Returns the information in blocks of independent outputs, in the outputs' order.

        Returns:
            `[batch * blocks, size, size]`, with the blocks of a row adjacent; by default one block a row.
        """
        return self.information(params, f)

    def information_root(self, params: Params, f: Array) -> Array:
        r"""Returns R with \(R R^\top = \Lambda\), the information of every row, `[batch, outputs, rank]`.

        By default from an eigendecomposition a row.
        """
        information = self.information(params, f)
        if information.shape[-1] == 1:
            return jnp.sqrt(jnp.maximum(information, 0))
        values, basis = jnp.linalg.eigh(information)
        # Rounding may make an eigenvalue of a singular information negative.
        return basis * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]

    def information_diagonal(self, params: Params, f: Array) -> Array:
        """Returns the diagonal of the information of every row, `[batch, outputs]`."""
        return jnp.diagonal(self.information(params, f), axis1=1, axis2=2)

    def information_sum(self, params: Params, f: Array, weights: Array) -> Array:
        r"""Returns \(\sum_i r_i \Lambda_i\), `[outputs, outputs]`.

        Args:
            params: the dispersion parameters.
            f: the outputs.
            weights: r, `[batch]`.
        """
        return jnp.einsum("bkl,b->kl", self.information(params, f), weights.astype(f.dtype))

    def _given(self, params: Params, f: Array, method: str) -> Any:
        """Returns the distribution for a method that is not overridden, or raises a NotImplementedError."""
        distribution = self.distribution(params, f)
        if distribution is None:
            raise NotImplementedError(
                f"{self.name} defines neither `distribution` nor `{method}`; define the first, or `log_prob` and "
                "`sample`"
            )
        return distribution

    def _cdf_formula(self, params: Params, f: Array, y: Array) -> Array | None:
        """Returns the cdf of `distribution`; None where NumPyro has no formula."""
        with contextlib.suppress(NotImplementedError), lenient():
            distribution = self.distribution(params, f)
            if distribution is not None:
                # NumPyro's formulas hold inside of the support.
                y, ends = self._targets(y, f), self.support
                inside = jnp.asarray(_cdf(distribution, jnp.clip(y, ends.lower, ends.upper))).astype(f.dtype)
                return jnp.where(y < ends.lower, 0.0, jnp.where(y >= ends.upper, 1.0, inside)).astype(f.dtype)
        return None

    def _averaged(self, params: Params, f: Array) -> set[str]:
        """Returns which of mean, variance and cdf are the defaults that average over draws, for lack of a formula."""
        formula = lambda key: self._cdf_formula(params, f, self.sample(key, params, f))
        names = {"mean", "variance"} if self.distribution(params, f) is None else set()
        names |= {"cdf"} if jax.eval_shape(formula, jax.random.key(0)) is None else set()
        return {name for name in names if getattr(type(self), name) is getattr(Likelihood, name)}

    @property
    def _has_masses(self) -> bool:
        """Whether single numbers have positive probability: integers, and the ends of an interval."""
        support = self.support
        return support.discrete or any(math.isfinite(e) and support.contains(e) for e in (support.lower, support.upper))

    def _integrable(self, y: Array) -> bool:
        """Whether the tails are an integral of the density, or a sum over whole numbers from zero."""
        is_whole = self.support.discrete and not self.support.has_classes
        return y.ndim == 1 and self.support.ordered and (is_whole or not self._has_masses)

    def _integrated_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of both tails, by the density alone."""
        mean, (lower, upper) = jax.lax.stop_gradient(self.mean(params, f)), (self.support.lower, self.support.upper)
        if self.support.discrete:
            inner = jnp.clip(jnp.floor(y), lower, upper - 1.0)
            mass = lambda k: jnp.where(k > upper, -jnp.inf, self.log_prob(params, f, jnp.minimum(k, upper)))
            return log_tails_of_masses(mass, inner, inner > mean)
        place = OpenRange(lower, upper)
        density = lambda z: self.log_prob(params, f, place.value(z)) + place.log_slope(z)
        z, centre = place.of(y), place.of(mean)
        spread = jax.lax.stop_gradient(jnp.sqrt(self.variance(params, f))) * jnp.exp(-place.log_slope(centre))
        return log_tails_of_density(density, z, z > centre, spread)

    def _targets(self, y: Targets, f: Array) -> Array:
        """Returns targets in the dtype of f, classes unchanged."""
        return jnp.asarray(y) if isinstance(self.support, Classes) else jnp.asarray(y).astype(f.dtype)

    def _average(self, params: Params, f: Array, function: Callable[[Array, Array], Array]) -> Array:
        """Returns the average of a function of f and y over draws of y, which are not differentiated."""
        constants, rows = jax.lax.stop_gradient((params, f))

        def of_draw(key: RandomKey) -> Array:
            # Row by row with the same key, since the result of a row must not depend on the number of rows.
            return function(f, jax.vmap(lambda row: self.sample(key, constants, row[None])[0])(rows))

        def add(total: Array, keys: Array) -> tuple[Array, None]:
            return total + jnp.sum(jax.vmap(of_draw)(keys), axis=0), None

        # A fixed key, so that moments, which have no key argument, are deterministic functions of f.
        keys = jax.random.split(jax.random.key(0), (_DRAWS // _AT_ONCE, _AT_ONCE))
        shape = jax.eval_shape(of_draw, jax.random.key(0))
        return jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), keys)[0] / _DRAWS


def _cdf(distribution: Distribution, y: Array) -> Array:
    """Returns the distribution's cdf; for Poisson counts another one, as NumPyro's series diverges at large means."""
    from numpyro.distributions import Poisson

    if isinstance(distribution, Poisson):
        return cdf_of_count(jnp.floor(y), jnp.asarray(distribution.rate, y.dtype))
    return distribution.cdf(y)


def _log(probability: Array) -> Array:
    """Returns the logarithm of a probability that may have rounded to zero."""
    return jnp.log(jnp.maximum(probability, jnp.finfo(probability.dtype).tiny))


def _of_base(name: str) -> property:
    """Returns a property that forwards to the base."""
    return property(lambda self: getattr(self.base, name))


def _by_base(name: str) -> Callable[..., PyTree]:
    """Returns a method that forwards to the base."""

    def method(self: LikelihoodWrapper, *arguments: PyTree) -> PyTree:
        return getattr(self.base, name)(*arguments)

    return method


def _at_parameters(name: str) -> Callable[..., PyTree]:
    """Returns a method that forwards to the base, with the base's parameters."""

    def method(self: LikelihoodWrapper, params: Params, *others: PyTree) -> PyTree:
        return getattr(self.base, name)(self.parameters(params), *others)

    return method


class LikelihoodWrapper(Likelihood):
    """Base class of likelihood wrappers: forwards every member of `Likelihood` to `base`."""

    # A wrapper overrides the members that it changes. One with another density restores the defaults derived from it
    # (`information = Likelihood.information`, for instance) or has its own formulas.

    base: Any

    def parameters(self, params: Params) -> Params:
        """Returns the base's parameters; by default those of the wrapper."""
        return params

    support, log_concave, quadratic = _of_base("support"), _of_base("log_concave"), _of_base("quadratic")
    logits, takes_trials = _of_base("logits"), _of_base("takes_trials")

    outputs, output_scales, check, init = map(_by_base, ("outputs", "output_scales", "check", "init"))
    output_start, output_units = _by_base("output_start"), _by_base("output_units")
    displaced, least_output = _by_base("displaced"), _by_base("least_output")
    log_prior, sample_prior = _by_base("log_prior"), _by_base("sample_prior")
    dispersion_information, scale_noise = _by_base("dispersion_information"), _by_base("scale_noise")

    distribution, log_prob = _at_parameters("distribution"), _at_parameters("log_prob")
    mean, variance, entropy = _at_parameters("mean"), _at_parameters("variance"), _at_parameters("entropy")
    cdf, log_tails, log_interval = _at_parameters("cdf"), _at_parameters("log_tails"), _at_parameters("log_interval")
    log_cdf, log_survival = _at_parameters("log_cdf"), _at_parameters("log_survival")
    marginal, counted = _at_parameters("marginal"), _at_parameters("counted")
    information, information_blocks = _at_parameters("information"), _at_parameters("information_blocks")
    information_root, information_sum = _at_parameters("information_root"), _at_parameters("information_sum")
    information_diagonal = _at_parameters("information_diagonal")
    _averaged = _at_parameters("_averaged")

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def task(self) -> str:
        return self.base.task

    @property
    def n_positions(self) -> int:
        return self.base.n_positions

    @property
    def of_position(self) -> Likelihood:
        """The same wrapper around the base's likelihood of one target."""
        inner = self.base.of_position
        wrapper: Any = self  # a record, like every likelihood
        return self if inner is self.base else replace(wrapper, base=inner)

    def check_training(self, y: Targets) -> None:
        self.check(y)
        self.base.check_training(y)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        return self.base.sample(key, self.parameters(params), f)
