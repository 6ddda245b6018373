r"""A model: a network, a likelihood and a prior, \(p(y \mid f(\theta, x))\, p(\theta)\).

Parameters are `{"network": …, "likelihood": …}`: the network's weights, and the likelihood's dispersions (an empty
dictionary where there are none). A model only says what one row's log likelihood is, as a vector over the batch; how
rows are summed, scaled and tempered is the objective's business alone (`docs/scale.md`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.data.batch import Batch, with_offset
from lamu.likelihoods import Likelihood, Scaled
from lamu.networks import Network, Standardised
from lamu.networks.interface import outputs
from lamu.priors import Normal, Prior
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Model"]


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

    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, Any]:
        """Returns initial free parameters and the network's state.

        Args:
            key: a random key.
            batch: some rows, for shapes and for the first guess of a dispersion.

        Returns:
            The parameters `{"network", "likelihood"}`, with `None` at frozen leaves, and the network's state.
        """
        weights, state = self.network.init(key, batch.x, self.likelihood.outputs(batch.y))
        self._check_width(weights, state, batch)
        # On all weights, also those to be frozen: a pattern that is about frozen leaves alone is no mistake.
        self.prior.check(weights)
        if self.frozen is not None:
            weights = jax.tree.map(
                lambda held, free: free if held is None else None, self.frozen, weights, is_leaf=_is_none
            )
        return {"network": weights, "likelihood": self.likelihood.init(batch.y)}, state

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
            x: training inputs, `[N, ...]`. Constant columns are only shifted, and so are columns of zeros and ones:
                scaled, the rare value would stand far out. Columns that the network reads as codes of categories
                (`codes`) are neither shifted nor scaled.
            y: training targets.

        Examples:
            >>> import jax.numpy as jnp, lamu
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
            >>> float(model.standardised(jnp.arange(4.0)[:, None], 10 * jnp.arange(4.0)).likelihood.shift)
            15.0
        """
        x = jnp.asarray(x)
        x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
        shift, scale = _moments(x)
        scale[np.asarray(jnp.all((x == 0) | (x == 1), axis=0))] = 1.0
        codes = list(getattr(self.network, "codes", ()))
        if codes:
            shift[codes], scale[codes] = 0.0, 1.0
        network = Standardised(self.network, shift, scale)
        if self.likelihood.task != "regression":
            return replace(self, network=network)
        return replace(self, network=network, likelihood=Scaled(self.likelihood, *_moments(jnp.asarray(y, x.dtype))))

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


def _moments(a: Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns every column's mean and standard deviation; one for a column constant to the precision of its dtype."""
    wide = np.asarray(a, np.float64)
    mean, scale = wide.mean(axis=0), wide.std(axis=0)
    constant = scale <= 8 * float(jnp.finfo(a.dtype).eps) * np.abs(mean)
    scale = np.where(constant | (scale == 0), 1.0, scale)
    return np.asarray(mean, a.dtype), np.asarray(scale, a.dtype)


def _is_none(leaf: Any) -> bool:
    return leaf is None
