r"""A likelihood of one's own: counts, with the logarithm of the rate for output, $y \sim \text{Poisson}(e^f)$.

A distribution of NumPyro is enough: density, moments, draws and the distribution function are the distribution's, and
the Fisher information, here $e^f$, follows by automatic differentiation. The support says that targets are
whole numbers from zero, which are neither shifted nor scaled, and whose quantiles are whole numbers.

    python examples/yours/poisson.py
    lamu fit counts.csv --target y --algorithm ivon --likelihood poisson:Poisson --out run   # in this folder
"""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import optimize, stats

import lamu
from lamu.record import record


@record
class Poisson(lamu.likelihoods.Likelihood):
    """Counts, with one output: the logarithm of the rate."""

    support = lamu.supports.Counts()
    log_concave = True

    def distribution(self, params, f):
        return dist.Poisson(jnp.exp(f[:, 0]))


def counts(rows=300):
    """Returns inputs and counts whose log rate is 1 + 0.8 x₁ − 0.5 x₂."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 2)).astype(np.float32)
    return x, random.poisson(np.exp(1 + x @ [0.8, -0.5]))


def by_scipy(x, y):
    """Returns the mode and the standard deviations by Laplace's method, under the prior N(0, 1): w₁, w₂, bias."""
    design = np.c_[x, np.ones(len(x))].astype(float)
    loss = lambda w: -stats.poisson.logpmf(y, np.exp(design @ w)).sum() + w @ w / 2
    mode = optimize.minimize(loss, np.zeros(3), tol=1e-10).x
    hessian = design.T @ (np.exp(design @ mode)[:, None] * design) + np.eye(3)
    return mode, np.sqrt(np.diag(np.linalg.inv(hessian)))


def weights(params):
    """Returns draws of w₁, w₂ and the bias, `[draws, 3]`."""
    layer = params["network"]["layers"][0]
    return np.concatenate([np.reshape(layer["kernel"], (-1, 2)), np.reshape(layer["bias"], (-1, 1))], axis=1)


if __name__ == "__main__":
    lamu.testing.check_likelihood(Poisson())  # every law that it must obey
    f, y = jnp.array([[0.0], [1.0], [2.0]]), jnp.array([0, 2, 9])
    closed_form = stats.poisson.logpmf(np.asarray(y), np.exp(np.asarray(f[:, 0])))
    print("largest error of log p(y | f):", float(np.abs(Poisson().log_prob({}, f, y) - closed_form).max()))
    print(
        "largest relative error of the information:",
        float(np.abs(Poisson().information({}, f).ravel() / np.exp(f[:, 0]) - 1).max()),
    )

    x, y = counts()
    model = lamu.Model(lamu.networks.Linear(), Poisson())
    mode, deviation = by_scipy(x, y)
    # IVON's precision is diagonal: its deviations are those of a weight given the others, and smaller.
    print(f"{'SciPy, Laplace':15} mean {mode.round(3)} sd {deviation.round(3)}")
    for name, algorithm, length in (
        ("ivon", lamu.algorithms.ivon(), {"epochs": 300}),
        ("laplace", lamu.algorithms.laplace(), {"epochs": 300}),
        ("nuts", lamu.mcmc.nuts(chains=2, warmup=300, draws=500), {}),
    ):
        posterior = lamu.fit(model, (x, y), algorithm, **length).posterior
        drawn = posterior.samples if name == "nuts" else posterior.sample(posterior.key, 4000)
        theta = weights(drawn)
        print(f"{name:15} mean {theta.mean(0).round(3)} sd {theta.std(0).round(3)}")

    pred = posterior.predict(x)
    lower, upper = pred.interval(0.9)
    held = np.mean((y >= lower) & (y <= upper))
    print(f"90 % intervals hold {held:.2f} of the counts; nll {lamu.scores.nll(pred, y):.3f}")
    folder = posterior.save(Path(tempfile.mkdtemp()) / "posterior")
    print("loaded, the same predictions:", bool((lamu.load(folder).predict(x).mean == pred.mean).all()))
