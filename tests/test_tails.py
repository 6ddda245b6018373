"""Both tails of every likelihood in logarithms, where 1 − cdf has no digits, with their gradients; and wrappers.

References are SciPy's `logsf` and `logcdf`, and mpmath's incomplete functions where those end.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import lamu.supports
from lamu.algorithms.post_hoc.laplace_posterior import _Averaged
from lamu.likelihoods import (
    Beta,
    Binomial,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    IntervalCensored,
    LeftCensored,
    Likelihood,
    MultivariateGaussian,
    NegativeBinomial,
    Ordinal,
    PerPosition,
    Poisson,
    Quantile,
    RightCensored,
    Scaled,
    StudentT,
    Tobit,
    Weibull,
    ZeroInflated,
)
from lamu.likelihoods.bases import FixedDispersion
from lamu.likelihoods.interface import LikelihoodWrapper
from lamu.record import record
from lamu.tabular.truncated import Truncated


@record
class OwnDistribution(Likelihood):
    """Times that NumPyro's log-normal distribution has."""

    support = lamu.supports.PositiveReal()

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.LogNormal(f[:, 0], 0.5)


@record
class OwnDensity(Likelihood):
    """Gumbel's density, and draws of it; nothing else is known."""

    support = lamu.supports.Real()

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        z = jnp.reshape(y, f.shape[:1]) - f[:, 0]
        return -z - jnp.exp(-z)

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return f[:, 0] + jax.random.gumbel(key, f.shape[:1], f.dtype)


@record
class OwnCounts(Likelihood):
    """Geometric counts of NumPyro."""

    support = lamu.supports.Counts()

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.GeometricProbs(jax.nn.sigmoid(f[:, 0]))


def beta_tails(a: float, b: float, y: float) -> tuple[float, float]:
    mpmath.mp.dps = 40
    a, b, y = mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(y)
    part = lambda a, b, x: float(mpmath.log(mpmath.betainc(a, b, 0, x, regularized=True)))
    return part(a, b, y), part(b, a, 1 - y)


def of(law: Any) -> Any:
    return lambda y: (law.logcdf(y), law.logsf(y))


def _student(f: float) -> Any:
    def tails(y: float) -> tuple[float, float]:
        t = (y - f) / 0.5
        small = beta_tails(2.0, 0.5, 4.0 / (4.0 + t**2))[0] - np.log(2)
        return (np.log1p(-np.exp(small)), small) if t > 0 else (small, np.log1p(-np.exp(small)))

    return tails


def _zeros(f: float) -> Any:
    def tails(y: float) -> tuple[float, float]:
        share, law = 1 / (1 + np.exp(-0.4)), stats.poisson(np.exp(f))
        return np.logaddexp(np.log(share), np.log1p(-share) + law.logcdf(y)), np.log1p(-share) + law.logsf(y)

    return tails


def _truncated(f: float) -> Any:
    def tails(y: float) -> tuple[float, float]:
        upper = stats.norm.logsf(y, f, 0.5) - stats.norm.logsf(0, f, 0.5)
        return np.log(-np.expm1(upper)), upper

    return tails


# What a likelihood is, the tails of an output of f by somebody else's account, and far points on either side.
gamma = lambda f: of(stats.gamma(5, scale=np.exp(f) / 5))
CASES: dict[str, tuple[Any, Any, tuple[float, ...]]] = {
    "gaussian": (Gaussian(0.5), lambda f: of(stats.norm(f, 0.5)), (-6.0, 0.4, 9.0)),
    "standardised": (Scaled(Gaussian(0.25), 1.0, 2.0), lambda f: of(stats.norm(1 + 2 * f, 0.5)), (-6.0, 1.4, 9.0)),
    "standardised student": (
        Scaled(StudentT(4.0, 0.25), 1.0, 2.0),
        lambda f: _student(1 + 2 * f),
        (-300.0, 1.4, 1e4),
    ),
    "given dispersion": (
        FixedDispersion(Gamma(), {"log_shape": jnp.log(jnp.array([5.0]))}),
        gamma,
        (1e-3, 1.2, 20.0),
    ),
    "heteroscedastic": (
        HeteroscedasticGaussian(),
        lambda f: of(stats.norm(f, float(np.sqrt(HeteroscedasticGaussian().variance({}, jnp.array([[f, 0.4]]))[0])))),
        (-9.0, 0.4, 14.0),
    ),
    "gamma": (Gamma(5.0), gamma, (1e-3, 1.2, 6.0, 40.0)),
    "gamma of a small shape": (
        Gamma(0.3),
        lambda f: of(stats.gamma(0.3, scale=np.exp(f) / 0.3)),
        (1e-12, 0.5, 300.0),
    ),
    "weibull": (Weibull(1.7), lambda f: of(stats.weibull_min(1.7, scale=np.exp(f))), (1e-5, 1.2, 30.0)),
    "student": (StudentT(4.0, 0.5), _student, (-1e4, 0.4, 300.0)),
    "quantile": (
        Quantile(0.9, 0.5),
        lambda f: (
            lambda y: (
                (np.log(0.9) + 0.1 * (y - f) / 0.5, np.log1p(-0.9 * np.exp(0.1 * (y - f) / 0.5)))
                if y < f
                else (np.log1p(-0.1 * np.exp(-0.9 * (y - f) / 0.5)), np.log(0.1) - 0.9 * (y - f) / 0.5)
            )
        ),
        (-400.0, 0.9, 70.0),
    ),
    "beta": (
        Beta(8.0),
        lambda f: lambda y: beta_tails(8 / (1 + np.exp(-f)), 8 / (1 + np.exp(f)), y),
        (1e-4, 0.6, 0.9990234375),
    ),
    "tobit": (Tobit(lower=-50.0, scale=0.5), lambda f: of(stats.norm(f, 0.5)), (-6.0, 0.4, 9.0)),
    "truncated": (Truncated(Gaussian(0.5)), _truncated, (1e-2, 0.4, 9.0)),
    "poisson": (Poisson(), lambda f: of(stats.poisson(np.exp(f))), (0.0, 2.0, 60.0)),
    "negative binomial": (
        NegativeBinomial(2.0),
        lambda f: of(stats.nbinom(2.0, 2.0 / (2.0 + np.exp(f)))),
        (0.0, 2.0, 250.0),
    ),
    "binomial": (
        Binomial(200),
        lambda f: lambda y: beta_tails(200 - y, y + 1, 1 / (1 + np.exp(f))),
        (2.0, 120.0, 190.0),
    ),
    "zero-inflated": (ZeroInflated(Poisson()), _zeros, (0.0, 2.0, 60.0)),
    "ordinal": (
        Ordinal(3, cuts=(-40.0, 40.0)),
        lambda f: lambda y: (-np.logaddexp(0, f - (-40.0, 40.0)[int(y)]), -np.logaddexp(0, (-40.0, 40.0)[int(y)] - f)),
        (0.0, 1.0),
    ),
    "one's own distribution": (
        OwnDistribution(),
        lambda f: of(stats.lognorm(0.5, scale=np.exp(f))),
        (1e-4, 1.2, 500.0),
    ),
    "one's own density": (OwnDensity(), lambda f: of(stats.gumbel_r(f)), (-4.0, 0.6, 90.0)),
    "one's own counts": (
        OwnCounts(),
        lambda f: (
            lambda y: (
                np.log(-np.expm1(-(y + 1) * np.logaddexp(0, f))),
                -(y + 1) * np.logaddexp(0, f),
            )
        ),
        (0.0, 3.0, 150.0),
    ),
}
F = 0.25
# Each has formulas of its own; the others are made of them, and are asked in single precision alone.
PRECISE = ("gamma", "student", "beta", "poisson", "quantile", "one's own density", "one's own counts", "truncated")


def outputs(name: str, dtype: Any) -> Any:
    return jnp.asarray([[F, 0.4]] if name in ("heteroscedastic", "zero-inflated") else [[F]], dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_tails_and_their_slopes_are_those_of_scipy(name: str) -> None:
    """In both precisions; the slopes beside central differences of the reference."""
    likelihood, reference, points = CASES[name]
    expected = np.array([reference(F)(y) for y in points]).T
    step = 1e-5
    slopes = np.array([np.subtract(reference(F + step)(y), reference(F - step)(y)) / (2 * step) for y in points]).T

    @jax.jit
    def tails(f: Any, y: Any) -> Any:
        return likelihood.log_cdf({}, f, y), likelihood.log_survival({}, f, y)

    def at(dtype: Any) -> tuple[Any, Any]:
        f = [[F, 0.4] if name in ("heteroscedastic", "zero-inflated") else [F]] * len(points)
        return jnp.asarray(f, dtype), jnp.asarray(points, dtype)

    if name in PRECISE:
        np.testing.assert_allclose(tails(*at(jnp.float64)), expected, rtol=1e-8, atol=1e-8)
    f, y = at(jnp.float32)
    values, back = jax.vjp(lambda f: tails(f, y), f)
    assert values[0].dtype == values[1].dtype == jnp.float32
    np.testing.assert_allclose(values, expected, rtol=5e-5, atol=5e-5)
    each = jnp.eye(2, dtype=jnp.float32)
    gradients = np.array([back((jnp.full_like(y, a), jnp.full_like(y, b)))[0] for a, b in each])
    assert np.isfinite(gradients).all()
    scale = 2e-5 * np.maximum(1.0, np.abs(expected)).max()
    np.testing.assert_allclose(gradients[..., 0], slopes, rtol=1e-4, atol=scale)


def test_row_nine_of_censored_rows() -> None:
    """A gamma distributed time that is five means away, and a standardised normal at twelve deviations."""
    far = {"value": jnp.array([6.0], jnp.float32), "censored": jnp.array([1])}
    held = {"log_shape": jnp.log(jnp.array([5.0], jnp.float32))}
    f = jnp.zeros((1, 1), jnp.float32)
    for base, params in ((Gamma(5.0), {}), (Gamma(), held), (FixedDispersion(Gamma(), held), {})):
        value, slope = jax.value_and_grad(lambda f: RightCensored(base).log_prob(params, f, far)[0])(f)  # noqa: B023
        assert float(value) == pytest.approx(stats.gamma.logsf(6, 5, scale=0.2), rel=1e-5)
        step = [stats.gamma.logsf(6, 5, scale=np.exp(g) / 5) for g in (1e-5, -1e-5)]
        assert float(slope[0, 0]) == pytest.approx((step[0] - step[1]) / 2e-5, rel=1e-4)
    far = {"value": jnp.array([12.0], jnp.float32), "censored": jnp.array([1])}
    for base in (Gaussian(1.0), Scaled(Gaussian(1.0), 0.0, 1.0), Scaled(Gaussian(0.5), 0.0, 2.0)):
        value, slope = jax.value_and_grad(lambda f: RightCensored(base).log_prob({}, f, far)[0])(f)  # noqa: B023
        units = 1.0 if not isinstance(base, Scaled) else base.scale
        assert float(value) == pytest.approx(stats.norm.logsf(12), rel=1e-6)
        assert float(slope[0, 0]) == pytest.approx(
            units * np.exp(stats.norm.logpdf(12) - stats.norm.logsf(12)), rel=1e-5
        )


@pytest.mark.stress
def test_intervals_far_out_have_their_digits() -> None:
    """Of one hundredth of a unit, and of whole numbers, in the upper tail and in the lower one, in single precision."""
    f = jnp.zeros((2, 1), jnp.float32)
    for base, law, ends in (
        (Gamma(5.0), stats.gamma(5, scale=0.2), (6.0, 0.01)),
        (StudentT(4.0, 0.5), None, (300.0, -250.0)),
        (Weibull(1.7), stats.weibull_min(1.7), (20.0, 0.001)),
        (Quantile(0.9, 0.5), None, (70.0, -400.0)),
        (Scaled(Gaussian(0.5), 0.0, 2.0), stats.norm(), (20.0, -20.0)),
        (Tobit(lower=-50.0, scale=1.0), stats.norm(), (20.0, -20.0)),
    ):
        lower = np.asarray(ends, np.float32)
        upper = (
            np.nextafter(lower * np.float32(1.001), np.float32(np.inf)) if lower[1] > 0 else lower + np.float32(0.05)
        )
        found = IntervalCensored(base).log_prob({}, f, {"value": jnp.asarray(lower), "upper": jnp.asarray(upper)})
        density = lambda y: base.log_prob({}, jnp.zeros((len(y), 1)), jnp.asarray(y))  # noqa: B023
        nodes, weights = np.polynomial.legendre.leggauss(40)
        for k, (a, b) in enumerate(zip(lower.astype(float), upper.astype(float), strict=True)):
            y = a + (b - a) * (nodes + 1) / 2
            log_density = np.asarray(density(y)) if law is None else law.logpdf(y)
            expected = (
                np.log(weights @ np.exp(log_density - log_density.max())) + log_density.max() + np.log((b - a) / 2)
            )
            np.testing.assert_allclose(found[k], expected, rtol=1e-4, err_msg=f"{base} from {a}")
    whole = {"value": jnp.array([59.0, 1.0], jnp.float32), "upper": jnp.array([60.0, 2.0], jnp.float32)}
    np.testing.assert_allclose(
        IntervalCensored(Poisson()).log_prob({}, f, whole), stats.poisson.logpmf([60, 2], 1.0), rtol=1e-5
    )
    wide = {"value": jnp.array([0.05], jnp.float32), "upper": jnp.array([1.3], jnp.float32)}
    law = stats.gamma(5, scale=0.2)
    found = IntervalCensored(Gamma(5.0)).log_prob({}, f[:1], wide)
    np.testing.assert_allclose(found, np.log(law.cdf(1.3) - law.cdf(0.05)), rtol=1e-5)


def test_counts_of_millions_have_both_tails_in_float32() -> None:
    """Of negative binomial counts, whose concentration is a small number beside them."""
    mean, concentration = np.exp(15.0), 2.0
    law = stats.nbinom(concentration, concentration / (concentration + mean))
    y = np.floor(law.ppf([0.001, 0.2, 0.9, 0.999]))
    f, counts = jnp.full((4, 1), 15.0, jnp.float32), jnp.asarray(y, jnp.float32)
    below, above = NegativeBinomial(concentration).log_tails({}, f, counts)
    np.testing.assert_allclose(below, law.logcdf(np.asarray(counts, float)), rtol=1e-4)
    np.testing.assert_allclose(above, law.logsf(np.asarray(counts, float)), rtol=1e-4, atol=1e-6)


def test_dispersions_learn_from_censored_rows() -> None:
    """The slopes by log shape and by log concentration, for which JAX's incomplete beta function has none."""
    f, y = jnp.zeros((1, 1)), jnp.array([6.0])
    for base, leaf, value, tail in (
        (Gamma(), "log_shape", 5.0, lambda a: stats.gamma.logsf(6.0, a, scale=1 / a)),
        (NegativeBinomial(), "log_concentration", 2.0, lambda a: stats.nbinom.logsf(6.0, a, a / (a + 1))),
        (Beta(), "log_concentration", 4.0, lambda a: stats.beta.logsf(0.9, a / 2, a / 2)),
        (Weibull(), "log_shape", 1.7, lambda a: stats.weibull_min.logsf(6.0, a)),
    ):
        at = jnp.array([0.9]) if isinstance(base, Beta) else y
        slope = jax.grad(lambda log: base.log_survival({leaf: log}, f, at)[0])(jnp.log(jnp.array([value])))  # noqa: B023
        expected = (tail(value * np.exp(1e-5)) - tail(value * np.exp(-1e-5))) / 2e-5
        np.testing.assert_allclose(slope, [expected], rtol=1e-5)


def test_tails_end_with_the_support() -> None:
    """Nothing is above the largest value, nothing below the least one, and neither makes a slope infinite."""
    for base, below, beyond in (
        (Binomial(3), -1.0, 3.0),
        (Gamma(5.0), -1.0, np.inf),
        (ZeroInflated(Poisson()), -1.0, np.inf),
    ):
        f = jnp.zeros((2, 2 if isinstance(base, ZeroInflated) else 1))
        y = jnp.array([below, beyond])
        np.testing.assert_array_equal(base.log_cdf({}, f, y), [-np.inf, 0.0])
        np.testing.assert_array_equal(base.log_survival({}, f, y), [0.0, -np.inf])
        slopes = jax.grad(lambda f: jnp.sum(jnp.exp(base.log_survival({}, f, y))))(f)  # noqa: B023
        assert np.isfinite(slopes).all()


def test_a_row_censored_at_the_last_value_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"row 1 is above 3.0, and RightCensored.Binomial. takes whole numbers from 0 to 3"
    ):
        RightCensored(Binomial(3)).check({"value": np.array([3.0, 3.0]), "censored": np.array([0, 1])})
    LeftCensored(Binomial(3)).check({"value": np.array([3.0, 3.0]), "censored": np.array([0, 1])})


# Wrappers: every member of the interface is the base's, or the wrapper's own.

WRAPPERS: dict[type, Any] = {
    Scaled: Scaled(Gaussian(0.25), 1.0, 2.0),
    FixedDispersion: FixedDispersion(Gaussian(), {"log_scale": jnp.zeros(1)}),
    RightCensored: RightCensored(Gaussian(0.5)),
    LeftCensored: LeftCensored(Gamma(5.0)),
    IntervalCensored: IntervalCensored(Poisson()),
    PerPosition: PerPosition(Poisson(), (2,)),
    ZeroInflated: ZeroInflated(NegativeBinomial(2.0)),
    Truncated: Truncated(Gaussian(0.5), 0.1),
    _Averaged: None,
}


def members(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_wrapper_forwards_every_member() -> None:
    own = {name for name in vars(LikelihoodWrapper) if not name.startswith("_")}
    assert own - {"base", "parameters"} == members(Likelihood) | {"support"}, (
        "a member of Likelihood is not forwarded by LikelihoodWrapper"
    )


def test_every_likelihood_that_holds_another_one_is_a_wrapper() -> None:
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(child) for child in kind.__subclasses__()))

    holding = {
        kind
        for kind in below(Likelihood)
        if kind.__module__.startswith("lamu.")
        and any("Likelihood" in str(t) for t in inspect.get_annotations(kind).values())
    }
    assert holding <= below(LikelihoodWrapper), holding - below(LikelihoodWrapper)
    assert {kind for kind in below(LikelihoodWrapper) if kind in WRAPPERS} == set(WRAPPERS)
    assert not [kind for kind in holding if kind not in WRAPPERS and kind.__name__ != "_Censored"]


class Recorder(Likelihood):
    """A base that notes what it is asked, of real numbers."""

    support = lamu.supports.Real()

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("asked", "support", "name"):
            return object.__getattribute__(self, name)
        asked = object.__getattribute__(self, "asked")
        if not callable(inspect.getattr_static(Likelihood, name)):
            asked.append((name, None))
            return object.__getattribute__(self, name)
        nothing, numbers = ("check", "check_training", "marginal", "distribution"), jnp.zeros(2)
        answers: dict[str, Any] = dict.fromkeys(nothing) | {"outputs": 1, "output_scales": ("means",)}
        answers |= {key: {} for key in ("init", "sample_prior", "dispersion_information", "scale_noise")}
        answers["log_tails"] = (numbers, numbers)

        def answer(*args: Any) -> Any:
            asked.append((name, args))
            return answers.get(name, numbers)

        return answer


FORWARDED = sorted(members(Likelihood) - {"support", "name", "of_position"})
SHIFTED = {"log_prob", "cdf", "log_tails", "log_cdf", "log_survival", "counted", "log_interval", "init"}


def _arguments(name: str) -> tuple[Any, ...] | None:
    f, y, key = jnp.zeros((2, 1)), jnp.array([3.0, 5.0]), jax.random.key(0)
    by_name = {"params": {"log_scale": jnp.ones(1)}, "f": f, "y": y, "key": key, "weights": jnp.ones(2)}
    by_name |= {
        "lower": y,
        "upper": y + 1,
        "factor": 2.0,
        "width": 1,
        "mean": f,
        "covariance": f[:, :, None],
        "step": f,
    }
    found = inspect.getattr_static(Likelihood, name)
    return tuple(by_name[p] for p in list(inspect.signature(found).parameters)[1:]) if callable(found) else None


@pytest.mark.parametrize("name", FORWARDED)
def test_scaled_and_fixed_dispersion_ask_the_base_itself(name: str) -> None:
    """Each member is the base's own, with the standardised targets, or with the dispersions that are given."""
    for kind in ("scaled", "fixed"):
        base = Recorder()
        given = {"log_scale": jnp.full(1, 7.0)}
        wrapper: Any = object.__new__(Scaled if kind == "scaled" else FixedDispersion)
        for field, value in {"base": base, "shift": 1.0, "scale": 2.0, "dispersion": given}.items():
            object.__setattr__(wrapper, field, value)
        arguments = _arguments(name)
        found = getattr(wrapper, name) if arguments is None else getattr(wrapper, name)(*arguments)
        asked = [args for member, args in base.asked if member == name]
        if kind == "scaled" and name == "distribution":
            assert found is None
            continue
        if kind == "fixed" and name in (
            "init",
            "log_prior",
            "sample_prior",
            "dispersion_information",
            "scale_noise",
            "check_training",
        ):
            assert not asked
            continue
        assert asked, f"{name} is not the base's"
        if arguments is None:
            continue
        leaves = jax.tree.leaves(asked[-1])
        if kind == "scaled" and name in SHIFTED:
            assert any(np.array_equal(leaf, [1.0, 2.0]) for leaf in leaves if np.ndim(leaf) == 1), (
                "y is not standardised"
            )
        if kind == "fixed" and "params" in inspect.signature(inspect.getattr_static(Likelihood, name)).parameters:
            assert any(np.array_equal(leaf, [7.0]) for leaf in leaves), "the dispersions are not those that are given"


@pytest.mark.parametrize(
    "name", ["PerPosition", "ZeroInflated", "Truncated", "RightCensored", "LeftCensored", "IntervalCensored"]
)
def test_what_follows_from_the_density_is_the_wrappers(name: str) -> None:
    """Information and tails of a wrapper are of its own density and distribution function, whatever the base says."""
    wrapper = next(value for kind, value in WRAPPERS.items() if kind.__name__ == name)
    f = jnp.array([[0.3, -0.4], [0.8, 0.5]])[:, : 2 if name in ("PerPosition", "ZeroInflated") else 1]
    y = jnp.array([[2.0, 1.0], [3.0, 0.0]]) if name == "PerPosition" else jnp.array([1.0, 3.0])
    cdf = wrapper.cdf({}, f, y)
    np.testing.assert_allclose(jnp.exp(wrapper.log_cdf({}, f, y)), cdf, rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(wrapper.log_survival({}, f, y)), 1 - cdf, rtol=1e-6, atol=1e-12)
    between = jnp.exp(wrapper.log_interval({}, f, y, y + 1.0))
    np.testing.assert_allclose(between, wrapper.cdf({}, f, y + 1.0) - cdf, rtol=1e-6, atol=1e-12)
    if name in ("Truncated", "LeftCensored", "IntervalCensored"):
        return  # an average over draws, and the base's
    information = wrapper.information({}, f)
    root = wrapper.information_root({}, f)
    np.testing.assert_allclose(jnp.einsum("bir,bjr->bij", root, root), information, rtol=1e-5, atol=1e-9)
    diagonal = wrapper.information_diagonal({}, f)
    np.testing.assert_allclose(diagonal, jnp.diagonal(information, axis1=1, axis2=2), rtol=1e-6)
    weights = jnp.array([0.5, 2.0])
    total = jnp.einsum("bij,b->ij", information, weights)
    np.testing.assert_allclose(wrapper.information_sum({}, f, weights), total, rtol=1e-6)
    blocks = wrapper.information_blocks({}, f)
    size = blocks.shape[1]
    first = information[:, :size, :size]
    np.testing.assert_allclose(blocks.reshape(2, -1, size, size)[:, 0], first, rtol=1e-6)


def test_of_several_outputs_the_tails_are_output_by_output() -> None:
    f, y = jnp.array([[0.0, 1.0]]), jnp.array([[10.0, -9.0]])
    covariance = jnp.array([[1.0, 0.5], [0.5, 4.0]])
    expected = stats.norm.logsf([10.0, -9.0], [0.0, 1.0], [1.0, 2.0])
    np.testing.assert_allclose(
        MultivariateGaussian(covariance).log_survival({}, f, y), expected[None], rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(
        Scaled(Gaussian(1.0), jnp.zeros(2), jnp.array([1.0, 2.0])).log_survival({}, f / jnp.array([[1.0, 2.0]]), y),
        expected[None], rtol=1e-6, atol=1e-12,
    )  # fmt: skip
