"""A NumPyro program as a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import CellType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.transforms import biject_to

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.constraints import Constraints, TransformedBelief
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.wording import aligned
from lamu.families import Product
from lamu.families.products import factor_of
from lamu.priors import Prior
from lamu.programs.conjugacy import Verdict, verdicts
from lamu.programs.density import (
    LogJoint,
    RowsPlate,
    SiteBeliefs,
    has_whole_numbers,
    indices_outside,
    is_imputed,
    require_members,
    traced,
)
from lamu.programs.messages import SiteMessages
from lamu.programs.simulation import query_at
from lamu.record import record, static
from lamu.typing import Array, Data, DTypeLike, Inputs, Params, RandomKey, State

__all__ = ["NumpyroProgram", "ProgramPrior", "Rows", "with_own_arrays"]


@record
class Rows:
    """The arguments of a program that are rows.

    Attributes:
        names: their names; none for a program without rows.
        data: the rows given to `from_numpyro`, or None.
        dtypes: for each name the dtype that the program gets; None for that of the batch.

    Examples:
        >>> import numpy as np
        >>> from lamu.programs import Rows
        >>> Rows(("censored",), None, ("bool",)).of({"censored": np.array([0, 1])})["censored"].tolist()
        [False, True]
    """

    names: tuple[str, ...] = static()
    data: Any
    dtypes: tuple[str | None, ...] = static(default=())

    def of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a batch in the dtypes given to `from_numpyro`.

        Targets of a batch are integers or floats, for which `~censored` in a program has another meaning than for
        Booleans.
        """
        dtypes = dict(zip(self.names, self.dtypes, strict=bool(self.dtypes)))
        return {
            name: value if dtypes.get(name) is None else value.astype(dtypes[name]) for name, value in values.items()
        }


@record
class ProgramPrior(Prior):
    """The density of the sites outside of a program's rows, in real coordinates.

    Attributes:
        joint: the program's density.
        constants: its array arguments that are not rows.
        fixed: its arguments that are not arrays.
        batch: one row, for its shape.
        constraints: the transformations from real coordinates to θ.

    Examples:
        >>> import jax.numpy as jnp, lamu, numpyro, numpyro.distributions as dist
        >>> def program(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> target = lamu.from_numpyro(program, {"y": jnp.array([1.0, 2.0])}, rows="rows")
        >>> round(float(target.prior.log_prob({"mu": jnp.array(0.0)})), 4)
        -0.9189
    """

    joint: LogJoint
    constants: Any
    fixed: tuple[tuple[str, Any], ...] = static()
    batch: Any
    constraints: Constraints

    def log_prob(self, params: Params) -> Array:
        """Returns log p(θ) with the Jacobian, in nats; zero for a program without rows."""
        if self.joint.plate is None:
            return jnp.zeros((), jnp.result_type(*jax.tree.leaves(params)))
        theta, volume = self.constraints.constrain(params)
        arguments = {**self.constants, **dict(self.fixed), **self.batch}
        shared = self.joint.terms(arguments, theta, 1)[0]
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return total(shared, dtype) + volume.astype(dtype)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Raises a TypeError, since NumPyro simulates from programs."""
        raise TypeError("simulate from a program with numpyro.infer.Predictive(program, num_samples=...)")


@record
class NumpyroProgram(SiteMessages):
    r"""A NumPyro program and its data. Use `lamu.from_numpyro`, which checks its parts.

    Attributes:
        joint: log p(θ, D) as terms.
        constants: array arguments that are not rows, by name.
        fixed: arguments that are not arrays, by name.
        given_rows: the arguments that are rows.
        theta: values of the latent sites, for their shapes.
        distributions: the NumPyro distribution of every site, by name.
        verdicts: the verdicts of the identity test for every factor and latent site.
        of_choices: the same given the categories, before they are summed out.
        constraints: the transformations from real coordinates, which algorithms use, to θ.
        frozen: coordinates fixed at given values, or None.
        start: parameters that every run starts from, or None.

    Examples:
        >>> import lamu, numpyro, numpyro.distributions as dist
        >>> def program():
        ...     numpyro.sample("sigma", dist.HalfNormal(1.0))
        >>> target = lamu.from_numpyro(program, {})
        >>> target.latent, target.has_rows
        (('sigma',), False)
    """

    simulates = True  # the observed sites of the program

    joint: LogJoint
    constants: Any
    fixed: tuple[tuple[str, Any], ...] = static()
    given_rows: Rows
    theta: Any
    distributions: tuple[tuple[str, str], ...] = static()
    verdicts: tuple[Verdict, ...] = static(default=())
    of_choices: tuple[Verdict, ...] = static(default=())
    constraints: Constraints = Constraints()
    frozen: Params | None = None
    start: Any = None

    @property
    def name(self) -> str:
        return "a NumPyro program"

    @property
    def latent(self) -> tuple[str, ...]:
        """The names of the latent sites, in the order of the program."""
        return tuple(name for name, _ in self.distributions if name in self.theta)

    def require_sites(self, given: object) -> None:
        """Raises a ValueError if a program given to `load` has other sites than the saved one."""
        rows, saved = self.given_rows.of(self.first_rows(1)), dict(self.distributions)
        try:
            sites = traced(
                self.joint.program,
                {**self.constants, **dict(self.fixed), **rows},
                self.theta,
                RowsPlate(self.joint.plate, 1),
            )
        except Exception as error:
            raise ValueError(f"program={given!r} does not run on the arguments that were saved: {error}") from error
        if set(sites) != set(saved):
            raise ValueError(
                f"program={given!r} has the sites {', '.join(sorted(sites))}, and the one that was saved "
                f"{', '.join(sorted(saved))}; give the function that lamu.from_numpyro was given"
            )

    @property
    def has_rows(self) -> bool:
        """Whether a plate of rows was named."""
        return self.joint.plate is not None

    @property
    def identified(self) -> bool:
        """Whether no category was summed out: the values of one could be permuted."""
        return not self.joint.categories

    @property
    def prior(self) -> ProgramPrior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The density of the sites outside of the rows, in the coordinates of algorithms."""
        one_row = self.first_rows(1)
        return ProgramPrior(self.joint, self.constants, self.fixed, one_row, self.constraints)

    def init(self, key: RandomKey, batch: Batch | None) -> tuple[Params, Any]:
        """Returns real coordinates, by default uniform between −1 and 1, and the empty state."""
        real = self.constraints.unconstrain(self.theta)
        keys = tree.keys_like(key, real)
        start_values = jax.tree.map(
            lambda leaf, k: jax.random.uniform(k, leaf.shape, leaf.dtype, -1.0, 1.0), real, keys
        )
        return self.started({"network": start_values, "likelihood": {}}, {})

    def log_likelihood(
        self, params: Params, state: State, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, Any]:
        """Returns the log density of every row; for a program without rows log p(θ, D), with the Jacobian."""
        coordinates = self.complete(params["network"])
        dtype = jnp.result_type(*jax.tree.leaves(coordinates))
        theta, volume = self.constraints.constrain(coordinates)
        rows = batch.mask.shape[0]
        arguments = {**self.constants, **dict(self.fixed)}
        if self.has_rows:
            in_rows = self.joint.terms({**arguments, **self.given_rows.of(batch.y)}, theta, rows)[1]
            return total(in_rows, dtype), state
        value = total(self.joint.terms(arguments, theta, 1)[0], dtype) + volume.astype(dtype)
        return jnp.broadcast_to(value[None], (rows,)), state

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the sites outside of the rows, with the Jacobian, in nats."""
        return self.free_prior.log_prob(params["network"])

    def read(self, data: Data) -> Arrays:
        """Returns the rows given to `from_numpyro`, or new ones with the same arguments.

        Args:
            data: None, or arrays by the names of the arguments that are rows, with optional `weight` and `mask`.

        Raises:
            ValueError: for other names, or data for a program that has no rows.
        """
        if isinstance(data, Arrays):
            return data
        if not self.has_rows:
            if data is not None:
                raise ValueError("the program holds its data and has no plate of rows; give None, or name the plate")
            dtype = jnp.result_type(float)
            return Arrays.of((np.zeros((1, 1), dtype), np.zeros(1, dtype)))
        if data is None:
            if self.given_rows.data is None:
                raise ValueError(f"a posterior keeps no rows; give the arrays {', '.join(self.given_rows.names)}")
            return self.given_rows.data
        rows = Arrays.named(data, self.given_rows.names)
        own = self.given_rows.of({name: jnp.asarray(value) for name, value in rows.y.items()})
        if has_whole_numbers(own):
            arguments, count = {**self.constants, **dict(self.fixed)}, len(jax.tree.leaves(own)[0])
            terms = lambda index_arrays: self.joint.terms({**arguments, **index_arrays}, self.theta, count)
            require_members(indices_outside(terms, own), own)
        return rows

    def inputs(self, x: Inputs) -> Any:
        """Returns the query of a program at new arguments.

        Args:
            x: arguments by name: omitted ones keep their values, and those of observed values are predicted. Or a
                number of rows, if rows have no other arguments.

        Raises:
            TypeError: for other types.
            ValueError: for names that the program does not have, rows that do not fit each other, NaN among numbers,
                arguments at which the program fails, and latent sites without a belief there.
        """
        return query_at(self, x)

    def _without_rows(self, name: str) -> TypeError:
        instead = "predict(arguments).log_prob(values)" if name == "log_prob" else "predict(arguments), mean and std"
        return TypeError(f"{name} is about rows with latent categories, and the program has none; use {instead}")

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior over real coordinates as one over θ; one over θ is returned unchanged."""
        posterior = replace(posterior, model=posterior.model.tempered(posterior.temperature))
        belief, constraints = posterior.belief, posterior.model.constraints
        network = factor_of(belief, "network")
        if not isinstance(network, Product):
            return super().constrained(posterior)
        parts = dict(network.factors)
        if "normal" in parts:
            parts["normal"] = TransformedBelief(parts["normal"], constraints)
        mapped = Product({**belief.factors, "network": SiteBeliefs(Product(parts))})
        return replace(posterior, model=posterior.model.of_theta(), belief=mapped)

    # Conjugacy.

    def tested(self) -> NumpyroProgram:
        """Returns the target with the verdicts of the identity test, on at most a hundred of the rows."""
        supports = {name: self.constraints.support(name) for name in self.theta}
        with jax.enable_x64(True), lenient():
            shapes = {name: jnp.shape(biject_to(supports[name]).inv(leaf)) for name, leaf in self.theta.items()}
            rows = self.first_rows(100)
            arguments = {**jax.tree.map(_wide, {**self.constants, **rows}), **dict(self.fixed)}
            count = min((len(v) for v in rows.values()), default=1)
            joint = replace(self.joint, program=with_own_arrays(self.joint.program))

            def terms(theta: Params) -> dict[str, Array]:
                shared, in_rows = joint.terms(arguments, theta, count)
                return {**shared, **{name: jnp.sum(term) for name, term in in_rows.items()}}

            if not self.joint.categories:
                verdicts_of_terms = tuple(verdicts(terms, supports, shapes))
                return self._of_verdicts(verdicts_of_terms, verdicts_of_terms)
            # If the term of each value of the categories is affine in each row, so is their sum; otherwise it is only
            # by chance.
            weight = np.random.default_rng(1).uniform(0.5, 1.5, (len(self.joint.choices), count))

            def of_choices(theta: Params) -> dict[str, Array]:
                shared, in_rows = joint.complete(arguments, theta, count)
                return {**shared, **{name: jnp.sum(weight * term) for name, term in in_rows.items()}}

            verdicts_of_terms, given = (tuple(verdicts(each, supports, shapes)) for each in (terms, of_choices))
            return self._of_verdicts(verdicts_of_terms, given)

    def _of_verdicts(self, verdicts: tuple[Verdict, ...], of_choices: tuple[Verdict, ...]) -> NumpyroProgram:
        used = {verdict.site for verdict in of_choices if verdict.factor != verdict.site}
        names = dict(self.distributions)
        joint = replace(self.joint, used=tuple(sorted(name for name in used if is_imputed(name, names))))
        return replace(self, joint=joint, verdicts=verdicts, of_choices=of_choices)

    def families(self) -> dict[str, str]:
        """Returns the family of every latent site: conjugate in all its factors, or Normal in its real coordinates.

        A site without a family that is conjugate in all its factors is a potential, with a Normal belief in its real
        coordinates.
        """
        all_verdicts = self.verdicts
        return {name: _family([v for v in all_verdicts if v.site == name])[0] for name in self.latent}

    def table(self) -> str:
        """Returns each latent site with its family, its factors, the verdict, and the method that `cvi` takes."""
        all_verdicts = self.verdicts
        lines = [("site", "family", "factors", "verdict", "method")]
        for name in self.latent:
            own = [v for v in all_verdicts if v.site == name]
            family, exact = _family(own)
            bad = [v.factor for v in own if family not in v.families]
            verdict = "conjugate" if exact else f"not in {', '.join(bad)}"
            method = "exact message" if exact else "gradient and Hessian at draws"
            if not exact and name in self.kinds:
                given = " and ".join(category for category, _ in self.joint.categories)
                verdict, method = f"conjugate given {given}", f"exact message by vmp, {method}"
                family = _family([v for v in self.of_choices if v.site == name])[0]
            lines.append((name, family, ", ".join(v.factor for v in own), verdict, method))
        lines += [(name, "Categorical", "", "conjugate", "summed out") for name, _ in self.joint.categories]
        return aligned(lines)


def total(terms: Mapping[str, Any], dtype: DTypeLike) -> Array:
    """Returns the sum of terms in one dtype."""
    with lenient():
        return jnp.asarray(sum(terms.values(), jnp.zeros((), dtype)), dtype)


def _family(own: list[Verdict]) -> tuple[str, bool]:
    """Returns the family of a site, and whether it is conjugate in all factors of the site."""
    shared = [name for name in (own[0].families if own else ()) if all(name in v.families for v in own)]
    return (shared[0], True) if shared else ("Normal", False)


def _wide(leaf: Any) -> Any:
    kept = np.asarray(leaf)
    return jnp.asarray(kept.astype(np.float64) if np.issubdtype(kept.dtype, np.floating) else kept)


# JAX 0.10 caches the constant of a NumPy array by the array's identity while a compiled function uses it, regardless
# of whether float64 was enabled. A program that is traced in both precisions would then get constants of the other
# one: "lax.mul requires arguments to have the same dtypes, got float64, float32". A copy has another identity.


def with_own_arrays(program: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with copies of its global and closed-over arrays; other objects unchanged."""
    return _copied(program, {})


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    if type(value) is np.ndarray:
        return value.copy()
    if isinstance(value, partial):
        keywords = {name: _copied(part, copies) for name, part in value.keywords.items()}
        return partial(_copied(value.func, copies), *(_copied(part, copies) for part in value.args), **keywords)
    if not isinstance(value, FunctionType):
        return value
    if id(value) in copies:
        return copies[id(value)]
    cells = tuple(CellType() for _ in value.__closure__ or ())
    module = _of_module(value.__globals__, copies)
    copy = FunctionType(value.__code__, module, value.__name__, value.__defaults__, cells or None)
    copy.__kwdefaults__, copy.__dict__ = value.__kwdefaults__, dict(value.__dict__)
    copies[id(value)] = copy  # before its closure, which may contain the function itself
    for cell, old in zip(cells, value.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _copied(old.cell_contents, copies)
        except ValueError:
            continue  # a variable without a value yet
    return copy


def _of_module(names: dict[str, Any], copies: dict[int, Any]) -> dict[str, Any]:
    if id(names) in copies:
        return copies[id(names)]
    copy = copies[id(names)] = dict(names)
    for name, value in names.items():
        if type(value) is np.ndarray or (isinstance(value, FunctionType) and value.__globals__ is names):
            copy[name] = _copied(value, copies)
    return copy
