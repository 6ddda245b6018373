"""Members, entries, multiples and differences: of every kind of statistic, against SciPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu import graphs
from lamu.families import Beta, Dirichlet, Gamma, MultivariateNormal, NormalGamma, NormalWishart, Wishart
from lamu.graphs.statistics import Vectors

RANDOM = np.random.default_rng(5)
W = RANDOM.normal(size=3)
TABLE = RANDOM.normal(size=(4, 3))
SPD = np.stack([np.eye(2) * (k + 1) + 0.2 for k in range(3)])
SHARES = RANDOM.dirichlet(np.ones(3), size=2)
RATES = np.array([0.5, 1.5, 4.0])
LEVELS = RANDOM.normal(size=(3, 2))
Y = RANDOM.normal(size=4)
PAIRS = RANDOM.normal(size=(4, 2))
normal = lambda x, mean, scale=1.0: stats.norm(mean, scale).logpdf(x)


def vector(m):
    return m.sample("w", MultivariateNormal(jnp.zeros(3), jnp.eye(3)))


def numbers(m):
    return m.sample("w", graphs.Normal(jnp.zeros(3), precision=1.0))


def plate(m):
    return m.sample("w", MultivariateNormal(jnp.zeros(3), jnp.eye(3)), plate=4)


def product_beside(m, w) -> None:
    """A line that keeps the numbers of w together as one vector, and says nothing."""
    m.sample("u", graphs.Normal(jnp.zeros(3) @ w, precision=1.0))


def y(m, mean, precision=1.0) -> None:
    m.sample("y", graphs.Normal(mean, precision=precision))


CASES = {
    "Vectors by a slice": (vector, lambda m, w: y(m, w[1:3]), W, PAIRS, normal(PAIRS, W[1:3]).sum(1)),
    "Vectors by a number": (vector, lambda m, w: y(m, w[0]), W, Y, normal(Y, W[0])),
    "Vectors by a step": (vector, lambda m, w: y(m, w[::-2]), W, PAIRS, normal(PAIRS, W[::-2]).sum(1)),
    "Vectors from behind": (vector, lambda m, w: y(m, w[-1]), W, Y, normal(Y, W[-1])),
    "Numbers by a slice": (numbers, lambda m, w: y(m, w[1:3]), W, PAIRS, normal(PAIRS, W[1:3]).sum(1)),
    "Numbers in a product": (
        numbers,
        lambda m, w: (y(m, w[1:3]), product_beside(m, w)),
        W,
        PAIRS,
        normal(PAIRS, W[1:3]).sum(1),
    ),
    "entries in a product": (vector, lambda m, w: y(m, PAIRS[0] @ w[1:3]), W, Y, normal(Y, PAIRS[0] @ W[1:3])),
    "plate of Vectors": (plate, lambda m, w: y(m, w[1:3, 0]), TABLE, PAIRS, normal(PAIRS, TABLE[1:3, 0]).sum(1)),
    "all but one axis": (plate, lambda m, w: y(m, w[:2, ..., 1]), TABLE, PAIRS, normal(PAIRS, TABLE[:2, 1]).sum(1)),
    "member in a product": (plate, lambda m, w: y(m, jnp.ones(3) @ w[2]), TABLE, Y, normal(Y, TABLE[2].sum())),
    "Vectors by an array": (vector, lambda m, w: y(m, w[[2, 0, 2]]), W, TABLE, normal(TABLE, W[[2, 0, 2]]).sum(1)),
    "members by an array": (
        plate,
        lambda m, w: y(m, w[np.array([3, 1])] @ RATES),
        TABLE,
        PAIRS,
        normal(PAIRS, TABLE[[3, 1]] @ RATES).sum(1),
    ),
    "entries by an array": (vector, lambda m, w: y(m, RATES @ w[[2, 0, 2]]), W, Y, normal(Y, RATES @ W[[2, 0, 2]])),
    "multiple": (numbers, lambda m, w: y(m, 2.0 * w[0]), W, Y, normal(Y, 2 * W[0])),
    "difference": (numbers, lambda m, w: y(m, w[1:][0] - 1.0), W, Y, normal(Y, W[1] - 1)),
    "minus": (vector, lambda m, w: y(m, 1.0 - w[:2]), W, PAIRS, normal(PAIRS, 1 - W[:2]).sum(1)),
    "multiples of a product": (vector, lambda m, w: y(m, -(W @ w)), W, Y, normal(Y, -W @ W)),
    "products of multiples": (vector, lambda m, w: y(m, W @ (W * w)), W, Y, normal(Y, W @ W**2)),
}


def density(program, theta, data):
    graph = lamu.Graph(program)
    return graph.row_bounds(graph.values(theta), graph.read(data).full())


@pytest.mark.parametrize("case", CASES)
def test_entries_of_numbers_and_vectors_are_normal(case: str) -> None:
    prior, rows, value, data, expected = CASES[case]
    beside = case == "Numbers in a product"

    def program(m) -> None:
        w = prior(m)
        with m.rows():
            rows(m, w)

    found = density(program, {"w": jnp.asarray(value)}, {"y": data} | ({"u": np.zeros(4)} if beside else {}))
    np.testing.assert_allclose(found - (normal(0.0, 0.0) if beside else 0.0), expected, rtol=1e-12)


OTHERS = {
    "Positive": (Gamma(1.0, 1.0), 3, RATES, lambda m, v: m.sample("y", graphs.Poisson(v[1:])), (4, 2), "poisson"),
    "Chance": (Beta(1.0, 1.0), 3, RATES / 5, lambda m, v: m.sample("y", graphs.Bernoulli(v[2])), (4,), "bernoulli"),
    "Probabilities": (
        Dirichlet(jnp.ones(3)),
        2,
        SHARES,
        lambda m, v: m.sample("y", graphs.Categorical(v[1])),
        (4,),
        "simplex",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_members_of_probabilities_and_rates(kind: str) -> None:
    prior, size, value, rows, shape, name = OTHERS[kind]

    def program(m) -> None:
        v = m.sample("v", prior, plate=size)
        with m.rows():
            rows(m, v)

    data = np.random.default_rng(1).integers(0, 2, size=shape)
    expected = {
        "poisson": lambda: stats.poisson(RATES[1:]).logpmf(data).sum(1),
        "bernoulli": lambda: stats.bernoulli(RATES[2] / 5).logpmf(data),
        "simplex": lambda: np.log(SHARES[1][data]),
    }[name]()
    np.testing.assert_allclose(density(program, {"v": jnp.asarray(value)}, {"y": data}), expected, rtol=1e-12)


def test_members_of_precisions_and_located_variables() -> None:
    mean = {"mean": jnp.asarray(LEVELS), "precision": jnp.asarray(SPD)}
    one = {"mean": jnp.asarray(W), "precision": jnp.asarray(RATES)}

    def program(m) -> None:
        P = m.sample("P", Wishart(3.0, jnp.eye(2)), plate=3)
        part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 3.0, jnp.eye(2)), plate=3)
        number = m.sample("number", NormalGamma(0.0, 1.0, 1.0, 1.0), plate=3)
        with m.rows():
            m.sample("a", graphs.MultivariateNormal(jnp.zeros(2), P[1]))
            m.sample("b", graphs.MultivariateNormal(part[2]))
            m.sample("c", graphs.Normal(number[1:]))

    found = density(program, {"P": jnp.asarray(SPD), "part": mean, "number": one}, {"a": PAIRS, "b": PAIRS, "c": PAIRS})
    expected = (
        stats.multivariate_normal(np.zeros(2), np.linalg.inv(SPD[1])).logpdf(PAIRS)
        + stats.multivariate_normal(LEVELS[2], np.linalg.inv(SPD[2])).logpdf(PAIRS)
        + normal(PAIRS, W[1:], RATES[1:] ** -0.5).sum(1)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_members_of_variances_broadcast_in_a_product_of_scales() -> None:
    def program(m) -> None:
        scale = m.sample("whole", graphs.HalfCauchy(1.0)) * m.sample("each", graphs.HalfCauchy(1.0), plate=3) * 2.0
        with m.rows():
            m.sample("y", graphs.Normal(0.0, scale=scale[1]))

    theta = {"whole": jnp.array(0.25), "each": jnp.asarray(RATES**2)}
    theta |= {f"{name}.auxiliary": jnp.ones_like(value) for name, value in theta.items()}
    np.testing.assert_allclose(density(program, theta, {"y": Y}), normal(Y, 0.0, RATES[1]), rtol=1e-12)


def test_an_entry_of_a_chain_is_its_marginal() -> None:
    """y_t ~ N(x_t0, 1) and v ~ N(x_2, 1) below a random walk, by the covariance of the whole series."""
    covariance = np.kron(np.minimum(*np.indices((4, 4))) + 1.0, np.eye(2))
    seen = [0, 2, 4, 6, 4, 5]

    def program(m) -> None:
        with m.rows():
            x = m.sample("x", graphs.GaussianChain(4, jnp.eye(2), precision=1.0, first_precision=1.0))
            m.sample("y", graphs.Normal(x[:, 0], precision=1.0))
            m.sample("v", graphs.Normal(x[2], precision=1.0))

    y, v = RANDOM.normal(size=(2, 4)), RANDOM.normal(size=(2, 2))
    expected = stats.multivariate_normal(np.zeros(6), covariance[np.ix_(seen, seen)] + np.eye(6)).logpdf(np.c_[y, v])
    np.testing.assert_allclose(density(program, {}, {"y": y, "v": v}), expected, rtol=1e-10)


def test_a_category_or_an_input_picks_an_entry_of_a_vector() -> None:
    by_group, by_category = np.array([0, 2, 1, 2]), np.full(3, 1 / 3)

    def program(m) -> None:
        b = m.sample("b", graphs.Normal(0.0, precision=1.0), plate=3)
        with m.rows():
            z = m.sample("z", graphs.Categorical(jnp.asarray(by_category)))
            m.sample("y", graphs.Normal(b[z], precision=1.0))
            m.sample("v", graphs.Normal(b[m.data("group")], precision=1.0))
            m.sample("u", graphs.Normal(m.data("x") @ b, precision=1.0))

    found = density(program, {"b": jnp.asarray(W)}, {"y": Y, "v": Y, "u": Y, "group": by_group, "x": TABLE})
    mixture = np.log(np.exp(normal(Y[:, None], W)) @ by_category)
    np.testing.assert_allclose(found, mixture + normal(Y, W[by_group]) + normal(Y, TABLE @ W), rtol=1e-12)


def test_several_indices_pick_an_entry_of_a_table() -> None:
    """As `table[a, b]` of NumPy: of categories, inputs and numbers; it was refused as an array without a value."""
    chances, group = np.array([0.2, 0.5, 0.3]), np.array([0, 3, 1, 3])

    def program(m) -> None:
        b = m.sample("b", graphs.Normal(jnp.zeros((4, 3)), precision=1.0))
        with m.rows():
            z = m.sample("z", graphs.Categorical(jnp.asarray(chances)))
            m.sample("y", graphs.Normal(b[m.data("group"), z], precision=1.0))
            m.sample("v", graphs.Normal(b[m.data("group"), m.data("other")], precision=1.0))
            m.sample("u", graphs.Normal(b[2, z], precision=1.0))

    data = {"y": Y, "v": Y, "u": Y, "group": group, "other": group % 3}
    found = density(program, {"b": jnp.asarray(TABLE)}, data)
    by_category = np.exp(normal(Y[:, None], TABLE[group]) + normal(Y[:, None], TABLE[2]))
    np.testing.assert_allclose(found, np.log(by_category @ chances) + normal(Y, TABLE[group, group % 3]), rtol=1e-12)
    with pytest.raises(TypeError, match="'group' picks several members of a row, and of several indices only the last"):
        density(program, {"b": jnp.asarray(TABLE)}, {**data, "group": np.stack([group, group], 1)})


def test_a_probability_table_has_two_parents() -> None:
    """Probabilities of a category given two others, as in Bayesian networks, are counts of complete rows."""
    a, b, y = np.array([0, 1, 1, 0, 1]), np.array([0, 0, 1, 0, 1]), np.array([2, 1, 0, 2, 1])

    def program(m) -> None:
        share = m.sample("share", Dirichlet(jnp.ones(2)), plate=2)
        table = m.sample("table", Dirichlet(jnp.ones(3)), plate=(2, 2))
        with m.rows():
            a, b = (m.sample(name, graphs.Categorical(share[k])) for k, name in enumerate("ab"))
            m.sample("y", graphs.Categorical(table[a, b]))

    posterior = lamu.fit(lamu.Graph(program), {"a": a, "b": b, "y": y}, lamu.algorithms.vmp(), steps=3).posterior
    counts = np.ones((2, 2, 3))
    np.add.at(counts, (a, b, y), 1)
    np.testing.assert_allclose(posterior.mean["network"]["table"], counts / counts.sum(-1, keepdims=True), rtol=1e-5)


def test_moments_of_entries_are_those_of_the_belief() -> None:
    """Two of three weights meet the data; the gradient is then the exact posterior, as linear algebra has it."""

    def program(m) -> None:
        w = vector(m)
        with m.rows():
            m.sample("y", graphs.Normal(m.data("x") @ w[1:], precision=2.0))

    graph = lamu.Graph(program)
    batch = graph.read({"x": PAIRS, "y": Y}).full()
    F = lambda w: jnp.sum(graph.row_bounds({"w": w}, batch)) + graph.shared_log_joint({"w": w})
    belief = jax.grad(F)(Vectors.under(MultivariateNormal(jnp.asarray(W), 3.0 * jnp.eye(3)))).belief()
    precision = np.eye(3)
    precision[1:, 1:] += 2.0 * PAIRS.T @ PAIRS
    np.testing.assert_allclose(belief.precision, precision, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(precision, np.r_[0.0, 2.0 * PAIRS.T @ Y]), atol=1e-10)


def test_an_array_picks_precisions_several_times() -> None:
    def program(m) -> None:
        noise = m.sample("noise", Gamma(1.0, 1.0), plate=2)
        with m.rows():
            m.sample("y", graphs.Normal(0.0, precision=noise[[1, 0, 1]]))

    found = density(program, {"noise": jnp.asarray([0.25, 4.0])}, {"y": TABLE})
    np.testing.assert_allclose(found, normal(TABLE, 0.0, np.array([0.5, 2.0, 0.5])).sum(1), rtol=1e-12)


def test_a_scalar_product_counts_once_where_it_is_broadcast() -> None:
    """a `[3]` + w·x with as many weights as members: squares are of the sum, not of its parts."""

    def program(m) -> None:
        a, w = numbers(m), m.sample("v", MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        with m.rows():
            m.sample("y", graphs.Normal(a + jnp.asarray(W) @ w, precision=1.0))
            m.sample("u", graphs.Normal(a - m.data("x") @ w, precision=1.0))

    theta = {"w": jnp.asarray(W), "v": jnp.asarray(RATES)}
    found = density(program, theta, {"y": TABLE, "u": TABLE, "x": TABLE})
    expected = normal(TABLE, W + W @ RATES) + normal(TABLE, W - (TABLE @ RATES)[:, None])
    np.testing.assert_allclose(found, expected.sum(1), rtol=1e-12)


def test_what_an_index_refuses() -> None:
    m = graphs.Program()
    w, share = vector(m), m.sample("share", Dirichlet(jnp.ones(3)), plate=2)
    part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 3.0, jnp.eye(2)))
    W = m.sample("W", graphs.Normal(jnp.zeros((4, 3)), precision=1.0))
    b = m.sample("b", graphs.Normal(0.0, precision=1.0), plate=4)
    rate = m.sample("rate", Gamma(1.0, 1.0))
    scale = m.sample("s", graphs.HalfCauchy(1.0))
    with m.rows():
        states = m.sample("states", graphs.Markov(5, jnp.full(4, 0.25), jnp.full((4, 4), 0.25)))
        kind = m.sample("kind", graphs.Categorical(jnp.full(3, 1 / 3)))
    for wrong, error, words in (
        (lambda: w[3], ValueError, "index 3 is beyond the 3 members of axis 0 of w"),
        (lambda: w[0, 0], ValueError, "w has the shape \\(3,\\), and 2 axes are indexed"),
        (lambda: w[[0, 3]], ValueError, "index 3 is beyond the 3 members of axis 0 of w"),
        (lambda: w[np.eye(3, dtype=int)], TypeError, "is a ndarray; give whole"),
        (lambda: W[[0, 1], 0], TypeError, "the index has an array and a whole number"),
        (lambda: graphs.Normal(0.0, precision=scale), TypeError, "the precision of Normal is the scale s; give a Half"),
        (lambda: graphs.Poisson(scale), TypeError, "the rate of Poisson is the scale s"),
        (lambda: w[0.5], TypeError, "the index 0.5 is a float"),
        (
            lambda: share[:, :2],
            TypeError,
            "share is probabilities that sum to one of shape \\(2, 3\\), and the index cuts",
        ),
        (lambda: part[0], TypeError, "part is a mean vector with its precision matrix of shape \\(2,\\)"),
        (lambda: W[:, kind], TypeError, r"'W' mixes a slice .* W\[a\] with plate=\(3, 2\) for W\[:, a\]"),
        (lambda: W[:, 0] @ w, TypeError, "an index has taken that axis from W"),
        (
            lambda: W[states, 0],
            TypeError,
            "'states' is a series .* no index may follow it; put the other",
        ),
        (lambda: W[states][kind], TypeError, "'states' is a series .* weights=w"),
        (lambda: W[states, kind], TypeError, "'states' is a series .* weights=w"),
        (
            lambda: w[0] - w[1],
            ValueError,
            "both sides of \\+ depend on w.* m.data\\(name\\) @ variable, .* has 1 and -1",
        ),
        (lambda: w + b, ValueError, "\\+ meets w of shape \\(3,\\) and b of shape \\(4,\\); give both the same plate"),
        (lambda: w * jnp.ones(4), ValueError, "\\* meets w of shape"),
        (lambda: w * b, TypeError, "\\* takes known numbers on one side, and meets w and b"),
        (lambda: -2.0 * rate, TypeError, "\\* takes numbers and vectors, and rate is positive numbers"),
        (lambda: w - rate, TypeError, "\\* takes numbers and vectors, and rate is positive"),
        (lambda: 1.0 + rate, TypeError, "\\+ takes numbers and vectors, and rate is positive"),
        (lambda: share * jnp.ones(4), TypeError, "share is probabilities .* several observations .* a plate="),
    ):
        with pytest.raises(error, match=words):
            wrong()


def test_an_array_with_an_entry_for_each_row_is_named_as_data() -> None:
    def program(m) -> None:
        mean = m.sample("mean", graphs.Normal(0.0, precision=1.0), plate=3)
        with m.rows():
            m.sample("y", graphs.Normal(mean[[0, 2, 1, 0]], precision=1.0))

    with pytest.raises(ValueError, match="the program makes \\(4,\\) of a row; an index of all rows is data: mean"):
        lamu.Graph(program).read({"y": Y})


@pytest.mark.parametrize("order", [0, 1, 2])
def test_inputs_of_all_members_may_stand_anywhere_in_a_sum(order: int) -> None:
    """A matrix in a row, with a vector for each member or time, in a term of the sum or in a sum of it."""
    u = np.random.default_rng(1).normal(size=(4, 3, 2))

    def program(m) -> None:
        w, b = (m.sample(name, graphs.Normal(0.0, precision=1.0), plate=plate) for name, plate in (("w", 3), ("b", ())))
        e = m.sample("e", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        with m.rows():
            effect = m.data("u") @ e
            m.sample("y", graphs.Normal([w + effect + b, (b + effect) + w, w + (effect + b)][order], precision=1.0))

    e = np.array([0.5, -2.0])
    found = density(program, {"w": jnp.asarray(W), "b": jnp.asarray(0.3), "e": jnp.asarray(e)}, {"y": TABLE, "u": u})
    np.testing.assert_allclose(found, normal(TABLE, W + 0.3 + u @ e).sum(1), rtol=1e-12)


def pupils(m) -> None:
    """Rows of five pupils with two inputs each, with the coefficients of the row's school."""
    common = m.sample("common", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
    slopes = m.sample("slopes", graphs.MultivariateNormal(common, 4.0 * jnp.eye(2)), plate=3)
    noise = m.sample("noise", Gamma(2.0, 1.0))
    with m.rows():
        m.sample("y", graphs.Normal(m.data("u") @ slopes[m.data("school")], precision=noise))


def test_a_matrix_of_inputs_multiplies_the_coefficients_of_a_group() -> None:
    """Beliefs, evidence, predictions and densities equal those of a row for each pupil."""
    random = np.random.default_rng(2)
    u, school, y = random.normal(size=(8, 5, 2)), np.arange(8) % 3, random.normal(size=(8, 5))
    y[::3, 1] = np.nan
    wide = {"u": u, "school": school, "y": y}
    each = {"u": u.reshape(-1, 2), "school": np.repeat(school, 5), "y": y.reshape(-1)}
    one, other = (
        lamu.fit(lamu.Graph(pupils), data, lamu.algorithms.vmp(), steps=60).posterior for data in (wide, each)
    )
    np.testing.assert_allclose(one.evidence, other.evidence, rtol=1e-5)
    for name in ("common", "slopes", "noise"):
        for part in ("mean", "std"):
            found, right = (getattr(p, part)["network"][name] for p in (one, other))
            np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-4)
    asked = [{name: part for name, part in data.items() if name != "y"} for data in (wide, each)]
    found, right = one.predict(asked[0]), other.predict(asked[1])
    for part in ("mean", "std"):
        np.testing.assert_allclose(np.ravel(getattr(found, part)), getattr(right, part), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("u", "y", "events"), [((4, 2), (4, 1), "\\(\\)"), ((4, 5, 2), (4,), "\\(5,\\)")])
def test_data_have_the_shape_that_inputs_of_a_row_give_them(u: tuple, y: tuple, events: str) -> None:
    data = {"u": np.ones(u), "school": np.arange(4) % 3, "y": np.ones(y)}
    with pytest.raises(ValueError, match=f"y has the shape .*, and the program makes {events} of a row; give \\[N"):
        lamu.Graph(pupils).read(data)


def test_inputs_of_another_number_than_the_coefficients_are_named() -> None:
    data = {"u": np.ones((4, 3)), "school": np.arange(4) % 3, "y": np.ones(4)}
    with pytest.raises(ValueError, match="@ meets 3 and 2 numbers, of slopes"):
        lamu.fit(lamu.Graph(pupils), data, lamu.algorithms.vmp())


def test_correlated_errors_of_a_regression() -> None:
    """As in space or of seemingly unrelated equations: generalised least squares, in closed form."""
    x, y = np.random.default_rng(7).normal(size=(5, 3, 2)), np.random.default_rng(8).normal(size=(5, 3))
    Q = np.linalg.inv(0.5 * np.eye(3) + 0.5)

    def program(m) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        with m.rows():
            m.sample("y", graphs.MultivariateNormal(m.data("x") @ w + jnp.ones(3), jnp.asarray(Q)))

    posterior = lamu.fit(lamu.Graph(program), {"x": x, "y": y}, lamu.algorithms.vmp()).posterior
    belief = posterior.belief.factors["network"].factors["w"]
    precision = np.eye(2) + np.einsum("nip,ij,njq->pq", x, Q, x)
    mean = np.linalg.solve(precision, np.einsum("nip,ij,nj->p", x, Q, y - 1.0))
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(belief.std**2, np.diag(np.linalg.inv(precision)), rtol=1e-9)
    wide = np.kron(np.eye(5), np.linalg.inv(Q)) + x.reshape(15, 2) @ x.reshape(15, 2).T
    exact = stats.multivariate_normal(np.ones(15), wide).logpdf(y.ravel())
    np.testing.assert_allclose(posterior.evidence, exact, rtol=1e-9)
    told = posterior.predict({"x": x[:1]})
    np.testing.assert_allclose(told.mean[0], x[0] @ mean + 1.0, rtol=1e-9)
    new = np.linalg.inv(Q) + x[0] @ np.linalg.inv(precision) @ x[0].T
    np.testing.assert_allclose(told.std[0] ** 2, np.diag(new), rtol=1e-9)


def test_an_inverse_is_symmetric_up_to_rounding() -> None:
    """`tau * Q` was "takes numbers and vectors, and tau is positive numbers"."""
    Q = np.linalg.inv(2.0 * np.eye(3) + np.array([[0, 1, 0.5], [1, 0, 1], [0.5, 1, 0]]))
    tilted = jnp.asarray(Q) + 1e-16 * jnp.asarray(np.triu(np.ones((3, 3)), 1))
    assert not np.array_equal(tilted, tilted.T)

    def program(m) -> None:
        tau = m.sample("tau", Gamma(2.0, 1.0))
        with m.rows():
            m.sample("y", graphs.MultivariateNormal(jnp.zeros(3), tau * tilted))

    y = jnp.asarray([[0.3, -0.4, 1.0]])
    graph = lamu.Graph(program)
    value = graph.row_bounds(graph.values({"tau": jnp.asarray(1.7)}), graph.read({"y": y}).full())
    np.testing.assert_allclose(value, stats.multivariate_normal(cov=np.linalg.inv(1.7 * Q)).logpdf(y[0]), rtol=1e-9)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_positive_number_scales_a_known_precision_matrix(sign: float) -> None:
    """As in a conditional autoregression, whose neighbours' entries are negative."""
    Q = 2.0 * np.eye(3) + sign * (np.eye(3, k=1) + np.eye(3, k=-1))
    y = TABLE[:4, :3]

    def program(m, matrix=Q) -> None:
        tau = m.sample("tau", Gamma(2.0, 1.0))
        w = m.sample("w", graphs.MultivariateNormal(jnp.zeros(3), tau * matrix))
        with m.rows():
            m.sample("y", graphs.Normal(w, precision=1.0))

    graph = lamu.Graph(program)
    theta = {"tau": jnp.asarray(1.7), "w": jnp.asarray([0.3, -0.4, 1.0])}
    expected = stats.gamma(2.0).logpdf(1.7) + stats.multivariate_normal(cov=np.linalg.inv(1.7 * Q)).logpdf(theta["w"])
    assert graph.shared_log_joint(graph.values(theta)) == pytest.approx(expected, rel=1e-12)
    fit = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp())
    assert np.diff(fit.history["loss"]).max() <= 1e-12
    with pytest.raises(ValueError, match=r"tau multiplies a matrix with the eigenvalue .* add a small number to its"):
        lamu.Graph(lambda m: program(m, Q - np.linalg.eigvalsh(Q)[0] * np.eye(3)))
