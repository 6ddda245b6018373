"""A network of rectifiers small enough for long chains; weights are exchangeable, so predictions are compared."""

# The reference is kept as figures, because making it takes three minutes: `python -m lamu.verification.tiny_network`
# prints it anew.

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lamu.algorithms.moments.pbp import pbp
from lamu.data.bundled import load
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.networks import MLP
from lamu.priors import Normal

__all__ = ["MEAN", "SD", "chains", "model", "new_rows", "rows"]

_ROWS, _NEW, _UNITS, _PRIOR = 200, 12, 5, 0.5

# Of the predictive distribution at `new_rows()`; 4 chains of 3,000 draws by NUTS.
MEAN = (-0.775, -0.988, 0.137, 0.457, 0.473, 0.718, -0.145, 0.688, 1.117, 0.141, -0.481, 0.28)
SD = (0.714, 0.7, 0.73, 0.69, 0.728, 0.708, 0.688, 0.699, 0.724, 0.715, 0.699, 0.714)


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
    """Returns one hidden layer of five rectifiers with learned noise, and the prior N(0, 1/4) in units of its scale."""
    return Model(MLP((_UNITS,), "relu"), Gaussian(), Normal(_PRIOR))


def chains(draws: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of the predictive distribution at the new rows, by long chains."""
    # The model is the one of `pbp`: normal weights with variance 0.25 / (λ n), n the fan-in plus one, and Gamma beliefs
    # about λ and about the precision of the noise.
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    x, y = map(jnp.asarray, rows())
    algorithm, sizes = pbp(), (x.shape[1], _UNITS, 1)

    def program() -> None:
        weights, noise = (
            numpyro.sample(name, dist.Gamma(belief.shape, belief.rate))
            for name, belief in (("weights", algorithm.prior), ("noise", algorithm.noise))
        )
        layers = []
        for index, (fan_in, units) in enumerate(pairwise(sizes)):
            z = numpyro.sample(f"layer{index}", dist.Normal().expand([fan_in + 1, units]).to_event(2))
            layers.append(z * _PRIOR / jnp.sqrt(weights * (fan_in + 1)))

        def outputs(x: jax.Array) -> jax.Array:
            hidden = jax.nn.relu(x @ layers[0][1:] + layers[0][0])
            return (hidden @ layers[1][1:] + layers[1][0])[:, 0]

        numpyro.sample("y", dist.Normal(outputs(x), noise**-0.5), obs=y)
        numpyro.deterministic("outputs", outputs(jnp.asarray(new_rows())))

    kernel = NUTS(program)
    sampler = MCMC(
        kernel, num_warmup=1000, num_samples=draws, num_chains=4, chain_method="vectorized", progress_bar=False
    )
    sampler.run(jax.random.key(0))
    found = {name: np.asarray(draw, np.float64) for name, draw in sampler.get_samples().items()}
    return found["outputs"].mean(0), np.sqrt(found["outputs"].var(0) + np.mean(1 / found["noise"]))


if __name__ == "__main__":
    for figures in chains():
        print(tuple(round(float(figure), 3) for figure in figures))
