"""DRAW beside a VAE with as many parameters, MNIST drawn once to bits: the bound, paired by test image."""

from __future__ import annotations

import jax

import lamu
from benchmarks.latent.rows import fitted, images
from lamu.latent import Attention, models
from lamu.networks import MLP


def main(quick: bool) -> None:
    """Prints numbers of parameters and bounds."""
    steps, count, tests = (50, 500, 100) if quick else (4_000, 60_000, 1_000)
    mnist = images("mnist", binary=True)
    train, test = mnist.train[:count], mnist.test[:tests]
    draw = models.DRAW(8, 10, 784, hidden=128, read=Attention(5, (28, 28)), write=Attention(5, (28, 28)))
    asked = parameters(draw, train)
    width = min(range(50, 1_000, 10), key=lambda width: abs(parameters(plain(width), train) - asked))
    print(f"drawing: the bound in nats, {steps:,} steps of 128 (asked: DRAW above a VAE with as many parameters)")
    for name, graph in (("DRAW, 8 steps", draw), (f"VAE of {width}", plain(width))):
        bound = lamu.scores.mean_bound(fitted(graph, train, 1e-3, steps), {"y": test})
        print(
            f"  {name:14} {parameters(graph, train):9,} parameters: {bound.value:.2f} ± {bound.error:.2f}", flush=True
        )


def plain(width: int) -> lamu.Graph:
    """Returns a VAE of 80 latents, as many as eight steps of ten have, with one hidden layer each way."""
    return models.VAE(80, 784, MLP((width,)), MLP((width,)))


def parameters(graph: lamu.Graph, y: object) -> int:
    """Returns how many numbers training moves."""
    batch = graph.read({"y": y[:2]}).full()  # pyright: ignore[reportIndexIssue]
    shapes = jax.eval_shape(lambda key: graph.init(key, batch)[0], jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes["network"]))
