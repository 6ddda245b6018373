"""A network of rectifiers small enough for long chains; weights are exchangeable, so predictions are compared.

The reference is kept as figures, because making it takes a minute: `python -m lamu.verification.tiny_network` prints it
anew.
"""

from __future__ import annotations

import numpy as np

from lamu.data.bundled import load
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.networks import MLP
from lamu.priors import Normal

__all__ = ["MEAN", "SD", "chains", "model", "new_rows", "rows"]

_ROWS, _NEW = 200, 12

# Of the predictive distribution at `new_rows()`; 4 chains of 4,000 draws by NUTS.
MEAN = (-0.827, -1.029, 0.17, 0.441, 0.527, 0.732, -0.189, 0.676, 1.171, 0.164, -0.534, 0.319)
SD = (0.717, 0.702, 0.742, 0.691, 0.74, 0.715, 0.688, 0.702, 0.732, 0.722, 0.702, 0.722)


def _standardised() -> tuple[np.ndarray, np.ndarray]:
    x, y = load("diabetes")
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs `[200, 10]` and targets `[200]` of diabetes, standardised."""
    x, y = _standardised()
    return x[:_ROWS], y[:_ROWS]


def new_rows() -> np.ndarray:
    """Returns inputs `[12, 10]` that are not among them."""
    return _standardised()[0][_ROWS : _ROWS + _NEW]


def model() -> Model:
    """Returns one hidden layer of five rectifiers with learned noise, and the prior N(0, 1/4)."""
    return Model(MLP((5,), "relu"), Gaussian(), Normal(0.5))


def chains(draws: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of the predictive distribution at the new rows, by long chains.

    Args:
        draws: how many are kept for each of four chains.
    """
    from lamu.loop import fit
    from lamu.mcmc import nuts

    posterior = fit(model(), rows(), nuts(chains=4, warmup=2000, draws=draws)).posterior
    pred = posterior.predict(new_rows(), samples=4000)
    return np.asarray(pred.mean), np.sqrt(np.asarray(pred.variance))


if __name__ == "__main__":
    for figures in chains():
        print(tuple(round(float(figure), 3) for figure in figures))
