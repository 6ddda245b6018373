"""The protocol of algorithms and samplers: three functions, and the values passed between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax

from lamu.base.arguments import checking_arguments
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.record import record, static
from lamu.typing import Data, Numeric, Params, RandomKey, State, Trace

__all__ = [
    "Adapted",
    "Algorithm",
    "Choices",
    "Info",
    "Recipe",
    "Runnable",
    "Traits",
    "Wrapper",
    "recipe",
    "recipes_of",
    "require_algorithm",
    "require_part",
    "runnable",
]

F = TypeVar("F", bound=Callable[..., Any])


@record
class Choices:
    """An algorithm as a row of the rule's table: its four choices, and its departures.

    Attributes:
        family: the belief.
        expectation: the estimator of ∇_μ E_q.
        curvature: the approximation of the Hessian.
        geometry: the path along which the belief moves.
        departures: the differences from the rule; empty for an exact instance.

    Examples:
        >>> from lamu.protocol import Choices
        >>> Choices("Gaussian, fixed covariance", "delta", "none").departures
        ()
    """

    family: str = static()
    expectation: str = static()
    curvature: str = static()
    geometry: str = static(default="straight")
    departures: tuple[str, ...] = static(default=())


@record
class Traits:
    """Properties of an algorithm, by which the loop and the tests treat it.

    Attributes:
        batching: "mini" where a step may see any batch, "full" where it needs all the data, "once" where every row is
            seen exactly once.
        length: the number of steps, where the algorithm determines it; None where the caller does.
        warmup: the number of these steps before the first kept draw.
        thinning: the number of steps a kept draw; the loop keeps the last draw of each group of steps, and never stores
            the others.
        cycle: after the warm-up, the length of a cycle that begins with steps without kept draws; zero for none.
        exploration: the number of those steps.
        streams: the number of orders of the data that it steps on at once (an ensemble's members); a batch then has a
            leading axis of that length, where the loop shuffles.
        runs: the number of parallel runs (a sampler's chains, an ensemble's members). They are the leading axis of
            every leaf of the state except those in `shared`, and may be spread over devices.
        shared: the names of the state's parts that all runs share.
        linearises: whether its predictions need the network at the mean alone, for which the batch statistics of
            training are right.
        needs_data_pass: whether its posterior needs a pass over the data, which `preview` omits.
        messages: whether it takes exact messages of a target with conjugate parts (`lamu.conjugate_target`), so that in
            `blocks` it uses the beliefs of the other blocks.
        chooses_prior_scale: whether it chooses the scale of a `LearnedNormal` prior by itself.
        samples: the number of parameter draws that a step averages (`lamu.tree.each`), which may be spread over
            devices; None where it averages none.
        spread_remedy: how to change the belief's covariance where the loss does not determine it, so that a longer run
            would not mend it; empty where the loss does.

    Examples:
        >>> from lamu.protocol import Traits
        >>> Traits().batching
        'mini'
    """

    batching: str = static(default="mini")
    length: int | None = static(default=None)
    warmup: int = static(default=0)
    thinning: int = static(default=1)
    cycle: int = static(default=0)
    exploration: int = static(default=0)
    streams: int = static(default=1)
    runs: int = static(default=1)
    shared: tuple[str, ...] = static(default=())
    linearises: bool = static(default=False)
    needs_data_pass: bool = static(default=False)
    messages: bool = static(default=False)
    chooses_prior_scale: bool = static(default=False)
    samples: int | None = static(default=None)
    spread_remedy: str = static(default="")

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a mesh over which a run may be spread.

        Examples:
            >>> import lamu
            >>> lamu.algorithms.ivon().traits.axes
            ('data', 'model', 'samples')
        """
        one_state = self.runs == 1 and self.length is None  # no chains, which use the axis "runs"
        allowed = {"runs": self.runs > 1, "data": True, "samples": self.samples is not None, "model": one_state}
        return tuple(name for name in sorted(allowed) if allowed[name])


@record
class Info:
    r"""Diagnostics of a step.

    Attributes:
        loss: the estimate of \(E_q[\ell]/N\), in nats a row; without the prior's share where the prior enters
            the belief exactly.
        residual: the distance from a fixed point of the rule, in nats: the natural norm of the gradient,
            \(\sqrt{\kappa\, \bar g^\top S^{-1} \bar g}\); zero at a stationary belief.
        draw: the draw of a sampler's step, or None.

    Examples:
        >>> from lamu.protocol import Info
        >>> Info(loss=0.5).draw is None
        True
    """

    loss: Numeric
    residual: Numeric = 0.0
    draw: Params | None = None


@runtime_checkable
class Algorithm(Protocol):
    """Protocol of algorithms: pure functions `init`, `step` and `posterior`, and two properties.

    `step` may be jitted, scanned and mapped over keys. Keys are always arguments, never part of the algorithm.
    """

    @property
    def traits(self) -> Traits:
        """The properties of the algorithm."""
        ...

    @property
    def choices(self) -> Choices:
        """The algorithm's row of the table."""
        ...

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        """Returns the first state.

        Args:
            key: a random key.
            objective: the loss.
            batch: one example batch, for shapes.
        """
        ...

    def step(self, key: RandomKey, state: State, batch: Batch, objective: Objective) -> tuple[State, Info]:
        """Returns the next state, and diagnostics of the step."""
        ...

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        """Returns the posterior of a state.

        Args:
            key: a random key, the seed of the posterior's own predictions.
            state: the last state.
            objective: the loss.
            data: the data, a re-iterable of batches, for methods that need a pass over it.
            trace: the draws that the loop collected, leaves `[draws, ...]`, or None.
        """
        ...


class Runnable(Algorithm):
    """Base class of algorithms with the further methods that the loop calls before, during and after a run.

    A class that inherits from it has the defaults below. `runnable` adds them to one that does not.

    Examples:
        >>> import lamu
        >>> isinstance(lamu.algorithms.ivon(), lamu.protocol.Runnable)
        True
    """

    @property
    def traits(self) -> Traits:
        """The properties of the algorithm; minibatches, for as long as the caller says, by default."""
        return Traits()

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        """Returns a posterior without a pass over the data, for validation and where a later stage fails.

        Args:
            key: the seed of the predictions.
            state: a state.
            objective: the loss.
        """
        return self.posterior(key, state, objective, None, None)

    def check_memory(self, objective: Objective, shapes: Callable[[], Params]) -> None:
        """Raises a ValueError, before the first step, if the work after the steps would not fit into memory.

        Args:
            objective: the loss.
            shapes: a function that returns the shapes of the parameters.
        """
        del objective, shapes

    def explain_divergence(self, state: State) -> str | None:
        """Returns a reason for a loss that is not finite, in one sentence with the remedy; None where unknown.

        Args:
            state: the state, on the host.
        """
        del state
        return None


@record
class Adapted(Runnable):
    """Adapts an algorithm with the required methods alone: the others have their defaults.

    Attributes:
        base: the algorithm.

    Examples:
        >>> import lamu
        >>> from lamu.protocol import Adapted
        >>> Adapted(lamu.algorithms.sgd()).explain_divergence(None)
    """

    base: Algorithm

    @property
    def traits(self) -> Traits:
        return self.base.traits

    @property
    def choices(self) -> Choices:
        return self.base.choices

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        return self.base.init(key, objective, batch)

    def step(self, key: RandomKey, state: State, batch: Batch, objective: Objective) -> tuple[State, Info]:
        return self.base.step(key, state, batch, objective)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        return self.base.posterior(key, state, objective, data, trace)


@record
class Wrapper(Adapted):
    """Base class of algorithms that wrap another one: methods that are not overridden forward to `base`.

    Attributes:
        base: the wrapped algorithm.

    Examples:
        >>> import lamu
        >>> from lamu.protocol import Wrapper
        >>> Wrapper(lamu.algorithms.laplace()).traits.needs_data_pass
        True
    """

    def inner(self, state: State) -> State:
        """Returns the wrapped algorithm's part of a state; by default the whole state.

        Args:
            state: a state.
        """
        return state

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        return runnable(self.base).preview(key, self.inner(state), objective)

    def check_memory(self, objective: Objective, shapes: Callable[[], Params]) -> None:
        runnable(self.base).check_memory(objective, shapes)

    def explain_divergence(self, state: State) -> str | None:
        """Returns the explanation of the wrapped algorithm."""
        return runnable(self.base).explain_divergence(self.inner(state))


def runnable(algorithm: Algorithm) -> Runnable:
    """Returns an algorithm with defaults for the methods that it does not define.

    Args:
        algorithm: any algorithm.

    Examples:
        >>> import lamu
        >>> from lamu.protocol import runnable
        >>> runnable(lamu.algorithms.sgd()).traits.batching
        'mini'
    """
    return algorithm if isinstance(algorithm, Runnable) else Adapted(algorithm)


def require_algorithm(algorithm: object) -> None:
    """Raises a TypeError for a value that is not an algorithm, such as a name or a factory function.

    Args:
        algorithm: the value.

    Raises:
        TypeError: for a value that is not an algorithm.

    Examples:
        >>> import lamu
        >>> from lamu.protocol import require_algorithm
        >>> require_algorithm(lamu.algorithms.ivon)
        Traceback (most recent call last):
            ...
        TypeError: algorithm=ivon is a function; call it, ivon(), for an algorithm
    """
    if not isinstance(algorithm, Algorithm):
        raise _refusal(algorithm, "algorithm")


def _refusal(value: object, argument: str) -> TypeError:
    if callable(value) and hasattr(value, "__name__"):
        name = value.__name__
        return TypeError(f"{argument}={name} is a function; call it, {name}(), for an algorithm")
    return TypeError(f"{argument}={value!r} is not an algorithm; give for instance lamu.algorithms.adam(1e-2)")


def require_part(algorithm: object, argument: str) -> Algorithm:
    """Checks that an algorithm can run inside another one, and returns it.

    Args:
        algorithm: the value.
        argument: the name of the argument, for the error.

    Raises:
        TypeError: for a value that is not an algorithm, or an algorithm that is not a pytree.

    Examples:
        >>> from lamu.protocol import require_part
        >>> require_part("adam", "optimizer")
        Traceback (most recent call last):
            ...
        TypeError: optimizer='adam' is not an algorithm; give for instance lamu.algorithms.adam(1e-2)
    """
    if not isinstance(algorithm, Algorithm):
        raise _refusal(algorithm, argument)
    if jax.tree_util.all_leaves([algorithm]):
        raise TypeError(
            f"{argument}={algorithm!r} is not a pytree and cannot be a part of another; decorate its class with "
            "lamu.record.record"
        )
    return algorithm


@record
class Recipe:
    """A named algorithm, with its factory and its source.

    Attributes:
        name: the public name.
        factory: the function that makes it, with defaults for every argument.
        source: paper and equation.
        row: a function that returns the choices, for a factory that needs an optional package; None where the algorithm
            itself has them.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.registry()["sgd"].name
        'sgd'
    """

    name: str = static()
    factory: Callable[..., Algorithm] = static()
    source: str = static()
    row: Callable[[], Choices] | None = static(default=None)

    @property
    def choices(self) -> Choices:
        """The choices of the algorithm with default arguments."""
        return self.factory().choices if self.row is None else self.row()

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes over which the algorithm with default arguments may be spread."""
        try:
            axes = self.factory().traits.axes
        except ImportError:  # an extra that is not installed
            return ()
        one_draw = "samples" not in inspect.signature(self.factory).parameters  # and no option for more
        return tuple(axis for axis in axes if axis != "samples" or not one_draw)


_RECIPES: dict[Any, Recipe] = {}


def recipe(source: str, row: Callable[[], Choices] | None = None) -> Callable[[F], F]:
    """Returns a decorator that registers an algorithm's factory, for the documents, tests and commands.

    Args:
        source: paper and equation.
        row: as in `Recipe`.

    Examples:
        >>> import lamu
        >>> from lamu.protocol import recipe
        >>> @recipe("Nobody 2020, equation 1")
        ... def mine():
        ...     return lamu.algorithms.sgd()
        >>> mine().traits.batching
        'mini'
    """

    def register(factory: F) -> F:
        factory = checking_arguments(factory)
        _RECIPES[factory] = Recipe(getattr(factory, "__name__", ""), factory, source, row)
        return factory

    return register


def recipes_of(face: ModuleType, first: Sequence[str] = ()) -> dict[str, Recipe]:
    """Returns the recipes among the public names of a module: first those of the files in `first`, then by line."""
    public = [value for name in face.__all__ if callable(value := getattr(face, name))]
    recipes = [_RECIPES[value] for value in public if value in _RECIPES]

    def place(row: Recipe) -> tuple[int, str, int]:
        module = row.factory.__module__
        kind = module.removeprefix(f"{face.__name__}.").split(".")[0]
        return (
            first.index(kind) if kind in first else len(first),
            module,
            inspect.unwrap(row.factory).__code__.co_firstlineno,
        )

    return {row.name: row for row in sorted(recipes, key=place)}
