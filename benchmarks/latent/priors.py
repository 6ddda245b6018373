"""A learned prior against N(0, I) on Fashion-MNIST, its pixels drawn once to bits; paired by test image."""

from __future__ import annotations

from benchmarks.latent.rows import fitted, images, log_prob, told
from lamu.latent import Amortised, VampPrior, models
from lamu.networks import MLP

LATENTS, PARTS, NETWORK = 20, 100, MLP((300,))


def main(quick: bool) -> None:
    """Prints log densities under both priors, at equal steps and networks."""
    steps, count, tests = (300, 2_000, 200) if quick else (4_000, 60_000, 1_000)
    print(f"priors: log p(y) of Fashion-MNIST in bits, {steps:,} steps of 128 (asked: VampPrior no worse than N(0, I))")
    fashion = images("fashion_mnist", binary=True)
    train, test = fashion.train[:count], fashion.test[:tests]
    vamp = VampPrior(LATENTS, Amortised(NETWORK), train[:PARTS])
    graphs = {
        "N(0, I)": models.VAE(LATENTS, 784, NETWORK, NETWORK),
        f"VampPrior of {PARTS}": models.VAE(LATENTS, 784, NETWORK, NETWORK, prior=vamp),
    }
    found = {name: log_prob(fitted(graph, train, 1e-3, steps), test) for name, graph in graphs.items()}
    for name, values in found.items():
        print(f"  {name:18} {told(values)}", flush=True)
    plain, learned = found.values()
    print(f"  VampPrior by {told(learned - plain)} more", flush=True)
