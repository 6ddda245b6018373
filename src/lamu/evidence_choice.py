r"""Empirical Bayes: chooses prior scales, links, dispersions or other hyperparameters by the evidence.

\[ \psi^* = \arg\max_\psi p(y \mid x; \psi), \qquad
   p(y \mid x; \psi) = \int p(y \mid x, \theta; \psi)\, p(\theta; \psi)\, d\theta \]

The model is fitted for each ψ, and the evidence is that of the algorithm: exact (`conjugate`), Laplace's approximation
(`laplace`, of all weights or of a last layer), or a lower bound (any variational recipe). For the scales of the prior
alone, `laplace` with `LearnedNormal` and `lamu.algorithms.tuned` optimise at one mode, which costs less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.choose import Ask, all_of, choose, simplex
from lamu.data.batch import Batch, with_offset
from lamu.data.splits import folds_of, require_folds
from lamu.loop import fit
from lamu.model import Model
from lamu.one_layer import linear_model
from lamu.posterior import Posterior
from lamu.protocol import Algorithm
from lamu.running.conclusion import Diverged
from lamu.running.progress import SeveralRuns
from lamu.scores import Estimate, evidence
from lamu.typing import Array, Data, Inputs, Options, Params, Targets

__all__ = ["EvidenceFit", "compare_likelihoods", "fit_evidence", "log_probability"]

# Conventions, not tuned.
_FARTHEST = math.log(1e3)  # distance of a number from its start, in either direction
_TOLERANCE, _MOST = 1e-2, 60  # nats; fits for each combination of choices


@dataclass(frozen=True)
class EvidenceFit:
    """Result of `fit_evidence`.

    Attributes:
        posterior: the posterior of the greatest evidence.
        chosen: ψ*, by name.
        tried: every ψ tried with its log evidence, or bound, in nats; −∞ where the fit diverged.

    Examples:
        >>> from lamu.evidence_choice import EvidenceFit
        >>> from lamu.scores import Estimate
        >>> EvidenceFit(None, {"scale": 1.0}, (({"scale": 1.0}, Estimate(-3.0, 0.0)),)).evidence.value
        -3.0
    """

    posterior: Posterior | Any
    chosen: Options
    tried: tuple[tuple[Options, Estimate], ...]

    @property
    def evidence(self) -> Estimate:
        """The greatest log evidence, in nats, with its standard error where it is a bound estimated by draws."""
        return next(value for psi, value in self.tried if psi == self.chosen)


def fit_evidence(
    build: Callable[..., Model],
    data: Data,
    algorithm: Algorithm,
    *,
    choices: Mapping[str, Sequence[Any]] | None = None,
    numbers: Mapping[str, float] | None = None,
    seed: int = 0,
    **options: Any,
) -> EvidenceFit:
    r"""Fits a model for each ψ and returns the fit of the greatest evidence.

    Every combination of the `choices` is fitted. For each combination positive `numbers` are optimised in their
    logarithms by the method of Nelder & Mead, to a hundredth of a nat, with 60 fits at most.

    Args:
        build: a function of ψ, by name, that returns the model.
        data: as `lamu.fit` takes it.
        algorithm: the algorithm of each fit, whose posterior has an evidence or a lower bound of it.
        choices: for each name the values to compare, for instance `{"link": [Logit(), Probit()]}`.
        numbers: for each name a positive initial value, for instance `{"scale": 1.0}`; the search stays within a factor
            of a thousand of it.
        seed: of every run.
        **options: further options of `lamu.fit`, for instance `epochs`.

    Returns:
        The posterior, ψ*, and all ψ tried.

    Raises:
        ValueError: where there is nothing to choose, a number that is not positive and finite, a name given twice,
            likelihoods of which one is of whole numbers and another is not, or where every fit diverges.
        TypeError: for an algorithm whose posterior has neither evidence nor bound.

    Source: MacKay (1992), section 2.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> def build(link, scale):
        ...     likelihood, prior = lamu.likelihoods.Bernoulli(link), lamu.priors.Normal(scale)
        ...     return lamu.Model(lamu.networks.Linear(), likelihood, prior).standardised(x, y)
        >>> links = [lamu.likelihoods.links.Logit(), lamu.likelihoods.links.Probit()]
        >>> found = lamu.fit_evidence(
        ...     build, (x, y), lamu.algorithms.laplace(), choices={"link": links, "scale": [0.3, 3.0]}, epochs=20
        ... )
        >>> found.chosen["scale"], len(found.tried)
        (3.0, 4)
    """
    choices, numbers = dict(choices or {}), dict(numbers or {})
    _require(choices, numbers)
    combinations = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    tried: list[tuple[Options, Estimate]] = []
    best: tuple[float, Posterior | None, Options] = (-math.inf, None, {})
    discrete: set[bool] = set()

    def loss(candidate: tuple[int, tuple[float, ...]]) -> float:
        nonlocal best
        combination, logs = candidate
        psi = combinations[combination] | {name: math.exp(log) for name, log in zip(numbers, logs, strict=True)}
        model = build(**psi)
        discrete.add(model.likelihood.support.discrete)
        if len(discrete) > 1:
            raise ValueError(
                f"of {psi} targets are {model.likelihood.support.values}, and others were of another kind: a density "
                "and a mass do not compare; use lamu.compare_likelihoods"
            )
        tried.append((psi, Estimate(-math.inf, 0.0)))
        posterior = fit(model, data, algorithm, seed=seed, **options).posterior
        value = evidence(posterior, data)
        tried[-1] = psi, value
        if value.value > best[0]:
            best = value.value, posterior, psi
        return -value.value

    def climbs(ask: Ask) -> None:
        # The first simplex has factors of two, about the uncertainty of a first guess of the scale.
        logs = [math.log(number) for number in numbers.values()]
        bounds = [(log - _FARTHEST, log + _FARTHEST) for log in logs]
        for each in range(len(combinations)):
            bar.pass_over(each * _MOST)
            of_point = lambda point, each=each: ask((each, point))
            simplex(of_point, logs, [math.log(2.0)] * len(logs), bounds, fatol=_TOLERANCE, xatol=0.05, maxfev=_MOST)

    runs, shown = len(combinations) * (_MOST if numbers else 1), options.get("progress")
    with SeveralRuns(runs, shown, "evidence", at_most=bool(numbers)) as bar:
        if numbers:
            choose(loss, climbs, failure=Diverged)
        else:
            choose(loss, all_of, [(each, ()) for each in range(len(combinations))], failure=Diverged)
    _, posterior, chosen = best
    if posterior is None:
        raise ValueError("no evidence is a finite number; train longer, or begin with other numbers")
    return EvidenceFit(posterior, chosen, tuple(tried))


def _require(choices: Mapping[str, Sequence[object]], numbers: Mapping[str, float]) -> None:
    if not choices and not numbers:
        raise ValueError('there is nothing to choose; give choices={"link": [...]} or numbers={"scale": 1.0}')
    for name, values in choices.items():
        if len(values) == 0:
            raise ValueError(f"the choice {name!r} has no value; give one or more")
        if name in numbers:
            raise ValueError(f"{name!r} is a choice and a number; give it once")
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise ValueError(f"the number {name}={value!r} is not positive and finite; give a first guess above 0")


def compare_likelihoods(
    x: Inputs,
    y: Targets,
    candidates: Sequence[Any],
    folds: int = 3,
    seed: int = 0,
    weight: object = None,
    offset: object = None,
    groups: object = None,
) -> dict[str, np.ndarray]:
    """Returns the held-out log density of every row, `[N]` in nats, by the name of the candidate likelihood.

    Each is the model of `lamu.regression` at its mode, weights and dispersions together, fitted to the rows of the
    other folds. Compare paired differences: the mean of `found[a] - found[b]` and its standard error.

    Args:
        x: columns of numbers, `[N, D]`.
        y: targets, `[N]`, or arrays by name.
        candidates: names, as for `lamu fit --likelihood`, or likelihoods, all of this target.
        folds: the number of parts that the rows are split into.
        seed: of the folds.
        weight: the weight of each row in the fits, `[N]`; ones where None. The returned log densities are not weighted.
        offset: a known part of the linear predictor, as in the data of `lamu.fit`.
        groups: the group of each row, `[N]`, whose rows are all in one part; None if rows are independent.

    Raises:
        ValueError: for an unknown name, targets outside a candidate's support, fewer than two folds, or fewer groups
            than folds.

    Examples:
        >>> import lamu, numpy as np
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(300, 1))
        >>> y = random.negative_binomial(1, 1 / (1 + np.exp(1 + x[:, 0])))
        >>> found = lamu.compare_likelihoods(x, y, ["poisson", "negative_binomial", "gaussian"])
        >>> max(found, key=lambda name: found[name].mean())
        'negative_binomial'
    """
    require_folds(folds, len(x), groups)
    models = {_name(each): linear_model(x, y, each, weight=weight, offset=offset) for each in candidates}
    any_discrete = any(model.likelihood.support.discrete for model in models.values())
    parts = folds_of(np.arange(len(x)), folds, seed, stratify=False, groups=groups)
    rows = {"x": x, "y": y, "weight": weight, "offset": offset}
    data = {name: values for name, values in rows.items() if values is not None}
    return {name: _held_out(model, data, parts, any_discrete) for name, model in models.items()}


def log_probability(likelihood: Any, params: Params, f: Array, y: Targets, whole: bool) -> Array:
    """Returns the log density of each row, `[batch]` in nats; for whole numbers the log probability of a unit interval.

    Args:
        likelihood: p(y | f).
        params: its dispersions.
        f: the outputs, `[batch, outputs]`.
        y: the targets.
        whole: whether the targets are whole numbers.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.evidence_choice import log_probability
        >>> from lamu.likelihoods import Gaussian
        >>> log_probability(Gaussian(1.0), {}, jnp.zeros((1, 1)), jnp.zeros(1), whole=True).round(4).tolist()
        [-0.959...]
    """
    if whole and not likelihood.support.discrete:
        y = jnp.asarray(y).astype(f.dtype)
        return likelihood.log_interval(params, f, y - 0.5, y + 0.5)
    return likelihood.log_prob(params, f, y)


def _held_out(model: Model, data: Data, parts: Sequence[np.ndarray], whole: bool) -> np.ndarray:
    """Returns the log density of every row under the mode fitted to the other folds."""
    from scipy.optimize import minimize

    rows: Any = model.read(data)
    batch: Batch = rows.full()
    params, state = model.init(jax.random.key(0), batch)
    start, unravel = tree.ravel({**params, "network": tree.zeros_like(params["network"])})

    @jax.jit
    @jax.value_and_grad
    def loss(flat: Array, weights: Array) -> Array:
        params = unravel(flat)
        log_likelihood = model.log_likelihood(params, state, batch)[0]
        return -(jnp.sum(weights * log_likelihood) + model.log_prior(params)) / jnp.sum(weights)

    def at(flat: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss(jnp.asarray(flat, start.dtype), jnp.asarray(weights, start.dtype))
        return float(value), np.asarray(slope, float)

    @jax.jit
    def densities(flat: Array) -> Array:
        params = unravel(flat)
        f = with_offset(model.outputs(params, state, batch.x)[0], batch.offset)
        return log_probability(model.likelihood, params["likelihood"], f, batch.y, whole)

    log_densities = np.zeros(rows.count)
    for fold in parts:
        weights = np.array(batch.weight, float)
        weights[fold] = 0.0
        mode: Any = minimize(at, np.asarray(start, float), args=(weights,), jac=True, method="L-BFGS-B")
        log_densities[fold] = np.asarray(densities(jnp.asarray(mode.x, start.dtype)), float)[fold]
    return log_densities


def _name(candidate: Any) -> str:
    return candidate if isinstance(candidate, str) else candidate.name
