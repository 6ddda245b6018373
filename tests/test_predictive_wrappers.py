"""Wrappers of predictives: every member of the interface is the base's, or the wrapper's own, or refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu.calibration import Temperature, TemperedClasses, Widened, temperature_scaling
from lamu.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Poisson,
    Tobit,
    VonMises,
    Weibull,
)
from lamu.likelihoods.links import Logit, Tanh
from lamu.predictives import AtPositions, MixturePredictive, OfTrials, Predictive, Weighted
from lamu.predictives.mixture import AveragedPredictive
from lamu.predictives.wrapper import Moved, PredictiveWrapper, RescaledPredictive
from lamu.supports import Real
from tests.laws.predictives import (
    ROW,
    both_kinds_of_uncertainty_make_up_the_whole,
    some_targets,
    the_density_is_the_one_written_by_hand,
    what_is_known_to_lie_in_a_range_has_its_probability,
    without_a_draw_the_density_is_that_of_the_others,
)

# Which `Predictive` derives from the others, and a wrapper so from its own.
DERIVED = {"task", "std", "total", "probabilities", "interval", "prediction_set", "decide", "monte_carlo_error"}
MOMENTS = {"mean", "variance", "aleatoric", "epistemic"}
DISTRIBUTION = {"log_prob", "cdf", "sample", "left_out"}


def members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def below(kind: type) -> set[Any]:
    return {kind}.union(*(below(child) for child in kind.__subclasses__()))


WRAPPERS = {each for each in below(PredictiveWrapper) if each.__module__.startswith("lamu.")} - {PredictiveWrapper}


def test_the_wrapper_forwards_every_member() -> None:
    own = {name for name in vars(PredictiveWrapper) if not name.startswith("_")} - {
        "of_rows",
        "target_rows",
        "arranged",
    }
    assert own | DERIVED == members(Predictive), "a member of Predictive is neither forwarded nor derived"
    assert not own & DERIVED


def test_every_prediction_that_holds_another_one_is_a_wrapper_or_an_average() -> None:
    assert {each.__name__ for each in WRAPPERS} == {
        "AtPositions",
        "Moved",
        "OfTrials",
        "RescaledPredictive",
        "TemperedClasses",
        "Widened",
    }
    holding = {
        each
        for each in below(Predictive)
        if each.__module__.startswith("lamu.") and {"base", "parts"} & set(inspect.get_annotations(each))
    }
    assert holding <= below(PredictiveWrapper) | below(AveragedPredictive)


@pytest.mark.parametrize("kind", sorted(WRAPPERS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_a_wrapper_with_another_distribution_says_all_of_it(kind: type) -> None:
    """Whoever changes a part of the moments, or of the distribution, changes the rest or translates the targets."""
    changed = set().union(*(vars(each) for each in kind.__mro__[: kind.__mro__.index(PredictiveWrapper)]))
    if changed & MOMENTS:
        assert changed >= MOMENTS
    if changed & DISTRIBUTION:
        translated = {"cdf"} if "target_rows" in changed else set()
        assert changed >= DISTRIBUTION - translated
        # Arranging answers for all members; classes have no quantiles.
        assert changed & {"quantile", "arranged"} or kind is TemperedClasses
    assert "sample" in changed or "mean" not in changed


class Recorder(Predictive):
    """A base that notes what it is asked, of real numbers."""

    support = Real()
    mean = variance = aleatoric = epistemic = property(lambda self: self.answer("moments"))
    deferred, chunk_size = True, 7

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def answer(self, *asked: Any) -> Any:
        self.asked.append(asked)
        return jnp.array([1.0, 2.0])

    def warn(self) -> None:
        self.answer("warn")

    def log_prob(self, y: Any) -> Any:
        return self.answer("log_prob", y)

    def cdf(self, y: Any) -> Any:
        return self.answer("cdf", y)

    def left_out(self, y: Any) -> Any:
        return (self.answer("left_out", y),)

    def quantile(self, probability: float) -> Any:
        return self.answer("quantile", probability)

    def sample(self, key: Any, n: int, first: Any = 0) -> Any:
        return self.answer("sample", key, n, first)

    def chunks(self) -> Any:
        yield slice(0, 1), self.answer("chunks")


class Nothing(PredictiveWrapper):
    """A wrapper that changes nothing."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def of_rows(self, rows: slice, part: Any) -> Any:
        return rows, part


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "support": lambda pred: pred.support,
    "mean": lambda pred: pred.mean,
    "variance": lambda pred: pred.variance,
    "aleatoric": lambda pred: pred.aleatoric,
    "epistemic": lambda pred: pred.epistemic,
    "warn": lambda pred: pred.warn(),
    "log_prob": lambda pred: pred.log_prob("y"),
    "cdf": lambda pred: pred.cdf("y"),
    "left_out": lambda pred: pred.left_out("y"),
    "quantile": lambda pred: pred.quantile(0.3),
    "sample": lambda pred: pred.sample(jax.random.key(1), 5, 11),
    "deferred": lambda pred: pred.deferred,
    "chunk_size": lambda pred: pred.chunk_size,
    "chunks": lambda pred: next(iter(pred.chunks()))[0],
}


def test_every_forwarded_member_is_asked_for() -> None:
    assert set(QUESTIONS) == members(Predictive) - DERIVED


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_wrapper_that_changes_nothing_asks_the_base_the_same(name: str) -> None:
    bases = Recorder(), Recorder()
    found = QUESTIONS[name](Nothing(bases[0])), QUESTIONS[name](bases[1])
    assert bases[0].asked == bases[1].asked
    assert str(found[0]) == str(found[1])


def normals(rows: int = 3) -> MixturePredictive:
    f = jnp.linspace(-1.0, 1.0, 2 * rows).reshape(2, rows, 1)
    return MixturePredictive.equal(Gaussian(0.5), {}, f, drawn=True)


CUT: dict[type, Callable[[], Any]] = {
    Moved: lambda: Moved(normals(), jnp.arange(3.0), jnp.array([1.0, 2.0, 3.0])),
    Widened: lambda: Widened(normals(), 1.5),
    OfTrials: lambda: OfTrials(
        MixturePredictive.equal(Binomial(), {}, jnp.zeros((1, 3, 1))), jnp.array([1.0, 5.0, 2.0])
    ),
    TemperedClasses: lambda: TemperedClasses(MixturePredictive.equal(Bernoulli(), {}, jnp.ones((1, 3, 1))), 2.0),
}


@pytest.mark.parametrize("kind", CUT, ids=lambda kind: kind.__name__)
def test_some_rows_of_a_wrapper_are_those_rows_of_all(kind: type) -> None:
    whole: Any = CUT[kind]()
    rows = slice(1, 3)
    base = whole.base
    part = whole.of_rows(rows, MixturePredictive(base.likelihood, {}, base.f[:, rows], base.log_weights, base.drawn))
    assert type(part) is kind
    for name in ("mean", "variance", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(part, name), getattr(whole, name)[rows], rtol=1e-9)


def test_every_wrapper_can_be_cut() -> None:
    assert set(CUT) | {AtPositions, RescaledPredictive} == WRAPPERS


def test_positions_leave_draws_out_and_decide() -> None:
    """They said that nothing was drawn, and that their Monte Carlo error was zero."""
    pred = AtPositions(normals(4), (2,))
    y = jnp.array([[0.1, 0.4], [-0.3, 0.9]])
    (group,) = pred.left_out(y)
    (each,) = pred.base.left_out(y.ravel())
    np.testing.assert_allclose(group, each.reshape(2, 2, 2).sum(axis=2), rtol=1e-9)
    assert pred.monte_carlo_error(y) > 0
    np.testing.assert_allclose(pred.quantile(0.3).ravel(), pred.base.quantile(0.3), rtol=1e-9)
    logits = jnp.array([[[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 1.0, 0.5]]])
    labels = AtPositions(MixturePredictive.equal(Categorical(3), {}, logits), (2,))
    np.testing.assert_array_equal(labels.decide(np.eye(3)), [[1, 0], [2, 1]])


def test_more_successes_than_trials_are_impossible() -> None:
    pred = CUT[OfTrials]()
    np.testing.assert_array_equal(jnp.isneginf(pred.log_prob(jnp.array([2.0, 5.0, 3.0]))), [True, False, True])
    np.testing.assert_array_equal(pred.cdf(jnp.array([2.0, 5.0, 3.0])), 1.0)


def test_a_row_without_density_has_none_without_a_draw() -> None:
    """The difference of two infinities was no number."""
    pred = Moved(normals(), jnp.zeros(3), jnp.full(3, 2.0))
    assert bool(jnp.isneginf(pred.left_out(jnp.full(3, jnp.inf))[0]).all())


def test_a_count_of_a_conjugate_model_has_whole_quantiles() -> None:
    pred = lamu.predictives.ConjugatePredictive(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.5), rows=1)
    for p in (0.05, 0.4, 0.9):
        assert float(pred.quantile(p)[0]) == stats.nbinom.ppf(p, 2.0, 0.6)
    lower, upper = pred.interval(0.5)
    assert (float(lower[0]), float(upper[0])) == (0.0, 1.0)


def test_a_deferred_prediction_of_censored_rows_has_an_error_of_its_draws() -> None:
    targets = {"value": jnp.array([0.1, 0.2, 0.3]), "censored": jnp.array([0, 1, 0])}

    class Cut(Nothing):
        deferred = True

        def chunks(self) -> Any:
            for start in range(3):
                f = self.base.f[:, start : start + 1]
                part = MixturePredictive.equal(self.base.likelihood, {}, f, drawn=True)
                yield slice(start, start + 1), part

    whole = MixturePredictive.equal(
        lamu.likelihoods.RightCensored(Gaussian(0.5)),
        {},
        normals().f + jax.random.normal(jax.random.key(0), (2, 3, 1)),
        True,
    )
    np.testing.assert_allclose(Cut(whole).monte_carlo_error(targets), whole.monte_carlo_error(targets), rtol=1e-6)


REFUSED = {
    "poisson": Poisson(),
    "negative binomial": NegativeBinomial(3.0),
    "binomial": Binomial(12),
    "gamma": Gamma(5.0),
    "weibull": Weibull(2.0),
    "beta": Beta(6.0),
    "angles": VonMises(2.0),
    "limited": Tobit(lower=0.0, scale=1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stretch_takes_out_of_its_support_is_refused(name: str) -> None:
    """Counts under predictions whose best stretch was by .19, with a density that is no number; and their kind."""
    likelihood = REFUSED[name]
    pred = MixturePredictive.equal(likelihood, {}, jnp.zeros((1, 2, 1)))
    said = "would leave their support; use conformal"
    with pytest.raises(ValueError, match=f"targets that are {likelihood.support.values} {said}"):
        temperature_scaling(pred, np.array([0.5, 0.5]) if name == "beta" else np.array([1.0, 1.0]))
    for refused in (lambda: Temperature(1.7, pred.support)(pred), lambda: Widened(pred, 1.7)):
        with pytest.raises(ValueError, match=said):
            refused()


def test_zero_and_one_do_not_mix_with_signs() -> None:
    binary = (MixturePredictive.equal(Bernoulli(link), {}, jnp.zeros((1, 2, 1))) for link in (Logit(), Tanh()))
    with pytest.raises(ValueError, match="one part predicts 0 and 1, and another -1 and 1, whose densities do not"):
        Weighted.equal(tuple(binary))


def test_a_temperature_keeps_signs() -> None:
    """The density of minus one was that of the last class, one, and draws were zero or one."""
    pred = MixturePredictive.equal(Bernoulli(Tanh()), {}, jnp.array([[[0.4]], [[1.0]]]), drawn=True)
    after = TemperedClasses(pred, 2.0)
    p = float(pred.mean[0])
    expected = np.sqrt([1 - p, p]) / (np.sqrt(p) + np.sqrt(1 - p))
    found = [float(jnp.exp(after.log_prob(jnp.array([y])))[0]) for y in (-1, 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert set(np.unique(after.sample(jax.random.key(0), 50))) == {-1, 1}
    (group,) = after.left_out(jnp.array([-1]))
    other = 1 - 1 / (1 + np.exp(-2 * np.array([1.0, 0.4])))
    alone = np.sqrt(other) / (np.sqrt(other) + np.sqrt(1 - other))
    np.testing.assert_allclose(np.exp(group[:, 0]), alone, rtol=1e-6)


WITH_DRAWS = [name for name, row in ROW.items() if "draws" in row.traits]
NUMBERS = [name for name, row in ROW.items() if "number" in row.traits]
CENSORED = [name for name, row in ROW.items() if "censored" in row.traits]


@pytest.mark.parametrize("name", WITH_DRAWS)
def test_every_kind_leaves_draws_out(name: str) -> None:
    without_a_draw_the_density_is_that_of_the_others(ROW[name])


@pytest.mark.parametrize("name", CENSORED)
def test_every_kind_of_censored_row_has_a_probability(name: str) -> None:
    what_is_known_to_lie_in_a_range_has_its_probability(ROW[name])


@pytest.mark.parametrize("name", NUMBERS)
def test_every_kind_of_numbers_has_the_density_and_the_distribution_function_of_its_own(name: str) -> None:
    """What a distribution function gains over a step is the density, at three places."""
    row = ROW[name]
    the_density_is_the_one_written_by_hand(row)
    both_kinds_of_uncertainty_make_up_the_whole(row)
    pred = row.subject()
    for y in some_targets(name):
        step = 1.0 if pred.support.discrete else 1e-4 * pred.std
        gained = pred.cdf(y) - pred.cdf(y - step) if pred.support.discrete else pred.cdf(y + step) - pred.cdf(y - step)
        width = 1.0 if pred.support.discrete else 2 * step
        np.testing.assert_allclose(gained / width, row.extras["density"](np.asarray(y)), rtol=1e-4, atol=1e-8)


class Foreign(Predictive):
    """A predictive of somebody else's, which is no record, so that no program takes it: N(1, 4) for three rows."""

    support = Real()
    mean, variance = jnp.full(3, 1.0), jnp.full(3, 4.0)
    aleatoric, epistemic = variance, jnp.zeros(3)

    def log_prob(self, y: Any) -> Any:
        return jax.scipy.stats.norm.logpdf(y, 1.0, 2.0)

    def cdf(self, y: Any) -> Any:
        return jax.scipy.stats.norm.cdf(y, 1.0, 2.0)

    def quantile(self, probability: float) -> Any:
        return jnp.full(3, jax.scipy.stats.norm.ppf(probability, 1.0, 2.0))

    def sample(self, key: Any, n: int, first: Any = 0) -> Any:
        return 1.0 + 2.0 * jax.random.normal(key, (n, 3))


def test_an_average_with_somebody_elses_prediction_has_quantiles() -> None:
    own = MixturePredictive.equal(Gaussian(0.5), {}, jnp.zeros((1, 3, 1)))
    pred = Weighted((own, Foreign()), jnp.log(jnp.array([0.3, 0.7])))
    at = np.asarray(pred.quantile(0.9))
    below_it = 0.3 * stats.norm.cdf(at, 0.0, 0.5) + 0.7 * stats.norm.cdf(at, 1.0, 2.0)
    np.testing.assert_allclose(below_it, 0.9, rtol=1e-6)
    lower, upper = (np.asarray(end) for end in pred.interval(0.8))
    np.testing.assert_allclose(pred.cdf(upper) - pred.cdf(lower), 0.8, rtol=1e-6)
