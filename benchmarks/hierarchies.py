"""Hierarchies written in NumPyro: `cvi` beside AutoNormal at equal time, and beside NUTS.

    python -m benchmarks.hierarchies            all of them
    python -m benchmarks.hierarchies rats       some of eight_schools, rats, seeds, radon, irt and pima

Prints the bound of the log evidence of both beliefs in nats, by 2,000 draws and with its standard error; the distance
of the means of coefficients from NUTS's in its standard deviations, and the ratio of the standard deviations. Seconds
are those of steps, without compilation. The data are `posteriordb/data_only` and
`rdatasets/pima_tr.csv` below the folder `LAMU_DATA`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

import lamu
from lamu.objective import Objective

DRAWS, STEPS = 2_000, 600


def normal(name: str, plate: str, size: int, mean: Any, precision: Any) -> Any:
    with numpyro.plate(plate, size):
        return numpyro.sample(name, dist.Normal(mean, 1 / jnp.sqrt(precision)))


def eight_schools(y: Any, sigma: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.Gamma(1.0, 10.0))
    theta = normal("theta", "schools", 8, mu, tau)
    with numpyro.plate("rows", 8):
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def rats(rat: Any, x: Any, y: Any) -> None:
    scale = numpyro.sample("scale", dist.Gamma(jnp.ones(3), jnp.array([0.1, 0.1, 0.1])).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros(2), 10.0).to_event(1))
    level = normal("level", "rats of levels", 30, mu[0], scale[0])
    slope = normal("slope", "rats of slopes", 30, mu[1], scale[1])
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(level[rat] + slope[rat] * x, 1 / jnp.sqrt(scale[2])), obs=y)


def seeds(n: Any, N: Any, x: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(1.0, 0.1))
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros(4), 3.0).to_event(1))
    own = normal("own", "plates", len(n), 0.0, tau)
    with numpyro.plate("rows", len(n)):
        numpyro.sample("n", dist.Binomial(N, logits=x @ mu + own), obs=n)


def radon(county: Any, x: Any, y: Any) -> None:
    scale = numpyro.sample("scale", dist.Gamma(jnp.ones(2), jnp.full(2, 0.1)).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros(3), 5.0).to_event(1))
    own = normal("own", "counties", 85, 0.0, scale[0])
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ mu + own[county], 1 / jnp.sqrt(scale[1])), obs=y)


def irt(person: Any, item: Any, y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
    ability = normal("ability", "persons", 100, 0.0, 1.0)
    easy = normal("easy", "items", 20, mu, tau)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=ability[person] + easy[item]), obs=y)


def pima(x: Any, y: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(1.0, 0.5))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
    w = normal("w", "columns", x.shape[1], 0.0, tau)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + intercept), obs=y)


def read(name: str) -> dict[str, Any]:
    held = json.loads((Path(os.environ["LAMU_DATA"]) / "posteriordb" / "data_only" / f"{name}.json").read_text())
    return {key: np.asarray(value) for key, value in held.get("data", held).items()}


def data_of(name: str) -> tuple[Callable[..., None], dict[str, Any]]:
    if name == "eight_schools":
        y, sigma = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]
        return eight_schools, {"y": np.array(y), "sigma": np.array(sigma)}
    if name == "rats":
        d = read("rats_data")
        y, x = d["y"].astype(float).ravel(), (d["x"].astype(float) - d["xbar"]).ravel()
        return rats, {"rat": d["rat"] - 1, "x": x / x.std(), "y": (y - y.mean()) / y.std()}
    if name == "seeds":
        d = read("seeds_data")
        x = np.stack([np.ones(21), d["x1"], d["x2"], d["x1"] * d["x2"]], axis=1).astype(float)
        return seeds, {"n": d["n"], "N": d["N"], "x": x}
    if name == "radon":
        d = read("radon_mn")
        x = np.stack([np.ones(919), d["floor_measure"], d["log_uppm"]], axis=1).astype(float)
        return radon, {"county": d["county_idx"] - 1, "x": x, "y": d["log_radon"].astype(float)}
    if name == "pima":
        table = np.genfromtxt(
            Path(os.environ["LAMU_DATA"]) / "rdatasets" / "pima_tr.csv", delimiter=",", skip_header=1, dtype=str
        )
        x = table[:, :-1].astype(float)
        return pima, {"x": (x - x.mean(0)) / x.std(0), "y": (np.char.strip(table[:, -1], '"') == "Yes").astype(int)}
    answers = read("irt_2pl")["y"]  # [items, persons]
    item, person = np.indices(answers.shape)
    return irt, {"person": person.ravel(), "item": item.ravel(), "y": answers.ravel().astype(int)}


def bound(program: Any, data: Any, samples: Any, log_q: np.ndarray) -> str:
    log_p = np.asarray(jax.jit(jax.vmap(lambda s: log_density(program, (), data, s)[0]))(samples))
    values = log_p - log_q
    return f"{values.mean():10.2f} ± {values.std() / np.sqrt(len(values)):.2f}"


def contest(name: str) -> None:
    program, data = data_of(name)
    target, key, algorithm = lamu.from_numpyro(program, data), jax.random.key(0), lamu.algorithms.cvi()
    rows, objective = target.read(None), Objective(target, 1)
    batch = rows.full()
    body = lambda state, key: (algorithm.step(key, state, batch, objective)[0], None)
    steps = jax.jit(lambda state, keys: jax.lax.scan(body, state, keys)[0])
    first = algorithm.init(key, objective, batch), jax.random.split(jax.random.key(1), STEPS)
    compiled = steps.lower(*first).compile()
    begin = time.perf_counter()
    state = jax.block_until_ready(compiled(*first))
    seconds = time.perf_counter() - begin
    posterior = target.constrained(algorithm.posterior(key, state, objective, rows, None))

    guide = AutoNormal(program)
    svi = SVI(program, guide, numpyro.optim.Adam(1e-2), Trace_ELBO())
    state = svi.init(key, **data)
    many = jax.jit(lambda s: jax.lax.fori_loop(0, 200, lambda _, s: svi.update(s, **data)[0], s))
    jax.block_until_ready(many(state))
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        state, count = jax.block_until_ready(many(state)), count + 200
    params = svi.get_params(state)

    belief = posterior.belief.factors["network"]
    ours = jax.jit(jax.vmap(belief.sample))(jax.random.split(key, DRAWS))
    mine = bound(program, data, ours, np.asarray(jax.jit(jax.vmap(belief.log_prob))(ours)))
    one = jax.jit(lambda key: svi.loss.loss_with_mutable_state(key, params, program, guide, **data)["loss"])
    losses = -np.asarray(jax.lax.map(one, jax.random.split(key, DRAWS)))
    print(f"{name}: {seconds:.1f} s; bound cvi {mine}", end="")
    print(f", AutoNormal {losses.mean():10.2f} ± {losses.std() / np.sqrt(DRAWS):.2f} ({count} steps)", flush=True)
    if name == "irt":  # whose bounds alone are compared: its chains take many minutes
        return

    chain = MCMC(NUTS(program), num_warmup=500, num_samples=DRAWS, progress_bar=False)
    chain.run(key, **data)
    theirs = chain.get_samples()
    for site in (name for name in ("mu", "intercept", "w", "tau", "scale") if name in theirs):
        a, b = np.asarray(ours[site]), np.asarray(theirs[site])
        away = (a.mean(0) - b.mean(0)) / b.std(0)
        ratio = a.std(0) / b.std(0)
        print(f"   {site:6} (means - NUTS) / sd {np.round(away, 3)}, sd ratio {np.round(ratio, 2)}", flush=True)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    for name in sys.argv[1:] or ("eight_schools", "rats", "seeds", "radon", "irt", "pima"):
        contest(name)


if __name__ == "__main__":
    main()
