"""Agreement of a posterior with a reference, in predictions and, where they are identified, in parameters."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.families import Draws
from lamu.posterior import Posterior
from lamu.predictives import Predictive
from lamu.scores.calibration import Estimate, difference
from lamu.scores.proper_scores import by_row, cdf_at, gauss_legendre, integrated, nll
from lamu.typing import Array, Inputs, Prediction, RandomKey, Targets

__all__ = [
    "Fidelity",
    "Moments",
    "agreement",
    "agreement_of_rows",
    "fidelity",
    "moments",
    "total_variation",
    "total_variation_of_rows",
    "wasserstein",
    "wasserstein_of_rows",
]


def agreement(pred: Prediction, reference: Prediction) -> float:
    r"""Returns the fraction of rows for which both predictions have the same most probable class.

    \[ \frac1N \sum_i \mathbf 1\Big[\arg\max_k p_{ik} = \arg\max_k p^{\mathrm{ref}}_{ik}\Big] \]

    (Izmailov et al. 2021.) Of equal probabilities the first class is taken.

    Args:
        pred: a prediction of classes, or of a binary target.
        reference: a prediction of the same rows.

    Returns:
        A fraction, 0 to 1; higher is closer.

    Raises:
        ValueError: if either is a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import agreement
        >>> one = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2]))
        >>> agreement(one, SimpleNamespace(support=TwoClasses(), mean=np.array([0.6, 0.7])))
        0.5
    """
    return float(np.mean(agreement_of_rows(pred, reference)))


def agreement_of_rows(pred: Prediction, reference: Prediction) -> np.ndarray:
    """Returns the share of a row's positions with the same most probable class, `[N]`; 1 or 0 for a single position."""
    p, q = _probabilities("agreement", pred, reference)
    return (np.argmax(p, axis=-1) == np.argmax(q, axis=-1)).reshape(len(p), -1).mean(axis=1)


def total_variation(pred: Prediction, reference: Prediction) -> float:
    r"""Returns the mean distance of two predictions' class probabilities in total variation.

    \[ \frac1N \sum_i \tfrac12 \sum_k \big| p_{ik} - p^{\mathrm{ref}}_{ik} \big| \]

    (Izmailov et al. 2021.)

    Args:
        pred: a prediction of classes, or of a binary target.
        reference: a prediction of the same rows.

    Returns:
        A difference of probabilities, 0 to 1; lower is closer.

    Raises:
        ValueError: if either is a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import total_variation
        >>> one = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2]))
        >>> round(total_variation(one, SimpleNamespace(support=TwoClasses(), mean=np.array([0.6, 0.7]))), 3)
        0.4
    """
    return float(np.mean(total_variation_of_rows(pred, reference)))


def total_variation_of_rows(pred: Prediction, reference: Prediction) -> np.ndarray:
    """Returns the mean distance in total variation over a row's positions, `[N]`."""
    p, q = _probabilities("total_variation", pred, reference)
    return (np.sum(np.abs(p - q), axis=-1) / 2).reshape(len(p), -1).mean(axis=1)


def _probabilities(score: str, pred: Prediction, reference: Prediction) -> tuple[np.ndarray, np.ndarray]:
    shapes = np.shape(pred.mean), np.shape(reference.mean)
    for given in (pred, reference):
        if not given.support.has_classes:
            raise ValueError(f"{score} is for classes, and a prediction of numbers was given")
    if shapes[0] != shapes[1]:
        raise ValueError(f"{score} compares predictions of the same rows, and these have the shapes {shapes}")
    if not shapes[0][0]:
        raise ValueError(f"{score} is an average over rows, and there are none; give at least one")
    own, other = (np.asarray(given.support.probabilities(np.asarray(given.mean, float))) for given in (pred, reference))
    return own, other


def wasserstein(pred: Prediction, reference: Prediction, panels: int = 64) -> float:
    r"""Returns the mean Wasserstein-1 distance of two predictions of a regression.

    \[ \frac1{NK} \sum_{ik} \int |F_{ik}(z) - F^{\mathrm{ref}}_{ik}(z)|\,dz \]

    the mean distance over which probability must be moved to turn one distribution into the other. The integral is
    computed by Gauss–Legendre, eight nodes in each of `panels` equal panels, over ten standard deviations about both
    means.

    Args:
        pred: a prediction of a regression, in memory.
        reference: a prediction of the same rows.
        panels: the number of panels, which resolve the distribution functions.

    Returns:
        A distance in the target's units; lower is closer.

    Raises:
        ValueError: if either is of classes, or the shapes differ.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive
        >>> from lamu.scores import wasserstein
        >>> one, two = (GaussianPredictive(jnp.full(1, c), jnp.ones((1, 1, 1)), jnp.ones(1)) for c in (0.0, 0.5))
        >>> round(wasserstein(one, two), 6)
        0.5
    """
    return float(np.mean(wasserstein_of_rows(pred, reference, panels)))


def wasserstein_of_rows(pred: Prediction, reference: Prediction, panels: int = 64) -> np.ndarray:
    """Returns each row's distance, the mean of its outputs', `[N]`, whose mean is `wasserstein`."""
    shapes = np.shape(pred.mean), np.shape(reference.mean)
    if pred.support.has_classes or reference.support.has_classes:
        raise ValueError(
            "wasserstein compares predictions of numbers, and one of these is of classes; take total_variation"
        )
    if shapes[0] != shapes[1] or not shapes[0][0]:
        raise ValueError(f"wasserstein compares predictions of the same rows, and these have the shapes {shapes}")
    ends = [
        (np.asarray(each.mean, float) - side * 10.0 * np.asarray(each.std, float))
        for side in (1, -1)
        for each in (pred, reference)
    ]
    lower, upper = np.minimum(ends[0], ends[1]), np.maximum(ends[2], ends[3])
    apart = lambda z: np.abs(np.subtract(*(np.asarray(_cdf_at(each, z), float) for each in (pred, reference))))
    return by_row(integrated(apart, *gauss_legendre(lower, upper - lower, 1.0, panels)))


def _cdf_at(pred: Prediction, points: np.ndarray) -> Array:
    """Returns F at many targets of every row, `[points, ...]`, in chunks of rows where the prediction is large."""
    z = jnp.asarray(points, pred.mean.dtype)
    if isinstance(pred, Predictive) and pred.deferred:
        return jnp.concatenate([cdf_at(part, z[:, rows]) for rows, part in pred.chunks()], axis=1)
    return cdf_at(pred, z)


_DRAWS = 4000  # give a mean to 1.6 % of a deviation


@dataclass(frozen=True)
class Moments:
    r"""Moments of a posterior's parameters compared with those of a reference, one number a coordinate.

    Attributes:
        names: the coordinates.
        shift: the error of the mean, in the reference's standard deviations.
        spread: the standard deviation divided by the reference's.
        mean_errors: the error of the mean, in standard errors of both posteriors' draws together.
        square_errors: the same for the mean square about the reference's mean.
        effective: the reference's effective number of draws; infinite where it does not consist of draws.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import Moments
        >>> one = np.ones(1)
        >>> str(Moments(("w",), 0.1 * one, one, 2.0 * one, -3.0 * one, 400.0 * one)).splitlines()[0]
        'moments of 1 parameters: mean off by at most 0.10 standard deviations (w), spread 1.00 to 1.00 of its own'
    """

    names: tuple[str, ...]
    shift: np.ndarray
    spread: np.ndarray
    mean_errors: np.ndarray
    square_errors: np.ndarray
    effective: np.ndarray

    @property
    def largest(self) -> float:
        """The largest error of a mean or a mean square, in standard errors."""
        return float(max(np.abs(self.mean_errors).max(), np.abs(self.square_errors).max()))

    @property
    def bound(self) -> float:
        """The bound that the largest error exceeds with probability 0.01 for exact moments (Bonferroni)."""
        from scipy.stats import norm

        return float(norm.ppf(1 - 0.01 / 2 / (2 * len(self.names))))

    def __str__(self) -> str:
        """Two lines: the errors, and whether they are significant."""
        worst = int(np.argmax(np.abs(self.shift)))
        verdict = "within" if self.largest <= self.bound else "beyond"
        return (
            f"moments of {len(self.names)} parameters: mean off by at most {abs(self.shift[worst]):.2f} standard "
            f"deviations ({self.names[worst]}), spread {self.spread.min():.2f} to {self.spread.max():.2f} of its own\n"
            f"largest error of a mean or a square: {self.largest:.1f} standard errors, {verdict} the 1 % bound of "
            f"{self.bound:.1f} (at least {self.effective.min():.0f} effective draws)"
        )


@dataclass(frozen=True)
class Fidelity:
    """Result of `fidelity`; attributes that do not apply are None.

    Attributes:
        agreement: the fraction of rows with the same most probable class.
        total_variation: the distance of the class probabilities, the mean over rows.
        wasserstein: the distance of the predicted distributions, the mean over rows, in the reference's standard
            deviations.
        level: the level of the regions.
        coverage: the probability of the posterior's regions under the reference, the mean over rows.
        own_coverage: the same for the reference's own regions: the level, except for the coarseness of sets.
        nll: the posterior's negative log likelihood minus the reference's, in nats a row, paired.
        moments: the moments of the parameters.

    Examples:
        >>> from lamu.scores import Estimate, Fidelity
        >>> found = Fidelity(agreement=Estimate(0.95, 0.01), total_variation=Estimate(0.074, 0.002))
        >>> print(found)
        agreement of labels          0.950 ± 0.010
        total variation              0.0740 ± 0.0020
    """

    agreement: Estimate | None = None
    total_variation: Estimate | None = None
    wasserstein: Estimate | None = None
    level: float = 0.9
    coverage: Estimate | None = None
    own_coverage: Estimate | None = None
    nll: Estimate | None = None
    moments: Moments | None = None

    def __str__(self) -> str:
        """One line for each figure."""
        regions = f"held by {self.level:.0%} regions"
        lines = [
            ("agreement of labels", self.agreement),
            ("total variation", self.total_variation),
            ("W1 (reference's std)", self.wasserstein),
            (regions, self.coverage),
            ("    by the reference's own", self.own_coverage),
            ("NLL less the reference's", self.nll),
        ]
        lines_with_values = [f"{name:28} {value}" for name, value in lines if value is not None]
        return "\n".join([*lines_with_values, *([str(self.moments)] if self.moments is not None else [])])


def fidelity(
    posterior: Posterior,
    reference: Posterior,
    x: Inputs = None,
    y: Targets = None,
    samples: int = 128,
    level: float = 0.9,
    key: RandomKey | None = None,
) -> Fidelity:
    r"""Compares a posterior with a reference, for instance long chains of the same model.

    Predictions at the inputs are compared row by row: agreement and total variation for classes (Izmailov et al. 2021);
    for regression the Wasserstein-1 distance \(\int |F - F_{\mathrm{ref}}|\,dy\) over the reference's standard
    deviation. The coverage is the probability of the posterior's intervals or sets under the reference, without
    targets. Each figure has its standard error over rows.

    Parameters are compared where they are identified: in a network that is linear in them, or a density
    (`lamu.LogDensity`). Units of a hidden layer may be permuted, so that their moments are meaningless; there `moments`
    is None. Errors of moments are in standard errors, with the effective number of draws of chains; from other beliefs
    4,000 draws are taken.

    Args:
        posterior: the posterior to judge.
        reference: the reference posterior, of a model with the same targets.
        x: inputs `[N, ...]` at which predictions are compared; None for a density, which has no predictions.
        y: targets, for the difference of log likelihoods.
        samples: draws a prediction; the total variation of two predictions is at least the noise of their draws.
        level: of the regions.
        key: for draws of the parameters; by default a fixed one.

    Returns:
        The figures, which print as a few lines.

    Raises:
        ValueError: if there is nothing to compare, or the tasks differ.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> point = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=20).posterior
        >>> found = lamu.scores.fidelity(point, exact, x)
        >>> 0.0 < found.wasserstein.value < 0.2
        True
    """
    supports = posterior.model.support, reference.model.support
    if supports[0] != supports[1]:
        raise ValueError(
            f"the posterior predicts {supports[0]} and the reference {supports[1]}; compare predictions of the same"
        )
    identified = posterior.model.identified and reference.model.identified
    moment_errors = moments(posterior, reference, key) if identified else None
    if x is None:
        if moment_errors is None:
            raise ValueError("there is nothing to compare: give x, inputs at which both predict")
        return Fidelity(level=level, moments=moment_errors)
    pred, other = posterior.predict(x, samples=samples), reference.predict(x, samples=samples)
    score = None if y is None else difference(nll, pred, other, y)
    if not pred.support.has_classes:
        distance = wasserstein_of_rows(pred, other) / by_row(np.asarray(other.std, float))
        covered, own = (_held(other, *(np.asarray(end) for end in each.interval(level))) for each in (pred, other))
        return Fidelity(None, None, _mean(distance), level, _mean(covered), _mean(own), score, moment_errors)
    p = np.asarray(other.probabilities, float)
    covered, own = (np.sum(p * np.asarray(each.prediction_set(level)), axis=1) for each in (pred, other))
    closeness = _mean(agreement_of_rows(pred, other)), _mean(total_variation_of_rows(pred, other))
    return Fidelity(*closeness, None, level, _mean(covered), _mean(own), score, moment_errors)


def moments(posterior: Posterior, reference: Posterior, key: RandomKey | None = None) -> Moments:
    """Compares moments of a posterior's parameters with those of a reference about the same parameters.

    Args:
        posterior: the posterior to judge.
        reference: the reference posterior.
        key: for draws from beliefs that do not consist of draws; by default a fixed one.

    Raises:
        ValueError: if the parameters of the two differ in names or shapes.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> bool(lamu.scores.moments(exact, exact).largest < 5.0)
        True
    """
    key = jax.random.key(0) if key is None else key
    (names, ours, own), (theirs_names, theirs, effective) = (
        _coordinates(each, jax.random.fold_in(key, i)) for i, each in enumerate((posterior, reference))
    )
    if names != theirs_names:
        raise ValueError(
            f"the posterior is about {len(names)} coordinates and the reference about {len(theirs_names)}, or their "
            "names differ; compare posteriors of one model"
        )
    centre, std = theirs.mean(axis=(0, 1)), theirs.std(axis=(0, 1))
    std = np.where(std > 0, std, 1.0)
    squares = [(part - centre) ** 2 for part in (ours, theirs)]
    return Moments(
        names,
        (ours.mean(axis=(0, 1)) - centre) / std,
        ours.std(axis=(0, 1)) / std,
        _errors((ours, own), (theirs, effective)),
        _errors((squares[0], _effective(squares[0], own)), (squares[1], _effective(squares[1], effective))),
        effective,
    )


def _coordinates(posterior: Posterior, key: RandomKey) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Returns names, draws `[chains, draws, D]`, and their effective number, `[D]`."""
    chains = isinstance(posterior.belief, Draws)
    drawn = (
        posterior.samples
        if chains
        else jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], posterior.sample(key, _DRAWS))
    )
    named = zip(tree.paths(drawn), jax.tree.leaves(drawn), strict=True)
    names: list[str] = []
    columns: list[np.ndarray] = []
    for path, leaf in named:
        values = np.asarray(leaf, float).reshape(*leaf.shape[:2], -1)
        names += [path if leaf.ndim == 2 else f"{path}[{j}]" for j in range(values.shape[2])]
        columns.append(values)
    values = np.concatenate(columns, axis=2)
    independent = np.full(values.shape[2], float(values.shape[0] * values.shape[1]))
    return tuple(names), values, _effective(values, None) if chains else independent


def _effective(values: np.ndarray, independent: np.ndarray | None) -> np.ndarray:
    """Returns the effective number of draws, `[D]`; the number of draws where they are independent."""
    from numpyro.diagnostics import effective_sample_size

    count = values.shape[0] * values.shape[1]
    if independent is not None and np.all(independent == count):
        return independent
    moving = np.ptp(values, axis=(0, 1)) > 0
    sizes = np.full(values.shape[2], float(count))
    sizes[moving] = np.clip(effective_sample_size(values[:, :, moving]), 1.0, count)
    return sizes


def _errors(ours: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns the difference of two means over the standard error of both, `[D]`; zero where nothing varies."""
    gap = ours[0].mean(axis=(0, 1)) - other[0].mean(axis=(0, 1))
    variance = sum(values.var(axis=(0, 1)) / count for values, count in (ours, other))
    return np.where(variance > 0, gap / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)


def _held(reference: Prediction, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Returns the probability of intervals under the reference, the mean over a row's outputs, `[N]`."""
    ends = (np.asarray(reference.cdf(jnp.asarray(end, reference.mean.dtype)), float) for end in (lower, upper))
    below, above = ends
    return by_row(above - below)


def _mean(rows: np.ndarray) -> Estimate:
    n = len(rows)
    return Estimate(float(np.mean(rows)), float(np.std(rows, ddof=1) / np.sqrt(n)) if n > 1 else float("nan"))
