"""Graphs with amortised latents: bounds beside exact answers, labels and pixels that are missing, draws of rows."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal

import lamu
from lamu import graphs, latent
from lamu.latent import models
from lamu.networks import MLP, ConvNet, Linear
from lamu.objective import Objective
from lamu.predictives import Sampled

RANDOM = np.random.default_rng(0)
D, K, N, NOISE = 6, 2, 200, 0.5
LOADINGS = RANDOM.normal(size=(D, K)) * 1.2
Y = RANDOM.normal(size=(N, K)) @ LOADINGS.T + NOISE * RANDOM.normal(size=(N, D))
Y = Y - Y.mean(0)


def linear(local: latent.Amortised) -> lamu.Graph:
    """Probabilistic PCA with a known noise, its loadings a network."""

    def program(m) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=D)
        with m.rows():
            z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(z)))

    return lamu.Graph(program, local={"z": local}, prior=lamu.priors.Normal(100.0))


def log_density(loadings, y=Y) -> np.ndarray:
    return multivariate_normal(np.zeros(D), loadings @ loadings.T + NOISE**2 * np.eye(D)).logpdf(y)


def loadings_of(params) -> np.ndarray:
    return np.asarray(params["network"]["decode"]["layers"][0]["kernel"]).T


def at_loadings(local, loadings, exact: bool):
    """A graph and parameters at given orthogonal loadings, the encoder at the exact posterior or off it."""
    graph = linear(local)
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    precision = loadings.T @ loadings / NOISE**2 + np.eye(K)
    kernel = np.zeros((D, 2 * K))
    kernel[:, :K] = loadings @ np.linalg.inv(precision) / NOISE**2
    bias = np.concatenate([np.zeros(K), -0.5 * np.log(np.diag(precision))])
    if not exact:
        kernel, bias = 0.8 * kernel, bias + 0.1
    layer = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}
    own = {**params["network"]["local"]["z"], "network": {"layers": {0: layer}}}
    network = {"decode": {"layers": {0: {"kernel": jnp.asarray(loadings.T)}}}, "local": {"z": own}}
    return graph, {**params, "network": network}, state, batch


ORTHOGONAL = np.linalg.qr(LOADINGS)[0] * np.array([2.0, 1.0])
values = jax.jit(lambda graph, params, state, batch, key: graph.log_likelihood(params, state, batch, key)[0])


@pytest.mark.parametrize("bound", [latent.StickingTheLanding(), latent.Importance(3)], ids=repr)
def test_at_the_exact_posterior_a_row_has_its_log_density(bound) -> None:
    graph, params, state, batch = at_loadings(latent.Amortised(Linear(), bound=bound), ORTHOGONAL, exact=True)
    found = values(graph, params, state, batch, jax.random.key(1))
    np.testing.assert_allclose(found, log_density(ORTHOGONAL), rtol=1e-9)


def test_a_bound_is_below_and_more_draws_are_nearer() -> None:
    """Means over 200 rows and 20 keys, by 4 standard errors each: a false alarm in 16,000 sets of keys."""
    means = []
    for bound in (latent.ELBO(), latent.Importance(4), latent.Importance(32)):
        graph, params, state, batch = at_loadings(latent.Amortised(Linear(), bound=bound), ORTHOGONAL, exact=False)
        of_keys = [np.asarray(values(graph, params, state, batch, jax.random.key(k))).mean() for k in range(20)]
        means.append((np.mean(of_keys), np.std(of_keys) / np.sqrt(20)))
    exact = log_density(ORTHOGONAL).mean()
    for (low, _), (high, error) in zip(means, [*means[1:], (exact, 0.0)], strict=True):
        assert low < high + 4 * error
    assert exact - means[0][0] > 0.05  # the encoder is off
    assert exact - means[2][0] < 0.3 * (exact - means[0][0])


def test_a_row_draws_for_itself() -> None:
    """Equal rows get different draws; what stands beside a row, padding or another batch, does not change it."""
    graph, params, state, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=False)
    same = graph.read({"y": np.tile(Y[:1], (4, 1))}).full()
    found = np.asarray(values(graph, params, state, same, jax.random.key(1)))
    assert len(np.unique(found)) == 4
    other = graph.read({"y": np.concatenate([Y[:1], 9 * Y[1:2]])}).full()
    np.testing.assert_allclose(values(graph, params, state, other, jax.random.key(1))[0], found[0], rtol=1e-12)


def test_the_temperature_divides_densities_and_no_entropy() -> None:
    """At T = 2 the mean-field bound of one row is E[log p(y, z)]/2 + H(q), in closed form here."""
    graph, params, _, batch = at_loadings(latent.Amortised(Linear(), bound=latent.ELBO(4000)), ORTHOGONAL, exact=False)
    row = replace(batch, y={"y": batch.y["y"][:1]})
    found = {T: float(graph.row_bounds(graph.values_of(params), row, T, jax.random.key(1))[0]) for T in (1.0, 2.0)}
    own = params["network"]["local"]["z"]["network"]["layers"][0]
    entropy = float(jnp.sum(own["bias"][K:])) + K * (1 + np.log(2 * np.pi)) / 2
    assert abs((found[2.0] - entropy) - (found[1.0] - entropy) / 2) < 1e-9
    # A power of the likelihood multiplies densities and no entropy either.
    loss = lambda T, p: Objective(graph, 1.0, T, p).negative_log_likelihood(params, row, {}, jax.random.key(1))[0]
    np.testing.assert_allclose(loss(0.5, 0.25), 0.25 * loss(2.0, 1.0), rtol=1e-9)


def test_missing_entries_do_not_count() -> None:
    """An entry that the decoder holds at zero adds log N(0; 0, σ²) where it is zero, and nothing where it lacks."""
    graph, params, state, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=False)
    kernel = params["network"]["decode"]["layers"][0]["kernel"].at[:, 2].set(0.0)
    still = {**params, "network": {**params["network"], "decode": {"layers": {0: {"kernel": kernel}}}}}
    holes = np.where(np.arange(D) == 2, np.nan, Y[:3])
    ask = lambda params, y: np.asarray(values(graph, params, state, graph.read({"y": y}).full(), jax.random.key(1)))
    found = ask(params, holes)
    full = ask(still, np.nan_to_num(holes))
    np.testing.assert_allclose(full, found - 0.5 * np.log(2 * np.pi * NOISE**2), rtol=1e-9)
    with pytest.raises(ValueError, match="y is NaN in every row"):
        graph.read({"y": np.full((2, D), np.nan)})


@pytest.mark.stress
def test_linear_autoencoders_are_principal_components() -> None:
    """Within 0.01 nats a row of the largest likelihood, and less than a degree from its subspace."""
    spectrum, axes = np.linalg.eigh(Y.T @ Y / N)
    best = axes[:, -K:] * np.sqrt(spectrum[-K:] - NOISE**2)
    rate = lamu.rate.Annealed(0.05)
    fit = lamu.fit(linear(latent.Amortised(Linear())), {"y": Y}, lamu.algorithms.adam(rate), steps=2000, batch_size=N)
    found = loadings_of(fit.posterior.mean)
    assert log_density(best).mean() - log_density(found).mean() < 0.01
    assert np.degrees(subspace_angles(best, found)).max() < 1
    log_p = np.asarray(fit.posterior.log_prob({"y": Y[:50]}, samples=1000))
    # The encoder is near the posterior, so that 1,000 importance weights are good to a hundredth of a nat.
    np.testing.assert_allclose(np.mean(log_p), log_density(found, Y[:50]).mean(), atol=0.01)
    averaged = lamu.scores.mean_log_prob(fit.posterior, {"y": Y[:50]}, samples=1000)
    assert averaged.value == pytest.approx(np.mean(log_p), rel=1e-9)
    assert averaged.error == pytest.approx(np.std(log_p, ddof=1) / np.sqrt(50), rel=1e-9)


@pytest.mark.stress
def test_importance_sampling_is_of_the_density_and_not_of_the_bound() -> None:
    graph, params, _, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=False)
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    few, many = (np.mean(posterior.log_prob({"y": Y}, samples=s)) for s in (1, 500))
    exact = log_density(ORTHOGONAL).mean()
    assert exact - few > 0.05
    assert abs(exact - many) < 0.2 * (exact - few)


DIGITS, LABELS = (np.asarray(part) for part in lamu.data.load("digits"))
BITS = (DIGITS.reshape(len(DIGITS), -1) > 0.5 * DIGITS.max()).astype(float)


def trained(graph, data, steps=60):
    return lamu.fit(graph, data, lamu.algorithms.adam(1e-2), steps=steps, batch_size=64).posterior


@pytest.mark.stress
def test_a_flowed_autoencoder_trains_and_answers(tmp_path) -> None:
    flows = latent.Flows((latent.Coupling((8,)),), context=4)
    graph = models.VAE(3, 64, MLP((16,)), MLP((16,)), family=flows, bound=latent.DoublyReparameterised(2))
    posterior = trained(graph, {"y": BITS[:200]})
    coin = -64 * np.log(2)
    assert lamu.scores.mean_log_prob(posterior, {"y": BITS[200:300]}, samples=4).value > coin + 10
    rows = latent.generate(posterior, 5, jax.random.key(0))
    assert rows["y"].shape == (5, 64)
    assert set(np.unique(rows["y"])) <= {0.0, 1.0}
    found = lamu.load(posterior.save(tmp_path / "posterior")).local({"y": BITS[:3]})
    np.testing.assert_array_equal(posterior.local({"y": BITS[:3]})["z"].mean, found["z"].mean)


@pytest.mark.stress
def test_a_deep_row_is_its_formula() -> None:
    """Two layers of independent latents: the bound is the mean log importance weight of both."""
    graph = models.DeepLatentGaussian((3, 2), 64, (4,))
    batch = graph.read({"y": BITS[:20]}).full()
    params, state = graph.init(jax.random.key(0), batch)
    bounds = [values(graph, params, state, batch, jax.random.key(k)) for k in range(40)]
    weighed = [values(graph.importance_weighted(), params, state, batch, jax.random.key(k)) for k in range(40)]
    # The closed form and the sampled divergence have one mean: within 4 standard errors in the average row.
    difference = np.mean(np.asarray(bounds) - np.asarray(weighed), axis=1)
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(40)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(graph.log_likelihood(p, state, batch, jax.random.key(0))[0])))(params)
    for part in ("up1", "decode", "local"):
        assert all(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(gradient["network"][part])), part


def test_layers_are_independent_before_the_data() -> None:
    """The latents of generated rows: standard normal and uncorrelated within 5 standard errors; a layer adds to h."""
    graph = models.DeepLatentGaussian((3, 2, 1), 64, (4,))
    assert [network.widths for network in graph.networks] == [(2,), (3,), (64,)]
    params, _ = graph.init(jax.random.key(0), graph.read({"y": BITS[:5]}).full())
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    rows = latent.generate(posterior, 2000, jax.random.key(1))
    z = np.concatenate([rows["z3"], rows["z2"], rows["z1"]], axis=1)
    np.testing.assert_allclose(np.cov(z.T), np.eye(6), atol=5 * np.sqrt(2 / 2000))


@pytest.mark.stress
def test_images_go_to_convolutions_as_they_are() -> None:
    images = BITS.reshape(-1, 8, 8)
    posterior = trained(models.VAE(2, 64, MLP((16,)), ConvNet((4,), (16,))), {"y": images[:100]}, steps=20)
    assert posterior.local({"y": images[:2]})["z"].mean.shape == (2, 2)


@pytest.mark.stress
def test_labels_teach_a_generative_classifier() -> None:
    """Twenty labels of two classes, 300 rows without: better than chance by far, and what is labelled is known."""
    rows = np.flatnonzero(LABELS < 2)[:340]
    y, c = BITS[rows], LABELS[rows].astype(float)
    graph = models.SemiSupervised(2, 3, 64, (24,), weight=10.0)
    masked = np.where(np.arange(len(c)) < 20, c, np.nan)
    posterior = trained(graph, {"y": y, "c": masked}, steps=200)
    found = posterior.local({"y": y, "c": masked})["c"].mean
    np.testing.assert_allclose(found[np.arange(20), c[:20].astype(int)], 1.0, rtol=1e-6)
    assert np.mean(np.asarray(found[20:]).argmax(-1) == c[20:]) > 0.9
    assert np.isfinite(posterior.log_prob({"y": y[:4], "c": masked[18:22]}, samples=3)).all()
    # Of rows that all have labels the styles are those beside rows that have none.
    styles = [posterior.local({"y": y[:5], "c": labels})["z"].mean for labels in (c[:5], [*c[:4], np.nan])]
    np.testing.assert_allclose(styles[0][:4], styles[1][:4], rtol=1e-6)
    with pytest.raises(ValueError, match="c is 2 in a row; give whole numbers from 0 to 1, and NaN"):
        graph.read({"y": y, "c": c + 1})


def test_few_labels_count_as_much_as_many() -> None:
    """A row with a label counts α N / N_l beside its bound, equation 9: the labels' sum is that of all rows."""
    graph = models.SemiSupervised(2, 3, 64, (4,), weight=0.5, labelled=0.1)
    y, c = BITS[:10], np.where(np.arange(10) < 1, 1.0, np.nan)
    batch = graph.read({"y": y, "c": c}).full()
    params, state = graph.init(jax.random.key(0), batch)
    without = models.SemiSupervised(2, 3, 64, (4,), weight=0.0)
    found, bound = (values(g, params, state, batch, jax.random.key(1)) for g in (graph, without))
    own = params["network"]["local"]["c"]
    log_q = jax.nn.log_softmax(MLP((4,)).apply(own, {}, jnp.asarray(y[:1]), None, False)[0][0])
    np.testing.assert_allclose(found - bound, [5.0 * log_q[1], *[0.0] * 9], rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"labelled=0\.0 is not a share of the rows"):
        models.SemiSupervised(2, 3, 64, labelled=0.0)


@pytest.mark.stress
def test_a_category_is_summed_exactly() -> None:
    """At a uniform classifier the bound is the average of the classes' bounds and log K, and their log sum is above."""
    graph = models.SemiSupervised(3, 2, 64, (8,))
    partly = np.where(np.arange(10) < 1, 0.0, np.nan)
    batch = graph.read({"y": BITS[:10], "c": partly}).full()
    params, state = graph.init(jax.random.key(0), batch)
    key = jax.random.key(1)
    bound, total = (
        np.asarray(values(g, params, state, batch, jax.random.key(1))) for g in (graph, graph.importance_weighted())
    )
    assert bound.shape == total.shape == (10,)
    assert np.all(total[1:] > bound[1:] - 5.0)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(graph.log_likelihood(p, state, batch, key)[0])))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    classifier = gradient["network"]["local"]["c"]["layers"][1]["bias"]
    assert np.any(np.asarray(classifier) != 0)


@pytest.mark.stress
def test_holes_are_filled_by_what_is_there() -> None:
    """Linear-Gaussian rows: means and deviations of the exact conditional, within 5 standard errors of 500 sweeps."""
    graph, params, _, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=True)
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    holes = Y[:4].copy()
    holes[:, 1] = np.nan
    draws = np.asarray(latent.impute(posterior, {"y": holes}, jax.random.key(0), draws=2000)["y"])
    assert np.all(draws[:, :, 0] == Y[:4, 0])
    covariance = ORTHOGONAL @ ORTHOGONAL.T + NOISE**2 * np.eye(D)
    rest = [0, 2, 3, 4, 5]
    weights = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, 1])
    mean, variance = Y[:4][:, rest] @ weights, covariance[1, 1] - covariance[1, rest] @ weights
    np.testing.assert_allclose(draws[:, :, 1].mean(0), mean, atol=5 * np.sqrt(variance / 500))
    np.testing.assert_allclose(draws[:, :, 1].var(0), variance, rtol=0.3)


@pytest.mark.stress
def test_every_entry_has_a_noise_of_its_own() -> None:
    """A Gaussian likelihood of several entries learns a deviation of each, the squares of which are known noise."""
    graph = models.VAE(2, 3, MLP((4,)), MLP((4,)), likelihood=lamu.likelihoods.Gaussian())
    params, _ = graph.init(jax.random.key(0), graph.read({"y": Y[:, :3]}).full())
    params["likelihood"]["y"]["log_scale"] = jnp.log(jnp.array([0.5, 1.0, 2.0]))
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    holes = np.where(np.arange(3) == 2, np.nan, Y[:2, :3])
    found = posterior.predict({"y": holes})
    np.testing.assert_allclose(found.aleatoric, [[0.0, 0.0, 4.0]] * 2, rtol=1e-6)
    assert np.all(found.variance[:, 2] > 4.0)  # the latents are not known
    assert latent.reconstruct(posterior, {"y": Y[:2, :3]}, jax.random.key(0))["y"].shape == (2, 3)


def test_new_rows_have_the_models_covariance() -> None:
    graph, params, _, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=True)
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    rows = np.asarray(latent.generate(posterior, 4000, jax.random.key(1))["y"])
    expected = ORTHOGONAL @ ORTHOGONAL.T + NOISE**2 * np.eye(D)
    np.testing.assert_allclose(np.cov(rows.T), expected, atol=5 * expected.max() * np.sqrt(2 / 4000))


def test_an_autoencoder_reconstructs_and_has_no_density() -> None:
    posterior = trained(models.AutoEncoder(4, 64, MLP((32,)), MLP((32,))), {"y": BITS[:200]}, steps=200)
    codes = posterior.local({"y": BITS[:2]})["z"].mean
    assert codes.shape == (2, 4)
    with pytest.raises(TypeError, match="no density of a row"):
        posterior.log_prob({"y": BITS[:2]})


def test_a_family_of_ones_own_is_an_encoders_belief() -> None:
    class FixedScale(latent.BeliefFamily):
        def outputs(self, size):
            return size

        def init(self, key, size, dtype):
            return {}

        def belief(self, params, outputs):
            log_scale = jnp.full_like(outputs, jnp.log(0.3))
            return latent.MeanField().belief(params, jnp.concatenate([outputs, log_scale]))

    graph = linear(latent.Amortised(Linear(), lamu.record.record(FixedScale)()))
    params, _ = graph.init(jax.random.key(0), graph.read({"y": Y}).full())
    assert loadings_of(params).shape == (D, K)
    posterior = lamu.fit(graph, {"y": Y}, lamu.algorithms.adam(1e-2), steps=3).posterior
    belief = posterior.local({"y": Y[:2]})["z"]
    np.testing.assert_allclose(belief.precision.values, 1 / 0.3**2, rtol=1e-6)


def test_a_category_above_draws_is_summed_out() -> None:
    """The bound of log Σ_c p(c) p(y | c) where nothing else is drawn: the log of the sum itself."""

    def program(m) -> None:
        rate = m.network("rate", Linear(bias=False), outputs=D)
        with m.rows():
            c = m.sample("c", graphs.Categorical(jnp.array([0.2, 0.3, 0.5])))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(rate(c)))

    graph = lamu.Graph(program, local={"c": latent.SummedOut()}, prior=lamu.priors.Normal(1.0))
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    found, _ = graph.log_likelihood(params, state, batch, jax.random.key(1))
    means = np.asarray(params["network"]["rate"]["layers"][0]["kernel"])
    parts = [
        np.log(w) + multivariate_normal(m, NOISE**2 * np.eye(D)).logpdf(Y)
        for w, m in zip((0.2, 0.3, 0.5), means, strict=True)
    ]
    np.testing.assert_allclose(found, np.logaddexp.reduce(parts, axis=0), rtol=1e-6)


def test_what_cannot_be() -> None:
    with pytest.raises(TypeError, match="the bound is 3; give one of lamu"):
        latent.Amortised(Linear(), bound=3)
    with pytest.raises(ValueError, match="local names 'w', which no row has"):
        lamu.Graph(linear(latent.Amortised(Linear())).sites, local={"w": latent.Amortised(Linear())})
    with pytest.raises(ValueError, match=r"weight=-1\.0 is negative"):
        latent.Enumerated(Linear(), weight=-1.0)
    graph = models.SemiSupervised(2, 2, 64, (4,))
    swapped = replace(graph, local={"c": latent.Amortised(Linear()), "z": graph.local["z"]})
    batch = graph.read({"y": BITS[:2]}).full()
    with pytest.raises(TypeError, match=r"use Enumerated\(network\) for a category"):
        swapped.init(jax.random.key(0), batch)
    lost = replace(graph, local={**graph.local, "z": latent.Amortised(Linear(), given=("d",))})
    with pytest.raises(ValueError, match="given 'd'; the row's other latents are c"):
        lost.init(jax.random.key(0), batch)
    with pytest.raises(ValueError, match=r"latents=\(\) has no layer"):
        models.DeepLatentGaussian((), 64)
    point = lamu.families.Point(graph.init(jax.random.key(0), batch)[0])
    posterior = lamu.Posterior(graph, point, {}, Sampled(), jax.random.key(0))
    with pytest.raises(ValueError, match="n=0 is not possible"):
        latent.generate(posterior, 0, jax.random.key(0))
    with pytest.raises(ValueError, match="the rows have no missing entry"):
        latent.impute(posterior, {"y": BITS[:2]}, jax.random.key(0))
    with pytest.raises(ValueError, match="y, of Bernoulli, takes 0 and 1; its values lie between 0 and 255: cut them"):
        graph.read({"y": BITS[:2] * 255})
    with pytest.raises(ValueError, match=r"a row of y has 60 entries, and Bernoulli is given 64 outputs.*outputs=60"):
        graph.read({"y": BITS[:2, :60]})
    with pytest.raises(ValueError, match="row 1 has no entry that is observed; drop it"):
        graph.read({"y": np.where(np.arange(3)[:, None] == 1, np.nan, BITS[:3])})
    assert graph.read({"y": np.where(np.arange(3)[:, None] == 1, np.nan, BITS[:3]), "c": np.zeros(3)}).count == 3
    with pytest.raises(ValueError, match="mask has the shape"):
        graph.read({"y": BITS[:2], "mask": np.ones((2, 64))})
    alone = replace(models.VAE(2, 64), local=None)
    batch = alone.read({"y": BITS[:2]}).full()
    with pytest.raises(TypeError, match=r"networks \(decode\) depend on the latents z of a row"):
        alone.log_likelihood(*alone.init(jax.random.key(0), batch), batch)
    with pytest.raises(ValueError, match="VAE has latents=0; give a whole number from 1"):
        models.VAE(0, 64)


@pytest.mark.stress
def test_a_divergence_warms_up_by_the_training_step() -> None:
    """At step 5 of 10 it counts one half; in evaluation it counts whole; Adam counts its steps, and a row does not."""
    graph, params, state, batch = at_loadings(
        latent.Amortised(Linear(), bound=latent.WarmUp(latent.ELBO(), 10)), ORTHOGONAL, exact=False
    )
    plain = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=False)[0]
    assert state["step"] == 0
    key = jax.random.key(1)

    def total(step, train=True):
        found, new = graph.log_likelihood(params, {"step": jnp.asarray(step)}, batch, key, train)
        assert new["step"] == step + train
        return np.asarray(found)

    whole = np.asarray(plain.log_likelihood(params, {}, batch, key)[0])
    np.testing.assert_allclose(total(10), whole, rtol=1e-12)
    np.testing.assert_allclose(total(3, train=False), whole, rtol=1e-12)
    np.testing.assert_allclose(total(5), (total(0) + whole) / 2, rtol=1e-12)
    assert np.all(total(0) > whole)
    fit = lamu.fit(graph, {"y": Y}, lamu.algorithms.adam(1e-3), steps=7, batch_size=50)
    assert fit.posterior.network_state["step"] == 7


@pytest.mark.stress
def test_idle_units_are_counted() -> None:
    """Linear-Gaussian rows: the divergence of each unit in closed form, and of one that the encoder does not move."""
    graph, params, _, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=True)
    layer = params["network"]["local"]["z"]["network"]["layers"][0]
    kernel, bias = np.array(layer["kernel"]), np.array(layer["bias"])
    kernel[:, 1] = bias[1] = bias[3] = 0.0
    own = {**params["network"]["local"]["z"], "network": {"layers": {0: {"kernel": kernel, "bias": bias}}}}
    network = {**params["network"], "local": {"z": own}}
    posterior = lamu.Posterior(
        graph, lamu.families.Point({**params, "network": network}), {}, Sampled(), jax.random.key(0)
    )
    found = latent.unit_divergences(posterior, {"y": Y}, jax.random.key(1))["z"]
    means, scale = Y @ kernel[:, 0], np.exp(bias[2])
    expected = np.mean((scale**2 + means**2 - 1) / 2 - np.log(scale))
    np.testing.assert_allclose(found.nats, [expected, 0.0], rtol=1e-9, atol=1e-12)
    assert isinstance(found, latent.UnitDivergences)
    assert found.idle == (1,)
    assert str(found) == f"{expected:.2f} nats a row; 1 of 2 units carries less than 0.01: 1"
    deep = models.DeepLatentGaussian((3, 2), 64, (4,))
    batch = deep.read({"y": BITS[:20]}).full()
    point = lamu.families.Point(deep.init(jax.random.key(0), batch)[0])
    posterior = lamu.Posterior(deep, point, {}, Sampled(), jax.random.key(0))
    layers = latent.unit_divergences(posterior, {"y": BITS[:20]}, jax.random.key(1))
    assert [layers[name].nats.shape for name in ("z1", "z2")] == [(3,), (2,)]
    mixed = models.VAE(2, 64, prior=latent.MixturePrior(2, parts=2))
    point = lamu.families.Point(mixed.init(jax.random.key(0), mixed.read({"y": BITS[:20]}).full())[0])
    with pytest.raises(TypeError, match="the divergence of 'z' has no closed form by its units"):
        latent.unit_divergences(replace(posterior, model=mixed, belief=point), {"y": BITS[:20]}, jax.random.key(1))


def test_free_bits_are_of_every_unit_of_a_graphs_latent() -> None:
    graph, params, state, batch = at_loadings(
        latent.Amortised(Linear(), bound=latent.FreeBits(50.0)), ORTHOGONAL, exact=False
    )
    plain = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=False)[0]
    posterior = lamu.Posterior(plain, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    nats = latent.unit_divergences(posterior, {"y": Y}, jax.random.key(1))["z"].nats
    difference = values(plain, params, state, batch, jax.random.key(1)) - values(
        graph, params, state, batch, jax.random.key(1)
    )
    np.testing.assert_allclose(np.mean(difference), K * 50.0 - np.sum(nats), rtol=1e-9)


def test_steps_on_a_rows_own_bound_find_its_posterior() -> None:
    """From an encoder that is off to the log density, which a row has at its posterior for any key."""
    encoder = latent.Amortised(Linear(), bound=latent.StickingTheLanding())
    graph, params, state, batch = at_loadings(latent.Refined(encoder, steps=60), ORTHOGONAL, exact=False)
    np.testing.assert_allclose(
        values(graph, params, state, batch, jax.random.key(1)), log_density(ORTHOGONAL), rtol=1e-6
    )
    few = replace(graph, local={"z": latent.Refined(encoder, steps=2, pairs=1)})
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(few.log_likelihood(p, state, batch, jax.random.key(1))[0])))(params)
    assert all(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(gradient["network"]["local"]))
    assert not few.local["z"].counts


def test_the_amortisation_gap_is_the_divergence_from_the_posterior() -> None:
    """In closed form here; the noise of 32 draws of 200 rows is 0.013 nats, of which 4 are allowed."""
    graph, params, _, _ = at_loadings(latent.Amortised(Linear()), ORTHOGONAL, exact=False)
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    found = lamu.scores.amortisation_gap(posterior, {"y": Y}, jax.random.key(1), steps=80, samples=32)
    layer = params["network"]["local"]["z"]["network"]["layers"][0]
    outputs = Y @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
    precision = np.diag(ORTHOGONAL.T @ ORTHOGONAL) / NOISE**2 + 1
    away = outputs[:, :K] - Y @ ORTHOGONAL / NOISE**2 / precision
    ratio = precision * np.exp(2 * outputs[:, K:])
    expected = np.sum(ratio + precision * away**2 - 1 - np.log(ratio), axis=1).mean() / 2
    assert abs(found.value - expected) < 4 * 0.013
    assert 0 < found.error < 0.1
    plain = replace(graph, local={"z": latent.Delta(Linear())})
    with pytest.raises(TypeError, match="no latent of the model has an encoder"):
        lamu.scores.amortisation_gap(replace(posterior, model=plain), {"y": Y}, jax.random.key(1))
    with pytest.raises(TypeError, match="steps are taken on a mean-field belief"):
        latent.Refined(latent.Delta(Linear()), 3)
    with pytest.raises(ValueError, match="steps=0; give a whole number from 1"):
        latent.Refined(latent.Amortised(Linear()), 0)
    with pytest.raises(ValueError, match=r"rate=2.0 is outside \(0, 1\]"):
        latent.Refined(latent.Amortised(Linear()), 3, rate=2.0)
