"""How many bits is a digit? The bits-back code of a VAE beside its bound, and beside codes without a model.

A VAE of scikit-learn's digits in black and white codes 300 of them losslessly. The length is the bound: the script
prints both, with the lengths of a code that knows each pixel's share of ink, of one bit a pixel, and of LZMA.

    python examples/code_lengths.py [folder for the picture]
"""

import lzma
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import lamu
from lamu.latent import BitsBack, Stack, models
from lamu.networks import MLP

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
x, _ = lamu.data.load("digits")
pixels = (np.asarray(x).reshape(len(x), -1) > 0.5 * np.max(x)).astype(np.float32)
order = np.random.default_rng(0).permutation(len(pixels))
train, test = pixels[order[:1400]], pixels[order[1400:1700]]

network = MLP((100,))
adam = lamu.algorithms.adam(lamu.rate.Annealed(3e-3))
posterior = lamu.fit(models.VAE(8, 64, network, network), {"y": train}, adam, steps=1500, batch_size=128).posterior
code, symbols = BitsBack.of(posterior), test.astype(int)
stack = Stack(np.random.default_rng(0).integers(0, 1 << 32, 100).tolist())
lengths, before = [], stack.bits
for row in symbols:
    code.encode(stack, row[None])
    lengths.append(stack.bits - before)
    before = stack.bits
assert np.array_equal(code.decode(stack, len(symbols)), symbols), "the code is lossless"

share = np.clip(train.mean(0), 1e-3, 1 - 1e-3)
found = {
    "one bit a pixel": 64.0,
    "LZMA, all at once": 8 * len(lzma.compress(np.packbits(symbols).tobytes())) / len(symbols),
    "each pixel's share of ink": -np.mean(np.log2(np.where(symbols, share, 1 - share)).sum(1)),
    "VAE, bits back": np.mean(lengths),
    "its bound": -lamu.scores.mean_log_prob(posterior, {"y": test}, samples=1).value / np.log(2),
}
for name, bits in found.items():
    print(f"{name:26} {bits:6.2f} bits a digit")

figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
axes.barh(list(found)[::-1], list(found.values())[::-1], color="0.6")
axes.set_xlabel("bits a digit, lossless")
figure.savefig(folder / "code_lengths.png")
