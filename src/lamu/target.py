r"""Targets of inference: parameters, the likelihood of each row given them, and their prior.

\[ \log p(\theta \mid D) = \sum_i \log p(\text{row}_i \mid \theta) + \log p(\theta) + \text{const} \]

A network with a likelihood and a prior (`lamu.Model`), any density (`lamu.LogDensity`) and the parameters of a
conjugate observation (`lamu.ConjugateModel`) are targets. The objective and every algorithm that needs no more than
this interface work on all of them.
"""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.constraints import Constraints
from lamu.data.arrays import Arrays, warn_of_scale
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.data.wording import getattr_or_substitute
from lamu.families import Gaussian, PartialBelief, Point, Product
from lamu.families.matrix_normal import LinearNormalGamma, NoiseScale
from lamu.families.points import DispersionMixture
from lamu.operators import Diagonal
from lamu.priors import Belief, Prior
from lamu.priors.belief import tempered
from lamu.supports import Support
from lamu.typing import Array, Data, Inputs, Number, Params, RandomKey, Rows, State

__all__ = ["ConstrainedTarget", "Target", "require_target", "same", "same_structure", "weights_belief"]

T = TypeVar("T", bound="Target")


_ELSEWHERE = {
    "fit": "lamu.fit(model, (x, y), lamu.algorithms.ivon())",
    "predict": "lamu.fit(model, (x, y), lamu.algorithms.ivon()).posterior.predict(x)",
    "predict_proba": "lamu.fit(model, (x, y), lamu.algorithms.ivon()).posterior.predict(x).probabilities",
    "sample": "lamu.fit(model, (x, y), lamu.mcmc.nuts()).posterior.samples",
}


class Target(ABC):
    r"""Base class of targets of inference.

    Parameters are a dictionary of two trees:

    * `params["network"]`: the coordinates of the belief, a network's weights or a density's θ. Their prior is `prior`.
    * `params["likelihood"]`: dispersions, which are learned as a point; an empty dictionary where there are none. Their
      prior is a part of the target (`dispersion_log_prior`).

    A subclass must be a `lamu.record.record` and define the five abstract methods and the attributes below.

    Attributes:
        prior: the prior of the coordinates, frozen ones included.
        frozen: coordinates fixed at given values (a tree with None where a leaf is free), or None.
        start: parameters and state that every run starts from, or None for those of `init`.
        has_outputs: whether a row's density is that of a target given outputs f (`outputs`, `likelihood`).
        predicts_missing: whether a prediction imputes missing entries of rows (`completed`), instead of targets at
            inputs.
        simulates: whether predictions are draws of a program at its arguments (`lamu.from_numpyro`).

    Examples:
        >>> import lamu
        >>> from lamu.target import Target
        >>> isinstance(lamu.LogDensity(lambda theta: -(theta**2), 0.0), Target)
        True
    """

    prior: Prior
    frozen: Params | None
    start: Any
    __dataclass_fields__: ClassVar[dict[str, Any]]  # every target is a record
    has_outputs: ClassVar[bool] = False
    predicts_missing: ClassVar[bool] = False
    simulates: ClassVar[bool] = False

    # Every target must define these.

    @abstractmethod
    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, State]:
        """Returns the initial free parameters, with None at frozen leaves, and the state (or `{}`).

        Args:
            key: a random key.
            batch: some rows, for shapes and first guesses.
        """

    @abstractmethod
    def log_likelihood(
        self, params: Params, state: State, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, State]:
        """Returns the log density of every row given the parameters, `[batch]` in nats, and the new state.

        Args:
            params: the free parameters.
            state: the state.
            batch: the rows.
            key: for randomness in a row's density: that of layers in training; in evaluation that of a target that
                estimates the density by draws, such as a bound over latent variables. None for a fixed function.
            train: training mode.
        """

    @abstractmethod
    def read(self, data: Data) -> Arrays | Stream:
        """Returns the data of `lamu.fit` as rows, checked before any computation.

        Raises:
            TypeError: for data of another kind.
            ValueError: for rows that are invalid for this target.
        """

    @abstractmethod
    def rows(self, data: Data) -> Arrays:
        """Returns data as rows in memory, for validation or for removal from a posterior."""

    @abstractmethod
    def inputs(self, x: Inputs) -> Rows:
        """Returns the inputs of predictions as rows, checked.

        Raises:
            TypeError: where there is nothing to predict.
            ValueError: for inputs that cannot be read.
        """

    # Defaults, which a target may override.

    def named(self: T, data: Data) -> T:
        """Returns the target with the names of its inputs, where the data have names."""
        del data
        return self

    @property
    def name(self) -> str:
        """The name of the target in messages."""
        return type(self).__name__

    @property
    def support(self) -> Support | None:
        """The support of predictions; None where nothing is predicted."""
        return None

    @property
    def task(self) -> str:
        """The kind of target: "regression", "binary", "classes", or "density" where nothing is predicted."""
        return "density" if self.support is None else self.support.task

    @property
    def has_rows(self) -> bool:
        """Whether the data are rows, so that their number and Fisher information are meaningful."""
        return True

    @property
    def transforms(self) -> bool:
        """Whether parameters are a transform θ = g(u) of the coordinates u, with a `log_volume`."""
        return False

    @property
    def identified(self) -> bool:
        """Whether coordinates can be compared between runs: not where hidden units may be permuted."""
        return True

    @property
    def draws_latents(self) -> bool:
        """Whether the density of a row is estimated by draws of latent variables."""
        return False

    @property
    def quadratic(self) -> bool:
        """Whether a row's log density is quadratic in a network's outputs for given dispersions."""
        return False

    @property
    def trained(self) -> bool:
        """Whether runs start from pretrained parameters."""
        return self.start is not None

    @property
    def has_classes(self) -> bool:
        """Whether targets are classes, so that splits of rows are stratified."""
        return self.support is not None and self.support.has_classes

    def scan_friendly(self, batch: Batch) -> bool:
        """Whether a compiled loop over steps is not slower than single steps.

        Args:
            batch: some rows, for shapes.
        """
        del batch
        return True

    def log_prior(self, params: Params) -> Array:
        """Returns log p(θ) in nats: the priors of the free coordinates and of the dispersions."""
        return self.free_prior.log_prob(params["network"]) + self.dispersion_log_prior(params["likelihood"])

    @property
    def free_prior(self) -> Prior:
        """The prior of the free coordinates given the frozen ones, up to a constant."""
        return self.prior if self.frozen is None else self.prior.given(self.frozen)

    def tempered(self: T, temperature: Any) -> T:
        r"""Returns the target whose rows have \(\log p / T\) at a temperature; itself unless rows draw latents.

        The bound of a row contains an entropy, which is not divided by the temperature.

        Args:
            temperature: T.
        """
        del temperature
        return self

    def dispersion_log_prior(self, dispersions: Params) -> Array:
        """Returns the log density of the dispersions' prior, a scalar in nats."""
        del dispersions
        return jnp.zeros(())

    def dispersion_information(self, dispersions: Params) -> Params:
        """Returns the Fisher information of a row about each dispersion, a tree like them."""
        return jax.tree.map(jnp.ones_like, dispersions)

    def log_volume(self, params: Params) -> Array:
        r"""Returns \(\log |\partial g / \partial u|\) of coordinates u for θ = g(u), which is not tempered.

        Args:
            params: the free parameters.
        """
        del params
        return jnp.zeros(())

    def completed(self, belief: Any, rows: Any, samples: int, key: RandomKey) -> Any:
        """Returns means and variances of rows given their observed entries; None where they have no closed forms.

        Args:
            belief: q.
            rows: the rows, some of them with missing entries.
            samples: draws of a belief without closed forms.
            key: for these draws.

        Raises:
            TypeError: where rows have no missing entries.
        """
        del belief, rows, samples, key
        raise self._without_rows("what is missing in a row")

    def completed_by_draws(self, belief: object, rows: object, samples: int, key: RandomKey) -> Any:
        """Returns missing entries of rows by draws, for targets with `predicts_missing`, or None.

        Args:
            belief: about the parameters.
            rows: the rows, as `inputs` returns them.
            samples: the number of draws.
            key: for these draws.
        """
        del belief, rows, samples, key

    def local_beliefs(self, belief: object, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
        """Returns the beliefs about the latent variables of rows, by name; arguments as `completed`.

        Raises:
            TypeError: where rows have none.
        """
        del belief, rows, samples, key
        raise self._without_rows("local")

    def row_log_prob(self, belief: object, batch: Batch, samples: int, key: RandomKey) -> Array:
        r"""Returns \(\log E_q[p(\text{row} \mid \theta)]\) of rows in nats, `[N]`; other arguments as `completed`.

        Args:
            belief: q.
            batch: the rows.
            samples: draws of a belief without closed forms.
            key: for these draws.

        Raises:
            TypeError: where the density is that of targets at inputs.
        """
        del belief, batch, samples, key
        raise self._without_rows("log_prob")

    def _without_rows(self, name: str) -> TypeError:
        return TypeError(
            f"{name} is about the rows of a lamu.Graph, and this is the posterior of {self.name}; use predict(x)"
        )

    def unconstrained(self, params: Params) -> Params:
        """Returns the coordinates of algorithms for parameters in the user's form."""
        return params

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior about the coordinates as one about the parameters in the user's form."""
        return posterior

    @property
    def rows_for_warnings(self) -> int:
        """The number of rows that `warnings` needs and a fit keeps; zero by default."""
        return 0

    def warnings(self, belief: object, temperature: Number = 1.0, rows: Batch | None = None) -> tuple[str, ...]:
        """Returns warnings about a belief about this target, as sentences; none by default.

        Args:
            belief: q.
            temperature: T of the belief.
            rows: some of the fitted rows; None where there are none.
        """
        del belief, temperature, rows
        return ()

    def unscaled_inputs(self, rows: Batch) -> str:
        """Returns a clause about inputs that were not standardised, with the remedy; empty by default."""
        del rows
        return ""

    def complete(self, coordinates: Params) -> Params:
        """Returns all coordinates, frozen and free."""
        return coordinates if self.frozen is None else tree.merged(coordinates, self.frozen)

    def freeze(self: T, params: Params, *patterns: str) -> T:
        """Returns the target with the coordinates whose path matches a pattern fixed at the given values.

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
        coordinates = self.complete(params["network"])
        tree.require_matches(patterns, coordinates)
        already = set() if self.frozen is None else set(tree.paths(self.frozen))

        def held(path: str, leaf: Array) -> Array | None:
            return leaf if path in already or any(tree.matches(path, pattern) for pattern in patterns) else None

        return replace(self, frozen=tree.map_with_path(held, coordinates))

    def conditioned(self: T, frozen: Params, dispersions: Params, beliefs: tuple[object, ...] = ()) -> T:
        """Returns the target with fixed coordinates and dispersions.

        Args:
            frozen: all coordinates, with None where one is free.
            dispersions: the fixed dispersions; empty where they stay free.
            beliefs: the beliefs about the fixed coordinates; a target with closed forms takes expectations under them
                instead of the values.

        Raises:
            TypeError: for dispersions of a target without a likelihood.
        """
        del beliefs
        if jax.tree.leaves(dispersions):
            raise TypeError(f"{self.name} has no dispersions that could be held")
        return replace(self, frozen=frozen)

    def starting_at(self: T, params: Params, network_state: State = None) -> T:
        """Returns the target whose runs start from given parameters instead of those of `init`.

        Args:
            params: free parameters, as `init` returns them; None for a leaf that is that of `init`.
            network_state: the network's state, where it has one.

        Examples:
            >>> import lamu
            >>> x, y = lamu.data.load("diabetes")
            >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0)).standardised(x, y)
            >>> first = lamu.fit(model, (x, y), lamu.algorithms.adam(), epochs=5).posterior
            >>> longer = lamu.fit(model.starting_at(first.mean), (x, y), lamu.algorithms.adam(), epochs=5)
        """
        return replace(self, start=(params, {} if network_state is None else network_state))

    def with_prior(self: T, posterior: Any, temperature: Number | None = None) -> T:
        r"""Returns the target with a posterior's belief as its prior, for sequential updates.

        \[ p(\theta \mid D_1, D_2) \propto p(D_2 \mid \theta)\, p(\theta \mid D_1) \]

        A Gaussian belief about the weights, one about binary weights, or that of a conjugate model becomes the prior
        unchanged. Runs start at its mean, with the posterior's network state. Learned dispersions start at their point,
        with a normal prior about it whose precision is the Fisher information of the earlier rows.
        The meaning of the weights depends on the scaling of features and targets (`Model.standardised`), so this target
        must have that of the posterior, as `posterior.model.with_prior(posterior)` does.

        Args:
            posterior: a `lamu.Posterior` of the same target, on other data.
            temperature: the temperature T of the posterior, its own where None. The prior is its belief to the power T,
                which a run at the same temperature turns back into the belief.

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
        if not hasattr(posterior, "belief"):
            raise TypeError(
                f"with_prior takes a lamu.Posterior, and this is a {type(posterior).__name__}; of a Fit give "
                "fit.posterior, and where several fits are mixed, which have no one belief, fit all rows together again"
            )
        belief, rest = weights_belief(posterior), None
        if isinstance(belief, DispersionMixture):
            belief = belief.matched()[0]
        if isinstance(belief, PartialBelief):  # binary weights and a point, which keeps its prior
            belief, rest = belief.belief, self.prior
        if isinstance(belief, LinearNormalGamma):
            raise TypeError(
                "a posterior of weights and noise together is no prior of the weights; add the rows to it in closed "
                "form, lamu.absorb(posterior, data), or fit both parts with lamu.algorithms.laplace()"
            )
        self.require_same(posterior.model)
        power = posterior.temperature if temperature is None else temperature
        known = self._known_dispersions(posterior)
        prior = Belief(tempered(belief, power), rest, dispersions=known, temperature=power)
        start = (self.unconstrained(posterior.mean), posterior.network_state)
        return replace(self.under_prior(prior), start=start)

    def _known_dispersions(self, posterior: Any) -> Gaussian | None:
        """Returns the belief about the dispersions after the earlier rows; None where there are no dispersions."""
        belief = posterior.belief.factors.get("likelihood") if isinstance(posterior.belief, Product) else None
        if isinstance(posterior.belief, DispersionMixture):
            return posterior.belief.matched()[1]
        if isinstance(belief, NoiseScale):
            return Gaussian(belief.mean, Diagonal({"log_scale": 4 * belief.precision.shape}))
        if not isinstance(belief, Point) or not jax.tree.leaves(belief.mean) or posterior.data_size is None:
            return None
        # A point says nothing of what it knows: the information of the rows does, and that of the rows before them.
        precision = tree.scale(self.dispersion_information(belief.mean), posterior.data_size)
        before = posterior.model.earlier_dispersions
        precision = precision if before is None else tree.add(precision, before.precision.values)
        return Gaussian(belief.mean, Diagonal(precision))

    @property
    def earlier_dispersions(self) -> Any:
        """The belief about the dispersions from earlier rows (`with_prior`); None where there is none."""
        return self.prior.dispersions if isinstance(self.prior, Belief) else None

    def under_prior(self: T, prior: Any) -> T:
        """Returns the target with another prior of the parameters.

        Args:
            prior: of the same parameters.
        """
        return replace(self, prior=prior)

    def require_same(self, other: Target) -> None:
        """Raises a ValueError unless parameters have the same meaning in both targets.

        Args:
            other: another target.
        """
        if type(self) is not type(other):
            raise ValueError(f"the posterior is about {other.name}, and this is {self.name}; use posterior.model")
        if not (same_structure(self.frozen, other.frozen) and same(self.frozen, other.frozen)):
            raise ValueError("the posterior has other frozen weights than this model; use posterior.model")

    def started(self, params: Params, state: State) -> tuple[Params, State]:
        """Returns initial parameters and state without the frozen leaves; copies of `start`, where there is one.

        Args:
            params: all parameters.
            state: the state.

        Raises:
            ValueError: for a start of another model.
        """
        if self.frozen is not None:
            free = jax.tree.map(
                lambda frozen, leaf: leaf if frozen is None else None, self.frozen, params["network"], is_leaf=_is_none
            )
            params = {**params, "network": free}
        return (params, state) if self.start is None else _copy(self.start, (params, state))

    def __getattr__(self, name: str) -> Any:
        """Raises an AttributeError that names the attribute of networks which this target lacks."""
        if name in ("network", "likelihood", "outputs"):
            raise TypeError(
                f"{self.name} has no {name}, and a curvature of a network's outputs or a prediction needs one; take "
                "what works on any density, for instance laplace(curvature=Hessian()), von(), nuts()"
            )
        return getattr_or_substitute(self, name, _ELSEWHERE)


def weights_belief(posterior: Any) -> Any:
    """Returns a posterior's belief about the coordinates.

    Args:
        posterior: a posterior.
    """
    belief = posterior.belief
    return belief.factors["network"] if isinstance(belief, Product) else belief


class ConstrainedTarget(Target):
    r"""A target with constrained parameters θ = g(u), and unconstrained coordinates u.

    Attributes:
        constraints: g, by path.
    """

    constraints: Any

    @property
    def transforms(self) -> bool:
        return bool(self.constraints and self.constraints.table)

    def log_volume(self, params: Params) -> Array:
        return self.constraints.constrain(self.complete(params["network"]))[1]

    def rows(self, data: Data) -> Any:
        return self.read(data)

    def unconstrained(self, params: Params) -> Params:
        return {**params, "network": self.constraints.unconstrain(params["network"])}

    def of_theta(self) -> Any:
        """Returns the target whose coordinates are θ, for a posterior about θ."""
        frozen = None if self.frozen is None else self.constraints.constrain(self.frozen)[0]
        return replace(self, constraints=Constraints(), frozen=frozen, start=None)

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior about θ; one already about θ is returned unchanged.

        Args:
            posterior: the posterior of an algorithm.

        Examples:
            >>> import jax.numpy as jnp, lamu
            >>> density = lamu.LogDensity(lambda sigma: -sigma, 1.0, constraints={"*": "positive"})
            >>> posterior = lamu.fit(density, None, lamu.algorithms.map_estimate(), steps=20).posterior
            >>> round(float(density.constrained(posterior).mean["network"]), 3)  # the mode of log sigma
            1.0
        """
        model = posterior.model
        if not model.transforms:
            return posterior
        from lamu.families.location_scale import transformed  # imported here, as most targets have no constraint

        return replace(posterior, model=model.of_theta(), belief=transformed(posterior.belief, model.constraints))


def require_target(model: object) -> None:
    """Raises a TypeError for a value that is not a target, for instance a network without a likelihood.

    Args:
        model: the value.

    Raises:
        TypeError: for a value that is not a target.

    Examples:
        >>> import lamu
        >>> from lamu.target import require_target
        >>> require_target(lamu.networks.Linear())
        Traceback (most recent call last):
            ...
        TypeError: model=Linear(bias=True) is not a model; give lamu.Model(network, likelihood) or lamu.Graph
    """
    if not isinstance(model, Target):
        shown = textwrap.shorten(repr(model), 60, placeholder="…")
        raise TypeError(f"model={shown} is not a model; give lamu.Model(network, likelihood) or lamu.Graph")


def training_rows(model: Target, data: Data, stacklevel: int = 4) -> Arrays | Stream:
    """Returns data as training rows; warns of weights whose sum is far from the number of rows."""
    rows = model.read(data)
    if isinstance(rows, Arrays) and rows is not data:
        warn_of_scale(rows.weight, stacklevel=stacklevel)
    return rows


def same_structure(a: object, b: object) -> bool:
    """Whether two trees have the same type and structure."""
    return type(a) is type(b) and jax.tree.structure(a) == jax.tree.structure(b)


def same(a: object, b: object) -> bool:
    """Whether two trees of one structure have equal leaves; traced ones count as equal."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(isinstance(x, Tracer) or isinstance(y, Tracer) or np.array_equal(x, y) for x, y in pairs)


_FRESH = object()  # a leaf of a start that is None


def _copy(start: object, fresh: object) -> Any:
    """Returns a copy of the start in the dtypes of fresh parameters; a copy, since a run donates its state."""
    given_leaves = tree.by_path(jax.tree.map(lambda leaf: _FRESH if leaf is None else leaf, start, is_leaf=_is_none))

    def copy(path: str, leaf: Array) -> Array:
        if given_leaves.get(path) is _FRESH:
            return leaf
        if path not in given_leaves or jnp.shape(given_leaves[path]) != jnp.shape(leaf):
            shape = f"shape {jnp.shape(given_leaves[path])}" if path in given_leaves else "nothing"
            raise ValueError(
                f"the start has {shape} where the model has the leaf {path[2:]!r} of shape {jnp.shape(leaf)}; start "
                "from parameters of the same model and data of the same width"
            )
        return jnp.array(given_leaves[path], jnp.result_type(leaf), copy=True)

    return tree.map_with_path(copy, fresh)


def _is_none(leaf: object) -> bool:
    return leaf is None
