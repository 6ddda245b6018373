"""Posteriors with reference draws (posteriordb), written as log densities: `models()` has them by name.

Each is a function of the data that returns the density, with constraints in the place of transforms, and how its draws
become the columns of the reference. Normal and half-normal constants that depend on no parameter are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu

__all__ = ["columns_of", "load", "models"]

Made = tuple[Any, Callable[[Any], list[Any]]]


def load(folder: Path, name: str) -> tuple[dict[str, Any], np.ndarray]:
    """Returns the data, and the reference draws `[chains, draws, parameters]`."""
    data = json.loads((folder / f"{name}.json").read_text())["data"]
    arrays = {key: np.asarray(value, float) if isinstance(value, list) else value for key, value in data.items()}
    return arrays, np.load(folder / f"{name}.npz")["draws"].astype(float)


def columns_of(extract: Callable[[Any], list[Any]], samples: Any) -> np.ndarray:
    """Returns draws as columns, `[chains, draws, parameters]`."""
    parts = [np.asarray(part) for part in extract(samples)]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2)


def normal(x: Any, mean: Any, scale: Any) -> Any:
    """The log density of normal numbers, summed, without log 2π."""
    z = (x - mean) / scale
    return jnp.sum(-0.5 * z**2 - jnp.log(jnp.broadcast_to(jnp.asarray(scale), z.shape)))


def half_cauchy(x: Any, scale: float) -> Any:
    return -jnp.sum(jnp.log1p((x / scale) ** 2))


def log_normal(x: Any, location: Any, scale: Any) -> Any:
    return normal(jnp.log(x), location, scale) - jnp.sum(jnp.log(x))


def in_order(*names: str) -> Callable[[Any], list[Any]]:
    return lambda samples: [samples[name] for name in names]


def regression(design: np.ndarray, y: np.ndarray, log_prior: Callable[[Any, Any], Any]) -> Made:
    """Linear regression from its least squares."""
    start = np.linalg.lstsq(design, y, rcond=None)[0]
    sigma = float(np.std(y - design @ start))
    design, y = jnp.asarray(design), jnp.asarray(y)

    def log_density(theta: Any) -> dict[str, Any]:
        beta, sigma = theta["beta"], theta["sigma"]
        return {"likelihood": normal(y, design @ beta, sigma), "prior": log_prior(beta, sigma)}

    density = lamu.LogDensity(log_density, {"beta": start, "sigma": sigma}, {"sigma": "positive"})
    return density, in_order("beta", "sigma")


def flat(beta: Any, sigma: Any) -> Any:
    return jnp.zeros(())


def earnings(data: Any) -> Made:
    height, male = data["height"], data["male"]
    design = np.column_stack([np.ones_like(height), height, male, height * male])
    return regression(design, np.log(data["earn"]), flat)


def kidscore(data: Any) -> Made:
    school, iq = data["mom_hs"], data["mom_iq"]
    design = np.column_stack([np.ones_like(iq), school, iq, school * iq])
    return regression(design, data["kid_score"], lambda beta, sigma: half_cauchy(sigma, 2.5))


def mesquite(data: Any) -> Made:
    names = ("diam1", "diam2", "canopy_height", "total_height", "density")
    logs = [np.log(data[name]) for name in names]
    design = np.column_stack([np.ones_like(logs[0]), *logs, data["group"]])
    return regression(design, np.log(data["weight"]), flat)


def nes(data: Any) -> Made:
    age = [(data["age_discrete"] == k).astype(float) for k in (2, 3, 4)]
    ones = np.ones_like(age[0])
    parts = [ones, data["real_ideo"], data["race_adj"], *age, data["educ1"], data["gender"], data["income"]]
    return regression(np.column_stack(parts), data["partyid7"], flat)


def blr(data: Any) -> Made:
    return regression(data["X"], data["y"], lambda beta, sigma: normal(beta, 0.0, 10.0) + normal(sigma, 0.0, 10.0))


def autoregression(data: Any) -> Made:
    y, order = jnp.asarray(data["y"]), data["K"]
    past = jnp.stack([y[order - k - 1 : len(y) - k - 1] for k in range(order)], axis=1)

    def log_density(theta: Any) -> dict[str, Any]:
        mean = theta["alpha"] + past @ theta["beta"]
        prior = normal(theta["alpha"], 0.0, 10.0) + normal(theta["beta"], 0.0, 10.0) + half_cauchy(theta["sigma"], 2.5)
        return {"likelihood": normal(y[order:], mean, theta["sigma"]), "prior": prior}

    start = {"alpha": 0.0, "beta": jnp.zeros(order), "sigma": 1.0}
    return lamu.LogDensity(log_density, start, {"sigma": "positive"}), in_order("alpha", "beta", "sigma")


def arma(data: Any) -> Made:
    y = jnp.asarray(data["y"])

    def log_density(theta: Any) -> dict[str, Any]:
        mu, phi, past = theta["mu"], theta["phi"], theta["theta"]
        first = y[0] - mu - phi * mu

        def error(last: Any, pair: Any) -> Any:
            now = pair[1] - (mu + phi * pair[0] + past * last)
            return now, now

        _, errors = jax.lax.scan(error, first, (y[:-1], y[1:]))
        prior = normal(mu, 0.0, 10.0) + normal(phi, 0.0, 2.0) + normal(past, 0.0, 2.0)
        likelihood = normal(errors, 0.0, theta["sigma"]) + normal(first, 0.0, theta["sigma"])
        return {"likelihood": likelihood, "prior": prior + half_cauchy(theta["sigma"], 2.5)}

    start = {"mu": 0.0, "phi": 0.0, "theta": 0.0, "sigma": 1.0}
    return lamu.LogDensity(log_density, start, {"sigma": "positive"}), in_order("mu", "phi", "theta", "sigma")


def eight_schools(data: Any) -> Made:
    y, sigma = jnp.asarray(data["y"]), jnp.asarray(data["sigma"])

    def log_density(theta: Any) -> dict[str, Any]:
        effects = theta["mu"] + theta["tau"] * theta["trans"]
        prior = normal(theta["trans"], 0.0, 1.0) + normal(theta["mu"], 0.0, 5.0) + half_cauchy(theta["tau"], 5.0)
        return {"likelihood": normal(y, effects, sigma), "prior": prior}

    def extract(samples: Any) -> list[Any]:
        mu, tau = samples["mu"], samples["tau"]
        return [mu[..., None] + tau[..., None] * samples["trans"], mu, tau]

    start = {"trans": jnp.zeros(8), "mu": 0.0, "tau": 1.0}
    return lamu.LogDensity(log_density, start, {"tau": "positive"}), extract


def garch(data: Any) -> Made:
    y = jnp.asarray(data["y"])

    def log_density(theta: Any) -> dict[str, Any]:
        mu, alpha0, alpha1 = theta["mu"], theta["alpha0"], theta["alpha1"]
        beta1 = (1.0 - alpha1) * theta["share"]

        def variance(last: Any, before: Any) -> Any:
            now = alpha0 + alpha1 * (before - mu) ** 2 + beta1 * last
            return now, now

        first = jnp.full_like(mu, data["sigma1"] ** 2)
        _, rest = jax.lax.scan(variance, first, y[:-1])
        scales = jnp.sqrt(jnp.concatenate([first[None], rest]))
        # Flat in beta1, which is (1 - alpha1) times the share.
        return {"likelihood": normal(y, mu, scales), "volume": jnp.log1p(-alpha1)}

    def extract(samples: Any) -> list[Any]:
        beta1 = (1.0 - samples["alpha1"]) * samples["share"]
        return [samples["mu"], samples["alpha0"], samples["alpha1"], beta1]

    start = {"mu": float(np.mean(data["y"])), "alpha0": 1.0, "alpha1": 0.4, "share": 0.4}
    table = {"alpha0": "positive", "alpha1": "unit_interval", "share": "unit_interval"}
    return lamu.LogDensity(log_density, start, table), extract


def gaussian_mixture(data: Any) -> Made:
    y = jnp.asarray(data["y"])

    def log_density(theta: Any) -> dict[str, Any]:
        z = (y[:, None] - theta["mu"][None]) / theta["sigma"][None]
        parts = -0.5 * z**2 - jnp.log(theta["sigma"])[None]
        weights = jnp.stack([jnp.log(theta["theta"]), jnp.log1p(-theta["theta"])])
        prior = normal(theta["mu"], 0.0, 2.0) + normal(theta["sigma"], 0.0, 2.0) + 4.0 * jnp.sum(weights)
        return {"likelihood": jnp.sum(jax.nn.logsumexp(parts + weights[None], axis=1)), "prior": prior}

    start = {"mu": jnp.array([-1.0, 1.0]), "sigma": jnp.ones(2), "theta": 0.5}
    table = {"mu": "ordered", "sigma": "positive", "theta": "unit_interval"}
    return lamu.LogDensity(log_density, start, table), in_order("mu", "sigma", "theta")


def gaussian_process(data: Any) -> Made:
    x, k = jnp.asarray(data["x"]), jnp.asarray(data["k"])
    squares = (x[:, None] - x[None]) ** 2

    def latent(rho: Any, alpha: Any, trans: Any) -> Any:
        covariance = alpha**2 * jnp.exp(-0.5 * squares / rho**2) + 1e-10 * jnp.eye(len(x))
        return jnp.linalg.cholesky(covariance) @ trans

    def log_density(theta: Any) -> dict[str, Any]:
        f = latent(theta["rho"], theta["alpha"], theta["trans"])
        prior = 24.0 * jnp.log(theta["rho"]) - 4.0 * theta["rho"] + normal(theta["alpha"], 0.0, 2.0)
        return {"likelihood": jnp.sum(k * f - jnp.exp(f)), "prior": prior + normal(theta["trans"], 0.0, 1.0)}

    def extract(samples: Any) -> list[Any]:
        f = jax.jit(jax.vmap(jax.vmap(latent)))(samples["rho"], samples["alpha"], samples["trans"])
        return [samples["rho"], samples["alpha"], f]

    start = {"rho": 6.0, "alpha": 1.0, "trans": jnp.zeros(len(x))}
    return lamu.LogDensity(log_density, start, {"rho": "positive", "alpha": "positive"}), extract


def runge_kutta(slope: Callable[[Any, Any], Any], start: Any, times: np.ndarray, substeps: int) -> Any:
    """Returns the state at the times, from time zero on, by steps of the fourth order."""
    spans = np.diff(np.concatenate([[0.0], times]))
    h = jnp.asarray(np.repeat(spans / substeps, substeps))
    t = jnp.asarray(np.concatenate([[0.0], np.cumsum(np.repeat(spans / substeps, substeps))[:-1]]))

    def one(state: Any, now: Any) -> Any:
        t, h = now
        a = slope(t, state)
        b = slope(t + h / 2, state + h / 2 * a)
        c = slope(t + h / 2, state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + slope(t + h, state + h * c))
        return state, state

    return jax.lax.scan(one, start, (t, h))[1][substeps - 1 :: substeps]


def lotka_volterra(data: Any) -> Made:
    y, first = jnp.asarray(data["y"]), jnp.asarray(data["y_init"])

    def log_density(theta: Any) -> dict[str, Any]:
        rates, initial, sigma = theta["theta"], theta["z_init"], theta["sigma"]

        def slope(_: Any, z: Any) -> Any:
            return jnp.stack([(rates[0] - rates[1] * z[1]) * z[0], (-rates[2] + rates[3] * z[0]) * z[1]])

        z = runge_kutta(slope, initial, data["ts"], substeps=8)
        middle, scale = jnp.array([1.0, 0.05, 1.0, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05])
        prior = normal(rates, middle, scale) + log_normal(sigma, -1.0, 1.0) + log_normal(initial, np.log(10.0), 1.0)
        located = jnp.log(jnp.maximum(z, 1e-10))
        likelihood = log_normal(y, located, jnp.broadcast_to(sigma[None], y.shape))
        return {"likelihood": likelihood + log_normal(first, jnp.log(initial), sigma), "prior": prior}

    start = {"theta": jnp.array([0.5, 0.03, 0.8, 0.03]), "z_init": jnp.array([30.0, 5.0]), "sigma": jnp.full(2, 0.3)}
    return lamu.LogDensity(log_density, start, {"*": "positive"}), in_order("theta", "z_init", "sigma")


def elimination(data: Any) -> Made:
    seen, dose, volume = jnp.asarray(data["C_hat"]), data["D"], data["V"]

    def log_density(theta: Any) -> dict[str, Any]:
        k_a, k_m, v_m, sigma = (theta[name] for name in ("k_a", "K_m", "V_m", "sigma"))
        slope = lambda t, c: jnp.exp(-k_a * t) * dose * k_a / volume - v_m / volume * c / (k_m + c)
        c = runge_kutta(slope, jnp.zeros_like(k_a), data["times"], substeps=8)
        prior = sum((half_cauchy(x, 1.0) for x in (k_a, k_m, v_m, sigma)), jnp.zeros_like(k_a))
        return {"likelihood": log_normal(seen, jnp.log(jnp.maximum(c, 1e-10)), sigma), "prior": prior}

    start = {"k_a": 0.7, "K_m": 0.3, "V_m": 1.0, "sigma": 0.3}
    return lamu.LogDensity(log_density, start, {"*": "positive"}), in_order("k_a", "K_m", "V_m", "sigma")


def models() -> dict[str, Callable[[Any], Made]]:
    """Every posterior by its name in the folder."""
    return {
        "arK-arK": autoregression,
        "arma-arma11": arma,
        "earnings-logearn_interaction": earnings,
        "eight_schools-eight_schools_noncentered": eight_schools,
        "garch-garch11": garch,
        "gp_pois_regr-gp_pois_regr": gaussian_process,
        "hudson_lynx_hare-lotka_volterra": lotka_volterra,
        "kidiq-kidscore_interaction": kidscore,
        "low_dim_gauss_mix-low_dim_gauss_mix": gaussian_mixture,
        "mesquite-logmesquite": mesquite,
        "nes2000-nes": nes,
        "one_comp_mm_elim_abs-one_comp_mm_elim_abs": elimination,
        "sblri-blr": blr,
    }
