r"""Groups that act on a belief: \(\theta = g \cdot \epsilon\), and a step is \(g \leftarrow g \exp(-\rho X)\)."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require
from lamu.families import Gaussian
from lamu.operators import Dense, Diagonal, Scalar
from lamu.record import record
from lamu.typing import Array, Belief, Number, Numeric, Params, RandomKey, State
from lamu.update_rules import ByFanIn

__all__ = [
    "Additive",
    "Affine",
    "ClippedAffine",
    "ExcitatoryInhibitory",
    "FullAffine",
    "Group",
    "LogNormal",
    "Multiplicative",
    "Multiplied",
    "Placement",
    "Rayleigh",
]


@record
class Rayleigh:
    r"""Positive noise with the density \(\epsilon\, e^{-\epsilon^2/2}\): its deviation is about half its mean.

    Source: Kıral, Möllenhoff & Khan (2023), whose networks of excitatory and inhibitory weights use it.

    Examples:
        >>> from lamu.geometry import Rayleigh
        >>> Rayleigh().mean  # √(π/2)
        1.2533141373155001
    """

    @property
    def mean(self) -> Number:
        """E ε."""
        return math.sqrt(math.pi / 2)

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns independent noise for every coordinate."""
        return jax.tree.map(
            lambda k, leaf: jnp.sqrt(2 * jax.random.exponential(k, leaf.shape, leaf.dtype)),
            tree.keys_like(key, like),
            like,
        )


@record
class LogNormal:
    r"""Positive noise \(\epsilon = e^{\sigma z}\) with z standard normal: σ is about its relative deviation.

    Attributes:
        scale: σ.

    Raises:
        ValueError: for a scale that is not positive.

    Examples:
        >>> from lamu.geometry import LogNormal
        >>> LogNormal(0.2).mean  # exp(σ²/2)
        1.02020134...
    """

    scale: Number = 0.1

    def __post_init__(self) -> None:
        require(self.scale > 0, f"LogNormal(scale={self.scale!r}) is not noise; give a positive number")

    @property
    def mean(self) -> Number:
        """E ε."""
        exponent = self.scale**2 / 2
        return math.exp(exponent) if isinstance(exponent, int | float) else jnp.exp(exponent)

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns independent noise for every coordinate."""
        return jax.tree.map(lambda z: jnp.exp(tree.cast(self.scale, z) * z), tree.normal(key, like))


@record
class Multiplied:
    r"""A belief with multiplicative noise: \(\theta = \sum_k w_k \epsilon_k\), coordinate by coordinate.

    Attributes:
        parts: the \(w_k\), vectors of the space; the sign of a coordinate is that of its part of θ.
        noise: the distribution of every \(\epsilon\).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.geometry import Multiplied, Rayleigh
        >>> belief = Multiplied(({"w": jnp.array([1.0, -2.0])},), Rayleigh())
        >>> jnp.sign(belief.sample(jax.random.key(0))["w"]).tolist()
        [1.0, -1.0]
    """

    parts: tuple[Params, ...]
    noise: Rayleigh | LogNormal

    kind = "transformed"

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return tree.scale(jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *self.parts), self.noise.mean)

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of θ."""
        keys = jax.random.split(key, len(self.parts))
        drawn = [
            jax.tree.map(jnp.multiply, part, self.noise.draw(k, part)) for k, part in zip(keys, self.parts, strict=True)
        ]
        return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *drawn)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent samples along a leading axis; sample i depends only on the key and i."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jnp.arange(count))


# X is the gradient of \(E_q[\bar\ell] - H(q)/\kappa\) in the group's Lie algebra, which the chain rule through \(\theta
# = g \exp(tX) \cdot \epsilon\) gives from one gradient at a draw. The exponential map never leaves the group: a scale
# stays positive and a sign is unchanged, whatever the rate.
#
# Source: Kıral, Möllenhoff & Khan (2023), the additive, multiplicative and affine rows.


@runtime_checkable
class Group(Protocol):
    """A group, the base distribution that it acts on, and the resulting beliefs."""

    departure: str | Any = ""  # how it differs from the rule, in words; empty for the rule itself

    def start(self, mean: Params, concentration: Numeric) -> State:
        r"""Returns the element at which the belief's mean is close to the network's initial weights.

        Args:
            mean: the weights.
            concentration: κ.
        """
        ...

    def noise(self, key: RandomKey, element: State) -> State:
        """Returns one draw ε of the base distribution."""
        ...

    def act(self, element: State, noise: State) -> Params:
        """Returns θ = g · ε."""
        ...

    def pull(self, element: State, noise: State, gradient: Params, concentration: Numeric) -> State:
        r"""Returns X for one draw.

        Args:
            element: g.
            noise: ε.
            gradient: \(\nabla\bar\ell(g \cdot \epsilon)\), per row.
            concentration: κ.
        """
        ...

    def move(self, element: State, pull: State, rate: Numeric) -> State:
        """Returns g exp(−ρ X)."""
        ...

    def belief(self, element: State) -> Belief:
        """Returns the belief of the element."""
        ...


@record
class Additive(Group):
    r"""Translations of noise: \(\theta = m + \sigma\epsilon\), \(m \leftarrow m - \rho\nabla\bar\ell(\theta)\).

    The entropy does not depend on m. This is SGD with its gradient at a draw.

    Attributes:
        scale: σ, in the units of a weight.

    Raises:
        ValueError: for a scale that is not positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import Additive
        >>> Additive(0.1).move({"w": jnp.ones(1)}, {"w": jnp.ones(1)}, 0.5)["w"].tolist()
        [0.5]
    """

    scale: Number = 0.01

    def __post_init__(self) -> None:
        require(self.scale > 0, f"Additive(scale={self.scale!r}) has no noise to move; give a positive number")

    def start(self, mean: Params, concentration: Numeric) -> Params:
        return mean

    def noise(self, key: RandomKey, element: Params) -> Params:
        """Returns standard normal noise."""
        return tree.normal(key, element)

    def act(self, element: Params, noise: Params) -> Params:
        """Returns m + σ ε."""
        return tree.add(element, noise, self.scale)

    def pull(self, element: Params, noise: Params, gradient: Params, concentration: Numeric) -> Params:
        return gradient

    def move(self, element: Params, pull: Params, rate: Numeric) -> Params:
        """Returns m − ρ X."""
        return tree.add(element, pull, -rate)

    def belief(self, element: Params) -> Gaussian:
        """Returns N(m, σ²)."""
        return Gaussian(element, Scalar(jnp.asarray(self.scale, jnp.result_type(float)) ** -2))


@record
class Multiplicative(Group):
    r"""Scalings of positive noise: \(\theta = w\epsilon\), \(w \leftarrow w\, e^{-\rho X}\).

    With \(X = \theta\,\nabla\bar\ell(\theta) - 1/\kappa\), coordinate by coordinate. Every weight keeps its initial
    sign.

    Attributes:
        base: the noise, `Rayleigh` or `LogNormal`.
        offset: the initial size of weights at zero, where they would otherwise remain.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import Multiplicative
        >>> moved = Multiplicative().move(({"w": jnp.array([1.0, -1.0])},), ({"w": jnp.array([9.0, 9.0])},), 1.0)
        >>> jnp.sign(moved[0]["w"]).tolist()
        [1.0, -1.0]
    """

    base: Rayleigh | LogNormal = Rayleigh()
    offset: Number = 1e-5

    def start(self, mean: Params, concentration: Numeric) -> tuple[Params, ...]:
        """Returns one part, such that the mean of its noise is the weights."""

        def begin(leaf: Array) -> Array:
            least = jnp.where(leaf < 0, -1.0, 1.0).astype(leaf.dtype) * tree.cast(self.offset, leaf)
            return jnp.where(jnp.abs(leaf) < self.offset, least, leaf / tree.cast(self.base.mean, leaf))

        return (jax.tree.map(begin, mean),)

    def noise(self, key: RandomKey, element: tuple[Params, ...]) -> tuple[Params, ...]:
        """Returns positive noise for every part."""
        keys = jax.random.split(key, len(element))
        return tuple(self.base.draw(k, part) for k, part in zip(keys, element, strict=True))

    def act(self, element: tuple[Params, ...], noise: tuple[Params, ...]) -> Params:
        """Returns Σ w ε over the parts."""
        products = [jax.tree.map(jnp.multiply, w, e) for w, e in zip(element, noise, strict=True)]
        return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *products)

    def pull(
        self, element: tuple[Params, ...], noise: tuple[Params, ...], gradient: Params, concentration: Numeric
    ) -> tuple[Params, ...]:
        """Returns w ε ∇ℓ̄ − 1/κ for every part; the 1 is the gradient of the entropy in log |w|."""

        def one(w: Array, e: Array, g: Array) -> Array:
            return w * e * g - tree.cast(1.0 / concentration, w)

        return tuple(jax.tree.map(one, w, e, gradient) for w, e in zip(element, noise, strict=True))

    def move(self, element: tuple[Params, ...], pull: tuple[Params, ...], rate: Numeric) -> tuple[Params, ...]:
        return jax.tree.map(lambda w, x: w * jnp.exp(-tree.cast(rate, w) * x), element, pull)

    def belief(self, element: tuple[Params, ...]) -> Multiplied:
        """Returns the belief about w ε, summed over the parts."""
        return Multiplied(element, self.base)


@record
class ExcitatoryInhibitory(Multiplicative):
    r"""Two multiplicative groups per weight, one on each side of zero: \(\theta = w_+\epsilon_+ - w_-\epsilon_-\).

    Both sizes keep their signs, and their difference can have either sign.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import ExcitatoryInhibitory
        >>> excitatory, inhibitory = ExcitatoryInhibitory().start({"w": jnp.array([3.0, -3.0])}, 1.0)
        >>> bool(jnp.all(excitatory["w"] > 0)), bool(jnp.all(inhibitory["w"] < 0))
        (True, True)
    """

    def start(self, mean: Params, concentration: Numeric) -> tuple[Params, ...]:
        """Returns the positive and the negative part of the weights, each at least the offset from zero."""
        scaled = jax.tree.map(lambda leaf: leaf / tree.cast(self.base.mean, leaf), mean)
        offset = self.offset
        return (
            jax.tree.map(lambda leaf: jnp.maximum(leaf, 0) + tree.cast(offset, leaf), scaled),
            jax.tree.map(lambda leaf: jnp.minimum(leaf, 0) - tree.cast(offset, leaf), scaled),
        )


@record
class Placement:
    r"""An element (A, b) of the affine group: \(\theta = b + A\epsilon\).

    As an element of the algebra it has the parts U for the scale and V for the shift.

    Attributes:
        shift: b, a vector of the space.
        scale: A: a vector of the space if it is diagonal, else a matrix `[D, D]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import Placement
        >>> Placement(shift=jnp.zeros(1), scale=jnp.ones(1)).scale.tolist()
        [1.0]
    """

    shift: Params
    scale: Params


@record
class Affine(Group):
    r"""Shifts and scales of Gaussian noise, coordinate by coordinate: \(\theta = b + a\epsilon\).

    \[ U = \kappa\, a\epsilon\,\nabla\bar\ell(\theta) - 1, \quad V = \kappa\, a\,\nabla\bar\ell(\theta), \qquad
       b \leftarrow b + a V\, \frac{e^{-\rho U/2} - 1}{U/2}, \quad a \leftarrow a\, e^{-\rho s U / 2} \]

    At s = 1 the halves are the Fisher information of a Gaussian, 1 for the shift and 2 for the log of the scale, so
    that to first order in ρ this is the rule itself for the precision \(a^{-2}\).

    Attributes:
        share: s, the scale's share of the rate; small for noisy gradients.
        hess_init: the initial curvature per row, \(a = (\kappa h_0)^{-1/2}\).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import Affine, Placement
        >>> at = Placement(shift=jnp.zeros(1), scale=jnp.ones(1))
        >>> far = Affine().move(at, Placement(shift=jnp.zeros(1), scale=jnp.full(1, 50.0)), 1.0)
        >>> bool(far.scale[0] > 0)
        True
    """

    share: Number = 1.0
    hess_init: Number = 1.0

    @property
    def departure(self) -> str:
        """Two rates, if the scale has its own."""
        return "" if isinstance(self.share, float) and self.share == 1.0 else "two rates"

    def start(self, mean: Params, concentration: Numeric) -> Placement:
        """Returns the weights, with the width of the initial curvature."""
        width = (concentration * self.hess_init) ** -0.5
        return Placement(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, width), mean))

    def noise(self, key: RandomKey, element: Placement) -> Params:
        """Returns standard normal noise."""
        return tree.normal(key, element.shift)

    def act(self, element: Placement, noise: Params) -> Params:
        """Returns b + a ε."""
        return jax.tree.map(lambda b, a, e: b + a * e, element.shift, element.scale, noise)

    def pull(self, element: Placement, noise: Params, gradient: Params, concentration: Numeric) -> Placement:
        """Returns (V, U)."""
        shift = jax.tree.map(lambda a, g: tree.cast(concentration, g) * a * g, element.scale, gradient)
        return Placement(shift, jax.tree.map(lambda v, e: v * e - 1.0, shift, noise))

    def move(self, element: Placement, pull: Placement, rate: Numeric) -> Placement:

        def shifted(b: Array, a: Array, v: Array, u: Array) -> Array:
            return b - a * v * _flow(u / 2, tree.cast(rate, b))

        def scaled(a: Array, u: Array) -> Array:
            return a * jnp.exp(-tree.cast(rate, a) * tree.cast(self.share, a) * u / 2)

        return Placement(
            jax.tree.map(shifted, element.shift, element.scale, pull.shift, pull.scale),
            jax.tree.map(scaled, element.scale, pull.scale),
        )

    def belief(self, element: Placement) -> Gaussian:
        """Returns N(b, a²)."""
        return Gaussian(element.shift, Diagonal(jax.tree.map(lambda a: a**-2, element.scale)))


@record
class ClippedAffine(Affine):
    r"""`Affine` with short steps: a shift moves by at most \(\rho r\), and U is clipped to \(\pm c\).

    Both agree with the rule if gradients have light tails. Under a wide belief about a network the tails are heavy: one
    draw in a thousand would move a weight far away, and then its scale.

    Attributes:
        share: s, the scale's share of the rate.
        hess_init: the initial curvature per row.
        radius: r, in the units of the parameters.
        bound: c; one draw multiplies a scale by at most \(e^{\rho s c/2}\).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import ClippedAffine, Placement
        >>> at = Placement(shift=jnp.zeros(1), scale=jnp.ones(1))
        >>> float(ClippedAffine().move(at, Placement(jnp.full(1, 50.0), jnp.ones(1)), 0.5).shift[0])
        -0.01
    """

    radius: ByFanIn = ByFanIn(0.02)
    bound: Number = 20.0

    @property
    def departure(self) -> str:
        return ", ".join(word for word in (super().departure, "clipped steps") if word)

    def pull(self, element: Placement, noise: Params, gradient: Params, concentration: Numeric) -> Placement:
        """Returns (V, U), the second clipped."""
        pull = super().pull(element, noise, gradient, concentration)
        bound = lambda u: tree.cast(self.bound, u)
        return Placement(pull.shift, jax.tree.map(lambda u: jnp.clip(u, -bound(u), bound(u)), pull.scale))

    def move(self, element: Placement, pull: Placement, rate: Numeric) -> Placement:
        """Returns (A, b) exp(−ρ X), with the move of b clipped."""
        new = super().move(element, pull, rate)

        def near(old: Array, to: Array) -> Array:
            most = tree.cast(rate, old) * tree.cast(self.radius.of(old), old)
            # Values within the radius are unchanged, to the bit and in their derivative.
            return jnp.where(jnp.abs(to - old) <= most, to, jnp.clip(to, old - most, old + most))

        return Placement(jax.tree.map(near, element.shift, new.shift), new.scale)


@record
class FullAffine(Affine):
    r"""Shifts and linear maps of Gaussian noise: \(\theta = b + A\epsilon\) with a full matrix A.

    U is the symmetric part of \(\kappa\, A^\top \nabla\bar\ell\, \epsilon^\top - I\): the other part would rotate the
    noise, which is isotropic. One eigendecomposition per step, \(O(D^3)\).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry import FullAffine
        >>> FullAffine().start(jnp.zeros(2), 4.0).scale.tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """

    def start(self, mean: Params, concentration: Numeric) -> Placement:
        vector, _ = tree.ravel(mean)
        width = jnp.full_like(vector, (concentration * self.hess_init) ** -0.5)
        return Placement(mean, jnp.diag(width))

    def act(self, element: Placement, noise: Params) -> Params:
        vector, unravel = tree.ravel(noise)
        return tree.add(element.shift, unravel(element.scale @ vector))

    def pull(self, element: Placement, noise: Params, gradient: Params, concentration: Numeric) -> Placement:
        vector, unravel = tree.ravel(gradient)
        shift = tree.cast(concentration, vector) * (element.scale.T @ vector)
        outer = jnp.outer(shift, tree.ravel(noise)[0])
        return Placement(unravel(shift), (outer + outer.T) / 2 - jnp.eye(vector.size, dtype=vector.dtype))

    def move(self, element: Placement, pull: Placement, rate: Numeric) -> Placement:
        """Returns (A, b) exp(−ρ X), by the eigenvectors of U."""
        vector, unravel = tree.ravel(pull.shift)
        values, vectors = jnp.linalg.eigh(pull.scale)
        rho = tree.cast(rate, vector)
        flow = vectors @ (_flow(values / 2, rho) * (vectors.T @ vector))
        stretch = jnp.exp(-rho * tree.cast(self.share, vector) * values / 2)
        scale = element.scale @ (vectors * stretch[None, :]) @ vectors.T
        return Placement(tree.add(element.shift, unravel(element.scale @ flow), -1.0), scale)

    def belief(self, element: Placement) -> Gaussian:
        """Returns N(b, A Aᵀ)."""
        root = jnp.linalg.inv(element.scale)
        return Gaussian(element.shift, Dense(root.T @ root))


def _flow(u: Array, rate: Numeric) -> Array:
    """Returns (1 − e^{−ρu}) / u, which is ρ at u = 0."""
    small = jnp.abs(rate * u) < 1e-6
    safe = jnp.where(small, jnp.ones_like(u), u)
    return jnp.where(small, rate - rate * rate * u / 2, -jnp.expm1(-rate * safe) / safe)
