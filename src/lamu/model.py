r"""Models of a network, a likelihood and a prior, \(p(y \mid f(\theta, x))\, p(\theta)\).

Parameters are `{"network": …, "likelihood": …}`: the network's weights, and the likelihood's dispersions (an empty
dictionary where there are none). A model defines the log likelihood of each row, as a vector over the batch; the
objective alone sums, scales and tempers rows (`docs/scale.md`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import memory, tree
from lamu.base.arguments import whole_number
from lamu.base.compile_once import of_rows, require_untraced
from lamu.data.arrays import Arrays, array_of, refuse_infinite
from lamu.data.batch import Batch, with_offset
from lamu.data.precision import blocks, moments, refuse_lost, unscaled
from lamu.data.stream import Stream, aligned, by_name, column_names, inputs_of, read
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Scaled
from lamu.likelihoods.bases import FixedDispersion, PerPosition
from lamu.networks import Network, Standardised, scan_friendly
from lamu.networks.interface import adapted, inputs_named, outputs, wide
from lamu.networks.multilayer import is_dense
from lamu.networks.output_range import NARROWED, output_range, require_scales
from lamu.priors import Normal, Prior
from lamu.priors.interface import require_prior
from lamu.record import record, static
from lamu.supports import Support
from lamu.target import Target, same, same_structure
from lamu.typing import Array, Data, DTypeLike, Inputs, Params, RandomKey, Rows, State, Targets

__all__ = ["Model", "offset_per_output", "supervised"]

_Rows = TypeVar("_Rows", Arrays, Batch)
_TARGETS_ALONE = "the data are targets alone, and a network needs inputs; give (x, y)"

_SMALL = 1 << 20  # bytes of inputs that are checked at once
_LONGEST = 300  # characters of a representation in an error


@record
class Model(Target):
    r"""A network with a likelihood for its outputs and a prior on its weights.

    \[ \log p(y, \theta \mid x) = \sum_i \log p(y_i \mid f(\theta, x_i)) + \log p(\theta) \]

    Attributes:
        network: f(θ, x). Its input and output widths come from the data and the likelihood.
        likelihood: p(y | f).
        prior: p(θ) on the network's weights. The likelihood's dispersions have their own prior.
        frozen: weights fixed at given values (a tree like the network's parameters, `None` where a leaf is free), or
            `None`. Frozen leaves are constants, without state, gradient and prior. Use `freeze` to set them.
        start: parameters and network state that every run starts from, or `None` for fresh ones. Use `starting_at` or
            `with_prior` to set them.
        columns: the names of the inputs, where they were given as a frame of pandas or polars: later frames are matched
            by them. None where they have none.

    Examples:
        >>> import jax, lamu
        >>> model = lamu.Model(network=lamu.networks.Linear(), likelihood=lamu.likelihoods.Gaussian(scale=1.0))
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> model.log_likelihood(params, state, batch)[0].shape
        (4,)
    """

    network: Network | Any
    likelihood: Likelihood | Any
    prior: Prior = Normal(1.0)
    frozen: Params | None = None
    start: Any = None
    columns: tuple[str, ...] | None = static(default=None)

    has_outputs = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))
        if not isinstance(self.likelihood, Likelihood):
            raise TypeError(
                f"the likelihood is {self.likelihood!r}; give one of lamu.likelihoods, or a class that inherits from "
                "lamu.likelihoods.Likelihood"
            )
        require_prior(self.prior)

    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, State]:
        """Returns initial free parameters and the network's state: fresh ones, or copies of `start`.

        Returns:
            The parameters `{"network", "likelihood"}`, with `None` at frozen leaves, and the network's state.
        """
        _require_columns(batch.x)
        if batch.x.shape[1:] == (0,):
            raise ValueError(_TARGETS_ALONE)
        with inputs_named(self.network.name, batch.x):
            weights, state = self.network.init(key, batch.x, self.likelihood.outputs(batch.y))
        self._check_width(weights, state, batch)
        # Checked on all weights, also the frozen ones: a pattern may match frozen leaves alone.
        self.free_prior.check(weights)
        start = {"network": weights, "likelihood": self.likelihood.init(batch.y)}
        params, state = wide(self.started(start, state))
        return {**params, "network": tree.map_with_path(self._weight, params["network"])}, state

    def _weight(self, path: str, leaf: Any) -> Array:
        """Returns a free weight as an array; raises a TypeError where it is not real."""
        leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf, jnp.result_type(type(leaf)))
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"the weight {path!r} of {self.network.name} is {leaf.dtype}, and weights are real numbers; "
                "return constants in the state, the second value of `init`, and a complex weight as its two parts"
            )
        return leaf

    def _check_width(self, weights: Params, state: State, batch: Batch) -> None:
        """Raises a ValueError where the network's outputs do not fit the likelihood; traces the network alone."""
        wanted = self.likelihood.outputs(batch.y)
        of_rows = lambda weights, x: outputs(self.network, weights, state, x, None, False, None)[0]
        count = 3 if wanted == 2 else 2  # other than the outputs, to tell [outputs, rows] apart
        rows = jax.ShapeDtypeStruct((count, *batch.x.shape[1:]), batch.x.dtype)
        scales = self.likelihood.output_scales(wanted)
        look = output_range if NARROWED.intersection(scales) else lambda *args: (None, jax.eval_shape(*args))
        allowed, shape = look(of_rows, weights, rows)
        named = f"the network {self.network.name} returns outputs"
        if shape.shape == (wanted, count):
            raise ValueError(f"{named} of shape [outputs, rows]; return their transpose, [rows, outputs]")
        if shape.shape[1:] != (wanted,):
            raise ValueError(
                f"{named} of shape {shape.shape[1:]} a row, but the likelihood {type(self.likelihood).__name__} reads "
                f"{wanted} a row; give a last layer of {wanted}, in a network of your own by the `outputs` of `init`"
                f"{self._likelihood_of(shape.shape[1:], wanted)}"
            )
        if allowed is not None:
            require_scales(allowed, scales, self.network.name, self.likelihood.name)

    def _likelihood_of(self, outputs: tuple[int, ...], wanted: int) -> str:
        """Returns a clause with the likelihood that reads these outputs of a row; empty where none is usual."""
        base: Any = self.likelihood.base if isinstance(self.likelihood, Scaled) else self.likelihood
        if isinstance(base, Categorical) and outputs == (1,) and wanted == 2:
            return ", or the likelihood Bernoulli(), which reads one log odds"
        if isinstance(base, Bernoulli) and outputs == (2,) and wanted == 1:
            return ", or the likelihood Categorical(2), which reads two logits"
        if isinstance(base, Gaussian) and outputs == (2 * wanted,):
            return ", or the likelihood HeteroscedasticGaussian(), which reads a mean and a deviation each"
        if isinstance(base, PerPosition) and math.prod(outputs) == wanted:
            return (
                f"; here flatten it, with the {wanted // base.n_positions} outputs of a position side by side, as "
                "f.flatten(1) of [rows, steps, classes] and f.movedim(1, -1).flatten(1) of [rows, classes, steps]"
            )
        return ""

    def standardised(self, x: Inputs, y: Targets, weight: object = None) -> Model:
        """Returns the model with the scaling of features, and of a regression target, built in.

        The network sees standardised inputs and the likelihood a standardised target, while predictions, log densities
        (with the Jacobian of the scaling) and intervals stay in the units of the data.

        Args:
            x: training inputs, `[N, ...]`, or a frame, whose names the model keeps. Constant columns are only shifted,
                and so are columns of zeros and ones: scaled, the rare value would be an outlier. Columns that the
                network reads as codes of categories (`codes`) are neither shifted nor scaled.
            y: training targets.
            weight: the weight of each row, `[N]`; ones where None.

        Raises:
            ValueError: for 64-bit numbers that JAX's dtype cannot distinguish or represent, such as Unix seconds of an
                hour; the message tells what to subtract, or to divide by.

        Examples:
            >>> import jax.numpy as jnp, lamu
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
            >>> float(model.standardised(jnp.arange(4.0)[:, None], 10 * jnp.arange(4.0)).likelihood.shift)
            15.0
        """
        require_untraced("model.standardised")
        x, names = by_name(x, self.columns), self.columns or column_names(x)
        x = array_of("x", x)
        _require_columns(x)
        refuse_lost("x", x)
        floating = of_rows(x.dtype)
        dtype = jax.dtypes.canonicalize_dtype(floating)
        with np.errstate(over="ignore"):  # refused below
            shift, scale = _moments(x, dtype, weight)
        if not (np.isfinite(shift).all() and np.isfinite(scale).all()):
            refuse_infinite("x", x, x)
            refuse_lost("x", x, target=True)  # whose squares are infinite
        binary = [np.asarray(((block == 0) | (block == 1)).all(axis=0)) for _, block in blocks(x)]
        scale[np.all(binary, axis=0)] = 1.0
        codes = self.network.codes
        if codes:
            columns = codes if codes is ... else list(codes)
            shift[columns], scale[columns] = 0.0, 1.0
        network = Standardised(self.network, shift, scale)
        if not self.likelihood.support.affine:
            return replace(self, network=network, columns=names)
        y = one_a_row(self.likelihood, array_of("y", y))
        refuse_lost("y", y, target=True)
        refuse_infinite("y", y, y)
        likelihood = Scaled(self.likelihood, *_moments(y, dtype, weight))
        return replace(self, network=network, likelihood=likelihood, columns=names)

    def outputs(
        self,
        params: Params,
        state: State,
        x: Array,
        key: RandomKey | None = None,
        train: bool = False,
        mask: Array | None = None,
    ) -> tuple[Array, State]:
        """Returns f(θ, x) of shape `[batch, outputs]`, and the network's new state.

        Args:
            params: the free parameters.
            state: the network's state.
            x: inputs `[batch, ...]`.
            key: for random layers.
            train: training mode.
            mask: one for a real row and zero for a padded one, `[batch]`, for networks in which rows interact
                (`masked`); None where every row is real.
        """
        return outputs(self.network, self.complete(params["network"]), state, x, key, train, mask)

    def log_likelihood(
        self, params: Params, state: State, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, State]:
        """Returns log p(y_i | x_i, θ) for every row in nats, shape `[batch]`, and the network's new state.

        A batch's offset, `[batch]` or `[batch, outputs]`, is added to f. Evaluation is deterministic, and does not use
        the key.
        """
        f, state = self.outputs(params, state, batch.x, key if train else None, train, batch.mask)
        return self.likelihood.log_prob(params["likelihood"], with_offset(f, batch.offset), batch.y), state

    def conditioned(self, frozen: Params, dispersions: Params, beliefs: tuple[object, ...] = ()) -> Model:
        """Returns the model with weights fixed, and dispersions too, where they are given."""
        has_dispersions = bool(jax.tree.leaves(dispersions))
        likelihood = FixedDispersion(self.likelihood, dispersions) if has_dispersions else self.likelihood
        return replace(self, frozen=frozen, likelihood=likelihood)

    def prior_predictive(self, key: RandomKey, n: int, x: Inputs) -> Array:
        r"""Returns draws of targets from the prior predictive distribution, `[n, N]` or `[n, N, outputs]`.

        \[ \theta \sim p(\theta), \qquad y_i \sim p(y \mid f(\theta, x_i)) \]

        Each draw has its own parameters, the same for all rows; θ are the weights and, where the likelihood has
        dispersions to learn, those too, from their own prior.

        Args:
            key: a random key.
            n: the number of draws.
            x: inputs `[N, ...]`.

        Raises:
            ValueError: for n below 1.
            NotImplementedError: for a prior that cannot be simulated from, of weights or of dispersions.

        Examples:
            >>> import jax, jax.numpy as jnp, lamu
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5), lamu.priors.Normal(2.0))
            >>> model.prior_predictive(jax.random.key(0), 10, jnp.ones((3, 1))).shape
            (10, 3)
        """
        return self._prior_draws(key, n, x, self.likelihood.sample)

    def prior_mean(self, key: RandomKey, n: int, x: Inputs) -> Array:
        r"""Returns \(E[y \mid f(\theta, x)]\) for draws \(\theta \sim p(\theta)\), shaped as in `prior_predictive`.

        Args:
            key: a random key.
            n: the number of draws.
            x: inputs `[N, ...]`.

        Raises:
            ValueError, NotImplementedError: as `prior_predictive`.

        Examples:
            >>> import jax, jax.numpy as jnp, lamu
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(2.0))
            >>> probability = model.prior_mean(jax.random.key(0), 10, jnp.ones((3, 1)))
            >>> bool(jnp.all((probability > 0) & (probability < 1)))
            True
        """
        return self._prior_draws(key, n, x, lambda _, dispersions, f: self.likelihood.mean(dispersions, f))

    def _prior_draws(self, key: RandomKey, n: int, x: Inputs, of: Any) -> Array:
        """Returns a function of a key, the dispersions and f, for draws from the prior."""
        n = whole_number("n", n)
        x = jnp.asarray(self.inputs(x))
        example_key, draw_key = jax.random.split(key)
        example = Batch.of(x, self.likelihood.support.zeros(x.shape[0]))
        params, state = self.init(example_key, example)

        def draw(key: RandomKey) -> Array:
            prior_key, target_key, dispersion_key = jax.random.split(key, 3)
            dispersions = self.likelihood.sample_prior(dispersion_key, params["likelihood"])
            theta = {"network": self.prior.sample(prior_key, params["network"]), "likelihood": dispersions}
            return of(target_key, dispersions, self.outputs(theta, state, x)[0])

        return jax.lax.map(jax.jit(draw), jax.random.split(draw_key, n))

    def dispersion_log_prior(self, dispersions: Params) -> Array:
        earlier = self.earlier_dispersions
        return self.likelihood.log_prior(dispersions) if earlier is None else earlier.log_prob(dispersions)

    def dispersion_information(self, dispersions: Params) -> Params:
        return self.likelihood.dispersion_information(dispersions)

    def read(self, data: Data) -> Arrays | Stream:
        """Returns data as rows: `(x, y)`, a mapping with `x`, `y` and further columns, or an iterable of batches."""
        rows = read(data, self.columns)
        if isinstance(rows, Stream):
            return Stream(rows, prepare=self._checked)
        given, rows = rows, self._of_one(rows)
        y = jax.tree.map(np.asarray, rows.y)
        if (
            given is data or self.earlier_dispersions is not None
        ):  # a part of rows that were read before, or after others
            self.likelihood.check(y)
        else:
            self.likelihood.check_training(y)
        return self._located(rows)

    def _checked(self, batch: Batch) -> Batch:
        """Returns a batch of a stream, with its offset located; raises a ValueError for invalid targets."""
        real, batch = np.asarray(batch.mask) > 0, self._of_one(batch)
        self.likelihood.check(jax.tree.map(lambda leaf: np.asarray(leaf)[real], batch.y))
        return self._located(batch)

    def rows(self, data: Data) -> Arrays:
        """Returns `(x, y)` or a mapping as rows for evaluation, which may be of any range."""
        if isinstance(data, np.ndarray | jax.Array):
            raise ValueError(_TARGETS_ALONE)
        rows = self._of_one(Arrays.of(aligned(data, self.columns)))
        self.likelihood.check(jax.tree.map(np.asarray, rows.y))
        return self._located(rows)

    def _of_one(self, rows: _Rows) -> _Rows:
        y = one_a_row(self.likelihood, rows.y)
        return rows if y is rows.y else replace(rows, y=y)

    def _located(self, rows: _Rows) -> _Rows:
        offset = offset_per_output(self.likelihood, rows.offset, self.likelihood.outputs(rows.y))
        return rows if offset is rows.offset else replace(rows, offset=offset)

    def named(self, data: Data) -> Model:
        """Returns the model with the names of its inputs, where the data are a frame and it has none yet.

        Args:
            data: `(x, y)`, a mapping with `x`, an iterable of such batches, or anything else.

        Examples:
            >>> import lamu, pandas as pd
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
            >>> model = model.named((pd.DataFrame({"a": [1.0], "b": [2.0]}), [0.5]))
            >>> model.rows((pd.DataFrame({"b": [4.0], "a": [3.0]}), [0.5])).x.tolist()
            [[3.0, 4.0]]
        """
        if self.columns is not None:
            return self
        inputs = inputs_of(data)
        if inputs is None and isinstance(data, Iterable) and not isinstance(data, Iterator | Mapping | Stream):
            inputs = inputs_of(next(iter(data), None))  # the first of several batches
        names = column_names(inputs)
        return self if names is None else replace(self, columns=names)

    def inputs(self, x: Inputs) -> Rows:
        """Returns the inputs of predictions, floating and checked.

        Args:
            x: inputs `[N, ...]` in the units of the data.
        """
        x = by_name(x, self.columns)
        x = array_of("x", x)
        # As for data: integer inputs would cast the constants of a standardised network to integers.
        x = x if x.dtype == of_rows(x.dtype) else x.astype(of_rows(x.dtype))
        if x.ndim < 2:
            raise ValueError(
                f"x has the shape {x.shape}; give rows of features, for one row x[None], for one feature x[:, None]"
            )
        if x.shape[0] == 0:
            raise ValueError("x has no rows; give at least one")
        dtype = jax.dtypes.canonicalize_dtype(x.dtype)  # in which a 64-bit number may become infinite
        if not _is_finite(x, dtype):
            raise ValueError(f"x holds NaN or infinity in {dtype}; remove or fill those rows first")
        return x

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def support(self) -> Support:
        return self.likelihood.support

    @property
    def identified(self) -> bool:
        """Whether the network is linear in its weights."""
        return self.network.linear

    @property
    def quadratic(self) -> bool:
        return self.likelihood.quadratic

    @property
    def trained(self) -> bool:
        """Whether runs start from pretrained weights.

        Examples:
            >>> import lamu
            >>> lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).trained
            False
        """
        return self.start is not None or self.network.trained

    def scan_friendly(self, batch: Batch) -> bool:
        """Whether the network runs as fast in a compiled loop as step by step."""
        return is_dense(self.network) or scan_friendly(self.network, batch.x, self.likelihood.outputs(batch.y))

    def unscaled_inputs(self, rows: Batch) -> str:
        """Returns a clause about inputs that were not standardised; codes of categories need no scaling."""
        if isinstance(self.network, Standardised) or self.network.codes:
            return ""
        return unscaled(rows.x, "take model.standardised(x, y)")

    def require_same(self, other: Target) -> None:
        """Raises a ValueError unless both models have the same network, likelihood, scaling and frozen leaves."""
        super().require_same(other)
        for name, mine, theirs in (
            ("network", self.network, other.network),
            ("likelihood", self.likelihood, other.likelihood),
        ):
            if not same_structure(mine, theirs):
                raise ValueError(
                    f"the posterior is about the {name} {_brief(theirs)}, and this model has {_brief(mine)}, whose "
                    "parameters are others; use posterior.model"
                )
        if not (same(self.network, other.network) and same(_scaling(self), _scaling(other))):
            raise ValueError(
                "the posterior's model scales features or targets by other constants, so its weights mean something "
                "else here; use posterior.model, which keeps its scaling"
            )


def _brief(part: Any) -> str:
    """Returns the start of a representation, which may hold arrays."""
    return repr(part) if len(repr(part)) <= _LONGEST else f"{repr(part)[:_LONGEST]}…"


def _require_columns(x: Any) -> None:
    if x.ndim == 1:
        raise ValueError(f"x has the shape {x.shape}; give rows of features, for one feature x[:, None]")


def supervised(target: Target) -> Model:
    """Returns a target as a `Model`, or raises a TypeError.

    Args:
        target: a target.

    Raises:
        TypeError: where there is no network.

    Examples:
        >>> import lamu
        >>> from lamu.model import supervised
        >>> supervised(lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())).name
        'Linear'
    """
    if isinstance(target, Model):
        return target
    raise TypeError(
        f"this needs a network, and {target.name} has none; take what works on any density, for instance "
        "laplace(curvature=Hessian()), von() or nuts()"
    )


def one_a_row(likelihood: Likelihood, y: Targets) -> Targets:
    """Returns targets `[N, 1]` as one a row, `[N]`, as scores read them, unless the likelihood takes a column."""
    if isinstance(y, Mapping) or np.shape(y)[1:] != (1,):
        return y
    try:
        likelihood.check(np.asarray(y))
    except ValueError:
        return y[:, 0]
    return y


def offset_per_output(likelihood: Likelihood, offset: Any, width: int) -> Any:
    """Returns an offset of one number a row as one number an output, zero for outputs other than the location."""
    # Exposure multiplies the mean of a count; it has no effect on the log odds of a zero, nor on a log deviation.
    scales = likelihood.output_scales(width)
    if offset is None or np.ndim(offset) != 1 or len(set(scales)) < 2:
        return offset
    return offset[:, None] * np.array([scale == scales[0] for scale in scales], offset.dtype)[None]


def _is_finite(x: Any, dtype: DTypeLike) -> bool:
    """Whether all inputs are finite in the given dtype; checked in chunks of rows where they are many."""
    if isinstance(x, Tracer):  # under `jax.jit` or `jax.grad` there are no numbers to check
        return True
    if isinstance(x, np.ndarray) and x.dtype == dtype and x.nbytes <= _SMALL:
        return bool(np.isfinite(x).all())
    rows = max(1, memory.budget() // max(8 * math.prod(x.shape[1:]), 1))
    with np.errstate(over="ignore"):
        finite = (np.isfinite(x[i : i + rows].astype(dtype)).all() for i in range(0, x.shape[0], rows))
        return all(map(bool, finite))


def _scaling(model: Any) -> Any:
    return (model.likelihood.shift, model.likelihood.scale) if isinstance(model.likelihood, Scaled) else ()


def _moments(a: Any, dtype: DTypeLike, weight: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns every column's mean and standard deviation; one for a column constant in its input precision."""
    precision = jnp.finfo(a.dtype).eps if jnp.issubdtype(a.dtype, jnp.floating) else 0.0
    mean, scale = moments(a, weight)
    constant = scale <= 8 * float(precision) * np.abs(mean)
    scale = np.where(constant | (scale == 0), 1.0, scale)
    return np.asarray(mean, dtype), np.asarray(scale, dtype)
