"""Laws of an algorithm, of its calibration on data drawn from the prior, and of the transitions of a sampler."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lamu.convergence import Overfit, Unconverged, Underfit
from lamu.data import Arrays
from lamu.data.batch import Batch
from lamu.density import LogDensity, nothing
from lamu.families import Ensemble
from lamu.likelihoods import Gaussian
from lamu.loop import fit
from lamu.mcmc import UnreliableChains
from lamu.mcmc.chains import Kernel, LogTarget
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.objective import Objective
from lamu.posterior import load
from lamu.priors import Normal
from lamu.rate import over
from lamu.simulation import simulation_based_calibration
from lamu.testing.laws import check, close, within_errors
from lamu.typing import DTypeLike, Options

__all__ = ["ALGORITHM_LAWS", "KERNEL_LAWS", "check_algorithm", "check_calibration", "check_kernel"]

_N = 24
_STEPS, _FEW = 3000, 4

# With orthogonal inputs the posterior is known: p N rows and a prior of precision δ, both divided by T. There are two
# numbers of rows, two powers and two temperatures, one of each below and above one, so that a constant fails for one.
_WEIGHTS, _INTERCEPT = (1.5, -2.0), 1.0  # by least squares
_PRIOR_SCALE = 0.5
_ODDS_ALLOWED = 2.0**0.5  # in logarithms half of the error of an ignored power
_VARIANCE_ALLOWED = 2.5**0.5  # half of the error of an ignored temperature


class _Scales(NamedTuple):
    """The scales of a linear fit, and its expected posterior."""

    rows: int
    power: float
    temperature: float

    @property
    def odds(self) -> float:
        """The weight of the rows relative to the prior."""
        return self.power * self.rows * _PRIOR_SCALE**2

    @property
    def variance(self) -> float:
        """The posterior variance of every weight."""
        return self.temperature / (self.power * self.rows + _PRIOR_SCALE**-2)


_CASES = (_Scales(_N, 0.5, 0.4), _Scales(2 * _N, 0.25, 2.5))
_BATCH = 8


def _rows(dtype: DTypeLike | None = None) -> Arrays:
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(_N, 2))
    y = x @ [1.0, -0.5] + 0.3 * numbers.normal(size=_N)
    dtype = jnp.result_type(float) if dtype is None else dtype
    return Arrays.of((jnp.asarray(x, dtype), jnp.asarray(y, dtype)))


def _model() -> Model:
    return Model(MLP((4,)), Gaussian(0.3))


def _set_up(algorithm: Any, dtype: DTypeLike | None = None) -> tuple[Any, Objective, Batch]:
    batch, objective = _rows(dtype).full(), Objective(_model(), _N)
    return algorithm.init(jax.random.key(0), objective, batch), objective, batch


@contextmanager
def _in_silence() -> Iterator[None]:
    """Silences warnings about small fits, whose effects the laws measure."""
    with warnings.catch_warnings():
        for warning in (Unconverged, UnreliableChains, Underfit, Overfit):
            warnings.simplefilter("ignore", warning)
        yield


def _fit(*args: Any, **options: Any) -> Any:
    with _in_silence():
        return fit(*args, progress=False, **options)


def _has_a_length(algorithm: Any) -> bool:
    """Whether the algorithm determines its number of steps, as samplers do."""
    return algorithm.traits.length is not None or algorithm.traits.batching == "once"


def _same(actual: object, due: object, what: str, rtol: float = 1e-4) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(due), f"{what}: the state has another structure"
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(due), strict=True):
        if not jnp.issubdtype(jnp.result_type(a), jax.dtypes.prng_key):
            close(a, b, rtol, what, 1e-5)


def a_step_keeps_the_state(algorithm: Any) -> None:
    """A step keeps structure, shapes and dtypes of the state, so that it can be scanned and compiles once."""
    for dtype in (jnp.float32, jnp.result_type(float)):
        state, objective, batch = _set_up(algorithm, dtype)
        shapes = lambda state: jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), state)
        after, _ = jax.eval_shape(algorithm.step, jax.random.key(1), state, batch, objective)
        shapes_after = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after)
        assert jax.tree.structure(after) == jax.tree.structure(state), f"the state of {dtype} changes its structure"
        assert shapes_after == shapes(state), f"the state of {dtype} changes shapes or dtypes in a step"


def a_step_is_a_pure_function(algorithm: Any) -> None:
    """The same key gives the same step: eager, compiled and repeated."""
    state, objective, batch = _set_up(algorithm)
    step = jax.jit(algorithm.step)
    first, again = (step(jax.random.key(1), state, batch, objective)[0] for _ in range(2))
    _same(again, first, "a step taken again", 0.0)
    _same(algorithm.step(jax.random.key(1), state, batch, objective)[0], first, "a compiled step")


_DRAWING = ("random_bits", "random_unwrap", "threefry2x32", "rng_bit_generator")  # operations that draw numbers


def another_key_is_another_step(algorithm: Any) -> None:
    """Steps that draw random numbers differ with the key that they are given, and use no key twice."""
    state, objective, batch = _set_up(algorithm)
    with jax.debug_key_reuse(True):
        try:
            program = str(jax.make_jaxpr(algorithm.step)(jax.random.key(1), state, batch, objective))
            step = jax.jit(lambda key, state: algorithm.step(key, state, batch, objective))
            step(jax.random.key(1), state)
        except jax.errors.KeyReuseError as error:
            raise AssertionError(f"a step uses one key twice; give each a key of jax.random.split: {error}") from None
    keeps_a_key = any(jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key) for leaf in jax.tree.leaves(state))
    if keeps_a_key or not any(operation in program for operation in _DRAWING):
        return

    def course(seed: int) -> list[Any]:
        after, numbers = state, []
        for key in jax.random.split(jax.random.key(seed), _FEW):
            after, info = step(key, after)
            numbers += [np.asarray(leaf, float) for leaf in jax.tree.leaves((after, info))]
        return numbers

    if all(np.array_equal(one, other, equal_nan=True) for one, other in zip(course(1), course(2), strict=True)):
        raise AssertionError(
            f"{_FEW} steps draw random numbers and are the same with other keys; draw from the key that the step is "
            "given, since a constant one repeats its numbers at every step"
        )


def padding_is_not_seen(algorithm: Any) -> None:
    """Rows with a zero mask have no effect, for any values."""
    state, objective, batch = _set_up(algorithm)
    padded = batch.padded(_N + 8)
    strange = Batch(x=padded.x.at[_N:].set(1e3), y=padded.y.at[_N:].set(-1e3), mask=padded.mask, weight=padded.weight)
    due = algorithm.step(jax.random.key(1), state, padded, objective)[0]
    _same(algorithm.step(jax.random.key(1), state, strange, objective)[0], due, "a step with other padding")


def the_loss_goes_down(algorithm: Any) -> None:
    """Over 200 epochs the mean loss of the last quarter is below that of the first steps."""
    if _has_a_length(algorithm):
        return
    history = _fit(_model(), _rows(), algorithm, epochs=200, batch_size=_N, seed=0).history
    loss = np.asarray(history["loss"], float)
    assert loss[-50:].mean() < loss[:3].mean(), (
        f"the loss is {loss[:3].mean():.3g} at first and {loss[-50:].mean():.3g} last"
    )


def likelihood_and_prior_are_weighed(algorithm: object) -> None:
    """Linear fits converge to the posterior mean: N/B, the likelihood's power and the prior are applied once each."""
    for case, rows, posterior in _orthogonal_fits(algorithm):
        mean = np.asarray(posterior.predict(rows.x, samples=256).mean, float).ravel()
        least_squares = np.asarray(rows.x, float) @ _WEIGHTS + _INTERCEPT
        share = float(mean @ least_squares / (least_squares @ least_squares))
        odds = share / (1 - share) if 0 < share < 1 else np.inf if share >= 1 else 0.0
        if not 1 / _ODDS_ALLOWED < odds / case.odds < _ODDS_ALLOWED:
            raise AssertionError(
                f"a linear fit of {case.rows} rows at T = {case.temperature} ends where the rows count {odds:.3g} "
                f"times what the prior does, and {case.odds:.3g} times is due: {_weighing_fault(odds, case)}"
            )


def the_belief_has_its_temperature(algorithm: object) -> None:
    """Linear fits have the posterior variance: N / T is applied once. Points and ensembles of points have none."""
    for case, rows, posterior in _orthogonal_fits(algorithm):
        variance = float(np.mean(np.asarray(posterior.predict(rows.x, samples=256).epistemic, float)))
        due = case.variance * (1 + rows.x.shape[1])
        if variance < 1e-9 * due or isinstance(posterior.belief, Ensemble):
            return
        if not 1 / _VARIANCE_ALLOWED < variance / due < _VARIANCE_ALLOWED:
            raise AssertionError(
                f"a linear fit of {case.rows} rows at T = {case.temperature} has the variance {variance:.3g} of f, and "
                f"{due:.3g} is due: {_temperature_fault(variance / due, case)}"
            )


def only_a_rows_share_counts(algorithm: Any) -> None:
    """The loss has the same course with four times the rows, T and prior precision, and with duplicated rows."""
    # The first is not tested for samplers, whose steps may have the scale of the full posterior. The second is not
    # tested if a step depends on the order of the rows.
    batch, first = _orthogonal_rows().full(), _CASES[0]
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf[: _N // 2]] * 2), batch)
    once = replace(twice, mask=twice.mask.at[_N // 2 :].set(0))
    algorithm = over(_FEW, algorithm)
    step = jax.jit(algorithm.step)

    def falls(rows: Batch, common: float = 1.0) -> Any:
        objective = Objective(
            _orthogonal_model(_PRIOR_SCALE / common**0.5), _N * common, first.temperature * common, first.power
        )
        state, losses = algorithm.init(jax.random.key(0), objective, batch), []
        for count in range(_FEW):
            state, info = step(jax.random.key(count + 1), state, rows, objective)
            losses.append(info.loss)
        return jnp.stack(losses[1:]) - losses[0]  # subtracts the prior's constant

    due = falls(batch)
    if not _has_a_length(algorithm):
        close(falls(batch, 4.0), due, 1e-3, "the loss with four times the rows, T and precision of the prior", 1e-4)
    if np.allclose(falls(jax.tree.map(lambda leaf: leaf[::-1], batch)), due, rtol=1e-3, atol=1e-4):
        close(falls(twice), falls(once), 1e-3, "the loss on rows written twice", 1e-4)


def _orthogonal_rows(count: int = _N) -> Arrays:
    """Returns rows of ±1 with orthogonal columns, intercept and noise; the noise has the model's scale."""
    x = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)] * (count // 4))
    noise = np.repeat(np.resize([1.0, -1.0], count // 4), 4)
    return Arrays.of((jnp.asarray(x), jnp.asarray(x @ _WEIGHTS + _INTERCEPT + noise)))


def _orthogonal_model(scale: float = _PRIOR_SCALE) -> Model:
    return Model(Linear(), Gaussian(1.0), Normal(scale))


_LATEST: dict[str, Any] = {}  # the fits of the last algorithm, which two laws use


def _orthogonal_fits(algorithm: Any) -> Iterator[tuple[_Scales, Arrays, Any]]:
    """Yields each case with its rows and its posterior."""
    if _LATEST.get("algorithm") is not algorithm:
        _LATEST.update(algorithm=algorithm, fits={})
    for case in _CASES:
        if case not in _LATEST["fits"]:
            rows = _orthogonal_rows(case.rows)
            length: Options = {} if _has_a_length(algorithm) else {"steps": _STEPS}
            size = _BATCH if algorithm.traits.batching == "mini" else case.rows
            scales: Options = {"temperature": case.temperature, "likelihood_power": case.power}
            posterior = _fit(
                _orthogonal_model(), rows, algorithm, batch_size=size, seed=1, **length, **scales
            ).posterior
            _LATEST["fits"][case] = rows, posterior
        yield case, *_LATEST["fits"][case]


def _nearest(faults: dict[float, str], ratio: float) -> str:
    """Returns the name of the factor that is nearest to a ratio."""
    nearest = min(faults, key=lambda factor: abs(np.log(factor) - np.log(np.clip(ratio, 1e-6, 1e6))))
    return f"either it has not come to rest, or {faults[nearest]}"


def _weighing_fault(odds: float, case: _Scales) -> str:
    """Returns the most likely mistake: a factor that is missing or applied twice."""
    faults = {
        1 / case.power: "likelihood_power is ignored",
        case.temperature: "the temperature divides the prior alone",
        1 / case.temperature: "the temperature divides the likelihood alone",
        case.rows / _BATCH: "a batch counts N/B times too much",
        float(_BATCH): "the batch's sum of losses stands where its mean should, beside a prior divided by N",
        float(case.rows): "the prior is dropped, or divided by N once too often",
        _BATCH / case.rows: "a batch counts N/B times too little",
        1 / case.rows: "the prior is not divided by N",
        1e-6: "the loss has the wrong sign",
    }
    return _nearest(faults, odds / case.odds)


def _temperature_fault(ratio: float, case: _Scales) -> str:
    faults = {
        1 / case.temperature: "the temperature is ignored",
        case.temperature**-2: "the temperature is inverted",
        case.rows / case.temperature: "the loss is the mean over the rows, which kappa = N / T must multiply",
        1 / case.rows: "N enters twice",
        case.temperature: "the temperature enters twice",
    }
    return _nearest(faults, ratio)


def a_fit_repeats_predicts_and_is_saved(algorithm: Any) -> None:
    """The same seed gives the same finite predictions, also after saving and loading the posterior."""
    rows = _rows()
    epochs = None if _has_a_length(algorithm) else 3
    fits = [_fit(_model(), rows, algorithm, epochs=epochs, batch_size=8, seed=3) for _ in range(2)]
    first, other = (each.posterior for each in fits)
    pred = first.predict(rows.x)
    assert np.isfinite(pred.mean).all(), "a prediction is not finite"
    assert (np.asarray(pred.variance) > 0).all(), "a predictive variance is not positive"
    close(other.predict(rows.x).mean, pred.mean, 1e-5, "a prediction by the same seed", 1e-6)
    with tempfile.TemporaryDirectory() as folder:
        first.save(Path(folder) / "posterior")
        close(load(Path(folder) / "posterior").predict(rows.x).mean, pred.mean, 1e-5, "a prediction after saving", 1e-6)


ALGORITHM_LAWS = (
    a_step_keeps_the_state,
    a_step_is_a_pure_function,
    another_key_is_another_step,
    padding_is_not_seen,
    the_loss_goes_down,
    likelihood_and_prior_are_weighed,
    the_belief_has_its_temperature,
    only_a_rows_share_counts,
    a_fit_repeats_predicts_and_is_saved,
)


def check_algorithm(algorithm: object) -> None:
    """Runs every law of algorithms, on a small regression with a network of four hidden units and on a linear one.

    The linear one has a known posterior, that of `conjugate()`. It is compared with the algorithm's for two numbers of
    rows, two temperatures and two powers of the likelihood.

    Args:
        algorithm: the algorithm, with options that suit 24 rows: it must converge in 3,000 steps, or in a sampler's own
            length.

    For an algorithm whose variance intentionally is not the posterior variance, such as that of iterates, run the other
    laws of `ALGORITHM_LAWS`. `check_calibration` is a further test with many fits.

    Raises:
        AssertionError: names every broken law, with its values.

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_algorithm
        >>> check_algorithm(lamu.algorithms.adam(1e-2))
    """
    check(type(algorithm).__name__, algorithm, ALGORITHM_LAWS)


_ROWS, _LEAST = 16, 1e-4  # the number of rows, and the p value below which a correct algorithm falls once in 10,000


def check_calibration(algorithm: Any, runs: int = 100, seed: int = 0, **options: Any) -> None:
    """Tests the calibration of an algorithm by ranks of true parameters among posterior draws.

    The ranks are uniform for the exact posterior (`lamu.simulation_based_calibration`), here of a linear model with
    three weights and correlated inputs. A posterior that is too narrow, too wide or biased by a half or more is
    rejected, and so is a point. Smaller errors need more runs, or `lamu.testing.check_algorithm`, which compares with
    the exact posterior.

    Args:
        algorithm: the algorithm, with options that suit 16 rows.
        runs: the number of fits; more fits detect smaller errors.
        seed: the random seed.
        **options: further options of `lamu.fit`, for instance `steps` if the algorithm does not determine it.

    Raises:
        AssertionError: if the ranks are not uniform; the message has the ranks.

    Source: Talts et al. (2018).

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_calibration
        >>> check_calibration(lamu.algorithms.conjugate(), runs=40)
    """
    numbers = np.random.default_rng(1)
    x = numbers.normal(size=(_ROWS, 2)) + numbers.normal(size=(_ROWS, 1)) / 2
    model = Model(Linear(), Gaussian(2.0), Normal(0.7))  # rows and prior have about equal weight
    with _in_silence():
        ranks = simulation_based_calibration(model, algorithm, x, runs=runs, seed=seed, **options)
    assert ranks.p_value > _LEAST, f"ranks of parameters among draws of their posterior are not uniform:\n{ranks}"


_CHAINS, _MOVES = 20_000, 3
_SLOPE, _NOISE = 0.5, 0.6  # of the second coordinate given the first


def _log_density(u: Any) -> Any:
    """The log density of the logarithm of a Gamma(2) variable, which is skewed, and of a normal variable given it."""
    return 2.0 * u[0] - jnp.exp(u[0]) - 0.5 * ((u[1] - _SLOPE * u[0]) / _NOISE) ** 2


def _exact() -> jax.Array:
    """Returns independent draws from that density, `[chains, 2]`."""
    numbers = np.random.default_rng(0)
    first = np.log(numbers.gamma(2.0, size=_CHAINS))
    return jnp.asarray(np.stack([first, _SLOPE * first + _NOISE * numbers.normal(size=_CHAINS)], axis=1))


class _Case(NamedTuple):
    """A kernel with a step size."""

    kernel: Kernel
    step_size: float

    @property
    def target(self) -> LogTarget:
        return LogTarget(Objective(LogDensity(_log_density, jnp.zeros(2)), 1.0), Batch.of(*nothing()), {})

    def moved(self, scales: tuple[float, float]) -> tuple[Any, Any, Any]:
        """Returns chains before and after some moves, with their statistics."""
        target, inverse_mass = self.target, jnp.asarray(scales) ** 2

        def run(key: Any, start: Any) -> Any:
            position = {"network": start, "likelihood": {}}
            chain, size = self.kernel.begin(position, target), jnp.asarray(self.step_size)
            statistics: dict[str, Any] = {}
            for move_key in jax.random.split(key, _MOVES):
                chain, statistics = self.kernel.move(move_key, chain, target, size, inverse_mass, False)
            return chain, statistics

        start = _exact()
        chains, statistics = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), _CHAINS), start)
        return start, chains, statistics


def the_target_stays(case: _Case) -> None:
    """Chains that start at exact draws keep their moments over some moves, with two mass matrices."""
    for scales in ((1.0, 1.0), (1.5, 0.4)):
        start, chains, _ = case.moved(scales)
        end = chains.position["network"]
        moments = {
            "u₁": lambda u: u[:, 0],
            "u₂": lambda u: u[:, 1],
            "u₁²": lambda u: u[:, 0] ** 2,
            "u₁u₂": lambda u: u[:, 0] * u[:, 1],
            "u₂²": lambda u: u[:, 1] ** 2,
            "u₁³": lambda u: u[:, 0] ** 3,
        }
        for name, moment in moments.items():
            change = moment(end) - moment(start)
            within_errors(change, 0.0, f"the change of E {name} in {_MOVES} moves, with the scales {scales},")


def chains_move(case: _Case) -> None:
    """At least one chain in ten has moved after some moves, and acceptance rates are probabilities."""
    start, chains, statistics = case.moved((1.0, 1.0))
    moved = float(jnp.mean(jnp.any(chains.position["network"] != start, axis=1)))
    assert moved > 0.1, f"{moved:.0%} of the chains are elsewhere after {_MOVES} moves; try another step_size"
    acceptance = np.asarray(statistics["acceptance"])
    assert ((acceptance >= 0) & (acceptance <= 1)).all(), "an acceptance is not a probability"


def a_chain_knows_where_it_is(case: _Case) -> None:
    """The log density and the gradient in a chain's state are those of its position."""
    _, chains, _ = case.moved((1.0, 1.0))
    some = jax.tree.map(lambda leaf: leaf[:50], chains)
    fresh = jax.vmap(lambda position: case.kernel.begin(position, case.target))(some.position)
    for carried, due in zip(jax.tree.leaves(some), jax.tree.leaves(fresh), strict=True):
        close(carried, due, 1e-3, "the log density or the gradient that a chain carries", 1e-3)


KERNEL_LAWS = (the_target_stays, chains_move, a_chain_knows_where_it_is)


def check_kernel(kernel: Kernel, step_size: float = 0.7) -> None:
    """Runs every law of the kernels that move a sampler's chains, on a skewed density of two numbers.

    20,000 chains start at exact draws, so that moves with this invariant distribution change no moment by more than
    five standard errors. A kernel with a bias from its step size, such as an unadjusted one, is rejected.

    Args:
        kernel: a `lamu.mcmc.chains.Kernel`.
        step_size: the step size; the test has most power if about half of the moves are accepted.

    Raises:
        AssertionError: names every broken law, with its values.

    Examples:
        >>> from lamu.mcmc.metropolis import RandomWalk
        >>> from lamu.testing import check_kernel
        >>> check_kernel(RandomWalk())
    """
    check(type(kernel).__name__, _Case(kernel, step_size), KERNEL_LAWS)
