"""hmmlearn on a given series: SERIES STATES; a task is a number of iterations."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
from hmmlearn.hmm import GaussianHMM  # pyright: ignore[reportMissingImports]

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

    def run(iterations: int) -> None:
        """Iterations from a given start, since the search for one takes as long as many of them."""
        model = GaussianHMM(states, covariance_type="diag", n_iter=iterations, tol=-np.inf, init_params="")
        model.startprob_ = np.full(states, 1 / states)
        model.transmat_ = 0.5 * np.eye(states) + 0.5 / states
        model.means_ = np.linspace(y.min(), y.max(), states)[:, None]
        model.covars_ = np.full((states, 1), float(np.var(y)))
        model.monitor_ = Forever(iterations)
        model.fit(y)

    tasks: dict[str, Any] = {str(count): lambda count=count: run(count) for count in (1, 11)}

    def means() -> dict[str, Any]:
        model = GaussianHMM(states, covariance_type="full", n_iter=200, tol=1e-3, random_state=0).fit(y)
        return {"means": sorted(model.means_.ravel().tolist())}

    serve({**tasks, "means": means})


if __name__ == "__main__":
    main()
