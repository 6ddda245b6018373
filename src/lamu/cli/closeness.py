"""How close the posteriors of `lamu compare` come to a reference's, and the floor below that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lamu.cli.outside import is_outside
from lamu.cli.printing import show_line, show_table
from lamu.cli.recipes import find, settings_of
from lamu.cli.request import Request, learning_rows
from lamu.data import Arrays
from lamu.families import Draws
from lamu.posterior import Posterior, load
from lamu.scores import fidelity

__all__ = ["FLOOR", "closeness", "folder_of", "halves", "lengths", "show_closeness"]

MEASURES = {
    "agreement": "agreement of labels",
    "total_variation": "total variation",
    "wasserstein": "W1, in its deviations",
    "coverage": "mass in its 90 % regions",
}
# Long paths over all the rows are dear: four chains of these take minutes on a small table. The floor shows what they
# leave open.
LENGTHS = {"warmup": 250, "draws": 250}
FLOOR = "its own chains, half against half"


def lengths(reference: str, words: list[str]) -> list[str]:
    """Returns the settings of a reference: those that were given, and lengths where none were."""
    known, given = settings_of(find(reference)), {word.partition("=")[0] for word in words}
    if not set(LENGTHS) <= set(known):
        return words
    return [*words, *(f"{name}={value}" for name, value in LENGTHS.items() if name not in given)]


def closeness(
    request: Request, table: Any, answers: dict[str, dict[str, Any]], reference: str, kept: Path
) -> dict[str, dict[str, float]]:
    """Returns how close each posterior's predictions on the test rows come to the reference's, a mean over splits."""
    found: dict[str, dict[str, list[float]]] = {}
    words = [word for word in (*answers, request.likelihood) if is_outside(word)]
    named = [str(word).partition(":")[0] for word in words]  # by who runs the command
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
                    found.setdefault(name, {}).setdefault(score, []).append(estimate.value)
    return {name: {score: float(np.mean(values)) for score, values in scores.items()} for name, scores in found.items()}


def folder_of(name: str) -> str:
    """Returns an algorithm's name as that of a folder, which may have no colon on every system."""
    return name.replace(":", ".")


def halves(posterior: Posterior) -> tuple[Posterior, Posterior] | None:
    """Returns the posteriors of the first chains and of the others; None where there are no two chains."""
    belief = posterior.belief
    if not isinstance(belief, Draws):
        return None
    chains = jax.tree.leaves(belief.samples)[0].shape[0]
    if chains < 2:
        return None
    of = lambda part: replace(posterior, belief=Draws(jax.tree.map(lambda leaf: leaf[part], belief.samples)))
    return of(slice(None, chains // 2)), of(slice(chains // 2, None))


def show_closeness(found: dict[str, dict[str, float]], reference: str, words: list[str]) -> None:
    """Prints how close each algorithm's predictions come to a reference's."""
    if not found:
        show_line(f"nothing can be said of closeness: {reference} did not come to an end")
        return
    measures = [name for name in MEASURES if name in next(iter(found.values()))]
    lines = [(name, *(f"{each[measure]:.4f}" for measure in measures)) for name, each in found.items()]
    show_table(f"how close to {reference}", ("algorithm", *(MEASURES[name] for name in measures)), lines)
    show_line("all under the prior of the reference, whose own chains do not agree wholly with each other either")
    if words:
        longer = f"; for a longer run write --set {reference}.draws=1000" if "draws=250" in words else ""
        show_line(f"{reference} ran with {', '.join(words)}{longer}")
