"""Samplers on all the data, against reference draws and against their peers.

    python -m benchmarks.sampling --posteriordb                 NUTS on thirteen posteriors, HMC on nine of them
    python -m benchmarks.sampling --posteriordb --only arK nes  some of them, by the beginnings of their names
    python -m benchmarks.sampling --peers                       NUTS beside BlackJAX's and NumPyro's, time and ESS, a
                                                                quarter of an hour: the same log density for all, and
                                                                ours as a Model

The posteriors lie in `posteriordb` below the folder that the variable LAMU_DATA names. A row passes where the Monte
Carlo standard error of every mean is at most 0.02 posterior standard deviations, the largest |z| over all means and
squares is inside the Bonferroni bound at 1 % (errors of both sides by ArviZ, those of squares from the reference
draws), and R-hat is at most 1.01. One posterior has no variance by which to judge: in one_comp_mm_elim_abs the
likelihood knows the ratio of V_m and K_m alone once both are large, so that under their Cauchy priors the density of
K_m falls like its third power: its mean exists, and no standard error of it. Times are of this machine as it is; a
peer beside which other work runs is no peer.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import lamu
from benchmarks import posteriordb
from benchmarks.pairs import ratio_of

HMC = ("arK", "arma", "eight_schools", "garch", "kidiq", "low_dim", "mesquite", "nes", "sblri")
MCSE, R_HAT, LEVEL = 0.02, 1.01, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posteriordb", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], help="names, or the beginnings of names")
    parser.add_argument("--sampler", choices=["nuts", "hmc"], nargs="+", default=["nuts", "hmc"])
    parser.add_argument("--draws", type=int, default=4096, help="kept draws a chain, of four")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # the references are of float64
    warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next version at import
    warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)  # R-hat is printed, or the chains are short on purpose
    if options.posteriordb:
        against_references(options)
    if options.peers:
        against_peers(options.seed)
    if not options.posteriordb and not options.peers:
        parser.print_help()


def against_references(options: argparse.Namespace) -> None:
    folder = Path(os.environ.get("LAMU_DATA", "../shared/data")) / "posteriordb"
    if not folder.is_dir():
        raise SystemExit(f"{folder} is not there; name the folder above it in LAMU_DATA")
    print(f"{'posterior':34}{'sampler':9}{'MCSE/sd':>9}{'|z|':>7}{'bound':>7}{'R-hat':>8}{'ESS':>8}{'s':>7}  verdict")
    passed = []
    for name, make in posteriordb.models().items():
        if options.only and not any(name.startswith(start) for start in options.only):
            continue
        data, reference = posteriordb.load(folder, name)
        density, extract = make(data)
        for sampler in options.sampler:
            if sampler == "hmc" and not any(name.startswith(start) for start in HMC):
                continue
            algorithm = made(sampler, options.draws)
            begun = time.perf_counter()
            posterior = lamu.fit(density, None, algorithm, seed=options.seed, progress=False).posterior
            taken = time.perf_counter() - begun
            found = posteriordb.columns_of(extract, posterior.samples["network"])
            passed.append(report(name, sampler, found, reference, taken))
    print(f"{sum(passed)} of {len(passed)} pass")


def made(sampler: str, draws: int) -> Any:
    if sampler == "nuts":
        return lamu.mcmc.nuts(chains=4, warmup=1024, draws=draws, target_acceptance=0.9)
    return lamu.mcmc.hmc(chains=4, warmup=1024, draws=draws, target_acceptance=0.9)


def report(name: str, sampler: str, found: np.ndarray, reference: np.ndarray, taken: float) -> bool:
    """Prints a row, and returns whether it passes."""
    import arviz

    def summary(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and its standard error of every column and of its square."""
        both = np.concatenate([draws, draws**2], axis=2)
        columns = range(both.shape[2])
        return both.mean(axis=(0, 1)), np.array([float(arviz.mcse(both[:, :, i], method="mean")) for i in columns])

    columns = found.shape[2]
    assert columns == reference.shape[2], (columns, reference.shape)
    (mine, error), (theirs, reference_error) = summary(found), summary(reference)
    z = float(np.max(np.abs(mine - theirs) / np.hypot(error, reference_error)))
    bound = float(stats.norm.isf(LEVEL / (2 * 2 * columns)))
    relative = float(np.max(error[:columns] / reference.std(axis=(0, 1))))
    r_hat = max(float(arviz.rhat(found[:, :, i])) for i in range(columns))
    ess = min(float(arviz.ess(found[:, :, i])) for i in range(columns))
    good = relative <= MCSE and z <= bound and r_hat <= R_HAT
    print(
        f"{name.split('-')[-1][:32]:34}{sampler:9}{relative:9.4f}{z:7.2f}{bound:7.2f}{r_hat:8.4f}{ess:8.0f}{taken:7.1f}"
        f"  {'passes' if good else 'FAILS'}",
        flush=True,
    )
    return good


def against_peers(seed: int) -> None:
    """NUTS, four chains in float32, on Bayesian logistic regression and on a network of 1,474 weights."""
    jax.config.update("jax_enable_x64", False)
    import arviz
    import blackjax  # noqa: F401  so that nobody's first run counts an import
    import numpyro.infer  # noqa: F401  the same: imported here, used by name below

    x, y = lamu.data.load("breast_cancer")
    x = jnp.asarray((x - x.mean(axis=0)) / x.std(axis=0), jnp.float32)
    labels = jnp.asarray(y, jnp.float32)

    def logistic(w: Any) -> Any:
        f = x @ w[1:] + w[0]
        return jnp.sum(labels * f - jax.nn.softplus(f)) - 0.5 * jnp.sum(w**2)

    def network(w: Any) -> Any:
        hidden = jnp.tanh(x @ w[:1380].reshape(30, 46) + w[1380:1426])
        f = jnp.tanh(hidden @ w[1426:1472].reshape(46, 1))[:, 0] * w[1472] + w[1473]
        return jnp.sum(labels * f - jax.nn.softplus(f)) - 0.5 * jnp.sum(w**2)

    for name, log_density, size, warmup, draws, rounds in (
        ("logistic, 31 weights", logistic, 31, 512, 512, 8),
        # Chains of 64 draws had not mixed, and their ESS was noise.
        ("network, 1,474 weights", network, 1474, 256, 512, 2),
    ):
        start = 0.1 * jax.random.normal(jax.random.key(1), (size,))
        runs = {
            "lamu": _ours(log_density, start, warmup, draws),
            "blackjax": _blackjax(log_density, start, warmup, draws),
            "numpyro": _numpyro(log_density, start, warmup, draws),
        }
        if log_density is logistic:
            runs["lamu, the same as a Model"] = _our_model(x, labels, start, warmup, draws)
        times: dict[str, list[float]] = {peer: [] for peer in runs}
        ess: dict[str, list[float]] = {peer: [] for peer in runs}
        a_gradient: dict[str, list[float]] = {peer: [] for peer in runs}
        for i in range(rounds + 1):  # turn by turn, as the machine's speed changes
            for peer, run in runs.items():
                begun = time.perf_counter()
                # The first two take the same paths, so that what they differ by is compilation.
                found, stage = run(seed + max(i - 1, 0))
                found = np.asarray(jax.block_until_ready(found))
                times[peer].append(time.perf_counter() - begun)
                a_gradient[peer].append(stage)
                # Weights of hidden units change places: what chains agree on is the log density.
                looked = found if size < 100 else np.asarray(jax.vmap(jax.vmap(log_density))(found))[:, :, None]
                ess[peer].append(min(float(arviz.ess(looked[:, :, k])) for k in range(looked.shape[2])))
        print(f"{'NUTS, ' + name:28}{'first s':>9}{'again s':>9}{'min ESS':>9}{'ESS/s':>9}{'ESS/s first':>13}")
        for peer, (first, *again) in times.items():
            many, each = float(np.mean(ess[peer][1:])), float(np.median(again))
            alone = each + first - again[0]
            print(f"{peer:28}{first:9.2f}{each:9.2f}{many:9.0f}{many / each:9.0f}{many / alone:13.0f}", flush=True)
        # Whether a warm-up ends with paths of 127 or of 255 steps is chance: a gradient of all chains is what compares.
        beside = (1e3 * np.array(a_gradient[peer][1:]) for peer in ("lamu", "blackjax"))
        print(ratio_of("1,000 gradients beside BlackJAX's (1.05)", *beside))


def _ours(log_density: Any, start: Any, warmup: int, draws: int) -> Any:
    fit, nuts = lamu.fit, lamu.mcmc.nuts  # the lazy door opens here, as the peers are imported above

    def run(seed: int) -> Any:
        density, ends = lamu.LogDensity(log_density, start), {}
        sampler = nuts(chains=4, warmup=warmup, draws=draws)
        at = lambda steps, last: ends.update({steps: time.perf_counter()})
        posterior = fit(density, None, sampler, seed=seed, progress=False, callbacks=[at]).posterior
        gradients = np.asarray(posterior.belief.statistics["gradients"])
        return posterior.samples["network"], _a_gradient(ends[warmup + draws] - ends[warmup], gradients)

    return run


def _a_gradient(seconds: float, gradients: np.ndarray) -> float:
    """Seconds of a gradient of all chains: at each draw, `[chains, draws]`, the others wait for the longest path."""
    return seconds / float(gradients.max(axis=0).sum())


def _our_model(x: Any, y: Any, start: Any, warmup: int, draws: int) -> Any:
    """The logistic regression made of the library's parts, of which the likelihood knows a cheaper gradient."""
    fit, nuts, parts = lamu.fit, lamu.mcmc.nuts, (lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    model = lamu.Model(*parts, lamu.priors.Normal(1.0))
    first = {"network": {"layers": {0: {"kernel": start[1:, None], "bias": start[:1]}}}, "likelihood": {}}

    def run(seed: int) -> Any:
        sampler = nuts(chains=4, warmup=warmup, draws=draws, start=first)
        drawn = fit(model, (x, y), sampler, seed=seed, progress=False).posterior.samples["network"]
        found = drawn["layers"][0]
        return jnp.concatenate([found["bias"], found["kernel"][..., 0]], axis=2), np.nan

    return run


def _blackjax(log_density: Any, start: Any, warmup: int, draws: int) -> Any:
    import blackjax

    @jax.jit
    @jax.vmap
    def adapted(key: Any) -> Any:
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        return adaptation.run(key, start, num_steps=warmup)[0]

    @jax.jit
    @jax.vmap
    def drawn(adapted: Any, key: Any) -> Any:
        state, parameters = adapted
        step = blackjax.nuts(log_density, **parameters).step

        def follow(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(follow, state, jax.random.split(key, draws))[1]

    def run(seed: int) -> Any:
        first, second = jax.random.split(jax.random.key(seed))
        warm = jax.block_until_ready(adapted(jax.random.split(first, 4)))
        begun = time.perf_counter()
        found, gradients = jax.block_until_ready(drawn(warm, jax.random.split(second, 4)))
        return found, _a_gradient(time.perf_counter() - begun, np.asarray(gradients))

    return run


def _numpyro(log_density: Any, start: Any, warmup: int, draws: int) -> Any:
    from numpyro.infer import MCMC, NUTS

    def run(key: Any) -> Any:
        sampler = MCMC(
            NUTS(potential_fn=lambda w: -log_density(w)),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=4,
            chain_method="vectorized",
            progress_bar=False,
        )
        sampler.run(key, init_params=jnp.tile(start, (4, 1)))
        return sampler.get_samples(group_by_chain=True)

    compiled = jax.jit(run)  # under one jit, without which it compiles at every call
    return lambda seed: (compiled(jax.random.PRNGKey(seed)), np.nan)


if __name__ == "__main__":
    main()
