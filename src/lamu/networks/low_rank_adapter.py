"""Low-rank adapters (LoRA) of the frozen weights of a trained network, and safetensors files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base import fast_random
from lamu.base.arguments import sized
from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record, static
from lamu.typing import Array, Inputs, Params, PyTree, RandomKey, State

__all__ = ["LowRankAdapter", "read_safetensors", "write_safetensors"]


def read_safetensors(path: str | Path) -> Params:
    """Reads the arrays of a safetensors file as nested dictionaries, split at the dots of their names.

    Any network can start from them, `model.starting_at({"network": weights, "likelihood": {}})`, if the names are those
    of `lamu.tree.paths(posterior.mean["network"])`. The adapters take them too, for instance
    `Trained(function, weights)` and `Linen(module, variables={"params": weights})`; a PyTorch module loads them itself,
    `module.load_state_dict(safetensors.torch.load_file(path))`.

    Args:
        path: the file.

    Raises:
        ModuleNotFoundError: without the extra: `pip install "lamu[safetensors]"`.
        FileNotFoundError: where there is no such file.
        ValueError: for a file of another format.

    Examples:
        >>> import jax.numpy as jnp, os, tempfile
        >>> from lamu.networks import read_safetensors, write_safetensors
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "weights.safetensors")
        ...     write_safetensors(path, {"layers": {"0": {"kernel": jnp.ones((2, 3))}}})
        ...     read_safetensors(path)["layers"]["0"]["kernel"].shape
        (2, 3)
    """
    numpy = _library()
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        arrays = numpy.load_file(path)
    except Exception as error:  # the library raises various classes of its own
        raise ValueError(f"{str(path)!r} is not a safetensors file: {error}") from error
    return tree.nested(arrays, ".")


def write_safetensors(path: str | Path, params: Params) -> None:
    """Writes weights to a safetensors file, under the names of their path joined by dots.

    Args:
        path: the file, which must not exist.
        params: a tree of arrays, for instance `posterior.mean["network"]` or a draw.

    Raises:
        ModuleNotFoundError: without the extra: `pip install "lamu[safetensors]"`.
        FileExistsError: where the file exists.

    Examples:
        >>> import jax.numpy as jnp, os, tempfile
        >>> from lamu.networks import write_safetensors
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_safetensors(os.path.join(folder, "weights.safetensors"), {"kernel": jnp.ones((2, 3))})
        ...     os.listdir(folder)
        ['weights.safetensors']
    """
    numpy = _library()
    if Path(path).exists():
        raise FileExistsError(f"{str(path)!r} exists; give another path, or remove it first")
    arrays = {name.replace("/", "."): np.ascontiguousarray(leaf) for name, leaf in tree.by_path(params).items()}
    numpy.save_file(arrays, path)


def _library() -> Any:
    try:
        from safetensors import numpy
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'these files need safetensors, which is not installed; run pip install "lamu[safetensors]"'
        ) from None
    return numpy


@record
@sized
class LowRankAdapter(NetworkWrapper):
    r"""Low-rank adaptation of a trained network: its weights are frozen, and low-rank corrections are the parameters.

    \[ W = W_0 + \frac{s}{\sqrt{r\,m}}\, D U, \qquad D \in \mathbb{R}^{m \times r},\; U \in \mathbb{R}^{r \times n} \]

    The parameters are `low_rank/<path>/down` (D) and `low_rank/<path>/up` (U) for each adapted weight, and
    `full/<path>` for weights that are trained in full. All other weights are constants, without gradient, belief and
    prior. Weights of at least two axes are adapted where the correction has fewer numbers than the weight. A kernel of
    more axes is reshaped to a matrix, split where its two sides are the shortest: `[height, width, in, out]` between
    `in` and `out`, PyTorch's `[out, in, height, width]` after `out`.

    U starts at zero, so the initial outputs are those of the base; D starts as standard normal. The scale is such that
    under the prior `Normal(1.0)` on D and U an entry of the correction has the standard deviation \(s / \sqrt{m}\), for
    any rank.

    Attributes:
        base: the trained network.
        rank: r, the columns of D.
        at: the path pattern, or patterns, of the weights to adapt, for instance `"*attention*"`.
        full: the path pattern, or patterns, of weights to train in full, for instance a last layer's, `"head/*"`.
        scale: s, the size of a correction.
        weights: the frozen weights \(W_0\), for instance `posterior.mean["network"]`; those of the base where None.
        state: the network state, for instance `posterior.network_state`; that of the base where None.

    Raises:
        ValueError: for a rank below 1, a scale that is not positive, a base without trained weights, or a pattern that
            matches no weight that can be adapted.

    Source: Hu et al. (2022), LoRA, equation (3); the division by \(\sqrt{r}\) is that of Kalajdzievski (2023).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.MLP((16, 16)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> trained = lamu.fit(model, (x, y), lamu.algorithms.adam(), epochs=50).posterior
        >>> network = lamu.LowRankAdapter(trained.model.network, rank=2, weights=trained.mean["network"])
        >>> posterior = lamu.fit(
        ...     lamu.Model(network, lamu.likelihoods.Categorical(3)), (x, y), lamu.algorithms.ivon(), epochs=50
        ... ).posterior
        >>> lamu.tree.paths(posterior.mean["network"])[0], posterior.predict(x).mean.shape
        ('low_rank/layers/0/kernel/down', (150, 3))
    """

    base: Network | Any
    rank: int = static(default=4)
    at: str | tuple[str, ...] = static(default="*")
    full: str | tuple[str, ...] = static(default=())
    scale: float = static(default=1.0)
    weights: Params | None = None
    state: State = None
    # False: outputs are quadratic in the factors.
    linear = False
    # True: the weights are pretrained.
    trained = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "base", _whole(self.base))
        if self.rank < 1:
            raise ValueError(f"rank={self.rank!r} leaves nothing to learn; give at least 1")
        if not self.scale > 0:
            raise ValueError(f"scale={self.scale!r} is not positive; give the size of a correction, for instance 1.0")
        object.__setattr__(self, "at", _patterns(self.at))
        object.__setattr__(self, "full", _patterns(self.full))
        if self.weights is None and not self.base.trained:
            raise ValueError(
                f"the base {self.base.name} has no trained weights to adapt; give a trained one, or weights=..., for "
                'instance weights=posterior.mean["network"]'
            )

    @property
    def head(self) -> str:
        """The base's last layer where it is trained in full; else f is not linear in the parameters of any layer."""
        return f"full/{self.base.head}" if self.base.head in self.full else "*"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns standard normal D and zero U for every adapted weight, weights trained in full, and the state."""
        weights, state = self._trained(x, outputs)
        weights, state = self.weights or weights, self.state or state
        tree.require_matches(self.full, weights)
        low_rank, full = {}, {}
        for number, (path, leaf) in enumerate(tree.by_path(weights).items()):
            if _matches(path, self.full):
                full[path] = jnp.array(leaf, copy=True)
            elif self._adapts(path, leaf):
                rows, columns = _sides(leaf.shape)
                down = fast_random.normal(jax.random.fold_in(key, number), (rows, self.rank), leaf.dtype)
                low_rank |= {f"{path}/down": down, f"{path}/up": jnp.zeros((self.rank, columns), leaf.dtype)}
        if not low_rank:
            raise ValueError(
                f"at={', '.join(self.at)!r} matches no weight that is larger than its correction of rank {self.rank}; "
                f"the weights are {', '.join(tree.paths(weights))}"
            )
        return {"low_rank": tree.nested(low_rank), "full": tree.nested(full)}, state

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs at the corrected weights, and its new state."""
        return outputs(self.base, self.merged(params, x), state, x, key, train, mask)

    def merged(self, params: Params, x: Inputs) -> Params:
        r"""Returns the base's weights with the corrections added, \(W_0 + s\,D U / \sqrt{r\,m}\).

        They are parameters of the base, for instance for `Torch.state_dict`.

        Args:
            params: parameters of this network, for instance `posterior.mean["network"]` or a draw.
            x: some inputs `[batch, ...]`, whose shape and dtype the base may follow.
        """
        weights = self._trained(x, 0)[0] if self.weights is None else self.weights
        changed = tree.by_path(params["full"])
        low_rank = tree.by_path(params["low_rank"])

        def corrected(path: str, leaf: Array) -> Array:
            if path in changed:
                return changed[path]
            frozen = jax.lax.stop_gradient(jnp.asarray(leaf))
            if f"{path}/down" not in low_rank:
                return frozen
            down, up = low_rank[f"{path}/down"], low_rank[f"{path}/up"]
            scale = self.scale / math.sqrt(self.rank * down.shape[0])
            return frozen + jnp.reshape(scale * (down @ up), frozen.shape).astype(frozen.dtype)

        return tree.map_with_path(corrected, weights)

    def _trained(self, x: Inputs, outputs: int) -> tuple[Params, State]:
        """Returns the base's weights and state, which for a trained base do not depend on a key."""
        return self.base.init(jax.random.key(0), jnp.asarray(x), outputs)

    def _adapts(self, path: str, leaf: PyTree) -> bool:
        """Whether a weight gets a correction: it matches, has two or more axes, and the correction is smaller."""
        shape = jnp.shape(leaf)
        if len(shape) < 2 or not _matches(path, self.at):
            return False
        rows, columns = _sides(shape)
        return self.rank * (rows + columns) < rows * columns


def _patterns(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _matches(path: str, patterns: Any) -> bool:
    return any(tree.matches(path, pattern) for pattern in patterns)


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns the shape of an array as a matrix, split between the axes where its two sides are the shortest."""
    splits = [(math.prod(shape[:axis]), math.prod(shape[axis:])) for axis in range(1, len(shape))]
    return min(splits, key=sum)


def _whole(network: Any) -> Any:
    """Returns a base with its frozen parameters among the others, since here all are frozen."""
    if hasattr(network, "whole"):
        return network.whole
    return replace(network, base=_whole(network.base)) if isinstance(network, NetworkWrapper) else network
