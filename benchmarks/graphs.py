"""Sweeps on graphs beside scikit-learn's iterations, in turn and in one process.

    python -m benchmarks.graphs              all of it
    python -m benchmarks.graphs mixture      one contest: mixture, factors, holes, topics or held_out
    python -m benchmarks.graphs rows         `svi` on ten million rows from a memory map, and its peak memory

A sweep of `vmp` beside an iteration: scikit-learn's time is that of a run of many iterations less that of a run of one.
OMP_NUM_THREADS=1 keeps scikit-learn's linear algebra to one thread, without which it took up to thirty times as long on
a machine that other work shares. It does not bind XLA, which may use all cores.

Topics need the Associated Press documents, `text/ap2246.npz` below the folder `LAMU_DATA`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import psi
from sklearn.decomposition import FactorAnalysis, LatentDirichletAllocation
from sklearn.mixture import BayesianGaussianMixture

import lamu
from benchmarks.pairs import ratio_of
from lamu import graphs
from lamu.families import Dirichlet, Gamma, MultivariateNormal, NormalWishart
from lamu.objective import Objective

RANDOM = np.random.default_rng(0)
PAIRS = 7


def swept(graph: lamu.Graph, data: Any, algorithm: Any) -> Callable[[], float]:
    """Returns a function that takes one compiled sweep over all rows, and tells its seconds."""
    rows = graph.read(data)
    batch, objective, step = rows.full(), Objective(graph, rows.count), jax.jit(algorithm.step)
    state = algorithm.init(jax.random.key(0), objective, batch)
    key = jax.random.key(1)

    def sweep() -> float:
        nonlocal state
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(step(key, state, batch, objective))
        return time.perf_counter() - begin

    sweep()
    return sweep


def iterated(make: Callable[[int], Any], data: Any, iterations: int) -> Callable[[], float]:
    """Returns a function that tells the seconds of an iteration of scikit-learn's."""

    def run(count: int) -> float:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that few iterations have not converged
            make(count).fit(data)
        return time.perf_counter() - begin

    return lambda: (run(1 + iterations) - run(1)) / iterations


def contest(name: str, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
    times = np.array([[min(ours() for _ in range(3)), theirs()] for _ in range(PAIRS)])
    print(
        ratio_of(name, times[:, 0], times[:, 1]),
        f"  {np.median(times[:, 1] / times[:, 0]):.1f} times faster",
        flush=True,
    )


def mixture() -> None:
    N, D, K = 20_000, 8, 20
    y = RANDOM.normal(size=(N, D)) + 3 * RANDOM.normal(size=(K, D))[RANDOM.integers(0, K, N)]
    y = ((y - y.mean(0)) / y.std(0)).astype(np.float32)

    def program(m: graphs.Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.full(K, 1.0)))
        part = m.sample("part", NormalWishart(jnp.zeros(D), 1.0, float(D), jnp.eye(D)), plate=K)
        with m.rows():
            z = m.sample("z", graphs.Categorical(weight))
            m.sample("y", graphs.MultivariateNormal(part[z]))

    peer = lambda count: BayesianGaussianMixture(
        n_components=K,
        max_iter=count,
        tol=0.0,
        init_params="random",
        random_state=0,
        weight_concentration_prior_type="dirichlet_distribution",
    )
    ours = swept(lamu.Graph(program), {"y": y}, lamu.algorithms.vmp(tolerance=0.0))
    contest("mixture, 20,000 × 8, 20 components", ours, iterated(peer, y, 5))


def factor_rows(holes: float) -> tuple[lamu.Graph, np.ndarray, np.ndarray, int]:
    N, D, K = 5_000, 200, 10
    whole = (RANDOM.normal(size=(N, K)) @ RANDOM.normal(size=(K, D)) + RANDOM.normal(size=(N, D))).astype(np.float32)

    def program(m: graphs.Program) -> None:
        noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=D)
        W = m.sample("W", MultivariateNormal(jnp.zeros(K), jnp.eye(K)), plate=D)
        with m.rows():
            z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(K), jnp.eye(K)))
            m.sample("y", graphs.Normal(W @ z, precision=noise))

    y = np.where(RANDOM.uniform(size=whole.shape) < holes, np.float32(np.nan), whole)
    return lamu.Graph(program), y, whole, K


def factors(holes: float = 0.0) -> None:
    graph, y, whole, K = factor_rows(holes)
    peer = lambda count: FactorAnalysis(K, max_iter=count, tol=0.0, svd_method="lapack")
    ours = swept(graph, {"y": y}, lamu.algorithms.vmp(tolerance=0.0))
    name = f"factors, 5,000 × 200, 10 of them, {holes:.0%} missing"
    contest(name if holes else "factors, 5,000 × 200, 10 of them", ours, iterated(peer, whole.astype(float), 4))


def documents(count: int) -> tuple[np.ndarray, np.ndarray, Any, int]:
    """Returns padded words and counts of the first documents, and the same as a sparse matrix."""
    from scipy.sparse import csr_matrix

    held = np.load(Path(os.environ["LAMU_DATA"]) / "text" / "ap2246.npz")
    ends, indices, counts = held["indptr"][: count + 1], held["indices"], held["counts"]
    lengths = np.diff(ends)
    ids = np.zeros((count, lengths.max()), np.int32)
    words = np.zeros((count, lengths.max()), np.int32)
    for row in range(count):
        part = slice(ends[row], ends[row + 1])
        ids[row, : lengths[row]], words[row, : lengths[row]] = indices[part], counts[part]
    V = len(held["vocab"])
    sparse = csr_matrix((counts[: ends[-1]], indices[: ends[-1]], ends), shape=(count, V))
    return ids, words, sparse, V


def topics() -> None:
    N, K = 2_000, 20
    ids, counts, sparse, V = documents(N)

    def program(m: graphs.Program) -> None:
        topic = m.sample("topic", Dirichlet(jnp.full(V, 0.05)), plate=K)
        with m.rows():
            share = m.sample("share", graphs.Dirichlet(jnp.full(K, 0.05)))
            m.sample("words", graphs.Words(share, topic))

    peer = lambda count: LatentDirichletAllocation(
        K,
        doc_topic_prior=0.05,
        topic_word_prior=0.05,
        max_iter=count,
        learning_method="batch",
        max_doc_update_iter=20,
        mean_change_tol=0.0,
        random_state=0,
    )
    graph = lamu.Graph(program, local={"share": graphs.Coordinate(20, tolerance=0.0)})
    ours = swept(graph, {"words": (ids, counts)}, lamu.algorithms.vmp(tolerance=0.0))
    contest("topics, 2,000 × 10,473, 20 of them", ours, iterated(peer, sparse, 2))


def held_out(splits: tuple[int, ...] = (100, 101, 102), iterations: int = 40) -> None:
    """Perplexity of the second half of every held-out document given its first, by one evaluator for both."""
    K = 20
    ids, counts, sparse, V = documents(2246)
    settings = {"doc_topic_prior": 0.05, "topic_word_prior": 0.05, "max_doc_update_iter": 200, "mean_change_tol": 1e-4}
    graph = graphs.models.Topics(K, V, share=0.05, word=0.05)
    for split in splits:
        order = np.random.default_rng(split).permutation(2246)
        train, test = order[:2000], order[2000:]
        first, second = sparse[test].astype(float), sparse[test].astype(float)
        first.data = np.random.default_rng(split).binomial(sparse[test].data, 0.5).astype(float)
        second.data = second.data - first.data
        peer = LatentDirichletAllocation(K, max_iter=iterations, random_state=split, **settings).fit(sparse[train])
        data = {"words": (ids[train], counts[train])}
        fit = lamu.fit(graph, data, lamu.algorithms.vmp(), steps=iterations, seed=split)
        ours = np.asarray(fit.posterior.belief.factors["network"].factors["topic"].concentration, float)
        print(f"held-out perplexity, split {split}:", end="")
        for name, concentration in (("scikit-learn", peer.components_), ("lamu", ours)):
            peer.components_ = concentration
            mean = psi(concentration.sum(1, keepdims=True))
            peer.exp_dirichlet_component_ = np.exp(psi(concentration) - mean)
            share, topic = peer.transform(first), concentration / concentration.sum(1, keepdims=True)
            row, word = second.nonzero()
            count = np.asarray(second[row, word]).ravel()
            log = np.log(np.einsum("nk,kn->n", share[row], topic[:, word]))
            print(f"  {name} {np.exp(-count @ log / count.sum()):.0f}", end="")
        print(flush=True)


class Blocks:
    """Batches of a memory map, one after the other, of which only the pages of a batch are read."""

    def __init__(self, graph: lamu.Graph, rows: np.ndarray, size: int) -> None:
        self.graph, self.rows, self.size = graph, rows, size

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.rows), self.size):
            yield self.graph.read({"y": np.asarray(self.rows[start : start + self.size])}).full()


def rows(count: int = 10_000_000, size: int = 20_000) -> None:
    """One pass of `svi` over rows that a file holds: seconds, peak memory, and where the components end."""
    import resource

    D, K = 4, 5
    centres = 4.0 * RANDOM.normal(size=(K, D))
    graph = graphs.models.GaussianMixture(K, D, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.f32"
        with path.open("wb") as file:
            for _ in range(0, count, size):
                part = centres[RANDOM.integers(0, K, size)] + RANDOM.normal(size=(size, D))
                file.write(part.astype(np.float32).tobytes())
        held = np.memmap(path, np.float32, mode="r").reshape(-1, D)
        begin = time.perf_counter()
        stream = lamu.data.Stream(Blocks(graph, held, size))
        fit = lamu.fit(
            graph, stream, lamu.algorithms.svi(kappa=0.7), batch_size=size, epochs=1, data_size=len(held), seed=0
        )
        seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    part = fit.posterior.belief.factors["network"].factors["part"]
    away = np.linalg.norm(np.asarray(part.mean["mean"])[:, None] - centres, axis=-1).min(axis=0)
    print(
        f"svi, {len(held):,} × {D} rows of a memory map, {K} components: {seconds:.0f} s, peak memory {peak:.0f} MiB, "
        f"{np.sum(away < 0.1)} centres found within 0.1",
        flush=True,
    )


CONTESTS = {
    "mixture": mixture,
    "factors": factors,
    "holes": lambda: factors(0.2),
    "topics": topics,
    "held_out": held_out,
    "rows": rows,
}


def main() -> None:
    for name in sys.argv[1:] or CONTESTS:
        CONTESTS[name]()


if __name__ == "__main__":
    main()
