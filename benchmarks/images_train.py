"""Image networks trained by every method that costs about one gradient a step, and by ensembles of five.

    python -m benchmarks.images_train                 Fashion-MNIST and MNIST (60,000), CIFAR-10 in small; three seeds
    python -m benchmarks.images_train --quick         6,000 images of Fashion-MNIST, one network, one seed, no `laplace`
    python -m benchmarks.images_train --temperatures  development rows alone: IVON and VOGN by temperature and prior
    python -m benchmarks.images_train --methods adam ivon --data mnist --networks large --epochs 100 --device gpu

Networks: a LeNet-like ConvNet of 60,674 weights (`small`), another of 282,714 (`large`), and a ResNet with
filter-response normalisation (`resnet`, 20 layers; its 272,282 weights are for three colours). Every method takes the
same number of passes over the images in batches of 128. Its rate and its prior (a scale, or a decoupled decay of
AdamW) are chosen among the same few by the NLL of a tenth of the training images; SWAG, the last layer, Laplace's
method and the ensembles take what was chosen for the method that they are built on. Then it learns from all training
images (a quick table: once more from the nine tenths), and is judged once by the test images. `ivon` and `vogn` stand
there as they ship, at T = 1, and at the temperature that the same tenth chooses.

Unknown images: MNIST's for Fashion-MNIST, Fashion-MNIST's for the others (padded, in three equal colours, for
CIFAR-10), and pixels of uniform noise. AUROC is the share of pairs, one known and one unknown image, in which the
unknown has the larger entropy; FPR95 the share of unknown images whose entropy is below the 95 % quantile of the known.
Changed images: test images that are rotated, blurred or noisy, in five strengths; NLL and ECE are means over the five,
and `--json` keeps each. Seconds are those of `lamu.fit` after a first run that compiles, and memory is that of the
state that a run keeps from step to step (weights, belief and moments), both relative to Adam's. CIFAR-10 is flipped and
shifted at random.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import ndimage

import lamu
from benchmarks.images import Augmented, arrays, scaled
from benchmarks.splits import folder
from lamu.networks import ConvNet, Dropout, ResNet
from lamu.priors import Normal
from lamu.rate import Annealed

A = lamu.algorithms
BATCH, DRAWS, MEMBERS = 128, 32, 5
NETWORKS = {
    "small": ConvNet((8, 16), (72,), kernel=5),
    "large": ConvNet((16, 32), (176,)),
    "resnet": ResNet(20),
}
FLAT = 10.0  # the scale of a prior that says nothing beside a decoupled decay
WIDE, NARROW = 0.3, 0.1

# Five strengths of each change: degrees, deviations in pixels, and deviations in parts of a pixel's range.
DEGREES = (15.0, 30.0, 45.0, 60.0, 75.0)
WIDTHS = (0.5, 1.0, 1.5, 2.0, 2.5)
NOISES = (0.05, 0.1, 0.2, 0.3, 0.5)


def rotated(pixels: np.ndarray, degrees: float) -> np.ndarray:
    """Returns images that are turned about their middle."""
    return ndimage.rotate(pixels, degrees, axes=(2, 1), reshape=False, order=1, mode="nearest")


def blurred(pixels: np.ndarray, width: float) -> np.ndarray:
    """Returns images under a Gaussian blur."""
    return ndimage.gaussian_filter(pixels, (0.0, width, width) + (0.0,) * (pixels.ndim - 3))


def noisy(pixels: np.ndarray, deviation: float) -> np.ndarray:
    """Returns images with normal noise, clipped to a pixel's range."""
    noise = np.random.default_rng(0).normal(0.0, 255.0 * deviation, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


RELATIVE = ("NLL less", "NLL less, error", "time", "memory")  # those of a row that stand beside the first's
CHANGES: dict[str, tuple[Callable[[np.ndarray, float], np.ndarray], tuple[float, ...]]] = {
    "rotated": (rotated, DEGREES),
    "blurred": (blurred, WIDTHS),
    "noisy": (noisy, NOISES),
}


@dataclass(frozen=True)
class Setting:
    """What is chosen for a method on a tenth of the training images: its rate, its prior and its temperature."""

    rate: float
    scale: float = WIDE
    decay: float = 0.0
    temperature: float = 1.0

    def __str__(self) -> str:
        prior = f"decay {self.decay:g}" if self.decay else f"scale {self.scale:g}"
        return f"rate {self.rate:g}, {prior}" + ("" if self.temperature == 1 else f", T {self.temperature:g}")


def settings(rates: Iterable[float], scales: Iterable[float] = (NARROW, WIDE), temperatures: Any = (1.0,)) -> Any:
    """Returns all settings of rates, prior scales and temperatures, the likely ones first."""
    return tuple(Setting(rate, scale, 0.0, T) for rate in rates for scale in scales for T in temperatures)


@dataclass(frozen=True)
class Method:
    """A method of the table.

    Attributes:
        make: returns the algorithm, given a setting and the number of steps.
        settings: those among which the tenth chooses; none for a method that takes those of `like`.
        like: the method whose choice it takes.
        dropout: the rate of dropout in the network's dense layers.
    """

    make: Callable[[Setting, int], Any]
    settings: tuple[Setting, ...] = ()
    like: str = ""
    dropout: float = 0.0


def sgd(setting: Setting, steps: int) -> Any:
    """Returns SGD with momentum."""
    return A.sgd(Annealed(setting.rate), momentum=0.9)


def adam(setting: Setting, steps: int) -> Any:
    """Returns Adam."""
    return A.adam(Annealed(setting.rate))


def adamw(setting: Setting, steps: int) -> Any:
    """Returns AdamW, its rate annealed as the others' are."""
    import optax

    return A.map_estimate(optax.adamw(optax.cosine_decay_schedule(setting.rate, steps), weight_decay=setting.decay))


RULE = settings((0.3, 0.1))
COLD = settings((0.3,), (0.1, 0.2, 0.3), (0.1, 0.3, 0.03))
METHODS: dict[str, Method] = {
    "adam": Method(adam, settings((4e-3, 2e-3))),
    "sgd": Method(sgd, settings((0.02, 0.005))),
    "adamw": Method(adamw, tuple(Setting(rate, FLAT, decay) for rate in (4e-3, 2e-3) for decay in (0.3, 0.1))),
    "sam": Method(lambda s, n: A.sam(Annealed(s.rate, warmup=0.1), momentum=0.9), settings((0.02, 0.005))),
    "ivon": Method(lambda s, n: A.ivon(Annealed(s.rate, warmup=0.1)), RULE),
    "vogn": Method(lambda s, n: A.vogn(Annealed(s.rate, warmup=0.1)), RULE),
    "bsam": Method(lambda s, n: A.bsam(Annealed(s.rate, warmup=0.1)), RULE),
    "ivon, T chosen": Method(lambda s, n: A.ivon(Annealed(s.rate, warmup=0.1)), COLD),
    "vogn, T chosen": Method(lambda s, n: A.vogn(Annealed(s.rate, warmup=0.1)), COLD),
    "swag": Method(lambda s, n: A.swag(A.sgd(s.rate / 4, momentum=0.9)), like="sgd"),
    "mc_dropout": Method(lambda s, n: A.mc_dropout(adam(s, n)), settings((4e-3, 2e-3)), dropout=0.2),
    "adam, last_layer": Method(lambda s, n: A.last_layer(adam(s, n)), like="adam"),
    "adam, laplace": Method(lambda s, n: A.laplace(adam(s, n)), like="adam"),
    "five adams": Method(lambda s, n: A.deep_ensemble(adam(s, n), MEMBERS), like="adam"),
    "five ivons": Method(
        lambda s, n: A.deep_ensemble(A.ivon(Annealed(s.rate, warmup=0.1)), MEMBERS), like="ivon, T chosen"
    ),
    "mixture of five": Method(
        lambda s, n: A.mixture(A.ivon(Annealed(s.rate, warmup=0.1)), MEMBERS), like="ivon, T chosen"
    ),
}


@dataclass(frozen=True)
class Problem:
    """Images to learn from, images to be judged by, unknown ones by name, and the network."""

    name: str
    x: np.ndarray
    y: np.ndarray
    to: np.ndarray
    at: np.ndarray
    unknown: dict[str, np.ndarray]
    changed: dict[str, list[np.ndarray]]  # the first test images under each change, in five strengths
    network: Any
    augmented: bool = False

    def development(self) -> Problem:
        """Returns the problem of a tenth of the training images: the test images have no part in it."""
        order = np.random.default_rng(0).permutation(len(self.x))
        held, rest = np.split(order, [len(order) // 10])
        return replace(self, x=self.x[rest], y=self.y[rest], to=self.x[held], at=self.y[held])

    def steps(self, epochs: int) -> int:
        """Returns the number of steps of so many passes."""
        return epochs * -(-len(self.x) // BATCH)

    def fit(self, method: Method, setting: Setting, epochs: int, seed: int) -> Any:
        """Returns the fit of a method."""
        # A residual network has no hidden dense layer; `mc_dropout` refuses it in a sentence, which the table prints.
        drops = method.dropout and isinstance(self.network, ConvNet)
        network = replace(self.network, dropout=Dropout(method.dropout)) if drops else self.network
        model = lamu.Model(network, lamu.likelihoods.Categorical(10), Normal(setting.scale))
        algorithm = method.make(setting, self.steps(epochs))
        options = {"seed": seed, "temperature": setting.temperature}
        if not self.augmented:
            return lamu.fit(model, (self.x, self.y), algorithm, epochs=epochs, batch_size=BATCH, **options)
        stream = Augmented(self.x, self.y, BATCH, seed)
        return lamu.fit(model, stream, algorithm, steps=self.steps(epochs), data_size=len(self.x), **options)


def problem(data: str, network: str, rows: int | None = None, judging: int | None = None) -> Problem:
    """Returns the problem of a set and a network, of the first so many images where that is said."""
    images = folder() / "images"
    file = {"fashion": "fashion_mnist", "mnist": "mnist", "cifar": "cifar10_small"}[data]
    other = "mnist" if data == "fashion" else "fashion_mnist"
    with np.load(images / f"{file}.npz") as known, np.load(images / f"{other}.npz") as unknown:
        x, y, to, at = arrays(known)
        strange = unknown["X_test"][: 2000 if judging is None else judging // 4]
    if data == "cifar":
        strange = np.repeat(np.pad(strange, ((0, 0), (2, 2), (2, 2)))[..., None], 3, axis=-1)
    noise = np.random.default_rng(0).integers(0, 256, strange.shape, np.uint8)
    found = {other: scaled(strange), "noise": scaled(noise)}
    pixels = np.load(images / f"{file}.npz")["X_test"][: 2000 if judging is None else judging // 10]
    changed = {name: [scaled(change(pixels, by)) for by in strengths] for name, (change, strengths) in CHANGES.items()}
    known = x[:rows], y[:rows], to[:judging], at[:judging]
    return Problem(data, *known, found, changed, NETWORKS[network], augmented=data == "cifar")


@dataclass
class Scores:
    """The scores of one run, by name, with the log densities of the rows."""

    values: dict[str, float]
    density: np.ndarray = field(repr=False)


def judged(posterior: Any, images: Problem) -> Scores:
    """Returns the scores of a posterior."""
    pred = posterior.predict(images.to, samples=DRAWS)
    density, doubt = np.asarray(pred.log_prob(images.at)), np.asarray(pred.total)
    values = {
        "accuracy": float(lamu.scores.accuracy(pred, images.at)),
        "NLL": -float(density.mean()),
        "ECE": float(lamu.scores.ece(pred, images.at)),
        "Brier": float(lamu.scores.brier(pred, images.at)),
    }
    for name, unknown in images.unknown.items():
        strange = np.asarray(posterior.predict(unknown, samples=DRAWS).total)
        values[f"AUROC {name}"] = float(lamu.scores.auroc(doubt, strange))
        values[f"FPR95 {name}"] = float((strange < np.quantile(doubt, 0.95)).mean())
    return Scores(values, density)


def under_changes(posterior: Any, images: Problem) -> dict[str, list[float]]:
    """Returns NLL and ECE at images rotated, blurred and noisy, a number a strength."""
    found: dict[str, list[float]] = {}
    for name, strengths in images.changed.items():
        for changed in strengths:
            pred, y = posterior.predict(changed, samples=DRAWS), images.at[: len(changed)]
            found.setdefault(f"NLL {name}", []).append(float(lamu.scores.nll(pred, y)))
            found.setdefault(f"ECE {name}", []).append(float(lamu.scores.ece(pred, y)))
    return found


def bytes_kept(fit: Any) -> int:
    """Returns the bytes of the state that a run keeps from step to step."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(fit.state) if hasattr(leaf, "nbytes"))


def choose(name: str, images: Problem, epochs: int, few: bool, chosen: dict[str, Setting]) -> Setting:
    """Returns the setting of a method: that of another, or the best of its own by the tenth of the training images."""
    method = METHODS[name]
    if method.like:
        return chosen.get(method.like) or choose(method.like, images, epochs, few, chosen)
    candidates = method.settings[: max(2, len(method.settings) // 3)] if few else method.settings
    if len(candidates) == 1:
        return candidates[0]
    tenth, losses = images.development(), []
    for setting in candidates:
        try:
            pred = tenth.fit(method, setting, epochs, seed=0).posterior.predict(tenth.to, samples=DRAWS)
            losses.append(-float(np.mean(np.asarray(pred.log_prob(tenth.at)))))
        except lamu.Diverged:
            losses.append(np.inf)
    return candidates[int(np.nanargmin(losses))]


@dataclass
class Line:
    """What the runs of one method are, a row of the table."""

    name: str
    setting: Setting
    runs: list[Scores]
    changes: list[dict[str, list[float]]]
    seconds: list[float]
    bytes: int

    @property
    def density(self) -> np.ndarray:
        """The log density of each test image, the mean over seeds."""
        return np.mean([run.density for run in self.runs], axis=0)

    def told(self, first: Line) -> dict[str, Any]:
        """Returns the figures of the row, some relative to those of the first."""
        away = first.density - self.density
        means = {key: float(np.mean([run.values[key] for run in self.runs])) for key in self.runs[0].values}
        strengths = {key: np.mean([run[key] for run in self.changes], axis=0) for key in self.changes[0]}
        return (
            {"method": self.name, "setting": str(self.setting), "seeds": len(self.runs)}
            | means
            | {key: float(each.mean()) for key, each in strengths.items()}
            | {f"{key}, each strength": each.tolist() for key, each in strengths.items()}
            | {"NLL less": float(away.mean()), "NLL less, error": float(away.std(ddof=1) / np.sqrt(len(away)))}
            | {"time": min(self.seconds) / min(first.seconds), "memory": self.bytes / first.bytes}
        )


def line(images: Problem, learned: Problem, name: str, setting: Setting, epochs: int, seeds: int, warm: bool) -> Line:
    """Returns the row of a method, fitted once a seed; with `warm` after a pass that compiles."""
    method = METHODS[name]
    if warm:
        learned.fit(method, setting, 1, seed=0)
    found = Line(name, setting, [], [], [], 0)
    for seed in range(seeds):
        start = time.perf_counter()
        fit = learned.fit(method, setting, epochs, seed)
        jax.block_until_ready(fit.state)
        found.seconds.append(time.perf_counter() - start)
        found.runs.append(judged(fit.posterior, images))
        found.changes.append(under_changes(fit.posterior, images))
        found.bytes = bytes_kept(fit)
    return found


def table(images: Problem, names: list[str], epochs: int, seeds: int, few: bool, quick: bool) -> list[dict[str, Any]]:
    """Prints a line a method: means over seeds, and the NLL's difference to the first with its standard error."""
    tenth = images.development()
    # A quick table learns from the nine tenths once more, whose programs the choice has compiled.
    learned = replace(images, x=tenth.x, y=tenth.y) if quick else images
    print(f"\n{images.name}, {len(learned.x)} images, {epochs} epochs, {seeds} seeds, {images.network}", flush=True)
    print(f"on {jax.devices()[0].device_kind}; judged by {len(images.at)} test images", flush=True)
    chosen: dict[str, Setting] = {}
    first: Line | None = None
    rows = []
    for name in names:
        try:
            chosen[name] = choose(name, images, epochs, few, chosen)
            warm = not (quick and METHODS[name].settings)  # else the choice was made by the same programs
            found = line(images, learned, name, chosen[name], epochs, seeds, warm)
        except (lamu.Diverged, ValueError, TypeError) as error:
            print(f"{name:17}{error}", flush=True)
            continue
        first = found if first is None else first
        rows.append(told := found.told(first))
        figures = "  ".join(f"{k} {v:.4f}" for k, v in told.items() if isinstance(v, float) and k not in RELATIVE)
        print(
            f"{name:17}{figures}  NLL less the first {told['NLL less']:+.4f} ± {told['NLL less, error']:.4f}  "
            f"time {told['time']:.2f}  memory {told['memory']:.2f}  ({chosen[name]})",
            flush=True,
        )
    return rows


def temperatures(images: Problem, epochs: int, seeds: int) -> None:
    """Prints NLL, ECE and accuracy of development rows by temperature and prior scale, IVON and VOGN beside Adam."""
    tenth = images.development()
    print(f"\n{images.name}, development: {len(tenth.x)} images, {len(tenth.at)} held out, {epochs} epochs", flush=True)
    cold = settings((0.3,), (1.0, 0.3, 0.2, 0.1), (1.0, 0.3, 0.1, 0.03, 0.01))
    for name in ("adam", "adamw", "ivon", "vogn"):
        for setting in METHODS[name].settings if name.startswith("adam") else cold:
            runs = [judged(tenth.fit(METHODS[name], setting, epochs, s).posterior, tenth).values for s in range(seeds)]
            figures = "  ".join(f"{key} {np.mean([run[key] for run in runs]):.4f}" for key in runs[0])
            print(f"{name:8}{setting!s:34}{figures}", flush=True)


def main() -> None:
    """Reads the command line, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6,000 images, one network, one seed, few settings")
    parser.add_argument("--temperatures", action="store_true", help="the development table of temperature and prior")
    parser.add_argument("--data", nargs="+", choices=("fashion", "mnist", "cifar"))
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rows", type=int, help="the first so many training images")
    parser.add_argument("--few", action="store_true", help="two or three settings a method, for a look")
    parser.add_argument("--json", type=Path, help="a file for all figures, written after each table")
    parser.add_argument("--device", choices=("cpu", "gpu", "tpu"))
    given = parser.parse_args()
    if given.device:
        jax.config.update("jax_default_device", jax.devices(given.device)[0])
    warnings.simplefilter("ignore", lamu.Unconverged)
    quick = given.quick
    # Of a network that has not come to rest, Laplace's method takes longer than all others together on two cores.
    usual_methods = [name for name in METHODS if not (quick and name == "adam, laplace")]
    rows = given.rows or (6000 if quick else None)
    tables = {}
    for data in given.data or (("fashion",) if quick else ("fashion", "mnist", "cifar")):
        usual = ("small",) if quick else ("resnet",) if data == "cifar" else ("small", "large", "resnet")
        for network in given.networks or usual:
            images = problem(data, network, rows, 2000 if quick else None)
            epochs, seeds = given.epochs or (6 if quick else 20), given.seeds
            if given.temperatures:
                temperatures(images, epochs, seeds or 1)
                continue
            few, methods = quick or given.few, given.methods or usual_methods
            tables[f"{data}, {network}"] = table(images, methods, epochs, seeds or (1 if quick else 3), few, quick)
            if given.json:
                given.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
