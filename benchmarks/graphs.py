"""What graphs learn: topics beside scikit-learn's by perplexity of held-out halves of documents; ten million rows.

    python -m benchmarks.graphs held_out     topics; needs `text/ap2246.npz` below the folder `LAMU_DATA`
    python -m benchmarks.graphs rows         `svi` on ten million rows from a memory map, and its peak memory

How long a sweep takes beside other libraries is in the table of `make bench`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import psi
from sklearn.decomposition import LatentDirichletAllocation

import lamu
from lamu import graphs

RANDOM = np.random.default_rng(0)
PAIRS = 7


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


PARTS = {"held_out": held_out, "rows": rows}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
