"""A NumPyro program: what is conjugate in it, variational inference by exact messages and Hessians, and NUTS.

    python examples/numpyro_program.py

It prints the table of the sites, the coefficients of a logistic regression by `cvi` and by NUTS, and what they predict.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import lamu


def program(X: Any, y: Any) -> None:
    """A logistic regression whose coefficients share an unknown precision."""
    tau = numpyro.sample("tau", dist.Gamma(1.0, 0.5))
    w = numpyro.sample("w", dist.Normal(0.0, 1 / jnp.sqrt(tau)).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def main() -> None:
    """Fits the program twice."""
    X, y = lamu.data.load("breast_cancer")
    X = ((X - X.mean(0)) / X.std(0))[:, :4]
    target = lamu.from_numpyro(program, {"X": X, "y": y}, rows="rows")
    print(target.table())
    belief = lamu.fit(target, None, lamu.algorithms.cvi(), steps=200, batch_size=len(y)).posterior
    draws = belief.sample(jax.random.key(1), 2000)["network"]["w"]
    sampled = lamu.fit(target, None, lamu.mcmc.nuts(chains=2, warmup=300, draws=300)).posterior
    chains = sampled.samples["network"]["w"]
    print("coefficient  cvi            nuts")
    for k in range(X.shape[1]):
        ours, theirs = draws[:, k], chains[..., k]
        print(f"{k:11d}  {ours.mean():5.2f} ± {ours.std():4.2f}   {theirs.mean():5.2f} ± {theirs.std():4.2f}")
    new = {"X": X[:5] + 0.5}  # y is left out, and predicted
    print("new rows by cvi ", belief.predict(new, samples=500).mean)
    print("new rows by nuts", sampled.predict(new, samples=500).mean)


if __name__ == "__main__":
    main()
