"""Bits back: the length of a lossless code of digits beside the bound of the model that codes them."""

from __future__ import annotations

import jax
import numpy as np

from benchmarks.latent.rows import digits, fitted
from lamu.latent import BitsBack, Stack, models
from lamu.networks import MLP

LATENTS = 8


def main(quick: bool) -> None:
    """Prints both lengths, and that decoding returns the rows."""
    print("coding: bits back on digits (asked: lossless, within 1 % of the bound)")
    rows = digits()
    posterior = fitted(models.VAE(LATENTS, 64, MLP((100,)), MLP((100,))), rows.train, 3e-3, 300 if quick else 1500)
    code, y = BitsBack.of(posterior), rows.test.astype(int)[: 50 if quick else None]
    stack = Stack(np.random.default_rng(0).integers(0, 1 << 32, 200).tolist())
    before, words = stack.bits, list(stack.words)
    code.encode(stack, y)
    length = (stack.bits - before) / len(y)
    lossless = np.array_equal(code.decode(stack, len(y)), y) and stack.words == words
    bounds = [np.mean(posterior.log_prob({"y": rows.test[: len(y)]}, 1, jax.random.key(k))) for k in range(40)]
    bound, error = -np.mean(bounds) / np.log(2), np.std(bounds) / np.log(2) / len(bounds) ** 0.5
    print(
        f"  {len(y)} digits: {length:.3f} bits a digit, the bound {bound:.3f} ± {error:.3f}, "
        f"{length / bound - 1:+.2%}; {'lossless' if lossless else 'NOT lossless'}",
        flush=True,
    )
