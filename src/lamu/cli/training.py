"""`lamu fit`: from a table to a folder with a posterior, its scores, its predictions, and all settings."""

from __future__ import annotations

import inspect
import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import monitoring

from lamu import plots, store
from lamu.base.compiled_programs import compiled_folder
from lamu.cli.learning import Runs, default_algorithm, default_folds, default_settings, learner_for, model_for
from lamu.cli.output_dir import FORMAT, draft, keep_posterior, unfinished
from lamu.cli.predicting import columns, estimates, known_rows, predicted, score_explanations, score_rows
from lamu.cli.printing import append_csv, dump, show_document, show_line, show_notes, show_scores
from lamu.cli.recipes import build, find, parse
from lamu.cli.reporting import NAME, baselines, report_of_fit
from lamu.cli.request import Request
from lamu.cli.versions import package_versions
from lamu.convergence import Unconverged
from lamu.data import Arrays, Encoding
from lamu.data.arrays import UnscaledWeights
from lamu.data.leaks import leaks
from lamu.data.table import Table
from lamu.families import Gaussian
from lamu.families.products import factor_of
from lamu.plots.style import literal, shortened
from lamu.posterior import Posterior, default_samples
from lamu.predictives import Predictive
from lamu.protocol import Recipe
from lamu.rate import Annealed, PolynomialAverage
from lamu.report.effects import as_columns
from lamu.scores.calibration import Estimate, calibrated_gap
from lamu.scores.row_densities import elbo
from lamu.supports import value_of
from lamu.typing import Data, Document, Inputs, Options, Targets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CompileTime", "Stopwatch", "compile_time", "train"]

_ELBO_DRAWS = 32  # the default number of draws of a prediction; the standard error of the bound is printed with it


def train(
    request: Request,
    rows: tuple[Table, np.ndarray, np.ndarray],
    out: Path,
    algorithm: str | None = None,
    settings: tuple[str, ...] = (),
    as_json: bool = False,
    force: bool = False,
    resume: bool = False,
    report: bool = True,
    before: float = 0.0,
) -> None:
    """Fits a model to a table and writes the folder `out`; prints the scores on the test rows."""
    # `before`: the seconds since the command began, which include the reading of the table.
    watch = Stopwatch(before)
    recipe = find(default_algorithm() if algorithm is None else algorithm)
    chosen = {**(default_settings() if algorithm is None else {}), **parse(settings, recipe)}
    learner = build(recipe, chosen)
    if request.epochs is not None and (learner.traits.length is not None or learner.traits.batching == "once"):
        raise ValueError(f"--epochs is {request.epochs}, and {recipe.name} has a length of its own; leave --epochs out")
    table, train_rows, test_rows = rows
    table = replace(table, notes=(*table.notes, *leaks(table, train_rows, test_rows), *_censoring_notes(table)))
    encoding = table.encoding
    data = Arrays.of(table.data)
    # On the host: on a device, each gather and check would be compiled for every shape of table.
    on_host = {name: jax.tree.map(np.asarray, getattr(data, name)) for name in table.data}
    of = lambda rows: Arrays.of(jax.tree.map(lambda leaf: leaf[rows], on_host))
    training, test = of(train_rows), of(test_rows)
    learned_from = {name: jax.tree.map(np.asarray, getattr(training, name)) for name in on_host}
    x, y, weight = learned_from["x"], learned_from["y"], learned_from.get("weight")
    counts_of_test = np.asarray(test.weight, float)
    folds = default_folds(len(x), algorithm, training.groups) if request.folds is None else request.folds
    if folds and learner.traits.length is not None:
        raise ValueError(f"--folds {folds} makes no sense for the sampler {recipe.name}; leave it out")
    if request.likelihood is not None or not encoding.of_target:
        model_for(encoding, x, y, request.likelihood, algorithm)  # rejects unsuitable options first
    with (
        compile_time() as compiling,
        unfinished(out, _identity(request, algorithm, settings), resume, force) as place,
        ExitStack() as beside_the_fit,
    ):
        if not as_json:
            show_notes(table.notes)
            show_line(f"{_described(encoding)}; {len(train_rows):,} rows to learn from, {len(test_rows):,} held out")
            sys.stdout.flush()  # before minutes of work
        watch.lap("seconds_reading")
        chosen_likelihood = request.likelihood_for(encoding, learned_from, request.seed)
        model, needed = model_for(encoding, x, y, chosen_likelihood.name, algorithm, request.prior_scale, weight)
        loop = request.loop(learner, len(x), folds)
        runs = Runs(request, model, learner, recipe.name, len(x), folds, loop)
        way = learner_for(runs, encoding, chosen_likelihood.name, default=algorithm is None and not settings)
        calibrated = len(model.likelihood.support.scores) > 1  # angles have neither intervals nor sets
        report = report and calibrated and not encoding.of_target  # its baselines support neither trials nor censoring
        baseline_scores = None
        if report:
            plain = _with_medians(table, training, test, (train_rows, test_rows))
            counts = encoding.task == "regression" and model.likelihood.support.discrete
            seen = table.beside.get("exposure")
            exposure = None if seen is None else (seen[train_rows], seen[test_rows])
            baseline_scores = beside_the_fit.enter_context(
                baselines(*plain, encoding, counts, weight, exposure, training.groups)
            )
        if not as_json:
            if chosen_likelihood.why:
                show_line(chosen_likelihood.why)
            if needed:
                show_line(needed)
            show_line(way.plan)
            sys.stdout.flush()
        watch.lap("seconds_choosing")
        seconds_compiled = compiling.seconds
        with (
            _library_messages() if request.max_memory is not None and not as_json else nullcontext(),
            warnings.catch_warnings(),
        ):
            # With --max-memory, the library's own messages about memory are printed.
            warnings.simplefilter("ignore", Unconverged)  # printed below as a line
            options = {"checkpoint": place, "resume": resume, "progress": False if as_json else None}
            warnings.simplefilter("ignore", UnscaledWeights)  # one of the table's notes
            learned = way.learn(learned_from, request.seed, options)
        watch.lap("seconds")
        seconds, seconds_compiling = watch.parts["seconds"], compiling.seconds - seconds_compiled
        keep_posterior(learned.posterior, place)
        y_test, posterior = test.y, learned.posterior
        pred = predicted(posterior, table, test_rows, **request.prediction())
        convergence = posterior.convergence
        row_scores = score_rows(pred, y_test, encoding)
        scores = estimates(row_scores, counts_of_test, test.groups)
        noise = float(pred.monte_carlo_error(y_test))
        bound = _elbo(posterior, learned_from)
        watch.lap("seconds_scoring")
        metrics = {
            "task": encoding.task,
            "rows": {"train": len(train_rows), "test": len(test_rows)},
            "scores": {name: estimate.value for name, estimate in scores.items()},
            "standard_errors": {name: estimate.error for name, estimate in scores.items()},
            "monte_carlo_errors": {"nll": noise} | ({} if bound is None else {"elbo": bound.error}),
            "elbo": None if bound is None else bound.value - encoding.log_unit * float(np.sum(training.weight)),
            "temperature": learned.temperature,
            "convergence": None if convergence is None else convergence.describe(),
            "seconds_compiling": seconds_compiling,
            "programs": compiling.programs,
        }
        if "ece" in row_scores and not np.isnan(scores["ece"].value):
            confidence, correct = row_scores["ece"].T
            right = calibrated_gap(confidence, weight=counts_of_test, right=correct, groups=test.groups)
            metrics["ece_if_calibrated"] = right.value
        precision, samples = _precision(posterior), request.samples or _default_samples(posterior)
        if not as_json:  # before the figures, which take seconds
            show_line(
                f"{way.method_name} on {request.data}: {_described(encoding)}; "
                f"{len(train_rows)} rows fitted in {seconds:.1f} s"
            )
            if learned.told is not None:
                show_line(learned.told)
            show_line(_compilation(seconds_compiling))
            if precision is not None:
                show_line(f"a Gaussian about the weights, its precision {precision}")
            if learned.temperatures:
                chosen_by = f"chosen by training rows: {_temperature_list(learned.temperatures)}"
                show_line(f"temperature {learned.temperature:g}, {chosen_by}")
            if convergence is not None:
                show_line("converged" if convergence.converged else f"not converged: {convergence.complaint}")
            discrete = model.likelihood.support.discrete
            readings = score_explanations(row_scores, counts_of_test, test.groups, discrete)
            show_scores(f"{len(test_rows)} test rows", scores, readings)
            if bound is not None:
                show_line(f"elbo {metrics['elbo']:,.1f} ± {bound.error:.1g} nats, of the {len(x):,} rows learned from")
            if noise > 0.0:
                show_line(f"another {samples} draws would move nll by about {noise:.1g}; --samples takes more")
            sys.stdout.flush()
        predictions = columns(pred, table.numbers[test_rows], y_test, encoding, table.beside_of(test_rows))
        uncensored, shown, certain = test, pred, known_rows(y_test)
        if 0 < len(certain) < test.count:
            uncensored, shown = (
                test.take(certain),
                predicted(posterior, table, test_rows[certain], **request.prediction()),
            )
        watch.lap("seconds_scoring")
        figure = picture(shown, value_of(uncensored.y), encoding) if calibrated and len(certain) else None
        watch.lap("seconds_report")
        with draft(out, force) as folder:
            folder.mkdir(mode=0o755)
            posterior.save(folder / "posterior")
            config = {
                "format": FORMAT,
                **encoding.describe(),
                "algorithm": way.name,
                "settings": {} if learned.candidates else _written({**_defaults(recipe), **chosen}),
                **asdict(request),
                "target": encoding.target,
                "task": encoding.task,
                "likelihood": chosen_likelihood.name,
                "likelihoods_tried": {name: -mean for name, mean in chosen_likelihood.tried.items()},
                "folds": way.folds,
                "candidates": dict(learned.candidates),
                "candidates_nll": dict(learned.candidates_nll),
                **{name: way.loop.get(name) for name in ("epochs", "batch_size", "validation", "stop")},
                "samples": samples,
                "steps": learned.steps,
                "network": repr(posterior.model.network),
                "prior": repr(posterior.model.prior if learned.candidates else model.prior),
                "prior_as_used": repr(posterior.model.prior),
                "precision": precision,
                "temperature": learned.temperature,
                "temperatures_tried": {f"{temperature:g}": nll for temperature, nll in learned.temperatures.items()},
                "prior_scales_tried": {f"{scale:g}": nll + encoding.log_unit for scale, nll in learned.scales.items()},
                "standardised": True,
                "notes": list(table.notes),
                "posterior": store.fingerprint(folder / "posterior"),
                "table": table.fingerprint(),
                "rows": metrics["rows"],
                "versions": package_versions(),
            }
            (folder / "config.json").write_text(dump(config), encoding="utf-8")
            append_csv(folder / "predictions.csv", predictions)
            if figure is not None:
                figure.savefig(folder / "calibration.png")
            if baseline_scores is not None and figure is not None:
                watch.lap("seconds_writing")
                split = train_rows, test_rows
                page, effects = report_of_fit(
                    learned, pred, predictions, encoding, data, split, figure, config, seconds,
                    request.prediction(), out, baseline_scores.result(),
                )  # fmt: skip
                (folder / NAME).write_text(page, encoding="utf-8")
                if effects:
                    append_csv(folder / "effects.csv", as_columns(effects))
                    metrics["effects"] = {effect.name: effect.size for effect in effects}
                watch.lap("seconds_report")
            watch.lap("seconds_writing")
            metrics |= {**watch.parts, "seconds_total": watch.total}
            (folder / "metrics.json").write_text(dump(metrics), encoding="utf-8")
    if as_json:
        show_document({"out": str(out), "metrics": metrics, "config": config})
        return
    show_line(f"{watch.total:.1f} s in all, with reading, scores{' and report' if report else ''}")
    show_line(f"written to {out}" + (f"; {out / 'report.html'} shows it" if report else ""))


def _censoring_notes(table: Table) -> list[str]:
    """Returns the note that most rows are censored, as where the column marks the events instead."""
    column, of_target = dict(table.encoding.of_target).get("censored"), table.data["y"]
    if column is None:
        return []
    count, rows = int(np.sum(of_target["censored"])), len(table.x)
    if count <= rows / 2:
        return []
    note = f"of {rows} rows {count} are censored ({column} = 1); if 1 marks an event in {column!r}, give 1 - it"
    if count == rows:
        raise ValueError(f"{note}: without an event there is nothing to learn the times from")
    return [note]


def _elbo(posterior: Posterior, data: Data) -> Estimate | None:
    """Returns the bound of the log evidence with its standard error; None if the belief has no finite one."""
    try:
        bound = elbo(posterior, data, _ELBO_DRAWS)
    except TypeError:
        return None
    return bound if math.isfinite(bound.value) else None


def _with_medians(
    table: Table, training: Arrays, test: Arrays, rows: tuple[np.ndarray, np.ndarray]
) -> tuple[Inputs, Targets, Inputs]:
    """Returns training inputs, targets and test inputs for models that do not average over draws of missing entries."""
    if table.encoding.joint is None:
        return training.x, training.y, test.x
    plain = Arrays.of((table.with_medians().x, table.y))
    return plain.x[rows[0]], training.y, plain.x[rows[1]]


def _compilation(seconds: float) -> str:
    """Returns the share of compilation in the time, and the folder that keeps the compiled programs."""
    folder = compiled_folder()
    location = "" if folder is None else f"; programs are kept in {folder} (LAMU_CACHE=off keeps none)"
    return f"compilation took {seconds:.1f} s of that{location}"


def _identity(request: Request, algorithm: str | None, settings: tuple[str, ...]) -> Document:
    """Returns the options that must agree with those of an interrupted command to resume it."""
    choices = {**asdict(request), "algorithm": algorithm, "set": list(settings)}
    return {name: value for name, value in choices.items() if name != "max_memory"}


def _temperature_list(temperatures: Mapping[float, float]) -> str:
    return ", ".join(f"nll {nll:.3f} at {temperature:g}" for temperature, nll in temperatures.items())


@contextmanager
def _library_messages() -> Iterator[None]:
    """Prints the messages of the library while it runs."""
    logger, handler = logging.getLogger("lamu"), logging.StreamHandler(sys.stdout)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def picture(pred: Predictive, y: Targets, encoding: Encoding) -> Figure:
    """Returns the figure of calibration: a reliability or a coverage plot."""
    # matplotlib's notice that it searches for fonts, at its first use on a machine, is suppressed.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    if encoding.task == "regression":
        return plots.coverage(pred, y)[0].figure
    event = literal(shortened(f"{encoding.target} = {encoding.labels[1]}", 40)) if encoding.task == "binary" else None
    return plots.reliability(pred, y, event=event)[0].figure


def _precision(posterior: Posterior) -> str | None:
    """Returns the structure of a Gaussian's precision by the name of its operator; None for any other belief."""
    belief = posterior.belief
    gaussian = factor_of(belief, "network")
    return type(gaussian.precision).__name__ if isinstance(gaussian, Gaussian) else None


def _described(encoding: Encoding) -> str:
    if encoding.task == "regression":
        return f"regression of {encoding.target!r}"
    if encoding.task == "binary":
        return f"binary target {encoding.target!r} ({encoding.labels[1]!r} against {encoding.labels[0]!r})"
    return f"{len(encoding.labels)} classes of {encoding.target!r}"


def _defaults(recipe: Recipe) -> Options:
    """Returns the settings with their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(recipe.factory).parameters.items()
        if parameter.default is None
        or isinstance(parameter.default, bool | int | float | str | Annealed | PolynomialAverage)
    }


def _written(settings: Options) -> Options:
    return {name: _as_json(value) for name, value in settings.items()}


def _as_json(value: object) -> Any:
    """Returns a setting for JSON: objects as their representation in Python."""
    if isinstance(value, type):
        return value.__name__
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _default_samples(posterior: Posterior) -> int:
    given = inspect.signature(posterior.predict).parameters["samples"].default
    return default_samples(posterior.belief) if given is None else given


class CompileTime:
    """Seconds of tracing and compilation so far; for a program from the cache, only those of reading it."""

    # `programs`: the number compiled or read from the cache.

    def __init__(self) -> None:
        self.programs = 0
        self._spans: list[tuple[float, float]] = []  # disjoint, in order
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds in which at least one thread traced or compiled."""
        return sum((end - start for start, end in self._spans), 0.0)

    def add(self, event: str, duration_secs: float, **_: object) -> None:
        """Adds an event of JAX, if it is one of compilation."""
        if not event.startswith("/jax/core/compile/"):
            return
        with self._lock:
            end = time.perf_counter()  # events are reported when they end
            start = end - duration_secs
            while self._spans and self._spans[-1][1] > start:
                start = min(start, self._spans.pop()[0])
            self._spans.append((start, end))
            self.programs += event.endswith("backend_compile_duration")


@contextmanager
def compile_time() -> Iterator[CompileTime]:
    """Counts the seconds of compilation inside a `with` block."""
    spent = CompileTime()
    listener = spent.add
    monitoring.register_event_duration_secs_listener(listener)
    try:
        yield spent
    finally:
        monitoring.unregister_event_duration_listener(listener)


class Stopwatch:
    """Divides the time since its start among parts."""

    def __init__(self, before: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = clock() - before
        self.parts: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """Adds the time since the last call to a part."""
        now = self._clock()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """The seconds of all parts."""
        return sum(self.parts.values())
