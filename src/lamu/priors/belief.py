r"""An earlier belief as a prior, \(p(\theta) = q_{\text{before}}(\theta)\), for sequential updates."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import ExponentialFamily, Family, Gaussian, Product
from lamu.operators import Dense
from lamu.priors.interface import Prior, independent_parts
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree, RandomKey

__all__ = ["Belief", "in_structure", "tempered"]


@record
class Belief(Prior):
    r"""An earlier belief \(q(\theta)\) as a prior: a Gaussian with any operator, or another family with a density.

    A Gaussian belief enters another Gaussian belief exactly: in every algorithm where its precision is diagonal or
    scalar; with a full matrix in closed forms, in Laplace's method, and in the rule with a dense or a diagonal
    precision (which takes the diagonal, and the whole matrix in the gradient). Elsewhere it enters through the loss.

    Attributes:
        belief: q. `lamu.Model.with_prior` takes it from a posterior.
        rest: the prior of the weights that q does not cover (real weights, where q is about binary ones); None where it
            covers all.
        dispersions: what an earlier fit knows of the likelihood's dispersions, a belief about them that takes the place
            of the likelihood's own prior; None where nothing is known.
        temperature: T of the posterior that q was made of, of which runs at another one tell; None where there is none.
        peak: log q at its mean in nats, which needs the determinant of the precision; computed for a Gaussian.

    Raises:
        TypeError: for a point, for a belief without a density, or for one with several modes.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> from lamu.priors import Belief
        >>> prior = Belief(Gaussian({"w": jnp.ones(2)}, Scalar(4.0)))
        >>> float(prior.gaussian({"w": jnp.zeros(2)}).precision.value)
        4.0
    """

    belief: Family
    rest: Prior | None = None
    peak: Number | None = None
    dispersions: Family | None = field(default=None, metadata={"added": True})
    temperature: Number | None = field(default=None, metadata={"added": True})

    def __post_init__(self) -> None:
        name = type(self.belief).__name__
        if self.belief.kind == "degenerate":
            raise TypeError(
                f"a {name} is certain of every weight, and as a prior would never move; fit with an uncertainty "
                "(ivon(), laplace(), conjugate()), or put a width around it, "
                "Belief(Gaussian(point, Scalar(1 / width**2)))"
            )
        if self.belief.kind == "joint" or not hasattr(self.belief, "log_prob"):
            raise TypeError(
                f"{name} is a belief of several modes or draws, of which no single prior can be made; take one of its "
                "members, or fit with ivon(), laplace() or conjugate()"
            )
        if self.peak is None and isinstance(self.belief, Gaussian):
            object.__setattr__(self, "peak", self.belief.log_prob(self.belief.mean))

    def check(self, params: Params) -> None:
        """Raises a ValueError if a leaf of the belief is missing in the parameters, or has another shape."""
        shapes = {path: jnp.shape(leaf) for path, leaf in tree.by_path(params).items()}
        for path, leaf in tree.by_path(_like(self.belief)).items():
            if path not in shapes:
                raise ValueError(
                    f"the prior is a belief about {path!r}, which the network lacks; its leaves are {', '.join(shapes)}"
                )
            if leaf.shape != shapes[path]:
                raise ValueError(
                    f"the prior is a belief about {path!r} of shape {leaf.shape}, but there it has the shape "
                    f"{shapes[path]}; a belief carries over to data and outputs of the same width only"
                )

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\log q(\theta)\), a scalar in nats."""
        belief, peak = self._in_dtype_of(params)
        if self.rest is not None:
            ours, others = self._split(params)
            beside = self.rest.log_prob(others)
            return beside + belief.log_prob(ours) if jax.tree.leaves(ours) else beside
        if not isinstance(belief, Gaussian):
            return belief.log_prob(params)
        # As `Gaussian.log_prob`, without computing a determinant at every step.
        away = tree.add(params, belief.mean, -1.0)
        return peak - tree.dot(away, belief.precision.matvec(away)) / 2

    def gaussian(self, params: Params) -> Gaussian | None:
        """Returns the belief, where it is Gaussian, in the dtype of the parameters, with the Gaussian of `rest`.

        Args:
            params: any parameters of the right structure; only their dtypes are used.
        """
        ours = self._in_dtype_of(params)[0] if isinstance(self.belief, Gaussian) else None
        if self.rest is None:
            return ours
        return independent_parts([ours, self.rest.gaussian(self._split(params)[1])])

    def exponential(self, params: Params) -> Any:
        """Returns the belief if it is an exponential family or a product of such, else None."""
        return self.belief if isinstance(self.belief, ExponentialFamily | Product) else None

    def given(self, frozen: Params) -> Prior:
        """Returns itself where the belief covers the free leaves alone, as after a fit with the same frozen leaves."""
        covered = set(tree.by_path(_like(self.belief)))
        return super().given(frozen) if covered & set(tree.paths(frozen)) or self.rest is not None else self

    def sample(self, key: RandomKey, params: Params) -> Params:
        draw = self._in_dtype_of(params)[0].sample(key)
        if self.rest is None:
            return draw
        others = self.rest.sample(jax.random.fold_in(key, 1), self._split(params)[1])
        return jax.tree.map(lambda a, b: b if a is None else a, draw, others, is_leaf=lambda leaf: leaf is None)

    def _split(self, params: Params) -> tuple[Params, Params]:
        """Returns the weights that the belief covers, and the others."""
        covered = tree.by_path(_like(self.belief))
        ours = tree.map_with_path(lambda path, leaf: leaf if path in covered else None, params)
        return ours, tree.map_with_path(lambda path, leaf: None if path in covered else leaf, params)

    def _in_dtype_of(self, params: Params) -> tuple[PyTree, PyTree]:
        leaves = jax.tree.leaves(params)
        if not leaves:
            return self.belief, self.peak
        dtype = jnp.result_type(*leaves)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (self.belief, self.peak))


def in_structure(structure: Any, prior: Gaussian) -> Any:
    """Returns the precision of a Gaussian prior as an operator of a structure."""
    if structure is type(prior.precision):
        return prior.precision
    if structure is Dense:
        return Dense(prior.precision.dense(prior.mean))
    if isinstance(prior.precision, Dense):
        raise TypeError(f"a prior of dense precision does not fit a belief of {structure.__name__.lower()} precision")
    return structure.from_diagonal(prior.precision.diagonal(prior.mean))


def tempered(belief: PyTree, temperature: Number) -> PyTree:
    r"""Returns the belief to the power T, normalised, \(\lambda \leftarrow T\lambda\)."""
    # A fit at temperature T gives \((p(D|\theta)\,p(\theta))^{1/T}\): its power T is the prior, which another run at T
    # divides by T again.
    if isinstance(temperature, int | float) and temperature == 1.0:
        return belief
    if isinstance(belief, Gaussian):
        return Gaussian(belief.mean, belief.precision.scale(temperature))
    return belief.with_natural(tree.scale(belief.to_natural(), temperature))


def _like(belief: Family) -> Params:
    """Returns the shapes of a point of the belief's space."""
    return jax.eval_shape(belief.sample, jax.random.key(0))
