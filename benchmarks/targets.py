"""Counts, ordered classes, times, shares and positive targets: `python -m benchmarks.targets`.

Three tables. The first compares posterior means of generalised linear models by Laplace's method and by NUTS, in
standard deviations of NUTS. The second compares the right likelihood with the obvious one by held-out log density,
as a linear model and as a network of 16 units, with paired differences over the rows of judged splits; a Gaussian of
whole numbers is judged by its probability of the unit around the target. The third sets that network beside the linear
model where the target is censored, positive, or successes in trials. `python -m benchmarks.targets 3` takes three
splits; `means`, `scores` and `networks` take one table alone, and `scores biochemists` one set of the second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import lamu
from benchmarks.splits import folder, seeds
from lamu.likelihoods import Binomial, Gamma, NegativeBinomial, Ordinal, RightCensored, Weibull
from lamu.one_layer import linear_model
from lamu.supports import value_of

__all__ = ["SETS", "means", "networks", "paired_rows", "scores"]

Rows = tuple[np.ndarray, Any]
_NETWORKS = {"16 units": (lamu.algorithms.laplace(), 60), "16 units by ivon": (lamu.algorithms.ivon(), 300)}
_LIMIT = 0.1  # posterior standard deviations between the means of Laplace and NUTS
_PAIRS = (  # the set, the right likelihood, the obvious one
    ("doctorvisits", "negative_binomial", "poisson"),
    ("biochemists", "zero_inflated_poisson", "poisson"),
    ("wine_white", "ordinal", "gaussian"),
)


def _table(name: str, target: str, *drop: str) -> tuple[np.ndarray, pd.DataFrame]:
    frame = pd.read_csv(folder() / "rdatasets" / f"{name}.csv").dropna()
    x = pd.get_dummies(frame.drop(columns=[target, *drop]), drop_first=True).to_numpy(float)
    return x, frame


def _counts(name: str, target: str) -> Rows:
    x, frame = _table(name, target)
    return x, frame[target].to_numpy(int)


def _veteran() -> Rows:
    x, frame = _table("veteran", "time", "status")
    return x, {"value": frame["time"].to_numpy(float), "censored": (frame["status"] == 0).to_numpy(int)}


def _cbpp() -> Rows:
    _, frame = _table("cbpp", "incidence", "herd")
    x = pd.get_dummies(frame["period"].astype(str), drop_first=True).to_numpy(float)
    return x, {"value": frame["incidence"].to_numpy(int), "trials": frame["size"].to_numpy(int)}


def _wine() -> Rows:
    _, frame = _table("wine", "rating")
    x = np.stack([frame["temp"] == "warm", frame["contact"] == "yes"], axis=1).astype(float)
    return x, frame["rating"].to_numpy(int) - 1


def _wine_white() -> Rows:
    with np.load(folder() / "tabular" / "wine_white.npz") as archive:
        return archive["X"].astype(float), archive["y"].astype(int) - 3


def _concrete() -> Rows:
    with np.load(folder() / "uci" / "concrete.npz") as archive:
        return archive["X"], archive["y"]


SETS: dict[str, tuple[Callable[[], Rows], Any]] = {
    "biochemists": (lambda: _counts("biochemists", "art"), NegativeBinomial()),
    "veteran": (_veteran, RightCensored(Weibull())),
    "wine": (_wine, Ordinal(5)),
    "concrete": (_concrete, Gamma()),
    "cbpp": (_cbpp, Binomial()),
}


def means() -> None:
    """Prints the largest difference between the posterior means of Laplace and of NUTS, for each set."""
    print(f"{'set':14} {'likelihood':24} {'weights':>8} {'|Laplace - NUTS| / sd':>24} {'error':>7}")
    for name, (rows, likelihood) in SETS.items():
        x, y = rows()
        laplace = lamu.regression(x, y, likelihood)
        sampler = lamu.mcmc.nuts(chains=4, warmup=500, draws=1000)
        draws = lamu.regression(x, y, likelihood, algorithm=sampler, seed=1)
        pairs = zip(jax.tree.leaves(laplace.mean["network"]), jax.tree.leaves(draws.samples["network"]), strict=True)
        away, errors = [], []
        for mode, chains in pairs:
            chains = np.asarray(chains, float).reshape(4, 1000, -1)
            sd = chains.std(axis=(0, 1))
            away.append(np.abs(np.ravel(mode) - chains.mean(axis=(0, 1))) / sd)
            errors.append(chains.mean(axis=1).std(axis=0, ddof=1) / 2 / sd)  # of four chains' means
        away, errors = np.concatenate(away), np.concatenate(errors)
        worst = int(np.argmax(away))
        verdict = "within" if away[worst] <= _LIMIT else "beyond"
        print(
            f"{name:14} {likelihood.name:24} {away.size:8} {away[worst]:24.3f} {errors[worst]:7.3f}  {verdict}",
            flush=True,
        )


def scores(splits: tuple[int, ...], names: tuple[str, ...] = ()) -> None:
    """Prints the paired differences of held-out log densities, right likelihood minus obvious one, in nats a row."""
    pairs = [pair for pair in _PAIRS if not names or pair[0] in names]
    data = {
        "doctorvisits": lambda: _counts("doctorvisits", "visits"),
        "biochemists": lambda: _counts("biochemists", "art"),
        "wine_white": _wine_white,
    }
    print("set, network, split, both with their nll, difference ± error of its rows (how many errors)")
    for name, right, obvious in pairs:
        x, y = data[name]()
        for network in ("linear", "16 units"):
            differences = []
            for seed in splits:
                train, test = lamu.data.split(y, 0.2, seed, stratify=name == "wine_white")
                found = [_held_out(x, y, train, test, each, network, seed) for each in (right, obvious)]
                differences.append(found[0] - found[1])
                each = "  ".join(f"{-values.mean():.4f}" for values in found)
                print(
                    f"{name:14} {network:8} {seed:6} {right} over {obvious} {each}   {paired_rows(differences[-1])}",
                    flush=True,
                )
            over = np.array([values.mean() for values in differences])
            error = over.std(ddof=1) / len(over) ** 0.5 if len(over) > 1 else float("nan")
            print(
                f"{name:14} {network:8} {'all':>6} {over.mean():+.4f} ± {error:.4f} over {len(over)} splits", flush=True
            )


def networks(splits: tuple[int, ...]) -> None:
    """Prints held-out log densities of a linear model and of a network, and their paired difference, in nats a row.

    The network learns by IVON: the joint mode of weights and a shape or a deviation, about which Laplace's method
    would build, goes to the data where the network can interpolate them.
    """
    print(
        "set, split, nll of the linear model and of 16 units, gain of the network ± error of its rows (how many errors)"
    )
    for name in ("veteran", "concrete", "cbpp"):
        rows, likelihood = SETS[name]
        x, y = rows()
        differences = []
        for seed in splits:
            train, test = lamu.data.split(value_of(y), 0.2, seed, stratify=False)
            linear, network = (
                np.asarray(_predictive(x, y, train, test, likelihood, each, seed).log_prob(_taken(y, test)), float)
                for each in ("linear", "16 units by ivon")
            )
            differences.append(network - linear)
            means = f"{-linear.mean():.4f}  {-network.mean():.4f}"
            print(f"{name:14} {seed:6} {means}   {paired_rows(differences[-1])}", flush=True)
        print(f"{name:14} {'all':>6} {paired_rows(np.concatenate(differences))} over {len(splits)} splits", flush=True)


def paired_rows(difference: np.ndarray) -> str:
    """Returns the mean of the rows' differences with its standard error, and how many errors it is from zero."""
    error = difference.std(ddof=1) / len(difference) ** 0.5
    return f"{difference.mean():+.4f} ± {error:.4f} ({difference.mean() / error:+.1f})"


def _held_out(
    x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, likelihood: str, network: str, seed: int
) -> np.ndarray:
    """The log density of the test rows, of whole numbers always that of a unit."""
    pred = _predictive(x, y, train, test, likelihood, network, seed)
    targets = jnp.asarray(value_of(y)[test])
    if pred.support.discrete:
        return np.asarray(pred.log_prob(targets), float)
    targets = targets.astype(pred.mean.dtype)
    return np.log(np.maximum(np.asarray(pred.cdf(targets + 0.5) - pred.cdf(targets - 0.5), float), 1e-30))


def _predictive(
    x: np.ndarray,
    y: Any,
    train: np.ndarray,
    test: np.ndarray,
    likelihood: Any,
    network: str,
    seed: int,
) -> Any:
    """The prediction of the test rows, from the training rows."""
    learned = _taken(y, train)
    if network == "linear":
        posterior = lamu.regression(x[train], learned, likelihood, seed=seed)
    else:
        model = linear_model(x[train], learned, likelihood)
        hidden = lamu.networks.MLP((16,), "tanh")
        model = lamu.Model(hidden, _unscaled(model.likelihood), lamu.priors.LearnedNormal(0.5)).standardised(
            x[train], learned
        )
        algorithm, epochs = _NETWORKS[network]
        posterior = lamu.fit(model, (x[train], learned), algorithm, epochs=epochs, seed=seed).posterior
    trials = y.get("trials") if isinstance(y, dict) else None
    inputs = x[test] if trials is None else {"x": x[test], "trials": trials[test]}
    return posterior.predict(inputs, samples=256)


def _taken(y: Any, rows: np.ndarray) -> Any:
    """Some rows of the targets."""
    return jax.tree.map(lambda column: column[rows], y)


def _unscaled(likelihood: Any) -> Any:
    return likelihood.base if isinstance(likelihood, lamu.likelihoods.Scaled) else likelihood


def main() -> None:
    words = sys.argv[1:]
    chosen = [word for word in words if word in ("means", "scores", "networks")] or ["means", "scores", "networks"]
    numbers = [word for word in words if word.isdigit()]
    if "means" in chosen:
        means()
    if "scores" in chosen:
        scores(seeds(numbers), tuple(word for word in words if word in [name for name, *_ in _PAIRS]))
    if "networks" in chosen:
        networks(seeds(numbers))


if __name__ == "__main__":
    main()
