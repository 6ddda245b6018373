"""Recommendations after a fit, each with a command or option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu.plots.style import percent
from lamu.scores import Estimate

__all__ = ["advice", "epistemic_share"]

_SURE = 2.0  # standard errors
_FEW_TEST_ROWS = 100
_LARGE_SHARE = 0.25
_NONE = 1e-9  # the largest share that is a rounding error


def advice(
    scores: Mapping[str, Estimate],
    differences: Mapping[str, Estimate],
    level: float,
    converged: bool | None,
    epistemic_share: float,
    test_rows: int,
    ece_if_calibrated: Estimate | None,
    words: Mapping[str, str],
) -> list[str]:
    """Returns the recommendations, the most important first."""
    # `ece_if_calibrated`: the expected calibration error of the same probabilities if they were calibrated.
    sentences = []
    if converged is False:
        sentences.append(
            "The run has not converged: give it more --epochs, or leave --epochs out and let it run to its end."
        )
    for name, difference in differences.items():
        if difference.value < -_SURE * difference.error:
            sentences.append(
                f"The {name} predicts these rows better by {_nats(-difference.value)} a row. Compare algorithms "
                f"(lamu compare {words['data']} --target {words['target']} --algorithms default,{words['algorithm']}), "
                "or look for features that the network sees badly: skewed numbers, rare words."
            )
            break
    coverage = scores.get("coverage")
    if coverage is not None and abs(coverage.value - level) > _SURE * max(coverage.error, 1 / max(test_rows, 1)):
        narrow = coverage.value < level
        sentences.append(
            f"The {percent(level)} % intervals hold {percent(coverage.value)} % of the targets: they are too "
            f"{'narrow' if narrow else 'wide'}. Try --likelihood student_t or heteroscedastic, or calibrate the "
            "intervals (lamu.calibration)."
        )
    ece = scores.get("ece")
    right = ece_if_calibrated
    if ece is not None and right is not None and ece.value > right.value + _SURE * right.error:
        sentences.append(
            f"The probabilities are off by {ece.value:.2f} on average, where right ones would be by {right.value:.2f}: "
            "calibrate them (lamu.calibration), or let training rows choose the temperature by leaving --temperature "
            "out."
        )
    if epistemic_share <= _NONE:
        sentences.append(
            "The posterior is one point, so this report cannot tell whether more rows would help: fit a posterior "
            f"with a spread (lamu fit {words['data']} --target {words['target']} --algorithm laplace --out laplace)."
        )
    elif epistemic_share > _LARGE_SHARE:
        sentences.append(
            f"{100 * epistemic_share:.0f} % of the predictive uncertainty is about the weights: more rows like these "
            "would reduce it."
        )
    else:
        sentences.append(
            f"{100 * (1 - epistemic_share):.0f} % of the predictive uncertainty is noise to this model: the target's "
            "own, or what the model cannot follow. More rows would help if fewer predict worse "
            f"(lamu fit {words['data']} --target {words['target']} --test-size 0.6 --out fewer); further features "
            "might."
        )
    if test_rows < _FEW_TEST_ROWS:
        sentences.append(
            f"{test_rows} test rows leave wide errors: lamu compare --splits 10 repeats the comparison on other splits."
        )
    sentences.append(f"Predict new rows with lamu predict {words['out']} FILE.csv.")
    return sentences


def epistemic_share(pred: Any) -> float:
    """Returns the epistemic share of the predictive uncertainty, as the ratio of the sums over rows."""
    total = float(np.sum(np.asarray(pred.total, float)))
    return float(np.sum(np.asarray(pred.epistemic, float))) / total if total > 0.0 else 0.0


def _nats(value: float) -> str:
    return f"{value:.3g} nats"
