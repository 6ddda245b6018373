"""What is behind the blot? Hidden halves of clothes filled in by a VAE, and by factor analysis on as many rows.

Both learn from 2,000 images of Fashion-MNIST, averaged to 14 x 14 pixels. New images lack their lower half, or all but
a fifth or a tenth of their pixels. The script prints the mean squared error of what is filled in beside that of the
average image, and how many hidden pixels lie in the VAE's 90 % intervals. It writes a picture.

    LAMU_DATA=folder python examples/imputation.py [folder for the picture]

where folder/images/fashion_mnist.npz has X_train and X_test. Without it scikit-learn's digits stand in their place.
"""

import os
import sys
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import lamu
from lamu import graphs, latent
from lamu.networks import MLP

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
archive = Path(os.environ.get("LAMU_DATA", ".")) / "images" / "fashion_mnist.npz"
if archive.exists():
    with np.load(archive) as images:
        parts = [images[name][:count] / 255.0 for name, count in (("X_train", 2000), ("X_test", 60))]
    train, test = (part.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196) for part in parts)
else:
    digits = np.asarray(lamu.data.load("digits")[0]).reshape(-1, 64)
    digits = digits / digits.max()
    train, test = digits[:1500], digits[1500:1560]
pixels, side = train.shape[1], int(train.shape[1] ** 0.5)
random = np.random.default_rng(0)
noise = lambda x: x + 0.02 * random.normal(size=x.shape)  # no pixel is constant
center = train.mean(0)
rows = (noise(train) - center).astype(np.float32)

network, adam = MLP((200,)), lamu.algorithms.adam(lamu.rate.Annealed(2e-3))
one_noise = lamu.likelihoods.Gaussian(scale=0.15)  # of its own for each, the margin would outweigh all other pixels
vae = latent.models.VAE(16, pixels, network, network, likelihood=one_noise)
posterior = lamu.fit(vae, {"y": rows}, adam, steps=4000, batch_size=100).posterior
analysis = graphs.models.FactorAnalysis(16, pixels)
factors = lamu.fit(analysis, {"y": rows}, lamu.algorithms.vmp(), steps=30).posterior

figure = Figure(figsize=(10, 6.4), layout="constrained")
panels = figure.subplots(6, 9)
masks = {
    "lower half hidden": np.broadcast_to(np.arange(pixels) < pixels // 2, test.shape),
    "a fifth seen": random.uniform(size=test.shape) < 0.2,
    "a tenth seen": random.uniform(size=test.shape) < 0.1,
}
for number, (name, seen) in enumerate(masks.items()):
    holes = np.where(seen, noise(test) - center, np.nan).astype(np.float32)
    draws = np.asarray(latent.impute(posterior, {"y": holes}, jax.random.key(0), draws=100, warmup=200)["y"]) + center
    filled = {
        "VAE": draws.mean(0),
        "factor analysis": np.asarray(factors.predict({"y": holes}).mean) + center,
        "average image": np.broadcast_to(center, test.shape),
    }
    errors = {who: np.mean((image - test)[~seen] ** 2) for who, image in filled.items()}
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    inside = np.mean(((low <= test) & (test <= high))[~seen])
    print(f"{name}: squared error " + ", ".join(f"{who} {error:.4f}" for who, error in errors.items()))
    print(f"  90 % intervals of the VAE cover {inside:.0%} of the hidden pixels")
    for column in range(3):
        show = 11 * column + 3
        images = (np.where(seen, test, np.nan)[show], filled["VAE"][show], filled["factor analysis"][show])
        images = (*images, draws[50][show], draws[99][show], test[show])
        for row, (title, image) in enumerate(
            zip(("seen", "VAE", "factors", "a draw", "a draw", "true"), images, strict=True)
        ):
            axes = panels[row, 3 * number + column]
            axes.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[], facecolor="lightsteelblue")
            if column == 0:
                axes.set_ylabel(title)
        panels[0, 3 * number].set_title(name, loc="left", fontsize=9)
figure.savefig(folder / "imputation.png")
