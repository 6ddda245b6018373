r"""A bound of one's own for latent variables: the evidence lower bound from pairs of draws on both sides of the mean.

Of a belief that is symmetric about its mean m, $2m - z$ is a draw as good as z. What is odd in z cancels in a pair,

$$ \mathcal L = E_q\, \tfrac12 \bigl( \log w(z) + \log w(2m - z) \bigr), \qquad w(z) = \frac{p(y, z)}{q(z)}, $$

so that the same two densities a row have less noise than with two independent draws. A bound is a record with
`of_row(key, joint, belief, weight)`, a scalar for one row; rows, N and the temperature are the library's.

    python examples/yours/antithetic.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu import tree
from lamu.families import Gaussian
from lamu.latent import ELBO, Bound
from lamu.latent.bounds import RowJoint
from lamu.operators import Diagonal
from lamu.record import record


@record
class Antithetic(Bound):
    """The evidence lower bound from one pair of antithetic draws."""

    def of_row(self, key, joint, belief, weight=1.0):
        draw_key, first_key, second_key = jax.random.split(key, 3)
        z = belief.sample(draw_key)
        mirrored = tree.add(tree.scale(belief.mean, 2.0), z, -1.0)

        def log_weight(z, key):
            return joint.log_likelihood(z, key) + weight * (joint.log_prior(z) - belief.log_prob(z))

        return (log_weight(z, first_key) + log_weight(mirrored, second_key)) / 2


if __name__ == "__main__":
    # One row with a known answer: z ~ N(0, I), y | z ~ N(a·z, 1), and a belief that is not the posterior.
    a, y = jnp.array([1.0, -2.0]), 1.5
    prior = Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))
    belief = Gaussian(jnp.array([0.2, -0.5]), Diagonal(jnp.array([2.0, 4.0])))
    joint = RowJoint(prior, lambda z: jax.scipy.stats.norm.logpdf(y, a @ z, 1.0))
    variance = jnp.array([0.5, 0.25])
    likely = -0.5 * jnp.log(2 * jnp.pi) - ((y - a @ belief.mean) ** 2 + jnp.sum(a**2 * variance)) / 2
    exact = float(likely - joint.divergence(belief))
    log_evidence = float(jax.scipy.stats.norm.logpdf(y, 0.0, jnp.sqrt(1 + a @ a)))
    print(f"log p(y) {log_evidence:.4f}, the bound {exact:.4f}")
    for name, bound in (("two draws", ELBO(2)), ("a pair", Antithetic())):
        values = jax.vmap(lambda key, bound=bound: bound.of_row(key, joint, belief))(
            jax.random.split(jax.random.key(0), 20_000)
        )
        error = float(values.std() / np.sqrt(len(values)))
        print(
            f"{name:10} {float(values.mean()):.4f} ± {error:.4f}, deviation of one estimate {float(values.std()):.3f}"
        )
        assert abs(float(values.mean()) - exact) < 5 * error

    x, _ = lamu.data.load("iris")
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    linear, noise = lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.5)
    graph = lamu.latent.models.VAE(2, 4, linear, linear, noise, bound=Antithetic())
    fit = lamu.fit(graph, {"y": x}, lamu.algorithms.adam(lamu.rate.Annealed(0.02)), steps=300, batch_size=50)
    print(f"an autoencoder learns by it: the bound of a row {-np.mean(fit.history['loss'][-100:]):.3f} nats")
