r"""What is learned: parameters, the likelihood of each row given them, and their prior.

\[ \log p(\theta \mid D) = \sum_i \log p(\text{row}_i \mid \theta) + \log p(\theta) + \text{const} \]

A network with a likelihood and a prior (`lamu.Model`), any density (`lamu.LogDensity`) and the parameters of a
conjugate observation (`lamu.ConjugateModel`) are targets. The objective and every algorithm that needs no more than
this work on all of them.
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
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.data.wording import elsewhere
from lamu.families import PartialBelief, Product
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
    r"""What an objective is about.

    Parameters are a dictionary of two trees:

    * `params["network"]`: the coordinates that a belief is about, a network's weights or a density's θ. Their prior is
      `prior`.
    * `params["likelihood"]`: dispersions, which follow as a point; an empty dictionary where there are none. Their
      prior is a part of the target (`dispersion_log_prior`).

    A class of one's own inherits from this one, is a `lamu.record.record`, and defines the five abstract methods and
    the attributes below.

    Attributes:
        prior: the prior of the coordinates, frozen ones included.
        frozen: coordinates held at given values (a tree with None where a leaf is free), or None.
        start: parameters and state that every run starts from, or None for those of `init`.

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

    # What a target must define.

    @abstractmethod
    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, State]:
        """Returns the first free parameters, with None at frozen leaves, and the state beside them (or `{}`).

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
            key: for what is random in a row's density: layers in training; in evaluation the draws of a target that
                estimates the density, such as a bound over latent variables. None where a fixed function is asked for.
            train: training mode.
        """

    @abstractmethod
    def read(self, data: Data) -> Arrays | Stream:
        """Returns the data, as `lamu.fit` was given them, as rows; checked before any compute.

        Raises:
            TypeError: for data of another kind.
            ValueError: for rows that this target cannot have.
        """

    @abstractmethod
    def rows(self, data: Data) -> Arrays:
        """Returns data as rows in memory to judge by: validation rows, or those to take out of a posterior."""

    @abstractmethod
    def inputs(self, x: Inputs) -> Rows:
        """Returns where predictions are asked for, as rows of inputs, checked.

        Raises:
            TypeError: where there is nothing to predict.
            ValueError: for inputs that cannot be read.
        """

    # What follows, unless a target says otherwise.

    def named(self: T, data: Data) -> T:
        """Returns the target with the names of its inputs, where the data bring some."""
        del data
        return self

    @property
    def name(self) -> str:
        """What the target is called in messages."""
        return type(self).__name__

    @property
    def support(self) -> Support | None:
        """The values of what is predicted; None where nothing is."""
        return None

    @property
    def task(self) -> str:
        """The kind of target: "regression", "binary", "classes", or "density" where nothing is predicted."""
        return "density" if self.support is None else self.support.task

    @property
    def has_rows(self) -> bool:
        """Whether rows carry the information, so that their Fisher information and their number mean something."""
        return True

    @property
    def has_outputs(self) -> bool:
        """Whether a row's density is that of targets given outputs f (`outputs`, `likelihood`)."""
        return False

    @property
    def transforms(self) -> bool:
        """Whether coordinates u stand for parameters θ = g(u), so that `log_volume` counts."""
        return False

    @property
    def identified(self) -> bool:
        """Whether coordinates can be compared between runs: not where hidden units may change places."""
        return True

    @property
    def predicts_missing(self) -> bool:
        """Whether a prediction fills in what is missing in rows (`completed`), in the place of targets at inputs."""
        return False

    @property
    def draws_latents(self) -> bool:
        """Whether the density of a row is estimated by draws of latent variables."""
        return False

    @property
    def simulates(self) -> bool:
        """Whether predictions are draws of a program at its arguments (`lamu.from_numpyro`)."""
        return False

    @property
    def quadratic(self) -> bool:
        """Whether a row's log density is quadratic in a network's outputs for given dispersions."""
        return False

    @property
    def trained(self) -> bool:
        """Whether runs start from parameters that have been trained before."""
        return self.start is not None

    @property
    def has_classes(self) -> bool:
        """Whether targets are classes, whose shares are kept where rows are split."""
        return False

    def scan_friendly(self, batch: Batch) -> bool:
        """Whether a compiled loop over steps is no slower than steps one by one.

        Args:
            batch: some rows, for shapes.
        """
        del batch
        return True

    def log_prior(self, params: Params) -> Array:
        """Returns log p(θ) in nats: the prior of the free coordinates and the dispersions' own."""
        return self.free_prior.log_prob(params["network"]) + self.dispersion_log_prior(params["likelihood"])

    @property
    def free_prior(self) -> Prior:
        """The prior of the free coordinates given the frozen ones, up to a constant."""
        return self.prior if self.frozen is None else self.prior.given(self.frozen)

    def tempered(self: T, temperature: Any) -> T:
        r"""Returns the target whose \(\log p / T\) is that of rows at a temperature; itself unless rows draw latents.

        A row whose value is a bound has an entropy in it, which no temperature divides.

        Args:
            temperature: T.
        """
        del temperature
        return self

    def dispersion_log_prior(self, dispersions: Params) -> Array:
        """Returns the log density of the dispersions' own prior, a scalar in nats."""
        del dispersions
        return jnp.zeros(())

    def dispersion_information(self, dispersions: Params) -> Params:
        """Returns the Fisher information of a row about each dispersion, a tree like them."""
        return jax.tree.map(jnp.ones_like, dispersions)

    def log_volume(self, params: Params) -> Array:
        r"""Returns \(\log |\partial g / \partial u|\) of coordinates u for θ = g(u), which no temperature divides.

        Args:
            params: the free parameters.
        """
        del params
        return jnp.zeros(())

    def completed(self, belief: Any, rows: Any, samples: int, key: RandomKey) -> Any:
        """Returns means and variances of rows given what they hold; None where they have no closed forms.

        Args:
            belief: q.
            rows: the rows, some of them with missing entries.
            samples: draws of a belief without closed forms.
            key: for those.

        Raises:
            TypeError: where rows have no missing entries.
        """
        del belief, rows, samples, key
        raise self._without_rows("what is missing in a row")

    def completed_by_draws(self, belief: object, rows: object, samples: int, key: RandomKey) -> Any:
        """Returns what is missing in rows by draws, where a target has it so (`predicts_missing`), or None.

        Args:
            belief: about the parameters.
            rows: the rows, as `inputs` returns them.
            samples: how many draws.
            key: for these.
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
            key: for those.

        Raises:
            TypeError: where the density is that of targets at inputs.
        """
        del belief, batch, samples, key
        raise self._without_rows("log_prob")

    def _without_rows(self, asked: str) -> TypeError:
        return TypeError(
            f"{asked} is about the rows of a lamu.Graph, and this is the posterior of {self.name}; use predict(x)"
        )

    def unconstrained(self, params: Params) -> Params:
        """Returns parameters as people write them as the coordinates that algorithms see."""
        return params

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior about the coordinates as one about the parameters as people write them."""
        return posterior

    @property
    def rows_for_warnings(self) -> int:
        """How many rows `warnings` looks at, of which a fit keeps as many; none by default."""
        return 0

    def warnings(self, belief: object, temperature: Number = 1.0, rows: Batch | None = None) -> tuple[str, ...]:
        """Returns what a person should know of a belief about this target, in words; nothing by default.

        Args:
            belief: q.
            temperature: T, at which it was made.
            rows: some of the rows that it has learned from; None where there are none.
        """
        del belief, temperature, rows
        return ()

    def unscaled_inputs(self, rows: Batch) -> str:
        """Returns a clause about inputs that no network was told the scale of, and the remedy; empty by default."""
        del rows
        return ""

    def complete(self, coordinates: Params) -> Params:
        """Returns all coordinates, the frozen ones put beside the free ones."""
        if self.frozen is None:
            return coordinates
        return tree.merged(coordinates, self.frozen)

    def freeze(self: T, params: Params, *patterns: str) -> T:
        """Returns the target with the coordinates whose path matches a pattern held at the given values.

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
        """Returns the target in which coordinates are held, and dispersions too.

        Args:
            frozen: all coordinates, with None where one is free.
            dispersions: the dispersions that are known; empty where they stay free.
            beliefs: what is believed about the coordinates that are held; a target that knows an expectation under
                them takes it in the place of the values.

        Raises:
            TypeError: for dispersions of a target that has no likelihood to hold them.
        """
        del beliefs
        if jax.tree.leaves(dispersions):
            raise TypeError(f"{self.name} has no dispersions that could be held")
        return replace(self, frozen=frozen)

    def starting_at(self: T, params: Params, network_state: State = None) -> T:
        """Returns the target whose runs start from given parameters in the place of those of `init`.

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

    def with_prior(self: T, posterior: Any, temperature: Number | None = None) -> T:
        r"""Returns the target whose prior is what a posterior believes: yesterday's posterior is today's prior.

        \[ p(\theta \mid D_1, D_2) \propto p(D_2 \mid \theta)\, p(\theta \mid D_1) \]

        A Gaussian belief about the weights, one about binary weights, or that of a conjugate model becomes the prior as
        it is. Runs start at its mean, with the posterior's network state; learned dispersions, of which it knows a
        point, start there. The scaling of features and targets (`Model.standardised`) is part of what the weights mean,
        so this target must have the posterior's: `posterior.model.with_prior(posterior)` always has.

        Args:
            posterior: a `lamu.Posterior` of the same target, on other data.
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
        if isinstance(belief, PartialBelief):  # binary weights beside a point, which keeps the prior that it has
            belief, rest = belief.belief, self.prior
        prior = Belief(tempered(belief, posterior.temperature if temperature is None else temperature), rest)
        self.require_same(posterior.model)
        start = (self.unconstrained(posterior.mean), posterior.network_state)
        return replace(self.under_prior(prior), start=start)

    def under_prior(self: T, prior: Any) -> T:
        """Returns the target with another prior of the parameters.

        Args:
            prior: of the same parameters.
        """
        return replace(self, prior=prior)

    def require_same(self, other: Target) -> None:
        """Raises a ValueError unless parameters mean the same in both targets.

        Args:
            other: another target.
        """
        if type(self) is not type(other):
            raise ValueError(f"the posterior is about {other.name}, and this is {self.name}; use posterior.model")
        if not (same_structure(self.frozen, other.frozen) and same(self.frozen, other.frozen)):
            raise ValueError("the posterior has other frozen weights than this model; use posterior.model")

    def started(self, params: Params, state: State) -> tuple[Params, State]:
        """Returns fresh parameters and state without the frozen leaves; copies of `start`, where there is one.

        Args:
            params: all parameters.
            state: the state.

        Raises:
            ValueError: for a start of another model.
        """
        if self.frozen is not None:
            free = jax.tree.map(
                lambda held, leaf: leaf if held is None else None, self.frozen, params["network"], is_leaf=_is_none
            )
            params = {**params, "network": free}
        return (params, state) if self.start is None else _copy(self.start, (params, state))

    def __getattr__(self, name: str) -> Any:
        """Says what a target without a network lacks, where an algorithm about networks asks for it."""
        if name in ("network", "likelihood", "outputs"):
            raise TypeError(
                f"{self.name} has no {name}, and a curvature of a network's outputs or a prediction needs one; take "
                "what works on any density, for instance laplace(curvature=Hessian()), von(), nuts()"
            )
        return elsewhere(self, name, _ELSEWHERE)


def weights_belief(posterior: Any) -> Any:
    """Returns a posterior's belief about the coordinates.

    Args:
        posterior: a posterior.
    """
    belief = posterior.belief
    return belief.factors["network"] if isinstance(belief, Product) else belief


class ConstrainedTarget(Target):
    r"""A target whose parameters θ = g(u) come of coordinates u that may be any real numbers.

    Attributes:
        constraints: g, by path.
    """

    constraints: Any

    @property
    def transforms(self) -> bool:
        """Whether some parameter is constrained."""
        return bool(self.constraints and self.constraints.table)

    def log_volume(self, params: Params) -> Array:
        return self.constraints.constrain(self.complete(params["network"]))[1]

    def rows(self, data: Data) -> Any:
        return self.read(data)

    def unconstrained(self, params: Params) -> Params:
        return {**params, "network": self.constraints.unconstrain(params["network"])}

    def of_theta(self) -> Any:
        """Returns the target whose coordinates are θ itself, for a posterior about θ."""
        frozen = None if self.frozen is None else self.constraints.constrain(self.frozen)[0]
        return replace(self, constraints=Constraints(), frozen=frozen, start=None)

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior about θ; one that was mapped before comes back as it is.

        Args:
            posterior: what an algorithm made.

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
        from lamu.families.location_scale import transformed  # here: most targets have no constraint

        return replace(posterior, model=model.of_theta(), belief=transformed(posterior.belief, model.constraints))


def require_target(model: object) -> None:
    """Refuses what is nothing to learn, a network without a likelihood for instance.

    Args:
        model: what was given.

    Raises:
        TypeError: for something that is no target.

    Examples:
        >>> import lamu
        >>> from lamu.target import require_target
        >>> require_target(lamu.networks.Linear())
        Traceback (most recent call last):
            ...
        TypeError: model=Linear(bias=True) is no model; give lamu.Model(network, likelihood) or lamu.Graph
    """
    if not isinstance(model, Target):
        shown = textwrap.shorten(repr(model), 60, placeholder="…")
        raise TypeError(f"model={shown} is no model; give lamu.Model(network, likelihood) or lamu.Graph")


def same_structure(a: object, b: object) -> bool:
    """Whether two trees are of one type and structure."""
    return type(a) is type(b) and jax.tree.structure(a) == jax.tree.structure(b)


def same(a: object, b: object) -> bool:
    """Whether two trees of one structure hold the same numbers, as far as those are known."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(isinstance(x, Tracer) or isinstance(y, Tracer) or np.array_equal(x, y) for x, y in pairs)


def _copy(start: object, fresh: object) -> Any:
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


def _is_none(leaf: object) -> bool:
    return leaf is None
