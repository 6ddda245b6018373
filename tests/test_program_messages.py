"""Exact messages of NumPyro programs: the function F beside that of the same graph written by hand, and the recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lamu
from lamu import graphs
from lamu.families import Beta, Dirichlet, Gamma, InverseGamma, MultivariateNormal, Wishart
from lamu.programs import AFFINE, AffineDecomposition, SiteBeliefs, SiteMessages, expectation
from lamu.programs.conjugacy import CANDIDATES

random = np.random.default_rng(0)
sample, plate = numpyro.sample, numpyro.plate
N = 12
X, y = random.normal(size=(N, 2)), random.normal(1.0, 2.0, size=N)
vectors, group = np.stack([y, random.normal(size=N)], axis=1), np.arange(N) % 3
counts, bits = random.poisson(3.0, size=N), (y > 1).astype(float)


def regression(X: Any, y: Any) -> None:
    tau = sample("tau", dist.Gamma(2.0, 1.0))
    w = sample("w", dist.Normal(0.0, 1 / jnp.sqrt(tau)).expand([2]).to_event(1))
    noise = sample("noise", dist.Gamma(1.0, 2.0))
    with plate("rows", len(y)):
        sample("y", dist.Normal(X @ w, 1 / jnp.sqrt(noise)), obs=y)


def regression_by_hand(m: Any) -> None:
    tau = m.sample("tau", Gamma(2.0, 1.0))
    w = m.sample("w", graphs.Normal(jnp.zeros(2), precision=tau))
    noise = m.sample("noise", Gamma(1.0, 2.0))
    with m.rows():
        m.sample("y", graphs.Normal(m.data("X") @ w, precision=noise))


def levels(group: Any, y: Any) -> None:
    mu, tau = sample("mu", dist.Normal(0.0, 3.0)), sample("tau", dist.Gamma(2.0, 1.0))
    with plate("groups", 3):
        level = sample("level", dist.Normal(mu, 1 / jnp.sqrt(tau)))
    with plate("rows", len(y)):
        which = sample("group", dist.Categorical(jnp.ones(3) / 3), obs=group)
        sample("y", dist.Normal(level[which], 0.5), obs=y)


def levels_by_hand(m: Any) -> None:
    mu, tau = m.sample("mu", graphs.Normal(0.0, precision=1 / 9)), m.sample("tau", Gamma(2.0, 1.0))
    level = m.sample("level", graphs.Normal(mu, precision=tau), plate=3)
    with m.rows():
        which = m.sample("group", graphs.Categorical(jnp.ones(3) / 3))
        m.sample("y", graphs.Normal(level[which], precision=4.0))


def covariance(v: Any) -> None:
    precision = sample("precision", dist.Wishart(4.0, rate_matrix=jnp.eye(2)))
    mean = sample("mean", dist.MultivariateNormal(jnp.zeros(2), 2.0 * jnp.eye(2)))
    with plate("rows", len(v)):
        sample("v", dist.MultivariateNormal(mean, precision_matrix=precision), obs=v)


def covariance_by_hand(m: Any) -> None:
    precision = m.sample("precision", Wishart(4.0, jnp.eye(2)))
    mean = m.sample("mean", MultivariateNormal(jnp.zeros(2), jnp.eye(2) / 2.0))
    with m.rows():
        m.sample("v", graphs.MultivariateNormal(mean, precision))


def chances(group: Any, bits: Any, counts: Any) -> None:
    share, p = sample("share", dist.Dirichlet(jnp.array([2.0, 1.0, 0.5]))), sample("p", dist.Beta(2.0, 0.5))
    a = sample("a", dist.Gamma(2.0, 1.0))
    rate = sample("rate", dist.Gamma(3.0, a))
    with plate("rows", len(bits)):
        sample("group", dist.Categorical(share), obs=group)
        sample("bits", dist.Bernoulli(p), obs=bits)
        sample("counts", dist.Poisson(rate), obs=counts)


def chances_by_hand(m: Any) -> None:
    share, p = m.sample("share", Dirichlet(jnp.array([2.0, 1.0, 0.5]))), m.sample("p", Beta(2.0, 0.5))
    a = m.sample("a", Gamma(2.0, 1.0))
    rate = m.sample("rate", graphs.Gamma(3.0, a))
    with m.rows():
        m.sample("group", graphs.Categorical(share))
        m.sample("bits", graphs.Bernoulli(p))
        m.sample("counts", graphs.Poisson(rate))


def variances(y: Any) -> None:
    v = sample("v", dist.InverseGamma(2.0, 1.0))
    mean = sample("mean", dist.Normal(0.0, 2.0))
    with plate("rows", len(y)):
        z = sample("z", dist.Categorical(probs=jnp.array([0.3, 0.7])))
        sample("y", dist.Normal(mean, jnp.sqrt(v) * jnp.where(z == 0, 1.0, 3.0)), obs=y)


def mixture(y: Any) -> None:
    weight = sample("weight", dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])))
    tau = sample("tau", dist.Gamma(2.0, 1.0))
    with plate("parts", 3):
        mean = sample("mean", dist.Normal(0.0, 3.0))
    with plate("rows", len(y)):
        z = sample("z", dist.Categorical(weight))
        sample("y", dist.Normal(mean[z], 1 / jnp.sqrt(tau)), obs=y)


def mixture_by_hand(m: Any) -> None:
    weight = m.sample("weight", Dirichlet(jnp.array([1.0, 2.0, 0.5])))
    tau = m.sample("tau", Gamma(2.0, 1.0))
    mean = m.sample("mean", graphs.Normal(0.0, precision=1 / 9), plate=3)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.Normal(mean[z], precision=tau))


PAIRS: dict[Any, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    regression: (regression_by_hand, *[{"X": X, "y": y}] * 2),
    levels: (levels_by_hand, *[{"group": group, "y": y}] * 2),
    covariance: (covariance_by_hand, *[{"v": vectors}] * 2),
    chances: (chances_by_hand, *[{"group": group, "bits": bits, "counts": counts}] * 2),
    mixture: (mixture_by_hand, *[{"y": y}] * 2),
}


LONG = (levels, covariance)  # with what the others have too, but for the Wishart


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=pytest.mark.stress if p in LONG else (), id=p.__name__) for p in PAIRS],
)
def test_the_function_of_a_program_is_that_of_the_graph_written_by_hand(program: Callable[..., None]) -> None:
    by_hand, data, same = PAIRS[program]
    with jax.enable_x64(True):
        target, graph = lamu.from_numpyro(program, data, rows="rows"), lamu.Graph(by_hand)
        assert isinstance(target, SiteMessages)
        batch, other = target.read(None).full(), graph.read(same).full()
        beliefs = graph.first_beliefs(jax.random.key(1), other)
        mu = target.moments({name: beliefs[name] for name in target.kinds})
        assert {name: kind.__name__ for name, kind in target.kinds.items()} == {
            name: kind.__name__ for name, kind in graph.kinds.items()
        }
        found = []
        for of, at in ((target, batch), (graph, other)):

            def F(mu: Any, of: Any = of, at: Any = at) -> Any:
                in_rows, shared = of.row_bounds(mu, at, 2.0), of.shared_log_joint(mu)
                return jnp.sum(in_rows) + shared / 2.0, (in_rows, shared)

            slopes, values = jax.jit(jax.grad(F, has_aux=True))(mu)
            # Of a symmetric matrix a gradient may stand in one half, as beliefs read it.
            found.append((values, {name: part.belief() for name, part in slopes.items()}))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), *found)


@pytest.mark.stress
def test_vmp_ends_where_the_graph_written_by_hand_ends() -> None:
    with jax.enable_x64(True):
        algorithm = lamu.algorithms.vmp(tolerance=0.0)
        target = lamu.from_numpyro(regression, {"X": X, "y": y}, rows="rows")
        ours = lamu.fit(target, None, algorithm, steps=200).posterior
        theirs = lamu.fit(lamu.Graph(regression_by_hand), {"X": X, "y": y}, algorithm, steps=200).posterior
    np.testing.assert_allclose(ours.evidence, theirs.evidence, rtol=1e-8)
    network = ours.belief.factors["network"]
    assert isinstance(network, SiteBeliefs)
    for name, belief in theirs.belief.factors["network"].factors.items():
        own = network.parts.factors["conjugate"].factors[name]
        for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(belief), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8)


@pytest.mark.parametrize(
    ("algorithm", "length"),
    [
        (lamu.algorithms.em(tolerance=0.0), {"steps": 200}),
        pytest.param(lamu.algorithms.svi(), {"batch_size": 4, "epochs": 3}, marks=pytest.mark.stress),
        pytest.param(lamu.algorithms.ncvmp(tolerance=0.0), {"steps": 200}, marks=pytest.mark.stress),
        pytest.param(lamu.algorithms.vmp(tolerance=0.0, restarts=3), {"steps": 200}, marks=pytest.mark.stress),
    ],
    ids=["em", "svi", "ncvmp", "restarts"],
)
def test_other_recipes_take_a_program_as_a_graph(algorithm: Any, length: Any) -> None:
    def ours(y: Any) -> None:
        tau = sample("tau", dist.Gamma(2.0, 1.0))
        with plate("rows", len(y)):
            sample("y", dist.Normal(1.0, 1 / jnp.sqrt(tau)), obs=y)

    def theirs(m: Any) -> None:
        tau = m.sample("tau", Gamma(2.0, 1.0))
        with m.rows():
            m.sample("y", graphs.Normal(1.0, precision=tau))

    with jax.enable_x64(True):
        targets = (lamu.from_numpyro(ours, {"y": y}, rows="rows"), None), (lamu.Graph(theirs), {"y": y})
        fits = [lamu.fit(target, data, algorithm, **length).posterior for target, data in targets]
    taus = [fit.mean["network"]["tau"] for fit in fits]
    np.testing.assert_allclose(taus[0], taus[1], rtol=1e-8)


@pytest.mark.stress
def test_categories_of_rows_are_at_their_best() -> None:
    blobs = np.concatenate([random.normal(-4.0, 1.0, 40), random.normal(4.0, 1.0, 60)])

    def two(y: Any) -> None:
        weight = sample("weight", dist.Dirichlet(jnp.ones(2)))
        with plate("parts", 2):
            mean = sample("mean", dist.Normal(0.0, 5.0))
        with plate("rows", len(y)):
            z = sample("z", dist.Categorical(weight))
            sample("y", dist.Normal(mean[z], 1.0), obs=y)

    target = lamu.from_numpyro(two, {"y": blobs.astype(np.float32)}, rows="rows")
    assert "conjugate given z" in target.table()
    posterior = lamu.fit(target, None, lamu.algorithms.vmp(restarts=2)).posterior
    np.testing.assert_allclose(np.sort(posterior.mean["network"]["mean"]), [-4.0, 4.0], atol=0.5)
    shares = posterior.local({"y": np.array([-4.0, 4.0], np.float32)})["z"].mean
    assert shares.shape == (2, 2)
    assert set(np.argmax(np.asarray(shares), axis=1)) == {0, 1}
    assert posterior.log_prob({"y": np.array([-4.0, 20.0], np.float32)})[1] < -30.0


@pytest.mark.stress
def test_variances_and_categories_together() -> None:
    """F of an inverse Gamma below a category, at T(θ): the log density itself."""
    with jax.enable_x64(True):
        target = lamu.from_numpyro(variances, {"y": y}, rows="rows")
        theta = {"v": jnp.array(0.7), "mean": jnp.array(-0.3)}
        batch, params = target.read(None).full(), target.unconstrained({"network": theta, "likelihood": {}})
        found = target.row_bounds(target.values(theta), batch)
        np.testing.assert_allclose(found, target.log_likelihood(params, {}, batch)[0], rtol=1e-10)
        kind = target.kinds["v"]
        assert all(isinstance(each, AffineDecomposition) for each in AFFINE.values())
        F = expectation(lambda at, _: 3.0 * jnp.log(at["v"]) - 2.0 / at["v"], {"v": kind})
        mu = {"v": kind.under(InverseGamma(3.0, 2.0))}
        np.testing.assert_allclose(F(mu, None), 3.0 * mu["v"].log - 2.0 * mu["v"].inverse, rtol=1e-12)
        assert AFFINE[kind].natural(lambda v: 3.0 * jnp.log(v) - 2.0 / v, mu["v"]).inverse == pytest.approx(-2.0)


def student(y: Any) -> None:
    nu = sample("nu", dist.Gamma(2.0, 1.0))
    with plate("rows", len(y)):
        sample("y", dist.StudentT(nu, 0.0, 1.0), obs=y)


def log_normal(y: Any) -> None:
    r = sample("r", dist.LogNormal(0.0, 1.0))
    with plate("rows", len(y)):
        sample("y", dist.Normal(jnp.log(r), 1.0), obs=y)


def crossed(y: Any) -> None:
    w = sample("w", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    with plate("rows", len(y)):
        sample("y", dist.Normal(jnp.sum(w), 1.0), obs=y)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (student, r"vmp\(\) takes exact messages, and 'nu' is not conjugate in 'y'; else use cvi\(\)"),
        (log_normal, "'r' is Normal in its logarithm alone"),
        (crossed, "the numbers of 'w' meet across its leading axes"),
    ],
)
def test_a_site_without_a_message_is_named_with_its_child(program: Any, said: str) -> None:
    target = lamu.from_numpyro(program, {"y": y.astype(np.float32)}, rows="rows")
    with pytest.raises(TypeError, match=said):
        lamu.fit(target, None, lamu.algorithms.vmp(), steps=1)


SHARES = (jnp.array([0.2, 0.3, 0.5]), jnp.array([0.6, 0.3, 0.1]))
MATRICES = (jnp.array([[2.0, 0.4], [0.4, 1.0]]), jnp.array([[1.0, -0.3], [-0.3, 3.0]]))


@pytest.mark.parametrize(
    ("name", "natural", "points"),
    [
        ("Gamma", [1.5, -2.0], (0.7, 2.5)),
        ("InverseGamma", [-3.5, -2.0], (0.7, 2.5)),
        ("Beta", [1.5, 0.5], (0.2, 0.7)),
        ("Dirichlet", [1.0, 2.0, 0.5], SHARES),
        ("Wishart", [1.5, -2.0, 0.6, -1.0], MATRICES),
    ],
)
def test_the_message_of_a_family_is_its_density(name: str, natural: Any, points: Any) -> None:
    """What `cvi` builds of λ has the log density ⟨λ, T(θ)⟩, up to a constant."""
    kind = CANDIDATES[name]
    natural = jnp.asarray(natural)
    belief: Any = kind.family.from_natural(kind.build(natural), ())
    first, second = (jnp.asarray(point) for point in points)
    found = belief.log_prob(first) - belief.log_prob(second)
    np.testing.assert_allclose(found, natural @ (kind.statistic(first) - kind.statistic(second)), rtol=1e-5)
