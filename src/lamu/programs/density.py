"""The log density of a NumPyro program by sites, from NumPyro's effect handlers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import checkify
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.distributions import ExpandedDistribution, ImproperUniform, Independent, MaskedDistribution
from numpyro.distributions.transforms import biject_to
from numpyro.primitives import Messenger

from lamu.base.compile_once import lenient
from lamu.families import Product
from lamu.families.interface import IndependentDraws
from lamu.record import given, measured, record, static
from lamu.typing import Array, Params, RandomKey

__all__ = [
    "LogJoint",
    "RowsPlate",
    "SiteBeliefs",
    "has_whole_numbers",
    "indices_outside",
    "is_imputed",
    "plain_law",
    "require_members",
    "row_axis",
    "traced",
]


@record
class SiteBeliefs(IndependentDraws):
    r"""\(q(\theta) = \prod_k q_k(\theta_k)\; q(\theta_r)\): conjugate beliefs by site, and one Gaussian for the others.

    Attributes:
        parts: `conjugate`, a product by site, and `normal`, a joint belief about the other sites; either may be absent.

    Examples:
        >>> from lamu.families import Gamma, Product
        >>> from lamu.programs import SiteBeliefs
        >>> belief = SiteBeliefs(Product({"conjugate": Product({"tau": Gamma(2.0, 1.0)})}))
        >>> float(belief.mean["tau"])
        2.0
    """

    parts: Product

    kind = "product"

    @property
    def mean(self) -> Params:
        """E_q[θ] by site."""
        return _merged(self.parts.mean)

    @property
    def std(self) -> Params:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The standard deviations by site, by samples for sites that are not conjugate."""
        exact: Any = self.parts.factors.get("conjugate", Product({}))
        drawn = jax.tree.map(jnp.sqrt, self.marginal_variance()) if "normal" in self.parts.factors else {}
        return {**drawn, **exact.std}

    def interval(self, level: float = 0.9) -> tuple[Params, Params]:
        exact: Any = self.parts.factors.get("conjugate", Product({}))
        drawn = super().interval(level) if "normal" in self.parts.factors else ({}, {})
        low, high = ({**of_draws, **own} for of_draws, own in zip(drawn, exact.interval(level), strict=True))
        return low, high

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ by site."""
        return _merged(self.parts.sample(key))

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        parts: dict[str, Any] = {name: part.mean for name, part in self.parts.factors.items()}
        return self.parts.log_prob({name: {site: theta[site] for site in part} for name, part in parts.items()})


def _merged(parts: Any) -> Params:
    return {site: value for part in parts.values() for site, value in part.items()}


class RowsPlate(Messenger):
    """A handler that sets the plate of the rows to the size of a batch, and every other plate to its full size."""

    # Otherwise a plate with a `subsample_size` would be fixed at one random subsample.

    def __init__(self, name: str | None, rows: int) -> None:
        super().__init__(None)
        self.name, self.rows, self.size = name, rows, rows

    def process_message(self, msg: Any) -> None:
        # Sets size and indices of the plate, and records the program's size.
        if msg["type"] != "plate":
            return
        if msg["name"] == self.name:
            self.size = msg["args"][0]
            msg["args"], msg["value"] = (self.rows, self.rows), jnp.arange(self.rows)
        else:
            size = msg["args"][0]
            msg["args"], msg["value"] = (size, size), jnp.arange(size)


class _Improper(Messenger):
    """A handler that sets sites of improper distributions, which cannot be sampled, to a value of their support."""

    def process_message(self, msg: Any) -> None:
        # Sets the value at zero in real coordinates, unless another handler has set one.
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        fn = msg["fn"]
        if isinstance(plain_law(fn), ImproperUniform):
            onto = biject_to(fn.support)
            msg["value"] = onto(jnp.zeros(onto.inverse_shape(fn.shape())))


def plain_argument(value: Any) -> Any:
    """Returns lists and pandas series as arrays, which a program can index, and other values unchanged."""
    series = hasattr(value, "__array__") and np.ndim(value) == 1 and not isinstance(value, jax.Array)
    return np.asarray(value) if series or isinstance(value, list) else value


def has_whole_numbers(arrays: Mapping[str, Any]) -> bool:
    """Whether an argument is an integer array, which a program may use as an index."""
    return any(jnp.issubdtype(value.dtype, jnp.integer) for value in arrays.values())


_BELOW_ALL = -(2**30)


def indices_outside(run: Callable[[Params], Any], arrays: Params) -> Any:
    """Returns checkify's error for out-of-bounds indices in a run."""
    # -1 is pandas' code of missing values and JAX's index of the last member; a large negative index is out of bounds.
    signed = {name: value for name, value in arrays.items() if jnp.issubdtype(value.dtype, jnp.signedinteger)}
    below = {
        name: jnp.where(value < 0, _BELOW_ALL, value.astype(jnp.int32))
        for name, value in signed.items()
        if isinstance(value, Tracer) or (np.asarray(value) < 0).any()
    }
    try:
        return checkify.checkify(run, errors=checkify.index_checks)({**arrays, **below})[0]
    except Exception:  # an operation that checkify does not support, such as sampling from a multinomial
        return None


def require_members(outside: Any, arrays: Mapping[str, Any]) -> None:
    """Raises a ValueError for an out-of-bounds index, which JAX would clip."""
    match = outside and re.search(r"index (-?\d+) .* size (\d+)", str(outside.get()))
    if not match:
        return
    index, size = map(int, match.groups())
    of = {name: np.asarray(value) for name, value in arrays.items() if jnp.issubdtype(value.dtype, jnp.integer)}
    where = {name: np.argwhere(v < 0 if index < 0 else v == index) for name, v in of.items() if v.ndim}
    sentences = (
        f"{name} is {of[name][tuple(rows[0])]} in row {rows[0][0]}" for name, rows in where.items() if len(rows)
    )
    raise ValueError(
        f"{next(sentences, f'an index is {index}')}, and the array that it indexes has {size} members; give "
        f"whole numbers from 0 to {size - 1}. New members need a plate of their number: make its size an argument of "
        "the program"
    )


def plain_law(law: Any) -> Any:
    """Returns a distribution without NumPyro's wrappers for plates and masks."""
    while isinstance(law, ExpandedDistribution | Independent | MaskedDistribution):
        law = law.base_dist
    return law


def traced(
    program: Callable[..., Any],
    arguments: Mapping[str, Any],
    values: Mapping[str, Any],
    plate: RowsPlate,
    seed: Any = 0,
    inner: Messenger | None = None,
    types: tuple[str, ...] = ("sample",),
) -> dict[str, Any]:
    """Returns NumPyro's trace of one run of a program, by site name; `inner` is the innermost handler."""
    with (
        lenient(),
        handlers.seed(rng_seed=seed),
        handlers.trace() as trace,
        _Improper(),
        plate,
        handlers.substitute(data=dict(values)),
        inner or nullcontext(),
    ):
        program(**arguments)
    return {name: site for name, site in trace.items() if site["type"] in types}


@record
class LogJoint:
    r"""log p(θ, D) of a program as terms: one for each site outside the plate of the rows, and one for each row.

    Latent categories are summed out: in every row, or once for the program if it has no plate of rows:

    \[ \log p(x_i \mid \theta) = \log \sum_z p(x_i, z \mid \theta) \]

    Attributes:
        program: the function.
        plate: the name of the plate of the rows, or None.
        categories: latent categories by name, each with its values.
        temperature: T of categories that all data share, over the likelihood's power. They are tempered like θ, and
            those of rows are not: summed out is \(T \log \sum_z p(z, \theta, D)^{1/T}\). Densities of entries that
            `obs_mask` imputes are multiplied by it, so that they integrate to one at every temperature.
        used: the sites of unobserved entries that other densities depend on, which are tempered like θ.

    Examples:
        >>> import numpyro, numpyro.distributions as dist
        >>> from lamu.programs.density import LogJoint
        >>> def program(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> shared, rows = LogJoint(program).terms({"y": 1.0}, {"mu": 1.0}, 1)
        >>> {name: round(float(term), 3) for name, term in shared.items()}
        {'mu': -1.419, 'y': -0.919}
    """

    program: Callable[..., Any] = given()
    plate: str | None = static(default=None)
    categories: tuple[tuple[str, tuple[int, ...]], ...] = static(default=())
    temperature: Any = measured(added=True, default=1.0)
    used: tuple[str, ...] = static(added=True, default=())

    def terms(
        self, arguments: Mapping[str, Any], values: Mapping[str, Any], rows: int
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns the terms outside the rows, scalars by site, and those of the rows, `[rows]` by site, in nats.

        The factors that are summed over categories together are one term, named by the categories.

        Args:
            arguments: the arguments of the program, those of rows with `rows` rows.
            values: the values of the latent sites.
            rows: the number of rows.
        """
        shared, in_rows = self.complete(arguments, values, rows)
        if self.categories:
            label = " and ".join(name for name, _ in self.categories)
            with lenient():
                T = self.choice_temperature
                in_rows = {label: T * logsumexp(sum(in_rows.values()) / T, axis=0)}
        else:
            in_rows = {name: term[0] for name, term in in_rows.items()}
        if self.plate is None:
            return {name: term[0] for name, term in in_rows.items()}, {}
        return shared, in_rows

    def complete(
        self, arguments: Mapping[str, Any], values: Mapping[str, Any], rows: int
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns the terms for every value of the categories, by site: outside the rows scalars, in the rows arrays.

        Those in the rows are `[choices, rows]`, in nats. A choice is a joint value of all categories. A program without
        a plate of rows has one row.

        Args:
            arguments: the arguments of the program, those of rows with `rows` rows.
            values: the values of the latent sites.
            rows: the number of rows.
        """
        names = [name for name, _ in self.categories]
        shape = () if self.plate is None else (rows,)

        def at(choice: Array) -> tuple[dict[str, Array], dict[str, Array]]:
            chosen = {name: jnp.full(shape, choice[i]) for i, name in enumerate(names)}
            return self._given(arguments, {**values, **chosen}, rows)

        shared, in_rows = (
            jax.vmap(at)(self.choices) if names else jax.tree.map(lambda leaf: leaf[None], at(self.choices))
        )
        if self.plate is None:
            return {}, {name: term[:, None] for name, term in shared.items()}
        return {name: term[0] for name, term in shared.items()}, in_rows

    @property
    def choice_temperature(self) -> Any:
        """T of the categories: one for those of rows."""
        return self.temperature if self.plate is None else 1.0

    @property
    def choices(self) -> Array:
        """The joint values of all categories, `[choices, categories]`; one choice without categories."""
        return jnp.asarray(list(itertools.product(*(kept for _, kept in self.categories))), int)

    def _given(
        self, arguments: Mapping[str, Any], values: Mapping[str, Any], rows: int
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        plate = RowsPlate(self.plate, rows)
        shared: dict[str, Array] = {}
        in_rows: dict[str, Array] = {}
        with lenient():
            sites = traced(self.program, arguments, values, plate)
            for name, site in sites.items():
                term = site["fn"].log_prob(site["value"])
                if is_imputed(name, sites):
                    # Nothing depends on entries that were observed, which NumPyro masks: without a density they would
                    # be improper. The same holds for the others if their values are not used.
                    of_all = _unmasked(site["fn"]).log_prob(site["value"])
                    term = (term if name in self.used else 0.0) * (1.0 - self.temperature) + of_all * self.temperature
                dim = row_axis(site, self.plate)
                scale = 1.0 if site["scale"] is None else site["scale"]
                if dim is None:
                    shared[name] = jnp.sum(scale * term)
                else:  # NumPyro scales a subsampled plate; here the objective scales rows
                    own = jnp.moveaxis(scale * (rows / plate.size) * term, dim, 0)
                    in_rows[name] = jnp.sum(own.reshape(rows, -1), axis=1)
        return shared, in_rows


def is_imputed(name: str, sites: Collection[str]) -> bool:
    """Whether a site is of the latents that `obs_mask` adds, which are of all entries."""
    return name.endswith("_unobserved") and f"{name.removesuffix('_unobserved')}_observed" in sites


def _unmasked(law: Any) -> Any:
    """Returns a distribution without its masks, in the same shape."""
    while isinstance(law, MaskedDistribution):
        law = law.base_dist  # of each mask, where `handlers.mask` stands around
    if isinstance(law, ExpandedDistribution):  # by a plate that the mask does not have
        return ExpandedDistribution(_unmasked(law.base_dist), law.batch_shape)
    return law


def row_axis(site: Mapping[str, Any], plate: str | None) -> int | None:
    """Returns the axis of the rows in a site's log density; None for a site outside their plate."""
    return next((frame.dim for frame in site["cond_indep_stack"] if frame.name == plate), None)
