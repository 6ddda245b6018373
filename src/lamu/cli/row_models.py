"""The models of `lamu fit --model`: rows without a target, each a predefined graph with its data, sizes and latents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom, norm

from lamu.algorithms import adam, vmp
from lamu.cli.printing import show_unreliable
from lamu.data.wording import DataError
from lamu.families import Dirichlet, NormalGamma
from lamu.graphs import Graph, Markov, Normal, models
from lamu.graphs.program import Program
from lamu.latent import Columns
from lamu.latent.models import TableVAE
from lamu.networks import MLP
from lamu.posterior import Posterior
from lamu.protocol import Algorithm
from lamu.rate import Annealed
from lamu.typing import Rows

__all__ = ["MODELS", "RowModel", "for_rows", "reference_log_probs"]

_DRAWS = 32  # of the shared variables, for the mixture that fills in missing entries
_PARTS = 200  # of a series, each with a density given the rows before it
_RATE = 5e-3  # of Adam on standardised columns


class RowModel:
    """A model of rows without a target; the base is one of numbers, `y`, by variational message passing."""

    words: ClassVar[str]  # the description of the model
    size: ClassVar[str]  # the noun in the plural that its size counts
    sizes: ClassVar[tuple[int, ...]]  # candidate sizes, compared in this order while the bound rises
    kind: ClassVar[str | None] = "number"  # of every column; None if the values determine it
    settings: ClassVar[Mapping[str, int]] = {}  # further integers of --set, with their defaults
    gradients: ClassVar[bool] = False  # whether it is learned by gradient steps
    fills: ClassVar[bool] = True  # whether it fills in missing entries
    together: ClassVar[bool] = False  # whether the rows are one series
    alone: ClassVar[bool] = False  # whether one column is enough

    def candidates(self, columns: Columns) -> tuple[int, ...]:
        """Returns the candidate sizes."""
        return self.sizes

    def graph(self, size: int, columns: Columns, rows: int, settings: Mapping[str, int]) -> Graph:
        """Returns the graph for a number of rows."""
        raise NotImplementedError

    def algorithm(self) -> Algorithm:
        """Returns the algorithm of the model."""
        return vmp()  # which initialises mixtures and states by the best of eight short ascents

    def data(self, columns: Columns, values: np.ndarray) -> dict[str, Any]:
        """Returns the rows in the form that the graph takes."""
        return {"y": next(iter(columns.rows_of(values).values()))}

    def log_prob(self, posterior: Posterior, columns: Columns, values: np.ndarray, samples: int) -> np.ndarray:
        """Returns the log density of each row in the units of the table, in nats."""
        with show_unreliable():
            density = posterior.log_prob(self.data(columns, values), samples)
        return np.asarray(density, float) - columns.log_unit(values)

    def latents(self, posterior: Posterior, columns: Columns, values: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the latents of each row as named columns."""
        belief = posterior.local(self.data(columns, values))["z"]
        order, columns_of = self.order(posterior), {}
        mean, std = (np.asarray(part, float)[:, order] for part in (belief.mean, belief.std))
        for number in range(mean.shape[1]):
            columns_of[f"z{number + 1}"], columns_of[f"z{number + 1} std"] = mean[:, number], std[:, number]
        return columns_of

    def order(self, posterior: Posterior) -> np.ndarray:
        """Returns the order in which the parts of the model are reported."""
        return np.argsort(-np.sum(self.loadings(posterior) ** 2, axis=0), kind="stable")

    def loadings(self, posterior: Posterior) -> np.ndarray:
        """Returns the change of each standardised column with each latent, `[columns, latents]`."""
        return np.asarray(posterior.mean["network"]["W"], float)

    def drawn(self, posterior: Posterior, columns: Columns, values: np.ndarray, draws: int) -> np.ndarray:
        """Returns draws of rows with their missing entries filled in, `[draws, rows, columns]`."""
        holes = np.isnan(values)
        if not holes.any():
            return np.broadcast_to(values, (draws, *values.shape))
        some = holes.any(axis=1) | self.together
        pred = posterior.predict(self.data(columns, values[some]), samples=min(draws, _DRAWS))
        filled = np.array(np.broadcast_to(values, (draws, *values.shape)))
        sampled: Rows = pred.sample(jax.random.key(0), draws)
        name = next(iter(columns.variables))
        filled[:, some] = columns.values({name: np.reshape(np.asarray(sampled), (draws, some.sum(), -1))})
        return np.where(holes, filled, values)

    def summary(self, posterior: Posterior, columns: Columns) -> tuple[str, list[str], np.ndarray]:
        """Returns the noun for the parts, their labels, and a row of standardised columns for each."""
        order = self.order(posterior)
        return "factor", [f"factor {k + 1}" for k in range(len(order))], self.loadings(posterior)[:, order].T


class FactorRows(RowModel):
    """Factors with a noise for each column."""

    words, size, sizes = "factor analysis", "factors", (1, 2, 3, 4, 6, 8, 12, 16)
    isotropic: ClassVar[bool] = False

    def candidates(self, columns: Columns) -> tuple[int, ...]:
        most = max(1, len(columns.kinds) - 1)
        return tuple(size for size in self.sizes if size <= most)

    def graph(self, size: int, columns: Columns, rows: int, settings: Mapping[str, int]) -> Graph:
        return models.FactorAnalysis(size, len(columns.kinds), self.isotropic)


class PrincipalRows(FactorRows):
    """Factors with one noise for all columns."""

    words, isotropic = "probabilistic principal components", True


class MixtureRows(RowModel):
    """Gaussian components."""

    alone: ClassVar[bool] = True
    words, size, sizes = "a mixture of Gaussians", "components", (1, 2, 3, 4, 5, 6, 8, 10)

    def graph(self, size: int, columns: Columns, rows: int, settings: Mapping[str, int]) -> Graph:
        return models.GaussianMixture(size, len(columns.kinds))

    def order(self, posterior: Posterior) -> np.ndarray:
        return np.argsort(-np.asarray(posterior.mean["network"]["weight"], float), kind="stable")

    def latents(self, posterior: Posterior, columns: Columns, values: np.ndarray) -> dict[str, np.ndarray]:
        shares = np.asarray(posterior.local(self.data(columns, values))["z"].mean, float)
        return _shares("component", shares.reshape(len(values), -1)[:, self.order(posterior)])

    def summary(self, posterior: Posterior, columns: Columns) -> tuple[str, list[str], np.ndarray]:
        order, network = self.order(posterior), posterior.mean["network"]
        weight = np.asarray(network["weight"], float)[order]
        labels = [f"component {k + 1} ({100 * share:.1f} %)" for k, share in enumerate(weight)]
        return "component", labels, np.asarray(network["part"]["mean"], float)[order]


class SeriesRows(MixtureRows):
    """States in time, with the rows in order; each state has a mean and a variance of every column."""

    words, size, sizes, together = "a hidden Markov model", "states", (2, 3, 4, 5, 6, 8), True

    def graph(self, size: int, columns: Columns, rows: int, settings: Mapping[str, int]) -> Graph:
        def program(m: Program) -> None:
            start = m.sample("start", Dirichlet(jnp.ones(size)))
            step = m.sample("step", Dirichlet(jnp.ones(size)), plate=size)
            part = m.sample("part", NormalGamma(jnp.zeros(len(columns.kinds)), 0.1, 1.0, 0.5), plate=size)
            with m.rows():
                m.sample("y", Normal(part[m.sample("z", Markov(rows, start, step))]))

        return Graph(program)

    def data(self, columns: Columns, values: np.ndarray) -> dict[str, Any]:
        return {"y": super().data(columns, values)["y"][None]}

    def log_prob(self, posterior: Posterior, columns: Columns, values: np.ndarray, samples: int) -> np.ndarray:
        """Returns the log density of each row given the rows before it; a long series in parts of one density each."""
        ends = np.unique(np.linspace(0, len(values), min(len(values), _PARTS) + 1).astype(int))
        series = self.data(columns, values)["y"]
        included = np.arange(len(values))[None, :, None] < ends[1:, None, None]
        density = np.asarray(posterior.log_prob({"y": np.where(included, series, np.nan)}, samples), float)
        gains = np.diff(density, prepend=0.0) / np.diff(ends)
        return np.repeat(gains, np.diff(ends)) - columns.log_unit(values)

    def order(self, posterior: Posterior) -> np.ndarray:
        """Returns the states ordered by their expected share of the time in the long run."""
        step = np.asarray(posterior.mean["network"]["step"], float)
        return np.argsort(-np.linalg.matrix_power(step, 1024)[0], kind="stable")

    def latents(self, posterior: Posterior, columns: Columns, values: np.ndarray) -> dict[str, np.ndarray]:
        shares = np.asarray(posterior.local(self.data(columns, values))["z"].mean, float)
        return _shares("state", shares.reshape(len(values), -1)[:, self.order(posterior)])

    def summary(self, posterior: Posterior, columns: Columns) -> tuple[str, list[str], np.ndarray]:
        order, network = self.order(posterior), posterior.mean["network"]
        stays = np.diag(np.asarray(network["step"], float))[order]
        labels = [f"state {k + 1} (stays {1 / max(1 - p, 1e-9):,.1f} rows)" for k, p in enumerate(stays)]
        return "state", labels, np.asarray(network["part"]["mean"], float)[order]


class DocumentRows(RowModel):
    """Topics of documents: columns are words, and cells count their occurrences."""

    words, size, sizes, kind, fills = "latent Dirichlet allocation", "topics", (2, 5, 10, 20, 40), "count", False

    def graph(self, size: int, columns: Columns, rows: int, settings: Mapping[str, int]) -> Graph:
        return models.Topics(size, len(columns.kinds))

    def data(self, columns: Columns, values: np.ndarray) -> dict[str, Any]:
        if np.isnan(values).any():
            row, column = np.argwhere(np.isnan(values))[0]
            name = columns.encoding.columns[column]
            raise DataError(f"row {row} has no count in the column {name!r}; write 0 for a word that does not occur")
        longest = max(int((values > 0).sum(axis=1).max()), 1)
        ids = np.argsort(-(values > 0).astype(int), axis=1, kind="stable")[:, :longest]
        counts = np.take_along_axis(values, ids, axis=1)
        return {"words": (ids.astype(np.int32), counts.astype(jax.dtypes.canonicalize_dtype(np.float64)))}

    def order(self, posterior: Posterior) -> np.ndarray:
        belief: Any = posterior.belief
        concentration = np.asarray(belief.factors["network"].factors["topic"].concentration, float)
        return np.argsort(-concentration.sum(axis=1), kind="stable")

    def latents(self, posterior: Posterior, columns: Columns, values: np.ndarray) -> dict[str, np.ndarray]:
        belief, order = posterior.local(self.data(columns, values))["share"], self.order(posterior)
        mean, std = (np.asarray(part, float)[:, order] for part in (belief.mean, belief.std))
        table: dict[str, np.ndarray] = {"topic": mean.argmax(axis=1) + 1}
        for number in range(mean.shape[1]):
            table[f"topic {number + 1}"], table[f"topic {number + 1} std"] = mean[:, number], std[:, number]
        return table

    def summary(self, posterior: Posterior, columns: Columns) -> tuple[str, list[str], np.ndarray]:
        topics = np.asarray(posterior.mean["network"]["topic"], float)[self.order(posterior)]
        names = np.asarray(columns.encoding.columns, object)
        labels = [f"{k + 1}: {', '.join(names[np.argsort(-topic)[:8]])}" for k, topic in enumerate(topics)]
        return "topic", labels, topics


class MixedRows(RowModel):
    """A network from latents to columns of mixed kinds, by gradient steps."""

    words, size, kind, gradients = "a variational autoencoder", "latents", None, True
    settings: ClassVar[Mapping[str, int]] = {"hidden": 50}
    sizes: ClassVar[tuple[int, ...]] = (4,)

    def candidates(self, columns: Columns) -> tuple[int, ...]:
        return (max(1, min(4, len(columns.kinds) // 2)),)

    def graph(self, size: int, columns: Columns, rows: int, settings: Mapping[str, int]) -> Graph:
        network = MLP((settings["hidden"],))
        return TableVAE(columns, size, network, network)

    def algorithm(self) -> Algorithm:
        return adam(Annealed(_RATE))

    def data(self, columns: Columns, values: np.ndarray) -> dict[str, Any]:
        return columns.rows_of(values)

    def order(self, posterior: Posterior) -> np.ndarray:
        return np.arange(next(site.shape[0] for site in posterior.model.in_rows if site.name == "z"))

    def drawn(self, posterior: Posterior, columns: Columns, values: np.ndarray, draws: int) -> np.ndarray:
        some = np.isnan(values).any(axis=1)
        filled = np.array(np.broadcast_to(values, (draws, *values.shape)))
        if some.any():
            filled[:, some] = columns.drawn(posterior, values[some], jax.random.key(0), draws)
        return filled

    def summary(self, posterior: Posterior, columns: Columns) -> tuple[str, list[str], np.ndarray]:
        return "latent", [], np.zeros((0, len(columns.kinds)))


def _shares(name: str, shares: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the most probable part, counted from 1, and the probability of each part, by row."""
    parts = {f"{name} {number + 1}": shares[:, number] for number in range(shares.shape[1])}
    return {name: shares.argmax(axis=1) + 1, **parts}


MODELS: dict[str, RowModel] = {
    "vae": MixedRows(),
    "ppca": PrincipalRows(),
    "fa": FactorRows(),
    "gmm": MixtureRows(),
    "lda": DocumentRows(),
    "hmm": SeriesRows(),
}
"""The models by the names that `--model` takes."""


def for_rows(
    model: RowModel, posterior: Posterior, columns: Columns, rows: int, settings: Mapping[str, int]
) -> Posterior:
    """Returns a posterior with the graph for another number of rows, if the rows are one series."""
    if not model.together:
        return posterior
    size = len(np.asarray(posterior.mean["network"]["start"]))
    return replace(posterior, model=model.graph(size, columns, rows, settings))


_SWEEPS, _SETTLED = 200, 1e-6
_LEAST_SHARE = 1e-9  # of a column's variance in any direction, if columns determine each other


def reference_log_probs(name: str, columns: Columns, train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the log density of each test row by the name of a reference, in the units of the table."""
    if name == "lda":
        return {"one topic": _unigram(train, test)}
    independent = {"independent columns": _independent(columns, train, test)}
    if set(columns.kinds) != {"number"}:
        return independent
    return {**independent, "one Gaussian": _gaussian(train, test)}


def _unigram(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    counts = train.sum(axis=0) + 0.05  # the prior of a topic's words
    return test @ np.log(counts / counts.sum())


def _independent(columns: Columns, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    total = np.zeros(len(test))
    for position, kind in enumerate(columns.kinds):
        train_values, test_values = train[:, position], test[:, position]
        train_values, present = train_values[~np.isnan(train_values)], ~np.isnan(test_values)
        value = test_values[present]
        if kind in ("number", "positive"):
            logs = kind == "positive"
            train_values, point = (np.log(train_values), np.log(value)) if logs else (train_values, value)
            density = norm.logpdf(point, train_values.mean(), train_values.std()) - (point if logs else 0.0)
        elif kind == "count":
            density = _negative_binomial(train_values, value)
        else:
            levels = max(len(columns.encoding.levels[position]), 2)
            shares = np.bincount(train_values.astype(int), minlength=levels) + 1.0
            density = np.log(shares / shares.sum())[value.astype(int)]
        total[present] += density
    return total


def _negative_binomial(seen: np.ndarray, value: np.ndarray) -> np.ndarray:
    mean = seen.mean()
    of = lambda log_theta, counts: nbinom.logpmf(counts, np.exp(log_theta), 1 / (1 + mean / np.exp(log_theta)))
    best: Any = minimize_scalar(lambda log_theta: -of(log_theta, seen).sum(), bounds=(-5.0, 10.0), method="bounded")
    return of(best.x, value)


def _gaussian(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    mean, covariance = _moments(train)
    density = np.zeros(len(test))
    patterns, which = np.unique(~np.isnan(test), axis=0, return_inverse=True)
    for number, observed in enumerate(patterns):
        rows = np.flatnonzero(np.ravel(which) == number)
        if observed.any():
            residuals = test[np.ix_(rows, observed)] - mean[observed]
            root = np.linalg.cholesky(covariance[np.ix_(observed, observed)])
            white = np.linalg.solve(root, residuals.T)
            log_det = 2 * np.log(np.diag(root)).sum()
            density[rows] = -0.5 * ((white**2).sum(axis=0) + log_det + observed.sum() * np.log(2 * np.pi))
    return density


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the maximum-likelihood mean and covariance, by expectation maximisation if entries are missing."""
    scale = np.nanstd(rows, axis=0)
    rows = rows / scale
    holes = np.isnan(rows)
    mean = np.nanmean(rows, axis=0)
    least = _LEAST_SHARE * np.eye(len(mean))
    filled = np.where(holes, mean, rows)
    covariance = np.cov(filled.T, bias=True).reshape(len(mean), len(mean)) + least
    patterns, which = np.unique(holes, axis=0, return_inverse=True)
    for _ in range(_SWEEPS if holes.any() else 0):
        extra, before = np.zeros_like(covariance), covariance
        for number, missing in enumerate(patterns):
            numbers, observed = np.flatnonzero(np.ravel(which) == number), ~missing
            if missing.any():
                gain = np.linalg.solve(covariance[np.ix_(observed, observed)], covariance[np.ix_(observed, missing)])
                filled[np.ix_(numbers, missing)] = (
                    mean[missing] + (rows[np.ix_(numbers, observed)] - mean[observed]) @ gain
                )
                residual = covariance[np.ix_(missing, missing)] - covariance[np.ix_(missing, observed)] @ gain
                extra[np.ix_(missing, missing)] += len(numbers) * residual
        mean = filled.mean(axis=0)
        covariance = (filled - mean).T @ (filled - mean) / len(rows) + extra / len(rows) + least
        if np.abs(covariance - before).max() < _SETTLED:
            break
    return mean * scale, covariance * np.outer(scale, scale)
