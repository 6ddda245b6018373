"""Laws of gradient estimators of binary latents, on a row whose bound is a sum over all eight states.

b ~ Ber(p) with three entries, y = W b + c + N(0, s²) in four, q(b | y) by a linear encoder. The bound and its gradient
are NumPy's and JAX's sums over the 2³ states; those of relaxed draws an integral over the noise, by quadrature. The
failure rate of an assertion within 4 standard errors is 6e-5 a number; there are 31 numbers, and the keys are fixed.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu import graphs
from lamu.expectations import ConstantBaseline, LeaveOneOut, Regression, Relaxed, ScoreFunction
from lamu.expectations.score_function import others
from lamu.families import Bernoulli
from lamu.latent import AmortisedBernoulli, Baseline
from lamu.networks import Linear
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("discrete", "unbiased relaxed")

K, D, NOISE, COUNT = 3, 4, 0.9, 4000
P, Y = jnp.array([0.3, 0.5, 0.8]), jnp.array([1.3, -0.4, 0.9, 0.2])
RANDOM = np.random.default_rng(0)
DECODE = {"kernel": jnp.asarray(RANDOM.normal(size=(K, D))), "bias": jnp.asarray(RANDOM.normal(size=D))}
ENCODE = {"kernel": jnp.asarray(0.5 * RANDOM.normal(size=(D, K))), "bias": jnp.asarray(RANDOM.normal(size=K))}
PARAMETERS = {"decode": DECODE, "encode": ENCODE}
STATES = jnp.asarray(list(itertools.product((0.0, 1.0), repeat=K)))


def log_joint(parameters: Any, b: Any) -> Any:
    """Returns log p(y, b), affine in b where that is between zero and one in the prior."""
    mean = b @ parameters["decode"]["kernel"] + parameters["decode"]["bias"]
    log_likelihood = jnp.sum(-0.5 * ((Y - mean) / NOISE) ** 2) - D * jnp.log(NOISE * jnp.sqrt(2 * jnp.pi))
    return log_likelihood + jnp.sum(b * jnp.log(P) + (1 - b) * jnp.log1p(-P))


def logits(parameters: Any) -> Any:
    return Y @ parameters["encode"]["kernel"] + parameters["encode"]["bias"]


def bound(parameters: Any) -> Any:
    """Returns the sum over all states of q (log p − log q)."""
    chance = jax.nn.sigmoid(logits(parameters))
    log_q = STATES @ jnp.log(chance) + (1 - STATES) @ jnp.log1p(-chance)
    return jnp.sum(jnp.exp(log_q) * (jax.vmap(lambda b: log_joint(parameters, b))(STATES) - log_q))


def relaxed_bound(parameters: Any, temperature: float) -> Any:
    """Returns the integral of log p(y, w) over relaxed draws w of three entries, and the entropy of the belief."""
    nodes, mass = np.polynomial.legendre.leggauss(32)
    u, mass = (nodes + 1) / 2, mass / 2
    noise = jnp.asarray(list(itertools.product(np.log(u) - np.log1p(-u), repeat=K)))
    mass = jnp.asarray([np.prod(m) for m in itertools.product(mass, repeat=K)])
    w = jax.nn.sigmoid((logits(parameters)[None] + noise) / temperature)
    return mass @ jax.vmap(lambda w: log_joint(parameters, w))(w) + Bernoulli(logits(parameters)).entropy()


def values_and_gradients(local: Any) -> tuple[Any, Any]:
    """Returns the row's values and gradients of 4,000 keys, those of a learned baseline below `baseline`."""

    def program(m: Any) -> None:
        decode = m.network("decode", Linear(), outputs=D)
        with m.rows():
            b = m.sample("b", graphs.Bernoulli(P))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(b)))

    graph = lamu.Graph(program, local={"b": local})
    batch = graph.read({"y": Y[None]}).full()
    own = graph.init(jax.random.key(0), batch)[0]["network"]["local"]["b"]
    free = {**PARAMETERS, "baseline": own.get("baseline", {})}

    def value(parameters: Any, key: Any) -> Any:
        encoder = {"layers": {0: parameters["encode"]}}
        mine = {"encoder": encoder, **({"baseline": parameters["baseline"]} if "baseline" in own else {})}
        network = {"decode": {"layers": {0: parameters["decode"]}}, "local": {"b": mine}}
        return graph.log_likelihood({"network": network, "likelihood": {"y": {}}}, {}, batch, key)[0][0]

    keys = jax.random.split(jax.random.key(3), COUNT)
    return jax.jit(jax.vmap(jax.value_and_grad(value), in_axes=(None, 0)))(free, keys)


def within(found: Any, expected: Any, name: str) -> None:
    mean, error = np.asarray(found).mean(0), np.asarray(found).std(0) / np.sqrt(COUNT)
    assert np.all(np.abs(mean - np.asarray(expected)) <= 4 * error + 1e-10), name


def own(estimator: Any) -> AmortisedBernoulli:
    return AmortisedBernoulli(Linear(), estimator)


plain = row("discrete", "ScoreFunction", own(ScoreFunction(1)), "unbiased")
row("discrete", "ScoreFunction with a ConstantBaseline", own(ScoreFunction(2, ConstantBaseline(-6.0))), "unbiased")
left = row("discrete", "ScoreFunction with LeaveOneOut", own(ScoreFunction(3, LeaveOneOut())), "unbiased")
fitted = row("discrete", "ScoreFunction with a Regression", own(ScoreFunction(4, Regression())), "unbiased")
learned = row("discrete", "ScoreFunction with a Baseline", own(ScoreFunction(1, Baseline(Linear()))), "unbiased")
row("discrete", "ScoreFunction with a number", own(ScoreFunction(1, Baseline())), "unbiased")
relaxed = row("discrete", "Relaxed", own(Relaxed(0.7)), "relaxed", temperature=0.7)


@law("discrete")
def its_mean_value_is_the_bound_of_all_states(row: Row) -> None:
    within(values_and_gradients(row.subject)[0], bound(PARAMETERS), "value")


@law("discrete", when="unbiased")
def its_mean_gradient_is_that_of_all_states(row: Row) -> None:
    gradients = values_and_gradients(row.subject)[1]
    expected = jax.jit(jax.grad(bound))(PARAMETERS)
    for part, name in itertools.product(("decode", "encode"), ("kernel", "bias")):
        within(gradients[part][name], expected[part][name], f"{part}/{name}")


@law("discrete", when="relaxed")
def its_mean_gradient_is_that_of_relaxed_draws(row: Row) -> None:
    """By its own definition; that of all states is another one, further than the noise."""
    gradients = values_and_gradients(row.subject)[1]
    expected = jax.jit(jax.grad(lambda p: relaxed_bound(p, row.extras["temperature"])))(PARAMETERS)
    for part, name in itertools.product(("decode", "encode"), ("kernel", "bias")):
        within(gradients[part][name], expected[part][name], f"{part}/{name}")


@record
class Broken(AmortisedBernoulli):
    """An estimator with a part of its gradient lost, or one that is too much."""

    scores: float = 1.0
    leak: float = 0.0
    entropy: float = 0.0

    def marginalise(self, name: str, own: Any, row: Any, at: Any, key: Any, rest: Any) -> Any:
        value, natural = super().marginalise(name, own, row, at, key, rest)
        held = jax.lax.stop_gradient
        without = super().marginalise(name, held(own), row, at, jax.random.clone(key), rest)[0]
        belief = self.belief(name, own, row, at)
        extra = self.leak * jnp.sum(belief.logit) + self.entropy * belief.entropy()
        return held(value) + (without - held(without)) + self.scores * (value - without) + extra - held(extra), natural


@record
class WholeAverage(LeaveOneOut):
    """The average of all draws taken off, also of the one that it serves, without the correction S / (S − 1)."""

    def weights(self, losses: Any, kernel: Any) -> Any:
        return (losses - jnp.mean(losses)) / losses.size


@record
class NothingAddedBack(Regression):
    """The slopes of the others taken off, and their known mean not added back."""

    def weights(self, losses: Any, kernel: Any) -> Any:
        size, inverse = losses.size, jnp.linalg.inv(kernel() + self.ridge * jnp.eye(losses.size))
        centred = losses[None, :] - others(losses)[:, None]
        alpha = centred @ inverse
        alpha = (alpha - inverse * (jnp.diagonal(alpha) / jnp.diagonal(inverse))[:, None]) * (1.0 - jnp.eye(size))
        return (jnp.diagonal(centred) - jnp.sum(alpha * kernel(), axis=1)) / size


@record
class Soft(AmortisedBernoulli):
    """A value at relaxed draws, which is no bound."""

    def marginalise(self, name: str, own: Any, row: Any, at: Any, key: Any, rest: Any) -> Any:
        belief = self.belief(name, own, row, at)
        soft = self.estimator.point(key, belief)[0]
        natural = super().marginalise(name, own, row, at, jax.random.clone(key), rest)[1]
        return rest(row.given(name, soft), at, jax.random.clone(key))[0] + belief.entropy(), natural


value_law, gradient_law = "its_mean_value_is_the_bound_of_all_states", "its_mean_gradient_is_that_of_all_states"
twin(plain, "no score", gradient_law, Broken(Linear(), ScoreFunction(1), scores=0.0))
twin(left, "twice the score", gradient_law, Broken(Linear(), left.subject.estimator, scores=2.0))
twin(plain, "the entropy once more", gradient_law, Broken(Linear(), ScoreFunction(1), entropy=1.0))
twin(left, "the average of all draws", gradient_law, own(ScoreFunction(3, WholeAverage())))
twin(fitted, "no slope added back", gradient_law, own(ScoreFunction(4, NothingAddedBack())))
twin(
    learned, "the baseline's error in the encoder", gradient_law, Broken(Linear(), learned.subject.estimator, leak=0.3)
)
twin(relaxed, "another temperature", "its_mean_gradient_is_that_of_relaxed_draws", own(Relaxed(0.4)))
twin(relaxed, "no entropy", "its_mean_gradient_is_that_of_relaxed_draws", Broken(Linear(), Relaxed(0.7), entropy=-1.0))
twin(relaxed, "a value at relaxed draws", value_law, Soft(Linear(), Relaxed(0.7)))
