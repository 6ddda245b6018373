"""Laws of the distributions of a shared scale: densities of its logarithm, draws of them, and messages to precisions.

A row's extras: `variance`, the distribution of τ² as SciPy has it, or `scale`, that of τ; `mixed`, the log density of a
normal weight of such a scale, where it has a name.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from lamu.priors import GammaVariance, HalfCauchyScale, InverseGammaVariance, ScaleLaw
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("scale_laws", "conjugate")

U = np.linspace(-3.0, 2.0, 11)
WEIGHTS = np.array([0.1, -0.7, 3.0])


def horseshoe(weight: Any, scale: float) -> Any:
    """Its closed form by SciPy (Carvalho, Polson & Scott 2010, theorem 1, has bounds; the integral is E₁)."""
    u = weight**2 / (2 * scale**2)
    return np.log(np.exp(u) * special.exp1(u) / (np.sqrt(2 * np.pi**3) * scale))


cauchy = row(
    "scale_laws",
    "HalfCauchyScale",
    HalfCauchyScale(0.4),
    "conjugate",
    scale=stats.halfcauchy(scale=0.4),
    mixed=lambda w: horseshoe(w, 0.4),
)
gamma = row(
    "scale_laws",
    "GammaVariance",
    GammaVariance(1.0, 2.0),
    variance=stats.gamma(1.0, scale=0.5),
    mixed=stats.laplace(scale=0.5).logpdf,
)
inverse = row(
    "scale_laws",
    "InverseGammaVariance",
    InverseGammaVariance(2.0, 0.98),
    "conjugate",
    variance=stats.invgamma(2.0, scale=0.98),
    mixed=stats.t(4.0, scale=0.7).logpdf,
)


def log_density(row: Row, u: Any) -> Any:
    """SciPy's, of u = log τ: with the Jacobian τ, and 2τ² of the variance."""
    if "scale" in row.extras:
        return row.extras["scale"].logpdf(np.exp(u)) + u
    return row.extras["variance"].logpdf(np.exp(2 * u)) + np.log(2.0) + 2 * u


@law("scale_laws")
def the_density_of_the_logarithm_is_scipys(row: Row) -> None:
    np.testing.assert_allclose(row.subject.log_prob(jnp.asarray(U)), log_density(row, U), rtol=1e-10)


@law("scale_laws")
def draws_have_the_distribution(row: Row) -> None:
    """Kolmogorov's test of 4,000 draws at level 1e-4, which is the rate of false alarms; the key is fixed."""
    u = np.asarray(row.subject.draw(jax.random.key(3), (4000,), jnp.float64))
    with np.errstate(over="ignore"):
        scale = np.exp(u)
    known = row.extras.get("scale", row.extras.get("variance"))
    assert stats.kstest(scale if "scale" in row.extras else scale**2, known.cdf).pvalue > 1e-4


@law("scale_laws")
def a_normal_weight_of_such_a_scale_has_the_known_density(row: Row) -> None:
    r"""\(\int N(w; 0, e^{2u})\, p(u)\, du\) by the trapezoidal rule is Student's t, Laplace's or the horseshoe's."""
    u = np.linspace(-25.0, 25.0, 20_001)
    density = np.exp(np.asarray(row.subject.log_prob(jnp.asarray(u))))
    mixed = [np.trapezoid(density * stats.norm.pdf(w, scale=np.exp(u)), u) for w in WEIGHTS]
    np.testing.assert_allclose(np.log(mixed), row.extras["mixed"](WEIGHTS), rtol=1e-6)


@law("scale_laws")
def a_typical_scale_is_in_the_middle(row: Row) -> None:
    """Between the tenth and the ninetieth percent."""
    known, power = (row.extras["scale"], 1) if "scale" in row.extras else (row.extras["variance"], 2)
    assert 0.1 < known.cdf(row.subject.typical**power) < 0.9


@law("scale_laws")
def extremes_are_finite_in_float32(row: Row) -> None:
    for u in (-20.0, 0.0, 15.0):
        value, slope = jax.value_and_grad(row.subject.log_prob)(jnp.float32(u))
        assert value.dtype == jnp.float32
        assert np.isfinite(value)
        assert np.isfinite(slope)


@law("scale_laws", when="conjugate")
def messages_are_exact_where_no_weight_is_seen(row: Row) -> None:
    """Iterated without weights, the messages end at the prior's own mean precision, a/b of an inverse gamma variance.

    A half-Cauchy has none; the fixed point of its mean field, E = (1/s² + E) / 2, is 1/s².
    """
    mean = jnp.ones(2)
    for _ in range(50):
        a, b = row.subject.precision_prior(mean)
        mean = a / b
    if "scale" in row.extras:
        np.testing.assert_allclose(mean, 1 / 0.4**2, rtol=1e-6)
    else:
        np.testing.assert_allclose(mean, row.extras["variance"].expect(lambda v: 1 / v), rtol=1e-6)


@law("scale_laws", when="conjugate")
def messages_are_the_conditionals(row: Row) -> None:
    r"""With many weights of one known size the mean precision is that of the exact posterior of the scale.

    The auxiliary variable of a half-Cauchy makes it a mean field: its error falls with the number of weights, 2 % here.
    """
    count, total = 60.0, 7.0
    u = np.linspace(-6.0, 4.0, 20_001)
    conditional = log_density(row, u) - count * u - total / 2 * np.exp(-2 * u)
    density = np.exp(conditional - conditional.max())
    exact = np.trapezoid(density * np.exp(-2 * u), u) / np.trapezoid(density, u)
    mean = jnp.ones(())
    for _ in range(100):
        a, b = row.subject.precision_prior(mean)
        mean = (a + count / 2) / (b + total / 2)
    np.testing.assert_allclose(mean, exact, rtol=0.02 if "scale" in row.extras else 1e-6)


def broken(of: Row, fault: str, laws: str, **methods: Any) -> None:
    subject: ScaleLaw = of.subject
    names = ("log_prob", "draw", "typical", "precision_prior")
    twin(of, fault, laws, SimpleNamespace(**{**{name: getattr(subject, name) for name in names}, **methods}))


twin(
    inverse,
    "shape and rate exchanged",
    "the_density_of_the_logarithm_is_scipys draws_have_the_distribution messages_are_exact_where_no_weight_is_seen "
    "messages_are_the_conditionals a_normal_weight_of_such_a_scale_has_the_known_density",
    InverseGammaVariance(0.98, 2.0),
)
twin(gamma, "inverse gamma for gamma", "the_density_of_the_logarithm_is_scipys", InverseGammaVariance(1.0, 2.0))
broken(
    gamma,
    "missing Jacobian of the variance",
    "the_density_of_the_logarithm_is_scipys a_normal_weight_of_such_a_scale_has_the_known_density",
    log_prob=lambda u: gamma.subject.log_prob(u) - 2 * u - jnp.log(2.0),
)
broken(
    cauchy,
    "missing Jacobian of the scale",
    "the_density_of_the_logarithm_is_scipys a_normal_weight_of_such_a_scale_has_the_known_density",
    log_prob=lambda u: cauchy.subject.log_prob(u) - u,
)
broken(
    cauchy,
    "draws of τ for log τ",
    "draws_have_the_distribution",
    draw=lambda k, s, d: jnp.abs(jax.random.cauchy(k, s, d)),
)
broken(
    inverse,
    "draws of the variance for the scale",
    "draws_have_the_distribution",
    draw=lambda k, s, d: 2 * inverse.subject.draw(k, s, d),
)
broken(inverse, "the variance for the scale", "a_typical_scale_is_in_the_middle", typical=0.05)
broken(
    cauchy,
    "a cosh that overflows",
    "extremes_are_finite_in_float32",
    log_prob=lambda u: -jnp.log(jnp.pi) - jnp.log(jnp.cosh(10 * (u - jnp.log(0.4)))),
)
broken(
    cauchy,
    "the scale for its square",
    "messages_are_exact_where_no_weight_is_seen",
    precision_prior=lambda mean: (jnp.full_like(mean, 0.5), 1 / (1 / 0.4 + mean)),
)
