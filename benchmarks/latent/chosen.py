"""Depth and number of latents chosen by the bound of the training rows' own model, beside held-out log p; digits."""

from __future__ import annotations

import numpy as np

import lamu
from benchmarks.latent.rows import digits, fitted, log_prob, told
from lamu.latent import models
from lamu.networks import MLP


def main(quick: bool) -> None:
    """Prints bounds and log densities of each size, and how their orders agree."""
    steps, sizes = (200, (2, 10)) if quick else (3_000, (1, 2, 5, 10, 20))
    print(f"chosen: bound and log p(y) of held-out digits in nats, {steps:,} steps (asked: both choose the same)")
    rows = digits()
    graphs = {f"{n} latents": models.VAE(n, 64, MLP((100,)), MLP((100,))) for n in sizes}
    graphs |= {
        f"{depth} layers": models.DeepLatentGaussian((10,) * depth, 64, (100,)) for depth in (1, 2, 3)[: len(sizes)]
    }
    bounds, densities = [], []
    for name, graph in graphs.items():
        posterior = fitted(graph, rows.train, 3e-3, steps)
        bound = lamu.scores.mean_bound(posterior, {"y": rows.test}, samples=20)
        density = log_prob(posterior, rows.test)
        print(f"  {name:12} bound {bound.value:7.2f} ± {bound.error:.2f}, log p {told(density)}", flush=True)
        bounds.append(bound.value)
        densities.append(density.mean())
    for what, part in (("latents", slice(0, len(sizes))), ("layers", slice(len(sizes), None))):
        same = int(np.argmax(bounds[part])) == int(np.argmax(densities[part]))
        print(f"  {what}: the bound and log p choose {'the same' if same else 'differently'}")
