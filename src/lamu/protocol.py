"""The protocol that every algorithm and sampler keeps: three functions, and the values that pass between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax

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
    """An algorithm as a row of the rule's table: its four choices, and what it adds.

    Attributes:
        family: the belief.
        expectation: how ∇_μ E_q is taken.
        curvature: what stands for the Hessian.
        geometry: along which path the belief moves.
        departures: what the algorithm adds to the rule, or leaves out; empty for an exact instance.

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
    """What an algorithm needs and offers; its laws and its loop are chosen by these.

    Attributes:
        batching: "mini" where a step may see any batch, "full" where it needs all the data, "once" where every row is
            seen exactly once.
        length: how many steps it takes, where that is the algorithm's own; None where the caller says.
        warmup: how many of its own steps come before the first draw that counts.
        thinning: how many steps a kept draw takes; the loop keeps the last of every so many, and never holds the
            others.
        cycle: after the warm-up, the length of a cycle that begins with steps of which no draw is kept; zero for none.
        exploration: how many steps those are.
        streams: how many orders of the data it steps on at once (an ensemble's members); a batch then has a leading
            axis of that length, where the loop shuffles.
        runs: how many runs go side by side (a sampler's chains, an ensemble's members). They are the leading axis of
            every leaf of the state but those in `shared`, and may be spread over devices.
        shared: the names of the state's parts that all runs have in common.
        linearises: whether its predictions need the network at the mean alone, whose batch statistics are its own.
        needs_data_pass: whether its posterior needs a pass over the data, which `preview` does without.
        messages: whether it takes exact messages of a target with conjugate parts (`lamu.conjugate_target`), so that in
            `blocks` it sees what the others believe.
        chooses_prior_scale: whether it chooses the scale of a `LearnedNormal` prior by itself.
        samples: how many draws of its parameters a step averages (`lamu.tree.each`), which may be spread over devices;
            None where it averages none.

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

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a mesh over which a run may be spread.

        Examples:
            >>> import lamu
            >>> lamu.algorithms.ivon().traits.axes
            ('data', 'model', 'samples')
        """
        one_state = self.runs == 1 and self.length is None  # no chains, which the axis "runs" spreads
        allowed = {"runs": self.runs > 1, "data": True, "samples": self.samples is not None, "model": one_state}
        return tuple(name for name in sorted(allowed) if allowed[name])


@record
class Info:
    r"""What a person wants to see of a step.

    Attributes:
        loss: the estimate of \(E_q[\ell]/N\), in nats a row; without the prior's share where the prior enters
            the belief exactly.
        residual: how far the step is from a fixed point of the rule, in nats: the natural norm of the gradient,
            \(\sqrt{\kappa\, \bar g^\top S^{-1} \bar g}\); zero at a stationary belief.
        draw: what a sampler's step yields, or None.

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
    """An algorithm: `init`, `step`, `posterior`, all pure. Any class with these five members is one.

    `step` may be jitted, scanned and mapped over keys. Keys are always arguments, never kept.
    """

    @property
    def traits(self) -> Traits:
        """What it needs and offers."""
        ...

    @property
    def choices(self) -> Choices:
        """Its row of the table."""
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
        """Returns the next state, and what there is to see."""
        ...

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        """Returns the posterior that the state stands for.

        Args:
            key: a random key, the seed of the posterior's own predictions.
            state: the last state.
            objective: the loss.
            data: the data, a re-iterable of batches, for methods that need a pass over it.
            trace: the draws that the loop collected, leaves `[draws, ...]`, or None.
        """
        ...


class Runnable(Algorithm):
    """All that the loop calls: an algorithm, and what it says of itself before, during and after a run.

    A class that inherits from it has the defaults below. For one that does not, `runnable` answers with them.

    Examples:
        >>> import lamu
        >>> isinstance(lamu.algorithms.ivon(), lamu.protocol.Runnable)
        True
    """

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        """Returns what a state predicts without a pass over the data: at validations, and where a later stage fails.

        Args:
            key: the seed of the predictions.
            state: a state.
            objective: the loss.
        """
        return self.posterior(key, state, objective, None, None)

    def check_memory(self, objective: Objective, params: Params) -> None:
        """Raises a ValueError for what comes after the steps and cannot fit into memory, before any of them.

        Args:
            objective: the loss.
            params: the shapes of the parameters.
        """
        del objective, params

    def explain_divergence(self, state: State) -> str | None:
        """Returns why the loss may have ceased to be finite, in one sentence with the remedy; None for no idea.

        Args:
            state: the state, on the host.
        """
        del state
        return None


@record
class Adapted(Runnable):
    """An algorithm of the required methods alone, with the defaults of all others.

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
        """Returns the algorithm's first state."""
        return self.base.init(key, objective, batch)

    def step(self, key: RandomKey, state: State, batch: Batch, objective: Objective) -> tuple[State, Info]:
        return self.base.step(key, state, batch, objective)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        return self.base.posterior(key, state, objective, data, trace)


@record
class Wrapper(Adapted):
    """Base class of algorithms around another one: every method that is not overridden is that of `base`.

    Attributes:
        base: the other algorithm.

    Examples:
        >>> import lamu
        >>> from lamu.protocol import Wrapper
        >>> Wrapper(lamu.algorithms.laplace()).traits.needs_data_pass
        True
    """

    def inner(self, state: State) -> State:
        """Returns the other's part of a state; all of it, unless overridden.

        Args:
            state: a state.
        """
        return state

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        return runnable(self.base).preview(key, self.inner(state), objective)

    def check_memory(self, objective: Objective, params: Params) -> None:
        runnable(self.base).check_memory(objective, params)

    def explain_divergence(self, state: State) -> str | None:
        """Returns the other's explanation."""
        return runnable(self.base).explain_divergence(self.inner(state))


def runnable(algorithm: Algorithm) -> Runnable:
    """Returns an algorithm with the defaults of what it does not declare.

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
    """Refuses what is no algorithm: its name, or the function that makes it.

    Args:
        algorithm: what was given.

    Raises:
        TypeError: for something that is no algorithm.

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


def _refusal(given: object, argument: str) -> TypeError:
    if callable(given) and hasattr(given, "__name__"):
        name = given.__name__
        return TypeError(f"{argument}={name} is a function; call it, {name}(), for an algorithm")
    return TypeError(f"{argument}={given!r} is no algorithm; give for instance lamu.algorithms.adam(1e-2)")


def require_part(algorithm: object, argument: str) -> Algorithm:
    """Returns an algorithm that is to run inside another one, after a check that it can.

    Args:
        algorithm: what was given.
        argument: the name of the argument, for the error.

    Raises:
        TypeError: for something that is no algorithm, or one that is no pytree.

    Examples:
        >>> from lamu.protocol import require_part
        >>> require_part("adam", "optimizer")
        Traceback (most recent call last):
            ...
        TypeError: optimizer='adam' is no algorithm; give for instance lamu.algorithms.adam(1e-2)
    """
    if not isinstance(algorithm, Algorithm):
        raise _refusal(algorithm, argument)
    if jax.tree_util.all_leaves([algorithm]):
        raise TypeError(
            f"{argument}={algorithm!r} is no pytree and cannot be a part of another; decorate its class with "
            "lamu.record.record"
        )
    return algorithm


@record
class Recipe:
    """A named algorithm: how it is made, and where it comes from.

    Attributes:
        name: the public name.
        factory: the function that makes it, with defaults for every argument.
        source: paper and equation.
        row: a function that returns the choices, for a factory that an extra which is not installed may keep from
            running; None where the algorithm tells them.

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
        """The choices of the algorithm as it is made without arguments."""
        return self.factory().choices if self.row is None else self.row()

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a mesh over which the algorithm as it is made without arguments may be spread."""
        try:
            axes = self.factory().traits.axes
        except ImportError:  # an extra that is not installed
            return ()
        one_draw = "samples" not in inspect.signature(self.factory).parameters  # and no option for more
        return tuple(axis for axis in axes if axis != "samples" or not one_draw)


_RECIPES: dict[Any, Recipe] = {}


def recipe(source: str, row: Callable[[], Choices] | None = None) -> Callable[[F], F]:
    """Returns a decorator that registers a function which makes an algorithm: documents, tests and commands read it.

    Args:
        source: paper and equation.
        row: as of `Recipe`.

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
        _RECIPES[factory] = Recipe(getattr(factory, "__name__", ""), factory, source, row)
        return factory

    return register


def recipes_of(face: ModuleType, first: Sequence[str] = ()) -> dict[str, Recipe]:
    """Returns the recipes among the names of a face: the files or folders named first, then by file and line."""
    public = [value for name in face.__all__ if callable(value := getattr(face, name))]
    found = [_RECIPES[value] for value in public if value in _RECIPES]

    def place(row: Recipe) -> tuple[int, str, int]:
        module = row.factory.__module__
        kind = module.removeprefix(f"{face.__name__}.").split(".")[0]
        return (
            first.index(kind) if kind in first else len(first),
            module,
            inspect.unwrap(row.factory).__code__.co_firstlineno,
        )

    return {row.name: row for row in sorted(found, key=place)}
