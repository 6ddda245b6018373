r"""Laws of one step of an algorithm that draws: its expectation over keys, beside its closed form.

A row's subject is an algorithm, small steps of which are proportional to their rate. From one state, whose mean and
precision are known, many steps are taken, each under a key of its own, on one batch of a linear-Gaussian model with
weights, padding, a temperature, a power and a prior about a point other than zero. The extra `moved` reads what has
moved out of the old and the new state, `[numbers]`, and `answer` says in NumPy what it is on average: a function of a
`Start`. No run, no schedule and no state carried from step to step stands between a fault and this law.

The average over `KEYS` keys (the extra `keys`, where it is others) is compared in standard errors that the keys give;
`ERRORS` of them are exceeded by chance once in 10⁸ numbers. `bias` allows for what is of second order in the rate, in
parts of the largest number; a standard error above `sharp` of that number fails, since such a law would see nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lamu import tree
from lamu.algorithms import bayes_by_backprop, ivon, lie_group, vogn, von
from lamu.algorithms.descent import Flipout, LocalReparameterisation
from lamu.expectations import MonteCarlo
from lamu.geometry import Affine, Placement
from lamu.mcmc import sgld
from lamu.operators import Dense, Diagonal
from tests.laws.harness import Row, law, row, twin, vocabulary
from tests.laws.stochastic import DIMENSION, NOISE, REGRESSION, SETTINGS, Scales, batches, design, inputs

vocabulary("expected_step", "")

KEYS, ERRORS, SHARP, SMALL = 4000, 6.0, 0.03, 1e-4
SETTING = SETTINGS[1]
MEAN, WIDTHS = np.array([0.3, -0.4, 0.8, 1.1]), np.array([0.2, 0.35, 0.15, 0.5])


@dataclass(frozen=True)
class Start:
    """What is known where the step begins, all of a row: gradient and Hessian of the mean loss of the batch, the prior.

    Attributes:
        mean: m.
        precision: P, the precision a row, S / κ.
        kappa: κ = N / T.
        hessian: of the batch's mean loss, with its power, without the prior.
        gradient: at m, of the same.
        delta: the prior's precision a row.
        loc: the prior's mean.
        rows: inputs, weights and residuals of the batch's rows at m.
    """

    mean: np.ndarray
    precision: np.ndarray
    kappa: float
    hessian: np.ndarray
    gradient: np.ndarray
    delta: float
    loc: float
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]

    @property
    def pulled(self) -> np.ndarray:
        """The gradient with the prior's."""
        return self.gradient + self.delta * (self.mean - self.loc)


def start() -> Start:
    B = SETTING.batch
    X, weights, y = design(SETTING)[:B], inputs(SETTING)[1][:B], REGRESSION.targets(SETTING)[:B]
    share = SETTING.power * weights / NOISE**2 / B
    kappa = SETTING.rows / SETTING.temperature
    hessian = X.T @ (share[:, None] * X)
    gradient = X.T @ (share * (X @ MEAN - y))
    precision = np.diag(1 / WIDTHS**2) / kappa
    return Start(
        MEAN, precision, kappa, hessian, gradient, SETTING.delta / SETTING.rows, SETTING.loc, (X, weights, X @ MEAN - y)
    )


def placed(algorithm: Any, state: Any) -> Any:
    """The algorithm's first state, moved to the start's mean and widths."""
    unravel = tree.ravel(REGRESSION.objective(Scales.of(SETTING)).model.init(jax.random.key(0), BATCH)[0]["network"])[1]
    mean, widths = unravel(jnp.asarray(MEAN)), unravel(jnp.asarray(WIDTHS))
    if hasattr(state, "element"):
        return replace(state, element=Placement(mean, widths))
    if hasattr(state, "position"):
        return replace(state, position=jax.tree.map(lambda leaf: leaf[None], {"network": mean, "likelihood": {}}))
    if hasattr(state, "precision"):
        precision = jnp.asarray(start().precision)
        diagonal = Diagonal(unravel(jnp.diagonal(precision)))
        return replace(state, mean=mean, precision=Dense(precision) if algorithm.structure is Dense else diagonal)
    raw = jax.tree.map(algorithm.scale_transform.inverse, widths)
    params = {**state.params, "mean": mean, "raw": raw}
    return replace(state, params=params, optimizer=algorithm.optimizer.init(params))


BATCH = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), batches(REGRESSION, SETTING))


@law("expected_step")
def a_step_is_its_closed_form_on_average(row: Row) -> None:
    algorithm, scales = row.subject, row.extras.get("told", lambda scales: scales)(Scales.of(SETTING))
    objective = REGRESSION.objective(scales)
    state = placed(algorithm, algorithm.init(jax.random.key(0), objective, BATCH))

    def once(key: Any) -> Any:
        return row.extras["moved"](state, algorithm.step(key, state, BATCH, objective)[0])

    keys = row.extras.get("keys", KEYS)
    with jax.debug_key_reuse(False):  # the checker takes any vmapped use of keys for a second one
        found = np.asarray(jax.jit(jax.vmap(once))(jax.random.split(jax.random.key(7), keys)))
    expected = row.extras["answer"](start())
    size = np.max(np.abs(expected))
    error = found.std(axis=0, ddof=1) / np.sqrt(keys)
    away = np.abs(found.mean(axis=0) - expected)
    where = f"{found.mean(axis=0).round(4)} ± {error.round(4)} where {expected.round(4)} is expected"
    assert np.all(away < ERRORS * error + row.extras.get("bias", 1e-6) * size), where
    assert np.all(error < row.extras.get("sharp", SHARP) * size), f"too wide to say anything: {where}"


def flat(params: Any) -> Any:
    return tree.ravel(params)[0]


def of_rule(old: Any, new: Any) -> Any:
    """How the precision moved, a unit of its rate, and then the mean."""
    moved = (flat(new.precision) - flat(old.precision), flat(new.mean) - flat(old.mean))
    return jnp.concatenate([part.ravel() for part in moved]) / SMALL


def newton_like(start: Start, curvature: np.ndarray, dense: bool = False) -> np.ndarray:
    """P moves to the curvature with the prior's, and m by P⁻¹ times the gradient, both a unit of a small rate."""
    towards = curvature + start.delta * np.eye(DIMENSION) - start.precision
    towards = towards.ravel() if dense else np.diagonal(towards)
    return np.concatenate([towards, -np.linalg.solve(start.precision, start.pulled)])


def squares(start: Start) -> np.ndarray:
    """The batch's mean of squared gradients of single rows, at a draw of the belief."""
    X, weights, residuals = start.rows
    spread = np.einsum("ni,ij,nj->n", X, np.linalg.inv(start.kappa * start.precision), X)
    each = SETTING.power * weights * (residuals**2 + spread) / NOISE**4 / len(X)
    return X.T @ (each[:, None] * X)


def free_energy_slope(start: Start) -> np.ndarray:
    """Of the evidence bound a row, in the mean and in the deviations, over the softplus that those go through."""
    widths = 1 / np.sqrt(start.kappa * np.diagonal(start.precision))
    slope = widths * (np.diagonal(start.hessian) + start.delta) - 1 / (start.kappa * widths)
    return np.concatenate([-start.pulled, -slope * -np.expm1(-widths)])  # d softplus(ρ) / dρ = 1 − e^{−s}


def of_descent(old: Any, new: Any) -> Any:
    return jnp.concatenate([flat(new.params[name]) - flat(old.params[name]) for name in ("mean", "raw")]) / SMALL


def of_group(old: Any, new: Any) -> Any:
    scales = jnp.log(flat(new.element.scale)) - jnp.log(flat(old.element.scale))
    return jnp.concatenate([flat(new.element.shift) - flat(old.element.shift), scales]) / SMALL


def by_group(start: Start) -> np.ndarray:
    """b moves by −a² κ times the gradient, log a by half of one less a² κ times the curvature."""
    variance = 1 / (start.kappa * np.diagonal(start.precision))
    curvature = np.diagonal(start.hessian) + start.delta
    return np.concatenate([-start.kappa * variance * start.pulled, (1 - start.kappa * variance * curvature) / 2])


def of_chain(old: Any, new: Any) -> Any:
    """The step, and its square by which it diffuses, both a unit of the rate."""
    moved = flat(new.position) - flat(old.position)
    return jnp.concatenate([moved, moved**2]) / CHAIN


CHAIN = 0.3  # a chain's step is what it is on average whatever its length


def langevin(start: Start) -> np.ndarray:
    return np.concatenate([-start.pulled, 2 / start.kappa + CHAIN * start.pulled**2])


plain: dict[str, Any] = {"b1": 0.0, "b2": 1.0 - SMALL, "hess_init": 1.0, "max_step": None}
by_backprop = bayes_by_backprop(optax.sgd(SMALL), factor=1.0)
descent: dict[str, Any] = {"moved": of_descent, "answer": free_energy_slope}
rows = {
    name: row("expected_step", name, algorithm, **extras)
    for name, algorithm, extras in (
        (
            "von",
            von(SMALL, Diagonal, MonteCarlo(1)),
            {"moved": of_rule, "answer": lambda s: newton_like(s, s.hessian), "bias": 2e-3},
        ),
        (
            "von, dense",
            von(SMALL, Dense, MonteCarlo(1)),
            {"moved": of_rule, "answer": lambda s: newton_like(s, s.hessian, dense=True), "bias": 2e-3},
        ),
        (
            "vogn",
            vogn(SMALL, **plain),
            {"moved": of_rule, "answer": lambda s: newton_like(s, squares(s)), "bias": 2e-3},
        ),
        (
            "ivon",
            ivon(SMALL, **plain),
            {"moved": of_rule, "answer": lambda s: newton_like(s, s.hessian), "bias": 5e-3, "sharp": 0.1},
        ),
        ("bayes_by_backprop", by_backprop, descent),
        ("local reparameterisation", replace(by_backprop, estimator=LocalReparameterisation()), descent),
        ("flipout", replace(by_backprop, estimator=Flipout()), descent),
        ("lie_group", lie_group(Affine(), SMALL, momentum=0.0), {"moved": of_group, "answer": by_group, "bias": 5e-3}),
        ("sgld", sgld(CHAIN, chains=1), {"moved": of_chain, "answer": langevin, "keys": 10 * KEYS}),
    )
}
for name in rows:
    for fault, told in (
        ("T inverted", lambda scales: replace(scales, temperature=1 / scales.temperature)),
        ("N twice", lambda scales: replace(scales, data_size=scales.data_size**2)),
        ("prior dropped", lambda scales: replace(scales, delta=1e-6)),
        ("power forgotten", lambda scales: replace(scales, power=1.0)),
    ):
        if name.startswith("von") and fault == "T inverted":
            continue  # a Hessian that is the same at every draw does not know how wide the belief is
        twin(rows[name], fault, "a_step_is_its_closed_form_on_average", rows[name].subject, told=told)
