"""Sweeps on graphs beside scikit-learn's iterations, with all of its threads, and hmmlearn's.

A sweep of `vmp` beside an iteration of the peer, whose time is that of a run of many less that of a run of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import lamu
from benchmarks.speed.environments import peers
from benchmarks.speed.race import Race, growth, row
from benchmarks.speed.timing import Side, Turn, Worker, here
from lamu.graphs import models
from lamu.objective import Objective

SWEEPS = 4


def swept(graph: Any, data: Any, sweeps: int = SWEEPS) -> Side:
    """Compiled sweeps over all rows, one call each, none of which finds the run settled: such a sweep does nothing."""
    algorithm = lamu.algorithms.vmp(tolerance=0.0)
    rows = graph.read(data)
    batch, objective, step = rows.full(), Objective(graph, rows.count), jax.jit(algorithm.step)
    state = algorithm.init(jax.random.key(0), objective, batch)
    held, key, moving = [state], jax.random.key(1), jax.numpy.zeros_like(state.settled)

    def call() -> None:
        for _ in range(sweeps):
            going = replace(held[0], settled=moving)
            held[0], _ = jax.block_until_ready(step(key, going, batch, objective))

    return here("lamu", call, sweeps, (step, (key, state, batch, objective)))


def difference(one: Side, many: Side, iterations: int) -> Side:
    """A side whose turn is that of `many` less that of `one`."""

    def turn() -> Turn:
        few, all_of_them = one.turn(), many.turn()
        wall, processor = all_of_them.wall - few.wall, all_of_them.processor - few.processor
        return Turn(max(wall, 1e-9), max(processor, 1e-9), iterations, all_of_them.peak)

    return Side(many.name, turn)


def iterated(make: Callable[[int], Any], data: Any, iterations: int, threads: int | None = None) -> Side:
    """Iterations of scikit-learn, its linear algebra by so many threads, or by as many as it takes."""
    from threadpoolctl import threadpool_limits

    def run(count: int) -> None:
        with warnings.catch_warnings(), threadpool_limits(threads):
            warnings.simplefilter("ignore")  # that few iterations have not converged
            make(count).fit(data)

    name = "scikit-learn" if threads is None else "scikit-learn, one thread"
    return difference(here(name, lambda: run(1)), here(name, lambda: run(1 + iterations)), iterations)


def blobs(rows: int, columns: int, components: int, spread: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = spread * generator.normal(size=(components, columns))
    y = generator.normal(size=(rows, columns)) + centres[generator.integers(0, components, rows)]
    return ((y - y.mean(0)) / y.std(0)).astype(np.float32)


def variational_mixture(components: int, **options: Any) -> Any:
    from sklearn.mixture import BayesianGaussianMixture

    kind = "dirichlet_distribution"
    return BayesianGaussianMixture(
        n_components=components, weight_concentration_prior_type=kind, random_state=0, **options
    )


def same_mixture() -> str:
    """Both find three distant clusters: means of both beliefs, in the order of their first column."""
    generator = np.random.default_rng(0)
    corners = np.array([[-2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    y = (corners[generator.integers(0, 3, 1500)] + 0.2 * generator.normal(size=(1500, 2))).astype(np.float32)
    fit = lamu.fit(models.GaussianMixture(3, 2, 1.0), {"y": y}, lamu.algorithms.vmp(), seed=0, progress=False)
    part = fit.posterior.belief.factors["network"].factors["part"]
    ours = np.asarray(part.mean["mean"])
    theirs = variational_mixture(3, max_iter=500).fit(y).means_
    order = lambda means: means[np.argsort(means[:, 0])]
    apart = float(np.max(np.abs(order(ours) - order(theirs))))
    assert apart < 0.02, f"the means of three clusters are {apart:.3f} apart"
    return f"the means of three distant clusters, to {apart:.4f} of a standard deviation"


def mixture_race(rows: int, rounds: int) -> Race:
    y = blobs(rows, 8, 20, 3.0)
    peer = lambda count: variational_mixture(20, max_iter=count, tol=0.0, init_params="random")
    sides = swept(models.GaussianMixture(20, 8, 1.0), {"y": y}), iterated(peer, y, 4), iterated(peer, y, 4, 1)
    return Race(sides[:1], sides[1:], "sweep", same_mixture(), rounds, spins=True)


@row("mixture", "Gaussian mixture, 20,000 × 8, 20 components, a sweep")
def mixture(quick: bool) -> Race:
    return mixture_race(20_000, 6 if quick else 20)


@growth("growth_mixture_rows", "mixture sweep as rows grow", "rows", (2_000, 8_000, 32_000, 128_000))
def growth_mixture(size: int) -> Race:
    return mixture_race(size, 4)


@row("factors", "factor analysis, 5,000 × 200, 10 factors, a sweep")
def factors(quick: bool) -> Race:
    from sklearn.decomposition import FactorAnalysis

    N, D, K = 5_000, 200, 10
    generator = np.random.default_rng(0)
    y = (generator.normal(size=(N, K)) @ generator.normal(size=(K, D)) + generator.normal(size=(N, D))).astype(
        np.float32
    )
    graph = models.FactorAnalysis(K, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.Unconverged)  # enough for two digits
        belief = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(), steps=60, seed=0, progress=False).posterior.belief
    parts = belief.factors["network"].factors
    loadings = [part.mean for part in parts.values() if np.shape(part.mean) == (D, K)]
    made = np.asarray(loadings[0]) @ np.asarray(loadings[0]).T
    theirs = FactorAnalysis(K, svd_method="lapack").fit(y.astype(float))
    found = theirs.components_.T @ theirs.components_
    apart = float(np.linalg.norm(made - found) / np.linalg.norm(found))
    assert apart < 0.05, f"the common covariances are {apart:.3f} apart"
    peer = lambda count: FactorAnalysis(K, max_iter=count, tol=0.0, svd_method="lapack")
    wide = y.astype(float)
    sides = swept(graph, {"y": y}, 10), iterated(peer, wide, 4), iterated(peer, wide, 4, 1)
    same = f"the common covariance W Wᵀ, to {apart:.1%} of its norm"
    return Race(sides[:1], sides[1:], "sweep", same, 8 if quick else 30, spins=True)


@row("topics", "topics (LDA), 2,000 × 1,000 words, 20 topics, a sweep of 20 updates a document")
def topics(quick: bool) -> Race:
    from sklearn.decomposition import LatentDirichletAllocation

    N, V, K = 2_000, 1_000, 20
    generator = np.random.default_rng(4)
    words = generator.dirichlet(np.full(V, 0.05), K)
    shares = generator.dirichlet(np.full(K, 0.1), N)
    counts = np.stack([generator.multinomial(100, share / share.sum()) for share in shares @ words])
    longest = int((counts > 0).sum(1).max())
    ids = np.argsort(counts == 0, axis=1, kind="stable")[:, :longest].astype(np.int32)
    padded = np.take_along_axis(counts, ids, axis=1).astype(np.int32)

    def peer(count: int) -> Any:
        return LatentDirichletAllocation(
            K, doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=count, learning_method="batch",
            max_doc_update_iter=20, mean_change_tol=0.0, random_state=0,
        )  # fmt: skip

    graph = models.Topics(K, V, share=0.1, word=0.05)
    data = {"words": (ids, padded)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.Unconverged)  # as many sweeps as the peer takes
        fit = lamu.fit(graph, data, lamu.algorithms.vmp(), steps=20, seed=0, progress=False)
    ours = np.asarray(fit.posterior.belief.factors["network"].factors["topic"].concentration, float)
    judge = peer(20).fit(counts)
    theirs = judge.perplexity(counts)
    judge.components_ = ours
    judge.exp_dirichlet_component_ = np.exp(_expected_log(ours))
    mine = judge.perplexity(counts)
    assert abs(np.log(mine / theirs)) < 0.1, f"perplexities after 20 sweeps are {mine:.1f} and {theirs:.1f}"
    same = f"scikit-learn's perplexity of the rows after 20 sweeps, {mine:.1f} and {theirs:.1f}"
    exact = replace_tolerance(graph)
    sides = swept(exact, data, 2), iterated(peer, counts, 2)
    return Race(sides[:1], sides[1:], "sweep", same, 4 if quick else 15, spins=True)


def replace_tolerance(graph: Any) -> Any:
    """The same graph, whose documents take all their updates, as scikit-learn's do at a tolerance of zero."""
    from lamu.graphs import Coordinate

    local = {"share": Coordinate(20, tolerance=0.0)}
    return replace(graph, local=local) if hasattr(graph, "local") else graph


def _expected_log(concentration: np.ndarray) -> np.ndarray:
    from scipy.special import psi

    return psi(concentration) - psi(concentration.sum(1, keepdims=True))


def chain(steps: int, states: int, apart: float) -> np.ndarray:
    """A series of states that stay for ten steps, seen with noise of one."""
    generator = np.random.default_rng(0)
    step = 0.9 * np.eye(states) + 0.1 / states
    state = np.zeros(steps, int)
    for t in range(1, steps):
        state[t] = generator.choice(states, p=step[state[t - 1]])
    return (apart * (state - (states - 1) / 2) + generator.normal(size=steps)).astype(np.float32)


def same_chain() -> str:
    """Both find the means of two distant states."""
    import tempfile

    y = chain(1_000, 2, 6.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.npy"
        np.save(path, y)
        worker = Worker(peers("hmmlearn"), "benchmarks.speed.peers.markov", str(path), "2")
        theirs = np.array(worker.ask("means")["means"])
        worker.close()
    fit = lamu.fit(
        models.HiddenMarkov(2, len(y)), {"y": y[None]}, lamu.algorithms.vmp(), steps=100, seed=1, progress=False
    )
    ours = np.sort(np.asarray(fit.posterior.belief.factors["network"].factors["part"].mean["mean"]).ravel())
    apart = float(np.max(np.abs(ours - theirs)))
    assert apart < 0.1, f"the means of two states are {ours} and {theirs}"
    return f"the means of two distant states, to {apart:.3f} of a deviation"


MANY = 10  # iterations whose time is measured


def iterations_of(worker: Worker, name: str) -> Side:
    return difference(worker.side(name, "1"), worker.side(name, str(1 + MANY)), MANY)


def series_for(kind: str, states: int, y: np.ndarray, step: float = 1.0, noise: float = 1.0) -> Worker:
    """A process of dynamax that has the series."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.npz"
        np.savez(path, y=y, step=step, noise=noise)
        worker = Worker(peers("dynamax"), "benchmarks.speed.peers.series", str(path), kind, str(states))
        worker.ask("1")  # it has read the file
    return worker


@row("hidden_markov", "hidden Markov model, 10,000 steps, five states, a sweep")
def hidden_markov(quick: bool) -> Race:
    import tempfile

    graph, T, K = models.HiddenMarkov(5, 10_000), 10_000, 5
    y = chain(T, K, 3.0)
    same = same_chain()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.npy"
        np.save(path, y)
        worker = Worker(peers("hmmlearn"), "benchmarks.speed.peers.markov", str(path), str(K))
        worker.ask("1")
    jaxs = series_for("markov", K, y)
    sides = iterations_of(worker, "hmmlearn"), iterations_of(jaxs, "dynamax")
    rounds = 10 if quick else 40
    return Race((swept(graph, {"y": y[None]}, 10),), sides, "sweep", same, rounds, (worker, jaxs), spins=True)


@row("state_space", "local level of a series of 10,000 steps, a sweep", quick=False)
def state_space(quick: bool) -> Race:
    T, edge = 10_000, 100
    generator = np.random.default_rng(0)
    level = np.cumsum(0.3 * generator.normal(size=T))
    y = (level + generator.normal(size=T)).astype(np.float32)
    graph, data = models.StateSpace(T), {"y": y[None]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.Unconverged)
        posterior = lamu.fit(graph, data, lamu.algorithms.vmp(), seed=0, progress=False).posterior
    step, noise = (float(1 / posterior.mean["network"][name]) for name in ("step", "noise"))
    worker = series_for("level", 1, y, step, noise)
    theirs = np.array(worker.ask("smoothed")["smoothed"])
    ours = np.ravel(np.asarray(posterior.local(data)["x"].mean))
    # The two differ in what they believe of the first level.
    apart = float(np.max(np.abs(ours - theirs)[edge:-edge]))
    assert apart < 0.01, f"smoothed levels are {apart:.3f} apart"
    same = f"the smoothed levels at the same variances, to {apart:.4f} of the noise"
    return Race(
        (swept(graph, data, 10),), (iterations_of(worker, "dynamax"),), "sweep", same, 10, (worker,), spins=True
    )
