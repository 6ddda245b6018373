r"""A factor of one's own in a graph: the geometric distribution, $p(x \mid \pi) = \pi (1 - \pi)^x$.

A factor is a record of its arguments, with a log density that is affine in the statistics of each. Here
$E \log p = E\log\pi + x\, E\log(1 - \pi)$ is affine in those of a `Beta` variable, so that messages are exact: `vmp`,
`em`, `svi` and every query take it as one of the library's own.

    python examples/yours/geometric.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import lamu
from lamu.families import Beta
from lamu.graphs.expressions import Expression
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Chance, Observed
from lamu.record import record
from lamu.supports import Counts


@record
class Geometric(Factor):
    """Whole numbers from zero: failures before the first success."""

    probability: Expression

    kind = Observed  # the statistics of x: it is always observed
    fills = True  # `impute` draws what is missing, below
    support = Counts()

    def log_density(self, x, at, observed=None):
        p = self.probability.of_kind(Chance, at)
        return summed(p.log + jnp.asarray(x.value, p.log.dtype) * p.log_complement, observed)

    def predicted(self, at):
        p = self.probability.of_kind(Chance, at)
        odds = jnp.exp(p.log_complement - p.log)
        return odds, odds * (1 + odds)  # the mean and the variance, for `predict`

    def filled(self, key, value, at, observed):
        p = self.probability.of_kind(Chance, at)
        failure = jax.nn.sigmoid(p.log_complement - p.log)
        drawn = jnp.floor(jnp.log(jax.random.uniform(key, jnp.shape(value))) / jnp.log(failure))
        return jnp.where(observed, value, drawn)


def geometric(probability):
    """Returns the factor of a number, a variable or an expression."""
    return Geometric(argument(probability, Chance, "the probability of geometric"))


def model(m):
    """Three groups of rows, each with a success probability of its own."""
    chance = m.sample("chance", Beta(1.0, 1.0), plate=3)
    with m.rows():
        m.sample("failures", geometric(chance[m.data("group")]))


if __name__ == "__main__":
    random = np.random.default_rng(0)
    group = random.integers(0, 3, 300)
    failures = (random.geometric(np.array([0.2, 0.5, 0.8])[group]) - 1).astype(np.float32)
    failures[:20] = np.nan  # missing: they say nothing, and are filled in below
    data = {"group": group, "failures": failures}
    fit = lamu.fit(lamu.Graph(model), data, lamu.algorithms.vmp())
    seen = ~np.isnan(failures)
    successes = 1.0 + np.bincount(group[seen], minlength=3)
    losses = 1.0 + np.bincount(group[seen], failures[seen], minlength=3)
    evidence = np.sum(special.betaln(successes, losses))  # Beta(1, 1) has a log normaliser of zero
    means = np.asarray(fit.posterior.mean["network"]["chance"])
    print("E π beside the conjugate posterior:", means.round(4), (successes / (successes + losses)).round(4))
    print(f"log evidence {float(fit.posterior.evidence):.4f}, exactly {evidence:.4f}")
    assert np.allclose(means, successes / (successes + losses), atol=1e-5)
    assert np.isclose(float(fit.posterior.evidence), evidence, rtol=1e-5)
    drawn = lamu.latent.impute(fit.posterior, data, jax.random.key(0), draws=500)["failures"][:, :20]
    due = losses / np.maximum(successes - 1, 1e-9)  # E[(1 − π) / π]
    filled = [float(drawn[:, group[:20] == k].mean()) for k in range(3)]
    print("mean of what is filled in, by group:", np.round(filled, 2), "expected", due.round(2))
