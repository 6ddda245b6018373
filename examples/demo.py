"""The main jobs, on real data: a table, a network that PyTorch has trained, and a network trained by IVON beside Adam.

Each scene prints its figures with their standard errors, and saves a picture where it is run, `demo_*.png`.

make demo        or        python examples/demo.py
"""

import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import lamu
from lamu import algorithms, plots, scores
from lamu.plots.style import canvas, head
from lamu.predictives import MixturePredictive
from lamu.rate import Annealed
from lamu.tabular.peers import peer, quiet

BEGIN = time.perf_counter()
# What follows was chosen on other training images of Fashion-MNIST, of which the bundled part has none.
EPOCHS, BATCH, RATE = 40, 128, 4e-3
PRIOR = lamu.priors.Normal(0.5)  # the best of .2, .3, .5 and 1 for Adam, and for IVON


def save(figure, name):
    """Writes a picture, and says where."""
    path = f"demo_{name}.png"
    figure.savefig(path)
    print(f"\npicture: {path}, {time.perf_counter() - BEGIN:.0f} s after the start", flush=True)


def words(estimate, sign=""):
    """Returns a number with its standard error."""
    return f"{estimate.value:{sign}.3f} ± {estimate.error:.3f}"


# The first scene: a table.


def table(name="diabetes"):
    """Mixes the candidates of a table, as `lamu fit` does, beside the models of scikit-learn with their defaults."""
    x, y = lamu.data.load(name)
    train, test = lamu.data.split(len(y), test_size=0.2, seed=0)
    levels = (0,) * x.shape[1]  # no column is of words
    print(f"\n1. A table: {name}, {len(train)} patients to learn from, {len(test)} to test\n")
    print(f"{'':14}{'RMSE':>16}{'in 90 %':>16}{'NLL':>16}{'NLL less ours':>17}{'seconds':>9}")
    ours = None
    for title in ("fit_table", "linear", "boosting", "forest"):
        start = time.perf_counter()
        print(f"{title:14}", end="", flush=True)
        if title == "fit_table":
            posterior = lamu.fit_table(x[train], y[train], lamu.likelihoods.Gaussian()).posterior
            ours = pred = posterior.predict(x[test])
        else:
            with quiet():
                pred = peer(title, "regression", x[train], y[train], x[test], levels)
        rmse, inside, nll = (scores.with_error(s, pred, y[test]) for s in (scores.rmse, scores.coverage, scores.nll))
        less = "-" if pred is ours else words(scores.difference(scores.nll, pred, ours, y[test]), "+")
        seconds = time.perf_counter() - start
        rmse = f"{rmse.value:.1f} ± {rmse.error:.1f}"
        print(f"{rmse:>16}{words(inside):>16}{words(nll):>16}{less:>17}{seconds:9.1f}", flush=True)
    lower, upper = ours.interval(0.9)
    print(f"\nthe first test patient: {ours.mean[0]:.0f}, in [{lower[0]:.0f}, {upper[0]:.0f}] with 90 % probability")
    with tempfile.TemporaryDirectory() as folder:
        again = lamu.load(posterior.save(Path(folder) / "posterior")).predict(x[test])
    same = np.array_equal(again.mean, ours.mean)
    print(f"saved, loaded, predicted again: {'the same bits' if same else 'NOT the same bits'}")
    figure = canvas(8, 4)
    plots.coverage(ours, y[test], figure.subplots(1, 2))
    save(figure, "table")


# Images: clothes to learn and to test, and digits, which are of another kind.


def images():
    """Returns rows to learn from and to test, `[N, 14, 14]` with their classes, and images of digits."""
    halved = lambda x: x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))  # half the resolution, a quarter of the time
    x, y = lamu.data.load("fashion_mnist")
    train, test = lamu.data.split(y, test_size=0.25, seed=0, stratify=True)
    digits, _ = lamu.data.load("digits")
    digits = np.kron(digits.reshape(-1, 8, 8), np.ones((1, 3, 3), np.float32))
    x, digits = halved(x), halved(np.pad(digits, ((0, 0), (2, 2), (2, 2))))
    return (x[train], y[train]), (x[test], y[test]), digits


class Contest:
    """Prints a line of scores for each prediction, the first one being what the others are compared with."""

    def __init__(self, y):
        self.y, self.first = y, None
        print(f"{'':14}{'T':>6}{'accuracy':>16}{'ECE':>16}{'NLL':>16}{'AUROC, digits':>16}{'seconds':>9}")

    def begin(self, title):
        """Prints what is running."""
        print(f"{title:14}", end="", flush=True)
        self.start = time.perf_counter()

    def end(self, temperature, pred, digits):
        """Prints the scores of a prediction, and their differences to the first one's, pair by pair."""
        seconds = time.perf_counter() - self.start
        judges = (scores.accuracy, scores.ece, scores.nll)
        found = "".join(f"{words(scores.with_error(score, pred, self.y)):>16}" for score in judges)
        doubt = apart(scores.entropy(pred), scores.entropy(digits))
        print(f"{temperature:6.3g}{found}{words(estimate(*doubt)):>16}{seconds:9.1f}", flush=True)
        if self.first is None:
            self.first = pred, doubt
            return
        other, other_doubt = self.first
        found = "".join(f"{words(scores.difference(score, pred, other, self.y), '+'):>16}" for score in judges)
        away = estimate(doubt[0] - other_doubt[0], doubt[1] - other_doubt[1])
        print(f"{'  difference':20}{found}{words(away, '+'):>16}", flush=True)


def apart(known, unknown):
    """Returns the AUROC of doubts, and deviations whose squares sum to its squared error (DeLong et al. 1988)."""
    below = (known[:, None] < unknown) + 0.5 * (known[:, None] == unknown)
    rows = (below.mean(axis=1), below.mean(axis=0))
    value = below.mean()
    return value, np.concatenate([(row - value) / np.sqrt(len(row) * (len(row) - 1)) for row in rows])


def estimate(value, deviations):
    """Returns a number with its standard error."""
    return scores.Estimate(float(value), float(np.sqrt(np.sum(deviations**2))))


# The second scene: a network that PyTorch has trained.


def pytorch(train, test, digits):
    """Trains a network by PyTorch, as its tutorials do, and puts a posterior about its last layer."""
    import torch
    from torch import nn

    learned, kept = lamu.data.split(train[1], test_size=1 / 9, seed=0, stratify=True)
    x, y = (array[learned] for array in train)
    print(
        f"\n2. A trained network made honest: {len(y)} images of clothes for PyTorch, {len(kept)} that it has not seen"
    )
    print(f"   for `last_layer`, {len(test[1])} to test\n")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network gains nothing by more, and has the same bits on every machine
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(288, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    contest = Contest(test[1])
    contest.begin("PyTorch")
    optimizer = torch.optim.Adam(module.parameters(), 2e-3)
    inputs, labels = torch.tensor(x[:, None]), torch.tensor(y).long()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        before, strange = (point(module(torch.tensor(rows[:, None])).numpy()) for rows in (test[0], digits))
    contest.end(1, before, strange)

    contest.begin("last_layer")
    network = lamu.networks.Torch(module, head="9/*")
    model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.LearnedNormal())
    unseen = (train[0][kept][:, None], train[1][kept])
    fit = lamu.fit(model, (x[:, None], y), algorithms.last_layer(), epochs=0, validation=unseen, progress=False)
    after, strange = (fit.posterior.predict(rows[:, None]) for rows in (test[0], digits))
    contest.end(fit.posterior.rule.temperature, after, strange)
    figure = canvas(8, 5)
    axes = figure.subplots(2, 2, height_ratios=(3, 1), sharex=True)
    for column, (title, pred) in zip(axes.T, (("PyTorch", before), ("last_layer", after)), strict=True):
        plots.reliability(pred, test[1], axes=column)
        head(column[0], title, f"ECE {words(scores.with_error(scores.ece, pred, test[1]))}")
    save(figure, "trained_network")


def point(outputs):
    """Returns the prediction of a network without a posterior, given its outputs."""
    return MixturePredictive(lamu.likelihoods.Categorical(10), {}, outputs[None], np.zeros(1, np.float32))


# The third scene: IVON in the place of Adam.


def ivon(train, test, digits):
    """Trains a network by Adam and by IVON: the same model, images and number of steps."""
    network = lamu.networks.ConvNet((16, 32), widths=(64,))
    model = lamu.Model(network, lamu.likelihoods.Categorical(10), PRIOR)
    options = {"epochs": EPOCHS, "batch_size": BATCH, "progress": False}
    print(
        f"\n3. A network trained by IVON: {len(train[1])} images of clothes, {EPOCHS} epochs, {len(test[1])} to test;"
    )
    print("   a tenth of the images chooses its temperature, from .3 down to .01\n")
    contest, doubts = Contest(test[1]), {}
    for title in ("adam", "ivon"):
        contest.begin(title)
        if title == "adam":
            posterior = lamu.fit(model, train, algorithms.adam(Annealed(RATE)), **options).posterior
        else:
            tried = {"temperatures": (0.3, 0.1, 0.03, 0.01), "validation": 0.1}
            found = lamu.fit_temperature(model, train, algorithms.ivon(), **tried, **options)
            posterior = found.posterior
        pred, strange = (posterior.predict(rows, samples=32) for rows in (test[0], digits))
        contest.end(posterior.temperature, pred, strange)
        doubts[title] = scores.entropy(pred), scores.entropy(strange)
    of_each = ", ".join(f"{temperature:g} {nll:.3f}" for temperature, nll in found.temperatures.items())
    print(f"\ntemperatures tried, a run each, with the NLL of the tenth: {of_each}")
    figure = canvas(9, 3.4)
    for axes, (title, doubt) in zip(figure.subplots(1, 2, sharex=True, sharey=True), doubts.items(), strict=True):
        plots.uncertainty_shift(*doubt, axes=axes)
        axes.set(xlabel="entropy of the prediction, nats")
        head(axes, title, f"AUROC {words(estimate(*apart(*doubt)))}")
    save(figure, "ivon")


if __name__ == "__main__":
    # PyTorch trains without a prior, so that its weights are no mode; and the lengths of the third scene are short.
    warnings.simplefilter("ignore", lamu.Unconverged)
    print("NLL: negative log predictive density of test rows, nats a row; ECE: calibration error; lower is better.")
    print("AUROC, digits: how often the entropy of a digit is above that of a piece of clothing; 1 is always.")
    print("T: the temperature. After ± stand standard errors over test rows; differences are taken row by row.")
    table()
    parts = images()
    pytorch(*parts)
    ivon(*parts)
