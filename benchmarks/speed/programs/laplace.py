"""A posterior for a trained network, from the import to its first prediction: START {all,last_layer} OUT."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import lamu
from lamu.objective.curvature import GaussNewton
from lamu.operators import KroneckerFactored
from lamu.predictives import Probit

__all__ = ["algorithm", "load", "model_of"]


def load(path: Path | str) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return dict(archive)


def function(params: Any, x: Any) -> Any:
    *layers, last = params["layers"].values()
    for layer in layers:
        if layer["kernel"].ndim == 4:
            form = ("NHWC", "HWIO", "NHWC")
            x = lax.conv_general_dilated(x, layer["kernel"], (1, 1), "SAME", dimension_numbers=form)
            x = jnp.maximum(x + layer["bias"], 0)
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        else:
            x = jnp.maximum(x.reshape(len(x), -1) @ layer["kernel"] + layer["bias"], 0)
    return x.reshape(len(x), -1) @ last["kernel"] + last["bias"]


def model_of(held: dict[str, np.ndarray]) -> lamu.Model:
    count = sum(name.startswith("kernel") for name in held)
    layers = {index: {name: held[f"{name}{index}"] for name in ("kernel", "bias")} for index in range(count)}
    network = lamu.networks.Trained(function, {"layers": layers}, head=f"layers/{count - 1}/*")
    return lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))


def algorithm(weights: str) -> Any:
    """What laplace-torch computes: Kronecker factors of the Gauss-Newton matrix, and the probit rule."""
    options: dict[str, Any] = {"structure": KroneckerFactored(), "curvature": GaussNewton(), "rule": Probit()}
    return lamu.algorithms.laplace(**options) if weights == "all" else lamu.algorithms.last_layer(**options)


def main() -> None:
    warnings.simplefilter("ignore", lamu.Unconverged)  # the weights were trained under another prior
    path, weights, out = sys.argv[1:]
    held = load(path)
    fit = lamu.fit(model_of(held), (held["x"], held["y"]), algorithm(weights), epochs=0, progress=False)
    np.save(out, np.asarray(fit.posterior.predict(held["new"]).mean))


if __name__ == "__main__":
    main()
