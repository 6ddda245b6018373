"""What posteriors of deep latent-variable models say of rows: what is missing, new rows, densities with errors."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import lamu
from lamu import graphs, latent
from lamu.latent import models
from lamu.networks import MLP, Linear
from lamu.predictives import Sampled

RANDOM = np.random.default_rng(0)
D, K, NOISE = 5, 2, 0.4
LOADINGS = np.linalg.qr(RANDOM.normal(size=(D, K)))[0] * np.array([2.0, 1.0])
COVARIANCE = LOADINGS @ LOADINGS.T + NOISE**2 * np.eye(D)
Y = RANDOM.multivariate_normal(np.zeros(D), COVARIANCE, size=12)
MISSING, REST = [1, 3], [0, 2, 4]
HOLES = np.where(np.isin(np.arange(D), MISSING), np.nan, Y)


def point(graph, params) -> lamu.Posterior:
    return lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))


def linear(off: float = 0.0, family=None, z=None) -> lamu.Posterior:
    """Probabilistic PCA at known loadings; its encoder is the exact posterior of whole rows, or off it."""

    def program(m) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=D)
        with m.rows():
            z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(z)))

    local = latent.Amortised(Linear(), family or latent.MeanField())
    graph = lamu.Graph(program, local={"z": local if z is None else z(local)})
    params, _ = graph.init(jax.random.key(0), graph.read({"y": Y}).full())
    precision = np.diag(LOADINGS.T @ LOADINGS) / NOISE**2 + 1
    own = params["network"]["local"]["z"]
    if "network" not in own:
        return point(graph, params)
    outputs = own["network"]["layers"][0]["kernel"].shape[1]
    kernel, bias = np.zeros((D, outputs)), np.zeros(outputs)
    kernel[:, :K] = (1 - off / 3) * LOADINGS / NOISE**2 / precision
    bias[K : 2 * K] = -0.5 * np.log(precision) + off
    flows = jax.tree.map(lambda leaf: 0.5 * leaf, own["family"])
    own = {
        **own,
        "family": flows,
        "network": {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}},
    }
    network = {"decode": {"layers": {0: {"kernel": jnp.asarray(LOADINGS.T)}}}, "local": {"z": own}}
    return point(graph, {**params, "network": network})


def conditional() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the missing entries given the others."""
    weights = np.linalg.solve(COVARIANCE[np.ix_(REST, REST)], COVARIANCE[np.ix_(REST, MISSING)])
    return Y[:, REST] @ weights, COVARIANCE[np.ix_(MISSING, MISSING)] - COVARIANCE[np.ix_(MISSING, REST)] @ weights


@pytest.mark.stress
def test_a_row_with_holes_is_predicted_by_its_conditional() -> None:
    """Linear-Gaussian rows by 2,000 draws, of which at least 400 count: exact within 5 standard errors."""
    pred = linear().predict({"y": HOLES}, samples=2000)
    mean, covariance = conditional()
    variance = np.diag(covariance)
    np.testing.assert_allclose(pred.mean[:, MISSING], mean, atol=5 * np.sqrt(variance.max() / 400))
    np.testing.assert_allclose(pred.mean[:, REST], Y[:, REST])
    np.testing.assert_allclose(pred.variance[:, MISSING], np.tile(variance, (12, 1)), rtol=5 * np.sqrt(2 / 400))
    assert np.all(pred.variance[:, REST] == 0)
    low, high = (np.asarray(end) for end in pred.interval(0.9))
    width = 2 * norm.ppf(0.95) * np.sqrt(variance)
    np.testing.assert_allclose((high - low)[:, MISSING], np.tile(width, (12, 1)), rtol=0.15)
    np.testing.assert_allclose(low[:, REST], Y[:, REST], rtol=1e-6)
    # The missing entries of a row hang together: their joint density, and draws of them.
    exact = [multivariate_normal(m, covariance).logpdf(y) for m, y in zip(mean, Y[:, MISSING], strict=True)]
    np.testing.assert_allclose(pred.log_prob(Y), exact, atol=0.3)
    draws = np.asarray(pred.sample(jax.random.key(1), 2000))
    assert np.all(draws[:, :, REST] == np.asarray(pred.mean)[None][:, :, REST])
    away = (draws[:, :, MISSING] - mean[None]).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(away.T), covariance, atol=0.1 * variance.max())
    np.testing.assert_allclose(pred.aleatoric[:, MISSING], NOISE**2, rtol=1e-6)
    np.testing.assert_allclose(pred.aleatoric + pred.epistemic, pred.variance, rtol=1e-6)


OTHERS = {
    "off": {"off": 0.3},
    "flows": {"family": latent.Flows((latent.Planar(),), context=0)},
    "refined": {"z": lambda local: latent.Refined(local, steps=2)},
}


@pytest.mark.parametrize("kind", ["off", *(pytest.param(k, marks=pytest.mark.stress) for k in ("flows", "refined"))])
def test_a_chain_is_right_for_any_encoder(kind) -> None:
    """An encoder that is off the posterior, or whose belief is no Gaussian: the exact conditional all the same.

    4,000 sweeps of which a fifth count at least, 5 standard errors. Without Metropolis' correction means of the encoder
    that is off are wrong by a quarter.
    """
    draws = np.asarray(latent.impute(linear(**OTHERS[kind]), {"y": HOLES}, jax.random.key(0), draws=4000)["y"])
    mean, covariance = conditional()
    assert np.all(draws[:, :, REST] == Y[None][:, :, REST])
    tolerance = 5 * np.sqrt(np.diag(covariance).max() / 800)
    np.testing.assert_allclose(draws[:, :, MISSING].mean(0), mean, atol=tolerance)
    away = (draws[:, :, MISSING] - mean[None]).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(away.T), covariance, atol=0.05 * np.diag(covariance).max())


@pytest.mark.stress
def test_a_chain_of_a_semi_supervised_model_draws_labels_beside_pixels() -> None:
    """A class that pixels show, labelled in some rows: the missing labels and pixels hang together as they do."""

    def program(m) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=4)
        with m.rows():
            c = m.sample("c", graphs.Categorical(jnp.array([0.5, 0.5])))
            z = m.sample("z", graphs.Normal(jnp.zeros(1), 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=0.3)(decode(c, z)))

    local = {"c": latent.Enumerated(Linear()), "z": latent.Amortised(Linear(), given=("c",))}
    graph = lamu.Graph(program, local=local)
    kernel = jnp.array([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, -1.0], [0.2, -0.2, 0.2, -0.2]])
    y = np.array([[1.0, 1.0, np.nan, np.nan], [-1.0, -1.0, np.nan, np.nan], [0.0, 0.0, np.nan, np.nan]])
    labels = np.array([np.nan, np.nan, 1.0])
    batch = graph.read({"y": y, "c": labels}).full()
    params, _ = graph.init(jax.random.key(0), batch)
    params["network"]["decode"] = {"layers": {0: {"kernel": kernel}}}
    draws = latent.impute(point(graph, params), {"y": y, "c": labels}, jax.random.key(0), draws=1000)
    c, filled = np.asarray(draws["c"]), np.asarray(draws["y"])
    assert c.shape == (1000, 3)
    assert filled.shape == (1000, 3, 4)
    assert np.all(c[:, 2] == 1.0)  # a label that is there
    # Of two pixels at ±1 with deviations of 0.36 the odds are beyond e^20.
    assert np.mean(c[:, 0]) < 0.02
    assert np.mean(c[:, 1]) > 0.98
    np.testing.assert_allclose(filled[:, :, 2].mean(0), [1.0, -1.0, -1.0], atol=0.15)
    pred = point(graph, params).predict({"y": y, "c": labels}, samples=200)
    assert pred.mean["c"].shape == (3, 2)
    np.testing.assert_allclose(pred.mean["c"][2], [0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(pred.mean["y"][2, 2:], -1.0, atol=0.3)
    alone = graph.read({"y": y}).y  # nobody has a label
    assert np.isfinite(latent.impute(point(graph, params), alone_rows(alone), jax.random.key(0), draws=3)["y"]).all()


def alone_rows(data) -> dict[str, np.ndarray]:
    return {name: np.where(part.observed, part.value, np.nan) for name, part in data.items()}


@pytest.mark.stress
def test_a_chain_stays_finite_where_its_encoder_does_not() -> None:
    """An untrained linear encoder makes a deviation of the exponential of a large entry: such draws are refused."""
    graph = models.VAE(2, 4, MLP((4,)), Linear(), likelihood=lamu.likelihoods.Gaussian(scale=1.0))
    params, _ = graph.init(jax.random.key(0), graph.read({"y": 300.0 * Y[:, :4]}).full())
    holes = np.where(np.arange(4) < 2, 300.0 * Y[:5, :4], np.nan)
    draws = latent.impute(point(graph, params), {"y": holes}, jax.random.key(0), draws=200)["y"]
    assert np.isfinite(draws).all()
    pred = point(graph, params).predict({"y": holes})
    assert np.isfinite(pred.mean).all()
    assert np.isfinite(pred.variance).all()


@pytest.mark.stress
def test_chunks_of_rows_have_the_same_draws() -> None:
    """Every row draws by its number, three at a time or all at once: equal to the order of sums in a matrix product."""
    posterior = linear(0.1)
    ask = lambda: (
        latent.impute(posterior, {"y": HOLES}, jax.random.key(0), draws=7)["y"],
        posterior.predict({"y": HOLES}, samples=7).mean,
        posterior.log_prob({"y": HOLES}, samples=7),
    )
    whole = ask()
    with lamu.memory.within("12kB"):
        parts = ask()
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_new_rows_are_predicted_by_their_number() -> None:
    """The marginal of every entry within 5 standard errors of 4,000 draws; a number that is none is refused."""
    pred = linear().predict(3, samples=4000)
    np.testing.assert_allclose(pred.mean, np.zeros((3, D)), atol=5 * np.sqrt(COVARIANCE.max() / 4000))
    np.testing.assert_allclose(pred.variance, np.tile(np.diag(COVARIANCE), (3, 1)), rtol=5 * np.sqrt(2 / 4000))
    exact = multivariate_normal(np.zeros(D), COVARIANCE).logpdf(Y[:3])
    np.testing.assert_allclose(pred.log_prob(Y[:3]), exact, atol=0.6)
    draws = np.asarray(pred.sample(jax.random.key(0), 3000)).reshape(-1, D)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=0.15 * COVARIANCE.max())
    with pytest.raises(ValueError, match="0 new rows cannot be predicted; ask for at least one"):
        linear().predict(0)


def test_labels_of_minus_one_are_unknown() -> None:
    graph = models.SemiSupervised(3, 2, 8, (4,))
    y = (np.arange(24).reshape(3, 8) % 3 > 0).astype(float)
    unknown = graph.read({"y": y, "c": np.array([0, -1, 2])}).y["c"]
    assert unknown.observed.tolist() == [True, False, True]
    missing = graph.read({"y": y, "c": np.array([0.0, np.nan, 2.0])}).y["c"]
    np.testing.assert_array_equal(unknown.value, missing.value)
    with pytest.raises(ValueError, match="c is -2 in a row"):
        graph.read({"y": y, "c": np.array([0, -2, 2])})


def test_a_layer_more_adds_as_much_to_the_program() -> None:
    """The size of what is compiled is linear in the number of layers of latents, for a value and for its gradient."""
    sizes = []
    for depth in (1, 2, 3, 4):
        graph = models.DeepLatentGaussian((2,) * depth, 6, (3,))
        batch = graph.read({"y": np.eye(6)}).full()
        params = jax.eval_shape(lambda key, graph=graph, batch=batch: graph.init(key, batch)[0], jax.random.key(0))
        value = lambda p, graph=graph, batch=batch: graph.log_likelihood(p, {}, batch, jax.random.key(0))[0]
        sizes.append(len(str(jax.make_jaxpr(value)(params))))
    steps = np.diff(sizes)
    assert np.all(steps < 1.5 * steps[0]), sizes


@pytest.mark.stress
def test_every_encoder_tells_of_its_units() -> None:
    """Refined beliefs and paths have divergences too; a code has none, and says so."""
    y = (np.arange(60).reshape(10, 6) % 3 > 0).astype(float)
    draw = models.DRAW(3, 2, 6, hidden=4)
    params, _ = draw.init(jax.random.key(0), draw.read({"y": y}).full())
    found = latent.unit_divergences(point(draw, params), {"y": y}, jax.random.key(0))["z"].nats
    assert found.shape == (6,)
    assert np.all(np.asarray(found) >= 0)
    refined = linear(0.3, z=lambda local: latent.Refined(local, steps=60))
    exact = linear()
    of = lambda posterior: latent.unit_divergences(posterior, {"y": Y}, jax.random.key(0))["z"].nats
    np.testing.assert_allclose(of(refined), of(exact), rtol=1e-4)
    code = linear(z=lambda local: latent.Delta(Linear()))
    with pytest.raises(TypeError, match="the code 'z' of a Delta local is a point, which has no divergence"):
        of(code)
    with pytest.raises(TypeError, match="no latent of the model has an encoder"):
        of(replace(exact, model=replace(exact.model, local={"z": graphs.Coordinate()})))


def test_a_bound_and_a_density_of_rows_are_told_apart() -> None:
    """At the exact posterior both are log p; off it the bound is below. Errors cover what importance sampling lacks."""
    exact = multivariate_normal(np.zeros(D), COVARIANCE).logpdf(Y)
    found = lamu.scores.row_log_prob(linear(0.3), {"y": Y}, samples=400)
    assert isinstance(found, lamu.scores.RowLogProb)
    assert np.all(np.abs(found.value - exact) < 5 * np.asarray(found.error))
    assert np.all((np.asarray(found.error) > 1e-4) & (np.asarray(found.error) < 0.3))
    np.testing.assert_allclose(found.value, linear(0.3).log_prob({"y": Y}, samples=400), rtol=1e-9)
    tight = lamu.scores.row_log_prob(linear(), {"y": Y}, samples=20)
    np.testing.assert_allclose(tight.error, 0.0, atol=1e-6)
    bound = lamu.scores.mean_bound(linear(0.3), {"y": Y}, samples=64)
    assert bound.value < exact.mean() - 0.05
    assert abs(lamu.scores.mean_bound(linear(), {"y": Y}, samples=400).value - exact.mean()) < 0.2
    with pytest.raises(ValueError, match="samples=1 have no standard error"):
        lamu.scores.row_log_prob(linear(), {"y": Y}, samples=1)
    x, y = lamu.data.load("diabetes")
    network = lamu.Model(Linear(), lamu.likelihoods.Gaussian(scale=55.0))
    fit = lamu.fit(network.standardised(x, y), (x, y), lamu.algorithms.conjugate())
    with pytest.raises(TypeError, match=r"rows have latents in a lamu\.Graph"):
        lamu.scores.mean_bound(fit.posterior, (x, y))


def test_strange_rows_are_told_by_their_density() -> None:
    """Rows of the model and rows twice as wide: told apart by log p, whose distribution drifts."""
    posterior, known = linear(), RANDOM.multivariate_normal(np.zeros(D), COVARIANCE, size=300)
    own, strange = (np.asarray(posterior.log_prob({"y": y}, samples=2)) for y in (known, 2.5 * known[::-1]))
    assert lamu.scores.auroc(-own, -strange) > 0.8
    assert lamu.scores.drift(own[:150], strange[:150]).found
    assert not lamu.scores.drift(own[:150], own[150:], level=0.001).found


@pytest.mark.stress
def test_annealing_takes_the_row_of_a_posterior() -> None:
    joint, belief = latent.row_joint(linear(0.3), {"y": Y[:1]})
    found = lamu.scores.annealed_importance(joint, belief, jax.random.key(0), temperatures=60, chains=16)
    exact = multivariate_normal(np.zeros(D), COVARIANCE).logpdf(Y[0])
    assert abs(found.value - exact) < 5 * max(found.error, 1e-3)
    with pytest.raises(ValueError, match="the data have 2 rows, and the joint density is of one"):
        latent.row_joint(linear(), {"y": Y[:2]})
    labelled = models.SemiSupervised(2, 1, 3, (4,))
    params, _ = labelled.init(jax.random.key(0), labelled.read({"y": np.eye(3)}).full())
    with pytest.raises(TypeError, match="the latent 'c' is a category"):
        latent.row_joint(point(labelled, params), {"y": np.eye(3)[:1]})


@pytest.mark.stress
def test_a_code_is_made_of_a_posterior() -> None:
    """Lossless, and within 3 % of the bound on 60 rows: each has bins of 12 bits a latent to round."""
    bits = (RANDOM.uniform(size=(60, 12)) > 0.3).astype(float)
    graph = models.VAE(2, 12, MLP((8,)), MLP((8,)))
    posterior = lamu.fit(graph, {"y": bits}, lamu.algorithms.adam(1e-2), steps=100, batch_size=30).posterior
    code, stack = (
        latent.BitsBack.of(posterior),
        latent.Stack(np.random.default_rng(0).integers(0, 1 << 32, 99).tolist()),
    )
    before = stack.bits
    code.encode(stack, bits.astype(int))
    length = (stack.bits - before) / 60
    np.testing.assert_array_equal(code.decode(stack, 60), bits)
    bound = -lamu.scores.mean_bound(posterior, {"y": bits}, samples=50).value / np.log(2)
    assert abs(length / bound - 1) < 0.03
    with pytest.raises(TypeError, match="'y' has the likelihood Gaussian, and a code is of symbols"):
        latent.BitsBack.of(linear())
