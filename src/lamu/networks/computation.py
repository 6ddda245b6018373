"""Networks computed in another way: passes in a narrower precision, and activations recomputed where they are read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.embedded import OneHot, Tokens
from lamu.networks.interface import NetworkWrapper, outputs
from lamu.networks.wrapper import Standardised
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, PyTree, RandomKey, State

__all__ = ["MixedPrecision"]

_READS_INPUTS = (Standardised, Tokens, OneHot)  # differences of inputs and codes need all digits
_WIDE_ENOUGH = ("bfloat16", "float32")


@record
class MixedPrecision(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, x)\) with its passes, forwards and backwards, in bfloat16.

    Parameters and floating inputs are rounded where a pass begins, and outputs are float32 again (or what the
    parameters are) where it ends. All else stays as it is: parameters, belief, optimiser, likelihood, prior, sums over
    rows, gradients as they reach the parameters, their squares and Kronecker factors, and the means and variances of
    normalisation layers. bfloat16 has the range of float32, so that no loss is scaled, and 8 of its 24 binary digits.

    It is a part of the model: a posterior is saved and predicts with it. To predict in full precision, give the base
    with the same parameters: `lamu.load(path, network=base)`, or
    `replace(posterior, model=replace(posterior.model, network=base))`.

    `Model.standardised` and codes of categories work around it; put `Standardised`, `Tokens` and `OneHot` outside of
    it. Modules of Flax, Equinox and PyTorch compute in what they are given, unless their own `dtype` says otherwise.

    Attributes:
        base: f.
        compute_dtype: "bfloat16", or "float32" for passes of parameters in float64.

    Raises:
        ValueError: for another dtype, such as float16, which loses small gradients; or for a base that reads its inputs
            in full precision.

    Source: Micikevicius et al. (2018), section 3.1; Kalamkar et al. (2019) for bfloat16.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("digits")
        >>> network = lamu.networks.MixedPrecision(lamu.networks.MLP((32,)), "bfloat16")
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=5).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """

    compute_dtype: str | Any = static(default="bfloat16")

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            name = jnp.dtype(self.compute_dtype).name
        except TypeError:
            name = None
        if name not in _WIDE_ENOUGH:
            raise ValueError(
                f"compute_dtype={self.compute_dtype!r} cannot hold a network's gradients without a scaled loss; give "
                "'bfloat16', or 'float32' for parameters in float64"
            )
        object.__setattr__(self, "compute_dtype", name)
        if isinstance(self.base, _READS_INPUTS):
            kind = type(self.base).__name__
            raise ValueError(
                f"{kind} reads its inputs in full precision; put it outside, {kind}(MixedPrecision(network), ...)"
            )

    @property
    def linear(self) -> bool:
        """No: of rounded weights f is a staircase, whose closed forms are another function's."""
        return False

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs, computed in the narrow dtype and in the parameters' own again, and its state."""
        # Codes among the inputs are read as they are: past 256 bfloat16 does not tell them apart.
        seen = x if self.base.codes else self._rounded(x)
        f, new = outputs(self.base, self._rounded(params), state, seen, key, train, mask)
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        wide = jnp.result_type(*dtypes) if dtypes else f.dtype
        return f.astype(wide), jax.tree.map(lambda leaf, old: leaf.astype(jnp.result_type(old)), new, state)

    def _rounded(self, values: PyTree) -> PyTree:
        narrow: DTypeLike = jnp.dtype(self.compute_dtype)
        wider = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize > narrow.itemsize
        return jax.tree.map(lambda leaf: leaf.astype(narrow) if wider(leaf) else leaf, values)
