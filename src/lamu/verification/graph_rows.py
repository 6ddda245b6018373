"""The checks of algorithms on graphs, each in float64, beside scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.algorithms.closed_form.em import EmState, em
from lamu.algorithms.closed_form.ncvmp import ncvmp
from lamu.algorithms.closed_form.vmp import VmpState, vmp
from lamu.data import load
from lamu.families import Dirichlet, NormalWishart
from lamu.families import MultivariateNormal as FullNormal
from lamu.graphs import Categorical, Graph, MultivariateNormal, Program
from lamu.likelihoods import Bernoulli
from lamu.objective import Objective
from lamu.verification.check import Check

__all__ = ["graph_rows", "iris_mixture"]

K, D = 3, 4


def graph_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of what they check; each is a function without arguments."""
    return {"vmp": _vmp, "em": _em, "ncvmp": _ncvmp}


def iris_mixture(concentration: float, prior: NormalWishart) -> Graph:
    """Returns a mixture of three Gaussians with full covariances for the iris data."""

    def program(m: Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.full(K, concentration)))
        part = m.sample("part", prior, plate=K)
        with m.rows():
            z = m.sample("z", Categorical(weight))
            m.sample("y", MultivariateNormal(part[z]))

    return Graph(program)


def _vmp() -> Check:
    from sklearn.mixture import BayesianGaussianMixture

    x = np.asarray(load("iris")[0], float)

    def after(iterations: int) -> dict[str, Any]:
        known: dict[str, Any] = {"weight_concentration_prior": 0.7, "mean_prior": np.zeros(D), "reg_covar": 0.0}
        known |= {"mean_precision_prior": 0.5, "degrees_of_freedom_prior": 6.0, "covariance_prior": 2.0 * np.eye(D)}
        known["weight_concentration_prior_type"] = "dirichlet_distribution"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that four iterations have not converged
            found = BayesianGaussianMixture(
                n_components=K,
                max_iter=iterations,
                tol=0.0,
                random_state=0,
                **known,
            ).fit(x)
        scale = found.covariances_ * found.degrees_of_freedom_[:, None, None]
        fields = (found.means_, found.mean_precision_, found.degrees_of_freedom_, scale)
        part = NormalWishart(*map(jnp.asarray, fields))
        return {"part": part, "weight": Dirichlet(jnp.asarray(found.weight_concentration_))}

    graph = iris_mixture(0.7, NormalWishart(jnp.zeros(D), 0.5, 6.0, 2.0 * jnp.eye(D)))
    start = jax.tree.map(lambda leaf: leaf[None], after(3))
    number = jnp.zeros(1)
    state = VmpState(start, number, number, number, number > 0)
    batch = graph.read({"y": x}).full()
    state, _ = jax.jit(vmp().step)(jax.random.key(0), state, batch, Objective(graph, len(x)))
    deviation = _distance(jax.tree.map(lambda leaf: leaf[0], state.beliefs), after(4))
    return Check("vmp", "iteration 4 of scikit-learn's BayesianGaussianMixture from its iteration 3", deviation, 1e-9)


def _em() -> Check:
    from sklearn.mixture import GaussianMixture

    x = np.asarray(load("iris")[0], float)
    means = x[[0, 60, 120]]
    graph = iris_mixture(1.0, NormalWishart(jnp.zeros(D), 1e-12, float(D), 1e-13 * jnp.eye(D)))
    part = {"mean": jnp.asarray(means), "precision": jnp.stack([jnp.eye(D)] * K)}
    none, theta = jnp.full(1, -jnp.inf), {"weight": jnp.full(K, 1.0 / K), "part": part}
    state = EmState(jax.tree.map(lambda leaf: leaf[None], theta), none, none, jnp.zeros(1, bool))
    step, batch, deviation = jax.jit(em().step), graph.read({"y": x}).full(), 0.0
    for iteration in range(1, 4):
        state, _ = step(jax.random.key(0), state, batch, Objective(graph, len(x)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that so few iterations have not converged
            other = GaussianMixture(
                K,
                max_iter=iteration,
                tol=0.0,
                reg_covar=0.0,
                means_init=means,
                weights_init=np.full(K, 1.0 / K),
                precisions_init=np.stack([np.eye(D)] * K),
            ).fit(x)
        theirs = {"weight": other.weights_, "part": {"mean": other.means_, "precision": other.precisions_}}
        deviation = max(deviation, _distance(jax.tree.map(lambda leaf: leaf[0], state.theta), theirs))
    return Check("em", "scikit-learn's GaussianMixture, three iterates, each", deviation, 1e-7)


def _ncvmp() -> Check:
    from scipy import optimize

    x, y = load("breast_cancer")
    x = np.asarray(x[:200, [0, 1, 4]], float)
    x, y = (x - x.mean(0)) / x.std(0), np.asarray(y[:200], float)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    lower = np.tril_indices(3)

    def negative_bound(v: np.ndarray) -> float:
        """Of a Gaussian with the mean v and a factor of the covariance, logarithms on its diagonal."""
        L = np.zeros((3, 3))
        L[lower] = v[3:]
        diagonal = np.exp(np.diag(L))
        L[np.diag_indices(3)] = diagonal
        m, s = x @ v[:3], np.linalg.norm(x @ L, axis=1)
        f = m[:, None] + s[:, None] * nodes
        likely = np.sum((y[:, None] * f - np.logaddexp(0.0, f)) @ weights)
        return float((v[:3] @ v[:3] + np.sum(L**2)) / 2 - likely - np.sum(np.log(diagonal)))

    best = optimize.minimize(negative_bound, np.zeros(9), method="BFGS", options={"gtol": 1e-7})

    def program(m: Program) -> None:
        w = m.sample("w", FullNormal(jnp.zeros(3), jnp.eye(3)))
        with m.rows():
            m.sample("y", Bernoulli()(m.data("x") @ w))

    graph, algorithm = Graph(program), ncvmp(tolerance=0.0)
    batch = graph.read({"x": x, "y": y}).full()
    objective = Objective(graph, len(x))
    state = algorithm.init(jax.random.key(0), objective, batch)
    step = jax.jit(algorithm.step)
    for _ in range(100):
        state, _ = step(jax.random.key(1), state, batch, objective)
    found = jax.tree.map(lambda leaf: leaf[0], state.beliefs)["w"]
    deviation = float(np.max(np.abs(np.asarray(found.mean) - best.x[:3])))
    return Check("ncvmp", "SciPy's maximiser of the same bound, logistic regression, means", deviation, 1e-4)


def _distance(mine: Any, theirs: Any) -> float:
    """Returns the largest difference, relative to one more than the size."""
    pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
    return max(float(np.max(np.abs(a - b) / (1.0 + np.abs(b)))) for a, b in pairs)
