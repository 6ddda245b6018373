"""The checks of graphs, programs and generalised linear models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lamu import tree
from lamu.algorithms.closed_form.message_passing import cvi, em, ncvmp, vmp
from lamu.data import load
from lamu.data.batch import Batch
from lamu.families import Dirichlet, NormalWishart
from lamu.families import MultivariateNormal as FullNormal
from lamu.graphs import Categorical, Graph, MultivariateNormal, Program
from lamu.likelihoods import Bernoulli, Likelihood, Ordinal, Tobit, links
from lamu.model import Model
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.programs import from_numpyro
from lamu.typing import Inputs, Targets
from lamu_verification.problems import Check

__all__ = ["anchor_rows", "graph_rows", "iris_mixture", "program_rows", "tossed"]


K, D = 3, 4


def graph_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by public name; each is a function without arguments."""
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
            warnings.simplefilter("ignore")  # convergence warnings after four iterations
            mixture = BayesianGaussianMixture(
                n_components=K,
                max_iter=iterations,
                tol=0.0,
                random_state=0,
                **known,
            ).fit(x)
        scale = mixture.covariances_ * mixture.degrees_of_freedom_[:, None, None]
        fields = (mixture.means_, mixture.mean_precision_, mixture.degrees_of_freedom_, scale)
        part = NormalWishart(*map(jnp.asarray, fields))
        return {"part": part, "weight": Dirichlet(jnp.asarray(mixture.weight_concentration_))}

    graph = iris_mixture(0.7, NormalWishart(jnp.zeros(D), 0.5, 6.0, 2.0 * jnp.eye(D)))
    start = jax.tree.map(lambda leaf: leaf[None], after(3))
    batch, objective = graph.read({"y": x}).full(), Objective(graph, len(x))
    state = replace(vmp().init(jax.random.key(0), objective, batch), beliefs=start)
    state, _ = jax.jit(vmp().step)(jax.random.key(0), state, batch, objective)
    deviation = _graph_distance(jax.tree.map(lambda leaf: leaf[0], state.beliefs), after(4))
    return Check("vmp", "iteration 4 of scikit-learn's BayesianGaussianMixture from its iteration 3", deviation, 1e-9)


def _em() -> Check:
    from sklearn.mixture import GaussianMixture

    x = np.asarray(load("iris")[0], float)
    means = x[[0, 60, 120]]
    graph = iris_mixture(1.0, NormalWishart(jnp.zeros(D), 1e-12, float(D), 1e-13 * jnp.eye(D)))
    part = {"mean": jnp.asarray(means), "precision": jnp.stack([jnp.eye(D)] * K)}
    theta = {"weight": jnp.full((1, K), 1.0 / K), "part": jax.tree.map(lambda leaf: leaf[None], part)}
    step, batch, deviation = jax.jit(em().step), graph.read({"y": x}).full(), 0.0
    state = replace(em().init(jax.random.key(0), Objective(graph, len(x)), batch), theta=theta)
    for iteration in range(1, 4):
        state, _ = step(jax.random.key(0), state, batch, Objective(graph, len(x)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence warnings after few iterations
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
        deviation = max(deviation, _graph_distance(jax.tree.map(lambda leaf: leaf[0], state.theta), theirs))
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
        """Returns the negative bound of a Gaussian: v is the mean and a factor of the covariance with log diagonal."""
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
    belief = jax.tree.map(lambda leaf: leaf[0], state.beliefs)["w"]
    deviation = float(np.max(np.abs(np.asarray(belief.mean) - best.x[:3])))
    return Check("ncvmp", "SciPy's maximiser of the same bound, logistic regression, means", deviation, 1e-4)


def _graph_distance(mine: Any, theirs: Any) -> float:
    """Returns the largest difference, relative to one plus the size."""
    pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
    return max(float(np.max(np.abs(a - b) / (1.0 + np.abs(b)))) for a, b in pairs)


_STEPS = 200


def tossed(y: Targets) -> None:
    """A program of coin tosses: p is Beta(2, 1)."""
    p = numpyro.sample("p", dist.Beta(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


def program_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by public name; each is a function without arguments."""
    return {"cvi": _cvi}


def _regression(X: Inputs, y: Targets) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(X @ w, 0.5), obs=y)


def _cvi() -> Check:
    x, y = (np.asarray(part, float) for part in load("diabetes"))
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    target = from_numpyro(_regression, {"X": x, "y": y}, rows="rows")
    batch, objective = target.read(None).full(), Objective(target, len(y))
    algorithm = cvi(learning_rate=0.5, pairs=1)
    state = algorithm.init(jax.random.key(0), objective, batch)
    body = lambda state, key: (algorithm.step(key, state, batch, objective)[0], None)
    state, _ = jax.lax.scan(body, state, jax.random.split(jax.random.key(1), _STEPS))
    belief = state.belief.factors["normal"]
    S = np.eye(x.shape[1]) / 4.0 + x.T @ x / 0.25
    mean = np.linalg.solve(S, x.T @ y / 0.25)
    off = jnp.max(jnp.abs(belief.mean["w"] - mean)) + jnp.max(jnp.abs(belief.precision.matrix / S.max() - S / S.max()))
    return Check("cvi", "linear regression by the normal equations", float(off), 1e-9)


# The data are small enough to be listed: the ratings of `ordinal::wine` as a table of frequencies, and the twenty rows
# of `survival::tobin`.


# The frequency of each rating, by temperature (cold, warm) and contact (no, yes).
_WINE = np.array([[4, 9, 5, 0, 0], [1, 7, 8, 2, 0], [0, 5, 8, 3, 2], [0, 1, 5, 7, 5]])
# Durable goods bought, age, and liquidity, of each household.
_TOBIN = np.array(
    [
        *((0.0, 57.7, 236), (0.7, 50.9, 283), (0.0, 48.5, 207), (0.0, 41.7, 220), (0.0, 47.7, 238)),
        *((0.0, 59.8, 216), (0.0, 44.3, 284), (3.7, 45.1, 221), (0.0, 51.7, 275), (3.0, 50.0, 269)),
        *((10.4, 46.8, 207), (0.0, 58.0, 249), (0.0, 58.9, 246), (0.0, 40.0, 277), (1.5, 34.1, 231)),
        *((0.0, 39.9, 219), (0.0, 33.4, 240), (3.5, 48.1, 266), (6.1, 46.6, 214), (0.0, 53.1, 251)),
    ]
)
_TOLERANCE = 1e-3  # of the printed reference values


def anchor_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by name of the fit; each is a function without arguments."""
    return {
        "Ordinal on wine": lambda: _wine(links.Logit(), (2.5031, 1.5278, -86.4919), (-1.3444, 1.2508, 3.4669, 5.0064)),
        "Ordinal Probit on wine": lambda: _wine(links.Probit(), (1.4994, 0.8677, -85.7611), ()),
        "Tobit on tobin": _tobin,
    }


def _wine(link: Any, values: tuple[float, ...], cuts: tuple[float, ...]) -> Check:
    cells = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    x, y = np.repeat(cells, _WINE.sum(axis=1), axis=0), np.concatenate([np.repeat(np.arange(5), row) for row in _WINE])
    likelihood = Ordinal(5, link)
    params, value = _mode(likelihood, x, y, bias=False)
    fitted = [*np.asarray(params["network"]["layers"][0]["kernel"])[:, 0], value]
    if cuts:
        fitted += list(np.asarray(likelihood.cut_points(params["likelihood"])))
    name = "Ordinal on wine" if cuts else "Ordinal Probit on wine"
    return Check(name, "R's polr: slopes, cut-points, log likelihood", _distance(fitted, (*values, *cuts)), _TOLERANCE)


def _tobin() -> Check:
    y, x = _TOBIN[:, 0], _TOBIN[:, 1:]
    shift, scale = x.mean(axis=0), x.std(axis=0)
    params, value = _mode(Tobit(), (x - shift) / scale, y)
    layer = params["network"]["layers"][0]
    slopes = np.asarray(layer["kernel"])[:, 0] / scale
    intercept = float(layer["bias"][0]) - float(slopes @ shift)
    estimates = (intercept, *slopes, float(jnp.exp(params["likelihood"]["log_scale"][0])), value)
    expected = (15.14487, -0.12906, -0.04554, 5.5725, -28.9401)
    words = "R's survreg: slopes, deviation, log likelihood"
    return Check("Tobit on tobin", words, _distance(estimates, expected), _TOLERANCE)


def _mode(likelihood: Likelihood, x: np.ndarray, y: np.ndarray, bias: bool = True) -> tuple[Any, float]:
    """Returns the parameters at the largest log likelihood, weights and dispersions together, and its value."""
    from scipy.optimize import minimize

    model = Model(Linear(bias=bias), likelihood)
    batch = Batch.of(jnp.asarray(x), jnp.asarray(y))
    params, state = model.init(jax.random.key(0), batch)
    start, unravel = tree.ravel({**params, "network": tree.zeros_like(params["network"])})
    loss = lambda flat: -jnp.sum(model.log_likelihood(unravel(flat), state, batch)[0])
    found: Any = minimize(
        jax.jit(jax.value_and_grad(loss)), start, jac=True, hess=jax.jit(jax.hessian(loss)), method="trust-exact"
    )
    return unravel(jnp.asarray(found.x)), -float(found.fun)


def _distance(found: Any, expected: Any) -> float:
    return float(np.max(np.abs(np.asarray(found, float) - np.asarray(expected))))
