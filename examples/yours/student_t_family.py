r"""A family of one's own: Student's t, coordinate by coordinate, $\theta = m + s z$ with $z \sim t_\nu$.

Where a posterior has heavy tails, so should the belief. A location–scale family needs the law of z alone: a draw, the
log density and the entropy. `lamu.families.location_scale.LocationScale` is the belief, with location and scale, and
`bayes_by_backprop` learns both by reparameterised gradients. The records are saved and loaded like the library's own.

    python examples/yours/student_t_family.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import digamma, gammaln
from scipy import stats

import lamu
from lamu import tree
from lamu.families.location_scale import StandardNormal
from lamu.record import record, static


@record
class StudentT:
    """Independent coordinates with Student's t distribution.

    Attributes:
        df: the degrees of freedom ν; the smaller, the heavier the tails.
    """

    df: float = static(default=4.0)

    symmetric = True

    def draw(self, key, like):
        return jax.tree.map(lambda k, a: jax.random.t(k, self.df, a.shape, a.dtype), tree.keys_like(key, like), like)

    def log_prob(self, z):
        nu = self.df
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - jnp.log(nu * jnp.pi) / 2
        leaf = lambda a: jnp.sum(constant - (nu + 1) / 2 * jnp.log1p(a**2 / nu))
        return sum(jax.tree.leaves(jax.tree.map(leaf, z)))

    def entropy(self, like):
        nu = self.df
        log_beta = gammaln(nu / 2) + gammaln(0.5) - gammaln((nu + 1) / 2)
        one = (nu + 1) / 2 * (digamma((nu + 1) / 2) - digamma(nu / 2)) + jnp.log(nu) / 2 + log_beta
        return one * tree.dimension(like)

    def centre(self, like):
        return tree.zeros_like(like)


TRUE = stats.t(4.0, loc=np.array([1.0, -2.0]), scale=np.array([0.5, 2.0]))


def density(theta):
    """Returns the log density of two independent coordinates, each of Student's t with four degrees of freedom."""
    z = (theta - jnp.array([1.0, -2.0])) / jnp.array([0.5, 2.0])
    return StudentT(4.0).log_prob(z) - jnp.log(0.5) - jnp.log(2.0)


if __name__ == "__main__":
    z = np.linspace(-5.0, 5.0, 11)
    print("log density beside SciPy's:", float(abs(StudentT().log_prob(jnp.asarray(z)) - stats.t(4.0).logpdf(z).sum())))
    print("entropy beside SciPy's:", float(abs(StudentT().entropy(jnp.zeros(1)) - stats.t(4.0).entropy())))

    target = lamu.LogDensity(density, jnp.zeros(2))
    print(f"{'the density':20} location [ 1.   -2.  ] scale [0.5  2.  ]")
    for name, shape in (("Student's t belief", StudentT(4.0)), ("Gaussian belief", StandardNormal())):
        algorithm = lamu.algorithms.bayes_by_backprop(optax.adam(0.02), samples=16, base_distribution=shape)
        posterior = lamu.fit(target, None, algorithm, steps=2000).posterior
        draws = np.asarray(posterior.sample(jax.random.key(0), 20_000)["network"])
        wide = np.quantile(draws, 0.999, axis=0)
        low, high = np.quantile(draws, [0.25, 0.75], axis=0)
        print(f"{name:20} quartiles {low.round(2)} {high.round(2)}, 99.9 % quantile {wide.round(1)}")
    low, high, wide = (TRUE.ppf(level) for level in (0.25, 0.75, 0.999))
    print(f"{'SciPy':20} quartiles {low.round(2)} {high.round(2)}, 99.9 % quantile {wide.round(1)}")
