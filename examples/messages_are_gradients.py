"""Every message of a conjugate model is the gradient of one function, and nothing is derived by hand.

A mixture of three Gaussians for the iris data is written as a program. F is the expected log joint of its factors, a
function of expected statistics. Its gradient in the statistics of the weights and of the components, with the latent
category of each row at its best, is the natural parameter of their next beliefs: one line in the place of a page of
updates. The script takes scikit-learn's third iterate, makes one such step, and prints how far it is from the fourth.

    python examples/messages_are_gradients.py
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.mixture import BayesianGaussianMixture

import lamu
from lamu import graphs
from lamu.families import Dirichlet, NormalWishart

jax.config.update("jax_enable_x64", True)
K, D = 3, 4


def mixture(m):
    weight = m.sample("weight", Dirichlet(jnp.full(K, 0.5)))
    part = m.sample("part", NormalWishart(jnp.zeros(D), 1.0, 6.0, jnp.eye(D)), plate=K)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.MultivariateNormal(part[z]))


def iterate(y, count):
    """Returns scikit-learn's beliefs after so many iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that four iterations have not converged
        found = BayesianGaussianMixture(
            n_components=K,
            weight_concentration_prior_type="dirichlet_distribution",
            weight_concentration_prior=0.5,
            mean_prior=np.zeros(D),
            mean_precision_prior=1.0,
            degrees_of_freedom_prior=6.0,
            covariance_prior=np.eye(D),
            reg_covar=0.0,
            max_iter=count,
            random_state=0,
        ).fit(y)
    scale = found.covariances_ * found.degrees_of_freedom_[:, None, None]
    part = (found.means_, found.mean_precision_, found.degrees_of_freedom_, scale)
    return {
        "weight": Dirichlet(jnp.asarray(found.weight_concentration_)),
        "part": NormalWishart(*map(jnp.asarray, part)),
    }


y = np.asarray(lamu.data.load("iris")[0], float)
y = (y - y.mean(0)) / y.std(0)
graph = lamu.Graph(mixture)
batch = graph.read({"y": y}).full()


def F(statistics):
    """The expected log joint of all rows and parameters, with every row's category at its best."""
    return jnp.sum(graph.row_bounds(statistics, batch)) + graph.shared_log_joint(statistics)


third, fourth = iterate(y, 3), iterate(y, 4)
messages = jax.jit(jax.grad(F))(graph.moments(third))
new = {name: natural.belief() for name, natural in messages.items()}

print("one gradient from scikit-learn's third iterate, beside its fourth:")
for name, field in (("weight", "concentration"), ("part", "location"), ("part", "degrees"), ("part", "scale_inverse")):
    mine, theirs = (np.asarray(getattr(beliefs[name], field)) for beliefs in (new, fourth))
    print(f"  {name:6} {field:14} largest difference {np.abs(mine - theirs).max():.1e}")
