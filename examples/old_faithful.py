"""How many kinds of eruption has Old Faithful? A mixture that lets superfluous components die.

Six components with a Dirichlet(0.001) prior of their weights, five random starts, variational message passing. Every
start ends at two components, of the weights 0.643 and 0.357, and at the same bound of the log evidence. The data are
272 eruptions (length, and minutes until the next), standardised; the folder LAMU_DATA holds them in
`rdatasets/faithful.csv`. Without it the script says so and ends.

    LAMU_DATA=folder python examples/old_faithful.py
"""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu import graphs
from lamu.families import Dirichlet, NormalWishart

jax.config.update("jax_enable_x64", True)
file = Path(os.environ.get("LAMU_DATA", "")) / "rdatasets" / "faithful.csv"
if not file.exists():
    print("set LAMU_DATA to the folder of the data sets, which holds rdatasets/faithful.csv")
    sys.exit()

table = np.genfromtxt(file, delimiter=",", names=True, dtype=None, encoding="utf8")
y = np.stack([table["eruptions"], table["waiting"]], axis=1).astype(float)
centre, spread = y.mean(0), y.std(0)
y = (y - centre) / spread


def mixture(m):
    weight = m.sample("weight", Dirichlet(jnp.full(6, 1e-3)))
    part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 2.0, jnp.eye(2)), plate=6)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.MultivariateNormal(part[z]))


print("start   weights          bound (nats)   sweeps that raised it")
for seed in range(5):
    fit = lamu.fit(lamu.Graph(mixture), {"y": y}, lamu.algorithms.vmp(), seed=seed)
    weight = np.sort(np.asarray(fit.posterior.mean["network"]["weight"]))[::-1]
    np.testing.assert_allclose(weight[:2], [0.643, 0.357], atol=5e-4)
    np.testing.assert_allclose(float(fit.posterior.evidence), -443.298, atol=1e-3)
    raised = int(np.sum(np.diff(fit.history["loss"]) < 0))
    print(f"{seed:5}   {weight[0]:.3f}  {weight[1]:.3f}     {float(fit.posterior.evidence):10.3f}   {raised:8}")

found = fit.posterior.mean["network"]
for k in np.argsort(-np.asarray(found["weight"]))[:2]:
    minutes, wait = np.asarray(found["part"]["mean"][k]) * spread + centre
    print(
        f"{float(found['weight'][k]):.0%} of eruptions last {minutes:.1f} minutes, and the next comes after {wait:.0f}"
    )
short = {"y": (np.array([[2.0, 80.0]]) - centre) / spread}
print(f"an eruption of 2 minutes before 80: log density {float(fit.posterior.log_prob(short)[0]):.1f} nats")
