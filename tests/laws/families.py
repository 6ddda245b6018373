"""Laws of families, by kind: what makes an exponential family one, and what every belief owes to its draws.

A minimal exponential row's subject is the class of the belief, called with mean and precision. Its extras:
`build(matrix)` makes an operator of what its structure keeps of a matrix; `keep` says in NumPy what that is;
`natural_step` and `gaussian_step` are the rule's. Other rows' subjects are beliefs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats

from lamu import rule, tree
from lamu.families import (
    Draws,
    Ensemble,
    ExpectationParameters,
    Family,
    Gaussian,
    NaturalParameters,
    Point,
    Product,
)
from lamu.operators import Dense, DenseBlocks, Diagonal, Scalar
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("families", "belief draws ensemble gaussian point product")

MEAN = {"kernel": jnp.array([[0.4, -1.1], [2.0, 0.3]]), "scale": jnp.array(-0.7)}
AWAY = {"kernel": jnp.array([[-0.2, 0.5], [1.1, -0.9]]), "scale": jnp.array(0.6)}
D = 5
ROOTS = np.random.default_rng(3).normal(size=(3, D, D))
FIRST, SECOND, THIRD = (0.6 * root @ root.T + np.diag(np.linspace(0.5, 3.0, D)) for root in ROOTS)
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def flat(a: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(a)[0])


def single(a: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), a)


def vector_like(values: np.ndarray, like: Any = MEAN) -> Any:
    return ravel_pytree(like)[1](jnp.asarray(values))


def mean_of_diagonal(matrix: np.ndarray) -> np.ndarray:
    return np.mean(np.diag(matrix)) * np.eye(len(matrix))


def build_scalar(matrix: np.ndarray, like: Any = MEAN) -> Scalar:
    return Scalar(jnp.asarray(np.mean(np.diag(matrix))))


def build_diagonal(matrix: np.ndarray, like: Any = MEAN) -> Diagonal:
    return Diagonal(vector_like(np.diag(matrix), like))


def build_dense(matrix: np.ndarray, like: Any = MEAN) -> Dense:
    return Dense(jnp.asarray(matrix))


def build_blocks(matrix: np.ndarray, like: Any = MEAN) -> DenseBlocks:
    """A matrix a leaf, in the leaves' order."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([jnp.size(leaf) for leaf in leaves])
    parts = [slice(end - jnp.size(leaf), end) for leaf, end in zip(leaves, ends, strict=True)]
    return DenseBlocks(jax.tree.unflatten(structure, [Dense(jnp.asarray(matrix[part, part])) for part in parts]))


def keep_blocks(matrix: np.ndarray) -> np.ndarray:
    """MEAN's leaves have four coordinates and one, PLANE's one each."""
    first = {5: 4, 2: 1}[len(matrix)]
    within = np.arange(len(matrix)) < first
    return np.where(within[:, None] == within[None], matrix, 0.0)


STEPS = {"natural_step": rule.natural_step, "gaussian_step": rule.gaussian_step}
scalar = row("families", "Gaussian Scalar", Gaussian, "gaussian", build=build_scalar, keep=mean_of_diagonal, **STEPS)
diagonal = row(
    "families",
    "Gaussian Diagonal",
    Gaussian,
    "gaussian",
    build=build_diagonal,
    keep=lambda a: np.diag(np.diag(a)),
    **STEPS,
)
dense = row("families", "Gaussian Dense", Gaussian, "gaussian", build=build_dense, keep=lambda a: a, **STEPS)
blocks = row("families", "Gaussian DenseBlocks", Gaussian, "gaussian", build=build_blocks, keep=keep_blocks, **STEPS)
SOUND = (scalar, diagonal, dense, blocks)

point = row("families", "Point", Point(MEAN), "belief point", sort="degenerate")
VISITED = {
    "kernel": jnp.asarray(np.random.default_rng(6).normal(size=(2, 6, 2, 2))),
    "scale": jnp.arange(12.0).reshape(2, 6),
}
visited = row("families", "Draws", Draws(VISITED), "belief draws", sort="joint")
MEMBERS = Point(jax.tree.map(lambda leaf: leaf[0], VISITED))
together = row("families", "Ensemble", Ensemble(MEMBERS), "belief ensemble", sort="joint")
FACTORS = {
    "network": Gaussian(MEAN, build_dense(FIRST)),
    "likelihood": Gaussian({"log_scale": jnp.array([0.2, 0.5])}, Scalar(jnp.array(4.0))),
    "held": Point({"offset": jnp.array([3.0])}),
}
product = row("families", "Product", Product(FACTORS), "belief product", sort="product")


def belief(row: Row, matrix: np.ndarray = FIRST, mean: Any = MEAN) -> Any:
    return row.subject(mean, row.extras["build"](matrix, mean))


def reference(row: Row, matrix: np.ndarray = FIRST, mean: Any = MEAN) -> Any:
    """SciPy's account of the same belief."""
    return stats.multivariate_normal(flat(mean), np.linalg.inv(row.extras["keep"](matrix)))


# Two dimensions, for integrals over a grid.
PLANE = {"a": jnp.array([0.5]), "b": jnp.array(-0.8)}
ELSEWHERE = {"a": jnp.array([-0.3]), "b": jnp.array(0.4)}
SMALL, TILTED = np.array([[1.5, 0.6], [0.6, 0.9]]), np.array([[0.7, -0.3], [-0.3, 2.0]])


def grid(mean: Any = PLANE) -> tuple[Any, float]:
    """Points of a wide grid and the area of a cell: trapezoidal sums, exact to rounding for Gaussians."""
    line = np.linspace(-14.0, 14.0, 201)
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2) + flat(mean)
    return jax.vmap(ravel_pytree(PLANE)[1])(jnp.asarray(points)), float((line[1] - line[0]) ** 2)


def compare(found: Any, expected: Any, **tolerance: float) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, **(tolerance or CLOSE))


@law("families", when="gaussian")
def log_prob_is_scipys(row: Row) -> None:
    found = belief(row).log_prob(AWAY)
    assert found.shape == ()
    np.testing.assert_allclose(found, reference(row).logpdf(flat(AWAY)), **CLOSE)


@law("families", when="gaussian")
def density_integrates_to_one(row: Row) -> None:
    points, area = grid()
    density = jax.vmap(lambda theta: jnp.exp(belief(row, SMALL, PLANE).log_prob(theta)))(points)
    np.testing.assert_allclose(jnp.sum(density) * area, 1.0, rtol=1e-9)


@law("families", when="gaussian")
def entropy_is_scipys(row: Row) -> None:
    np.testing.assert_allclose(belief(row).entropy(), reference(row).entropy(), **CLOSE)


@law("families", when="gaussian")
def kl_is_the_integral(row: Row) -> None:
    """Beside every structure that the other may have."""
    points, area = grid()
    theta = rows_of(points)
    log_q = reference(row, SMALL, PLANE).logpdf(theta)
    for other in SOUND:
        log_p = reference(other, TILTED, ELSEWHERE).logpdf(theta)
        integral = np.sum(np.exp(log_q) * (log_q - log_p)) * area
        found = belief(row, SMALL, PLANE).kl(belief(other, TILTED, ELSEWHERE))
        np.testing.assert_allclose(found, integral, rtol=1e-8, err_msg=other.name)


@law("families", when="gaussian")
def kl_is_the_bregman_divergence(row: Row) -> None:
    """KL(q ‖ p) = A(λ_p) − A(λ_q) − ⟨μ_q, λ_p − λ_q⟩."""
    q, p = belief(row), belief(row, SECOND, AWAY)
    ours, theirs, mu = q.natural(), p.natural(), q.expectation()
    difference = jax.tree.map(lambda a, b: b - a, tuple_of(ours), tuple_of(theirs))
    bregman = theirs.log_partition() - ours.log_partition() - tree.dot(tuple_of(mu), difference)
    np.testing.assert_allclose(q.kl(p), bregman, **CLOSE)


@law("families", when="gaussian")
def kl_is_zero_only_at_equality(row: Row) -> None:
    """And positive for a small step in every coordinate of λ, of either sign."""
    q = belief(row)
    np.testing.assert_allclose(q.kl(belief(row)), 0.0, atol=1e-12)
    coordinates, at = chart(row, q.natural())
    for direction in np.eye(coordinates.size):
        for step in (1e-2, -1e-2):
            assert q.kl(at(coordinates + step * direction).family()) > 1e-7
    assert q.kl(belief(row, SECOND)) > 1e-3
    assert q.kl(belief(row, FIRST, AWAY)) > 1e-3


def tuple_of(parameters: Any) -> Any:
    """Natural and expectation parameters are two types; as tuples they pair."""
    return parameters.values


def natural_of(q: Any, first: Any, second: Any) -> NaturalParameters:
    return NaturalParameters((first, second), (), type(q))


def expectation_of(q: Any, first: Any, second: Any) -> ExpectationParameters:
    return ExpectationParameters((first, second), (), type(q))


def chart(row: Row, natural: Any) -> tuple[jax.Array, Any]:
    """Independent coordinates of λ, the off-diagonal entries of a symmetric matrix once, and the way back."""
    head, tail = natural.values
    first, take = ravel_pytree(head)
    if isinstance(tail, DenseBlocks):
        return chart_of_blocks(natural)
    if not isinstance(tail, Dense):
        second, take_second = ravel_pytree(tail)
        at = lambda c: replace(natural, values=(take(c[: first.size]), take_second(c[first.size :])))
        return jnp.concatenate([first, second]), at
    size = first.size
    upper = np.triu_indices(size)

    def at(c: jax.Array) -> Any:
        half = jnp.zeros((size, size)).at[upper].set(c[size:])
        return replace(natural, values=(take(c[:size]), Dense((half + half.T) / 2)))

    twice = 2.0 * tail.matrix - jnp.diag(jnp.diagonal(tail.matrix))
    return jnp.concatenate([first, twice[upper]]), at


def chart_of_blocks(natural: Any) -> tuple[jax.Array, Any]:
    """The same, of the matrices of all leaves."""
    head, tail = natural.values
    first, take = ravel_pytree(head)
    matrices, structure = jax.tree.flatten(tail)
    uppers = [np.triu_indices(len(matrix)) for matrix in matrices]
    ends = np.cumsum([first.size, *(len(upper[0]) for upper in uppers)])

    def at(c: jax.Array) -> Any:
        halves = [
            jnp.zeros_like(matrix).at[upper].set(c[start:end])
            for matrix, upper, start, end in zip(matrices, uppers, ends[:-1], ends[1:], strict=True)
        ]
        second = structure.unflatten([(half + half.T) / 2 for half in halves])
        return replace(natural, values=(take(c[: first.size]), second))

    twice = [
        (2.0 * matrix - jnp.diag(jnp.diagonal(matrix)))[upper] for matrix, upper in zip(matrices, uppers, strict=True)
    ]
    return jnp.concatenate([first, *twice]), at


@law("families", when="gaussian")
def natural_parameters_are_as_defined(row: Row) -> None:
    """λ = (S m, −S/2), in the structure."""
    found, S = belief(row).natural(), row.extras["keep"](FIRST)
    np.testing.assert_allclose(flat(found.values[0]), S @ flat(MEAN), **CLOSE)
    np.testing.assert_allclose(found.values[1].dense(MEAN), -S / 2, **CLOSE)


def believed(parameters: Any) -> Any:
    """The belief, which there must be."""
    try:
        return parameters.family()
    except ValueError as error:
        raise AssertionError(str(error)) from None


@law("families", when="gaussian")
def natural_and_back(row: Row) -> None:
    again = believed(belief(row).natural())
    compare((again.mean, again.precision), (belief(row).mean, belief(row).precision))


@law("families", when="gaussian")
def expectation_and_back(row: Row) -> None:
    again = believed(belief(row).expectation())
    compare((again.mean, again.precision), (belief(row).mean, belief(row).precision))


@law("families", when="gaussian")
def gradient_of_the_log_partition_is_the_expectation(row: Row) -> None:
    """∇A(λ) = μ, by automatic differentiation beside the closed form."""
    q = belief(row)
    gradient = jax.grad(lambda natural: natural.log_partition())(q.natural())
    compare(tuple_of(gradient), tuple_of(q.expectation()))
    compare(tuple_of(q.natural().expectation()), tuple_of(q.expectation()))


@law("families", when="gaussian")
def gradient_of_the_entropy_is_minus_natural(row: Row) -> None:
    """∇_μ H = −λ, with every entry of a symmetric matrix counted as it stands."""
    q = belief(row)
    gradient = jax.grad(lambda mu: again(q, mu.family()).entropy())(q.expectation())
    compare(tuple_of(gradient), jax.tree.map(jnp.negative, tuple_of(q.natural())))


def again(q: Any, other: Any) -> Any:
    """The other belief in the class of q, so that a broken class stays broken."""
    return type(q)(other.mean, other.precision)


@law("families", when="gaussian")
def fisher_matrix_is_the_hessian_of_the_log_partition(row: Row) -> None:
    """The Fisher matrix as the curvature of KL; both positive definite in independent coordinates of λ."""
    q = belief(row, SMALL, PLANE)
    coordinates, at = chart(row, q.natural())
    fisher = jax.hessian(lambda c: q.kl(at(c).family()))(coordinates)
    hessian = jax.hessian(lambda c: at(c).log_partition())(coordinates)
    np.testing.assert_allclose(hessian, fisher, rtol=1e-8, atol=1e-9)
    assert np.linalg.eigvalsh(hessian).min() > 1e-3


@law("families", when="gaussian")
def natural_step_is_the_mirror_step(row: Row) -> None:
    """The step minimises ⟨∇_μ(E ℓ − H), μ⟩ + KL(q_μ ‖ q) / ρ: its gradient vanishes, and it is a minimum nearby."""
    q, rate = belief(row), 0.3
    loss = jax.tree.map(jnp.negative, tuple_of(belief(row, THIRD, AWAY).natural()))  # ∇_μ E ℓ of a Gaussian ℓ
    gradient = replace(q.natural(), values=loss)
    stepped = row.extras["natural_step"](q.natural(), gradient, rate)
    stepped = believed(stepped)
    slope = jax.tree.map(jnp.add, loss, tuple_of(q.natural()))  # ∇_μ (E ℓ − H), since ∇_μ H = −λ

    def mirror(mu: Any) -> jax.Array:
        return tree.dot(slope, tuple_of(mu)) + mu.family().kl(q) / rate

    mu = stepped.expectation()
    for leaf in jax.tree.leaves(jax.grad(mirror)(mu)):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-8)
    for other in (belief(row), belief(row, THIRD, AWAY), belief(row, SECOND)):
        nearby = jax.tree.map(lambda a, b: a + 0.1 * (b - a), mu, other.expectation())
        assert mirror(nearby) > mirror(mu)


@law("families", when="gaussian")
def gaussian_step_is_the_natural_step(row: Row) -> None:
    r"""For a quadratic ℓ, whose E_q[ℓ] is differentiated in μ automatically.

    With g = E ∇ℓ and H = E ∇²ℓ as the structure keeps it, ∇_μ E_q[ℓ] is (g − H m, H/2): for the scalar structure H is
    the mean of the diagonal, and H/2 pairs with ‖θ‖².
    """
    q, rate = belief(row), 0.4
    A, b = jnp.asarray(THIRD), jnp.asarray(np.linspace(-1.0, 2.0, D))

    def expected_loss(mu: Any) -> jax.Array:
        other = mu.family()
        m = ravel_pytree(other.mean)[0]
        covariance = jnp.linalg.inv(other.precision.dense(other.mean))
        return (m @ A @ m + jnp.sum(A * covariance)) / 2 + b @ m

    g = vector_like(THIRD @ flat(MEAN) + np.asarray(b))
    H = row.extras["build"](THIRD)
    in_mu = jax.grad(expected_loss)(q.expectation())
    compare(tuple_of(in_mu), (tree.add(g, H.matvec(MEAN), -1.0), H.scale(0.5)))
    by_natural = row.extras["natural_step"](q.natural(), replace(q.natural(), values=tuple_of(in_mu)), rate).family()
    by_gaussian = row.extras["gaussian_step"](q, g, H, rate)
    compare((by_gaussian.mean, by_gaussian.precision), (by_natural.mean, by_natural.precision))


def assert_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Means and covariances within five standard errors of normal draws."""
    n, variance = len(draws), np.diag(covariance)
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= 5.0 * np.sqrt(variance / n))
    away = draws - mean
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(away.T @ away / n - covariance) <= 5.0 * error)


def rows_of(draws: Any) -> np.ndarray:
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(draws)], axis=1)


@law("families", when="gaussian")
def samples_have_the_moments(row: Row) -> None:
    """Of `sample` and of `draws`: 40 numbers within five standard errors, a false alarm with probability 3e-5."""
    q, n = belief(row), 20_000
    one_by_one = jax.vmap(q.sample)(jax.random.split(jax.random.key(1), n))
    for draws in (one_by_one, q.draws(jax.random.key(2), n)):
        assert jax.tree.map(jnp.shape, draws) == jax.tree.map(lambda leaf: (n, *leaf.shape), MEAN)
        assert_moments(rows_of(draws), flat(MEAN), np.linalg.inv(row.extras["keep"](FIRST)))


def drawing(row: Row) -> Any:
    return belief(row) if "gaussian" in row.traits else row.subject


@law("families", when="gaussian")
def draw_depends_on_key_and_index_alone(row: Row) -> None:
    assert_prefix(drawing(row))


@law("families", when="product")
def draw_of_a_product_depends_on_key_and_index_alone(row: Row) -> None:
    assert_prefix(drawing(row))


def assert_prefix(q: Any) -> None:
    few, many = q.draws(jax.random.key(9), 3), q.draws(jax.random.key(9), 7)
    compare(few, jax.tree.map(lambda leaf: leaf[:3], many), rtol=1e-14)
    rows = rows_of(many)
    assert len(rows) == 7
    assert len(np.unique(rows, axis=0)) == 7, "draws differ from one another"
    assert not np.allclose(rows, rows_of(q.draws(jax.random.key(10), 7))), "draws differ from key to key"


@law("families", when="gaussian")
def gaussian_is_a_family(row: Row) -> None:
    assert isinstance(belief(row), Family)
    assert belief(row).kind == "minimal exponential"
    compare(belief(row).mean, MEAN)


@law("families", when="belief")
def belief_is_a_family(row: Row) -> None:
    assert isinstance(row.subject, Family)
    assert row.subject.kind == row.extras["sort"]
    structure = jax.tree.structure(row.subject.sample(jax.random.key(0)))
    assert structure == jax.tree.structure(row.subject.draws(jax.random.key(0), 3))


@law("families", when="ensemble")
def members_have_equal_shares(row: Row) -> None:
    """Draws are of every member alike, in their order; a random one is each of the six with the same probability."""
    ensemble = row.subject
    assert ensemble.count == len(ensemble.members) == 6
    compare(ensemble.draws(jax.random.key(0), 6), MEMBERS.mean)
    drawn = jax.vmap(lambda key: ensemble.sample(key)["scale"])(jax.random.split(jax.random.key(1), 3000))
    shares = np.array([np.mean(drawn == member.mean["scale"]) for member in ensemble.members])
    # Six shares of 3,000 draws: one is five standard errors away once in 290,000 runs.
    assert np.all(np.abs(shares - 1 / 6) < 5 * np.sqrt(5 / 36 / 3000))
    refused = False
    try:
        _ = ensemble.mean
    except AttributeError:
        refused = True
    assert refused


@law("families", when="point")
def point_is_where_it_is(row: Row) -> None:
    """One draw however many are asked for, since more would repeat it."""
    compare(row.subject.mean, MEAN)
    compare(row.subject.sample(jax.random.key(0)), MEAN)
    compare(row.subject.draws(jax.random.key(0), 5), jax.tree.map(lambda leaf: leaf[None], MEAN))


@law("families", when="draws")
def draws_are_the_points_visited(row: Row) -> None:
    """All of them in order where enough are asked for; an even selection of both chains where fewer are."""
    everything = jax.tree.map(lambda leaf: leaf.reshape(12, *leaf.shape[2:]), VISITED)
    assert row.subject.count == 12
    for count in (12, 50):
        compare(row.subject.draws(jax.random.key(0), count), everything)
    for count in (1, 4, 5, 7):
        found = row.subject.draws(jax.random.key(0), count)
        index = np.asarray(found["scale"]).astype(int)  # the leaf counts the points
        assert len(set(index.tolist())) == count
        assert np.ptp(np.diff(np.append(index, 12))) <= 1, "gaps differ by one at most"
        compare(found, jax.tree.map(lambda leaf, index=index: leaf[index], everything))


@law("families", when="draws")
def draws_are_sampled_evenly(row: Row) -> None:
    """Counts of 12 points within five standard errors: a false alarm with probability 7e-6. Leaves stay together."""
    n = 12_000
    found = jax.vmap(row.subject.sample)(jax.random.split(jax.random.key(5), n))
    index = np.asarray(found["scale"]).astype(int)
    counts = np.bincount(index, minlength=12)
    assert np.all(np.abs(counts - n / 12) < 5.0 * np.sqrt(n * (1 / 12) * (11 / 12)))
    compare(found["kernel"], VISITED["kernel"].reshape(12, 2, 2)[index])


@law("families", when="draws")
def draws_have_no_mean(row: Row) -> None:
    assert not hasattr(row.subject, "mean")


@law("families", when="product")
def product_is_its_factors(row: Row) -> None:
    compare(row.subject.mean, {name: factor.mean for name, factor in FACTORS.items()})


@law("families", when="product")
def product_has_independent_factors(row: Row) -> None:
    """Means and covariances of 8 coordinates within five standard errors: 88 numbers, a false alarm at 5e-5."""
    n = 20_000
    covariance = np.zeros((8, 8))  # held, likelihood, network: the order of the leaves
    covariance[1:3, 1:3] = np.eye(2) / 4.0
    covariance[3:, 3:] = np.linalg.inv(FIRST)
    one_by_one = jax.vmap(row.subject.sample)(jax.random.split(jax.random.key(3), n))
    for draws in (one_by_one, row.subject.draws(jax.random.key(4), n)):
        assert_moments(rows_of(draws), flat(row.subject.mean), covariance)


@law("families", when="product")
def product_fills_up_evenly(row: Row) -> None:
    """A factor with fewer points than are asked for repeats them as evenly as it can beside the others' draws."""
    few = Draws({"w": jnp.arange(3.0)[None]})
    mixed = type(row.subject)({**row.subject.factors, "visited": few})
    found = mixed.draws(jax.random.key(0), 8)
    assert all(leaf.shape[0] == 8 for leaf in jax.tree.leaves(found))
    counts = np.bincount(np.asarray(found["visited"]["w"]).astype(int), minlength=3)
    assert counts.max() - counts.min() <= 1


VALUES = {
    "log_prob": lambda q, theta: q.log_prob(theta),
    "entropy": lambda q, theta: q.entropy(),
    "kl": lambda q, theta: q.kl(type(q)(theta, q.precision.scale(1.5))),
    "natural": lambda q, theta: tuple_of(q.natural()),
    "expectation": lambda q, theta: tuple_of(q.expectation()),
    "log_partition": lambda q, theta: q.natural().log_partition(),
    "from natural": lambda q, theta: q.natural().family().mean,
    "from expectation": lambda q, theta: q.expectation().family().mean,
    "sample": lambda q, theta: q.sample(jax.random.key(6)),
    "draws": lambda q, theta: q.draws(jax.random.key(6), 2),
}


@law("families", when="gaussian")
def float32_beside_float64(row: Row) -> None:
    """The precisions here cost at most three digits of seven."""
    low = row.subject(single(MEAN), single(row.extras["build"](FIRST)))
    for name, value in VALUES.items():
        found = value(low, single(AWAY))
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found)), f"{name} leaves float32"
        if name not in ("sample", "draws"):  # another generator
            compare(found, value(belief(row), AWAY), rtol=2e-3, atol=2e-4)


@law("families", when="gaussian")
def batches_of_beliefs(row: Row) -> None:
    """vmap over stacked beliefs, and jit, change no value."""
    beliefs, thetas = [belief(row), belief(row, SECOND, AWAY)], [AWAY, tree.scale(MEAN, -0.5)]
    stack = lambda *leaves: jnp.stack(leaves)
    stacked, points = jax.tree.map(stack, *beliefs), jax.tree.map(stack, *thetas)
    for value in VALUES.values():
        alone = [value(q, theta) for q, theta in zip(beliefs, thetas, strict=True)]
        compare(jax.jit(value)(beliefs[0], thetas[0]), alone[0])
        compare(jax.vmap(value)(stacked, points), jax.tree.map(stack, *alone))


def broken(base: Any, name: str, **methods: Any) -> Any:
    """A class that differs from the sound one in the given methods, and goes through JAX as that one does."""
    methods = {key: classmethod(f) if key in CLASSMETHODS else f for key, f in methods.items()}
    return record(type(f"{base.__name__}{name}", (base,), {"__module__": __name__, **methods}))


CLASSMETHODS = ("from_natural", "from_expectation", "partition")


def words(fault: str) -> str:
    return "".join(letter for letter in fault.title() if letter.isalnum())


def twin_of(of: Row, fault: str, laws: str, **methods: Any) -> None:
    twin(of, fault, laws, broken(of.subject, of.name.replace(" ", "") + words(fault), **methods))


density = "log_prob_is_scipys density_integrates_to_one"
twin_of(dense, "sign of log_prob", density, log_prob=lambda q, theta: -Gaussian.log_prob(q, theta))
twin_of(
    scalar,
    "normaliser without D",
    density,
    log_prob=lambda q, theta: Gaussian.log_prob(q, theta) + (tree.dimension(theta) - 1) * 0.5 * jnp.log(2 * jnp.pi),
)
twin_of(
    diagonal,
    "covariance for precision in log_prob",
    density,
    log_prob=lambda q, theta: (
        Gaussian(q.mean, Diagonal(q.precision.variance(q.mean))).log_prob(theta) + q.precision.logdet(q.mean)
    ),
)
twin_of(
    dense,
    "entropy without e",
    "entropy_is_scipys",
    entropy=lambda q: Gaussian.entropy(q) - 0.5 * tree.dimension(q.mean),
)
twin_of(
    dense,
    "entropy of the precision",
    "entropy_is_scipys gradient_of_the_entropy_is_minus_natural",
    entropy=lambda q: Gaussian.entropy(q) + q.precision.logdet(q.mean),
)
twin_of(
    dense,
    "kl the other way",
    "kl_is_the_integral kl_is_the_bregman_divergence",
    kl=lambda q, p: Gaussian.kl(p, q),
)
twin_of(
    diagonal,
    "kl without the means",
    "kl_is_zero_only_at_equality kl_is_the_integral",
    kl=lambda q, p: Gaussian.kl(q, Gaussian(q.mean, p.precision)),
)
twin_of(scalar, "kl without D", "kl_is_zero_only_at_equality", kl=lambda q, p: Gaussian.kl(q, p) + D / 2)
twin_of(
    dense,
    "natural parameters with the other sign",
    "natural_parameters_are_as_defined natural_and_back gradient_of_the_log_partition_is_the_expectation",
    natural=lambda q: natural_of(q, q.precision.matvec(q.mean), q.precision.scale(0.5)),
)
twin_of(
    diagonal,
    "mean for S m",
    "natural_parameters_are_as_defined natural_and_back gradient_of_the_entropy_is_minus_natural",
    natural=lambda q: natural_of(q, q.mean, q.precision.scale(-0.5)),
)
twin_of(
    diagonal,
    "covariance for second moment",
    "expectation_and_back gradient_of_the_log_partition_is_the_expectation kl_is_the_bregman_divergence",
    expectation=lambda q: expectation_of(q, q.mean, Diagonal(q.precision.variance(q.mean))),
)
twin_of(
    scalar,
    "second moment a coordinate",
    "expectation_and_back gradient_of_the_log_partition_is_the_expectation",
    expectation=lambda q: expectation_of(q, q.mean, Scalar(Gaussian.expectation(q).values[1].value / D)),
)
twin_of(
    dense,
    "off-diagonal entries counted twice",
    "expectation_and_back gradient_of_the_log_partition_is_the_expectation",
    expectation=lambda q: expectation_of(
        q,
        q.mean,
        Dense(
            2.0 * Gaussian.expectation(q).values[1].matrix
            - jnp.diag(jnp.diagonal(Gaussian.expectation(q).values[1].matrix))
        ),
    ),
)
twin_of(
    dense,
    "partition without the determinant",
    "gradient_of_the_log_partition_is_the_expectation kl_is_the_bregman_divergence"
    " fisher_matrix_is_the_hessian_of_the_log_partition",
    partition=lambda cls, values, given: tree.dot(values[0], cls.from_natural(values, given).mean) / 2,
)
twin_of(
    diagonal,
    "half of the quadratic dropped",
    "gradient_of_the_log_partition_is_the_expectation fisher_matrix_is_the_hessian_of_the_log_partition",
    partition=lambda cls, values, given: (
        Gaussian.partition(values, given) + tree.dot(values[0], cls.from_natural(values, given).mean) / 2
    ),
)
twin_of(
    scalar,
    "minus for plus two",
    "natural_and_back",
    from_natural=lambda cls, values, given: cls(values[1].scale(-1.0).solve(values[0]), values[1].scale(-1.0)),
)
twin_of(
    dense,
    "second moment for covariance",
    "expectation_and_back gradient_of_the_entropy_is_minus_natural",
    from_expectation=lambda cls, values, given: cls(values[0], Dense(jnp.linalg.inv(values[1].matrix))),
)
twin_of(
    dense,
    "draws with the precision for the covariance",
    "samples_have_the_moments",
    sample=lambda q, key: Gaussian(q.mean, Dense(jnp.linalg.inv(q.precision.matrix))).sample(key),
)
twin_of(
    scalar,
    "draws around zero",
    "samples_have_the_moments",
    draws=lambda q, key, count: Gaussian(tree.zeros_like(q.mean), q.precision).draws(key, count),
)
twin_of(
    diagonal,
    "one key for all draws",
    "samples_have_the_moments draw_depends_on_key_and_index_alone",
    draws=lambda q, key, count: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), q.sample(key)),
)
twin_of(
    diagonal,
    "keys split by the count",
    "draw_depends_on_key_and_index_alone",
    draws=lambda q, key, count: jax.vmap(q.sample)(jax.random.split(jax.random.fold_in(key, count), count)),
)
twin_of(dense, "another kind", "gaussian_is_a_family", kind="degenerate")
twin_of(
    dense,
    "float64 constant",
    "float32_beside_float64",
    entropy=lambda q: Gaussian.entropy(q).astype(jnp.float64),
)
twin_of(
    dense,
    "logdet over the batch",
    "batches_of_beliefs",
    entropy=lambda q: Gaussian.entropy(q) + 1e-3 * isinstance(q.precision.matrix, jax.core.Tracer),
)
for fault, laws, steps in (
    ("old belief kept", "natural_step_is_the_mirror_step gaussian_step_is_the_natural_step",
     {"natural_step": lambda old, new, rate: jax.tree.map(lambda a, b: a - rate * b, old, new)}),
    ("sign of the gradient", "natural_step_is_the_mirror_step",
     {"natural_step": lambda old, new, rate: jax.tree.map(lambda a, b: a - rate * (a - b), old, new)}),
    ("gradient step in the mean", "gaussian_step_is_the_natural_step",
     {"gaussian_step": lambda q, g, H, rate: Gaussian(
         tree.add(q.mean, g, -rate), rule.gaussian_step(q, g, H, rate).precision)}),
    ("the old precision in the mean's step", "gaussian_step_is_the_natural_step",
     {"gaussian_step": lambda q, g, H, rate: Gaussian(
         tree.add(q.mean, q.precision.solve(g), -rate), rule.gaussian_step(q, g, H, rate).precision)}),
    ("half of the Hessian", "gaussian_step_is_the_natural_step",
     {"gaussian_step": lambda q, g, H, rate: rule.gaussian_step(q, g, H.scale(0.5), rate)}),
):  # fmt: skip
    twin(dense, fault, laws, Gaussian, **steps)

belief_twin = lambda of, fault, laws, base, *args, **methods: twin(
    of, fault, laws, broken(base, words(fault), **methods)(*args)
)
belief_twin(point, "jitter", "point_is_where_it_is", Point, MEAN, sample=lambda q, key: tree.normal(key, q.mean))
belief_twin(
    point, "as many as asked for", "point_is_where_it_is", Point, MEAN,
    draws=lambda q, key, count: jax.tree.map(lambda leaf: jnp.stack([leaf] * count), q.mean),
)  # fmt: skip
belief_twin(point, "unknown kind", "belief_is_a_family", Point, MEAN, kind="point mass")
belief_twin(
    visited, "first ones only", "draws_are_the_points_visited", Draws, VISITED,
    draws=lambda q, key, count: q._at(jnp.arange(min(count, q.count))),
)  # fmt: skip
belief_twin(
    visited, "first chain only", "draws_are_sampled_evenly", Draws, VISITED,
    sample=lambda q, key: q._at(jax.random.randint(key, (), 0, q.count // 2)),
)  # fmt: skip
belief_twin(
    visited, "last draw never", "draws_are_sampled_evenly", Draws, VISITED,
    sample=lambda q, key: q._at(jax.random.randint(key, (), 0, q.count - 1)),
)  # fmt: skip
belief_twin(
    visited, "average for mean", "draws_have_no_mean", Draws, VISITED,
    mean=property(lambda q: jax.tree.map(lambda leaf: jnp.mean(leaf, axis=(0, 1)), q.samples)),
)  # fmt: skip
belief_twin(
    product, "one key for all factors", "product_has_independent_factors", Product, FACTORS,
    sample=lambda q, key: {name: factor.sample(jax.random.clone(key)) for name, factor in q.factors.items()},
)  # fmt: skip
belief_twin(
    product, "mean of draws", "product_is_its_factors", Product, FACTORS,
    mean=property(lambda q: q.sample(jax.random.key(0))),
)  # fmt: skip
belief_twin(
    product, "keys split by the count", "draw_of_a_product_depends_on_key_and_index_alone", Product, FACTORS,
    draws=lambda q, key, count: Product.draws(q, jax.random.fold_in(key, count), count),
)  # fmt: skip
belief_twin(
    product, "whole repeats only", "product_fills_up_evenly", Product, FACTORS,
    draws=lambda q, key, count: {name: factor.draws(jax.random.fold_in(key, i), count)
                                 for i, (name, factor) in enumerate(q.factors.items())},
)  # fmt: skip


class FirstMember(Ensemble):
    """One that asks its first member alone."""

    def sample(self, key: Any) -> Any:
        return self.member(0).sample(key)


jax.tree_util.register_dataclass(FirstMember, data_fields=["stacked", "log_weights"], meta_fields=[])
twin(together, "first member only", "members_have_equal_shares", FirstMember(MEMBERS))
