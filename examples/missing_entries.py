"""Factor analysis of a table of which a fifth is missing: holes are filled in, with error bars.

The wine data, 178 rows of 13 measurements, standardised; a fifth of the entries is taken out at random. Factor analysis
is fitted to what is left, NaN and all, and predicts what was taken out. The script prints the error beside that of the
column means, how often the true value lies within two standard deviations, and how many factors have survived.

    python examples/missing_entries.py [picture.png]
"""

import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import lamu
from lamu.graphs import models

jax.config.update("jax_enable_x64", True)
FACTORS, SWEEPS = 6, 3000

whole = np.asarray(lamu.data.load("wine")[0], float)
whole = (whole - whole.mean(0)) / whole.std(0)
gone = np.random.default_rng(0).uniform(size=whole.shape) < 0.2
holes = np.where(gone, np.nan, whole)

graph = models.FactorAnalysis(FACTORS, whole.shape[1])
posterior = lamu.fit(graph, {"y": holes}, lamu.algorithms.vmp(), steps=SWEEPS).posterior
completed = posterior.predict({"y": holes})

away = (np.asarray(completed.mean) - whole)[gone]
std = np.asarray(completed.std)[gone]
print(f"{gone.sum()} of {gone.size} entries taken out")
plain, ours = np.sqrt(np.mean(whole[gone] ** 2)), np.sqrt(np.mean(away**2))
print(f"root mean square error: column means {plain:.3f}, factors {ours:.3f}")
print(f"within two standard deviations: {np.mean(np.abs(away) < 2 * std):.0%}")
size = np.linalg.norm(np.asarray(posterior.mean["network"]["W"]), axis=0)
print("length of each factor's loadings:", " ".join(f"{s:.2f}" for s in np.sort(size)[::-1]))

if len(sys.argv) > 1:
    figure, axes = plt.subplots(figsize=(4.5, 4.5))
    axes.errorbar(
        whole[gone],
        np.asarray(completed.mean)[gone],
        2 * std,
        fmt="o",
        markersize=2.5,
        ecolor="lightsteelblue",
        elinewidth=0.4,
    )
    axes.axline((0, 0), slope=1, color="black", linewidth=0.8)
    axes.set(xlabel="entry taken out (standard deviations)", ylabel="prediction, two standard deviations")
    figure.tight_layout()
    figure.savefig(sys.argv[1], dpi=150)
