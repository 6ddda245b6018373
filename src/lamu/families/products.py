"""Products of independent beliefs about parts of the parameters, and mixtures of beliefs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.families.exponential import ExpectationParameters, NaturalParameters
from lamu.families.gaussian import Gaussian
from lamu.families.interface import Family, attribute_of, independent_draws
from lamu.families.points import Ensemble
from lamu.families.probabilities import Categorical
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree, RandomKey, Statistics

__all__ = [
    "ExpectationMixture",
    "Mixture",
    "NaturalMixture",
    "PartialBelief",
    "Parts",
    "Product",
    "factor_of",
    "is_certain",
]


@record
class Product:
    r"""Independent factors by name, \(q(\theta) = \prod_k q_k(\theta_k)\), for parameters `{name: part}`.

    Attributes:
        factors: the beliefs by the top-level key of the parameters.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Point, Product
        >>> from lamu.operators import Scalar
        >>> belief = Product({"network": Gaussian(jnp.zeros(2), Scalar(1.0)), "likelihood": Point(jnp.zeros(()))})
        >>> belief.mean["network"].tolist()
        [0.0, 0.0]
    """

    factors: Mapping[str, Family]

    kind = "product"

    @property
    def mean(self) -> Params:
        """The factors' means."""
        return {name: factor.mean for name, factor in self.factors.items()}

    @property
    def std(self) -> Params:
        """The factors' standard deviations."""
        return {name: attribute_of(factor, "std") for name, factor in self.factors.items()}

    def interval(self, level: float = 0.9) -> tuple[Params, Params]:
        """Returns the ends of the factors' central intervals.

        Args:
            level: the probability inside, between 0 and 1.
        """
        ends = {name: attribute_of(factor, "interval")(level) for name, factor in self.factors.items()}
        low, high = ({name: pair[end] for name, pair in ends.items()} for end in (0, 1))
        return low, high

    def to_natural(self) -> Statistics:
        """Returns the values of the factors' natural parameters, by name."""
        return {name: method() for name, method in self._each("to_natural").items()}

    def with_natural(self, values: Statistics) -> Product:
        """Returns the product of the same families with natural parameters of other values.

        Args:
            values: λ, a tree like `to_natural()`.
        """
        return Product({name: method(values[name]) for name, method in self._each("with_natural").items()})

    def fisher_product(self, direction: Statistics) -> Statistics:
        r"""Returns \(F v\), whose blocks are the factors' own.

        Args:
            direction: v, a tree like `to_natural()`.
        """
        return {name: method(direction[name]) for name, method in self._each("fisher_product").items()}

    def retract(self, direction: Statistics, rate: Number) -> Product:
        r"""Returns the product after the step \(\lambda + \rho d\) of every factor, which cannot leave the domain.

        Args:
            direction: d, a tree like `to_natural()`.
            rate: ρ.
        """
        return Product({name: method(direction[name], rate) for name, method in self._each("retract").items()})

    def natural(self) -> Statistics:
        """Returns the natural parameters of every factor, by name."""
        return {name: method() for name, method in self._each("natural").items()}

    def expectation(self) -> Statistics:
        """Returns the expectation parameters of every factor, by name."""
        return {name: method() for name, method in self._each("expectation").items()}

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats, the sum over the factors."""
        return _sum([method(theta[name]) for name, method in self._each("log_prob").items()])

    def entropy(self) -> Array:
        """Returns the entropy in nats, the sum over the factors."""
        return _sum([method() for method in self._each("entropy").values()])

    def kl(self, other: Product) -> Array:
        r"""Returns \(KL(q \,\|\, p)\) in nats, the sum over the factors.

        Args:
            other: p, a product of the same names.

        Raises:
            ValueError: if the names differ.
            TypeError: if a factor has no divergence; a point has none.
        """
        if set(self.factors) != set(other.factors):
            raise ValueError(f"the products have factors {sorted(self.factors)} and {sorted(other.factors)}")
        return _sum([method(other.factors[name]) for name, method in self._each("kl").items()])

    def _each(self, method: str) -> dict[str, PyTree]:
        """Returns a method of every factor, if all have it."""
        for name, factor in self.factors.items():
            if not hasattr(factor, method):
                raise TypeError(f"the factor {name!r} is a {type(factor).__name__}, which has no {method}()")
        return {name: getattr(factor, method) for name, factor in self.factors.items()}

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of every factor."""
        return {name: self.factors[name].sample(own) for name, own in self._keys(key).items()}

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns samples of every factor; one with fewer than the others (a point, few draws) repeats them evenly."""
        return _evenly({name: self.factors[name].draws(own, count) for name, own in self._keys(key).items()})

    def _keys(self, key: RandomKey) -> dict[str, RandomKey]:
        """Returns a key for each factor, in the order of their names: JAX sorts a dictionary that it passes on."""
        return dict(zip(sorted(self.factors), jax.random.split(key, len(self.factors)), strict=True))


def factor_of(belief: object, name: str) -> Any:
    """Returns a factor of a product by its name; None where it has none, and for any other belief."""
    return belief.factors.get(name) if isinstance(belief, Product) else None


def _evenly(drawn: Params) -> Params:
    """Returns samples along the leading axis of the longest part, with each part repeated evenly."""
    longest = max((leaf.shape[0] for leaf in jax.tree.leaves(drawn)), default=1)
    places = lambda count: np.arange(longest) * count // longest
    return jax.tree.map(lambda leaf: leaf if len(leaf) == longest else leaf[places(len(leaf))], drawn)


def _sum(terms: list[Array]) -> Array:
    return jnp.sum(jnp.stack(terms))


@record
class Parts:
    r"""\(q(\theta) = \prod_k q_k(\theta_k)\) for θ in one tree, with None in each belief for the others' leaves.

    A part that is a `Product` by name has the branches of these names, and no others.

    Attributes:
        parts: the beliefs.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Parts, Point
        >>> from lamu.operators import Scalar
        >>> weights = Gaussian({"kernel": jnp.ones(2), "bias": None}, Scalar(4.0))
        >>> belief = Parts((weights, Point({"kernel": None, "bias": jnp.zeros(1)})))
        >>> sorted(belief.mean)
        ['bias', 'kernel']
    """

    parts: tuple[Family, ...]

    kind = "product"

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return united([part.mean for part in self.parts])

    @property
    def std(self) -> Params:
        """The parts' standard deviations."""
        return united([attribute_of(part, "std") for part in self.parts])

    def interval(self, level: float = 0.9) -> tuple[Params, Params]:
        """Returns the ends of the parts' central intervals."""
        ends = [attribute_of(part, "interval")(level) for part in self.parts]
        return united([low for low, _ in ends]), united([high for _, high in ends])

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of θ."""
        keys = jax.random.split(key, len(self.parts))
        return united([part.sample(k) for part, k in zip(self.parts, keys, strict=True)])

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns samples along a leading axis; a part with fewer (a point) repeats its own evenly."""
        keys = jax.random.split(key, len(self.parts))
        return united(_evenly([part.draws(k, count) for part, k in zip(self.parts, keys, strict=True)]))


def united(trees: list[Params]) -> Params:
    """Returns one tree from several with None, or no branch, where another one has leaves."""
    union = trees[0]
    for other in trees[1:]:
        union = _joined(union, other)
    return union


def _joined(a: Params, b: Params) -> Params:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        names = [*a, *(name for name in b if name not in a)]
        return {name: _joined(a.get(name), b.get(name)) for name in names}
    return tree.merged(a, b)


@record
class PartialBelief:
    """A belief about some of the weights, with a point for the others.

    Attributes:
        belief: q, with None at the leaves of the point.
        point: the other weights, with None at the leaves of q.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import PartialBelief, Point
        >>> belief = PartialBelief(Point({"a": jnp.ones(1), "b": None}), {"a": None, "b": jnp.zeros(1)})
        >>> sorted(belief.sample(jax.random.key(0)))
        ['a', 'b']
    """

    belief: Family
    point: Params

    kind = "product"

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return tree.merged(self.belief.mean, self.point)

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of θ."""
        return tree.merged(self.belief.sample(key), self.point)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns samples along a leading axis; the point is the same in all of them."""
        drawn = self.belief.draws(key, count)
        size = jax.tree.leaves(drawn)[0].shape[0]
        return tree.merged(drawn, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), self.point))


# With z the component, \(q(z, \theta) = \pi_z N(\theta \mid m_z, S_z^{-1})\), two minimal exponential families, one for
# z and one for θ given z, give
#
# | on paper | in code |
# |---|---|
# | \(\lambda_z = \log \pi_k / \pi_K\), \(\lambda_k = (S_k m_k, -\tfrac12 S_k)\) | `NaturalMixture(weights, components)`
# | | \(\mu_z = \pi_k\), \(\mu_k = E[1_{z=k} T(\theta)] = \pi_k (m_k, \Sigma_k + m_k m_k^\top)\) | `ExpectationMixture`
#
# The Fisher matrix of q(z, θ) is block diagonal in these λ, and \(F^{-1}\nabla_\lambda = \nabla_\mu\) block by block,
# where one block of μ varies and the λ of the others are fixed (\(\mu_k\) contains \(\pi_k\) too): the rule updates
# the weights and every component separately, with gradients in the expectations of the joint.


@record
class Mixture:
    r"""A mixture of Gaussians, \(q(\theta) = \sum_k \pi_k N(\theta \mid m_k, S_k^{-1})\).

    Attributes:
        weights_logits: log π `[K]`, up to a constant.
        components: Gaussians stacked along a leading axis of K.

    Raises:
        ValueError: if the numbers of weights and of components differ.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Mixture
        >>> from lamu.operators import Diagonal
        >>> belief = Mixture(jnp.zeros(2), Gaussian(jnp.array([[-3.0], [3.0]]), Diagonal(jnp.ones((2, 1)))))
        >>> belief.responsibilities(jnp.array([3.0])).round(3).tolist()
        [0.0, 1.0]
    """

    weights_logits: Any
    components: Gaussian

    kind = "joint"

    def __post_init__(self) -> None:
        weights = jnp.shape(self.weights_logits)
        stacked = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(self.components)}
        if len(weights) != 1 or stacked != {weights}:
            raise ValueError(
                f"a mixture with weights of shape {weights} has components with leading axes {sorted(stacked)};"
                " stack as many Gaussians along a leading axis as there are weights"
            )

    @property
    def mean(self) -> Params:
        """Not defined: the average of several modes may have no probability."""
        raise AttributeError("a mixture has several modes and no single estimate; use predict or .components")

    @property
    def count(self) -> int:
        """The number of components, K."""
        return jnp.shape(self.weights_logits)[0]

    @property
    def weights(self) -> Array:
        """π `[K]`, which sums to one."""
        return jax.nn.softmax(self.weights_logits)

    def component(self, index: int | Array) -> Gaussian:
        """Returns the component at an index."""
        return jax.tree.map(lambda leaf: leaf[index], self.components)

    def log_joint(self, theta: Params) -> Array:
        r"""Returns \(\log \pi_k N(\theta \mid m_k, S_k^{-1})\) `[K]`, in nats."""
        log_weights = jax.nn.log_softmax(self.weights_logits)
        return log_weights + jax.vmap(lambda component: component.log_prob(theta))(self.components)

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        return jax.nn.logsumexp(self.log_joint(theta))

    def responsibilities(self, theta: Params) -> Array:
        """Returns q(z = k | θ) `[K]`, which sums to one."""
        return jax.nn.softmax(self.log_joint(theta))

    def sample(self, key: RandomKey) -> Params:
        """Returns a sample from a randomly chosen component."""
        component_key, draw_key = jax.random.split(key)
        return self.component(jax.random.categorical(component_key, self.weights_logits)).sample(draw_key)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent samples along a leading axis; sample i depends only on the key and i."""
        belief = Mixture(
            self.weights_logits,
            Gaussian(self.components.mean, jax.vmap(lambda p: p.factored())(self.components.precision)),
        )
        return independent_draws(belief, key, count)

    def natural(self) -> NaturalMixture:
        r"""Returns \(\lambda_z\) and \(\lambda_k\)."""
        weights = Categorical(self.weights_logits).to_natural()
        return NaturalMixture(weights, jax.vmap(lambda component: component.natural())(self.components))

    def expectation(self) -> ExpectationMixture:
        r"""Returns \(\mu_z = \pi_k\) and \(\mu_k = \pi_k (m_k, \Sigma_k + m_k m_k^\top)\)."""
        weigh = lambda pi, mu: jax.tree.map(lambda leaf: pi * leaf, mu)
        each = jax.vmap(lambda pi, component: weigh(pi, component.expectation()))
        return ExpectationMixture(self.weights[:-1], each(self.weights, self.components))


@record
class NaturalMixture:
    r"""Natural parameters of a mixture as a minimal conditional exponential family.

    Attributes:
        weights: \(\lambda_z = \log \pi_k/\pi_K\) `[K − 1]`.
        components: \(\lambda_k = (S_k m_k, -\tfrac12 S_k)\), stacked.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Mixture
        >>> from lamu.operators import Diagonal
        >>> belief = Mixture(jnp.zeros(2), Gaussian(jnp.array([[-3.0], [3.0]]), Diagonal(jnp.ones((2, 1)))))
        >>> belief.natural().family().components.mean.tolist()
        [[-3.0], [3.0]]
    """

    weights: Any
    components: NaturalParameters

    def family(self) -> Mixture:
        """Returns the same belief by weights, means and precisions."""
        logits = Categorical.from_natural(self.weights, ()).logits
        return Mixture(logits, jax.vmap(lambda component: component.family())(self.components))


@record
class ExpectationMixture:
    r"""Expectation parameters of the joint q(z, θ), in which the rule takes the gradients of a mixture.

    Attributes:
        weights: \(\mu_z = \pi_k\) `[K − 1]`.
        components: \(\mu_k = \pi_k (m_k, \Sigma_k + m_k m_k^\top)\), stacked.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Mixture
        >>> from lamu.operators import Diagonal
        >>> belief = Mixture(jnp.zeros(2), Gaussian(jnp.array([[-3.0], [3.0]]), Diagonal(jnp.ones((2, 1)))))
        >>> belief.expectation().components.values[0].tolist()
        [[-1.5], [1.5]]
    """

    weights: Any
    components: ExpectationParameters

    def family(self) -> Mixture:
        """Returns the same belief by weights, means and precisions."""
        logits = Categorical.from_expectation(self.weights, ()).logits
        unweigh = lambda pi, mu: jax.tree.map(lambda leaf: leaf / pi, mu).family()
        return Mixture(logits, jax.vmap(unweigh)(jax.nn.softmax(logits), self.components))


def is_certain(belief: Any) -> bool:
    """Whether the representation of the belief is not random."""
    if isinstance(belief, Product):
        return all(is_certain(factor) for factor in belief.factors.values())
    return is_certain(belief.stacked) if isinstance(belief, Ensemble) else belief.kind == "degenerate"
