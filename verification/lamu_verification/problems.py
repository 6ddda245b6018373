"""Small problems with known answers, asymmetric enough to reveal a wrong sign, scale or order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from lamu import tree
from lamu.algorithms.moments import pbp
from lamu.data.batch import Batch
from lamu.data.sources import load
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.objective import Objective
from lamu.priors import Normal
from lamu.typing import Inputs, Params, Targets
from lamu_verification.fixed_points import (
    FixedPoint,
    Loss,
    StandIn,
    bernoulli,
    gaussian,
    gaussian_fixed_point,
    hessian,
    mode,
)
from lamu_verification.references import linear_regression

__all__ = [
    "MEAN",
    "SD",
    "Bundled",
    "Check",
    "Moments",
    "Problem",
    "chains",
    "classes",
    "diabetes",
    "distance",
    "flat",
    "iris",
    "logistic",
    "model",
    "new_rows",
    "posterior_moments",
    "regression",
    "rows",
]


def flat(params: Params) -> np.ndarray:
    """Returns the leaves of a tree concatenated as one vector."""
    return np.asarray(tree.ravel(params)[0])


def distance(a: Any, b: Any) -> float:
    """Returns the largest difference between the entries of two arrays."""
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


@dataclass(frozen=True)
class Check:
    """Result of the comparison of an algorithm with its classic."""

    algorithm: str  # its public name
    reference: str  # the reference and the setting of the comparison
    deviation: float  # the largest difference
    tolerance: float  # the largest allowed difference

    @property
    def passed(self) -> bool:
        """Whether the deviation is within the tolerance (NaN is not)."""
        return self.deviation <= self.tolerance


@dataclass(frozen=True)
class Problem:
    """Data, and the objective of a model on them."""

    x: np.ndarray  # inputs `[N, D]`
    y: np.ndarray  # targets `[N]`
    objective: Objective  # the loss
    scale: float  # the noise's standard deviation (regression)
    precision: float  # the prior's precision on every weight

    def batches(self, rows: int) -> list[Batch]:
        """Returns the data in order, the last batch padded and masked."""
        starts = range(0, len(self.x), rows)
        return [Batch.of(self.x[start : start + rows], self.y[start : start + rows]).padded(rows) for start in starts]

    @property
    def design(self) -> np.ndarray:
        """The inputs with the intercept's column in front, in the order of a linear network's ravelled weights."""
        return np.column_stack([np.ones(len(self.x)), self.x])


def regression(rows: int = 30, temperature: float = 1.0) -> Problem:
    """Returns Bayesian linear regression with correlated inputs and known noise."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, -0.3], [0.0, 0.0, 0.5]])
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.7 + 0.4 * generator.normal(size=rows)
    return _problem(x, y, Linear(), Gaussian(scale=0.4), temperature, scale=0.4, precision=0.5)


def logistic(rows: int = 40) -> Problem:
    """Returns Bayesian logistic regression."""
    generator = np.random.default_rng(8)
    x = generator.normal(size=(rows, 3)) * np.array([1.0, 2.0, 0.5])
    y = (generator.random(rows) < 1 / (1 + np.exp(-(x @ np.array([1.5, -0.5, 1.0]) + 0.3)))).astype(np.int32)
    return _problem(x, y, Linear(), Bernoulli(), 1.0, scale=1.0, precision=2.0)


def classes(rows: int = 50) -> Problem:
    """Returns a small multilayer perceptron on three classes."""
    generator = np.random.default_rng(9)
    x = generator.normal(size=(rows, 4))
    y = np.argmax(x[:, :3] + 0.3 * generator.normal(size=(rows, 3)), axis=1).astype(np.int32)
    return _problem(x, y, MLP((5, 4), activation="tanh"), Categorical(3), 1.0, scale=1.0, precision=1.0)


def _problem(
    x: Inputs, y: Targets, network: Any, likelihood: Any, temperature: float, scale: float, precision: float
) -> Problem:
    model = Model(network, likelihood, Normal(precision**-0.5))
    return Problem(x, y, Objective(model, float(len(x)), temperature), scale, precision)


_DRAWS, _FREEDOM = 200_000, 8.0


@dataclass(frozen=True)
class Moments:
    """Mean, covariance and evidence of a posterior."""

    mean: np.ndarray  # `[D]`
    covariance: np.ndarray  # `[D, D]`
    log_evidence: float  # log marginal likelihood in nats
    ess: float  # the effective number of draws; a mean has a standard error of 1/√ess posterior standard deviations

    @property
    def sd(self) -> np.ndarray:
        """The standard deviations `[D]`."""
        return np.sqrt(np.diagonal(self.covariance))


def posterior_moments(loss: Loss, design: np.ndarray, y: np.ndarray, precision: float) -> Moments:
    r"""Returns the moments under \(N(0, \delta^{-1} I)\): draws of a Student's t at the mode, weighted."""
    from scipy.special import gammaln

    size, targets = design.shape[1], np.asarray(y, np.float64)
    center, gram = mode(loss, design, targets, precision)
    generator = np.random.default_rng(0)
    normal = np.linalg.solve(np.linalg.cholesky(gram).T, generator.normal(size=(size, _DRAWS))).T
    draws = center + normal / np.sqrt(generator.chisquare(_FREEDOM, _DRAWS) / _FREEDOM)[:, None]
    log_joint = np.concatenate(
        [-loss(part @ design.T, targets[None])[0].sum(axis=1) for part in np.array_split(draws, 50)]
    )
    log_joint += size / 2 * np.log(precision / (2 * np.pi)) - precision / 2 * (draws**2).sum(axis=1)
    away = draws - center
    log_proposal = gammaln((_FREEDOM + size) / 2) - gammaln(_FREEDOM / 2) + np.linalg.slogdet(gram)[1] / 2
    log_proposal = log_proposal - size / 2 * np.log(_FREEDOM * np.pi)
    log_proposal = log_proposal - (_FREEDOM + size) / 2 * np.log1p(np.sum((away @ gram) * away, axis=1) / _FREEDOM)
    log_weights = log_joint - log_proposal
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    evidence = float(top + np.log(weights.mean()))
    weights /= weights.sum()
    mean = weights @ draws
    away = draws - mean
    return Moments(mean, (away * weights[:, None]).T @ away, evidence, float(1 / (weights**2).sum()))


_NOISE = 0.7


@dataclass(frozen=True)
class Bundled:
    """A model with a linear network on bundled data, inputs and numeric targets standardised."""

    name: str  # data and model in words
    model: Model  # the model, with the prior N(0, 1) on every weight
    x: np.ndarray  # inputs `[N, D]`
    y: np.ndarray  # targets `[N]`
    loss: Loss  # a row's loss in NumPy
    exact: Moments  # the moments of the posterior

    @property
    def design(self) -> np.ndarray:
        """The inputs with the intercept's column in front, in the order of the ravelled weights."""
        return _design(self.x)

    def fixed_point(self, full: bool = False, stand_in: StandIn = hessian) -> FixedPoint:
        """Returns the Gaussian fixed point of the rule, with a diagonal precision or a full one."""
        return gaussian_fixed_point(self.loss, self.design, self.y, 1.0, full=full, stand_in=stand_in)


def _design(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x]).astype(np.float64)


@cache
def diabetes() -> Bundled:
    """Returns linear regression with known noise: 442 rows, ten columns; its posterior is a closed form."""
    x, y = load("diabetes")
    x, y = ((part - part.mean(0)) / part.std(0) for part in (x, y))
    mean, precision, evidence = linear_regression(_design(x), y.astype(np.float64), _NOISE, 1.0)
    exact = Moments(mean, np.linalg.inv(precision), evidence, np.inf)
    model = Model(Linear(), Gaussian(scale=_NOISE), Normal(1.0))
    return Bundled("diabetes, linear, known noise", model, x, y, gaussian(_NOISE), exact)


@cache
def iris() -> Bundled:
    """Returns logistic regression, versicolor against virginica: 100 rows, four columns; 200,000 weighted draws."""
    x, y = load("iris")
    selected = y > 0
    x, y = x[selected], (y[selected] == 2).astype(np.int32)
    x = (x - x.mean(0)) / x.std(0)
    exact = posterior_moments(bernoulli, _design(x), y, 1.0)
    return Bundled("iris, logistic", Model(Linear(), Bernoulli(), Normal(1.0)), x, y, bernoulli, exact)


# The reference values are stored, because computing them takes three minutes: `python -m lamu_verification.problems`
# prints them again.


_ROWS, _NEW, _UNITS, _PRIOR = 200, 12, 5, 0.5

# Of the predictive distribution at `new_rows()`; 4 chains of 3,000 draws by NUTS.
MEAN = (-0.775, -0.988, 0.137, 0.457, 0.473, 0.718, -0.145, 0.688, 1.117, 0.141, -0.481, 0.28)
SD = (0.714, 0.7, 0.73, 0.69, 0.728, 0.708, 0.688, 0.699, 0.724, 0.715, 0.699, 0.714)


def _standardised() -> tuple[np.ndarray, np.ndarray]:
    x, y = load("diabetes")
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs `[200, 10]` and targets `[200]` of diabetes, standardised."""
    x, y = _standardised()
    return x[:_ROWS], y[:_ROWS]


def new_rows() -> np.ndarray:
    """Returns inputs `[12, 10]` that are not among them."""
    return _standardised()[0][_ROWS : _ROWS + _NEW]


def model() -> Model:
    """Returns one hidden layer of five rectifiers with learned noise, and the prior N(0, 1/4) in units of its scale."""
    return Model(MLP((_UNITS,), "relu"), Gaussian(), Normal(_PRIOR))


def chains(draws: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of the predictive distribution at the new rows, by long chains."""
    # The model is the one of `pbp`: normal weights with variance 0.25 / (λ n), n the fan-in plus one, and Gamma beliefs
    # about λ and about the precision of the noise.
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    x, y = map(jnp.asarray, rows())
    algorithm, sizes = pbp(), (x.shape[1], _UNITS, 1)

    def program() -> None:
        weights, noise = (
            numpyro.sample(name, dist.Gamma(belief.shape, belief.rate))
            for name, belief in (("weights", algorithm.prior), ("noise", algorithm.noise))
        )
        layers = []
        for index, (fan_in, units) in enumerate(pairwise(sizes)):
            z = numpyro.sample(f"layer{index}", dist.Normal().expand([fan_in + 1, units]).to_event(2))
            layers.append(z * _PRIOR / jnp.sqrt(weights * (fan_in + 1)))

        def outputs(x: jax.Array) -> jax.Array:
            hidden = jax.nn.relu(x @ layers[0][1:] + layers[0][0])
            return (hidden @ layers[1][1:] + layers[1][0])[:, 0]

        numpyro.sample("y", dist.Normal(outputs(x), noise**-0.5), obs=y)
        numpyro.deterministic("outputs", outputs(jnp.asarray(new_rows())))

    kernel = NUTS(program)
    sampler = MCMC(
        kernel, num_warmup=1000, num_samples=draws, num_chains=4, chain_method="vectorized", progress_bar=False
    )
    sampler.run(jax.random.key(0))
    samples = {name: np.asarray(draw, np.float64) for name, draw in sampler.get_samples().items()}
    return samples["outputs"].mean(0), np.sqrt(samples["outputs"].var(0) + np.mean(1 / samples["noise"]))


if __name__ == "__main__":
    for figures in chains():
        print(tuple(round(float(figure), 3) for figure in figures))
