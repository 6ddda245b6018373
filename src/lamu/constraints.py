r"""Constrained parameters as transforms of real ones: \(\theta = g(u)\), leaf by leaf, with the Jacobian of g."""

# The density of u is \(p_u(u) = p(g(u))\, |\det \partial g / \partial u|\). The transforms are NumPyro's (exp for
# positive numbers, stick breaking for a simplex, …); a leaf without a pattern is real, and not transformed.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.record import record, static
from lamu.typing import Array, Belief, Params, RandomKey

__all__ = ["Constraints", "NumpyroConstraint", "TransformedBelief"]

# The names of constraints, and NumPyro's attributes.
_NAMES = {name: name for name in ("real", "positive", "unit_interval", "simplex", "positive_definite")}
_NAMES["ordered"] = "ordered_vector"
_CENTRE = 1024  # draws for the mean of a transformed leaf: accurate to a thirtieth of a standard deviation


@record
class Constraints:
    """Constraints of leaves, by path pattern."""

    # Pairs of a path pattern and a constraint; the first pattern that matches a leaf counts.
    table: tuple[tuple[str, Any], ...] = static(default=())

    @classmethod
    def of(cls, table: object, theta: Params) -> Constraints:
        """Returns checked constraints."""
        if table is not None and not isinstance(table, Mapping):
            raise TypeError(f'constraints={table!r} is not a mapping; give for instance {{"sigma": "positive"}}')
        table = dict(table or {})
        named: Params = theta if not jax.tree_util.all_leaves([theta]) else {"*": theta}
        tree.require_matches(table, named)
        constraints = cls(tuple((pattern, _frozen(pattern, constraint)) for pattern, constraint in table.items()))
        tree.map_with_path(lambda path, leaf: constraints._require(path, leaf), theta)
        return constraints

    def constrain(self, real: Params) -> tuple[Params, Array]:
        r"""Returns \(g(u)\), and \(\log |\det \partial g / \partial u|\) in nats, a scalar."""
        if not self.table:
            return real, jnp.zeros((), jnp.result_type(float))
        volumes: list[Array] = []

        def leaf(path: str, u: Array) -> Array:
            transform = self._transform(path)
            if transform is None:
                return u
            with lenient():
                theta = transform(u)
                volumes.append(jnp.sum(transform.log_abs_det_jacobian(u, theta)).astype(jnp.result_type(u)))
            return jnp.asarray(theta, jnp.result_type(u))

        theta = tree.map_with_path(leaf, real)
        wide = jnp.result_type(float)
        return theta, sum((volume.astype(wide) for volume in volumes), jnp.zeros((), wide))

    def unconstrain(self, theta: Params) -> Params:
        r"""Returns \(u = g^{-1}(\theta)\)."""

        def leaf(path: str, value: Params) -> Array:
            transform = self._transform(path)
            if transform is None:
                return jnp.asarray(value)
            with lenient():
                return jnp.asarray(transform.inv(jnp.asarray(value)), jnp.result_type(value))

        return tree.map_with_path(leaf, theta)

    def support(self, path: str) -> Any:
        """Returns NumPyro's constraint of a leaf."""
        from numpyro.distributions import constraints

        constraint = self._constraint(path)
        return constraints.real if constraint is None else constraint

    def _constraint(self, path: str) -> Any:
        return next((_read_constraint(stored) for pattern, stored in self.table if tree.matches(path, pattern)), None)

    def _transform(self, path: str) -> Any:
        constraint = self._constraint(path)
        if constraint is None:
            return None
        from numpyro.distributions.transforms import biject_to

        return biject_to(constraint)

    def _require(self, path: str, value: Params) -> None:
        constraint = self._constraint(path)
        if constraint is None or isinstance(value, Tracer):
            return
        with lenient():
            valid = np.asarray(constraint(jnp.asarray(value)))
        if not valid.all():
            raise ValueError(
                f"init has {np.asarray(value).tolist()!r} at {path or 'its only leaf'!r}, which is not "
                f"{_words(constraint)}; runs start from init, so give values that satisfy their constraints"
            )


@record
class TransformedBelief:
    r"""The belief about \(\theta = g(u)\) for a belief about u, with the Jacobian of g in its density."""

    base: Belief  # the belief about u
    constraints: Constraints  # g
    # The name of the part of the parameters that is transformed, or None for all of them.
    part: str | None = static(default=None)

    @property
    def kind(self) -> str:
        """That of the belief about u."""
        return self.base.kind

    @property
    def mean(self) -> Params:
        r"""E_q[θ]: that of u where a leaf is not transformed, else the average of 1,024 draws with a fixed key."""
        centre = self.base.mean
        if self.kind == "degenerate":
            return self._image(centre)
        return self._leafwise(lambda draws: jnp.mean(draws, axis=0), centre)

    @property
    def std(self) -> Params:
        """The standard deviation of each number of θ, from the draws of the mean."""
        centre = self.mean  # an AttributeError where there are several modes
        if self.kind == "degenerate":
            return tree.zeros_like(centre)
        return self._leafwise(lambda draws: jnp.std(draws, axis=0), self.base.std)

    def interval(self, level: float = 0.9) -> tuple[Params, Params]:
        """Returns the ends of the central interval of each number of θ, from the draws of the mean."""
        centre = self.mean
        if self.kind == "degenerate":
            return centre, centre
        low, high = self.base.interval(level)
        end = lambda probability: lambda draws: jnp.quantile(draws, probability, axis=0)
        return self._leafwise(end((1.0 - level) / 2.0), low), self._leafwise(end((1.0 + level) / 2.0), high)

    def _leafwise(self, function: Callable[[Array], Array], base_value: Params) -> Params:
        """Returns a function of the draws of every transformed leaf, and `base_value` for the other leaves."""
        draws = self._image(jax.vmap(self.base.sample)(jax.random.split(jax.random.key(0), _CENTRE)))
        average = jax.tree.map(function, draws)
        sampled, real = (part_of if self.part is None else part_of[self.part] for part_of in (average, base_value))
        exact = dict(zip(tree.paths(real), jax.tree.leaves(real), strict=True))
        chosen = tree.map_with_path(
            lambda path, leaf: exact[path] if self.constraints._transform(path) is None else leaf, sampled
        )
        return chosen if self.part is None else {**base_value, self.part: chosen}

    def sample(self, key: RandomKey) -> Params:
        """Returns a transformed draw."""
        return self._image(self.base.sample(key))

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns the transforms of the points that represent the belief about u."""
        return self._image(self.base.draws(key, count))

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats, with the Jacobian."""
        inside = theta if self.part is None else theta[self.part]
        real = self.constraints.unconstrain(inside)
        coordinates = real if self.part is None else {**theta, self.part: real}
        log_density = self.base.log_prob(coordinates)
        return log_density - self.constraints.constrain(real)[1].astype(log_density.dtype)

    def _image(self, real: Params) -> Params:
        # Leading axes (of draws) are allowed: every transform acts on the last axes of a leaf.
        if self.part is None:
            return self.constraints.constrain(real)[0]
        return {**real, self.part: self.constraints.constrain(real[self.part])[0]}


@record
class NumpyroConstraint:
    """A constraint of NumPyro's module as its class name and attributes, so that it can be saved."""

    name: str = static()
    # Numbers, some of which may be infinite, and inner constraints, by attribute.
    holds: tuple[tuple[str, Any], ...] = field(default=(), metadata={"static": True, "measured": True})

    @property
    def constraint(self) -> Any:
        """The constraint of NumPyro."""
        from numpyro.distributions import constraints

        kind = getattr(constraints, self.name, None)
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise ValueError(f"NumPyro has no constraint {self.name!r}")
        names = tuple(name for name, _ in self.holds)
        return kind.tree_unflatten((names, {}), tuple(_decoded_attribute(value) for _, value in self.holds))

    def __repr__(self) -> str:
        return repr(self.constraint)


def _encoded_attribute(value: Any) -> Any:
    """Returns an attribute of a NumPyro constraint, a number or a constraint, in a hashable form that can be saved."""
    if isinstance(value, str | bool | int | float | tuple):
        return value
    if callable(value):
        return _foreign(value)
    array = np.asarray(value)
    return ("array", str(array.dtype), array.shape, tuple(array.ravel().tolist()))


def _decoded_attribute(value: Any) -> Any:
    if isinstance(value, NumpyroConstraint | _Foreign):
        return value.constraint
    if isinstance(value, tuple) and value[:1] == ("array",):
        _, dtype, shape, numbers = value
        return np.asarray(numbers, dtype).reshape(shape)
    return value


def _foreign(constraint: Any) -> Any:
    """Returns a constraint with NumPyro's interface as a static part of a record."""
    from numpyro.distributions import constraints

    kind = type(constraint)
    if getattr(constraints, kind.__name__, None) is not kind or tree.has_tracers(constraint):
        return _Foreign(constraint)
    values, (names, more) = constraint.tree_flatten()
    pairs = (*zip(names, values, strict=True), *sorted(more.items()))
    return NumpyroConstraint(kind.__name__, tuple((name, _encoded_attribute(value)) for name, value in pairs))


class _Foreign:
    """A user's own constraint as a static part of a record: it must be hashable, and cannot be saved."""

    def __init__(self, constraint: object) -> None:
        self.constraint = constraint

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Foreign)
            and type(self.constraint) is type(other.constraint)
            and repr(self) == repr(other)
        )

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return repr(self.constraint)


def _frozen(pattern: str, constraint: object) -> Any:
    if isinstance(constraint, str):
        if constraint not in _NAMES:
            raise ValueError(
                f"the constraint {constraint!r} of {pattern!r} is not known; there are {', '.join(_NAMES)}, "
                "(lower, upper), and NumPyro's constraints"
            )
        return constraint
    if isinstance(constraint, tuple | list) and len(constraint) == 2:
        lower, upper = (float(end) for end in constraint)
        if not lower < upper:
            raise ValueError(f"the interval {tuple(constraint)!r} of {pattern!r} is empty; give (lower, upper)")
        return lower, upper
    if callable(constraint) and hasattr(constraint, "event_dim"):
        return _foreign(constraint)
    raise TypeError(
        f"the constraint {constraint!r} of {pattern!r} is neither a name ({', '.join(_NAMES)}), nor (lower, upper), "
        "nor a NumPyro constraint"
    )


def _read_constraint(stored: Any) -> Any:
    """Returns the constraint of NumPyro; None for the real numbers."""
    from numpyro.distributions import constraints

    if isinstance(stored, NumpyroConstraint | _Foreign):
        return stored.constraint
    if isinstance(stored, tuple):
        lower, upper = stored
        if math.isinf(lower) and math.isinf(upper):
            return None
        if math.isinf(upper):
            return constraints.greater_than(lower)
        return constraints.less_than(upper) if math.isinf(lower) else constraints.interval(lower, upper)
    return None if stored == "real" else getattr(constraints, _NAMES[stored])


def _words(constraint: object) -> str:
    name = type(constraint).__name__.lstrip("_")
    ends = [f"{end} {getattr(constraint, end)}" for end in ("lower_bound", "upper_bound") if hasattr(constraint, end)]
    return f"{name} ({', '.join(ends)})" if ends else name
