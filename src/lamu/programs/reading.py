"""Reads the sites of a NumPyro program, with the errors for unsupported ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from lamu.base.compile_once import lenient
from lamu.constraints import Constraints
from lamu.data.arrays import Arrays
from lamu.data.wording import nearest
from lamu.programs.conjugacy import plain
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
from lamu.programs.program import NumpyroProgram, Rows
from lamu.typing import Params

__all__ = ["from_numpyro"]

_MOST = 1024  # the largest number of joint values of a row's latent categories


def from_numpyro(program: Callable[..., Any], data: Mapping[str, Any], rows: str | None = None) -> NumpyroProgram:
    r"""Returns the target of a NumPyro program and its data.

    \[ \log p(\theta, D) = \log p(\theta) + \sum_{i \in \text{rows}} \log p(x_i \mid \theta) \]

    Sites, plates, masks, scales and supports are read by NumPyro's effect handlers. θ are the latent sites, by name in
    `params["network"]`; latent categories are summed out. Every algorithm for densities works on the real coordinates,
    with minibatches if the plate of the rows is named. `lamu.algorithms.cvi` computes exact messages for the sites that
    an identity test finds conjugate (`table`). If all sites are, `vmp`, `em`, `svi` and `ncvmp` fit the program as a
    graph, with optimal beliefs about the categories of a row.

    Args:
        program: a function of the data with NumPyro's primitives. It is run several times.
        data: the program's arguments by name. Arrays with as many rows as the plate of the rows are split into batches;
            others are constants.
        rows: the name of the plate whose members are the rows of the data, conditionally independent given θ; None for
            a program without such a plate.

    Returns:
        The target, for `lamu.fit(target, None, algorithm)`.

    Raises:
        TypeError: for a program that is not a function, or data that are not a mapping.
        ValueError: for an argument that the data lack or that the program does not have, a plate that does not exist, a
            latent site in the plate of the rows, an array of rows called `weight` or `mask`, a category that cannot be
            summed out, a support that depends on other sites, NaN, or rows on which others, or terms outside, depend.

    Source: Phan, Pradhan & Jankowiak (2019), "Composable effects for flexible and accelerated probabilistic programming
    in NumPyro".

    Examples:
        >>> import jax.numpy as jnp, lamu, numpyro, numpyro.distributions as dist
        >>> def program(y):
        ...     tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)), obs=y)
        >>> target = lamu.from_numpyro(program, {"y": jnp.array([1.0, 2.0, 4.0])}, rows="rows")
        >>> print(target.table())
        site  family  factors  verdict    method
        tau   Gamma   tau, y   conjugate  exact message
        mu    Normal  mu, y    conjugate  exact message
    """
    if not callable(program):
        raise TypeError(f"program={program!r} is not a function; give one with NumPyro's primitives")
    if not isinstance(data, Mapping):
        raise TypeError(f"data is a {type(data).__name__}; give the program's arguments by name, such as {{'y': ...}}")
    arguments = _arguments(program, data)
    _require_numbers(arguments)
    all_sites = _traced_whole(program, arguments, rows)
    _require_no_params(program, arguments, rows)
    _require_plate(all_sites, rows)
    _require_no_randomness(program, arguments, all_sites, rows)
    count = _count(all_sites, rows)
    latent = {name: site for name, site in all_sites.items() if not site["is_observed"]}
    categories = tuple((name, _values(name, site, rows)) for name, site in latent.items() if _discrete(site))
    if np.prod([len(kept) for _, kept in categories], dtype=float) > _MOST:
        raise ValueError(
            f"the latent categories {', '.join(n for n, _ in categories)} have more than {_MOST:,} values together; "
            "sum some of them out in the program"
        )
    sites = {name: site for name, site in latent.items() if not _discrete(site)}
    _require_shared(sites, rows)
    _require_fixed_supports(program, arguments, all_sites, sites, rows)
    if not sites:
        raise ValueError("the program has no latent site that is continuous; there is nothing to learn")
    joint = LogJoint(program, rows, categories)
    theta = {name: jnp.asarray(site["value"], jnp.result_type(float)) for name, site in sites.items()}
    supports = {name: plain(site["fn"].support) for name, site in sites.items()}
    table = {name: support for name, support in supports.items() if support is not constraints.real}
    arrays = {name: value for name, value in arguments.items() if _is_array(value)}
    if has_whole_numbers(arrays):
        require_members(
            indices_outside(jax.jit(lambda index: joint.terms({**arguments, **index}, theta, count)), arrays),
            arrays,
        )
    read = _rows(joint, arguments, theta, count)
    numbers = {name: value for name, value in arrays.items() if name not in read.names}
    fixed = tuple((name, value) for name, value in arguments.items() if not _is_array(value))
    return NumpyroProgram(
        joint,
        {name: jnp.asarray(value) for name, value in numbers.items()},
        fixed,
        read,
        theta,
        tuple((name, _kind(site["fn"])) for name, site in all_sites.items()),
        constraints=Constraints.of(table, theta),
    ).tested()


class _Seen(RowsPlate):
    """A handler that records the full size of a plate and disables its subsampling."""

    def __init__(self, name: str | None) -> None:
        super().__init__(name, 1)
        self.subsampled: dict[str, tuple[int, int]] = {}

    def process_message(self, msg: Any) -> None:
        # Uses all rows of the plate instead of a subsample.
        if msg["type"] == "plate":
            size, part = msg["args"]
            if part is not None and part != size:
                self.subsampled[msg["name"]] = (size, part)
            if msg["name"] == self.name:
                self.rows = size
        super().process_message(msg)


def _traced_whole(program: Callable[..., Any], arguments: Mapping[str, Any], rows: str | None) -> dict[str, Any]:
    """Returns the sites of the program on all of its data; raises an error if the data are a subsample already."""
    plate = _Seen(rows)
    try:
        all_sites = traced(program, arguments, {}, plate)
        with lenient():
            for site in all_sites.values():
                site["fn"].log_prob(site["value"])
        return all_sites
    except Exception as error:
        if not plate.subsampled:
            raise
        name, (size, part) = next(iter(plate.subsampled.items()))
        raise ValueError(
            f"the program fails on all {size} members of the plate {name!r}, of which it takes subsample_size={part} "
            f"({error}); give arrays of {size} rows and index them by the plate's indices, as in "
            f"`with plate({name!r}, {size}, ...) as i: ... obs=y[i]`. Minibatches are `rows={name!r}` and batch_size"
        ) from error


def _require_no_params(program: Callable[..., Any], arguments: Mapping[str, Any], rows: str | None) -> None:
    """Raises a ValueError for `numpyro.param`, which no log density has: it would stay at its initial value."""
    for name, site in traced(program, arguments, {}, _Seen(rows), types=("param",)).items():
        if not site["args"] or site["value"] is site["args"][0]:  # other values are those of handlers.substitute
            raise ValueError(
                f"numpyro.param({name!r}, ...) is learned by NumPyro's SVI alone, and a log density would hold it at "
                "its initial value; sample it from a prior, or from dist.ImproperUniform for a flat "
                "one (networks: random_flax_module in the place of flax_module), or fix it by handlers.substitute"
            )


def _require_no_randomness(
    program: Callable[..., Any], arguments: Mapping[str, Any], all_sites: Mapping[str, Any], rows: str | None
) -> None:
    """Raises a ValueError if the density is random given all sites, since it would be fixed at one draw."""
    values = {name: site["value"] for name, site in all_sites.items() if not site["is_observed"]}
    with lenient():
        first, second = (
            {name: site["fn"].log_prob(site["value"]) for name, site in run.items()}
            for run in (traced(program, arguments, values, _Seen(rows), seed=seed) for seed in (0, 1))
        )
    for name, term in first.items():
        if name in second and not np.array_equal(term, second[name], equal_nan=True):
            raise ValueError(
                f"the density of the site {name!r} is random: the program draws numbers beside its sites, for instance "
                "by numpyro.prng_key(); make the draw a site, or draw before and give it as data"
            )


def _arguments(program: Callable[..., Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the program, checked against its signature."""
    arguments = {name: plain_argument(value) for name, value in data.items()}
    parameters = inspect.signature(program).parameters
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values()):
        return arguments
    for name in arguments:
        if name not in parameters:
            raise ValueError(f"data has {name!r}, which is not an argument of the program; {nearest(name, parameters)}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise ValueError(f"the program needs the argument {name!r}, which the data lack; add it to data")
    return arguments


def _require_numbers(arguments: Mapping[str, Any]) -> None:
    """Raises a ValueError for NaN, since missing values have no density and need a mask."""
    for name, value in arguments.items():
        if _is_array(value) and np.issubdtype(value.dtype, np.floating) and np.isnan(value).any():
            row = int(np.argwhere(np.isnan(value))[0][0]) if np.ndim(value) else 0
            raise ValueError(
                f"the argument {name!r} is NaN in row {row}, and a density has no missing entries; give any number "
                "there, and what is observed as an argument: with numpyro.handlers.mask(mask=observed)"
            )


def _require_plate(all_sites: Mapping[str, Any], rows: str | None) -> None:
    plates = {frame.name for site in all_sites.values() for frame in site["cond_indep_stack"]}
    if rows is not None and rows not in plates:
        have = nearest(rows, sorted(plates)) if plates else "it has no plates, so leave rows out"
        raise ValueError(f"rows={rows!r} is not a plate of the program; {have}")


def _count(all_sites: Mapping[str, Any], rows: str | None) -> int:
    sizes = (frame.size for site in all_sites.values() for frame in site["cond_indep_stack"] if frame.name == rows)
    return 1 if rows is None else next(sizes)


def _discrete(site: Mapping[str, Any]) -> bool:
    return bool(site["fn"].support.is_discrete)


def _values(name: str, site: Mapping[str, Any], rows: str | None) -> tuple[int, ...]:
    """Returns the values of a latent category that can be summed out."""
    shape, plates = jnp.shape(site["value"]), [frame.name for frame in site["cond_indep_stack"]]
    if name.endswith("_unobserved"):
        raise ValueError(
            f"obs_mask makes a latent {name!r} of discrete values, which cannot be summed out one by one; leave "
            "obs_mask out, and observe by numpyro.sample(..., obs=...) under handlers.mask(mask=observed)"
        )
    if not site["fn"].has_enumerate_support:
        raise ValueError(
            f"the latent site {name!r} is a {_kind(site['fn'])}, whose values cannot be listed and summed out; "
            "write the density of what it makes instead (a NegativeBinomial for a Poisson with a Gamma rate)"
        )
    if plates != ([] if rows is None else [rows]) or len(shape) != len(plates):
        inside = f"in the plate {plates[-1]!r}" if plates else "outside the plate of the rows"
        remedy = f"give rows={plates[-1]!r}" if plates and rows is None else "sum it out with a mixture distribution"
        raise ValueError(
            f"the latent site {name!r} of shape {shape} takes discrete values {inside}, where they cannot be "
            f"summed out one by one; {remedy}, for instance dist.MixtureSameFamily"
        )
    with lenient():
        return tuple(int(value) for value in np.asarray(site["fn"].enumerate_support(expand=False)).reshape(-1))


def _require_shared(sites: Mapping[str, Any], rows: str | None) -> None:
    for name, site in sites.items():
        if rows is not None and row_axis(site, rows) is not None:
            raise ValueError(
                f"every row of {rows!r} has a latent {name!r} of its own, so that no batch of rows knows all of θ; "
                f"leave rows out, which takes all of {rows!r} at once"
            )


def _require_fixed_supports(
    program: Any, arguments: Mapping[str, Any], all_sites: Mapping[str, Any], sites: Mapping[str, Any], rows: str | None
) -> None:
    """Raises a ValueError if a support depends on other sites, since the real coordinates would change meaning."""
    with lenient():
        moved = {
            name: biject_to(site["fn"].support)(0.7 * biject_to(site["fn"].support).inv(site["value"]) + 0.1)
            for name, site in sites.items()
        }
    again = traced(program, arguments, moved, _Seen(rows))
    for name, site in sites.items():
        if name not in again or set(again) != set(all_sites):
            raise ValueError("the program has other sites for other values; write one whose sites are always the same")
        ours, theirs = (jax.tree.leaves(drawn_site["fn"].support) for drawn_site in (site, again[name]))
        same = all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        if type(site["fn"].support) is not type(again[name]["fn"].support) or not same:
            raise ValueError(
                f"the support of {name!r} depends on other sites; sample on a fixed one and transform, such as "
                "u ~ Uniform(0, 1) and x = upper * u"
            )


def _rows(joint: LogJoint, arguments: Mapping[str, Any], theta: Params, count: int) -> Rows:
    """Returns the arguments that are rows, after a check that rows are independent."""
    if joint.plate is None:
        return Rows((), None)
    names = tuple(
        name for name, value in arguments.items() if _is_array(value) and np.ndim(value) and len(value) == count
    )
    if not names:
        raise ValueError(
            f"no argument of the program has the {count} rows of the plate {joint.plate!r}; pass the data as arguments"
        )
    for name in set(names) & {"weight", "mask"}:
        raise ValueError(
            f"the argument {name!r} is an array of rows, and {name!r} in the data says how much each row counts; give "
            f"the program's argument another name, for instance {name + '_of_row'!r}"
        )
    half = max(count // 2, 1)
    columns = {name: jnp.asarray(arguments[name]) for name in names}

    def terms(columns: Mapping[str, Any], rows: int) -> Any:
        # One program: operation by operation it would be dozens.
        return jax.jit(lambda columns, theta: joint.terms({**arguments, **columns}, theta, rows))(columns, theta)

    try:
        outside, part = terms({name: value[:half] for name, value in columns.items()}, half)
    except Exception as error:
        raise ValueError(
            f"the program fails on {half} of its {count} rows ({error}); write it for any number of rows, and give no "
            f"constant {count} rows: what handlers.condition observes in them is an argument, obs=y"
        ) from error
    shared, every = terms(columns, count)
    for name, value in shared.items():
        if not np.allclose(value, outside[name], rtol=1e-3, atol=1e-3, equal_nan=True):
            raise ValueError(
                f"the site {name!r} stands outside the plate {joint.plate!r} and depends on its rows, of which a batch "
                "has some; move it into the plate, or leave rows out"
            )
    for name, values in every.items():
        if not np.allclose(values[:half], part[name], rtol=1e-3, atol=1e-3, equal_nan=True):
            raise ValueError(
                f"the density of {name!r} in a row of {joint.plate!r} depends on the other rows; compute what "
                "needs all rows before the program, or leave rows out"
            )
    kinds = tuple(_kept_dtype(arguments[name]) for name in names)
    return Rows(names, Arrays.named({name: arguments[name] for name in names}, names), kinds)


def _kept_dtype(values: Any) -> str | None:
    """Returns the dtype to restore in batches of an argument: `~flag` needs Booleans."""
    dtype = jax.dtypes.canonicalize_dtype(values.dtype)
    return None if np.issubdtype(dtype, np.floating) else dtype.name


def _kind(distribution: Any) -> str:
    """Returns the name of a distribution, without NumPyro's wrappers for plates and masks."""
    return type(plain_law(distribution)).__name__


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | jax.Array)
