"""The laws that users import: built-in parts and the examples obey them, and each likely mistake breaks its law."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm

import lamu
from lamu import graphs, tree
from lamu.families import Bernoulli as BernoulliBelief
from lamu.families import Gaussian
from lamu.families.exponential import Formulas, Positive, TextbookFamily, total
from lamu.graphs.expressions import Expression
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Chance, Observed
from lamu.likelihoods import Bernoulli, Categorical, HeteroscedasticGaussian, Likelihood, Scaled
from lamu.mcmc.chains import metropolis
from lamu.mcmc.metropolis import Langevin, RandomWalk
from lamu.operators import Diagonal
from lamu.priors import LayerwiseNormal, LearnedNormal, Normal, Prior, ScaleMixture
from lamu.record import record, static
from lamu.supports import Counts, PositiveReal, Real
from lamu.testing import (
    ALGORITHM_LAWS,
    FACTOR_LAWS,
    FAMILY_LAWS,
    KERNEL_LAWS,
    LIKELIHOOD_LAWS,
    PRIOR_LAWS,
    LikelihoodCase,
    check_algorithm,
    check_calibration,
    check_factor,
    check_family,
    check_kernel,
    check_likelihood,
    check_prior,
)
from tests.for_each import for_each

NOISE = np.random.default_rng(0)
LAWS = {law.__name__: law for law in LIKELIHOOD_LAWS}


@record
class Waits(Likelihood):
    """Waiting times of rate e^f, by a distribution."""

    support = PositiveReal()
    log_concave = True

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.Exponential(jnp.exp(f[:, 0]))


@record
class Visits(Likelihood):
    """Counts of rate e^f, by a distribution."""

    support = Counts()
    log_concave = True

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.Poisson(jnp.exp(f[:, 0]))


@record
class Bare(Likelihood):
    """Laplace noise by a density and draws, its scale learned; a slip, or none."""

    slip: str = static(default="")

    support = Real()

    def init(self, y: Any) -> Any:
        return {"log_scale": jnp.zeros(())}

    def log_prior(self, params: Any) -> Any:
        return norm.logpdf(params["log_scale"], 0.0, 3.0)

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        scale = jnp.exp(params["log_scale"])
        away = jnp.abs(y.astype(f.dtype) - f[:, 0])
        if self.slip == "all rows":
            away = away - jnp.mean(away) + jnp.abs(f[:, 0])
        return -away / scale - jnp.log(scale) - (0.0 if self.slip == "normaliser" else jnp.log(2.0).astype(f.dtype))

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        shape = (1,) if self.slip == "one noise" else f.shape[:1]
        noise = jnp.broadcast_to(jax.random.laplace(key, shape, f.dtype), f.shape[:1])
        log_scale = params["log_scale"] * (-1.0 if self.slip == "sign of the dispersion" else 1.0)
        scale = jnp.exp(log_scale) * (2.0 if self.slip == "scale of draws" else 1.0)
        return f[:, 0] + scale.astype(f.dtype) * noise

    def variance(self, params: Any, f: Any) -> Any:
        scale = jnp.exp(params["log_scale"]).astype(f.dtype)
        return (
            jnp.full(f.shape[:1], 2.0, f.dtype)
            * (scale if self.slip == "deviation" else scale**2)
            / (jnp.sqrt(2.0).astype(f.dtype) if self.slip == "deviation" else 1.0)
        )

    def cdf(self, params: Any, f: Any, y: Any) -> Any:
        below = dist.Laplace(f[:, 0], jnp.exp(params["log_scale"]).astype(f.dtype)).cdf(y)
        return 1 - below if self.slip == "survival" else below

    def entropy(self, params: Any, f: Any) -> Any:
        value = 1 + jnp.log(2.0).astype(f.dtype) + params["log_scale"].astype(f.dtype)
        return jnp.full(f.shape[:1], -value if self.slip == "sign of entropy" else value, f.dtype)

    def information(self, params: Any, f: Any) -> Any:
        value = jnp.exp(-2 * params["log_scale"]).astype(f.dtype)
        return jnp.full((*f.shape, 1), value * (0.5 if self.slip == "half the information" else 1.0))


@pytest.mark.parametrize(
    "likelihood",
    [
        *(  # which have laws
            pytest.param(likelihood, marks=pytest.mark.stress)
            for likelihood in (
                Bernoulli(),
                Categorical(3),
                lamu.likelihoods.Gaussian(0.7),
                lamu.likelihoods.Gaussian(),
                HeteroscedasticGaussian(),
            )
        ),
        Scaled(lamu.likelihoods.Gaussian(0.7), shift=3.0, scale=0.2),
        Waits(),
        Visits(),
        Bare(),
    ],
    ids=repr,
)
def test_sound_likelihoods_pass(likelihood: Likelihood) -> None:
    check_likelihood(likelihood)


@pytest.mark.parametrize(
    ("slip", "law"),
    [
        ("normaliser", "density_sums_to_one"),
        ("all rows", "a_row_depends_on_itself_alone"),
        ("one noise", "draws_have_the_moments"),
        ("scale of draws", "draws_have_the_moments"),
        ("deviation", "mean_and_variance_are_moments"),
        ("survival", "cdf_is_the_sum_of_the_density"),
        ("sign of entropy", "entropy_is_the_expected_surprise"),
        ("half the information", "information_is_the_variance_of_the_score"),
    ],
)
def test_a_slip_in_a_likelihood_breaks_its_law(slip: str, law: str) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](LikelihoodCase.of(Bare(slip)))


def test_a_slip_that_the_dispersions_of_init_hide_is_found() -> None:
    """At a log scale of zero its sign makes no difference."""
    with pytest.raises(AssertionError, match=r"(?s)dispersions of init plus 0.5 breaks.*draws_have"):
        check_likelihood(Bare("sign of the dispersion"))


@record
class Heavy(Likelihood):
    """Cauchy noise, which is not log-concave."""

    support, log_concave = Real(), True

    def distribution(self, params: Any, f: Any) -> Any:
        return dist.Cauchy(f[:, 0], 1.0)


@record
class Unchecked(Visits):
    """Counts that are not looked at."""

    def check(self, y: Any) -> None:
        pass


@record
class Overflowing(Visits):
    """Counts whose rate overflows."""

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        rate = jnp.exp(4 * f[:, 0]) ** 0.25
        return y.astype(f.dtype) * jnp.log(rate) - rate - jax.lax.lgamma(y.astype(f.dtype) + 1)


@record
class Promoting(Visits):
    """Counts whose density leaves float32."""

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        return super().log_prob(params, f, y).astype(jnp.float64)


@record
class Stray(Bare):
    """A dispersion whose information has another shape."""

    def dispersion_information(self, params: Any) -> Any:
        return {"log_scale": jnp.ones(2)}


@for_each(
    "likelihood, law",
    [
        (Unchecked(), "strange_targets_are_refused"),
        (Heavy(), "log_density_is_concave_where_claimed"),
        (Overflowing(), "far_outputs_stay_finite"),
        (Promoting(), "shapes_and_precisions_hold"),
        (Stray(), "dispersions_have_a_prior_and_a_slope"),
    ],
)
def test_other_mistakes_of_a_likelihood_break_their_laws(likelihood: Likelihood, law: str) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](LikelihoodCase.of(likelihood))


CALLS: list[None] = []


@record
class Counted(Bare):
    """Counts the calls of its distribution function."""

    def cdf(self, params: Any, f: Any, y: Any) -> Any:
        CALLS.append(None)
        return super().cdf(params, f, y)


def test_the_distribution_function_is_one_program() -> None:
    """It was compiled 41 times, and five checks ended a process: "LLVM ERROR: Unable to allocate section memory!"."""
    LAWS["cdf_is_the_sum_of_the_density"](LikelihoodCase.of(Counted()))
    assert 1 <= len(CALLS) <= 2


def test_every_law_of_likelihoods_can_be_run_alone() -> None:
    case = LikelihoodCase(Bernoulli(), jnp.zeros((2, 1)), {})
    for law in LIKELIHOOD_LAWS:
        law(case)


@record
class Tails(Prior):
    """Cauchy weights; a slip, or none."""

    slip: str = static(default="")

    def log_prob(self, params: Any) -> Any:
        leaves = [dist.Cauchy(0.0, 1.0).log_prob(leaf) for leaf in jax.tree.leaves(params)]
        if self.slip == "no sum":
            return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])
        return sum(jnp.sum(leaf).astype(jnp.result_type(leaf)) for leaf in leaves)

    def sample(self, key: Any, params: Any) -> Any:
        leaves, structure = jax.tree.flatten(params)
        keys = jax.random.split(key, len(leaves))
        scale = 3.0 if self.slip == "scale of draws" else 1.0
        drawn = [scale * jax.random.cauchy(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, drawn)

    def gaussian(self, params: Any) -> Any:
        if self.slip != "claims to be Gaussian":
            return None
        return Normal(1.0).gaussian(params)


@record
class Forgetful(Prior):
    """Weights whose scale is the first bias, and which forgets it where it is frozen."""

    def log_prob(self, params: Any) -> Any:
        first = params["layers"][0]["bias"]
        scale = 1.0 if first is None else jnp.exp(first[0])
        return sum(jnp.sum(dist.Normal(0.0, scale).log_prob(leaf)) for leaf in jax.tree.leaves(params["layers"][1]))

    def given(self, frozen: Any) -> Any:
        return self


@pytest.mark.parametrize(
    "prior",
    [
        *(
            pytest.param(prior, marks=pytest.mark.stress)
            for prior in (Normal(0.5), LearnedNormal(0.7), LayerwiseNormal(0.7), ScaleMixture(0.3))
        ),
        Normal({"*bias": 3.0, "*": 0.5}),
        Tails(),
    ],
    ids=repr,
)
def test_sound_priors_pass(prior: Prior) -> None:
    check_prior(prior)


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (Tails("no sum"), "log_prob_is_a_smooth_scalar"),
        (Tails("scale of draws"), "draws_are_of_the_density"),
        (Tails("claims to be Gaussian"), "gaussian_is_the_gradient_and_curvature"),
        (Forgetful(), "frozen_leaves_condition"),
    ],
    ids=repr,
)
def test_a_slip_in_a_prior_breaks_its_law(prior: Prior, law: str) -> None:
    with pytest.raises(AssertionError, match=f"{law}: "):
        check_prior(prior)
    assert law in {each.__name__ for each in PRIOR_LAWS}


@record
class Slipped:
    """A normal belief about two numbers, of deviations 2 and ½, with a slip or none."""

    centre: Any
    slip: str = static(default="")

    @property
    def mean(self) -> Any:
        return self.centre + (1.0 if self.slip == "mean" else 0.0)

    def sample(self, key: Any) -> Any:
        scale = jnp.array([2.0, 0.5]) ** (2 if self.slip == "variance for deviation" else 1)
        return self.centre + scale * jax.random.normal(key, (2,))

    def log_prob(self, theta: Any) -> Any:
        return jnp.sum(norm.logpdf(theta, self.centre, jnp.array([2.0, 0.5])))

    def entropy(self) -> Any:
        return jnp.log(2 * jnp.pi) + (0.0 if self.slip == "entropy" else 1.0)


def test_a_slip_in_a_family_of_positive_numbers_breaks_its_law() -> None:
    """The draws of another rate, with the mean of these: the density alone tells."""

    @record
    class Other(lamu.families.Gamma):
        def sample(self, key: Any) -> Any:
            return lamu.families.Gamma(4.0 * self.shape, 4.0 * self.rate).sample(key)

    with pytest.raises(AssertionError, match="draws_are_of_the_density: "):
        check_family(Other(0.7, 2.0))


def _inverse_gaussian(key: Any, m: Any, scale: Any) -> Any:
    normal, choice = jax.random.split(key)
    square = jax.random.normal(normal, m.shape, m.dtype) ** 2
    x = m + m**2 * square / (2 * scale) - m / (2 * scale) * jnp.sqrt(4 * m * scale * square + (m * square) ** 2)
    return jnp.where(jax.random.uniform(choice, m.shape, m.dtype) <= m / (m + x), x, m**2 / x)


@record
class InverseGaussian(TextbookFamily):
    """Two components of λ, for two parameters, which need no `events`."""

    average: Any
    scale: Any

    domains: ClassVar = {"average": Positive(), "scale": Positive()}
    formulas: ClassVar = Formulas(
        natural=lambda m, scale: (-scale / (2 * m**2), -scale / 2),
        textbook=lambda first, second: (jnp.sqrt(second / first), -2 * second),
        partition=lambda first, second: -2 * jnp.sqrt(first * second) - 0.5 * jnp.log(-2 * second),
        statistics=lambda x: (x, 1 / x),
        mean=lambda m, scale: m,
        draw=_inverse_gaussian,
        of_moments=lambda first, second: (first, 1 / (second - 1 / first)),
        variance=lambda m, scale: m**3 / scale,
    )

    def log_base_measure(self, theta: Any) -> Any:
        return total(lambda x: -0.5 * jnp.log(2 * jnp.pi * x**3), theta)


@pytest.mark.parametrize(
    ("slip", "formula", "law"),
    [
        ("", None, ""),
        ("partition", lambda *n: 0.3 + InverseGaussian.formulas.partition(*n), "density_has_mass_one"),
        ("variance", lambda m, scale: m**2 / scale, "draws_have_the_variance"),
        ("textbook", lambda first, second: (jnp.sqrt(first / second), -2 * second), "parameters_convert_back"),
        ("of_moments", lambda first, second: (first, 1 / (second + 1 / first)), "parameters_convert_back"),
        ("statistics", lambda x: (x, jnp.log(x)), "statistics_have_the_expectation"),
    ],
)
def test_a_slip_in_a_formula_breaks_its_law(slip: str, formula: Any, law: str) -> None:
    """All but the last passed; and two parameters without `events` were a TypeError about `<lambda>()`."""
    assert InverseGaussian.events == (0, 0)

    @record
    class Twin(InverseGaussian):
        formulas: ClassVar = replace(InverseGaussian.formulas, **({slip: formula} if slip else {}))

    laws, belief = {each.__name__: each for each in FAMILY_LAWS}, Twin(2.0, 3.0)
    if slip:
        with pytest.raises(AssertionError):
            laws[law](belief)
    else:
        for name in set(laws) - {"entropy_is_the_expected_surprise"}:
            laws[name](belief)


def test_probabilities_of_whole_numbers_are_compared_with_their_frequencies() -> None:
    @record
    class Other(BernoulliBelief):
        def log_prob(self, theta: Any) -> Any:
            return super().log_prob(1 - theta)

    check_family(BernoulliBelief(jnp.array([0.3, -1.0])))
    with pytest.raises(AssertionError, match=r"density_has_mass_one: .*the frequency of the value"):
        check_family(Other(jnp.array([0.3, -1.0])))


@pytest.mark.stress
def test_sound_families_pass() -> None:
    centre = jnp.array([1.0, -2.0])
    check_family(Slipped(centre))
    check_family(Gaussian({"a": centre}, Diagonal({"a": jnp.array([4.0, 0.5])})))
    # Of every support: positive (of a shape below one the density is infinite at zero), shares, simplex, whole numbers.
    check_family(lamu.families.Gamma(3.0, 2.0))
    check_family(lamu.families.Gamma(0.7, 2.0))
    check_family(lamu.families.Beta(0.8, 3.0))
    check_family(lamu.families.Dirichlet(jnp.array([0.5, 2.0, 3.0])))
    check_family(lamu.families.Categorical(jnp.array([0.1, 0.2, 1.0])))


@pytest.mark.parametrize(
    ("slip", "law"),
    [
        ("mean", "draws_have_the_mean"),
        ("variance for deviation", "draws_are_of_the_density"),
        ("entropy", "entropy_is_the_expected_surprise"),
    ],
)
def test_a_slip_in_a_family_breaks_its_law(slip: str, law: str) -> None:
    with pytest.raises(AssertionError, match=f"{law}: "):
        check_family(Slipped(jnp.array([1.0, -2.0]), slip))
    assert law in {each.__name__ for each in FAMILY_LAWS}


@pytest.mark.parametrize(
    "algorithm",
    [
        lamu.algorithms.ivon(learning_rate=0.1),
        pytest.param(lamu.algorithms.adam(1e-2), marks=pytest.mark.stress),
        pytest.param(lamu.mcmc.mala(warmup=200, draws=500), marks=pytest.mark.stress),
    ],
    ids=["ivon", "adam", "mala"],
)
def test_sound_algorithms_pass(algorithm: Any) -> None:
    check_algorithm(algorithm)


def slipped(objective: Any, batch: Any, kind: str) -> Any:
    """Returns the objective with one scale that is forgotten, inverted or written twice."""
    model, N, T = objective.model, objective.data_size, objective.temperature
    if kind == "temperature inverted":
        return replace(objective, temperature=1 / T)
    if kind == "temperature ignored":
        return replace(objective, temperature=1.0)
    if kind == "kappa is one":  # N / T = 1, the likelihood and the prior as they were
        return replace(objective, temperature=N)
    if kind == "N twice":
        return replace(objective, data_size=N * N)
    if kind == "N of another table":
        return replace(objective, data_size=24.0)
    if kind == "temperature of the prior alone":
        return replace(objective, temperature=1.0, model=replace(model, prior=Normal(model.prior.scale * T**0.5)))
    if kind == "temperature of the likelihood alone":
        return replace(objective, model=replace(model, prior=Normal(model.prior.scale / T**0.5)))
    if kind == "power ignored":
        return replace(objective, likelihood_power=1.0)
    if kind == "prior dropped":
        return replace(objective, model=replace(model, prior=Normal(1e4)))
    if kind == "loss summed":  # of the batch, beside the prior's share of a row
        return replace(objective, likelihood_power=objective.likelihood_power * batch.count)
    if kind == "loss of all rows":
        return replace(objective, likelihood_power=objective.likelihood_power * N)
    if kind == "N / B":
        return replace(objective, likelihood_power=objective.likelihood_power * N / batch.count)
    return objective


@record
class Slip:
    """An algorithm with one slip in its step."""

    of: Any
    kind: str = static()

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "of"), name)

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        if self.kind == "counts padding":
            batch = replace(batch, mask=jnp.ones_like(batch.mask))
        if self.kind == "a constant key":
            key = jax.random.key(0)
        objective = slipped(objective, batch, self.kind)
        after, info = self.of.step(key, state, batch, objective)
        if self.kind == "changes a dtype":
            after = replace(after, count=after.count.astype(jnp.float32))
        if self.kind == "not pure":
            after = replace(after, mean=jax.tree.map(lambda leaf: leaf + NOISE.normal(), after.mean))
        if self.kind == "one key twice":
            noise = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape, leaf.dtype), after.mean)
            after = replace(after, mean=tree.add(after.mean, noise))
        if self.kind == "climbs":
            after = replace(after, mean=jax.tree.map(lambda a, b: 2 * b - a, after.mean, state.mean))
        return after, info

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Any:
        return self.of.posterior(key, state, slipped(objective, data.full(), self.kind), data, trace)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        ("counts padding", "padding_is_not_seen"),
        ("changes a dtype", "a_step_keeps_the_state"),
        ("not pure", "a_step_is_a_pure_function"),
        ("climbs", "the_loss_goes_down"),
    ],
)
def test_a_slip_in_an_algorithm_breaks_its_law(kind: str, law: str) -> None:
    """Each law alone: the whole check would fit a broken algorithm too."""
    laws = {each.__name__: each for each in ALGORITHM_LAWS}
    with pytest.raises(AssertionError):
        laws[law](Slip(lamu.algorithms.adam(1e-2), kind))


@pytest.mark.parametrize(
    ("kind", "said"), [("a constant key", "are the same with other keys"), ("one key twice", "uses one key twice")]
)
def test_a_step_draws_from_its_key_and_once(kind: str, said: str) -> None:
    """Both passed the whole check."""
    another = {each.__name__: each for each in ALGORITHM_LAWS}["another_key_is_another_step"]
    another(lamu.algorithms.von())
    with pytest.raises(AssertionError, match=said):
        another(Slip(lamu.algorithms.von(), kind))


def test_the_toy_fits_of_the_check_warn_of_nothing() -> None:
    """The fits of `the_loss_goes_down` said "Underfit … take laplace()", as if the user had fitted something."""
    loss = {each.__name__: each for each in ALGORITHM_LAWS}["the_loss_goes_down"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(lamu.algorithms.sgd(1e-5))


ADAM, SGD, IVON = lamu.algorithms.adam(1e-2), lamu.algorithms.sgd(0.1), lamu.algorithms.ivon()
VON = lamu.algorithms.von()
ULA = lamu.mcmc.ula(chains=2, warmup=200, draws=400, step_size=0.1)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("algorithm", "kind", "law", "said"),
    [
        (ADAM, "prior dropped", "likelihood_and_prior_are_weighed", "the prior is dropped"),
        (ADAM, "power ignored", "likelihood_and_prior_are_weighed", "likelihood_power is ignored"),
        (ADAM, "N / B", "likelihood_and_prior_are_weighed", "N/B times too much"),
        (ADAM, "loss summed", "likelihood_and_prior_are_weighed", "the batch's sum of losses"),
        (SGD, "loss summed", "only_a_rows_share_counts", "rows written twice"),
        (IVON, "prior dropped", "likelihood_and_prior_are_weighed", "the prior is dropped"),
        (IVON, "temperature inverted", "the_belief_has_its_temperature", "the temperature is inverted"),
        (IVON, "temperature ignored", "the_belief_has_its_temperature", "the temperature is ignored"),
        (IVON, "temperature of the prior alone", "likelihood_and_prior_are_weighed", "divides the prior alone"),
        (IVON, "N twice", "the_belief_has_its_temperature", "N enters twice"),
        (VON, "N of another table", "the_belief_has_its_temperature", "a linear fit of 48 rows"),
        (VON, "temperature of the likelihood alone", "likelihood_and_prior_are_weighed", "the likelihood alone"),
        (IVON, "kappa is one", "the_belief_has_its_temperature", "which kappa = N / T must multiply"),
        (SGD, "loss of all rows", "only_a_rows_share_counts", "four times the rows"),
        (ULA, "prior dropped", "likelihood_and_prior_are_weighed", "the prior is dropped"),
        (ULA, "temperature inverted", "the_belief_has_its_temperature", "the temperature is inverted"),
        (ULA, "kappa is one", "the_belief_has_its_temperature", "which kappa = N / T must multiply"),
    ],
)
def test_a_forgotten_scale_breaks_its_law(algorithm: Any, kind: str, law: str, said: str) -> None:
    laws = {each.__name__: each for each in ALGORITHM_LAWS}
    with pytest.raises(AssertionError, match=said):
        laws[law](Slip(algorithm, kind))


CONJUGATE = lamu.algorithms.conjugate()


@pytest.mark.stress
def test_conjugate_and_its_calibration_pass() -> None:
    for law in ("likelihood_and_prior_are_weighed", "the_belief_has_its_temperature"):
        {each.__name__: each for each in ALGORITHM_LAWS}[law](CONJUGATE)
    check_calibration(CONJUGATE, runs=40)


@pytest.mark.parametrize("kind", ["kappa is one", "N twice"])
def test_parameters_of_the_prior_are_not_covered_where_a_scale_is_wrong(kind: str) -> None:
    with pytest.raises(AssertionError, match="not uniform"):
        check_calibration(Slip(CONJUGATE, kind), runs=40)


@record
class Proposal(Langevin):
    """Langevin steps with a slip, or none."""

    slip: str = static(default="")

    def move(self, key: Any, chain: Any, target: Any, step_size: Any, inverse_mass: Any, warming: Any) -> Any:
        if self.slip == "sign":
            chain = replace(chain, gradient=-chain.gradient)
        if self.slip == "one-sided":
            vector = tree.ravel(chain.position)[0]
            away = step_size * inverse_mass * jax.random.normal(key, vector.shape, vector.dtype)
            new = self.begin(tree.ravel(chain.position)[1](vector + 0.2 * jnp.abs(away)), target)
            log_ratio = new.log_density - chain.log_density
            chain, acceptance = metropolis(jax.random.fold_in(jax.random.clone(key), 1), log_ratio, new, chain)
            return chain, {"acceptance": acceptance}
        after, statistics = super().move(key, chain, target, step_size, inverse_mass, warming)
        if self.slip == "old gradient":
            after = replace(after, gradient=chain.gradient)
        if self.slip == "stays":
            after = chain
        return after, statistics


@pytest.mark.stress
def test_sound_kernels_pass() -> None:
    for kernel in (RandomWalk(), Proposal()):
        check_kernel(kernel)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernel", "law"),
    [
        (Proposal(adjusted=False), "the_target_stays: AssertionError: the change of E u."),
        (Proposal(slip="one-sided"), "the_target_stays"),
        (Proposal(slip="sign"), "a_chain_knows_where_it_is"),
        (Proposal(slip="old gradient"), "a_chain_knows_where_it_is"),
        (Proposal(slip="stays"), "chains_move"),
    ],
    ids=["no test", "one-sided", "sign", "old gradient", "stays"],
)
def test_a_slip_in_a_kernel_breaks_its_law(kernel: Any, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_kernel(kernel)
    assert law.split(":")[0] in {each.__name__ for each in KERNEL_LAWS}


def test_the_report_names_every_broken_law() -> None:
    with pytest.raises(AssertionError, match=r"Bare breaks \d laws:\n  density_sums_to_one: .*is 2 where 1 is due"):
        check_likelihood(Bare("normaliser"))


@record
class Failures(Factor):
    """The geometric distribution, with a slip or none."""

    probability: Expression
    slip: str = static(default="")

    kind = Observed
    fills = True
    support = Counts()

    def log_density(self, x: Any, at: Any, observed: Any = None) -> Any:
        p = self.probability.of_kind(Chance, at)
        success, failure = (p.log_complement, p.log) if self.slip == "swapped" else (p.log, p.log_complement)
        constant = {"constant": 1.0, "not affine": success**2}.get(self.slip, 0.0)
        values = constant + success + jnp.asarray(x.value, success.dtype) * failure
        return summed(values, None if self.slip == "mask" else observed)

    def predicted(self, at: Any) -> Any:
        p = self.probability.of_kind(Chance, at)
        odds = jnp.exp(p.log_complement - p.log)
        return odds, odds * (1 if self.slip == "variance" else 1 + odds)

    def filled(self, key: Any, value: Any, at: Any, observed: Any) -> Any:
        p = self.probability.of_kind(Chance, at)
        drawn = jnp.floor(jnp.log(jax.random.uniform(key, jnp.shape(value))) / p.log_complement)
        return jnp.where(observed, value, drawn + (1.0 if self.slip == "filled" else 0.0))


@pytest.mark.parametrize(
    ("slip", "law"),
    [
        ("", ""),
        ("constant", "density_sums_to_one"),
        ("not affine", "density_is_affine_in_each_argument"),
        ("mask", "missing_entries_count_nothing"),
        ("swapped", "predictions_are_of_the_density: .*`predicted`"),
        ("variance", "predictions_are_of_the_density: .*the variance"),
        ("filled", "predictions_are_of_the_density: .*`filled`"),
    ],
)
def test_a_slip_in_a_factor_breaks_its_law(slip: str, law: str) -> None:
    """There was no check: all of them were silent."""
    factor = lambda p: Failures(argument(p, Chance, "a probability"), slip)
    if not slip:
        check_factor(factor, lamu.families.Beta(2.0, 3.0))
        return
    with pytest.raises(AssertionError, match=law):
        check_factor(factor, lamu.families.Beta(2.0, 3.0))
    assert law.split(":")[0] in {each.__name__ for each in FACTOR_LAWS}


def test_factors_of_the_library_pass() -> None:
    """Two classes, the line with two arguments, and positive numbers."""
    numbers, rate = Gaussian(jnp.zeros(()), Diagonal(jnp.ones(()))), lamu.families.Gamma(3.0, 2.0)
    check_factor(graphs.Bernoulli, lamu.families.Beta(2.0, 3.0))
    check_factor(lambda mean, precision: graphs.Normal(mean, precision=precision), numbers, rate)
    check_factor(lambda rate: graphs.Gamma(2.0, rate), rate)
    with pytest.raises(ValueError, match=r"of the shape \(3,\) is not checked"):
        check_factor(graphs.Poisson, lamu.families.Gamma(jnp.ones(3), 2.0))
