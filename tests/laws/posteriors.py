"""Laws of posteriors and of what they predict.

A row's subject is a `Fitted`, which fits when it is first asked. Its extras: `task`. Its traits choose further laws:
"regression" or "classes" (the task), "point" (a belief without spread), "scales" (the fit is a closed form, so scaled
targets must give scaled answers), "widens" (linear regression with a belief that contracts), "hidden" (an MLP).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

import lamu
from lamu.algorithms import (
    adagrad,
    adam,
    bayes_by_backprop,
    bayesbinn,
    blocks,
    bsam,
    conjugate,
    conjugate_scales,
    deep_ensemble,
    dropout,
    extended_kalman,
    gradient_descent,
    igo,
    invariant_map,
    ivon,
    kfac,
    laplace,
    last_layer,
    lie_group,
    map_estimate,
    mc_dropout,
    mixture,
    mixture_vi,
    multimodal,
    neural_linear,
    noisy_kfac,
    ogn,
    online_laplace,
    pbp,
    rmsprop,
    sam,
    sgd,
    slang,
    straight_through,
    swag,
    vogn,
    von,
)
from lamu.expectations import Exact
from lamu.families import Gaussian, Point, Product
from lamu.mcmc import hmc, mala, minibatch_mh, nuts, parallel_tempering, psgld, random_walk, sghmc, sgld, sgnht, ula
from lamu.networks import MLP, BatchNorm, Dropout
from lamu.operators import Dense, KroneckerFactored, MatrixFreeStructure
from lamu.predictives import lazy, linearised, padding, sampled
from lamu.predictives.lazy import in_chunks
from lamu.priors import ARD
from lamu.record import record
from tests.laws.harness import ROWS, Row, law, row, twin, vocabulary

vocabulary("posteriors", "binary classes hidden labels point regression scales widens")

rng = np.random.default_rng(5)
X = rng.normal(size=(50, 2))
MEANS = X @ np.array([1.5, -1.0])
Y = MEANS + 0.4 * rng.normal(size=50)
BINARY = (MEANS + 0.5 * rng.normal(size=50) > 0).astype(int)
CLASSES = np.digitize(MEANS + 0.5 * rng.normal(size=50), [-1.0, 1.0])
NEW = np.concatenate([rng.normal(size=(5, 2)), 5 * np.ones((1, 2))])
PERSON = 40  # draws for a prediction


class Fitted:
    """A posterior by an algorithm, and how it is asked, so that a twin may do either otherwise."""

    def __init__(self, model: Any, data: Any, algorithm: Any, **options: Any) -> None:
        self.model, self.data, self.algorithm, self.options = model, data, algorithm, options

    def fit(self, model: Any, data: Any) -> Any:
        return lamu.fit(model, data, self.algorithm, batch_size=len(data[0]), **self.options).posterior

    @cached_property
    def posterior(self) -> Any:
        return self.fit(self.model, self.data)

    def predict(self, x: Any, posterior: Any = None) -> Any:
        return (posterior or self.posterior).predict(x, samples=PERSON)

    @cached_property
    def new(self) -> Any:
        return self.predict(NEW)

    def save(self, path: Path) -> Any:
        return self.posterior.save(path)

    def load(self, path: Path) -> Any:
        return lamu.load(path)


def linear(likelihood: Any, bias: bool = True) -> Any:
    return lamu.Model(lamu.networks.Linear(bias), likelihood)


known, learned = lamu.likelihoods.Gaussian(0.4), lamu.likelihoods.Gaussian()
hidden = lamu.Model(lamu.networks.MLP((4,), "tanh"), lamu.likelihoods.Categorical(3)).standardised(X, CLASSES)
dropped = lamu.Model(lamu.networks.MLP((4,), "tanh", dropout=Dropout(0.2)), lamu.likelihoods.Categorical(3))
dropped = dropped.standardised(X, CLASSES)
tanh = lamu.Model(lamu.networks.MLP((4,), "tanh"), learned)
rectifiers = lamu.Model(lamu.networks.MLP((4,)), learned)
logistic = linear(lamu.likelihoods.Bernoulli())
newton = von(1.0, Dense, Exact())


def normed(by: BatchNorm) -> Any:
    """A fit of an ensemble with batch statistics of its members' own."""
    model = lamu.Model(MLP((4,), "tanh", by), lamu.likelihoods.Categorical(3)).standardised(X, CLASSES)
    return Fitted(model, (X, CLASSES), deep_ensemble(adam(0.05), members=2), steps=20)


LENGTHS: dict[str, Any] = {"chains": 2, "warmup": 100, "draws": 20, "thinning": 5}
FITS = {
    "gradient_descent": ("regression point long", Fitted(linear(learned), (X, Y), gradient_descent(0.1), steps=50)),
    "sgd": ("binary point long", Fitted(logistic, (X, BINARY), sgd(0.1), steps=50)),
    "adam": ("classes point hidden", Fitted(hidden, (X, CLASSES), adam(0.05), steps=50)),
    "map_estimate": ("regression point hidden long", Fitted(tanh, (X, Y), map_estimate(), steps=20)),
    "von": ("regression scales widens", Fitted(linear(known), (X, Y), newton, steps=2)),
    "ivon": ("classes hidden", Fitted(hidden, (X, CLASSES), ivon(0.1), steps=100)),
    "blocks": (
        "classes hidden",
        Fitted(hidden, (X, CLASSES), blocks({"layers/1/*": ivon(0.1), "*": adam(0.05)}), steps=50),
    ),
    "vogn": ("binary", Fitted(logistic, (X, BINARY), vogn(0.1), steps=50)),
    "laplace": ("classes hidden", Fitted(hidden, (X, CLASSES), laplace(adam(0.05)), steps=50)),
    "laplace of binary": (
        "binary",
        Fitted(logistic, (X, BINARY), laplace(adam(0.05)), steps=50),
    ),
    "laplace of Kronecker factors": (
        "classes long",
        Fitted(hidden, (X, CLASSES), laplace(adam(0.05), structure=KroneckerFactored()), steps=50),
    ),
    "laplace of MatrixFreeStructure": (
        "binary long",
        Fitted(logistic, (X, BINARY), laplace(adam(0.05), structure=MatrixFreeStructure(tolerance=1e-8)), steps=50),
    ),
    "last_layer": ("classes", Fitted(hidden, (X, CLASSES), last_layer(adam(0.05)), steps=50)),
    "deep_ensemble": ("regression", Fitted(tanh, (X, Y), deep_ensemble(adam(0.05), members=2), steps=20)),
    "deep_ensemble of ivon": (
        "classes long",
        Fitted(hidden, (X, CLASSES), deep_ensemble(ivon(0.1), members=2), steps=50),
    ),
    "deep_ensemble of batch statistics": ("classes", normed(BatchNorm())),
    "newton": ("regression scales widens long", Fitted(linear(known), (X, Y), lamu.algorithms.newton(), steps=2)),
    "rmsprop": (
        "binary point long",
        Fitted(logistic, (X, BINARY), rmsprop(0.02), steps=50),
    ),
    "adagrad": ("binary point long", Fitted(logistic, (X, BINARY), adagrad(0.3), steps=50)),
    "sam": ("regression point long", Fitted(linear(learned), (X, Y), sam(0.1), steps=50)),
    "ogn": ("binary long", Fitted(logistic, (X, BINARY), ogn(0.1), steps=50)),
    "slang": ("classes hidden", Fitted(hidden, (X, CLASSES), slang(0.1, rank=2), steps=50)),
    "noisy_kfac": ("classes hidden long", Fitted(hidden, (X, CLASSES), noisy_kfac(0.1), steps=50)),
    "kfac": ("binary long", Fitted(logistic, (X, BINARY), kfac(0.1), steps=50)),
    "bayes_by_backprop": ("classes hidden long", Fitted(hidden, (X, CLASSES), bayes_by_backprop(), steps=100)),
    "invariant_map": ("regression point long", Fitted(linear(known), (X, Y), invariant_map(), steps=10)),
    "bsam": ("classes hidden long", Fitted(hidden, (X, CLASSES), bsam(0.1), steps=100)),
    "lie_group": ("classes hidden long", Fitted(hidden, (X, CLASSES), lie_group(), steps=50)),
    "multimodal": ("regression long", Fitted(linear(known), (X, Y), multimodal(components=2), steps=10)),
    "mixture_vi": ("regression", Fitted(linear(known), (X, Y), mixture_vi(components=2), steps=10)),
    "igo": ("regression point long", Fitted(linear(known), (X, Y), igo(), steps=10)),
    "straight_through": ("classes point long", Fitted(hidden, (X, CLASSES), straight_through(0.1), steps=20)),
    "bayesbinn": ("classes", Fitted(hidden, (X, CLASSES), bayesbinn(0.01), steps=20)),
    "dropout": ("classes point long", Fitted(dropped, (X, CLASSES), dropout(sgd(0.1)), steps=20)),
    "mc_dropout": ("classes", Fitted(dropped, (X, CLASSES), mc_dropout(sgd(0.1)), steps=20)),
    "mixture": ("classes long", Fitted(hidden, (X, CLASSES), mixture(ivon(0.1), components=2), steps=50)),
    "conjugate_scales": ("regression", Fitted(replace(tanh, prior=ARD()), (X, Y), conjugate_scales(), steps=20)),
    "pbp": ("regression", Fitted(rectifiers, (X, Y), pbp(), steps=2)),
    "swag": ("classes hidden", Fitted(hidden, (X, CLASSES), swag(sgd(0.1)), steps=50)),
    "online_laplace": ("classes hidden", Fitted(hidden, (X, CLASSES), online_laplace(adam(0.05)), steps=50)),
    "neural_linear": ("regression", Fitted(tanh, (X, Y), neural_linear(adam(0.05)), steps=50)),
    "conjugate": ("regression scales widens", Fitted(linear(known), (X, Y), conjugate())),
    "extended_kalman": ("classes hidden", Fitted(hidden, (X, CLASSES), extended_kalman())),
    "nuts": ("regression", Fitted(linear(learned), (X, Y), nuts(chains=2, warmup=60, draws=30))),
    "hmc": ("regression long", Fitted(linear(learned), (X, Y), hmc(chains=2, warmup=60, draws=30))),
    "parallel_tempering": ("regression long", Fitted(linear(learned), (X, Y), parallel_tempering(2, 60, 30))),
    "mala": ("regression long", Fitted(linear(learned), (X, Y), mala(chains=2, warmup=60, draws=30))),
    "ula": ("regression long", Fitted(linear(learned), (X, Y), ula(chains=2, warmup=60, draws=30))),
    "random_walk": ("regression long", Fitted(linear(learned), (X, Y), random_walk(2, 60, 30))),
    "minibatch_mh": ("regression long", Fitted(linear(learned), (X, Y), minibatch_mh(2, 60, 30, rows=20))),
    "sgld": ("classes", Fitted(hidden, (X, CLASSES), sgld(0.05, **LENGTHS))),
    "psgld": ("classes long", Fitted(hidden, (X, CLASSES), psgld(0.01, **LENGTHS))),
    "sghmc": ("classes long", Fitted(hidden, (X, CLASSES), sghmc(0.01, **LENGTHS))),
    "sgnht": ("classes long", Fitted(hidden, (X, CLASSES), sgnht(0.01, **LENGTHS))),
}


def fitted(name: str, traits: str, fit: Fitted) -> None:
    """Declares the row of an algorithm's posterior."""
    FITS[name] = traits, fit
    row("posteriors", name, fit, traits if "regression" in traits else f"labels {traits}")


for name, (traits, fit) in FITS.items():
    fitted(name, traits, fit)


def numbers(predictive: Any) -> list[Any]:
    return [predictive.mean, predictive.variance, predictive.aleatoric, predictive.epistemic]


@law("posteriors")
def saved_and_loaded_predicts_the_same_bits(row: Row) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior"
        row.subject.save(path)
        again = row.subject.predict(NEW, row.subject.load(path))
        assert jax.tree.structure(row.subject.load(path)) == jax.tree.structure(row.subject.posterior)
    for one, other in zip(numbers(row.subject.new), numbers(again), strict=True):
        np.testing.assert_array_equal(one, other)


@law("posteriors")
def save_refuses_what_exists(row: Row) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior"
        path.mkdir()
        (path / "diary").write_text("mine")
        refused = False
        try:
            row.subject.save(path)
        except FileExistsError:
            refused = True
        assert refused
        assert (path / "diary").read_text() == "mine"


def small_chunks(function: Callable[..., Any], x: Any, rows: int, axis: int = 0) -> Any:
    return in_chunks(function, x, rows=4, axis=axis)


@law("posteriors")
def chunked_is_unchunked(row: Row) -> None:
    """Six rows, four at a time; and on a platform that is free to order its sums, to round-off."""
    whole = numbers(row.subject.new)
    try:
        for module in (linearised, lazy):
            module.in_chunks = small_chunks
        padding.MOST, most = 4, padding.MOST
        chunked = numbers(row.subject.predict(NEW))
    finally:
        padding.MOST = most
        for module in (linearised, lazy):
            module.in_chunks = in_chunks
    for one, other in zip(whole, chunked, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@law("posteriors")
def a_row_is_alone(row: Row) -> None:
    """What is predicted for a row does not depend on the rows beside it."""
    alone = row.subject.predict(NEW[2:3])
    for one, other in zip(numbers(row.subject.new), numbers(alone), strict=True):
        np.testing.assert_allclose(one[2], other[0], rtol=1e-9, atol=1e-12)


@law("posteriors")
def uncertainty_is_a_sum_of_two(row: Row) -> None:
    """Regression: the variance. Labels: the entropy of the averaged probabilities."""
    pred = row.subject.new
    np.testing.assert_allclose(pred.total, pred.aleatoric + pred.epistemic, rtol=1e-12)
    assert np.all(pred.epistemic >= 0)
    assert np.all(pred.aleatoric >= 0)
    np.testing.assert_allclose(pred.std**2, pred.variance, rtol=1e-12)
    if "regression" in row.traits:
        np.testing.assert_allclose(pred.total, pred.variance, rtol=1e-9)
    else:
        p = np.asarray(pred.probabilities)
        np.testing.assert_allclose(pred.total, -np.sum(p * np.log(p), axis=-1), rtol=1e-9)


@law("posteriors")
def spread_is_the_beliefs(row: Row) -> None:
    """A point has no epistemic uncertainty; any other belief has some everywhere."""
    if "point" in row.traits:
        np.testing.assert_allclose(row.subject.new.epistemic, 0.0, atol=1e-14)
    else:
        assert np.all(row.subject.new.epistemic > 1e-8)


@law("posteriors", when="labels")
def probabilities_are_probabilities(row: Row) -> None:
    p = np.asarray(row.subject.new.probabilities)
    assert p.shape == (len(NEW), 2 if "binary" in row.traits else 3)
    assert np.all(p >= 0)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=1e-9)
    for k in range(p.shape[1]):
        labels = jnp.full(len(NEW), k)
        np.testing.assert_allclose(np.exp(row.subject.new.log_prob(labels)), p[:, k], rtol=1e-6)


@law("posteriors", when="labels")
def prediction_set_is_the_smallest(row: Row) -> None:
    p = np.asarray(row.subject.new.probabilities)
    for level in (0.3, 0.8, 0.99):
        chosen = np.asarray(row.subject.new.prediction_set(level))
        for q, kept in zip(p, chosen, strict=True):
            assert q[kept].sum() >= level - 1e-9
            assert q[kept].sum() - q[kept].min() < level, "without its least class it would not do"
            assert kept.all() or q[kept].min() >= q[~kept].max()


@law("posteriors", when="regression")
def interval_is_of_its_distribution(row: Row) -> None:
    """It holds the median, grows with the level, and its ends are where the distribution function says."""
    pred = row.subject.new
    inner = None
    for level in (0.5, 0.9, 0.99):
        lower, upper = pred.interval(level)
        np.testing.assert_allclose(pred.cdf(lower), (1 - level) / 2, atol=1e-6)
        np.testing.assert_allclose(pred.cdf(upper), (1 + level) / 2, atol=1e-6)
        np.testing.assert_allclose(pred.quantile((1 + level) / 2), upper)
        assert np.all((lower < pred.mean) & (pred.mean < upper))
        if inner is not None:
            assert np.all((lower < inner[0]) & (inner[1] < upper))
        inner = (lower, upper)


@law("posteriors")
def questions_for_the_other_task_are_refused(row: Row) -> None:
    pred = row.subject.new
    wrong = [lambda: pred.prediction_set(0.9), lambda: pred.probabilities]
    if "labels" in row.traits:
        wrong = [lambda: pred.interval(0.9), lambda: pred.cdf(jnp.zeros(len(NEW)))]
    for question in wrong:
        answered = True
        try:
            question()
        except TypeError:
            answered = False
        assert not answered


@law("posteriors")
def log_prob_is_the_averaged_density(row: Row) -> None:
    """Of the mixture by hand where there is one, of a normal distribution otherwise; an ensemble's is its members'."""
    pred = row.subject.new
    y = jnp.array([0, 1, 1, 0, 1, 0]) if "labels" in row.traits else jnp.linspace(-1.0, 1.0, 6)
    parts = getattr(pred, "parts", (pred,))
    expected = logsumexp(jnp.stack([density_by_hand(part, y) for part in parts]), axis=0) - np.log(len(parts))
    np.testing.assert_allclose(pred.log_prob(y), expected, rtol=1e-9)


def density_by_hand(pred: Any, y: Any) -> Any:
    if hasattr(pred, "f"):
        each = [
            pred.likelihood.log_prob(jax.tree.map(lambda leaf: leaf[s], pred.dispersion), pred.f[s], y)  # noqa: B023  (used at once)
            for s in range(pred.f.shape[0])
        ]
        weights = np.asarray(pred.log_weights)[:, None]
        np.testing.assert_allclose(np.exp(weights).sum(), 1.0, rtol=1e-6)
        return logsumexp(jnp.stack(each) + weights, axis=0)
    if hasattr(pred, "freedom"):
        return jax.scipy.stats.t.logpdf(y, pred.freedom, pred.centre, pred.width)
    return jax.scipy.stats.norm.logpdf(y, pred.mean, pred.std)


@law("posteriors")
def draws_have_the_moments(row: Row) -> None:
    """Of 4,000 draws, mean and spread of six rows within five standard errors: a false alarm once in 10⁵ runs."""
    pred, n = row.subject.new, 4000
    draws = np.asarray(pred.sample(jax.random.key(3), n))
    if "classes" in row.traits:
        draws = np.eye(3)[draws]
    assert draws.shape == (n, *pred.mean.shape)
    error = np.asarray(pred.std) / np.sqrt(n)
    assert np.all(np.abs(draws.mean(axis=0) - pred.mean) < 5 * error + 1e-3)
    if "regression" in row.traits:
        kurtosis = np.mean((draws - draws.mean(axis=0)) ** 4, axis=0) / np.var(draws, axis=0) ** 2
        ratio = np.var(draws, axis=0) / np.asarray(pred.variance)
        assert np.all(np.abs(ratio - 1) < 5 * np.sqrt((kurtosis - 1) / n))


@cache
def scaled_pair(subject: Fitted) -> tuple[Any, Any]:
    """Standardised models, fitted to y and to 10 y + 3."""
    pair = []
    for y in (Y, 10 * Y + 3):
        pair.append(subject.predict(NEW, subject.fit(subject.model.standardised(X, y), (X, y))))
    return tuple(pair)


@law("posteriors", when="scales")
def scaled_targets_scale_the_answers(row: Row) -> None:
    one, ten = scaled_pair(row.subject)
    np.testing.assert_allclose(ten.mean, 10 * one.mean + 3, rtol=1e-8)
    np.testing.assert_allclose(ten.variance, 100 * one.variance, rtol=1e-8)
    np.testing.assert_allclose(ten.epistemic, 100 * one.epistemic, rtol=1e-6)
    for end, other in zip(one.interval(0.9), ten.interval(0.9), strict=True):
        np.testing.assert_allclose(other, 10 * end + 3, rtol=1e-6)
    y = jnp.linspace(-2.0, 2.0, len(NEW))
    np.testing.assert_allclose(ten.log_prob(10 * y + 3), one.log_prob(y) - np.log(10), rtol=1e-8)


@law("posteriors", when="widens")
def epistemic_falls_with_data_and_rises_off_it(row: Row) -> None:
    """Ten times the data is about a tenth of it; the last new row lies five standard deviations out; noise stays."""
    few = row.subject.new
    x = np.tile(X, (10, 1))
    many = row.subject.predict(NEW, row.subject.fit(row.subject.model, (x, np.tile(Y, 10))))
    ratio = np.asarray(few.epistemic / many.epistemic)
    assert np.all((ratio > 5) & (ratio < 11))
    assert np.all(few.epistemic[-1] > 3 * few.epistemic[:-1])
    np.testing.assert_allclose(few.aleatoric, 0.16, rtol=1e-9)
    np.testing.assert_allclose(many.aleatoric, 0.16, rtol=1e-9)


def permuted(weights: Any) -> Any:
    order = jnp.array([2, 0, 3, 1])
    first, second = weights["layers"][0], weights["layers"][1]
    hidden = {"bias": first["bias"][order], "kernel": first["kernel"][:, order]}
    return {"layers": {0: hidden, 1: {"bias": second["bias"], "kernel": second["kernel"][order]}}}


@law("posteriors", when="hidden")
def hidden_units_have_no_order(row: Row) -> None:
    """At the mean of the belief: the weights of the hidden units in another order predict the same."""
    posterior = row.subject.posterior
    one, other = (
        row.subject.predict(NEW, posterior.with_rule(sampled.Sampled()).__class__(**fields(posterior, change)))
        for change in (lambda w: w, permuted)
    )
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)


def fields(posterior: Any, change: Callable[[Any], Any]) -> dict[str, Any]:
    mean = posterior.mean
    belief = Point({**mean, "network": change(mean["network"])})
    parts = {name: getattr(posterior, name) for name in ("model", "network_state", "key")}
    return {**parts, "belief": belief, "rule": sampled.Sampled()}


class Changed(Fitted):
    """A fit whose predictive or belief is changed."""

    def __init__(
        self,
        of: Fitted,
        answer: Callable[[Any, Any], Any] | None = None,
        belief: Callable[[Any], Any] | None = None,
        model: Callable[[Any], Any] | None = None,
        save: Any = None,
        load: Any = None,
    ) -> None:
        super().__init__(of.model, of.data, of.algorithm, **of.options)
        self._answer, self._belief, self._model = answer, belief, model
        self._save, self._load = save, load

    def fit(self, model: Any, data: Any) -> Any:
        posterior = super().fit(self._model(model) if self._model else model, data)
        return replace(posterior, belief=self._belief(posterior.belief)) if self._belief else posterior

    def predict(self, x: Any, posterior: Any = None) -> Any:
        pred = super().predict(x, posterior)
        return self._answer(pred, x) if self._answer else pred

    def save(self, path: Path) -> Any:
        return self._save(self.posterior, path) if self._save else super().save(path)

    def load(self, path: Path) -> Any:
        return self._load(super().load(path)) if self._load else super().load(path)


class Answer:
    """A predictive with some answers exchanged: values, or methods of the predictive."""

    def __init__(self, of: Any, **answers: Any) -> None:
        self._of, self._answers = of, answers

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__["_answers"]
        return answers[name](self.__dict__["_of"]) if name in answers else getattr(self.__dict__["_of"], name)


def of(name: str) -> Row:
    return Row("posteriors", name, FITS[name][1], made[name])


made = {row.name: row.traits for row in ROWS if row.kind == "posteriors"}


def twin_of(name: str, fault: str, laws: str, **changes: Any) -> None:
    twin(of(name), fault, laws, Changed(FITS[name][1], **changes))


def answers(**answers: Any) -> dict[str, Any]:
    return {"answer": lambda pred, _: Answer(pred, **answers)}


def overwriting(posterior: Any, path: Path) -> Any:
    import shutil

    if path.exists():
        shutil.rmtree(path)
    return posterior.save(path)


def other_key(posterior: Any) -> Any:
    return replace(posterior, key=jax.random.key(99))


def single(posterior: Any) -> Any:
    narrow = lambda leaf: leaf.astype(jnp.float32).astype(leaf.dtype) if leaf.dtype == jnp.float64 else leaf
    return replace(posterior, belief=jax.tree.map(narrow, posterior.belief))


def by_neighbours(pred: Any, x: Any) -> Any:
    return Answer(pred, mean=lambda p: p.mean + 1e-6 * len(x))


def by_batch(function: Callable[..., Any]) -> dict[str, Any]:
    return {"answer": lambda pred, x: Answer(pred, mean=lambda p: p.mean - function(x) * 1e-3)}


def spread(factor: float) -> Callable[[Any], Any]:
    def change(belief: Any) -> Any:
        q = belief.factors["network"]
        return Product({**belief.factors, "network": Gaussian(q.mean, q.precision.scale(factor))})

    return change


def forgetful(model: Any) -> Any:
    """The target's scale left out of the Jacobian: the likelihood standardised without its units."""
    scale = getattr(model.likelihood, "scale", None)
    return (
        model
        if scale is None or not hasattr(model.likelihood, "base")
        else replace(model, likelihood=model.likelihood.base)
    )


twin_of("ivon", "key not saved", "saved_and_loaded_predicts_the_same_bits", load=other_key)
twin_of("conjugate", "saved in float32", "saved_and_loaded_predicts_the_same_bits", load=single)
twin_of("sgd", "overwrites", "save_refuses_what_exists", save=overwriting)
twin_of("adam", "sees its neighbours", "a_row_is_alone", answer=by_neighbours)


@record
class AlwaysTraining(BatchNorm):
    def apply(self, params: Any, state: Any, x: Any, train: bool, mask: Any) -> Any:
        return super().apply(params, state, x, True, mask)


twin(
    of("deep_ensemble of batch statistics"),
    "statistics of the rows to predict",
    "a_row_is_alone chunked_is_unchunked",
    normed(AlwaysTraining()),
)


class PerChunk(Fitted):
    """Draws afresh for every call of the network, so for every chunk."""

    def predict(self, x: Any, posterior: Any = None) -> Any:
        posterior = posterior or self.posterior
        parts = 1 if lazy.in_chunks is in_chunks else 2
        return posterior.predict(x, samples=PERSON, key=jax.random.fold_in(jax.random.key(1), parts))


twin(
    of("ivon"),
    "new draws for every chunk",
    "chunked_is_unchunked",
    PerChunk(*[getattr(FITS["ivon"][1], n) for n in ("model", "data", "algorithm")], steps=100),
)
two = "uncertainty_is_a_sum_of_two"
twin_of(
    "conjugate",
    "standard deviations added",
    two,
    **answers(aleatoric=lambda p: p.aleatoric**0.5, epistemic=lambda p: p.epistemic**0.5),
)
twin_of("von", "total without the noise", two, **answers(total=lambda p: p.epistemic))
twin_of(
    "laplace",
    "entropy in bits",
    two,
    **answers(
        total=lambda p: p.total / jnp.log(2),
        aleatoric=lambda p: p.aleatoric / jnp.log(2),
        epistemic=lambda p: p.epistemic / jnp.log(2),
    ),
)
twin_of(
    "nuts", "sign of the epistemic part", f"{two} spread_is_the_beliefs", **answers(epistemic=lambda p: -p.epistemic)
)
twin_of("adam", "a point with spread", "spread_is_the_beliefs", **answers(epistemic=lambda p: p.epistemic + 1e-3))
twin_of("conjugate", "a belief without spread", "spread_is_the_beliefs", belief=spread(1e12))
twin_of(
    "laplace of binary",
    "probability of zero",
    "probabilities_are_probabilities",
    **answers(probabilities=lambda p: p.probabilities[:, ::-1]),
)
twin_of(
    "ivon", "unnormalised", "probabilities_are_probabilities", **answers(probabilities=lambda p: p.probabilities * 1.01)
)
smallest = "prediction_set_is_the_smallest"
twin_of(
    "adam", "one class too few", smallest, **answers(prediction_set=lambda p: lambda level: p.probabilities > 1 - level)
)
twin_of("laplace", "all classes", smallest, **answers(prediction_set=lambda p: lambda level: p.probabilities > -1))
interval = "interval_is_of_its_distribution"
twin_of(
    "conjugate",
    "variance for standard deviation",
    interval,
    **answers(interval=lambda p: lambda level: (p.mean - 2 * p.variance, p.mean + 2 * p.variance)),
)
twin_of(
    "nuts",
    "one tail for two",
    interval,
    **answers(interval=lambda p: lambda level: (p.quantile(1 - level), p.quantile(level))),
)
refused = "questions_for_the_other_task_are_refused"
twin_of("von", "prediction set of numbers", refused, **answers(prediction_set=lambda p: lambda level: p.mean > 0))
twin_of("sgd", "interval of labels", refused, **answers(interval=lambda p: lambda level: (p.mean, p.mean)))
density = "log_prob_is_the_averaged_density"
twin_of(
    "nuts",
    "logs averaged",
    density,
    **answers(
        log_prob=lambda p: (
            lambda y: jnp.mean(jax.vmap(p.likelihood.log_prob, in_axes=(0, 0, None))(p.dispersion, p.f, y), axis=0)
        )
    ),
)
twin_of("ivon", "summed for averaged", density, **answers(log_prob=lambda p: lambda y: p.log_prob(y) + jnp.log(PERSON)))
twin_of(
    "conjugate",
    "density without the belief",
    density,
    **answers(log_prob=lambda p: lambda y: jax.scipy.stats.norm.logpdf(y, p.mean, p.aleatoric**0.5)),
)
moments = "draws_have_the_moments"
twin_of(
    "conjugate",
    "draws of the mean",
    moments,
    **answers(sample=lambda p: lambda key, n: p.mean[None] + 0 * p.sample(key, n)),
)
twin_of(
    "nuts",
    "draws with variance for scale",
    moments,
    **answers(sample=lambda p: lambda key, n: p.mean[None] + p.std[None] * (p.sample(key, n) - p.mean[None])),
)
twin_of("sgd", "labels exchanged", moments, **answers(sample=lambda p: lambda key, n: 1 - p.sample(key, n)))
jacobian = "scaled_targets_scale_the_answers"
twin_of(
    "conjugate",
    "Jacobian dropped",
    jacobian,
    answer=lambda p, _: Answer(p, log_prob=lambda q: lambda y: q.log_prob(y) + jnp.log(q.std)),
)
twin_of("von", "units forgotten", jacobian, model=forgetful)
widens = "epistemic_falls_with_data_and_rises_off_it"
twin_of("conjugate", "N forgotten", widens, **answers(epistemic=lambda p: p.epistemic / p.epistemic))
twin_of("von", "standard deviation for variance", widens, **answers(epistemic=lambda p: p.epistemic**0.5))


class Ordered(Fitted):
    """A network that tells its hidden units apart."""

    def predict(self, x: Any, posterior: Any = None) -> Any:
        pred, mean = super().predict(x, posterior), (posterior or self.posterior).mean
        return Answer(pred, mean=lambda p: p.mean + mean["network"]["layers"][0]["bias"][0])


twin(
    of("adam"),
    "hidden units in order",
    "hidden_units_have_no_order",
    Ordered(*[getattr(FITS["adam"][1], n) for n in ("model", "data", "algorithm")], steps=50),
)
