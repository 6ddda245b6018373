"""The main job, on real data: three algorithms, a classification and a regression, a posterior saved and loaded.

make demo        or        python examples/demo.py
"""

import tempfile
import time
from pathlib import Path

import numpy as np

import lamu

SETS = {
    "digits": (lamu.likelihoods.Categorical(10), "1,797 images of 8x8 pixels, ten classes"),
    "diabetes": (lamu.likelihoods.Gaussian(), "442 patients, progression of a disease; the noise is learned"),
}
ALGORITHMS = {
    "adam": lamu.algorithms.adam(learning_rate=3e-3),
    "laplace": lamu.algorithms.laplace(of=lamu.algorithms.adam(learning_rate=3e-3)),
    "ivon": lamu.algorithms.ivon(),
}


def evaluate(pred, y):
    """The scores that fit the task."""
    scores = lamu.scores
    if pred.task == "regression":
        return {
            "RMSE": scores.rmse(pred, y),
            "NLL": scores.nll(pred, y),
            "in 90% interval": scores.coverage(pred, y, 0.9),
        }
    return {"accuracy": scores.accuracy(pred, y), "NLL": scores.nll(pred, y), "ECE": scores.ece(pred, y)}


def main():
    for name, (likelihood, words) in SETS.items():
        x, y = lamu.data.load(name)
        train, test = lamu.data.split(y, test_size=0.2, seed=0, stratify=name == "digits")
        network = lamu.networks.MLP((32,))
        model = lamu.Model(network, likelihood, lamu.priors.Normal(scale=0.3)).standardised(x[train], y[train])
        print(f"\n{name}: {words}; {len(train)} rows to learn from, {len(test)} to test")
        for title, algorithm in ALGORITHMS.items():
            start = time.perf_counter()
            fit = lamu.fit(model, (x[train], y[train]), algorithm, epochs=40, batch_size=64, seed=0)
            pred = fit.posterior.predict(x[test])
            numbers = "   ".join(f"{score} {value:.3f}" for score, value in evaluate(pred, y[test]).items())
            print(f"  {title:8} {numbers}   {time.perf_counter() - start:5.1f} s with compilation")

    with tempfile.TemporaryDirectory() as folder:
        path = fit.posterior.save(Path(folder) / "posterior")
        again = lamu.load(path).predict(x[test])
        same = bool(np.array_equal(again.mean, pred.mean))
        lower, upper = again.interval(0.9)
        print(f"\nsaved, loaded, predicted again: the same bits: {same}")
        print(f"the first test patient: {again.mean[0]:.0f}, in [{lower[0]:.0f}, {upper[0]:.0f}] with 90 % probability")
        print(
            f"  of the variance {again.aleatoric[0]:.0f} is noise, {again.epistemic[0]:.0f} is not knowing the weights"
        )


if __name__ == "__main__":
    main()
