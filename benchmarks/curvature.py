"""What curvature costs beside a plain batch gradient, and beside the peers' ways to it, in one run.

An MLP 784-400-400-10 and a LeNet-like ConvNet on 28 by 28 pixels, whose convolutions are products of patches (the
library's) or the compiler's own; batches of 128, and of 512 for the MLP. Times are alternated pairs: a ratio is the
median over the pairs, so that what else the machine does cancels out. Memory is what the compiled program says that it
needs at its peak: temporary arrays alone, and with its arguments and results, to which the squares themselves belong.

Peers: vmap(grad), squared, in JAX; `torch.func` and BackPACK where torch is installed, each on the same network.

    python -m benchmarks.curvature
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from benchmarks.speed.timing import Interval, here, ratio
from benchmarks.speed.timing import alternate as turns
from lamu.networks.convolutional import convolve
from lamu.objective.curvature.reader import linearise, squares_and_gradient
from lamu.objective.curvature.reader.layers import factors, halved, layers_by_name

# The most that gradient and squares, and Kronecker factors alone, may cost in gradients.
GOALS = {"MLP": (1.5, 1.6), "ConvNet, patches": (2.2, 3.0), "ConvNet, native": (2.2, 3.0)}
MEMORY = 1.5


@dataclass(frozen=True)
class Ratio:
    """The median ratio of times that were taken in turn, with its interval, and both medians in milliseconds."""

    name: str
    ours: float
    theirs: float
    interval: Interval

    def __str__(self) -> str:
        return f"{self.name:44} {self.ours:8.3f} ms {self.theirs:8.3f} ms   ratio {self.interval}"


def alternate(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], pairs: int = 20) -> Ratio:
    times = [side[1:] for side in turns([here("ours", ours), here("theirs", theirs)], pairs)]
    middles = (float(1000 * np.median([turn.wall for turn in side])) for side in times)
    return Ratio(name, *middles, ratio(*times, "wall", "median"))


@dataclass(frozen=True)
class Case:
    """A network on one batch: the mean loss of the batch, and the loss of one row."""

    name: str
    params: Any
    apply: Callable[[Any, jax.Array], jax.Array]
    x: jax.Array
    y: jax.Array

    @property
    def rows(self) -> int:
        return len(self.y)

    def batch(self, params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(self.apply(params, x))
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

    def row(self, params: Any, row: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = row
        return self.batch(params, x[None], y[None])

    def compiled(self, function: Callable[..., Any]) -> Any:
        return jax.jit(function).lower(self.params, self.x, self.y, self.weights).compile()

    @property
    def weights(self) -> jax.Array:
        return jnp.full(self.rows, 1 / self.rows, jnp.float32)

    def call(self, program: Any) -> Callable[[], None]:
        weights = self.weights
        return lambda: jax.block_until_ready(program(self.params, self.x, self.y, weights))


def mlp(params: Any, x: jax.Array) -> jax.Array:
    return lamu.networks.MLP((400, 400)).apply(params, {}, x, None, True)[0]


def conv_net(convolution: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def apply(params: Any, x: jax.Array) -> jax.Array:
        hidden = x[..., None]
        for index in range(2):
            part = params["convolutions"][index]
            hidden = jax.nn.relu(convolution(hidden, part["kernel"]) + part["bias"][None, None, None])
            rows, height, width, features = hidden.shape
            hidden = hidden.reshape(rows, height // 2, 2, width // 2, 2, features).max(axis=(2, 4))
        return lamu.networks.MLP((120, 84)).apply(params, {}, hidden.reshape(len(hidden), -1), None, True)[0]

    return apply


def native(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def cases() -> list[Case]:
    generator = np.random.default_rng(0)
    found = []
    for name, rows, apply in (
        ("MLP", 128, mlp),
        ("MLP", 512, mlp),
        ("ConvNet, patches", 128, conv_net(convolve)),
        ("ConvNet, native", 128, conv_net(native)),
    ):
        dense = name == "MLP"
        x = jnp.asarray(generator.random((rows, 784) if dense else (rows, 28, 28), np.float32))
        y = jnp.asarray(generator.integers(0, 10, rows).astype(np.int32))
        network: Any = lamu.networks.MLP((400, 400)) if dense else lamu.networks.ConvNet((6, 16), (120, 84), kernel=5)
        found.append(Case(name, network.init(jax.random.key(0), x, 10)[0], apply, x, y))
    return found


def passes(found: Ratio, goal: float | None) -> str:
    met = goal is not None and found.interval.lower <= goal
    return str(found) if goal is None else f"{found}   goal {goal}: {'met' if met else 'MISSED'}"


def measure(case: Case) -> None:
    print(f"\n{case.name}, batch {case.rows}\n{'':44} {'this':>11} {'that':>11}")
    # The goals are about a batch of 128.
    squares_goal, factors_goal = GOALS[case.name] if case.rows == 128 else (None, None)

    def squares(params: Any, x: jax.Array, y: jax.Array, weights: jax.Array) -> Any:
        return squares_and_gradient(case.row, params, (x, y), weights)

    def factors_and_gradient(params: Any, x: jax.Array, y: jax.Array, weights: jax.Array) -> Any:
        read = linearise(case.row, params, (x, y))
        gradient, cotangents = read.pull(weights)
        cotangents = [halved(each, weights)[None] for each in cotangents]
        known = layers_by_name(read, params)
        found = factors(read, params, halved(weights, weights)[None], cotangents, weights, known)
        return jnp.sum(read.outputs * weights), gradient, found

    def factors_alone(params: Any, x: jax.Array, y: jax.Array, weights: jax.Array) -> Any:
        return factors_and_gradient(params, x, y, weights)[2]  # what makes the gradient alone is not run

    def single(params: Any, x: jax.Array, y: jax.Array, weights: jax.Array) -> Any:
        rows = jax.vmap(jax.grad(case.row), (None, 0))(params, (x, y))
        return jax.tree.map(lambda leaf: jnp.sum(leaf * leaf, 0) / case.rows, rows)

    plain = case.compiled(lambda params, x, y, _: jax.value_and_grad(case.batch)(params, x, y))
    ours, theirs, kronecker = case.compiled(squares), case.compiled(single), case.compiled(factors_alone)
    both = case.compiled(factors_and_gradient)
    require_equal(case, plain, ours, theirs)
    gradient = case.call(plain)
    print(passes(alternate("gradient and squares / gradient", case.call(ours), gradient), squares_goal))
    print(passes(alternate("Kronecker factors / gradient", case.call(kronecker), gradient), factors_goal))
    print(alternate("gradient and Kronecker factors / gradient", case.call(both), gradient))
    print(memory("squares", ours, plain, MEMORY))
    print(memory("Kronecker factors", kronecker, plain, None))
    print(memory("vmap(grad), squared", theirs, plain, None))
    few = 20 if case.name != "MLP" else 5  # the peer takes a hundred times as long there
    print(
        passes(
            alternate("gradient and squares / vmap(grad), squared", case.call(ours), case.call(theirs), pairs=few), 1.0
        )
    )
    for name, peer in torch_peers(case).items():
        pairs = 20 if name == "BackPACK" else few
        print(passes(alternate(f"gradient and squares / {name}", case.call(ours), peer, pairs=pairs), 1.0))


def memory(name: str, program: Any, plain: Any, goal: float | None) -> str:
    """Ratios of bytes at the peak, and of temporary bytes alone."""
    ours, theirs = program.memory_analysis(), plain.memory_analysis()
    at_peak = lambda use: use.argument_size_in_bytes + use.output_size_in_bytes + use.temp_size_in_bytes
    whole, temporary = at_peak(ours) / at_peak(theirs), ours.temp_size_in_bytes / theirs.temp_size_in_bytes
    verdict = "" if goal is None else f"   goal {goal}: {'met' if max(whole, temporary) <= goal else 'MISSED'}"
    size, title = f"{ours.temp_size_in_bytes / 2**20:.1f} MiB", f"memory, {name} / gradient"
    return f"{title:44} {whole:.2f} of all bytes, {temporary:.2f} of temporary ones, {size}{verdict}"


def require_equal(case: Case, plain: Any, ours: Any, theirs: Any) -> None:
    """Both ways must compute the same before their times mean anything."""
    given = (case.params, case.x, case.y, case.weights)
    (value, gradient), found, expected = plain(*given), ours(*given), theirs(*given)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves((value, gradient, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4 * float(jnp.max(jnp.abs(b))))


def torch_peers(case: Case) -> dict[str, Callable[[], Any]]:
    """Sums of squared single gradients by torch's own means, on the same network; nothing where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        print("torch.func and BackPACK: torch is not installed (pip install torch backpack-for-pytorch)")
        return {}
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]
    from torch.func import functional_call, grad, vmap  # pyright: ignore[reportMissingImports]

    if case.name == "MLP":
        layers = [nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)]
    else:
        blocks = [
            part
            for before, after in ((1, 6), (6, 16))
            for part in (nn.Conv2d(before, after, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        ]
        dense = [nn.Linear(784, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
        layers = [nn.Unflatten(1, (1, 28)), *blocks, nn.Flatten(), *dense]
    model, loss = nn.Sequential(*layers), nn.CrossEntropyLoss()
    x, y = torch.from_numpy(np.asarray(case.x).copy()), torch.from_numpy(np.asarray(case.y).copy()).long()
    params = {name: leaf.detach() for name, leaf in model.named_parameters()}

    def one(params: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    rows = vmap(grad(one), (None, 0, 0))
    found = {"torch.func, squared": lambda: {name: (g * g).sum(0) for name, g in rows(params, x, y).items()}}
    if importlib.util.find_spec("backpack") is None:
        print("BackPACK: not installed (pip install backpack-for-pytorch)")
        return found
    from backpack import backpack, extend  # pyright: ignore[reportMissingImports]
    from backpack.extensions import SumGradSquared  # pyright: ignore[reportMissingImports]

    extended, extended_loss = extend(copy.deepcopy(model)), extend(loss)  # it leaves hooks in the model

    def squared() -> None:
        extended.zero_grad()
        with backpack(SumGradSquared()):
            extended_loss(extended(x), y).backward()

    return {**found, "BackPACK": squared}


def main() -> None:
    for case in cases():
        measure(case)


if __name__ == "__main__":
    main()
