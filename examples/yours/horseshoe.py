r"""A prior of one's own: the horseshoe, which shrinks small weights to zero and leaves large ones as they are.

$$ \theta \mid \lambda \sim N(0, \tau^2 \lambda^2), \quad \lambda \sim C^+(0, 1), \qquad
   p(\theta) = \frac{e^{u} E_1(u)}{\sqrt{2 \pi^3}\, \tau}, \quad u = \frac{\theta^2}{2 \tau^2} $$

A prior needs its log density; `sample` is for simulations. It is no Gaussian (`gaussian` returns None by default), so
every algorithm takes it through the loss.

    python examples/yours/horseshoe.py

Source: Carvalho, Polson & Scott (2010).
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, special

import lamu
from lamu import tree
from lamu.record import record


@record
class Horseshoe(lamu.priors.Prior):
    """Independent horseshoe weights.

    Attributes:
        scale: τ, the global scale.
    """

    scale: float = 1.0

    def log_prob(self, params):
        leaves = [jnp.sum(self._log_density(leaf)) for leaf in jax.tree.leaves(params)]
        return jnp.sum(jnp.stack(leaves))

    def sample(self, key, params):
        first, second = jax.random.split(key)
        cauchy = jax.tree.map(
            lambda k, a: jax.random.cauchy(k, a.shape, a.dtype), tree.keys_like(first, params), params
        )
        return jax.tree.map(lambda c, e: self.scale * jnp.abs(c) * e, cauchy, tree.normal(second, params))

    def _log_density(self, theta):
        # An integral over t = log λ, whose density is sech(t) / π, by the trapezoidal rule; exact to float32 except
        # near zero, where the density is infinite: without λ < e⁻⁵ it is finite there, as a sampler's step needs.
        t = np.linspace(-5.0, 12.0, 56, dtype=np.float32)
        log_weight = np.log((t[1] - t[0]) / np.pi / np.cosh(t))
        log_scale = t + jnp.log(self.scale)
        log_normal = -((theta[..., None] / jnp.exp(log_scale)) ** 2) / 2 - log_scale - 0.5 * np.log(2 * np.pi)
        return jax.scipy.special.logsumexp(log_weight + log_normal, axis=-1)


def by_quadrature(y, tau):
    """Returns E[θ | y] for y ~ N(θ, 1) under the horseshoe, an integral over κ = 1 / (1 + τ²λ²), by SciPy."""
    density = lambda k: (1 - k) ** -0.5 / (tau**2 * k + 1 - k) * np.exp(-k * y**2 / 2)
    norm = integrate.quad(density, 0, 1)[0]
    return (1 - integrate.quad(lambda k: k * density(k), 0, 1)[0] / norm) * y


if __name__ == "__main__":
    lamu.testing.check_prior(Horseshoe(1.0))  # every law that it must obey
    theta, prior = np.array([0.1, 0.3, 2.0, 30.0]), Horseshoe(1.0)
    u = theta**2 / 2
    scaled = np.where(u < 500, np.exp(np.minimum(u, 500)) * special.exp1(np.minimum(u, 500)), 1 / u - 1 / u**2)
    closed_form = np.log(scaled / (np.sqrt(2 * np.pi**3))).sum()
    print("log density beside SciPy's:", float(abs(prior.log_prob(jnp.asarray(theta)) - closed_form)))

    y = np.array([0.2, -1.0, 2.0, 4.0, -8.0], np.float32)  # each y ~ N(θ, 1), its own θ
    x = np.eye(len(y), dtype=np.float32)
    network, likelihood = lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=1.0)
    model = lamu.Model(network, likelihood, prior)
    nuts = lamu.mcmc.nuts(chains=2, warmup=300, draws=500)
    draws = lamu.fit(model, (x, y), nuts).posterior.samples["network"]
    mode = lamu.fit(model, (x, y), lamu.algorithms.adam(0.1), steps=2000, batch_size=len(y)).posterior
    normal = lamu.Model(network, likelihood, lamu.priors.Normal(1.0))
    ridge = lamu.fit(normal, (x, y), lamu.algorithms.conjugate()).posterior
    show = lambda name, values: print(f"{name:26}", " ".join(f"{float(value):6.2f}" for value in np.ravel(values)))
    show("y", y)
    show("E[θ | y], SciPy", [by_quadrature(each, 1.0) for each in y])
    show("E[θ | y], nuts", np.concatenate([np.reshape(leaf, (1000, -1)) for leaf in jax.tree.leaves(draws)], 1).mean(0))
    show("point estimate, adam", mode.predict(x).mean)
    show("E[θ | y], prior N(0, 1)", ridge.predict(x).mean)
