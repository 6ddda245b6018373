"""What ships beside a point: `python -m benchmarks.defaults [plain] [splits [sets]]`.

The bundled tables and six UCI sets, 80/20 splits that no setting was chosen on (`benchmarks/README.md`), the first
5,000 rows of protein in a seeded order; one hidden layer of 50 (64-64 for digits), the prior `LearnedNormal(1.0)`.
`laplace`, `last_layer`, `ivon` and `vogn` without arguments and without a length, at the temperature that training rows
choose (`lamu.fit_temperature`); with `plain` by `lamu.fit` alone, at T = 1. Beside them a point,
`adam(Annealed(1e-2))` for 50 epochs, since without a length it goes on until it has overfitted, and five of these as an
ensemble. Test negative log densities in nats a row. The difference to Adam is paired by rows, and its standard error is
of all splits' rows; a run that ends in an error is named, and counts as one. The means of the splits go to
`.cache/defaults.json` (`plain.json`), by set and algorithm, from which `python -m benchmarks.ranks` draws mean ranks.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lamu
from benchmarks.splits import arrays, seeds
from lamu.rate import Annealed

BUNDLED = ("iris", "wine", "breast_cancer", "diabetes", "digits")
SETS = (*BUNDLED, "yacht", "boston", "energy", "concrete", "wine_red", "protein")  # of each kind the quickest first
MOST = 5000
EPOCHS = 50  # of a point, and of each of five
FOLDER = Path(".cache")


def adam() -> Any:
    """Returns Adam with an annealed rate."""
    return lamu.algorithms.adam(Annealed(1e-2))


OURS = {
    "five adams": lambda: lamu.algorithms.deep_ensemble(adam(), 5),
    **{name: getattr(lamu.algorithms, name) for name in ("last_layer", "laplace", "ivon", "vogn")},
}


def problem(name: str, seed: int) -> tuple[lamu.Model, Any, Any]:
    """Returns the model, the training rows and the test rows of a split."""
    x, y = arrays(name)
    if len(x) > MOST:
        few = np.random.default_rng(0).permutation(len(x))[:MOST]
        x, y = x[few], y[few]
    classes = np.issubdtype(y.dtype, np.integer)
    train, test = lamu.data.split(y, 0.2, seed, stratify=classes)
    network = lamu.networks.MLP((64, 64) if name == "digits" else (50,))
    likelihood = lamu.likelihoods.Gaussian()
    if classes:
        count = len(np.unique(y))
        likelihood = lamu.likelihoods.Bernoulli() if count == 2 else lamu.likelihoods.Categorical(count)
    model = lamu.Model(network, likelihood, lamu.priors.LearnedNormal(1.0)).standardised(x[train], y[train])
    return model, (x[train], y[train]), (x[test], y[test])


def losses(posterior: lamu.Posterior, rows: Any) -> np.ndarray:
    x, y = rows
    return -np.asarray(posterior.predict(x, samples=128).log_prob(y), np.float64)


def keep(kind: str, name: str, means: dict[str, list[float]]) -> None:
    """Writes the means of a set's splits beside those of other sets."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{kind}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, name: means}, indent=1))


def main() -> None:
    """Prints a table for each set."""
    plain = sys.argv[1:2] == ["plain"]
    given = sys.argv[2:] if plain else sys.argv[1:]
    chosen, choose = seeds(given[:1]), lamu.fit if plain else lamu.fit_temperature
    points_of, learners = partial(lamu.fit, epochs=EPOCHS), {"five adams": partial(lamu.fit, epochs=EPOCHS)}
    warnings.simplefilter("ignore", lamu.Unconverged)
    for name in given[1:] or SETS:
        print(f"\n{name}: {len(chosen)} splits", flush=True)
        print(f"{'':10}{'NLL':>8}{'less adam':>19}{'within one error':>18}{'seconds':>9}  temperatures")
        points = []
        for seed in chosen:
            model, rows, test = problem(name, seed)
            points.append(losses(points_of(model, rows, adam()).posterior, test))
        means = {"adam": [float(point.mean()) for point in points]}
        print(f"{'adam':10}{np.concatenate(points).mean():8.3f}")
        for title, make in OURS.items():
            less, values, temperatures, errors, start = [], [], [], [], time.perf_counter()
            for seed, point in zip(chosen, points, strict=True):
                model, rows, test = problem(name, seed)
                try:
                    posterior = learners.get(title, choose)(model, rows, make()).posterior
                except (ValueError, lamu.Diverged) as error:
                    errors.append(f"split {seed}: {error}")
                    continue
                found = losses(posterior, test)
                values.append(found)
                less.append(found - point)
                temperatures.append(f"{posterior.temperature:g}")
            seconds = (time.perf_counter() - start) / len(chosen)
            if not errors:
                means[title] = [float(value.mean()) for value in values]
            keep("plain" if plain else "defaults", name, means)
            for words in errors:
                print(f"{title:10}ended in an error, {words}")
            if less:
                all_of = np.concatenate(less)
                mean, error = all_of.mean(), all_of.std(ddof=1) / np.sqrt(len(all_of))
                words = "yes" if mean <= error else "NO"
                value, apart = np.concatenate(values).mean(), f"{mean:+.3f} ± {error:.3f}"
                print(
                    f"{title:10}{value:8.3f}{apart:>19}{words:>18}{seconds:9.1f}  {', '.join(temperatures)}", flush=True
                )


if __name__ == "__main__":
    main()
