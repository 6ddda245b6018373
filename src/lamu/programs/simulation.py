"""Queries of a NumPyro program at new arguments: sites to sample, given sites, and their densities."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.distributions import ImproperUniform, Unit

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.data.wording import nearest
from lamu.programs.density import (
    LogJoint,
    RowsPlate,
    has_whole_numbers,
    indices_outside,
    plain_argument,
    plain_law,
    require_members,
    row_axis,
    traced,
)
from lamu.programs.messages import SiteMessages
from lamu.record import record, static
from lamu.typing import Array, Inputs, Params

__all__ = ["ProgramQuery", "log_densities", "query_at", "shared_categories", "simulated"]


# As in `numpyro.infer.Predictive`, latent sites take samples of the belief. Observed sites that are not given are
# sampled from their distribution, and so are latents without a belief: categories that were summed out, and new members
# of plates with another size. Keys are split as by NumPyro's handler `seed`, so that equal keys give equal samples.


@record
class ProgramQuery:
    """A program's arguments for a prediction, and the sites to sample."""

    arrays: Params  # the arguments that are arrays, by name
    fixed: tuple[tuple[str, Any], ...] = static()  # the others
    rows: int = static()  # the size of the plate of the rows
    asked: tuple[str, ...] = static()  # observed sites to sample
    redrawn: tuple[str, ...] = static()  # latent sites to sample, without a belief about them here
    derived: tuple[str, ...] = static()  # deterministic sites, and sites without a single distribution
    extended: tuple[str, ...] = static(default=())  # latent sites to sample except for their first members

    @property
    def arguments(self) -> Params:
        """All arguments by name."""
        return {**self.arrays, **dict(self.fixed)}


@record
class MomentsOfLaw:
    """The moments of a distribution that cannot leave a compiled function."""

    # NumPyro keeps the number of trials of a multinomial, and the neighbours of a CAR, outside of the pytree's leaves.

    mean: Any
    variance: Any
    event_shape: tuple[int, ...] = static()
    support: Any = static(default=None)


def _has_array_aux(structure: Any) -> bool:
    own = structure.node_data()
    return tree.has_tracers(own and own[1]) or any(map(_has_array_aux, structure.children()))


class _SampleObserved:
    """A function for NumPyro's `substitute` that samples sites instead of using observed values, also in `scan`."""

    # For plates that have grown it samples all members, and then sets the first ones to the belief's.

    def __init__(self, names: tuple[str, ...], values: Params) -> None:
        self.names, self.known = names, values

    def __call__(self, site: Any) -> Any:
        if site["type"] != "sample":
            return None
        value = self.known.get(site["name"])
        if value is None and not (site["name"] in self.names and site["is_observed"]):
            return None
        site["is_observed"] = False
        drawn = site["fn"](rng_key=numpyro.prng_key(), sample_shape=site["kwargs"]["sample_shape"])
        return drawn if value is None else drawn.at[tuple(map(slice, value.shape))].set(value)


def _run(joint: LogJoint, query: ProgramQuery, values: Params, key: Any, drawn: bool = True) -> Any:
    """Returns all sites of one run given the values of some, with a random key."""
    first_members = {name: values[name] for name in query.extended if name in values}
    kept = {name: value for name, value in values.items() if name not in (*query.redrawn, *query.extended)}
    unobserved = handlers.substitute(substitute_fn=_SampleObserved(query.asked if drawn else (), first_members))
    plate = RowsPlate(joint.plate, query.rows)
    return traced(joint.program, query.arguments, kept, plate, key, unobserved, ("sample", "deterministic"))


@jax.jit
def simulated(joint: LogJoint, query: ProgramQuery, theta: Params, keys: Any) -> Params:
    """Returns a value of every sampled site with its distribution (None for deterministic sites), by name."""

    def one(drawn: tuple[Params, Any]) -> Params:
        values, key = drawn
        sites = _run(joint, query, values, key)
        draws: Params = {name: (sites[name]["value"], None) for name in query.derived}
        for name in (*query.asked, *query.redrawn):
            law = sites[name]["fn"]
            if _has_array_aux(jax.tree.structure(law)):
                with lenient():
                    law = MomentsOfLaw(law.mean, law.variance, law.event_shape)
            draws[name] = (sites[name]["value"], law)
        return jax.tree.map(jnp.asarray, draws)

    return jax.lax.map(one, (theta, keys))


@jax.jit
def log_densities(joint: LogJoint, query: ProgramQuery, theta: Params, keys: Any, values: Any) -> dict[str, Array]:
    """Returns log densities of given values, `[draws, rows]` in nats; a site without rows has one row."""
    # Categories of rows are summed out: a draw of them would miss those that are rare and explain the row.
    summed = tuple(part for part in joint.categories if joint.plate is not None and part[0] not in values)
    categories = tuple(name for name, _ in summed)
    query = replace(query, redrawn=tuple(name for name in query.redrawn if name not in (*categories, *values)))

    def one(drawn: tuple[Params, Any]) -> dict[str, Array]:
        def given(choice: Array) -> dict[str, Array]:
            chosen = {name: jnp.full((query.rows,), choice[i]) for i, name in enumerate(categories)}
            sites, log_probs = _run(joint, query, {**drawn[0], **values, **chosen}, drawn[1], drawn=False), {}
            for name in (*values, *categories):
                law, value = sites[name]["fn"], sites[name]["value"]
                term = jnp.where(law.support(value), law.log_prob(value), -jnp.inf)
                axis = row_axis(sites[name], joint.plate)
                term = jnp.moveaxis(jnp.atleast_1d(term), -term.ndim if axis is None and term.ndim else axis or 0, 0)
                log_probs[name] = jnp.sum(term.reshape(len(term), -1), axis=1)
            return log_probs

        with lenient():
            if not categories:
                return given(jnp.zeros(0, int))
            terms = jax.vmap(given)(replace(joint, categories=summed).choices)
            shared = {name: term[0] for name, term in terms.items() if term.shape[1] != query.rows}
            of_rows = jnp.asarray(sum(term for name, term in terms.items() if name not in shared))
            return {**shared, "": logsumexp(of_rows, axis=0)}

    return jax.lax.map(one, (theta, keys))


@jax.jit
def shared_categories(model: SiteMessages, theta: Params, keys: Any) -> Params:
    """Returns a value of each category of a program without rows at every draw of θ, given the observed sites."""
    arguments, choices = {**model.constants, **dict(model.fixed)}, model.joint.choices

    def one(drawn: tuple[Params, Any]) -> Array:
        with lenient():
            log_joint = sum(model.joint.complete(arguments, drawn[0], 1)[1].values()) / model.joint.choice_temperature
        return choices[jax.random.categorical(drawn[1], jnp.ravel(log_joint))]

    indices = jax.lax.map(one, (theta, jax.random.split(keys, len(jax.tree.leaves(theta)[0]))))
    return {name: indices[:, number] for number, (name, _) in enumerate(model.joint.categories)}


def query_at(model: SiteMessages, x: Inputs) -> ProgramQuery:
    """Returns the query of a program at arguments by name, or a number of rows; raises an error if it is invalid."""
    arrays, fixed = _fitted_arguments(model)
    sources = _sources(model, arrays, fixed)
    targets = {name for source in sources.values() for name in source.arguments}
    given, blank, rows = _read_arguments(model, x, arrays, targets)
    absent = tuple(name for name in arrays if name in targets and name not in given)
    # The observed values of a site are known if all arguments that they are computed from are given.
    asked = tuple(
        site for site, source in sources.items() if not source.arguments or set(source.arguments) & set(absent)
    )
    numbers = {name: jnp.asarray(given.get(name, value)) for name, value in arrays.items() if name not in absent}
    numbers |= {name: jnp.asarray(value) for name, value in given.items() if _is_array(value)}
    others = {**fixed, **{name: value for name, value in given.items() if not _is_array(value)}}
    numbers = {name: value for name, value in numbers.items() if name not in others}
    numbers |= model.given_rows.of({name: numbers[name] for name in model.given_rows.names if name in numbers})
    plate_size = lambda rest: _plate_size(model, arrays, rest)
    if rows is None:  # only the program tells how many, as in `plate("rows", n)`
        sizes_of_plate = [plate_size(rest) for rest in (fixed, {**others, **numbers})]
        rows = _count_of_rows(model, arrays) if sizes_of_plate[0] == sizes_of_plate[1] else sizes_of_plate[1]
    elif counts := {name: n for name, n in given.items() if name in fixed and _is_whole(n)}:
        size_at = lambda more: plate_size({**others, **numbers, **{name: n + more for name, n in counts.items()}})
        if rows != (size := size_at(0)) != size_at(1):
            said = ", ".join(f"{name}={n}" for name, n in counts.items())
            raise ValueError(f"the arguments have {rows} rows, and the program {size} at {said}; give one number")
    sizes = _sizes({name: np.shape(value) for name, value in given.items()} | blank, arrays)
    anew = {name: np.shape(value) for name, value in given.items() if not _extends(value, arrays.get(name))} | blank
    shape_of = lambda name: blank.get(name) or _shape_at_rows(model, name, arrays[name].shape, rows, sizes)
    places = {name: jnp.zeros(shape_of(name), arrays[name].dtype) for name in absent}
    parameters = inspect.signature(model.joint.program).parameters
    nothing = {
        name: None for name in absent if name not in blank and name in parameters and parameters[name].default is None
    }
    failure: Exception | None = None
    for left_out in ({**places, **nothing}, places) if nothing else (places,):
        kept_values = {name: value for name, value in left_out.items() if value is not None}
        rest = {**others, **{name: None for name, value in left_out.items() if value is None}}
        query = ProgramQuery({**numbers, **kept_values}, tuple(rest.items()), rows, asked, (), ())
        try:
            sites = _sites(model.joint, query)
        except Exception as error:
            failure = error
            continue
        query = _checked_query(model, query, sites, sources, _sizes(anew, arrays))
        if has_whole_numbers(query.arrays):
            require_members(_index_error(model.joint, query, model.theta), query.arrays)
        _require_independent_of(model.joint, query, model.theta, tuple(kept_values))
        return query
    kept = [name for name in arrays if name not in given and name not in absent]
    raise ValueError(
        f"the program fails at these arguments ({failure}); {', '.join(kept) or 'no argument'} kept what it was in the "
        "fit, so give every argument that changes"
    ) from failure


@record
class _Source:
    """The arguments from which a site's observed values are computed, and their original shape."""

    arguments: tuple[str, ...] = static()
    shape: tuple[int, ...] = static()


def _fitted_arguments(model: SiteMessages) -> tuple[Params, Params]:
    """Returns the arguments of the fit: arrays and others."""
    rows = model.given_rows.data
    own = {} if rows is None else model.given_rows.of({name: jnp.asarray(value) for name, value in rows.y.items()})
    return {**model.constants, **own}, dict(model.fixed)


def _sources(model: SiteMessages, arrays: Params, fixed: Params) -> dict[str, _Source]:
    """Returns the source of the values of every observed site, by name."""
    plate = RowsPlate(model.joint.plate, _count_of_rows(model, arrays))

    def observed(arrays: Any) -> Params:
        sites = traced(model.joint.program, {**arrays, **fixed}, model.theta, plate)
        return {name: site["value"] for name, site in sites.items() if site["is_observed"] and not _is_factor(site)}

    closed, shapes = jax.make_jaxpr(observed, return_shape=True)(dict(arrays))
    sources = {}
    for number, (site, of) in enumerate(sorted(shapes.items())):
        used = zip(sorted(arrays), _inputs_used(closed, [number]), strict=True)
        sources[site] = _Source(tuple(name for name, is_used in used if is_used), of.shape)
    return {name: sources[name] for name, _ in model.distributions if name in sources}


def _is_factor(site: Any) -> bool:
    return isinstance(plain_law(site["fn"]), Unit)


def _inputs_used(closed: ClosedJaxpr, outputs: list[int]) -> list[bool]:
    """Returns the inputs that some outputs of a program depend on."""
    asked = [number in outputs for number in range(len(closed.jaxpr.outvars))]
    return list(partial_eval.dce_jaxpr(closed.jaxpr, asked)[1])


def _read_arguments(
    model: SiteMessages, x: Inputs, arrays: Params, targets: set[str]
) -> tuple[Params, dict[str, tuple[int, ...]], int | None]:
    """Returns the given arguments by name, the shapes of those that are all NaN, and the number of rows, or None."""
    names = model.given_rows.names
    if isinstance(x, int) and not isinstance(x, bool):
        needed = [name for name in names if name not in targets]
        if x < 1 or not names or needed:
            reason = f"{x!r} new rows are none" if x < 1 else "rows of the program are more than what it observed"
            raise ValueError(f"{reason}; give {' and '.join(needed) or 'arguments'} by name, for instance {{'X': ...}}")
        return {}, {}, x
    if not isinstance(x, Mapping):
        raise TypeError(
            f"a NumPyro program predicts at its arguments by name, such as {{'X': ...}}, and not at a "
            f"{type(x).__name__}; leave out what it observed"
        )
    given = {name: plain_argument(value) for name, value in x.items()}
    parameters = inspect.signature(model.joint.program).parameters
    if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values()):
        for name in given:
            if name not in parameters:
                raise ValueError(f"{name!r} is not an argument of the program; {nearest(name, list(parameters))}")
    absent = {name: value for name, value in given.items() if name in targets and _is_absent(value)}
    blank = {name: value.shape for name, value in absent.items() if value is not None}
    given = {name: value for name, value in given.items() if name not in absent}
    for name, value in given.items():
        if _is_array(value) and np.issubdtype(value.dtype, np.floating) and np.isnan(value).any():
            row = int(np.argwhere(np.isnan(value))[0][0]) if np.ndim(value) else 0
            remedy = "leave it out to have all of it predicted" if name in targets else "give a number"
            raise ValueError(f"the argument {name!r} is NaN in row {row}; {remedy}")
    lengths = {
        name: len(given[name]) if name in given else blank[name][0] for name in names if name in given or name in blank
    }
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the arguments have rows of several numbers, {lengths}; give as many of each")
    lacking = [name for name in names if name not in targets and name not in given]
    if lengths and lacking:
        raise ValueError(f"the program needs the argument {lacking[0]!r} of the {max(lengths.values())} rows; add it")
    return given, blank, next(iter(lengths.values()), None if names else 1)


def _count_of_rows(model: SiteMessages, arrays: Params) -> int:
    """Returns the number of rows of the fit."""
    return next((len(arrays[name]) for name in model.given_rows.names), 1)


def _plate_size(model: SiteMessages, arrays: Params, others: Params) -> int:
    """Returns the size that the program gives to the plate of its rows."""
    plate = RowsPlate(model.joint.plate, _count_of_rows(model, arrays))

    def run() -> None:
        traced(model.joint.program, {**arrays, **others}, {}, plate)

    with suppress(Exception):  # the checks of the query name what fails; the plate comes before its sites
        jax.eval_shape(run)
    return int(plate.size)


def _is_absent(value: Any) -> bool:
    """Whether an argument is omitted: None, or NaN in all rows."""
    if value is None:
        return True
    return bool(_is_array(value) and np.issubdtype(value.dtype, np.floating) and value.size and np.isnan(value).all())


def _extends(value: Any, fitted: Any) -> bool:
    """Whether an array has the entries of the fit first, so that it adds members to those."""
    # A constant array does not tell members apart, and says of none that it is one of the fit.
    if not _is_array(value) or fitted is None or value.ndim != fitted.ndim or np.ptp(np.asarray(fitted)) == 0:
        return False
    return np.array_equal(np.asarray(value, fitted.dtype)[tuple(map(slice, fitted.shape))], fitted)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | jax.Array)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _sizes(shapes: Mapping[str, tuple[int, ...]], arrays: Params) -> dict[int, int]:
    """Returns the new size for each old size of an axis, where it is unique."""
    new_sizes: dict[int, set[int]] = {}
    for name, shape in shapes.items():
        if name in arrays and len(shape) == arrays[name].ndim:
            for old, new in zip(arrays[name].shape, shape, strict=True):
                new_sizes.setdefault(old, set()).add(new)
    return {old: next(iter(new)) for old, new in new_sizes.items() if len(new) == 1}


def _shape_at_rows(
    model: SiteMessages, name: str, shape: tuple[int, ...], rows: int, sizes: Mapping[int, int]
) -> tuple[int, ...]:
    """Returns the shape that observed values would have."""
    return (rows, *shape[1:]) if name in model.given_rows.names else tuple(sizes.get(size, size) for size in shape)


@jax.jit
def _index_error(joint: LogJoint, query: ProgramQuery, theta: Params) -> Any:
    """Returns checkify's error for out-of-bounds indices in one run."""
    values = lambda arrays: [s["value"] for s in _run(joint, replace(query, arrays=arrays), theta, 0).values()]
    return indices_outside(values, query.arrays)


def _sites(joint: LogJoint, query: ProgramQuery) -> dict[str, Params]:
    """Returns kind, shape, plates and distribution of every site at arguments, by abstract evaluation."""
    sites: dict[str, Params] = {}

    def run() -> None:
        for name, site in _run(joint, query, {}, 0).items():
            own = {key: site.get(key) for key in ("type", "is_observed", "cond_indep_stack", "_control_flow_done")}
            law = plain_law(site["fn"]) if site["type"] == "sample" else None
            event = site["fn"].event_dim if law is not None else 0
            sites[name] = {**own, "shape": jnp.shape(site["value"]), "law": law, "event": event}

    jax.eval_shape(run)
    return sites


def _checked_query(
    model: SiteMessages,
    query: ProgramQuery,
    sites: Params,
    sources: Mapping[str, _Source],
    sizes: Mapping[int, int],
) -> ProgramQuery:
    """Returns the query with its sampled and derived sites, after checking them."""
    resized = []
    for name, value in model.theta.items():
        if name not in sites:
            raise ValueError(f"the program has no site {name!r} at these arguments, which it was fitted with")
        if sites[name]["shape"] != value.shape and not _is_longer_series(name, sites[name], value.shape):
            resized.append(name)
    extended = tuple(name for name in resized if _has_new_members(model, name, sites[name], sizes))
    fresh = [
        name
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"] and name not in (*query.asked, *model.theta)
    ]
    categories = tuple(name for name, _ in model.joint.categories)
    shared = categories if model.shares_categories else ()
    fresh = [name for name in fresh if name not in shared]
    unknown = [*resized, *(name for name in categories if name not in shared)]
    given = [name for name in sources if name not in query.asked]
    if unknown and given:
        raise ValueError(
            f"{given[0]!r} is given, and would say something about {unknown[0]!r}, which no belief is about at these "
            f"rows; leave {given[0]!r} out, or fit these rows with the others"
        )
    for name in query.asked:
        law, shape = sites[name]["law"], sites[name]["shape"]
        if law.event_dim and shape[-law.event_dim :] != sources[name].shape[-law.event_dim :]:
            raise ValueError(
                f"{name!r} is a {type(law).__name__} of other rows than were fitted, on which those depend; condition "
                "on the fitted ones in the program, and return what is asked for by numpyro.sample or deterministic"
            )
    resized = [name for name in resized if name not in extended]
    of_no_law = (*shared, *extended)
    derived = tuple(name for name, site in sites.items() if site["type"] == "deterministic" or name in of_no_law)
    return ProgramQuery(query.arrays, query.fixed, query.rows, query.asked, (*resized, *fresh), derived, extended)


def _has_new_members(model: SiteMessages, name: str, site: Params, sizes: Mapping[int, int]) -> bool:
    """Whether a plate has more members with the fitted ones first; False for other members."""
    # An array with one entry per member that does not begin with those of the fit, such as the rows', is of others.
    fitted = model.theta[name].shape
    grown = [(old, new) for old, new in zip(fitted, site["shape"], strict=True) if old != new]
    others = any(sizes.get(old) == new for old, new in grown)
    if others or any(frame.name == model.joint.plate for frame in site["cond_indep_stack"]):
        return False
    if any(new < old for old, new in grown):
        raise ValueError(
            f"the latent {name!r} has the shape {fitted} in the fit and {site['shape']} at these arguments, and which "
            "members are left is not said; give their number of the fit, or more: the first are those of the fit"
        )
    return True


def _is_longer_series(name: str, site: Params, fitted: tuple[int, ...]) -> bool:
    """Whether a latent of another shape is a longer series; False if it belongs to members of other plates."""
    shape, event = site["shape"], site["event"]
    if site["_control_flow_done"] and len(shape) == len(fitted) and shape[1:] == fitted[1:] and shape[0] > fitted[0]:
        return True
    axes = {frame.dim - event for frame in site["cond_indep_stack"]}
    others = [axis for axis in range(-len(shape), 0) if len(shape) == len(fitted) and shape[axis] != fitted[axis]]
    if not others or not set(others) <= axes or isinstance(site["law"], ImproperUniform):
        raise ValueError(
            f"the latent {name!r} has the shape {fitted} in the fit and {shape} at these arguments, where nothing is "
            "known of it; draw what new members have in a plate of theirs, and series by scan, which continues them"
        )
    return False


def _require_independent_of(joint: LogJoint, query: ProgramQuery, theta: Params, places: tuple[str, ...]) -> None:
    """Raises a ValueError if the sites to sample depend on omitted arguments."""
    if not places:
        return
    names = (*query.asked, *query.redrawn, *query.derived)

    def drawn(omitted: Any) -> list[Any]:
        sites = _run(joint, replace(query, arrays={**query.arrays, **omitted}), theta, 0)
        return [sites[name]["value"] for name in names]

    of_places = {name: query.arrays[name] for name in places}
    closed = jax.make_jaxpr(drawn)(of_places)
    for number, name in enumerate(names):
        for place, is_used in zip(sorted(of_places), _inputs_used(closed, [number]), strict=True):
            if is_used:
                raise ValueError(f"{name!r} depends on the argument {place!r}, which is left out; give it")
