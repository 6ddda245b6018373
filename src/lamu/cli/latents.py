"""`lamu fit --model`: a table without a target, and `lamu predict` and `lamu impute` for its folder."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lamu import store
from lamu.base import choose as search
from lamu.cli.output_dir import (
    FORMAT,
    altered,
    draft,
    keep_posterior,
    load_posterior,
    read_config,
    refuse_existing,
    refuse_unwritable,
    unfinished,
)
from lamu.cli.printing import append_csv, dump, show_document, show_line, show_notes, show_table
from lamu.cli.recipes import whole_settings
from lamu.cli.request import Request
from lamu.cli.row_models import MODELS, RowModel, for_rows, reference_log_probs
from lamu.cli.versions import package_versions
from lamu.convergence import Unconverged
from lamu.data import Encoding
from lamu.data.table import match_columns, read_columns
from lamu.data.wording import DataError, listed, nearest
from lamu.latent import Columns
from lamu.latent.columns import kind_of
from lamu.loop import fit
from lamu.posterior import Posterior
from lamu.report.rows import FittedRows, average, kinds_told, latents_figure, rows_report
from lamu.running.conclusion import Fit
from lamu.typing import Document, Options

__all__ = ["impute_rows", "predict_rows", "train_rows"]

MOST_ROWS = 20  # rows that are printed
# With 10,000 steps rows held out are .05 to 1 nat more probable than with 3,000 on five tables of six (wine, diabetes,
# penguins, nmes1988, mroz; breast_cancer is level, seed 1 of the split), for a second or two.
_STEPS, _BATCH, _SAMPLES, _DRAWS = 10_000, 64, 100, 200
_VALIDATION, _FEWEST_TO_VALIDATE = 0.1, 50
_SHARE = "give a share between 0 and 1, for instance 0.2"


@dataclass(frozen=True)
class _SplitRows:
    """A table without a target, split."""

    columns: Columns  # scaled by the training rows
    values: np.ndarray  # `[rows, columns]`
    train: np.ndarray  # the numbers of the training rows
    test: np.ndarray  # the numbers of the held-out rows
    notes: tuple[str, ...]


def train_rows(
    request: Request,
    out: Path,
    model: str,
    settings: Sequence[str] = (),
    as_json: bool = False,
    force: bool = False,
    resume: bool = False,
    report: bool = True,
) -> None:
    """Fits a model of rows to a table, and writes the folder `out`; prints the density of held-out rows."""
    refuse_existing(out, force)
    if model not in MODELS:
        raise ValueError(f"there is no model {model!r}; {nearest(model, MODELS)}")
    spec, begun = MODELS[model], time.perf_counter()
    sizes = whole_settings(settings, {spec.size: 0, **spec.settings}, f"--model {model}")
    rows = _read(request, model, spec)
    candidates = (sizes[spec.size],) if sizes[spec.size] else spec.candidates(rows.columns)
    if candidates[0] > len(rows.train):
        raise DataError(
            f"{len(rows.train)} rows to learn from are fewer than {candidates[0]} {spec.size}; give more rows, or "
            f"--set {spec.size}={max(1, len(rows.train) // 10)}"
        )
    candidates = tuple(size for size in candidates if size <= len(rows.train))
    refuse_unwritable(out)
    choices = {"data": request.data, "model": model, "set": sizes, "epochs": request.epochs, "seed": request.seed}
    choices |= {"batch_size": request.batch_size, "test_size": request.test_size, "missing": request.missing}
    if not as_json:
        show_notes(rows.notes)
        count = f"{len(rows.train):,} rows to learn from, {len(rows.test):,} held out"
        show_line(f"{spec.words} of {len(rows.columns.kinds)} columns ({kinds_told(rows.columns.kinds)}); {count}")
    with unfinished(out, choices, resume, force) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)  # printed below as a line
        tried = _fit_sizes(spec, rows, candidates, request, sizes, {"checkpoint": place, "resume": resume})
        size, learned = tried.best, tried.fits[tried.best]
        seconds = time.perf_counter() - begun
        posterior = for_rows(spec, learned.posterior, rows.columns, len(rows.values), sizes)
        keep_posterior(posterior, place)
        samples = request.samples or _SAMPLES
        log_prob = spec.log_prob(posterior, rows.columns, rows.values, samples)
        held_out = log_prob[rows.test]
        others = reference_log_probs(model, rows.columns, rows.values[rows.train], rows.values[rows.test])
        latents = spec.latents(posterior, rows.columns, rows.values)
        convergence = learned.convergence
        metrics: Document = {
            "model": model,
            spec.size: size,
            "rows": {"train": len(rows.train), "test": len(rows.test)},
            **_as_document("log_prob", held_out),
            "references": {
                name: {**_as_document("log_prob", other), **_as_document("difference", held_out - other)}
                for name, other in others.items()
            },
            "tried": {str(number): scores for number, scores in tried.told.items()},
            "convergence": None if convergence is None else convergence.describe(),
            "remarks": list(learned.warnings),
            "seconds": seconds,
        }
        config = {
            "format": FORMAT,
            **choices,
            **rows.columns.encoding.describe(),
            "task": None,
            "target": None,
            "algorithm": "adam" if spec.gradients else "vmp",
            "size": size,
            "kinds": list(rows.columns.kinds),
            "centres": list(rows.columns.centres),
            "scales": list(rows.columns.scales),
            "frequencies": [list(part) for part in rows.columns.frequencies],
            "samples": samples,
            "rows": metrics["rows"],
            "notes": list(rows.notes),
            "versions": package_versions(),
        }
        run = FittedRows(
            model=model,
            words=spec.words,
            size=f"{size} {spec.size}",
            columns=rows.columns.encoding.columns,
            summary=spec.summary(posterior, rows.columns),
            values=rows.values,
            scaled=(rows.values - np.array(rows.columns.centres)) / np.array(rows.columns.scales),
            latents=latents,
            log_prob=log_prob,
            test=rows.test,
            references=others,
            tried=tried.told,
            tried_of=spec.size,
            history=learned.history,
            convergence=convergence,
            remarks=learned.warnings,
            notes=rows.notes,
            config=config,
            seconds=seconds,
            out=str(out),
        )
        with draft(out, force) as folder:
            folder.mkdir(mode=0o755)
            posterior.save(folder / "posterior")
            config["posterior"] = store.fingerprint(folder / "posterior")
            latents_table = {"row": np.arange(len(log_prob)), "held_out": np.isin(np.arange(len(log_prob)), rows.test)}
            append_csv(folder / "latents.csv", {**latents_table, "log_prob": log_prob, **latents})
            (folder / "metrics.json").write_text(dump(metrics), encoding="utf-8")
            (folder / "config.json").write_text(dump(config), encoding="utf-8")
            latents_figure(run).savefig(folder / "latents.png")
            if report:
                (folder / "report.html").write_text(rows_report(run), encoding="utf-8")
    if as_json:
        show_document({"out": str(out), "metrics": metrics, "config": config})
        return
    if len(tried.told) > 1:
        lines = [(number, scores["bound"], scores["log_prob"]) for number, scores in tried.told.items()]
        heads = (spec.size, "bound, nats a training row", "log p of a row held out")
        show_table(f"{size} {spec.size}, of the greatest bound", heads, lines)
    show_line(f"fitted in {seconds:.1f} s; " + _converged(learned))
    show_line(f"log p of {len(held_out):,} rows held out: {average(held_out)} nats a row")
    for name, other in others.items():
        show_line(f"  {average(held_out - other)} more than {name} ({average(other)})")
    for remark in learned.warnings:
        show_line(remark)
    show_line(f"written to {out}" + (f"; {out / 'report.html'} shows it" if report else ""))


@dataclass
class _TriedSizes:
    """Result of the comparison of sizes."""

    best: int
    fits: dict[int, Fit]
    told: dict[int, Document]  # the bound per training row, and the mean log density of held-out rows


def _fit_sizes(
    spec: RowModel,
    rows: _SplitRows,
    candidates: tuple[int, ...],
    request: Request,
    sizes: Mapping[str, int],
    keep: Options,
) -> _TriedSizes:
    """Fits one size after the other while the bound rises; for a model without a bound only the first."""
    values, fits, results = rows.values[rows.train], {}, {}
    options: Options = {"steps": request.epochs}
    if spec.gradients:
        batch = min(request.batch_size or _BATCH, len(values))
        epochs = request.epochs or max(1, round(_STEPS * batch / len(values)))
        options = {"epochs": epochs, "batch_size": batch, **keep}
        if len(values) >= _FEWEST_TO_VALIDATE and request.epochs is None:
            options["validation"] = _VALIDATION
    all_rows = rows.values[np.concatenate([rows.train, rows.test])]

    def loss(size: int) -> float:
        graph = spec.graph(size, rows.columns, len(values), sizes)
        data = spec.data(rows.columns, values)
        fits[size] = fit(graph, data, spec.algorithm(), seed=request.seed, progress=False, **options)
        if len(candidates) == 1:
            return 0.0
        posterior = for_rows(spec, fits[size].posterior, rows.columns, len(all_rows), sizes)
        bound = float(np.asarray(fits[size].posterior.evidence)) / len(values)
        scored_rows = all_rows if spec.together else rows.values[rows.test]
        density = spec.log_prob(posterior, rows.columns, scored_rows, request.samples or _SAMPLES)[-len(rows.test) :]
        unit = float(np.mean(rows.columns.log_unit(values)))
        results[size] = {"bound": bound - unit, **_as_document("log_prob", density)}
        return -bound

    best = search.choose(loss, search.until_worse, candidates).best
    return _TriedSizes(best, fits, results)


def _read(request: Request, model: str, spec: RowModel) -> _SplitRows:
    if not 0 < request.test_size < 1:
        raise ValueError(f"--test-size is {request.test_size:g}; {_SHARE}")
    features, encoding, notes = read_columns(request.data, request.separator, request.dates, request.missing_values())
    if spec.kind is not None:
        for name, levels in zip(features.columns, features.levels, strict=True):
            if levels:
                way = "leave it out" if spec.kind == "count" else "leave it out, or take --model vae"
                words = f"the column {name!r} holds words such as {next(iter(levels))!r}"
                raise DataError(f"{words}, and {spec.words} is of {spec.kind}s; {way}")
    if len(features.columns) < 2 and not spec.alone:
        raise DataError(f"there is one column, {listed(features.columns)}, and {spec.words} is of several; give more")
    _refuse_empty(spec, features.values)
    count = len(features.values)
    order = np.arange(count) if spec.together else np.random.default_rng(request.seed).permutation(count)
    test_count = round(request.test_size * count)
    if not 2 <= test_count <= count - 2:
        raise DataError(f"{count} rows leave {test_count} to score and {count - test_count} to learn from; give more")
    train, test = np.sort(order[: count - test_count]), np.sort(order[count - test_count :])
    present = zip(features.columns, features.values.T, features.levels, strict=True)
    kinds = {name: spec.kind or _kind(column, levels) for name, column, levels in present}
    columns = Columns.learned(replace(features, values=features.values[train]), encoding, kinds)
    return _SplitRows(columns, features.values, train, test, notes)


def _refuse_empty(spec: RowModel, values: np.ndarray) -> None:
    empty = np.flatnonzero(np.isnan(values).all(axis=1))
    if len(empty) and spec.gradients:
        raise DataError(f"row {empty[0]} (the first is 0) has no value in any column; drop it")


def _kind(column: np.ndarray, levels: tuple[str, ...]) -> str:
    return kind_of(column, levels) if (~np.isnan(column)).any() else "number"  # which raises an error later


def predict_rows(
    run: Path, request: Request, out: Path | None, as_json: bool = False, trust: Sequence[str] = ()
) -> None:
    """Prints the latents and the log density of the rows of a table, the least probable rows first."""
    spec, columns, posterior, values, notes, config = _posterior_and_rows(run, request, out, trust)
    posterior = for_rows(spec, posterior, columns, len(values), config["set"])
    log_prob = spec.log_prob(posterior, columns, values, request.samples or config["samples"])
    latents = spec.latents(posterior, columns, values)
    table = {"row": np.arange(len(values)), "log_prob": log_prob, **latents}
    if out is not None:
        with draft(out) as path:
            append_csv(path, table)
    mean = average(log_prob)
    if as_json:
        records = [dict(zip(table, line, strict=True)) for line in zip(*table.values(), strict=True)]
        about = {"rows": len(values), **_as_document("log_prob", log_prob), "notes": list(notes), "latents": records}
        show_document({**about, "out": None if out is None else str(out)})
        return
    show_notes(notes)
    strange = np.argsort(log_prob, kind="stable")[:MOST_ROWS]
    title = f"the {len(strange)} strangest of {len(values):,} rows, by log p"
    show_table(title, list(table), zip(*(column[strange] for column in table.values()), strict=True))
    show_line(f"log p of {len(values):,} rows: {mean} nats a row")
    show_line("--out FILE.csv writes all rows" if out is None else f"{len(values):,} rows written to {out}")


def impute_rows(
    run: Path, request: Request, out: Path | None, as_json: bool = False, trust: Sequence[str] = ()
) -> None:
    """Fills in the empty cells of a table by draws given the rest of each row, and writes it with 90 % intervals."""
    spec, columns, posterior, values, notes, config = _posterior_and_rows(run, request, out, trust)
    if not spec.fills:
        raise ValueError(f"{str(run)!r} holds {spec.words}, whose words are counted or are not there: it fills nothing")
    holes = np.isnan(values)
    if not holes.any():
        raise ValueError(f"no cell of {request.data!r} is empty; leave empty what is to be filled in")
    posterior = for_rows(spec, posterior, columns, len(values), config["set"])
    draws = spec.drawn(posterior, columns, values, request.samples or _DRAWS)
    filled = columns.filled(values, draws)
    if out is not None:
        with draft(out) as path:
            filled.to_csv(path, index=False)
    summary: Document = {"rows": len(values), "missing": int(holes.sum()), "notes": list(notes)}
    if as_json:
        show_document({**summary, "out": None if out is None else str(out), "table": filled.to_dict("records")})
        return
    show_notes(notes)
    lacking = np.flatnonzero(holes.any(axis=1))[:MOST_ROWS]
    shown = [(row, *filled.iloc[row]) for row in lacking]
    show_table(f"the first {len(lacking)} rows with an empty cell", ["row", *filled.columns], shown)
    message = f"{holes.sum():,} empty cells of {holes.any(axis=1).sum():,} rows filled in, with intervals of 90 %"
    show_line(message + ("; --out FILE.csv writes them" if out is None else f"; written to {out}"))


def _posterior_and_rows(
    run: Path, request: Request, out: Path | None, trust: Sequence[str]
) -> tuple[RowModel, Columns, Posterior, np.ndarray, tuple[str, ...], Document]:
    """Returns the contents of a folder and the rows of a table, after checks of both."""
    if out is not None:
        if out.suffix.lower() != ".csv":
            raise ValueError(f"--out {str(out)!r} is not a .csv file, and rows are written as CSV; give FILE.csv")
        refuse_existing(out)
        refuse_unwritable(out)
    config = read_config(run)
    if config.get("model") not in MODELS:
        raise ValueError(f"{str(run)!r} was fitted to a target; lamu impute is for a folder of lamu fit --model")
    try:
        parts: dict[str, Any] = {name: tuple(config[name]) for name in ("kinds", "centres", "scales")}
        encoding = Encoding.of({**config, "task": "regression", "target": ""})
        columns = Columns(encoding, **parts, frequencies=tuple(tuple(part) for part in config["frequencies"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise altered(run) from error
    posterior = load_posterior(run, config, trust)
    values, notes = match_columns(request.data, encoding, request.separator)
    spec = MODELS[config["model"]]
    _refuse_empty(spec, values)
    return spec, columns, posterior, values, notes, config


def _converged(learned: Fit) -> str:
    convergence = learned.convergence
    if convergence is None:
        return "whether it has converged was not measured"
    return "converged" if convergence.converged else f"not converged: {convergence.complaint}"


def _as_document(name: str, values: np.ndarray) -> Document:
    estimate = average(values)
    error = "standard_error" if name == "log_prob" else f"{name}_error"
    return {name: estimate.value, error: estimate.error}
