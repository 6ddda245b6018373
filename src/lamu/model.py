r"""A model: a network, a likelihood and a prior, \(p(y \mid f(\theta, x))\, p(\theta)\).

Parameters are `{"network": …, "likelihood": …}`: the network's weights, and the likelihood's dispersions (an empty
dictionary where there are none). A model only says what one row's log likelihood is, as a vector over the batch; how
rows are summed, scaled and tempered is the objective's business alone (`docs/scale.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.data.batch import Batch, with_offset
from lamu.data.naming import by_name, names_of
from lamu.data.precision import refuse_lost
from lamu.families import Product
from lamu.likelihoods import Likelihood, Scaled
from lamu.networks import Network, Standardised
from lamu.networks.interface import outputs
from lamu.observations import Observation, Parameter
from lamu.priors import Belief, Normal, Prior
from lamu.priors.belief import tempered
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Model", "aligned", "arrived", "require_same_parts", "weights_belief"]


@record
class Model:
    r"""A network with a likelihood for its outputs and a prior on its weights.

    \[ \log p(y, \theta \mid x) = \sum_i \log p(y_i \mid f(\theta, x_i)) + \log p(\theta) \]

    Attributes:
        network: f(θ, x). Its input and output widths come from the data and the likelihood.
        likelihood: p(y | f).
        prior: p(θ) on the network's weights. The likelihood's dispersions bring a prior of their own.
        frozen: weights held at given values (a tree like the network's parameters, `None` where a leaf is free), or
            `None`. Frozen leaves are constants: they are in no state, no gradient, no prior. Use `freeze` to set them.
        start: parameters and network state that every run starts from, or `None` for fresh ones. Use `starting_at` or
            `with_prior` to set them.
        columns: the names of the inputs, where they came as a frame of pandas or polars: later frames are matched by
            them. None where they have none.

    Examples:
        >>> import jax, lamu
        >>> model = lamu.Model(network=lamu.networks.Linear(), likelihood=lamu.likelihoods.Gaussian(scale=1.0))
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> model.log_likelihood(params, state, batch)[0].shape
        (4,)
    """

    network: Network
    likelihood: Likelihood
    prior: Prior = Normal(1.0)
    frozen: Params | None = None
    start: Any = None
    columns: tuple[str, ...] | None = static(default=None)

    @classmethod
    def conjugate(cls, observation: Observation, prior: Any) -> Model:
        r"""Returns the model of targets without inputs, \(y_i \sim p(y \mid \theta)\), \(\theta\) of a conjugate prior.

        Args:
            observation: \(p(y \mid \theta)\), one of `lamu.observations`.
            prior: the belief about θ before any data, of the family that the observation is conjugate to.

        Raises:
            TypeError: for a prior of another family.

        Examples:
            >>> import lamu
            >>> model = lamu.Model.conjugate(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.0))
            >>> posterior = lamu.fit(model, {"y": [3, 5, 4]}, lamu.algorithms.conjugate()).posterior
            >>> float(posterior.belief.factors["network"].rate)
            4.0
        """
        if not isinstance(prior, observation.family):
            raise TypeError(
                f"the prior is a {type(prior).__name__}, and {type(observation).__name__} is conjugate to "
                f"{observation.family.__name__}; give a belief of that family"
            )
        floating: Any = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), prior)
        likelihood: Any = observation
        return cls(Parameter(floating.mean), likelihood, Belief(floating))

    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, Any]:
        """Returns initial free parameters and the network's state: fresh ones, or copies of `start`.

        Args:
            key: a random key.
            batch: some rows, for shapes and for the first guess of a dispersion.

        Returns:
            The parameters `{"network", "likelihood"}`, with `None` at frozen leaves, and the network's state.
        """
        if batch.x.shape[1:] == (0,) and not isinstance(self.likelihood, Observation):
            raise ValueError("the data are targets alone, and a network needs inputs; give (x, y)")
        weights, state = self.network.init(key, batch.x, self.likelihood.outputs(batch.y))
        self._check_width(weights, state, batch)
        # On all weights, also those to be frozen: a pattern that is about frozen leaves alone is no mistake.
        self.prior.check(weights)
        if self.frozen is not None:
            weights = jax.tree.map(
                lambda held, free: free if held is None else None, self.frozen, weights, is_leaf=_is_none
            )
        fresh = {"network": weights, "likelihood": self.likelihood.init(batch.y)}, state
        return fresh if self.start is None else _copy(self.start, fresh)

    def _check_width(self, weights: Params, state: Any, batch: Batch) -> None:
        """Raises a ValueError where the network's outputs are not what the likelihood reads; only shapes are traced."""
        wanted = self.likelihood.outputs(batch.y)
        found = jax.eval_shape(lambda x: outputs(self.network, weights, state, x, None, False, None), batch.x)[0]
        if found.shape[1:] != (wanted,):
            raise ValueError(
                f"the network {type(self.network).__name__} returns outputs of shape {found.shape[1:]} a row, but the "
                f"likelihood {type(self.likelihood).__name__} reads {wanted} a row; give a network whose `init` heeds "
                "`outputs`"
            )

    def freeze(self, params: Params, *patterns: str) -> Model:
        """Returns the model with the weights whose path matches a pattern held at the given values.

        Args:
            params: all parameters, as `init` returns them.
            *patterns: path patterns below `network`, for instance `"layers/0/*"`.

        Raises:
            ValueError: if a pattern matches no leaf.

        Examples:
            >>> import jax, lamu
            >>> model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian(1.0))
            >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
            >>> params, _ = model.init(jax.random.key(0), batch)
            >>> free, _ = model.freeze(params, "layers/0/*").init(jax.random.key(1), batch)
            >>> lamu.tree.paths(free["network"])
            ['layers/1/bias', 'layers/1/kernel']
        """
        weights = self.complete(params["network"])
        tree.require_matches(patterns, weights)
        already = set() if self.frozen is None else set(tree.paths(self.frozen))

        def held(path: str, leaf: Array) -> Array | None:
            return leaf if path in already or any(tree.matches(path, pattern) for pattern in patterns) else None

        return replace(self, frozen=tree.map_with_path(held, weights))

    def starting_at(self, params: Params, network_state: Any = None) -> Model:
        """Returns the model whose runs start from given parameters in the place of random ones.

        Args:
            params: free parameters, as `init` returns them.
            network_state: the network's state, where it has one.

        Examples:
            >>> import lamu
            >>> x, y = lamu.data.load("diabetes")
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0)).standardised(x, y)
            >>> first = lamu.fit(model, (x, y), lamu.algorithms.adam(), epochs=5).posterior
            >>> longer = lamu.fit(model.starting_at(first.mean), (x, y), lamu.algorithms.adam(), epochs=5)
        """
        return replace(self, start=(params, {} if network_state is None else network_state))

    def with_prior(self, posterior: Any, temperature: Number | None = None) -> Model:
        r"""Returns the model whose prior is what a posterior believes: yesterday's posterior is today's prior.

        \[ p(\theta \mid D_1, D_2) \propto p(D_2 \mid \theta)\, p(\theta \mid D_1) \]

        A Gaussian belief about the weights, one about binary weights, or that of a conjugate model becomes the prior as
        it is. Runs start at its mean, with the posterior's network state; learned dispersions, of which it knows a
        point, start there. The scaling of features and targets (`standardised`) is part of what the weights mean, so
        this model must have the posterior's: `posterior.model.with_prior(posterior)` always has.

        Args:
            posterior: a `lamu.Posterior` of the same network and likelihood.
            temperature: the temperature T at which the posterior was made, its own where None. The prior is its belief
                to the power T, which a run at the same temperature turns back into the belief.

        Raises:
            TypeError: for a belief of several modes, or a point.
            ValueError: for another network, likelihood, scaling, or other frozen leaves.

        Examples:
            >>> import lamu
            >>> x, y = lamu.data.load("diabetes")
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
            >>> first = lamu.fit(model, (x[:200], y[:200]), lamu.algorithms.conjugate()).posterior
            >>> both = lamu.fit(model.with_prior(first), (x[200:], y[200:]), lamu.algorithms.conjugate()).posterior
            >>> both.predict(x[:5]).mean.shape
            (5,)
        """
        belief, rest = weights_belief(posterior), None
        if hasattr(belief, "point"):  # binary weights beside a point, which keeps the prior that it has
            belief, rest = belief.belief, self.prior
        prior = Belief(tempered(belief, posterior.temperature if temperature is None else temperature), rest)
        require_same_parts(self, posterior.model)
        if isinstance(self.likelihood, Observation):
            return replace(self, prior=prior)
        return replace(self, prior=prior, start=(posterior.mean, posterior.network_state))

    def complete(self, weights: Params) -> Params:
        """Returns all weights, the frozen ones put beside the free ones."""
        if self.frozen is None:
            return weights
        return jax.tree.map(lambda free, held: held if free is None else free, weights, self.frozen, is_leaf=_is_none)

    def standardised(self, x: Any, y: Any) -> Model:
        """Returns the model with the scaling of features, and of a regression target, made a part of it.

        The network sees standardised inputs and the likelihood a standardised target, while predictions, log densities
        (with the Jacobian of the scaling) and intervals stay in the units of the data.

        Args:
            x: training inputs, `[N, ...]`, or a frame, whose names the model keeps. Constant columns are only shifted,
                and so are columns of zeros and ones: scaled, the rare value would stand far out. Columns that the
                network reads as codes of categories (`codes`) are neither shifted nor scaled.
            y: training targets.

        Raises:
            ValueError: for numbers of 64 bits that JAX's dtype cannot tell apart or hold, such as Unix seconds of an
                hour: it says what to subtract, or to divide by.

        Examples:
            >>> import jax.numpy as jnp, lamu
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
            >>> float(model.standardised(jnp.arange(4.0)[:, None], 10 * jnp.arange(4.0)).likelihood.shift)
            15.0
        """
        if isinstance(self.likelihood, Observation):
            raise TypeError("a model without inputs has nothing to standardise; use it as it is")
        x, columns = by_name(x, self.columns), self.columns or names_of(x)
        x, y = (part if isinstance(part, jax.Array) else np.asarray(part) for part in (x, y))
        refuse_lost("x", x)
        floating = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)
        dtype = jax.dtypes.canonicalize_dtype(floating)
        shift, scale = _moments(x, dtype)
        scale[np.asarray(((x == 0) | (x == 1)).all(axis=0))] = 1.0
        codes = getattr(self.network, "codes", ())
        if codes:
            columns = codes if codes is ... else list(codes)
            shift[columns], scale[columns] = 0.0, 1.0
        network = Standardised(self.network, shift, scale)
        if self.likelihood.task != "regression":
            return replace(self, network=network, columns=columns)
        refuse_lost("y", y, target=True)
        likelihood = Scaled(self.likelihood, *_moments(y, dtype))
        return replace(self, network=network, likelihood=likelihood, columns=columns)

    def outputs(
        self,
        params: Params,
        state: Any,
        x: Array,
        key: RandomKey | None = None,
        train: bool = False,
        mask: Array | None = None,
    ) -> tuple[Array, Any]:
        """Returns f(θ, x) of shape `[batch, outputs]`, and the network's new state.

        Args:
            params: the free parameters.
            state: the network's state.
            x: inputs `[batch, ...]`.
            key: for random layers.
            train: training mode.
            mask: one for a real row and zero for a padded one, `[batch]`, for networks whose rows meet (`masked`); None
                where every row is real.
        """
        return outputs(self.network, self.complete(params["network"]), state, x, key, train, mask)

    def log_likelihood(
        self, params: Params, state: Any, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, Any]:
        """Returns log p(y_i | x_i, θ) for every row in nats, shape `[batch]`, and the network's new state.

        A batch's offset, `[batch]` or `[batch, outputs]`, is added to f.
        """
        f, state = self.outputs(params, state, batch.x, key, train, batch.mask)
        return self.likelihood.log_prob(params["likelihood"], with_offset(f, batch.offset), batch.y), state

    def log_prior(self, params: Params) -> Array:
        """Returns log p(θ) in nats: the free weights' prior and the dispersions' own."""
        return self.prior.log_prob(params["network"]) + self.likelihood.log_prior(params["likelihood"])


def aligned(model: Model, data: Any) -> tuple[Model, Any]:
    """Returns a model that knows the names of its inputs, and the data with their columns in its order.

    Args:
        model: a model, which takes the names of a frame over where it has none.
        data: `(x, y)`, a mapping with `x`, or anything else, which is returned as it is.

    Raises:
        ValueError: for a frame without a column that the model was fitted on.

    Examples:
        >>> import lamu, pandas as pd
        >>> from lamu.model import aligned
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
        >>> model, _ = aligned(model, (pd.DataFrame({"a": [1.0], "b": [2.0]}), [0.5]))
        >>> aligned(model, (pd.DataFrame({"b": [4.0], "a": [3.0]}), [0.5]))[1][0].to_numpy().tolist()
        [[3.0, 4.0]]
    """
    if isinstance(data, tuple) and len(data) == 2:
        model, found = aligned(model, {"x": data[0]})
        return model, (found["x"], data[1])
    given: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {}
    names = names_of(given.get("x"))
    if names is None:
        return model, data
    model = replace(model, columns=names) if model.columns is None else model
    return model, {**given, "x": by_name(given["x"], model.columns)}


def arrived(model: Model) -> bool:
    """Returns whether the model's runs start from weights that somebody has trained.

    Examples:
        >>> import lamu
        >>> from lamu.model import arrived
        >>> arrived(lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()))
        False
    """
    network: Any = model.network
    while hasattr(network, "base"):
        network = network.base
    return model.start is not None or bool(getattr(network, "trained", False))


def weights_belief(posterior: Any) -> Any:
    """Returns a posterior's belief about the network's weights."""
    belief = posterior.belief
    return belief.factors["network"] if isinstance(belief, Product) else belief


def require_same_parts(model: Model, other: Model) -> None:
    """Raises a ValueError unless weights mean the same in both models: network, likelihood, scaling, frozen leaves."""
    for name in ("network", "likelihood"):
        mine, theirs = getattr(model, name), getattr(other, name)
        if not _same_structure(mine, theirs):
            raise ValueError(
                f"the posterior is about the {name} {theirs!r}, and this model has {mine!r}, whose parameters are "
                "others; use posterior.model"
            )
    if not (_same(model.network, other.network) and _same(_scaling(model), _scaling(other))):
        raise ValueError(
            "the posterior's model scales features or targets by other constants, so its weights mean something else "
            "here; use posterior.model, which keeps its scaling"
        )
    if not (_same_structure(model.frozen, other.frozen) and _same(model.frozen, other.frozen)):
        raise ValueError("the posterior has other frozen weights than this model; use posterior.model")


def _scaling(model: Model) -> Any:
    return (model.likelihood.shift, model.likelihood.scale) if isinstance(model.likelihood, Scaled) else ()


def _same_structure(a: Any, b: Any) -> bool:
    return type(a) is type(b) and jax.tree.structure(a) == jax.tree.structure(b)


def _same(a: Any, b: Any) -> bool:
    """Whether two trees of one structure hold the same numbers, as far as those are known."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(isinstance(x, Tracer) or isinstance(y, Tracer) or np.array_equal(x, y) for x, y in pairs)


def _copy(start: Any, fresh: Any) -> Any:
    """Returns the start, in the dtypes of fresh parameters; copies, since a run gives its state away."""
    held = dict(zip(tree.paths(start), jax.tree.leaves(start), strict=True))

    def copy(path: str, leaf: Array) -> Array:
        if path not in held or jnp.shape(held[path]) != jnp.shape(leaf):
            found = f"shape {jnp.shape(held[path])}" if path in held else "nothing"
            raise ValueError(
                f"the start has {found} where the model has the leaf {path[2:]!r} of shape {jnp.shape(leaf)}; start "
                "from parameters of the same model and data of the same width"
            )
        return jnp.array(held[path], jnp.result_type(leaf), copy=True)

    return tree.map_with_path(copy, fresh)


def _moments(a: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns every column's mean and standard deviation; one for a column constant to the precision that it came in.

    They are taken in 64 bits, from the numbers as they came.
    """
    # JAX's own types, such as bfloat16, are no types of NumPy.
    precision = jnp.finfo(a.dtype).eps if jnp.issubdtype(a.dtype, jnp.floating) else 0.0
    wide = np.asarray(a, np.float64)
    mean, scale = wide.mean(axis=0), wide.std(axis=0)
    constant = scale <= 8 * float(precision) * np.abs(mean)
    scale = np.where(constant | (scale == 0), 1.0, scale)
    return np.asarray(mean, dtype), np.asarray(scale, dtype)


def _is_none(leaf: Any) -> bool:
    return leaf is None
