r"""A sampler of one's own: Barker's proposal, which follows the gradient and forgives a step size that is too large.

From $\theta$ draw $z \sim N(0, \eta^2)$ for every coordinate, and step by $+z$ with probability
$\sigma(z\, \partial \log \pi)$, else by $-z$. A step s is accepted with probability

$$ \min\Bigl(1, \frac{\pi(\theta + s)}{\pi(\theta)} \prod_j
   \frac{\sigma(-s_j\, \partial_j \log \pi(\theta + s))}{\sigma(s_j\, \partial_j \log \pi(\theta))} \Bigr) $$

A kernel says how one chain moves; warm-up, chains side by side, draws and warnings are the library's.

    python examples/yours/barker.py
    lamu fit diabetes --algorithm barker:barker --out run   # in this folder

Source: Livingstone & Zanella (2022).
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu import tree
from lamu.mcmc.chains import Chain, Kernel, chains_of, metropolis
from lamu.record import record


@record
class Barker(Kernel):
    """Moves by noise whose sign follows the gradient, and tests them."""

    geometry = "Barker's proposal"

    def begin(self, position, target):
        return Chain.at(position, target)  # with its gradient, as one vector

    def move(self, key, chain, target, step_size, inverse_mass, warming):
        noise_key, sign_key, accept_key = jax.random.split(key, 3)
        vector, unravel = tree.ravel(chain.position)
        noise = step_size * jnp.sqrt(inverse_mass) * jax.random.normal(noise_key, vector.shape, vector.dtype)
        uphill = jax.random.bernoulli(sign_key, jax.nn.sigmoid(noise * chain.gradient))
        step = jnp.where(uphill, noise, -noise)
        new = self.begin(unravel(vector + step), target)
        back, forth = jax.nn.log_sigmoid(-step * new.gradient), jax.nn.log_sigmoid(step * chain.gradient)
        log_ratio = new.log_density - chain.log_density + jnp.sum(back - forth)
        chain, acceptance = metropolis(accept_key, log_ratio, new, chain)
        return chain, {"acceptance": acceptance}


def barker(chains=4, warmup=500, draws=1000, target_acceptance=0.4, step_size=None, start=None, thinning=1):
    """Returns the sampler; the warm-up learns the step size and the variances of the parameters."""
    return chains_of(Barker(), chains, warmup, draws, target_acceptance, step_size, start, thinning)


if __name__ == "__main__":
    lamu.testing.check_kernel(Barker())  # every law that it must obey
    x, y = lamu.data.load("diabetes")
    x = x[:, 2:5]  # three columns that chains mix well on
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
    exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior.predict(x)
    for name, sampler in (("Barker", barker(chains=2)), ("MALA", lamu.mcmc.mala(chains=2, warmup=500, draws=1000))):
        pred = lamu.fit(model, (x, y), sampler).posterior.predict(x, samples=500)
        mean = float(np.sqrt(np.mean((pred.mean - exact.mean) ** 2 / exact.epistemic)))
        width = float(np.sqrt(np.mean(pred.epistemic / exact.epistemic)))
        print(
            f"{name:7} the mean {mean:.2f} posterior deviations from the exact one, the deviation {width:.2f} times it"
        )
