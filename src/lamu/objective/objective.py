r"""The loss ℓ(θ) of all algorithms and its scale, as a sum over rows that is accumulated over chunks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.base.arguments import number, require, require_whole_field
from lamu.base.compile_once import once_a_shape
from lamu.data.batch import Batch
from lamu.model import Model
from lamu.networks import draws_noise
from lamu.operators import BlockDiagonal, Diagonal, Operator, Scalar
from lamu.operators.interface import is_operator
from lamu.priors import Prior
from lamu.priors.interface import same_leaves
from lamu.record import record, static
from lamu.target import Target
from lamu.typing import Array, Inputs, Number, Params, PyTree, RandomKey, State

__all__ = [
    "AllParameters",
    "NetworkParameters",
    "NonGaussian",
    "Objective",
    "dispersion_step",
    "in_chunks",
    "num_chunks",
    "outputs_and_row_jacobian",
    "sum_over_chunks",
    "sum_over_row_chunks",
]


# Two chains of a small ConvNet on 2,000 images took 316 ms a gradient in one part and 136 ms in parts of this size. A
# gradient on 50 images through a ResNet-20 took 952 ms in one part, 480 in 4 and 268 in 25; a perceptron's time hardly
# depends on the parts. Accelerators need large batches and have no such cache.
_CACHE_BYTES = {"cpu": 2**24}
_CACHE_BYTES_ELSEWHERE = 2**29
_STEPS_A_LAYER = 4  # values per unit that a layer stores: input, output, normalised and activated


def num_chunks(
    model: Target,
    batch: Batch,
    network_state: State,
    params: Params,
    runs: int = 1,
    key: RandomKey | None = None,
    train: bool = False,
    looped: bool = False,
) -> int:
    """Returns the number of chunks of a batch, so that a gradient of one chunk fits in the cache."""
    # One part for networks whose rows mix in training, that sample noise for all rows together, or that are slow in a
    # compiled loop (`lamu.networks.scan_friendly`). Only shapes are traced, and nothing where weights and rows are few.
    if not isinstance(model, Model):
        return 1
    network, room = model.network, _CACHE_BYTES.get(jax.default_backend(), _CACHE_BYTES_ELSEWHERE)
    rows_interact = train and (bool(jax.tree.leaves(network_state)) or network.masked)
    looked_up = network.codes is ... or not jnp.issubdtype(batch.x.dtype, jnp.floating)
    if (
        batch.mask.shape[0] == 1
        or network.linear
        or rows_interact
        or runs * _bytes_bound(batch, params, looked_up) < room
    ):
        return 1
    if not looped and not model.scan_friendly(batch):
        return 1
    row_bytes, random = _row_bytes(model, batch, network_state, params, key, train)
    return 1 if random else min(batch.mask.shape[0], max(1, math.ceil(runs * row_bytes / room)))


Part: TypeAlias = Callable[[Params, State, Batch, Array], tuple[Array, State]]


def sum_over_chunks(function: Part, params: Params, state: State, batch: Batch, parts: int) -> tuple[Array, State]:
    """Returns the sum over a batch's chunks of a function of parameters, state, rows and number; and the state."""
    # The gradient is accumulated chunk by chunk, and each chunk gets the state of the previous one.
    pieces = (in_chunks(batch, parts), jnp.arange(parts, dtype=jnp.int32))
    return _differentiable_sum(function, params, state, pieces)


def in_chunks(batch: Batch, parts: int) -> Batch:
    """Returns a batch in chunks, along a leading axis."""
    # Consecutive rows of a part are `parts` rows apart, so that each of several devices has its share of every part.
    # The last rows are padding and masked.
    size = math.ceil(batch.mask.shape[0] / parts)
    return _chunked(batch.padded(size * parts), parts)


def sum_over_row_chunks(function: Callable[..., PyTree], rows: Inputs, weights: Array, parts: int) -> PyTree:
    """Returns the sum over chunks of a function of a chunk's rows and their weights."""
    if parts == 1:
        return function(rows, weights)
    count = weights.shape[0]
    extra = math.ceil(count / parts) * parts - count
    longer = lambda leaf: jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (extra, *leaf.shape[1:]))])
    padded_weights = jnp.concatenate([weights, jnp.zeros(extra, weights.dtype)])
    of_part = lambda params, state, some: (function(*some), state)
    return _sum_by_scan(of_part, None, {}, _chunked((jax.tree.map(longer, rows), padded_weights), parts))[0]


def _chunked(rows: PyTree, parts: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(-1, parts, *leaf.shape[1:]), 1, 0), rows)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _differentiable_sum(function: Part, params: Params, state: State, pieces: PyTree) -> tuple[Array, State]:
    return _sum_by_scan(lambda params, state, piece: function(params, state, *piece), params, state, pieces)


@partial(_differentiable_sum.defjvp, symbolic_zeros=True)
def _differentiable_sum_jvp(function: Part, primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
    """Returns the sum and its tangent, which is linear in the parameters' tangents, so that JAX can transpose it."""
    (params, state, pieces), (direction, _, of_rows) = primals, tangents
    is_zero = lambda leaf: isinstance(leaf, jax.custom_derivatives.SymbolicZero)
    if not all(map(is_zero, jax.tree.leaves(of_rows, is_leaf=is_zero))):
        raise TypeError("a loss over chunks has no derivative in its rows; differentiate on fewer rows at a time")

    def of_part(params: Params, state: State, piece: PyTree) -> tuple[PyTree, State]:
        (value, state), gradient = jax.value_and_grad(function, has_aux=True)(params, state, *piece)
        return (value, gradient), state

    (value, gradient), state = _sum_by_scan(of_part, params, state, pieces)
    moving = [
        jnp.sum(slope * towards).astype(value.dtype)
        for slope, towards in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction, is_leaf=is_zero), strict=True)
        if not is_zero(towards)
    ]
    # No gradient flows through a network's state, as in one pass of all rows, where the new state is an auxiliary
    # output.
    return (value, state), (sum(moving, jnp.zeros_like(value)), jax.tree.map(_no_slope, state))


def _no_slope(leaf: Array) -> Any:
    floating = jnp.issubdtype(leaf.dtype, jnp.inexact)
    return jnp.zeros_like(leaf) if floating else np.zeros(leaf.shape, jax.dtypes.float0)


def _sum_by_scan(
    function: Callable[[Params, State, PyTree], tuple[PyTree, State]], params: Params, state: State, pieces: PyTree
) -> tuple[PyTree, State]:
    shapes = jax.eval_shape(function, params, state, jax.tree.map(lambda leaf: leaf[0], pieces))[0]
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def add(carry: tuple[PyTree, State], piece: PyTree) -> tuple[tuple[PyTree, State], None]:
        part, state = function(params, carry[1], piece)
        return (jax.tree.map(jnp.add, carry[0], part), state), None

    return jax.lax.scan(add, (nothing, state), pieces)[0]


def _bytes_bound(batch: Batch, params: Params, looked_up: bool) -> int:
    """Returns an upper bound of the bytes of common layers, from the inputs and outputs of weights."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(params)]
    convolves, x = any(len(shape) > 3 for shape in shapes), batch.x
    if convolves:
        places = math.prod(x.shape[1:3])
    else:  # sequences, vectors, or codes of an embedding
        places = math.prod(x.shape[1 : x.ndim if looked_up else x.ndim - 1])
    values = sum(
        (math.prod(shape[:-1]) + shape[-1]) * (places if not convolves or len(shape) > 3 else 1)
        for shape in shapes
        if shape
    )
    return 4 * batch.mask.shape[0] * values * _STEPS_A_LAYER


@once_a_shape
def _row_bytes(
    model: Model, batch: Batch, network_state: State, params: Params, key: RandomKey | None, train: bool
) -> tuple[int, bool]:
    """Returns the bytes that further rows add to the memory of a gradient, and whether noise is drawn."""
    # The residuals of the forward pass, without the rows themselves: 0.6 to 1.2 times the memory of the compiled
    # gradients of perceptrons, a ConvNet and a ResNet-20, without compiling them.

    def kept(rows: int) -> int:
        def pulled_back(params: Params, state: State, batch: Batch, key: RandomKey | None) -> PyTree:
            total = lambda params: batch.total(model.log_likelihood(params, state, batch, key, train)[0])
            return jax.vjp(total, params)[1]

        some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), batch)
        return memory.bytes_of(jax.eval_shape(pulled_back, params, network_state, some, key)) - memory.bytes_of(some)

    weights = model.complete(params["network"])
    random = key is not None and draws_noise(model.network, weights, network_state, batch.x, train)
    return max(kept(batch.mask.shape[0]) - kept(1), 0), random


# \[ \ell(\theta) = -\,p \sum_{i=1}^N w_i \log p(y_i \mid x_i, \theta) - \log p(\theta), \qquad
#    \bar\ell = \ell / N, \qquad \kappa = N / T \]
#
# Recipes step on the mean scale \(\bar\ell\); a belief has the target \(q \propto \exp(-\kappa\,\bar\ell)\) and
# therefore the precision \(\kappa\,(h + \delta / N)\), with h the curvature of one row. The derivation is in
# `docs/scale.md`.


@record
class Objective:
    r"""The loss of a model on N rows of data.

    Attributes:
        model: the model.
        data_size: N, the number of rows of the data set (not of the batch).
        temperature: T. The target is \(\exp(-\ell / T)\): likelihood and prior alike; T < 1 is colder.
        likelihood_power: p. It scales the data alone.
        microbatch_size: the number of rows in a pass, a number; the whole batch where None. Sums over rows, their
            gradients and curvatures are accumulated over the microbatches.

    Raises:
        ValueError: for a data size, temperature or power that is not positive, or a microbatch without a row.

    Examples:
        >>> import jax, lamu
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
        >>> float(lamu.objective.Objective(model, data_size=100, temperature=0.5).concentration)
        200.0
    """

    model: Target
    data_size: Number
    temperature: Number = 1.0
    likelihood_power: Number = 1.0
    microbatch_size: Any = static(default=None)

    def __post_init__(self) -> None:
        if self.microbatch_size is not None:
            require_whole_field(self, "microbatch_size")
        for name in ("data_size", "temperature", "likelihood_power"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} is {value!r}; it must be a number")
            if (constant := number(value)) is not None:
                require(constant > 0, f"{name} is {value!r}; it must be positive")
                # A float, since an integer would be a second dtype in every formula.
                object.__setattr__(self, name, constant)

    @property
    def concentration(self) -> Number:
        r"""\(\kappa = N / T\), the factor between the mean loss and the log of the target."""
        return self.data_size / self.temperature

    @property
    def row_temperature(self) -> Number:
        """T / p, the temperature of the rows' log density."""
        return self.temperature / self.likelihood_power

    @property
    def posterior_temperature(self) -> Number:
        """T; T / p of a density without rows, whose power scales all of it."""
        return self.temperature if self.model.has_rows else self.row_temperature

    def negative_log_likelihood(
        self,
        params: Params,
        batch: Batch,
        state: State,
        key: RandomKey | None = None,
        train: bool = False,
        parts: int = 1,
    ) -> tuple[Array, State]:
        """Returns the batch's estimate of −p Σ w log p(y | x, θ) / N in nats a row, and the network's new state.

        The estimate is the batch's sum divided by its number of real rows: N/B times the sum, divided by N.

        Args:
            params: the free parameters.
            batch: the rows.
            state: the network's state.
            key: for random layers.
            train: training mode.
            parts: the number of chunks of rows where `microbatch_size` is None, from
                `lamu.objective.objective.num_chunks`. Each chunk has its own noise of random layers and, in
                training, its own batch statistics.
        """
        model, batch = self.model.tempered(self.row_temperature), batch.filled()
        parts = self.microbatches(batch) or parts
        if parts == 1:
            values, state = model.log_likelihood(params, state, batch, key, train)
            total = batch.total(values)
        else:

            def of_part(params: Params, state: State, some: Batch, number: Array) -> tuple[Array, State]:
                own = None if key is None else jax.random.fold_in(key, number)
                values, state = model.log_likelihood(params, state, some, own, train)
                return some.total(values), state

            total, state = sum_over_chunks(of_part, params, state, batch, parts)
        count = jnp.maximum(batch.count, 1).astype(total.dtype)
        return -self.likelihood_power * total / count, state

    def microbatches(self, batch: Batch) -> int:
        """Returns the number of microbatches of a batch; zero without a `microbatch_size`.

        Args:
            batch: the rows.
        """
        return 0 if self.microbatch_size is None else math.ceil(batch.mask.shape[0] / self.microbatch_size)

    def negative_log_prior(self, params: Params) -> Array:
        """Returns −log p(θ) / N in nats a row."""
        return -self.model.tempered(self.temperature).log_prior(params) / self.data_size

    def dispersion_information(self, dispersions: Params) -> Params:
        """Returns the information of a row about each dispersion, with its share of what an earlier belief knows."""
        information, earlier = self.model.dispersion_information(dispersions), self.model.earlier_dispersions
        return information if earlier is None else tree.add(information, earlier.precision.values, 1 / self.data_size)

    def shortest_subgradient(self, params: Params, gradient: Params) -> Params:
        """Returns the gradient a row; at a kink of the prior, the shortest subgradient."""
        # In JAX the gradient at a kink is that of the smooth part, as `Prior.kinks` requires.
        kinks = self.model.free_prior.kinks(params["network"])
        if kinks is None:
            return gradient

        def shortest(theta: Array, g: Array, m: Array, a: Array) -> Array:
            rest = jnp.sign(g) * jnp.maximum(jnp.abs(g) - a / self.data_size, 0)
            return jnp.where((theta == m) & (a > 0), rest, g)

        return {**gradient, "network": jax.tree.map(shortest, params["network"], gradient["network"], *kinks)}

    def mean_loss(
        self,
        params: Params,
        batch: Batch,
        state: State,
        key: RandomKey | None = None,
        train: bool = False,
        parts: int = 1,
    ) -> tuple[Array, State]:
        """Returns the batch's estimate of ℓ(θ) / N in nats a row, and the network's new state."""
        value, state = self.negative_log_likelihood(params, batch, state, key, train, parts)
        return value + self.negative_log_prior(params), state

    def log_target(self, params: Params, batch: Batch, state: State, parts: int = 1) -> Array:
        """Returns −ℓ(θ) / T in nats, the posterior's log density up to a constant, for a batch of all the data."""
        return -self.concentration * self.mean_loss(params, batch, state, parts=parts)[0]

    def untempered_volume(self, params: Params) -> Array:
        r"""Returns the term that samplers add to the log target in nats, so that the Jacobian is not tempered.

        \[ (1 - s) \log |\partial g / \partial u| \]

        with s = 1/T where the Jacobian is a part of the prior, and p/T where it is one of a density without rows.

        Args:
            params: the free parameters.
        """
        power = 1.0 if self.model.has_rows else self.likelihood_power
        volume = self.model.log_volume(params)
        return volume - volume * tree.cast(power / self.temperature, volume)

    def row_factor(self, batch: Batch) -> Array:
        """Returns the weight of each row in the mean loss, mask · weight · power / rows, shape `[batch]`."""
        return batch.mask * batch.weight * self.likelihood_power / jnp.maximum(batch.count, 1)


def dispersion_step(objective: Objective, dispersions: Params, gradient: Params, rate: Number) -> Params:
    r"""Returns the dispersions after a step of Fisher scoring, \(\phi \leftarrow \phi - \rho I(\phi)^{-1} \bar g\)."""
    # I is the Fisher information of one row and \(\bar g\) the gradient of the mean loss, so that the rate has the same
    # meaning as for the Newton steps of the weights.
    if not jax.tree.leaves(dispersions):
        return dispersions
    scored = jax.tree.map(jnp.divide, gradient, objective.dispersion_information(dispersions))
    return tree.add(dispersions, scored, -rate)


@record
class NonGaussian:
    r"""The log density of a prior minus that of its Gaussian leaves.

    \[ \log p(\theta) - \log N(\theta_G \mid m, \delta^{-1}) \]

    Its gradient is that of \(\log p\) in the leaves that are not Gaussian, and zero in those that are: their pull
    \(\delta (m_q - m)\) is taken exactly. Where m and δ depend on the other leaves, as in a hierarchy that is centred,
    the gradient of \(\log p\) in these counts the Gaussian leaves' density.

    Attributes:
        prior: the prior.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.objective import NonGaussian
        >>> from lamu.priors import ByPath, Laplace, Normal
        >>> prior = NonGaussian(ByPath({"bias": Laplace(0.5), "*": Normal(2.0)}))
        >>> slope = jax.grad(prior.log_prob)({"bias": jnp.ones(()), "kernel": jnp.ones(())})
        >>> {path: float(leaf) for path, leaf in slope.items()}
        {'bias': -2.0, 'kernel': 0.0}
    """

    prior: Prior

    @classmethod
    def of(cls, prior: Prior, params: Params) -> NonGaussian | None:
        """Returns the remainder of the prior, or None where all leaves are Gaussian.

        Args:
            prior: the prior.
            params: parameters of the right structure.
        """
        gaussian = prior.gaussian(params)
        return None if gaussian is not None and same_leaves(gaussian.mean, params) else cls(prior)

    def log_prob(self, params: Params) -> Array:
        """Returns the difference of the log densities, a scalar in nats.

        Args:
            params: the weights.
        """
        gaussian = self.prior.gaussian(params)
        if gaussian is None:
            return self.prior.log_prob(params)
        hold = lambda mean, x: None if mean is None else jax.lax.stop_gradient(x)
        fixed = jax.tree.map(hold, gaussian.mean, params, is_leaf=lambda leaf: leaf is None)
        log_density = self.prior.log_prob(tree.merged(fixed, params))
        return log_density - jax.lax.stop_gradient(gaussian.log_prob(fixed)).astype(log_density.dtype)


@record
class AllParameters:
    """All free parameters at once; the prior is a part of the loss.

    Examples:
        >>> from lamu.objective import AllParameters
        >>> AllParameters().split({"network": 1.0, "likelihood": 2.0})
        ({'network': 1.0, 'likelihood': 2.0}, {})
    """

    def split(self, params: Params) -> tuple[Params, Params]:
        """Returns the coordinates and the rest, here empty."""
        return params, {}

    def join(self, coordinates: Params, rest: Params) -> Params:
        """Returns the parameters, the inverse of `split`."""
        return coordinates

    def conjugate_prior(self, objective: Objective, coordinates: Params) -> tuple[Params, Operator] | None:
        """Returns None: a point does not use the prior's natural parameters."""
        return None


@record
class NetworkParameters:
    """The network's free weights. The dispersions are the rest, which is updated as a point.

    Examples:
        >>> from lamu.objective import NetworkParameters
        >>> NetworkParameters().split({"network": 1.0, "likelihood": 2.0})
        (1.0, 2.0)
    """

    def split(self, params: Params) -> tuple[Params, Params]:
        """Returns the weights and the dispersions."""
        return params["network"], params["likelihood"]

    def join(self, coordinates: Params, rest: Params) -> Params:
        """Returns the parameters, the inverse of `split`."""
        return {"network": coordinates, "likelihood": rest}

    def conjugate_prior(self, objective: Objective, coordinates: Params) -> tuple[Params, Operator] | None:
        """Returns the prior's mean and precision a row, δ / N, of the Gaussian leaves; None where none is Gaussian.

        Through these the Gaussian part of a prior enters a Gaussian belief exactly; mean and precision are zero at the
        other leaves, which are in the loss (`lamu.objective.NonGaussian`). The precision is an operator: a `Diagonal`,
        or that of the belief used as prior.
        """
        gaussian = objective.model.free_prior.gaussian(coordinates)
        if gaussian is None:
            return None
        mean = _filled(gaussian.mean, coordinates, jnp.zeros_like)
        precision = gaussian.precision
        if isinstance(precision, Diagonal | Scalar):
            precision = Diagonal(_filled(precision.diagonal(gaussian.mean), coordinates, jnp.zeros_like))
        elif isinstance(precision, BlockDiagonal) and not same_leaves(gaussian.mean, coordinates):
            precision = BlockDiagonal(_filled(precision.blocks, coordinates, lambda x: Diagonal(jnp.zeros_like(x))))
        return mean, precision.scale(1.0 / objective.data_size)


def _filled(part: Params, like: Params, missing: Any) -> Params:
    """Replaces each None in a tree by a value, in the shapes and dtypes of another tree."""

    def leaf(value: PyTree, x: Inputs) -> PyTree:
        if value is None:
            return None if x is None else missing(x)
        return value if is_operator(value) else jnp.broadcast_to(value, x.shape).astype(x.dtype)

    stop = lambda node: node is None or is_operator(node)
    return jax.tree.map(leaf, part, like, is_leaf=stop)


def outputs_and_row_jacobian(function: Callable[[Params], Array], weights: Params) -> tuple[Array, Params]:
    """Returns f and ∂f/∂θ, leaves `[outputs, ...]`: one backward pass an output, or one forward pass a weight."""
    # Forward mode is cheaper for a head of some dozens of weights with an output for every pixel.
    outputs = jax.eval_shape(function, weights)
    twice = lambda weights: (function(weights),) * 2
    forwards = jax.jacfwd(twice, has_aux=True)
    if tree.dimension(weights) < outputs.size and _has_tangents(forwards, weights):
        jacobian, f = forwards(weights)
    else:
        jacobian, f = jax.jacrev(twice, has_aux=True)(weights)
    return f, jacobian


def _has_tangents(forwards: Callable[[Params], PyTree], weights: Params) -> bool:
    """Whether the function supports forward-mode differentiation, unlike functions with a custom VJP."""
    try:
        jax.eval_shape(forwards, weights)
    except TypeError:
        return False
    return True
