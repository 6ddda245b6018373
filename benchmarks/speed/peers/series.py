"""dynamax on a given series: SERIES {level,markov} STATES; a task is a number of iterations of EM, or what it finds."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import DiagonalGaussianHMM  # pyright: ignore[reportMissingImports]
from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_smoother  # pyright: ignore[reportMissingImports]

from benchmarks.speed.peers.worker import serve


def markov(y: jax.Array, states: int) -> tuple[Any, Any, Any]:
    model = DiagonalGaussianHMM(states, 1)
    return model, *model.initialize(
        initial_probs=jnp.full(states, 1 / states),
        transition_matrix=0.5 * jnp.eye(states) + 0.5 / states,
        emission_means=jnp.linspace(y.min(), y.max(), states)[:, None],
        emission_scale_diags=jnp.full((states, 1), jnp.std(y)),
    )


def level(step: float, noise: float) -> tuple[Any, Any, Any]:
    """A local level whose steps and noise have given variances."""
    model, one = LinearGaussianSSM(1, 1), jnp.eye(1)
    return model, *model.initialize(
        initial_mean=jnp.zeros(1), initial_covariance=one, dynamics_weights=one, dynamics_covariance=step * one,
        emission_weights=one, emission_covariance=noise * one,
    )  # fmt: skip


def main() -> None:
    path, kind, states = sys.argv[1], sys.argv[2], int(sys.argv[3])
    given = np.load(path)
    y = jnp.asarray(given["y"], jnp.float32)[:, None]
    step, noise = float(given["step"]), float(given["noise"])
    model, params, properties = markov(y, states) if kind == "markov" else level(step, noise)

    def run(iterations: int) -> Any:
        found = model.fit_em(params, properties, y, num_iters=iterations, verbose=False)
        return jax.block_until_ready(found)

    tasks: dict[str, Any] = {str(count): lambda count=count: run(count) and None for count in (1, 11)}
    if kind == "markov":
        tasks["means"] = lambda: {"means": sorted(np.ravel(run(100)[0].emissions.means).tolist())}
    else:
        smoothed = jax.jit(lambda y: lgssm_smoother(params, y).smoothed_means[:, 0])
        tasks["smoothed"] = lambda: {"smoothed": np.asarray(smoothed(y)).tolist()}
    serve(tasks)


if __name__ == "__main__":
    main()
