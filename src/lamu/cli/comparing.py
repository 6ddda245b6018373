"""`lamu compare`: several algorithms on the same splits with the same budget, each in its own process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np

from lamu.cli.learning import DEFAULT, LikelihoodChoice, likelihood_for
from lamu.cli.output_dir import Document, refuse_existing, refuse_unwritable
from lamu.cli.printing import dump, show_document, show_line, show_notes, show_table, width
from lamu.cli.recipes import build, find, is_outside, parse, recipes, settings_of
from lamu.cli.request import Request, learning_rows
from lamu.cli.versions import package_versions
from lamu.cli.worker import equal_budget
from lamu.data import Arrays
from lamu.data.leaks import leaks
from lamu.data.table import Table
from lamu.data.wording import nearest
from lamu.families import Draws
from lamu.posterior import Posterior, load
from lamu.scores import Estimate, fidelity, nll
from lamu.scores.calibration import estimate, in_words
from lamu.tabular.peers import PEERS

__all__ = ["FLOOR", "closeness", "compare", "folder_of", "halves", "lengths", "show_closeness"]


MEASURES = {
    "agreement": "agreement of labels",
    "total_variation": "total variation",
    "wasserstein": "W1, in its deviations",
    "coverage": "mass in its 90 % regions",
}
# Long paths over all rows are slow: four such chains take minutes on a small table. The floor shows the error that
# remains.
LENGTHS = {"warmup": 250, "draws": 250}
FLOOR = "its own chains, half against half"


def lengths(reference: str, words: list[str]) -> list[str]:
    """Returns the settings of a reference: those given, and default lengths for the others."""
    allowed, named = settings_of(find(reference)), {word.partition("=")[0] for word in words}
    if not set(LENGTHS) <= set(allowed):
        return words
    return [*words, *(f"{name}={value}" for name, value in LENGTHS.items() if name not in named)]


def closeness(
    request: Request, table: Table, answers: dict[str, Document], reference: str, kept: Path
) -> dict[str, dict[str, float]]:
    """Returns how close each posterior's predictions of the test rows are to the reference's, averaged over splits."""
    distances: dict[str, dict[str, list[float]]] = {}
    words = [word for word in (*answers, request.likelihood) if is_outside(word)]
    named = [str(word).partition(":")[0] for word in words]  # names in messages
    if "failure" in answers[reference]:
        return {}
    for split in range(len(answers[reference]["splits"])):
        seed = request.seed + split
        part, _, test = learning_rows(table, request, seed)
        x = Arrays.of((part.x, part.y)).x[test]
        exact = load(kept / folder_of(reference) / f"{seed}", trust=named)
        judged = {
            name: (load(kept / folder_of(name) / f"{seed}", trust=named), exact)
            for name, answer in answers.items()
            if name != reference and "failure" not in answer
        }
        parts = halves(exact)
        for name, (mine, other) in (judged | ({FLOOR: parts} if parts else {})).items():
            compared = fidelity(mine, other, x)
            for score in MEASURES:
                estimate = getattr(compared, score)
                if estimate is not None:
                    distances.setdefault(name, {}).setdefault(score, []).append(estimate.value)
    return {
        name: {score: float(np.mean(values)) for score, values in scores.items()} for name, scores in distances.items()
    }


def folder_of(name: str) -> str:
    """Returns an algorithm's name as a folder name, without colons, which some systems do not allow."""
    return name.replace(":", ".")


def halves(posterior: Posterior) -> tuple[Posterior, Posterior] | None:
    """Returns the posteriors of the first and of the second half of the chains; None if there is only one chain."""
    belief = posterior.belief
    if not isinstance(belief, Draws):
        return None
    chains = jax.tree.leaves(belief.samples)[0].shape[0]
    if chains < 2:
        return None
    of = lambda part: replace(posterior, belief=Draws(jax.tree.map(lambda leaf: leaf[part], belief.samples)))
    return of(slice(None, chains // 2)), of(slice(chains // 2, None))


def show_closeness(distances: dict[str, dict[str, float]], reference: str, words: list[str]) -> None:
    """Prints how close each algorithm's predictions come to a reference's."""
    if not distances:
        show_line(f"nothing can be said of closeness: {reference} did not come to an end")
        return
    measures = [name for name in MEASURES if name in next(iter(distances.values()))]
    lines = [(name, *(f"{figures[measure]:.4f}" for measure in measures)) for name, figures in distances.items()]
    show_table(f"how close to {reference}", ("algorithm", *(MEASURES[name] for name in measures)), lines)
    show_line("all under the prior of the reference, whose own chains do not agree wholly with each other either")
    if words:
        longer = f"; for a longer run write --set {reference}.draws=1000" if "draws=250" in words else ""
        show_line(f"{reference} ran with {', '.join(words)}{longer}")


WIDE = 120  # characters at which everything fits in one table
Cells: TypeAlias = list[tuple[str, ...]]  # of a table: its header, then its rows
ORDERS = {"nll": 1.0, "evidence": -1.0}  # the sign that sorts the best first


def compare(
    request: Request,
    names: str,
    settings: Sequence[str] = (),
    splits: int = 1,
    as_json: bool = False,
    by: str | None = None,
    reference: str | None = None,
    report: Path | None = None,
) -> bool:
    """Compares algorithms on the same rows and prints a table: scores, paired differences, time and memory."""
    request.check()
    if splits < 1:
        raise ValueError(f"--splits is {splits}; give a whole number that is not below 1")
    if report is not None:
        if report.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--report {str(report)!r} is not an .html file, and the report is HTML; give FILE.html")
        refuse_existing(report, option="--report")
        refuse_unwritable(report)
    if by not in (None, *ORDERS):
        raise ValueError(f"--by is {by!r}; {nearest(str(by), ORDERS)}")
    chosen = _chosen(names if reference is None else _with_reference(names, reference), settings)
    peers = [name for name in chosen if name in PEERS]
    if reference is not None and peers:
        raise ValueError(f"{peers[0]!r} has no posterior to bring close to --reference {reference}; leave it out")
    if reference == DEFAULT:
        raise ValueError(f"--reference is {reference!r}, which is not a sampler; give one, for instance hmc")
    if reference is not None:
        chosen[reference] = lengths(reference, chosen[reference])
    table = request.read()
    likelihood_for(table.encoding, request.likelihood)  # rejects likelihoods that do not suit the task
    first, *rows = learning_rows(table, request, request.seed)
    parts = [tuple(rows), *(learning_rows(table, request, request.seed + s)[1:] for s in range(1, splits))]
    table = replace(table, notes=(*first.notes, *leaks(first, *rows)))
    chosen_likelihood = _likelihood(request, first, rows[0])
    answers, begun = {}, time.monotonic()
    with tempfile.TemporaryDirectory() as kept:
        for index, (name, words) in enumerate(chosen.items()):
            if sys.stderr.isatty():
                print(f"{name} ({index + 1} of {len(chosen)})", file=sys.stderr)
            before = {"done": index * splits, "of": len(chosen) * splits, "seconds": time.monotonic() - begun}
            task = {"request": asdict(request), "algorithm": name, "settings": words, "splits": splits}
            keep = {} if reference is None else {"keep": str(Path(kept) / folder_of(name))}
            answers[name] = run(task | {"before": before} | keep)
        close = {} if reference is None else closeness(request, table, answers, reference, Path(kept))
    first_name = next(iter(chosen))
    rows = [_summary(name, answer, answers[first_name]) for name, answer in answers.items()]
    for row in rows:
        row["closeness"] = close.get(row["algorithm"])
    rows = _ordered(rows, by)
    complete = all("failure" not in row for row in rows)
    about = {
        "data": request.data,
        "target": table.encoding.target,
        "task": table.encoding.task,
        "rows": {"train": len(parts[0][0]), "test": len(parts[0][1])},
        "groups": request.groups,
        "time": request.time,
        "splits": splits,
        "seed": request.seed,
        "likelihood": chosen_likelihood.name,
        "budget": _budget(request, chosen, len(parts[0][0])),
        "notes": list(table.notes),
    }
    if reference is not None:
        about["reference"] = {"algorithm": reference, "settings": chosen[reference], "floor": close.get(FLOOR)}
    ended = [row for row in rows if "failure" not in row]
    tables = _tables(ended, first_name) if ended else ([], [])
    legend = _legend(about, first_name, splits, answers)
    if as_json:
        show_document({**about, "complete": complete, "algorithms": rows})
    else:
        show_notes(table.notes)
        if chosen_likelihood.why:
            show_line(chosen_likelihood.why if splits == 1 else f"{chosen_likelihood.why}; each split chooses its own")
        if ended:
            _show(about, tables, legend)
        for row in rows:
            if "failure" in row:
                show_line(f"{row['algorithm']} failed: {row['failure']}")
        if reference is not None:
            show_closeness(close, reference, chosen[reference])
    if report is not None:  # after all output: a full disk then costs only the file
        from lamu.cli.reporting import report_of_comparison

        report_of_comparison(report, about, rows, first_name, tables, legend, package_versions())
    return complete


def _likelihood(request: Request, first: Table, train: np.ndarray) -> LikelihoodChoice:
    """Returns the likelihood of the first split; its training rows choose it unless one is named."""
    data = Arrays.of(first.data)
    learned_from = {name: getattr(data, name)[train] for name in first.data}
    return request.likelihood_for(first.encoding, learned_from, request.seed)


def run(task: Document) -> Document:
    """Returns the result of one algorithm, which is run in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        task_file, answer = Path(folder) / "task.json", Path(folder) / "answer.json"
        task_file.write_text(dump(task), encoding="utf-8")
        is_terminal = sys.stderr.isatty()  # then the process shows its progress there
        ran = subprocess.run(
            # -P: otherwise Python would import modules of the current folder in place of those of the library.
            [sys.executable, "-P", "-m", "lamu.cli.worker", str(task_file), str(answer)],
            stdout=subprocess.DEVNULL,
            stderr=None if is_terminal else subprocess.PIPE,
            check=False,
        )
        if ran.returncode == 130:
            raise KeyboardInterrupt
        if ran.returncode == 0:
            return json.loads(answer.read_text(encoding="utf-8"))
    if ran.returncode < 0:
        return {"failure": f"its process was ended by signal {-ran.returncode}, as when memory is short"}
    last = (ran.stderr or b"").decode(errors="replace").strip().splitlines()[-1:] or ["no reason was given"]
    return {"failure": f"its process ended with code {ran.returncode}: {last[0]}"}


def _with_reference(names: str, reference: str) -> str:
    return names if reference in (part.strip() for part in names.split(",")) else f"{names},{reference}"


def _ordered(rows: list[Document], by: str | None) -> list[Document]:
    """Returns the rows sorted with the best first; those without the score come last."""

    def rank(row: Document) -> float:
        if "failure" in row:
            return math.inf
        value = row["scores"]["nll"] if by == "nll" else row["evidence"]
        return math.inf if value is None else ORDERS[str(by)] * value

    return rows if by is None else sorted(rows, key=rank)


def _chosen(names: str, settings: Sequence[str]) -> dict[str, list[str]]:
    """Returns the settings of each algorithm, after all checks."""
    chosen: dict[str, list[str]] = {}
    for name in (part.strip() for part in names.split(",")):
        if not name:
            raise ValueError(f"--algorithms is {names!r}; give names with one comma between two")
        if name in chosen:
            raise ValueError(f"--algorithms has {name!r} twice; give each algorithm once")
        if name not in (DEFAULT, *PEERS):
            find(name)
        chosen[name] = []
    for word in settings:
        # Names of external algorithms contain points: the longest matching name is used.
        owner = max((candidate for candidate in chosen if word.startswith(f"{candidate}.")), key=len, default=None)
        name, point, rest = word.partition(".") if owner is None else (owner, ".", word.removeprefix(f"{owner}."))
        if owner is None:
            key = name if point else word
            hint = nearest(key, chosen) if point or key in recipes() else f"write --set {next(iter(chosen))}.{word}"
            raise ValueError(f"the setting {word!r} does not begin with an algorithm of --algorithms; {hint}")
        if name == DEFAULT:
            raise ValueError(f"the setting {word!r} is of {DEFAULT!r}, which is as it is; name its algorithm, adam")
        if name in PEERS:
            raise ValueError(f"the setting {word!r} is of scikit-learn's {name!r}, which runs with its defaults")
        chosen[name].append(rest)
    for name, words in chosen.items():
        if name in (DEFAULT, *PEERS):
            continue
        build(find(name), parse(words, find(name)))
    return chosen


def _budget(request: Request, chosen: dict[str, list[str]], rows: int) -> Document:
    """Returns the budget of each algorithm that has no length of its own."""
    budget: Document = {}
    for name, words in chosen.items():
        if name in (DEFAULT, *PEERS):  # which have lengths of their own
            continue
        budget |= equal_budget(request, build(find(name), parse(words, find(name))), rows)
    return budget


def _summary(name: str, answer: Document, first: Document) -> Document:
    """Returns an algorithm's row: means over rows or splits, and the paired difference to the first algorithm."""
    if "failure" in answer:
        return {"algorithm": name, "failure": answer["failure"]}
    splits = answer["splits"]
    scores = {score: _mean_with_error([split["scores"][score] for split in splits]) for score in splits[0]["scores"]}
    if len(splits) == 1:
        errors = splits[0]["standard_errors"]
        scores = {score: Estimate(score_mean.value, _number(errors[score])) for score, score_mean in scores.items()}
    row = {
        "algorithm": name,
        "scores": {score: estimate.value for score, estimate in scores.items()},
        "standard_errors": {score: estimate.error for score, estimate in scores.items()},
        "nll_difference": None,
        "evidence": _mean_evidence(splits),
        "steps": splits[0]["steps"],
        "streams": answer["streams"],
        "seconds": float(np.mean([split["seconds"] for split in splits])),
        "memory": answer["memory"],
    }
    if "failure" not in first:
        apart = [
            estimate(nll, np.subtract(split["nll"], other["nll"], dtype=float), _weight(split), split.get("groups"))
            for split, other in zip(splits, first["splits"], strict=True)
        ]
        difference = apart[0] if len(apart) == 1 else _mean_with_error([each.value for each in apart])
        row["nll_difference"] = {"value": difference.value, "standard_error": difference.error}
    return row


def _weight(split: Document) -> np.ndarray | None:
    """Returns the weight of each test row of a split; None if all are equal."""
    return None if split.get("weight") is None else np.asarray(split["weight"], float)


def _mean_with_error(values: Sequence[float | int | None] | np.ndarray) -> Estimate:
    """Returns the mean of values and its standard error."""
    values = np.asarray(values, float)
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return Estimate(float(np.mean(values)), error)


def _mean_evidence(splits: list[Document]) -> float | None:
    values = [split["evidence"] for split in splits]
    return None if None in values else float(np.mean(values))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _tables(rows: list[Document], first: str) -> tuple[Cells, Cells]:
    """Returns the tables of scores and of costs to print: header, then rows."""
    names = list(rows[0]["scores"])
    scores: Cells = [("algorithm", *names, f"nll − {first}'s")]
    costs: Cells = [("algorithm", "evidence", "steps", "seconds", "MiB")]
    for row in rows:
        estimates = [Estimate(row["scores"][name], row["standard_errors"][name]) for name in names]
        shown = [in_words(name, estimate) for name, estimate in zip(names, estimates, strict=True)]
        scores.append((row["algorithm"], *shown, _difference(row, first)))
        costs.append(
            (
                row["algorithm"],
                "-" if row["evidence"] is None else f"{row['evidence']:,.1f}",
                f"{row['steps']}" if row["streams"] == 1 else f"{row['streams']} × {row['steps']}",
                f"{row['seconds']:.1f}",
                "-" if row["memory"] is None else f"{row['memory'] / 2**20:.0f}",
            )
        )
    return scores, costs


def _difference(row: Document, first: str) -> str:
    difference = row["nll_difference"]
    if row["algorithm"] == first or difference is None:
        return "-"
    text = str(Estimate(difference["value"], _number(difference["standard_error"])))
    return text if text.startswith("-") else f"+{text}"


def _show(about: Document, tables: tuple[Cells, Cells], legend: list[str]) -> None:
    """Prints scores and costs as one table, or as two on a narrow terminal."""
    (heads, *scores), (cost_heads, *costs) = tables
    splits = "" if about["splits"] == 1 else f"{about['splits']} splits of "
    title = f"{about['target']} of {about['data']}, {splits}{about['rows']['test']} test rows"
    if width() >= WIDE:
        show_table(title, (*heads, *cost_heads[1:]), [(*a, *b[1:]) for a, b in zip(scores, costs, strict=True)])
    else:
        show_table(title, heads, scores)
        show_table("evidence, and what it cost", cost_heads, costs)
    for line in legend:
        show_line(line)


def _legend(about: Document, first: str, splits: int, answers: Document) -> list[str]:
    budget = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about["budget"].items())
    units = "test rows" if about["groups"] is None else f"groups of {about['groups']!r}"
    over = f"{units}; the difference is taken row by row"
    if splits > 1:
        over = "splits, whose training rows overlap; the difference is taken split by split"
    budget = budget or "their own"
    lines = [
        f"±: one standard error over the {over}; below zero is better than {first}",
        f"the same budget for each: {budget}",
    ]
    together = [name for name, answer in answers.items() if answer.get("streams", 1) > 1]
    if together:
        lines[1] += f"; {', '.join(together)} steps several members at once"
    alone = [name for name, answer in answers.items() if "splits" in answer and answer["epochs"] is None]
    if alone:
        lines[1] += f"; {', '.join(alone)} takes its own number of steps"
    return [
        *lines,
        "evidence: its logarithm in nats where it is known, else the bound below it, of the training rows",
        "seconds: with compilation and every scale of the prior tried; MiB: the most that the whole process held",
    ]
