"""A linear VAE beside probabilistic principal components, of which the largest likelihood is known in closed form."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal

import lamu
from lamu import graphs, latent
from lamu.networks import Linear

K = 3


def main(quick: bool) -> None:
    """Prints the loss in log likelihood and the angle between the subspaces."""
    print("linear: a linear VAE beside PPCA (asked: within 0.01 nats a row, an angle below 1 degree)")
    x, _ = lamu.data.load("wine")
    y = (np.asarray(x) - np.mean(x, axis=0)) / np.std(x, axis=0)
    N, D = y.shape
    spectrum, axes = np.linalg.eigh(y.T @ y / N)
    noise = spectrum[: D - K].mean() ** 0.5
    best = axes[:, -K:] * np.sqrt(spectrum[-K:] - noise**2)

    def program(m: graphs.Program) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=D)
        with m.rows():
            z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=noise)(decode(z)))

    graph = lamu.Graph(program, local={"z": latent.Amortised(Linear())}, prior=lamu.priors.Normal(100.0))
    adam = lamu.algorithms.adam(lamu.rate.Annealed(0.05))
    posterior = lamu.fit(graph, {"y": y}, adam, steps=1000 if quick else 4000, batch_size=N).posterior
    found = np.asarray(posterior.mean["network"]["decode"]["layers"][0]["kernel"]).T

    def log_likelihood(loadings: np.ndarray) -> float:
        return multivariate_normal(np.zeros(D), loadings @ loadings.T + noise**2 * np.eye(D)).logpdf(y).mean()

    loss, angle = log_likelihood(best) - log_likelihood(found), np.degrees(subspace_angles(best, found)).max()
    print(
        f"  wine, {N} × {D}, {K} latents: {loss:.4f} nats a row below PPCA, largest angle {angle:.2f} degrees",
        flush=True,
    )
