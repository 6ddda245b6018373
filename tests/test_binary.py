from __future__ import annotations

import itertools
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.algorithms.discrete import PlugInMean, PlugInMode, bayesbinn, straight_through
from lamu.data import Batch
from lamu.expectations import Enumeration, LeaveOneOut, Relaxed, ScoreFunction
from lamu.families import Bernoulli, Binary, PartialBelief, Point
from lamu.geometry import Accumulation, Straight
from lamu.natural_rule import (
    Flips,
    LatentStart,
    NaturalRule,
    NaturalState,
    NetworkWeights,
    ParameterSubset,
    Points,
    SignStart,
    SubsetLoss,
    ZeroTemperature,
    natural_gradient,
)
from lamu.networks import MLP, BatchNorm, Linear
from lamu.objective import Objective
from lamu.priors import Belief, Normal
from lamu.rate import Constant

rng = np.random.default_rng(3)
N, D, SCALE = 12, 3, 2.0
X = rng.normal(size=(N, D)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.4], [0.0, 0.0, 1.0]])
Y = X @ np.array([1.0, -1.0, 1.0]) + SCALE * rng.normal(size=N)
PRIOR = np.array([0.3, 0.0, -0.4])  # natural parameters: half of log odds
MODEL = lamu.Model(Linear(bias=False), lamu.likelihoods.Gaussian(scale=SCALE))
BATCH = Batch.of(jnp.asarray(X), jnp.asarray(Y))


def weights(values) -> dict:
    return {"layers": {0: {"kernel": jnp.asarray(values)[:, None]}}}


def vector(params) -> np.ndarray:
    return np.asarray(tree.ravel(params)[0])


def objective(temperature: float = 1.0) -> Objective:
    return Objective(replace(MODEL, prior=Belief(Binary(weights(PRIOR)))), float(N), temperature)


def loss(theta: np.ndarray) -> np.ndarray:
    """The negative log likelihood, a sum over the data, of every row of θ; constants aside."""
    return ((Y[:, None] - X @ theta.T) ** 2).sum(axis=0) / (2 * SCALE**2)


CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=D)))


def optimum(temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """λ of the best mean-field belief, and the mean of the exact posterior, by enumeration and coordinate ascent."""
    energy = (loss(CORNERS) - CORNERS @ PRIOR) / temperature
    posterior = np.exp(-(energy - energy.min()))
    natural = np.zeros(D)
    for _ in range(500):
        for i in range(D):
            others = np.prod([np.where(CORNERS[:, j] > 0, 1 + np.tanh(natural[j]), 1 - np.tanh(natural[j])) / 2
                              for j in range(D) if j != i], axis=0)  # fmt: skip
            plus, minus = CORNERS[:, i] > 0, CORNERS[:, i] < 0
            natural[i] = -((others * energy)[plus].sum() - (others * energy)[minus].sum()) / 2
    return natural, posterior @ CORNERS / posterior.sum()


def rule(expectation, rate: float, **changes) -> NaturalRule:
    made = NaturalRule(NetworkWeights(SignStart(0.5)), expectation, Constant(rate), rest_rate=Constant(0.1))
    return replace(made, **changes)


def run(algorithm: NaturalRule, steps: int, temperature: float = 1.0, seed: int = 0) -> NaturalState:
    target = objective(temperature)
    state = algorithm.init(jax.random.key(seed), target, BATCH)

    def body(state, t):
        state, info = algorithm.step(jax.random.fold_in(jax.random.key(9), t), state, BATCH, target)
        return state, (state.belief.half_logit, info.residual)

    return jax.jit(lambda state: jax.lax.scan(body, state, jnp.arange(steps)))(state)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_rule_with_every_corner_enumerated_ends_at_the_best_mean_field_belief(temperature: float) -> None:
    """Likelihood and prior are both divided by T, the entropy is not."""
    expected, exact = optimum(temperature)
    state, (_, residual) = run(rule(Enumeration(), 0.3), 400, temperature)
    belief = state.belief
    np.testing.assert_allclose(vector(belief.natural().values), expected, atol=1e-9)
    assert residual[-1] < 1e-6 < residual[0]
    # Mean field is no more than that: it is near the exact posterior's mean and not equal to it.
    assert 1e-4 < np.max(np.abs(vector(belief.mean) - exact)) < 0.3


def test_score_functions_end_near_it() -> None:
    """At a temperature at which no sign is certain, the average of the last 1000 of 2000 steps."""
    expected, _ = optimum(5.0)
    _, (path, _) = run(rule(ScoreFunction(16, LeaveOneOut()), 0.02), 2000, 5.0)
    tail = np.asarray(path["layers"][0]["kernel"])[1000:, :, 0]
    np.testing.assert_allclose(tail.mean(axis=0), expected, atol=0.1)
    assert np.max(np.abs(expected)) > 0.4


NATURAL = np.array([0.4, -0.3, 0.8])


def exact_gradient() -> np.ndarray:
    """∇_μ E_q[ℓ] / N at one belief, from the probabilities of the corners, each linear in every μ."""
    mu = np.tanh(NATURAL)
    probability = np.prod((1 + CORNERS * mu) / 2, axis=1)
    return (
        np.array([(probability * loss(CORNERS) * CORNERS[:, i] / (1 + CORNERS[:, i] * mu[i])).sum() for i in range(D)])
        / N
    )


def relaxed_gradient(tau: float) -> np.ndarray:
    """∇_μ of the expected loss of relaxed weights, which is quadratic: from two moments of each, by quadrature."""
    u = (np.arange(200_000) + 0.5) / 200_000
    noise = np.log(u / (1 - u)) / 2

    def expected(natural: np.ndarray) -> float:
        theta = np.tanh((natural[:, None] + noise) / tau)
        first, second = theta.mean(axis=1), (theta**2).mean(axis=1)
        away = Y - X @ first
        return float(away @ away + (X**2).sum(axis=0) @ (second - first**2)) / (2 * SCALE**2) / N

    steps = 1e-4 * np.eye(D)
    slope = np.array([(expected(NATURAL + e) - expected(NATURAL - e)) / 2e-4 for e in steps])
    return slope / (1 - np.tanh(NATURAL) ** 2)


def test_relaxed_draws_are_of_the_relaxed_loss_whose_bias_falls_with_the_temperature() -> None:
    rest = {"network": {"layers": {0: {"kernel": None}}}, "likelihood": {}}
    problem = SubsetLoss(objective(), BATCH, {}, ParameterSubset(("*kernel",)), rest)
    belief = Binary(weights(NATURAL))
    by_enumeration = natural_gradient(Enumeration(), jax.random.key(0), belief, problem).gradient
    np.testing.assert_allclose(vector(by_enumeration), exact_gradient(), atol=1e-12)
    bias = [np.max(np.abs(relaxed_gradient(tau) - exact_gradient())) for tau in (1.0, 0.25, 0.05)]
    assert bias[0] > 2.0 * bias[1] > 8.0 * bias[2] > 0.008, bias
    # A floor that is too small to be seen leaves the slopes where they are; one that is not bounds them.
    floors = (Relaxed(0.5), Relaxed(0.5, floor=1e-14))
    both = [natural_gradient(e, jax.random.key(4), belief, problem).gradient for e in floors]
    np.testing.assert_allclose(*map(vector, both), rtol=1e-9)
    _, pull = Relaxed(0.5, floor=0.1).point(jax.random.key(0), Binary(jnp.array([-9.0, 0.1, 8.0])))
    assert np.max(pull(jnp.ones(3)).values) <= 1.1 / (0.5 * 0.1)
    one = lambda key: natural_gradient(Relaxed(1.0), key, belief, problem).gradient
    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 20_000))["layers"][0]["kernel"][..., 0]
    # Three means: one of them is beyond 4.5 standard errors once in 50,000 seeds.
    error = np.std(found, axis=0) / 20_000**0.5
    assert np.max(np.abs(np.mean(found, axis=0) - relaxed_gradient(1.0)) / error) < 4.5
    assert np.max(np.abs(np.mean(found, axis=0) - exact_gradient()) / error) > 4.5


def network_problem() -> tuple[Objective, list[Batch]]:
    x = rng.normal(size=(40, 4)).astype(np.float64)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    target = Objective(lamu.Model(MLP((5,), "tanh"), lamu.likelihoods.Bernoulli(), Normal(2.0)), 40.0, 0.5)
    return target, [Batch.of(x[s : s + 15], y[s : s + 15]).padded(15) for s in (0, 15, 30)] * 7


def by_hand(batches, kernels, biases, noises, rate, rest_rate, temperature, relaxed: bool):
    """Twenty steps in NumPy of a network of one hidden layer, both algorithms of table 1."""
    kappa, rows = 40 / temperature, 40
    natural = [kappa * k if not relaxed else 1.5 * np.sign(k) for k in kernels]
    biases = [b.copy() for b in biases]
    for batch, noise in zip(batches, noises, strict=True):
        real = np.asarray(batch.mask) > 0
        x, y = np.asarray(batch.x)[real], np.asarray(batch.y)[real]
        if relaxed:
            theta = [np.tanh((n + d) / 0.7) for n, d in zip(natural, noise, strict=True)]
        else:
            theta = [np.sign(n) for n in natural]
        hidden = np.tanh(x @ theta[0] + biases[0])
        f = hidden @ theta[1] + biases[1]
        out = (1 / (1 + np.exp(-f)) - y[:, None]) / len(y)
        back = (out @ theta[1].T) * (1 - hidden**2)
        gradients, slopes = [x.T @ back, hidden.T @ out], [back.sum(axis=0), out.sum(axis=0)]
        for i in range(2):
            if relaxed:
                s = (1 - theta[i] ** 2 + 0.05) / (0.7 * (1 - np.tanh(natural[i]) ** 2 + 0.05))
                natural[i] = (1 - rate) * natural[i] - rate * kappa * s * gradients[i]
            else:
                natural[i] = natural[i] - rate * kappa * gradients[i]
            biases[i] = biases[i] - rest_rate * (slopes[i] + biases[i] / 4.0 / rows)
    return natural, biases


@pytest.mark.parametrize("relaxed", [False, True], ids=["straight_through", "bayesbinn"])
def test_twenty_steps_are_those_by_hand(relaxed: bool) -> None:
    target, batches = network_problem()
    batches = batches[:20]
    algorithm = (
        bayesbinn(0.005, Relaxed(0.7, floor=0.05), init_half_logit=1.5, rest_rate=0.2)
        if relaxed
        else straight_through(0.05, rest_rate=0.2)
    )
    params, _ = target.model.init(jax.random.key(0), batches[0])
    state = algorithm.init(jax.random.key(0), target, batches[0])
    layers = params["network"]["layers"]
    keys = [jax.random.fold_in(jax.random.key(5), t) for t in range(20)]

    @jax.jit
    def noise(key):
        """The very draws of the algorithm: a key for the noise, and one a leaf."""
        leaves = tree.keys_like(jax.random.split(key)[0], state.belief.half_logit)
        return [jax.random.logistic(leaves["layers"][i]["kernel"], layers[i]["kernel"].shape) / 2 for i in range(2)]

    noises = [jax.tree.map(np.asarray, noise(jax.random.clone(key))) for key in keys]
    step = jax.jit(algorithm.step)
    for key, batch in zip(keys, batches, strict=True):
        state, _ = step(key, state, batch, target)
    kernels, biases = ([np.asarray(layers[i][name]) for i in range(2)] for name in ("kernel", "bias"))
    natural, biases = by_hand(batches, kernels, biases, noises, 0.005 if relaxed else 0.05, 0.2, 0.5, relaxed)
    for i in range(2):
        found = np.asarray(state.belief.half_logit["layers"][i]["kernel"])
        np.testing.assert_allclose(found, natural[i], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(state.rest["network"]["layers"][i]["bias"], biases[i], rtol=1e-10, atol=1e-12)


def test_straight_through_and_bayesbinn_differ_by_the_choices_that_the_table_names() -> None:
    one, other = straight_through(0.1, momentum=0.0), bayesbinn(0.1, Relaxed(0.5))
    differing = {f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)}
    assert differing == {"expectation", "geometry", "subject"}
    # The subjects differ in where λ starts, a number; the choices of the rule are the other two.
    assert replace(one.subject, begin=other.subject.begin) == other.subject
    assert (one.expectation, one.geometry) == (ZeroTemperature(), Accumulation())
    assert (other.expectation, other.geometry) == (Relaxed(0.5), Straight())
    assert one.choices.departures == ("delta at zero temperature", "no forgetting")
    assert isinstance(one.expectation, Points)
    assert isinstance(other.expectation, Points)
    assert isinstance(one.subject.begin, LatentStart)


@pytest.mark.parametrize("changes", [{"geometry": Accumulation()}, {"expectation": ZeroTemperature()}], ids=str)
def test_the_rows_in_between_are_legal(changes) -> None:
    target, batches = network_problem()
    algorithm = replace(bayesbinn(0.05), **changes)
    state = algorithm.init(jax.random.key(0), target, batches[0])
    state, info = jax.jit(algorithm.step)(jax.random.key(1), state, batches[0], target)
    assert np.isfinite(info.loss)
    found = algorithm.posterior(jax.random.key(2), state, target, None, None)
    kernel = np.asarray(found.sample(jax.random.key(3), 2)["network"]["layers"][0]["kernel"])
    assert set(np.abs(kernel).ravel()) == {1.0}


def test_a_network_of_both_kinds_of_weights_has_one_belief() -> None:
    target, batches = network_problem()
    batch = replace(batches[0])
    model = replace(target.model, network=MLP((5,), normalise=BatchNorm()))
    algorithm = bayesbinn(0.05)
    target = replace(target, model=model)
    state = algorithm.init(jax.random.key(0), target, batch)
    state, _ = jax.jit(algorithm.step)(jax.random.key(1), state, batch, target)
    found = algorithm.posterior(jax.random.key(2), state, target, None, None)
    belief = found.belief.factors["network"]
    assert isinstance(belief, PartialBelief)
    assert tree.paths(belief.mean) == tree.paths(model.init(jax.random.key(0), batch)[0]["network"])
    draws = found.sample(jax.random.key(3), 3)["network"]
    assert set(np.abs(np.asarray(draws["layers"][1]["kernel"])).ravel()) == {1.0}
    assert np.all(np.asarray(draws["norms"][0]["scale"]) == np.asarray(state.rest["network"]["norms"][0]["scale"]))
    mean, mode = found.with_rule(PlugInMean()).predict(batch.x), found.with_rule(PlugInMode()).predict(batch.x)
    signs = jax.tree.map(jnp.sign, belief.mean["layers"][0]["kernel"])
    assert mode.f.shape == (1, 15, 1)
    at = {"network": {**belief.mean, "layers": {
        i: {**belief.mean["layers"][i], "kernel": jnp.sign(belief.mean["layers"][i]["kernel"])} for i in range(2)
    }}, "likelihood": {}}  # fmt: skip
    assert set(np.abs(signs).ravel()) == {1.0}
    np.testing.assert_allclose(mode.f[0], model.outputs(at, found.network_state, batch.x)[0], rtol=1e-10)
    assert not np.allclose(mean.f, mode.f)
    point = replace(found, belief=Point({"network": belief.mean, "likelihood": {}})).with_rule(PlugInMode())
    assert np.array_equal(point.predict(batch.x).f, mean.f)


def test_a_belief_learned_before_is_the_prior_and_a_gaussian_with_a_mean_prefers_a_sign() -> None:
    """λ₀ = δ m₀: half of log p(+1) − log p(−1)."""
    algorithm = rule(Enumeration(), 1.0)
    for prior, expected in ((Normal(0.5, loc=0.25), 0.25 / 0.5**2), (Normal(0.5), 0.0)):
        target = Objective(replace(MODEL, prior=prior), float(N))
        state = algorithm.init(jax.random.key(0), target, BATCH)
        state = replace(state, belief=Binary(weights(np.full(D, expected))))
        empty = replace(BATCH, mask=jnp.zeros(N))
        after, _ = algorithm.step(jax.random.key(1), state, empty, target)
        np.testing.assert_allclose(vector(after.belief.half_logit), np.full(D, expected), atol=1e-12)
    first = algorithm.posterior(jax.random.key(0), run(algorithm, 1)[0], objective(), None, None)
    second = Objective(first.model.with_prior(first), float(N))
    state = algorithm.init(jax.random.key(0), second, BATCH)
    after, _ = algorithm.step(jax.random.key(1), state, replace(BATCH, mask=jnp.zeros(N)), second)
    np.testing.assert_allclose(
        vector(after.belief.half_logit), vector(first.belief.factors["network"].half_logit), atol=1e-9
    )


def test_mistakes_say_what_to_do() -> None:
    target, batches = network_problem()
    with pytest.raises(ValueError, match="matches no leaf"):
        bayesbinn(leaves=("*kernle",)).init(jax.random.key(0), target, batches[0])
    with pytest.raises(ValueError, match="temperature"):
        bayesbinn(expectation=Relaxed(0.0))
    with pytest.raises(ValueError, match="learning_rate"):
        straight_through(-1.0)


def test_flips_are_the_exact_gradient_and_to_second_order_that_of_a_quadratic() -> None:
    """One weight's difference, by enumeration; beyond `most` weights a gradient and a product with the Hessian."""
    rest = {"network": {"layers": {0: {"kernel": None}}}, "likelihood": {}}
    problem = SubsetLoss(objective(), BATCH, {}, ParameterSubset(("*kernel",)), rest)
    belief = Binary(weights(NATURAL))
    for expectation in (Flips(), Flips(most=2)):
        one = lambda key, e=expectation: natural_gradient(e, key, belief, problem).gradient
        found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 20_000))["layers"][0]["kernel"][..., 0]
        error = np.std(found, axis=0) / 20_000**0.5  # three means: beyond 4.5 errors once in 50,000 seeds
        assert np.max(np.abs(np.mean(found, axis=0) - exact_gradient()) / error) < 4.5
    with pytest.raises(TypeError, match="Binary beliefs, not Bernoulli"):
        natural_gradient(Flips(), jax.random.key(0), Bernoulli(weights(NATURAL)), problem)
