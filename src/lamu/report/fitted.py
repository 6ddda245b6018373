"""The report of `lamu fit`: model, scores, calibration, convergence and recommendations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lamu.data import Encoding
from lamu.data.wording import figure, plural
from lamu.networks import Standardised
from lamu.plots import risk_coverage, training_curve, validation_curve
from lamu.plots.style import percent
from lamu.report.effects import Effect, draw, effects
from lamu.report.page import Markup, Section, element, join, page, paragraph, picture, table
from lamu.scores import Estimate
from lamu.scores.calibration import calibrated_gap, confidence_and_correctness, in_words, verdict
from lamu.typing import Inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FittedRun", "advice", "epistemic_share", "fit_report"]


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
    discrete: bool = False,
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
        narrow, other = coverage.value < level, "negative_binomial" if discrete else "student_t or heteroscedastic"
        if narrow or not discrete:  # intervals of counts end at whole numbers, and hold the level or more
            sentences.append(
                f"The {percent(level)} % intervals hold {percent(coverage.value)} % of the targets: they are too "
                f"{'narrow' if narrow else 'wide'}. Try --likelihood {other}, or calibrate the intervals "
                "(lamu.calibration)."
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


_ROWS = 8  # in a table of rows
_MOST_EFFECTS = 8
_MOST_FEATURES = 4  # features shown of a row
_SURE = 2.0  # standard errors
_UNWEIGHTED = " The pictures of this page show rows, each once; the scores count them by their weights."
_ROUNDING = 1e-5  # of float32, relative


@dataclass(frozen=True)
class FittedRun:
    """The contents of a report."""

    posterior: Any
    pred: Any  # its prediction of the test rows
    predictions: Mapping[str, np.ndarray]  # the same as named columns, as in predictions.csv
    encoding: Encoding  # the encoding of the columns and the target
    x: Any  # the inputs of all rows
    train: np.ndarray  # the numbers of the training rows
    test: np.ndarray  # the numbers of the test rows
    y_test: Any  # the test targets
    histories: Sequence[Mapping[str, np.ndarray]]  # the history of each run of the posterior
    # The scores of the model and of each baseline by name, with the model first.
    scores: Mapping[str, Mapping[str, Estimate]]
    differences: Mapping[str, Estimate]  # by baseline, the paired difference of its nll and the model's
    meaning: Mapping[str, str]  # by score, its interpretation
    level: float  # the probability of the intervals
    calibration: Figure  # a figure
    convergence: Any  # the distance to a fixed point; None if not measured
    config: Mapping[str, Any]  # given and chosen options, as in config.json
    seconds: float  # the duration of the fit, with compilation
    prediction: Mapping[str, Any]  # the options of a prediction
    out: str  # the folder, as given to the command
    weight: np.ndarray | None = None  # the weight of each test row; ones where None
    groups: np.ndarray | None = None  # the group of each test row; None where rows are independent

    @property
    def name(self) -> str:
        """The name of the model in tables with the baselines: its algorithm."""
        return next(iter(self.scores))

    @cached_property
    def effects(self) -> list[Effect]:
        """The effect of each feature, the largest first."""
        x, seed = self.x[self.train], int(self.config["seed"])
        return effects(self.posterior, x, self.encoding, seed, **self.prediction)


def fit_report(run: FittedRun) -> str:
    """Returns the report of a fitted model as the text of an HTML file."""
    config = run.config
    sections = [
        Section("fitted", "What was fitted", _fitted(run)),
        Section("scores", "How well it predicts", _scored(run)),
        Section("calibration", "Whether its uncertainty is right", _calibrated(run)),
        Section("convergence", "Whether it has converged", _converged(run)),
        Section("rows", "The most uncertain and the worst rows", _rows(run, run.effects)),
        Section("effects", "The effect of each feature", _effects(run, run.effects)),
        Section("next", "What to do next", [element("ul", *(element("li", sentence) for sentence in _next(run)))]),
    ]
    versions = ", ".join(f"{name} {number}" for name, number in config["versions"].items())
    return page(f"{config['target']} of {config['data']}", _summary(run), sections, f"Made by {versions}.")


def _summary(run: FittedRun) -> Markup:
    """Returns a paragraph with the first score, and whether it is better than the best baseline's."""
    score, estimate = next(iter(run.scores[run.name].items()))
    best = min(run.differences, key=lambda name: run.differences[name].value)
    return paragraph(
        f"{run.name} has {score} {estimate} on {len(run.test):,} rows that it has not seen ({run.meaning[score]}). ",
        _verdict(best, run.differences[best]),
    )


def _verdict(name: str, difference: Estimate) -> str:
    """Returns whether the model predicts better than a baseline, by the paired difference of the nll."""
    by = f"by {Estimate(abs(difference.value), difference.error)} nats a row"
    if difference.value > _SURE * difference.error:
        return f"It predicts better than the best of the baselines, the {name}, {by}."
    if difference.value < -_SURE * difference.error:
        return f"The {name} predicts better, {by}."
    return f"These rows do not tell it from the {name} (nll differs {by})."


def _fitted(run: FittedRun) -> list[Markup]:
    config, encoding = run.config, run.encoding
    words = sum(bool(levels) for levels in encoding.levels)
    kinds = {
        "regression": "regression",
        "binary": f"two classes; probabilities are of {encoding.labels[1]}" if encoding.task == "binary" else "",
        "classes": f"{len(encoding.labels)} classes",
    }
    folds = config["folds"]
    candidates = [f"{weight:.2f} {name}" for name, weight in _by_weight(config["candidates"]) if weight >= 0.005]
    ensemble = f", {'weights' if candidates else 'an ensemble'} over {folds} folds" if folds else ""
    facts = {
        "Data": f"{config['data']}: {len(run.train):,} rows to learn from, {len(run.test):,} held out for the scores",
        "Target": f"{config['target']}: {kinds[encoding.task]}",
        "Exposure": encoding.exposure or "",
        "Weight of a row": dict(encoding.beside).get("weight", ""),
        "Groups": dict(encoding.beside).get("groups", ""),
        "Time of a row": dict(encoding.beside).get("time", ""),
        "Features": f"{len(encoding.columns) - words} of numbers, {words} of words",
        "Algorithm": f"{'stacked candidates' if candidates else config['algorithm']}{ensemble}",
        "Candidates": "; ".join(candidates),
        "Settings": ", ".join(f"{name}={value}" for name, value in config["settings"].items() if value is not None),
        "Network": "" if candidates else _network(run.posterior.model.network),
        "Likelihood": config["likelihood"] or run.posterior.model.likelihood.name,
        "Prior": "" if candidates else config["prior_as_used"],
        "Temperature": f"{config['temperature']:g}",
        "Seed": config["seed"],
        "Time": f"{run.seconds:.1f} s, {config['steps']:,} steps",
    }
    pairs = [
        part for name, value in facts.items() if value != "" for part in (element("dt", name), element("dd", value))
    ]
    notes = [element("li", note) for note in config["notes"]]
    return [element("dl", *pairs), *([element("h3", "Notes"), element("ul", *notes)] if notes else [])]


def _by_weight(candidates: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(candidates.items(), key=lambda pair: -pair[1])


def _network(network: object) -> str:
    """Returns the network without the standardisation of its inputs."""
    return f"{network.base!r}, its inputs standardised" if isinstance(network, Standardised) else repr(network)


def _scored(run: FittedRun) -> list[Markup]:
    names = list(run.scores[run.name])
    heads = ("model", *names, f"nll − {run.name}'s")
    rows = [
        (model, *(in_words(name, estimates[name]) for name in names), _signed(run.differences.get(model)))
        for model, estimates in run.scores.items()
    ]
    meanings = element("ul", *(element("li", f"{name}: {run.meaning[name]}") for name in names))
    return [
        table(f"Scores of {len(run.test):,} test rows ± one standard error", heads, rows),
        meanings,
        paragraph(
            f"The baselines are scikit-learn's with their default settings ({_baselines(run)}. Differences are taken "
            "row by row: above zero, the baseline is worse.",
            class_="aside",
        ),
    ]


def _baselines(run: FittedRun) -> str:
    """Returns descriptions of the baselines' models and noise."""
    if run.encoding.task != "regression":
        return (
            "histogram gradient boosting; a logistic model; the frequencies), fitted to the same training rows; their "
            "probabilities are as they predict them"
        )
    if run.pred.support.discrete:
        return (
            "histogram gradient boosting and a linear model, both of Poisson's loss; the mean), fitted to the same "
            "training rows. The targets are counts, and each baseline is negative binomial about its mean, with the "
            "concentration that makes training rows held out most probable"
        )
    return (
        "histogram gradient boosting; a linear model; the mean), fitted to the same training rows. Each has normal "
        "noise as wide as its errors on training rows held out"
    )


def _signed(difference: Estimate | None) -> str:
    if difference is None:
        return "-"
    return str(difference) if difference.value < 0 else f"+{difference}"


def _calibrated(run: FittedRun) -> list[Markup]:
    scores = run.scores[run.name]
    if "coverage" in scores:
        says = f"Intervals of {percent(run.level)} % hold {percent(scores['coverage'].value)} % of the test targets."
        shown = "coverage of central intervals against their level, and the histogram of the targets' ranks"
    else:
        says = _calibration_error(run)
        shown = "frequencies against predicted probabilities, with the number of rows in each bin"
    return [
        paragraph(says),
        picture("calibration", run.calibration, shown, "Points or curves inside the pale range are as calibrated "
                f"predictions would be.{_UNWEIGHTED * ('weight' in dict(run.encoding.beside))}"),
        *_risk(run),
    ]  # fmt: skip


def _calibration_error(run: FittedRun) -> str:
    error, rows = run.scores[run.name]["ece"], len(run.test)
    if np.isnan(error.value):
        return f"{rows} test rows are too few to tell whether the probabilities are right."
    conclusion = verdict(error, _right_error(run), rows)
    return f"Predicted probabilities differ from frequencies by {error} on average (ECE); {conclusion}."


def _right_error(run: FittedRun) -> Estimate:
    """Returns the expected calibration error of the predicted probabilities if they were calibrated."""
    confidence, right = confidence_and_correctness(run.pred, run.y_test).T
    return calibrated_gap(confidence, weight=run.weight, right=right, groups=run.groups)


def _ranks_rows(run: FittedRun) -> bool:
    """Returns whether the uncertainty differs between rows, beyond rounding."""
    total = np.asarray(run.pred.total, float)
    return bool(np.ptp(total) > _ROUNDING * np.abs(total).max())


def _risk(run: FittedRun) -> list[Markup]:
    if not _ranks_rows(run):
        return [paragraph("The prediction is equally uncertain about all rows, so it cannot say which to refer.")]
    return [
        paragraph("If the most uncertain rows are referred to an expert, the rows that are kept have this error:"),
        picture(
            "risk", risk_coverage(run.pred, run.y_test).figure, "error of the rows kept against their share",
            "The dashed line is the error of all rows.",
        ),
    ]  # fmt: skip


def _converged(run: FittedRun) -> list[Markup]:
    convergence = run.convergence
    if convergence is None and run.config["candidates"]:
        return _stopped(run)
    if convergence is None:
        conclusion = "Distance from the fixed point of the rule was not measured for this kind of posterior."
    elif convergence.converged:
        conclusion = "The run has converged: the rule would no longer move the belief beyond its limits."
    elif convergence.at_fixed_point:
        conclusion = f"The run has converged, and the belief is not the posterior: {convergence.complaint}."
    else:
        conclusion = f"The run has not converged: {convergence.complaint}."
    steps = [history for history in run.histories if len(history["loss"]) > 1]
    if not steps:
        return [paragraph(conclusion)]
    shown = [paragraph(conclusion), picture("training", training_curve(steps).figure, "loss of the steps")]
    if any("validation_nll" in history for history in steps):
        shown.append(picture("validation", validation_curve(steps).figure, "negative log density of rows set aside"))
    about = "The loss of a step is that of its batch of training rows and of the prior, in the units of the model."
    return [*shown, paragraph(about, class_="aside")]


def _stopped(run: FittedRun) -> list[Markup]:
    """Returns the table of candidates, which have no fixed point: weights and held-out scores."""
    config = run.config
    rows = [
        (name, f"{weight:.2f}", f"{config['candidates_nll'][name]:.3f}")
        for name, weight in _by_weight(config["candidates"])
    ]
    return [
        paragraph(
            f"Each candidate took {config['steps']:,} steps over each fold, at a rate that falls to zero, and is kept "
            "as it was where it predicts the rows of that fold best; a network of pieces that the mixture did not need "
            "for the rows of the first fold stopped there, without a weight. Such weights are not a fixed point of a "
            "rule, and have no distance from one; held-out rows decide how much each candidate counts."
        ),
        table("Candidates over the folds", ("candidate", "weight", "held-out nll"), rows),
    ]


def _rows(run: FittedRun, effects: Sequence[Effect]) -> list[Markup]:
    uncertain = np.argsort(-np.asarray(run.pred.total, float), kind="stable")[:_ROWS]
    worst = np.argsort(run.predictions["log_prob"], kind="stable")[:_ROWS]
    named = [effect.name for effect in effects[:_MOST_FEATURES]] or list(run.encoding.columns[:_MOST_FEATURES])
    return [
        paragraph("Rows are counted from 0 in the data. The features shown are those of the largest effect."),
        *([_table_of_rows("Predicted with the largest uncertainty", run, uncertain, named)] * _ranks_rows(run)),
        _table_of_rows("Targets that the prediction held least probable", run, worst, named),
    ]


def _table_of_rows(caption: str, run: FittedRun, chosen: np.ndarray, named: Sequence[str]) -> Markup:
    names = [name for name in run.predictions if name not in ("row", "target", "log_prob") and name[:2] != "p_"]
    certain = None
    if run.encoding.task != "regression":
        certain = np.asarray(run.pred.probabilities).max(axis=1)
    heads = ["row", "target", *names, *(["probability"] if certain is not None else []), "log density", *named]
    rows = []
    for index in chosen:
        cells = [run.predictions["row"][index], *(figure(run.predictions[name][index]) for name in ("target", *names))]
        if certain is not None:
            cells.append(f"{certain[index]:.2f}")
        x = run.x[run.test[index]]
        features = [_value(run.encoding, run.encoding.columns.index(name), x) for name in named]
        rows.append([*cells, f"{run.predictions['log_prob'][index]:.2f}", *features])
    return table(caption, heads, rows)


def _value(encoding: Encoding, column: int, x: Inputs) -> str:
    """Returns a feature of a row in the table's form."""
    levels, value = encoding.levels[column], float(x[column])
    if levels:
        return ("(unknown)", *levels)[int(value)]
    origin, unit = encoding.origin_and_unit(encoding.columns[column])
    return f"{origin + unit * value:.6g}"


def _effects(run: FittedRun, effects: Sequence[Effect]) -> list[Markup]:
    if not effects:
        return [paragraph("The table has too many columns, or none that varies.")]
    target = str(run.encoding.target)
    what = target if run.encoding.task == "regression" else f"P({target} = {run.encoding.labels[-1]})"
    shown = effects[:_MOST_EFFECTS]
    pictures = [
        picture(f"effect{k}", draw(effect, what, legend=k == 0), f"mean prediction against {effect.name}")
        for k, effect in enumerate(shown)
    ]
    rest = len(effects) - len(shown)
    more = f" Not shown: {rest} {plural('feature', rest)} of smaller effect." if rest > 0 else ""
    bands = " Bands hold 90 % of the belief about the mean." if any(effect.deviation.any() for effect in shown) else ""
    named = " The first picture names the curves." if len(shown) > 1 and len(shown[0].curves) > 1 else ""
    return [
        paragraph(
            "The mean prediction of some training rows in which one feature is set to each value and the others stay "
            f"as they are, the largest change first.{bands}{named}{more}"
        ),
        element("div", join(pictures), class_="panels"),
        paragraph("These are effects on the prediction, not causes of the target.", class_="aside"),
    ]


def _next(run: FittedRun) -> list[str]:
    config = run.config
    return advice(
        run.scores[run.name],
        run.differences,
        run.level,
        None if run.convergence is None else run.convergence.converged,
        epistemic_share(run.pred),
        len(run.test),
        _right_error(run) if "ece" in run.scores[run.name] else None,
        {"data": config["data"], "target": config["target"], "algorithm": config["algorithm"], "out": run.out},
        run.pred.support.discrete,
    )
