"""The main job, on real data: six algorithms on a classification and a regression, a posterior saved and loaded.

make demo        or        python examples/demo.py
"""

import tempfile
import time
from pathlib import Path

import numpy as np

import lamu
from lamu import algorithms, scores
from lamu.rate import Annealed

ALGORITHMS = {
    "adam": algorithms.adam(Annealed(1e-2)),  # one point: the measure of the others, and what three of them begin with
    "deep_ensemble": algorithms.deep_ensemble(members=5),
    "last_layer": algorithms.last_layer(),
    "laplace": algorithms.laplace(),
    "vogn": algorithms.vogn(),
    "ivon": algorithms.ivon(),
}
SETS = {
    "digits": (
        "1,797 images of 8 by 8 pixels, ten classes",
        (64, 64),
        lamu.likelihoods.Categorical(10),
        {"accuracy": scores.accuracy, "ECE": scores.ece},
        tuple(ALGORITHMS),
    ),
    "diabetes": (
        "442 patients, a disease's progression; the noise is learned",
        (16,),
        lamu.likelihoods.Gaussian(),
        {"RMSE": scores.rmse, "in 90 %": scores.coverage},  # the share of targets inside their 90 % intervals
        ("adam", "laplace"),
    ),
}


def learn(name):
    """Fits algorithms to one set and prints a line of scores for each; returns the last posterior, and test rows."""
    words, widths, likelihood, measures, chosen = SETS[name]
    x, y = lamu.data.load(name)
    train, test = lamu.data.split(y, test_size=0.2, seed=0, stratify=likelihood.task == "classes")
    model = lamu.Model(lamu.networks.MLP(widths), likelihood, lamu.priors.LearnedNormal(1.0))
    if likelihood.task == "regression":  # pixels share a scale already; the patients' measurements do not
        model = model.standardised(x[train], y[train])
    print(f"\n{name}: {words}")
    print(f"{len(train)} rows to learn from, a tenth of them to validate on; {len(test)} to test\n")
    print(f"{'':14}{''.join(f'{head:>10}' for head in measures)}{'NLL':>16}{'NLL less adam':>18}{'seconds':>9}")
    posterior = reference = None
    for title in chosen:
        start = time.perf_counter()
        print(f"{title:14}", end="", flush=True)
        fit = lamu.fit(model, (x[train], y[train]), ALGORITHMS[title], epochs=50, validation=0.1, progress=False)
        posterior = fit.posterior
        pred = posterior.predict(x[test])
        reference = pred if reference is None else reference
        values = "".join(f"{measure(pred, y[test]):10.3f}" for measure in measures.values())
        nll = scores.with_error(scores.nll, pred, y[test])
        less = scores.difference(scores.nll, pred, reference, y[test])  # pair by pair
        apart = f"{less.value:+.3f} ± {less.error:.3f}" if pred is not reference else "-"
        print(f"{values}{f'{nll.value:.3f} ± {nll.error:.3f}':>16}{apart:>18}{time.perf_counter() - start:9.1f}")
    return posterior, x[test]


def keep(posterior, x):
    """Saves a posterior, loads it, and reads one prediction aloud."""
    with tempfile.TemporaryDirectory() as folder:
        pred = lamu.load(posterior.save(Path(folder) / "posterior")).predict(x)
    same = np.array_equal(pred.mean, posterior.predict(x).mean)
    lower, upper = pred.interval(0.9)
    print(f"\nsaved, loaded, predicted again: {'the same bits' if same else 'NOT the same bits'}")
    print(f"the first test patient: {pred.mean[0]:.0f}, in [{lower[0]:.0f}, {upper[0]:.0f}] with 90 % probability;")
    print(f"of the variance {pred.aleatoric[0]:.0f} is noise, {pred.epistemic[0]:.0f} is not knowing the weights")


if __name__ == "__main__":
    print("NLL: negative log predictive density of test rows, nats a row, ± its standard error; lower is better.")
    print("Seconds are mostly those of compilation.")
    learn("digits")
    keep(*learn("diabetes"))
