r"""Sum-product circuits: deep mixtures of independent parts, exactly marginalised over all latent categories."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, argument
from lamu.graphs.statistics import Chance, Observed, Probabilities
from lamu.record import record
from lamu.supports import TwoClasses
from lamu.typing import Array, Inputs, RandomKey

__all__ = ["Circuit", "CircuitFactor"]


def Circuit(chance: Any, *weights: Any) -> CircuitFactor:
    r"""Returns the factor of D observed binary variables by a circuit of sums and products.

    \[ L_{dk} = E\log p(y_d \mid \text{chance}_{dk}), \qquad
       L^{l+1}_{rj} = \log \sum_k \exp\big(E\log w^l_{rjk} + L^l_{2r,k} + L^l_{2r+1,k}\big) \]

    A product joins two neighbouring regions of the D entries, a sum mixes K products; the values of a last odd region
    are passed up unchanged. The value is the root. At known arguments it is the log probability,
    marginalised over the categories of all sums; otherwise the best joint bound. NaN entries are marginalised: their
    leaves are one.

    Args:
        chance: probabilities `[D, K]` of a one in each of the K leaves of an entry, or variables with a `Beta` belief.
        weights: of the sums of each level, from the leaves up: probabilities `[pairs, K, K]`, the last `[1, 1, K]`, or
            variables with a `Dirichlet` belief.

    Raises:
        TypeError: for an argument without a closed form.
        ValueError: for weights whose shapes do not fit.

    Source: Poon & Domingos (2011), section 3; Peharz, Gens, Pernkopf & Domingos (2017), section 4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Circuit(jnp.full((2, 3), 0.5), jnp.full((1, 1, 3), 1 / 3)).shape
        (2,)
    """
    leaf = argument(chance, Chance, "the chance of Circuit")
    sums = tuple(argument(weight, Probabilities, "the weights of Circuit") for weight in weights)
    if leaf.shape is None or len(leaf.shape) != 2 or leaf.shape[0] < 2:
        raise ValueError(f"the chance has the shape {leaf.shape}; give [D, K] with at least two entries")
    expected = levels(*leaf.shape)
    given = [weight.shape for weight in sums]
    if given != expected:
        raise ValueError(f"the weights have the shapes {given}; chance {leaf.shape} asks for {expected}")
    return CircuitFactor(leaf, sums)


def levels(entries: int, components: int) -> list[tuple[int, int, int]]:
    """Returns the shapes of a circuit's weights, from the leaves up."""
    shapes, regions = [], entries
    while regions > 1:
        pairs, odd = divmod(regions, 2)
        regions = pairs + odd
        shapes.append((pairs, components if regions > 1 else 1, components))
    return shapes


@record
class CircuitFactor(Factor):
    """Factor of binary variables by sums and products. Use `Circuit`."""

    chance: Expression  # of the leaves
    weights: tuple[Expression, ...]  # of the sums, one for each level

    kind = Observed
    support = TwoClasses()
    affine = False
    fills = True
    exchangeable = True

    @property
    def arguments(self) -> dict[str, Expression]:
        # Chance and weights.
        return {"chance": self.chance} | {f"weights {level}": weight for level, weight in enumerate(self.weights)}

    @property
    def shape(self) -> tuple[int, ...]:
        # The D entries.
        return (self.chance.shape or ())[:-1]

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        zeros = jnp.zeros(self.shape)
        return self.completed(Observed(zeros), environment, zeros > 0)

    def completed(self, x: Inputs, environment: Environment, observed: Any) -> tuple[Array, Array]:
        # Returns the probability of a one in each missing entry, given the others.
        def log_odds(entry: Array) -> Array:
            log_one, zero = (
                self.log_density(Observed(jnp.where(entry, value, x.value)), environment, observed | entry)
                for value in (1, 0)
            )
            return log_one - zero

        chance = jax.nn.sigmoid(jax.vmap(log_odds)(jnp.eye(len(observed), dtype=bool)) / environment.temperature)
        return chance, chance * (1.0 - chance)

    def drawn_log_odds(self, key: RandomKey, x: Inputs, environment: Environment, observed: Any) -> Array:
        """Returns the log odds of every entry given a sample of the categories of all sums, from the root down."""
        # Given the categories, entries are independent. Observed entries inform the categories.
        choice = jnp.zeros(1, int)
        for number, terms in enumerate(reversed(self._upwards(x, environment, observed)[1])):
            own = jax.random.fold_in(key, number)
            pairs = jnp.arange(len(terms))
            below = jnp.repeat(jax.random.categorical(own, terms[pairs, choice[: len(terms)]]), 2)
            choice = jnp.concatenate([below, choice[len(terms) :]])
        p, entries = self.chance.of_kind(Chance, environment), jnp.arange(len(choice))
        return (p.log - p.log_complement)[entries, choice] / environment.temperature

    def filled(self, key: RandomKey, value: Array, environment: Environment, observed: Array) -> Array:
        # Samples the categories of all sums, and then the missing entries.
        of_sums, of_entries = jax.random.split(key)
        chance = jax.nn.sigmoid(self.drawn_log_odds(of_sums, Observed(value), environment, observed))
        return jnp.where(observed, value, jax.random.bernoulli(of_entries, chance).astype(value.dtype))

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log probability of the row, or its bound.
        return environment.temperature * self._upwards(x, environment, observed)[0]

    def _upwards(self, x: Inputs, environment: Environment, observed: Any) -> tuple[Array, list[Array]]:
        """Returns the root, and the terms of every level's sums, `[pairs, sums, K]`."""
        p, T = self.chance.of_kind(Chance, environment), environment.temperature
        ones = jnp.asarray(x.value, p.log.dtype)[:, None]
        leaves = ones * p.log + (1.0 - ones) * p.log_complement
        value = leaves if observed is None else jnp.where(observed[:, None], leaves, jnp.zeros_like(leaves))
        value, summed = value / T, []
        for weight in self.weights:
            log = weight.of_kind(Probabilities, environment).log
            pairs = len(log)
            products = value[0 : 2 * pairs : 2] + value[1 : 2 * pairs : 2]
            terms = log / T + products[:, None, :]
            summed.append(terms)
            sums = jax.nn.logsumexp(terms, axis=-1)
            odd = value[2 * pairs :]
            value = jnp.concatenate([sums, odd]) if len(odd) else sums
        return value[0, 0], summed
