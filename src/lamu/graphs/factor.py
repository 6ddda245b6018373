"""Interface of a graph's factors: densities that are affine in the statistics of a variable and its arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.graphs.expressions import (
    Environment,
    Expression,
    KnownValue,
    ScaleProduct,
    common_shape,
    lifted,
    repeated_picks,
)
from lamu.graphs.statistics import Categories, States, Statistics, kind_of
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, Inputs, RandomKey

__all__ = ["Factor", "Known", "argument", "averaged", "one_hot", "require_inside", "summed"]


class Factor(ABC):
    r"""\(p(x \mid \text{arguments})\), with \(\log p\) affine in the statistics of x and of each argument.

    A custom factor is a record of its arguments with the members below.

    Attributes:
        kind: the statistics of x.
        affine: whether the log density is affine in the statistics of every argument; otherwise latents of a row
            that are arguments iterate.
        conjugate: whether the log density is affine in the statistics of x itself; otherwise a latent x is eliminated
            by sampling.
        misses: whether single entries of a value may be missing.
        fills: whether `filled` samples missing entries: if entries depend on each other given the arguments, or values
            have no belief.
        exact: whether x may be a variable with its own messages; otherwise it is observed, or left out.
        exchangeable: whether members of its arguments are exchangeable without a latent that distinguishes them, so
            that they start at random values.
        first_concentration: the least concentration of the random shares at which such members start.
        support: the values that data of x may have; None for any.
        by_entry: whether `entry_densities` gives the log density of every entry of x.
        is_likelihood: whether it is a likelihood of `outputs`, a `Potential`.
        is_of_words: whether x are the words of a document.
    """

    kind: type[Statistics] | Any
    affine: ClassVar[bool] = True
    conjugate: ClassVar[bool] = True
    misses: ClassVar[bool] = True
    fills: ClassVar[bool] = False
    exact: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = False
    first_concentration: ClassVar[float] = 0.0
    support: Support | Any = None
    by_entry: ClassVar[bool] = False
    is_likelihood: ClassVar[bool] = False
    is_of_words: ClassVar[bool] = False

    @property
    def neutral(self) -> Any:
        """A valid value for missing entries."""
        return self.kind.neutral

    @property
    def arguments(self) -> dict[str, Expression]:
        """The arguments by name: the fields that are expressions."""
        return {name: field for name, field in vars(self).items() if isinstance(field, Expression)}

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of x, to which a plate adds leading axes; None if an input determines it.

        By default the broadcast shape of the fields that have one: arguments and arrays, not known Python numbers.
        """
        return common_shape(field for field in vars(self).values() if hasattr(field, "shape"))

    @abstractmethod
    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        """Returns log p(x | arguments) in nats, a scalar: exact at T(θ), expected at μ.

        Args:
            x: the statistics of x.
            environment: the statistics of the arguments.
            observed: whether each entry is observed, of the shape of x; None if all are.
        """

    def entry_densities(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        """Returns the log densities of the entries of x, whose sum is `log_density`, for a factor that is `by_entry`.

        Args:
            x: the statistics of x.
            environment: the statistics of the arguments.
            observed: whether each entry is observed; None if all are.
        """
        raise NotImplementedError(f"{type(self).__name__} has no densities of its entries")

    def mixed_over(self, holes: bool = False) -> frozenset[str]:
        """Returns the categories in which the log density is affine only as an average over them.

        Those by which several arguments are indexed, and all of a factor that is not affine in the indexed arguments.

        Args:
            holes: whether entries of x are missing.
        """
        del holes
        arguments = tuple(self.arguments.values())
        if self.affine:
            return repeated_picks(arguments)
        picks = {name: axes for part in arguments for name, axes in part.picks.items()}
        return frozenset(name for name, axes in picks.items() if self.by_entry or not axes)

    def mixed_log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        """Returns the log density, averaged over the categories of `mixed_over`. Arguments as of `log_density`."""
        names = self.mixed_over(observed is not None)
        if not names:
            return self.log_density(x, environment, observed)
        series = any(
            environment.statistics[name].probabilities.ndim > 1 for name in names if name in environment.statistics
        )
        density = self.entry_densities if series else self.log_density
        return jnp.sum(averaged(lambda environment: density(x, environment, observed), names, environment))

    def at_values(self) -> Factor:
        """Returns the factor for arguments with known values, at T(θ)."""
        return self

    def prepared(self, environment: Environment) -> Factor:
        """Returns the factor with everything precomputed that is the same for all rows.

        Args:
            environment: the statistics of shared variables.
        """
        del environment
        return self

    def evaluated(self, x: Inputs, environment: Environment) -> Factor:
        """Returns the factor with everything precomputed that does not depend on a row's latents, for their iteration.

        Args:
            x: the statistics of x.
            environment: the statistics of known or shared variables.
        """
        del x, environment
        return self

    def statistics(self, value: Any) -> Any:
        """Returns T of an observed value of x in one row.

        Args:
            value: x.
        """
        return self.kind.of(value)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        """Raises a ValueError for data outside the support.

        Args:
            name: the name of x.
            value: `[N, ...]`.
            observed: whether each entry is observed.
        """
        if self.support is not None:
            require_inside(self.support, name, value, observed, self.misses)

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        """Returns mean and variance of x in one row; for a category the probabilities.

        Args:
            environment: the statistics of the arguments.

        Raises:
            TypeError: if the factor has no such closed form.
        """
        name = type(self).__name__.removesuffix("Factor")
        if self.fills:
            raise TypeError(
                f"{name} fills missing entries and has no mean and variance of them; define its method predicted, or "
                "draw them by lamu.latent.impute"
            )
        raise TypeError(f"{name} has no missing entries to predict")

    def targets(self, environment: Environment) -> Array:
        """Returns an array of the shape of x in one row; for a category with an axis of its values."""
        return self.predicted(environment)[0]

    def completed(self, x: Inputs, environment: Environment, observed: Any) -> tuple[Array, Array]:
        """Returns mean and variance of x given its observed entries; as `predicted` if they are independent.

        Args:
            x: the statistics of x.
            environment: the statistics of the arguments.
            observed: whether each entry is observed.
        """
        del x, observed
        return self.predicted(environment)

    def filled(self, key: RandomKey, value: Array, environment: Environment, observed: Array) -> Array:
        """Returns a value of x with its missing entries sampled given the others, for a factor that `fills`.

        Args:
            key: a random key.
            value: x, with any number at missing entries.
            environment: the statistics of the arguments.
            observed: whether each entry is observed.
        """
        raise NotImplementedError(f"{type(self).__name__} declares fills; define its method filled")

    @property
    def names(self) -> frozenset[str]:
        """The variables that the arguments depend on."""
        return frozenset().union(*(part.names for part in self.arguments.values()))


def averaged(function: Callable[[Environment], Any], names: frozenset[str], environment: Environment) -> Any:
    """Returns the average of a function's arrays over the categories, or series of them, on which they depend."""
    statistics = environment.statistics
    name = next((n for n in sorted(names) if isinstance(statistics.get(n), Categories | States)), None)
    if name is None:
        return function(environment)
    kind, p = type(statistics[name]), statistics[name].probabilities
    others = names - {name}

    def of_value(one_hot: Array) -> Any:
        return averaged(function, others, environment.having({name: kind.of(jnp.broadcast_to(one_hot, p.shape))}))

    weights = jnp.moveaxis(p, -1, 0)
    expand_weights = lambda leaf: weights.reshape(*weights.shape, *[1] * (leaf.ndim - weights.ndim))
    values = jax.vmap(of_value)(jnp.eye(p.shape[-1], dtype=p.dtype))
    return jax.tree.map(lambda leaf: jnp.sum(expand_weights(leaf) * leaf, axis=0), values)


def argument(value: Any, kind: type[Statistics], of: str) -> Expression:
    """Returns an argument, checked to have the statistics that the factor needs."""
    if not isinstance(value, Expression) and np.asarray(value).dtype != object:
        _require_known(kind.constraint.get(""), np.asarray(value), of)
    operand = lifted(value)
    if isinstance(operand, ScaleProduct):
        raise TypeError(
            f"{of} is the scale {', '.join(sorted(operand.names))}; give a HalfCauchy variable as the scale= of "
            "graphs.Normal, and one with a Gamma belief here"
        )
    if not isinstance(operand, KnownValue) and not {kind, Statistics} & set(operand.kinds()):
        words = operand.kinds()[0].words if operand.kinds() else "a sum or a product"
        raise TypeError(
            f"{of} is {', '.join(sorted(operand.names))}, {words}, and a closed form needs {kind.words} there; change "
            "that variable's prior, or the factor for a likelihood of outputs (graphs.Potential), or write the program "
            "in NumPyro for cvi(), or as lamu.LogDensity for nuts()"
        )
    return operand


def _require_known(constraint: str | None, array: np.ndarray, of: str) -> None:
    """Raises a ValueError for known numbers that no variable could have there."""
    if constraint == "positive_definite":
        array = np.linalg.eigvalsh(array)
        of = f"an eigenvalue of {of}"
    positive, shares = constraint in ("positive", "positive_definite"), constraint in ("unit_interval", "simplex")
    outside = ~(array > 0) if positive else ~((array >= 0) & (array <= 1)) if shares else np.isnan(array)
    if outside.any():
        advice = "positive numbers" if positive else "probabilities, from 0 to 1" if shares else "finite numbers"
        raise ValueError(f"{of} is {array[outside][0]:g}; give {advice}")
    sums = np.ravel(np.sum(array, axis=-1)) if constraint == "simplex" else np.ones(1)
    if not np.allclose(sums, 1.0, atol=1e-5):
        raise ValueError(f"the sum of {of} is {sums[np.argmax(np.abs(sums - 1))]:g} and not one; divide by it")


def require_inside(support: Support, name: str, value: np.ndarray, observed: np.ndarray, misses: bool = False) -> None:
    """Raises a ValueError for data outside a support."""
    wrong = observed & ~np.asarray(support.contains(value))
    if wrong.any():
        unknown = ", and NaN where it is unknown" if misses else ""
        raise ValueError(f"{name} is {value[wrong][0]:g} in a row; give {support.values}{unknown}")


def one_hot(value: Inputs, count: int) -> Array:
    """Returns the one-hot vectors of integers."""
    return jax.nn.one_hot(jnp.asarray(value).astype(jnp.int32), count, dtype=jnp.result_type(float))


def summed(values: Array, observed: Any) -> Array:
    """Returns the sum of the observed entries."""
    return jnp.sum(values if observed is None else jnp.where(observed, values, jnp.zeros_like(values)))


@record
class Known(Factor):
    r"""\(\log p(x) = \langle\lambda_0, T(x)\rangle - A(\lambda_0)\) for a belief of `lamu.families`."""

    belief: Any  # the prior, with the axes of its plate

    @property
    def kind(self) -> type[Statistics]:
        """The statistics of the family."""
        return kind_of(self.belief)

    @property
    def shape(self) -> tuple[int, ...]:
        # The shape of a sample; that of the mean, if there is a mean with a precision.
        sample = jax.eval_shape(lambda: self.belief.sample(jax.random.key(0)))
        return (sample["mean"] if isinstance(sample, dict) else sample).shape

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns ⟨λ₀, T⟩ − A(λ₀), plus the logarithm of a constant base measure.
        natural = self.kind(*jax.tree.leaves(self.belief.to_natural()))
        constant = self.belief.expected_log_base_measure() - self.belief.log_partition()
        return tree.dot(natural, x) + constant

    def repeated(self, plate: tuple[int, ...]) -> Known:
        """Returns the prior of a plate of independent members."""
        return Known(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*plate, *jnp.shape(leaf))), self.belief))
