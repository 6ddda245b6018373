"""Contests at equal steps on digits: layers of latents, flows of the encoder, importance weights; paired by row."""

from __future__ import annotations

import numpy as np

import lamu
from benchmarks.latent.rows import digits, fitted, log_prob, told
from lamu.latent import Flows, Importance, InverseAutoregressive, models
from lamu.networks import MLP

NETWORK, LATENTS = MLP((100,)), 10
FLOWS = Flows((InverseAutoregressive((64,)), InverseAutoregressive((64,))), context=16)


def main(quick: bool) -> None:
    """Prints log densities and what each gains on the plain VAE."""
    seeds, steps = ((0,), 400) if quick else ((0, 1, 2), 4_000)
    print(
        f"layers: log p(y) of digits in nats, {steps:,} steps, {len(seeds)} runs (asked: no contestant below the VAE)"
    )
    rows = digits()

    def density(graph: lamu.Graph) -> np.ndarray:
        return np.mean([log_prob(fitted(graph, rows.train, 3e-3, steps, seed), rows.test) for seed in seeds], axis=0)

    plain = density(models.VAE(LATENTS, 64, NETWORK, NETWORK))
    print(f"  {'VAE':28} {told(plain)}", flush=True)
    for name, graph in contestants().items():
        found = density(graph)
        print(f"  {name:28} {told(found)}   more than the VAE: {told(found - plain)}", flush=True)


def contestants() -> dict[str, lamu.Graph]:
    """Returns the graphs that should be no worse than a VAE of as many latents next to the data."""
    return {
        "two layers": models.DeepLatentGaussian((LATENTS, LATENTS // 2), 64, NETWORK.widths),
        "inverse autoregressive flows": models.VAE(LATENTS, 64, NETWORK, NETWORK, family=FLOWS),
        "5 importance weights": models.VAE(LATENTS, 64, NETWORK, NETWORK, bound=Importance(5)),
    }
