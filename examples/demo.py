"""The main job, on real data: a table beside scikit-learn's models, six algorithms on images, three on the table.

A posterior is saved and loaded at the end.

make demo        or        python examples/demo.py
"""

import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import lamu
from lamu import algorithms, scores
from lamu.rate import Annealed
from lamu.tabular.peers import peer, quiet

ADAM = algorithms.adam(Annealed(1e-2))  # a point, the measure of the others
POINTS = ("adam", "deep_ensemble")  # have no temperature
EPOCHS = {"vogn": 100, "ivon": 100}  # of the others 50
DIGITS = {
    "adam": ADAM,
    "deep_ensemble": algorithms.deep_ensemble(members=5),
    "last_layer": algorithms.last_layer(),
    "laplace": algorithms.laplace(),
    "vogn": algorithms.vogn(),
    "ivon": algorithms.ivon(),
}
DIABETES = {"adam": ADAM, "ivon": algorithms.ivon(), "laplace": algorithms.laplace()}


def fitted(title, model, rows, algorithm):
    """Returns a posterior; of a classification, at the temperature that training rows choose."""
    options = {"epochs": EPOCHS.get(title, 50), "progress": False}
    if model.likelihood.task != "classes" or title in POINTS:
        return lamu.fit(model, rows, algorithm, validation=0.1, **options).posterior
    return lamu.fit_temperature(model, rows, algorithm, temperatures=(1.0, 0.1, 0.01), **options).posterior


def learn(name, words, widths, likelihood, measures, chosen, strange=None):
    """Fits algorithms to one set and prints a line of scores for each; returns the last posterior, and test rows."""
    x, y = lamu.data.load(name)
    train, test = lamu.data.split(y, test_size=0.2, seed=0, stratify=likelihood.task == "classes")
    model = lamu.Model(lamu.networks.MLP(widths), likelihood, lamu.priors.LearnedNormal(1.0))
    if likelihood.task == "regression":  # pixels share a scale already; the patients' measurements do not
        model = model.standardised(x[train], y[train])
    print(f"\n{name}: {words}; {len(train)} rows to learn from, {len(test)} to test\n")
    heads = [*measures, *([] if strange is None else ["strange"])]
    print(f"{'':14}{'T':>6}{''.join(f'{head:>10}' for head in heads)}{'NLL':>16}{'NLL less adam':>18}{'seconds':>9}")
    posterior = reference = None
    for title, algorithm in chosen.items():
        start = time.perf_counter()
        print(f"{title:14}", end="", flush=True)
        posterior = fitted(title, model, (x[train], y[train]), algorithm)
        pred = posterior.predict(x[test])
        reference = pred if reference is None else reference
        found = [measure(pred, y[test]) for measure in measures.values()]
        if strange is not None:
            found.append(scores.auroc(scores.entropy(pred), scores.entropy(posterior.predict(strange(x[test])))))
        values = "".join(f"{value:10.3f}" for value in found)
        nll = scores.with_error(scores.nll, pred, y[test])
        less = scores.difference(scores.nll, pred, reference, y[test])  # pair by pair
        apart = f"{less.value:+.3f} ± {less.error:.3f}" if pred is not reference else "-"
        seconds = time.perf_counter() - start
        print(f"{posterior.temperature:6g}{values}{f'{nll.value:.3f} ± {nll.error:.3f}':>16}{apart:>18}{seconds:9.1f}")
    return posterior, x[test]


def main_job(name="diabetes"):
    """Mixes the candidates of a table, as `lamu fit` does, beside the models of scikit-learn with their defaults."""
    x, y = lamu.data.load(name)
    train, test = lamu.data.split(len(y), test_size=0.2, seed=0)
    levels = (0,) * x.shape[1]  # no column is of words
    print(f"\n{name}: what `lamu fit {name}` does, beside scikit-learn's models; {len(test)} rows to test\n")
    print(f"{'':14}{'RMSE':>10}{'in 90 %':>10}{'NLL':>16}{'NLL less ours':>18}{'seconds':>9}")
    ours = None
    for title in ("fit_table", "linear", "boosting", "forest"):
        start = time.perf_counter()
        if title == "fit_table":
            found = lamu.fit_table(x[train], y[train], lamu.likelihoods.Gaussian())
            ours = pred = found.posterior.predict(x[test])
        else:
            with quiet():
                pred = peer(title, "regression", x[train], y[train], x[test], levels)
        nll = scores.with_error(scores.nll, pred, y[test])
        less = scores.difference(scores.nll, pred, ours, y[test])
        apart = "-" if pred is ours else f"{less.value:+.3f} ± {less.error:.3f}"
        print(
            f"{title:14}{scores.rmse(pred, y[test]):10.3f}{scores.coverage(pred, y[test]):10.3f}"
            f"{f'{nll.value:.3f} ± {nll.error:.3f}':>16}{apart:>18}{time.perf_counter() - start:9.1f}"
        )
    kept = ", ".join(f"{weight:.2f} {name}" for name, weight in found.weights.items() if weight > 0)
    print(f"\nfit_table mixes {kept}")


def scrambled(images):
    """Returns the images with their pixels in another order, the same for all: as bright, and no digits."""
    return images[:, np.random.default_rng(0).permutation(images.shape[1])]


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
    warnings.simplefilter("ignore", lamu.Unconverged)  # lengths are short here; without them a fit runs until the end
    print("NLL: negative log predictive density of test rows, nats a row, ± its standard error; lower is better.")
    print("T: the temperature; where it is not 1, training rows chose it. Seconds are mostly those of compilation.")
    print("strange: how often the entropy of a scrambled image is above that of a real one; 1 is always.")
    main_job()
    learn(
        "digits",
        "images of 8 by 8 pixels, ten classes",
        (64, 64),
        lamu.likelihoods.Categorical(10),
        {"accuracy": scores.accuracy, "ECE": scores.ece},
        DIGITS,
        strange=scrambled,
    )
    rows = learn(
        "diabetes",
        "patients, a disease's progression; the noise is learned",
        (16,),
        lamu.likelihoods.Gaussian(),
        {"RMSE": scores.rmse, "in 90 %": scores.coverage},  # the share of targets inside their 90 % intervals
        DIABETES,
    )
    keep(*rows)
