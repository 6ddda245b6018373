"""hmmlearn on a given series: SERIES STATES; a task is a number of iterations."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
from hmmlearn.hmm import GaussianHMM  # pyright: ignore[reportMissingImports]
from hmmlearn.vhmm import VariationalGaussianHMM  # pyright: ignore[reportMissingImports]

from benchmarks.speed.peers.worker import serve


class Forever:
    """A monitor that never tells that it has converged."""

    def __init__(self, iterations: int) -> None:
        self.iterations, self.iter, self.history = iterations, 0, []

    def _reset(self) -> None:
        self.iter = 0

    def report(self, _: float) -> None:
        self.iter += 1

    @property
    def converged(self) -> bool:
        return self.iter >= self.iterations


def main() -> None:
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    y, states = np.load(sys.argv[1]).astype(float)[:, None], int(sys.argv[2])

    def run(kind: Any, iterations: int) -> None:
        model = kind(states, covariance_type="full", n_iter=iterations, tol=-np.inf, random_state=0)
        model.monitor_ = Forever(iterations)
        model.fit(y)

    tasks: dict[str, Any] = {str(count): lambda count=count: run(GaussianHMM, count) for count in (1, 11)}
    tasks |= {f"v{count}": lambda count=count: run(VariationalGaussianHMM, count) for count in (1, 11)}

    def means() -> dict[str, Any]:
        model = GaussianHMM(states, covariance_type="full", n_iter=200, tol=1e-3, random_state=0).fit(y)
        return {"means": sorted(model.means_.ravel().tolist())}

    serve({**tasks, "means": means})


if __name__ == "__main__":
    main()
