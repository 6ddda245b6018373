"""Divergences between a belief and its target: closed forms beside integrals, the limit at one, and the dispersion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from lamu import tree
from lamu.divergences import Divergence, InclusiveKL, Renyi, ReverseKL, renyi_divergence
from lamu.families import Gaussian
from lamu.operators import Dense, Diagonal, Scalar

generator = np.random.default_rng(0)
ROOTS = generator.normal(size=(2, 3, 3))
LAMBDA, OTHER = (root @ root.T + np.eye(3) for root in ROOTS)
MEANS = generator.normal(size=(2, 3))
P = Gaussian(jnp.asarray(MEANS[0]), Dense(jnp.asarray(LAMBDA)))
Q = Gaussian(jnp.asarray(MEANS[1]), Diagonal(jnp.asarray(np.diag(OTHER))))


def by_hand(q: Gaussian, p: Gaussian, alpha: float) -> float:
    """The integral of q^α p^(1−α) by completing the square, in covariances rather than precisions."""
    cov_q, cov_p = (np.linalg.inv(g.precision.dense(g.mean)) for g in (q, p))
    mixed = (1 - alpha) * cov_q + alpha * cov_p
    away = np.asarray(tree.ravel(q.mean)[0] - tree.ravel(p.mean)[0])
    logs = [np.linalg.slogdet(a)[1] for a in (mixed, cov_q, cov_p)]
    volume = -(logs[0] - (1 - alpha) * logs[1] - alpha * logs[2]) / (2 * (alpha - 1))
    return alpha / 2 * away @ np.linalg.solve(mixed, away) + volume


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_renyis_divergence_of_gaussians_is_the_published_formula(alpha: float) -> None:
    for q, p in ((Q, P), (P, Q), (Q, Q)):
        found = renyi_divergence(q, p, alpha)
        np.testing.assert_allclose(found, by_hand(q, p, alpha), rtol=1e-12, atol=1e-13)
        assert found > -1e-13
        np.testing.assert_allclose(Renyi(alpha).between(q, p), found)


def test_it_is_the_integral() -> None:
    q, p = (Gaussian(jnp.array([m]), Scalar(jnp.asarray(s))) for m, s in ((0.3, 2.0), (-0.4, 0.7)))
    for alpha in (0.3, 1.4):
        density = lambda t, a=alpha: float(
            jnp.exp(a * q.log_prob(jnp.array([t])) + (1 - a) * p.log_prob(jnp.array([t])))
        )
        integral = quad(density, -12, 12)[0]
        np.testing.assert_allclose(renyi_divergence(q, p, alpha), np.log(integral) / (alpha - 1), rtol=1e-7)


def test_an_infinite_integral_is_infinite() -> None:
    wide, narrow = (Gaussian(jnp.zeros(2), Scalar(jnp.asarray(s))) for s in (0.1, 2.0))
    assert renyi_divergence(wide, narrow, 1.5) == jnp.inf
    assert jnp.isfinite(renyi_divergence(narrow, wide, 1.5))


def test_the_order_one_is_kullback_leiblers_continuously() -> None:
    """Value and gradient in q: the gap at 1 ± h is proportional to h, on both sides."""

    def at(alpha: float) -> tuple[jax.Array, jax.Array]:
        divergence = lambda q: renyi_divergence(q, P, alpha)
        value, gradient = jax.value_and_grad(divergence)(Q)
        return value, tree.ravel(gradient)[0]

    value, gradient = at(1.0)
    np.testing.assert_allclose(value, Q.kl(P))
    for sign in (-1.0, 1.0):
        gaps = []
        for h in (1e-3, 1e-4):
            near, slope = at(1.0 + sign * h)
            gaps.append((abs(float(near - value)), float(jnp.max(jnp.abs(slope - gradient)))))
        assert gaps[1][0] < 1e-4 * 20
        assert gaps[1][1] < 1e-4 * 100
        np.testing.assert_allclose(np.array(gaps[0]) / np.array(gaps[1]), 10.0, rtol=0.02)


def test_weights_of_draws_estimate_the_closed_forms() -> None:
    """A hundred thousand draws; the target is unnormalised by a known factor. Within five standard errors or so."""
    target = Gaussian(jnp.zeros(2), Dense(jnp.array([[2.0, 0.8], [0.8, 1.5]])))
    q = Gaussian(jnp.array([0.2, -0.1]), Diagonal(jnp.array([1.2, 1.0])))
    theta = jax.vmap(q.sample)(jax.random.split(jax.random.key(0), 100_000))
    log_q = jax.vmap(q.log_prob)(theta)
    log_weights = jax.vmap(target.log_prob)(theta) + 1.5 - log_q
    for divergence in (ReverseKL(), Renyi(0.5), Renyi(0.0), Renyi(1.0), InclusiveKL()):
        assert isinstance(divergence, Divergence)
        shares = divergence.shares(log_weights)
        np.testing.assert_allclose(jnp.sum(shares), 1.0)
        known = 0.0 if divergence == Renyi(0.0) else float(divergence.between(q, target))
        np.testing.assert_allclose(divergence.value(log_weights), known - 1.5, atol=0.02)
    # Of order one they are equal shares and the evidence bound, exactly.
    np.testing.assert_allclose(Renyi(1.0).value(log_weights), ReverseKL().value(log_weights), rtol=1e-12)
    np.testing.assert_allclose(Renyi(1.0 - 1e-7).value(log_weights), ReverseKL().value(log_weights), rtol=1e-5)


def test_orders_without_a_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha=0\.0"):
        renyi_divergence(Q, P, 0.0)
    with pytest.raises(ValueError, match="alpha=nan"):
        Renyi(float("nan"))
