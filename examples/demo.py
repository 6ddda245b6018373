"""The main job, on real data: six algorithms on a classification and a regression, a posterior saved and loaded.

make demo        or        python examples/demo.py
"""

import tempfile
import time
from pathlib import Path

import numpy as np

import lamu

SETS = {
    "digits": (lamu.likelihoods.Categorical(10), "1,797 images of 8 by 8 pixels, ten classes"),
    "diabetes": (lamu.likelihoods.Gaussian(), "442 patients, a disease's progression; the noise is learned"),
}
ALGORITHMS = {
    "adam": lamu.algorithms.adam(3e-3),  # one point, the measure of the others
    "deep_ensemble": lamu.algorithms.deep_ensemble(of=lamu.algorithms.adam(3e-3), members=5),
    "last_layer": lamu.algorithms.last_layer(of=lamu.algorithms.adam(3e-3)),
    "laplace": lamu.algorithms.laplace(of=lamu.algorithms.adam(3e-3)),
    "vogn": lamu.algorithms.vogn(),
    "ivon": lamu.algorithms.ivon(),
}
SCORES = {
    "classes": {"accuracy": (lamu.scores.accuracy, {}), "ECE": (lamu.scores.ece, {})},
    "regression": {"RMSE": (lamu.scores.rmse, {}), "in 90 %": (lamu.scores.coverage, {"level": 0.9})},
}


def learn(name, likelihood, words):
    """Fits every algorithm to one set and prints a line of scores for each; returns the last posterior."""
    x, y = lamu.data.load(name)
    classes = likelihood.task == "classes"
    train, test = lamu.data.split(y, test_size=0.2, seed=0, stratify=classes)
    prior = lamu.priors.Normal(scale=0.3)
    model = lamu.Model(lamu.networks.MLP((32,)), likelihood, prior).standardised(x[train], y[train])
    scores = SCORES[likelihood.task]

    print(f"\n{name}: {words}; {len(train)} rows to learn from, {len(test)} to test\n")
    heads = "".join(f"{head:>10}" for head in scores)
    print(f"{'':14}{heads}{'NLL':>17}{'NLL less adam':>19}{'seconds':>9}")
    reference = None
    for title, algorithm in ALGORITHMS.items():
        start = time.perf_counter()
        posterior = lamu.fit(model, (x[train], y[train]), algorithm, epochs=40, batch_size=64, seed=0).posterior
        pred = posterior.predict(x[test])
        values = "".join(f"{score(pred, y[test], **options):10.3f}" for score, options in scores.values())
        nll = lamu.scores.with_error(lamu.scores.nll, pred, y[test])
        reference = pred if reference is None else reference
        less = lamu.scores.difference(lamu.scores.nll, pred, reference, y[test])
        apart = "" if pred is reference else f"{less.value:+.3f} ± {less.error:.3f}"
        seconds = time.perf_counter() - start
        print(f"{title:14}{values}{f'{nll.value:.3f} ± {nll.error:.3f}':>17}{apart:>19}{seconds:9.1f}", flush=True)
    return posterior, x[test]


def keep(posterior, x):
    """Saves the posterior, loads it again, and reads one prediction aloud."""
    with tempfile.TemporaryDirectory() as folder:
        pred = lamu.load(posterior.save(Path(folder) / "posterior")).predict(x)
    same = np.array_equal(pred.mean, posterior.predict(x).mean)
    lower, upper = pred.interval(0.9)
    print(f"\n{title_of(posterior)} saved, loaded, predicted again: {'the same bits' if same else 'NOT the same'}")
    print(f"the first test patient: {pred.mean[0]:.0f}, in [{lower[0]:.0f}, {upper[0]:.0f}] with 90 % probability;")
    print(f"of the variance {pred.aleatoric[0]:.0f} is noise, {pred.epistemic[0]:.0f} is not knowing the weights")


def title_of(posterior):
    """A belief in a word."""
    return type(posterior.belief).__name__


if __name__ == "__main__":
    for name, (likelihood, words) in SETS.items():
        posterior, x = learn(name, likelihood, words)
    keep(posterior, x)
