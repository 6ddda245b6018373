"""What the base classes of likelihoods and priors derive, beside formulas that are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import lamu
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from lamu.likelihoods.scaled import Scaled
from lamu.predictives import MixturePredictive
from lamu.priors import Normal, Prior
from lamu.record import record
from lamu.supports import Classes, Counts, Real, TwoClasses

F = jnp.asarray([[-1.0], [0.3], [2.0]])
TWO = jnp.asarray([[-1.0, 0.5], [0.3, 0.0], [2.0, -1.0]])
ERROR = 5 / np.sqrt(1024)  # five standard errors of an average over the draws, in standard deviations


@record
class Poisson(Likelihood):
    """Counts, by a distribution."""

    support = Counts()
    log_concave = True

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.Poisson(jnp.exp(f[:, 0]))


@record
class Noise(Likelihood):
    """Normal noise of deviation two, by a distribution."""

    support = Real()

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.Normal(f[:, 0] if f.shape[1] == 1 else f, 2.0)


@record
class Bare(Likelihood):
    """The same by a density and draws alone."""

    support = Real()

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        return Gaussian(2.0).log_prob({}, f, y)

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return Gaussian(2.0).sample(key, {}, f)


@record
class Coin(Likelihood):
    """A coin, by a distribution."""

    support = TwoClasses()
    log_concave = True

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.BernoulliLogits(f[:, 0])


@record
class Die(Likelihood):
    """Classes, by a distribution."""

    support = Classes(2)
    log_concave = True

    def outputs(self, y: Any) -> int:
        return 2

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.CategoricalLogits(f)


@record
class BareDie(Likelihood):
    """Classes, by a density and draws alone."""

    support = Classes(2)

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        return Categorical(2).log_prob({}, f, y)

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return Categorical(2).sample(key, {}, f)


@record
class BarePoisson(Likelihood):
    """Counts, by a density and draws alone."""

    support = Counts()

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        return lamu.likelihoods.Poisson().log_prob({}, f, y)

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return lamu.likelihoods.Poisson().sample(key, {}, f)


@record
class Kinked(Likelihood):
    """Laplace noise of scale two."""

    support = Real()

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.Laplace(f[:, 0], 2.0)


@record
class OwnLikelihood(Bare):
    """The density and draws of another one, not said to be log-concave."""

    of: Any

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        return self.of.log_prob({}, f, y)

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return self.of.sample(key, {}, f)


def test_the_information_of_draws_is_of_the_form_that_varies_less() -> None:
    """Second derivatives of a normal density are constant, and those of Laplace's are zero but for its kink."""
    np.testing.assert_allclose(OwnLikelihood(Gaussian(2.0)).information({}, F), np.full((3, 1, 1), 0.25), rtol=1e-6)
    two = OwnLikelihood(Gaussian(2.0)).information({}, TWO)
    np.testing.assert_allclose(two, np.broadcast_to(np.eye(2) / 4, (3, 2, 2)), rtol=1e-6, atol=1e-9)
    kinked = OwnLikelihood(Kinked()).information({}, F)
    np.testing.assert_allclose(kinked, np.full((3, 1, 1), 0.25), rtol=1e-6)


@pytest.mark.parametrize(
    ("own", "known"),
    [
        (Bare(), Gaussian(2.0)),
        (Scaled(Bare(), 1.0, 3.0), Scaled(Gaussian(2.0), 1.0, 3.0)),
        (BarePoisson(), lamu.likelihoods.Poisson()),
    ],
)
def test_quantiles_without_a_formula_are_those_of_one_table_of_draws(own: Any, known: Any) -> None:
    """Of 4,096 draws of a mixture of two outputs of weights .2 and .8: within five standard errors."""
    f, log_weights = jnp.stack([F, F + 1]), jnp.log(jnp.asarray([0.2, 0.8]))
    mine, true = (MixturePredictive(each, {}, f, log_weights) for each in (own, known))
    for probability in (0.05, 0.5, 0.95):
        ends = mine.quantile(probability)
        error = 5 * np.sqrt(probability * (1 - probability) / 4096)
        below = true.cdf(ends - 1.0) if own.support.discrete else true.cdf(ends)
        assert np.all(below <= probability + error)
        assert np.all(true.cdf(ends) >= probability - error)
        if not own.support.discrete:
            np.testing.assert_allclose(mine.cdf(ends), np.ceil(probability * 4096) / 4096, rtol=1e-6)
    spread = np.asarray(true.std)
    np.testing.assert_allclose(mine.mean / spread, true.mean / spread, atol=5 / 64)
    np.testing.assert_allclose(mine.std / spread, 1.0, atol=0.1)
    np.testing.assert_allclose(mine.cdf(jnp.stack([true.mean, true.mean]))[1], mine.cdf(true.mean))
    lower, upper = mine.interval(0.9)
    covered = true.cdf(upper) - true.cdf(lower - 1.0 if own.support.discrete else lower)
    assert np.all(covered > 0.88)
    assert np.all(covered < 0.92) or own.support.discrete


@pytest.mark.parametrize(
    ("own", "known", "f", "y"),
    [
        (Noise(), Gaussian(2.0), F, [0.0, 1.0, -3.0]),
        (Noise(), Gaussian(2.0), TWO, [[0.0, 1.0], [2.0, 2.0], [-1.0, 0.0]]),
        (Coin(), Bernoulli(), F, [0, 1, 1]),
        (Die(), Categorical(2), TWO, [0, 1, 1]),
    ],
)
def test_what_follows_from_a_distribution_is_the_built_ins(own: Any, known: Any, f: Any, y: Any) -> None:
    y = jnp.asarray(y)
    np.testing.assert_allclose(own.log_prob({}, f, y), known.log_prob({}, f, y), rtol=1e-6)
    for name in ("mean", "variance", "entropy"):
        np.testing.assert_allclose(getattr(own, name)({}, f), getattr(known, name)({}, f), rtol=1e-6, err_msg=name)
    # Of a logit the Hessian does not depend on y; of the noise the square of the score is an average over draws.
    rtol = 1e-6 if own.log_concave else ERROR * np.sqrt(2)
    np.testing.assert_allclose(own.information({}, f), known.information({}, f), rtol=rtol, atol=rtol / 4)
    assert own.outputs(y) == known.outputs(y)
    assert own.sample(jax.random.key(0), {}, f).shape == known.sample(jax.random.key(0), {}, f).shape
    if own.task == "regression":
        np.testing.assert_allclose(own.cdf({}, f, y), known.cdf({}, f, y), rtol=1e-6)
    else:
        with pytest.raises(TypeError, match="has no cdf"):
            own.cdf({}, f, y)


@pytest.mark.parametrize("f", [F, TWO])
def test_what_follows_from_a_density_and_draws(f: Any) -> None:
    y = jnp.zeros(3) if f.shape[1] == 1 else jnp.zeros((3, 2))
    np.testing.assert_allclose(Bare().mean({}, f), Gaussian(2.0).mean({}, f), atol=2 * ERROR)
    np.testing.assert_allclose(Bare().variance({}, f), Gaussian(2.0).variance({}, f), rtol=ERROR * np.sqrt(2))
    np.testing.assert_allclose(Bare().entropy({}, f), Gaussian(2.0).entropy({}, f), atol=ERROR)
    np.testing.assert_allclose(Bare().information({}, f), Gaussian(2.0).information({}, f), atol=ERROR / 2)
    np.testing.assert_allclose(Bare().cdf({}, f, y), Gaussian(2.0).cdf({}, f, y), atol=ERROR / 2)
    np.testing.assert_allclose(BareDie().mean({}, TWO), Categorical(2).mean({}, TWO), atol=ERROR / 2)
    np.testing.assert_allclose(BareDie().entropy({}, TWO), Categorical(2).entropy({}, TWO), atol=ERROR)


@pytest.mark.parametrize("own", [Poisson(), Noise(), Bare()])
def test_what_is_said_of_a_row_depends_on_no_other_row(own: Any) -> None:
    for name in ("mean", "variance", "entropy", "information"):
        whole, alone = getattr(own, name)({}, F), getattr(own, name)({}, F[1:2])
        np.testing.assert_allclose(whole[1:2], alone, rtol=1e-10, err_msg=name)
        np.testing.assert_array_equal(alone, getattr(own, name)({}, F[1:2]))


def test_poisson_is_scipys() -> None:
    rate, y = np.exp(np.asarray(F[:, 0])), np.array([0, 2, 9])
    reference = stats.poisson(rate)
    np.testing.assert_allclose(Poisson().log_prob({}, F, jnp.asarray(y)), reference.logpmf(y), rtol=1e-6)
    np.testing.assert_allclose(Poisson().cdf({}, F, jnp.asarray(y)), reference.cdf(y), rtol=1e-6)
    np.testing.assert_allclose(Poisson().information({}, F)[:, 0, 0], rate, rtol=1e-6)
    np.testing.assert_allclose(Poisson().entropy({}, F), reference.entropy(), atol=ERROR)


def test_targets_outside_the_support_are_refused() -> None:
    x = np.zeros((4, 1))
    model = lamu.Model(lamu.networks.Linear(), Poisson())
    message = r"the target in row 3 is -2, and Poisson takes whole numbers from 0"
    with pytest.raises(ValueError, match=message):
        lamu.fit(model, (x, np.array([0, 1, 2, -2])), lamu.algorithms.adam(), steps=1)
    with pytest.raises(ValueError, match=r"the target in row 0 is 0.5"):
        Poisson().check(np.array([0.5, 1.0]))
    with pytest.raises(ValueError, match="the target in row 1 is nan"):
        Noise().check(np.array([0.5, np.nan]))
    with pytest.raises(ValueError, match=r"the target \['a'\] is not a number"):
        Noise().check(np.array(["a", "b"]))
    Poisson().check(np.array([0.0, 3.0]))
    Bare().check(np.array([0.5, -1.0]))
    with pytest.raises(ValueError, match="the target in row 0 is inf"):
        Bare().check(np.array([np.inf, -1.0]))


def test_counts_are_not_standardised() -> None:
    x, y = np.arange(6.0)[:, None], np.arange(6)
    model = lamu.Model(lamu.networks.Linear(), Poisson()).standardised(x, y)
    assert model.likelihood == Poisson()
    assert isinstance(model.network, lamu.networks.Standardised)


@record
class Nothing(Likelihood):
    """A likelihood that says nothing."""

    support = Real()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(NotImplementedError, match="Nothing defines neither `distribution` nor `log_prob`"):
        Nothing().log_prob({}, F, jnp.zeros(3))
    with pytest.raises(NotImplementedError, match="Nothing defines neither `distribution` nor `sample`"):
        Nothing().mean({}, F)
    assert BareDie().outputs(jnp.zeros(3)) == 2


@record
class Cauchy(Prior):
    """A prior of one's own by its density alone."""

    def log_prob(self, params: Any) -> Any:
        leaves = [jnp.sum(dist.Cauchy(0.0, 1.0).log_prob(leaf)) for leaf in jax.tree.leaves(params)]
        return jnp.sum(jnp.stack(leaves))


def test_a_prior_of_ones_own_defines_its_density_alone() -> None:
    x, y = np.linspace(-1, 1, 8)[:, None], np.linspace(-1, 1, 8)
    model = lamu.Model(lamu.networks.Linear(), Gaussian(1.0), Cauchy())
    posterior = lamu.fit(model, (x, y), lamu.algorithms.adam(0.05), epochs=2).posterior
    assert np.isfinite(posterior.predict(x).mean).all()
    with pytest.raises(NotImplementedError, match="Cauchy cannot be simulated from; define its `sample"):
        Cauchy().sample(jax.random.key(0), {})
    with pytest.raises(TypeError, match="log_prob"):
        type("Empty", (Prior,), {})()
    assert isinstance(Normal(), Prior)


@record
class TwoHeads(Likelihood):
    """Two numbers a row, side by side in outputs and targets."""

    support = Real()

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        return dist.Laplace(f, 0.3).to_event(1).log_prob(y)

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return dist.Laplace(f, 0.3).to_event(1).sample(key)

    def outputs(self, y: Any = None) -> int:
        return 2


def test_several_values_a_row_are_told_what_to_do() -> None:
    """Targets by other names than value were printed whole, and laws of one value were called broken."""
    model = lamu.Model(lamu.networks.Linear(), TwoHeads())
    y = {"label": np.zeros(8), "number": np.zeros(8)}
    with pytest.raises(ValueError, match=r"mapping of 'label', 'number' without 'value'.*side by side$"):
        lamu.fit(model, (np.ones((8, 1)), y), lamu.algorithms.adam(), epochs=1)
    with pytest.raises(ValueError, match="TwoHeads draws several values a row"):
        lamu.testing.check_likelihood(TwoHeads())
