"""Samplers on three targets in two dimensions: what each does in its first steps, and what it has seen in the end.

A banana (curved), a mixture (three modes), and a funnel (a scale that changes a hundredfold), each sampled by a random
walk, Langevin steps with and without their test, Hamiltonian Monte Carlo, NUTS, replicas at three temperatures, and the
stochastic-gradient samplers with an exact gradient. Lines join the first draws of one chain; dots are all draws of four
chains. With `--frames 12` it writes as many pictures besides, in which the lines grow, to be played one after another.

    python examples/samplers_in_2d.py
    python examples/samplers_in_2d.py --out pictures --frames 12
"""

import argparse
import os
import tempfile
import warnings
from pathlib import Path

# Nearly all of the time is compilation of small programs: less of it goes into making them fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import lamu

CHAINS, DRAWS, FIRST = 4, 256, 24
INK, PALE, ACCENT, DOT = "#1f2933", "#c8d0d8", "#c2410c", "#1b6ca8"


def banana(z):
    return -0.5 * (z[0] / 2.0) ** 2 - 0.5 * ((z[1] - 0.5 * z[0] ** 2 + 2.0) / 0.6) ** 2


def mixture(z):
    centres = jnp.array([[-2.5, -1.5], [2.5, -1.5], [0.0, 2.5]])
    return jax.nn.logsumexp(-0.5 * jnp.sum((z[None] - centres) ** 2, axis=1) / 0.5)


def funnel(z):
    """The horizontal number is the log of the vertical one's scale."""
    return -0.5 * (z[0] / 1.5) ** 2 - 0.5 * z[1] ** 2 * jnp.exp(-2.0 * z[0]) - z[0]


# Of each target: its density, where chains start, what is shown of the plane, and a step that suits a random walk.
TARGETS = {
    "banana": (banana, [0.0, -2.0], (-6, 6, -4, 10), 1.2),
    "mixture": (mixture, [-2.5, -1.5], (-5, 5, -4.5, 5), 1.5),
    "funnel": (funnel, [0.0, 0.5], (-5, 4, -8, 8), 1.2),
}


def samplers(step):
    """Every sampler by its name, with steps that are held, so that a picture shows what a step does."""
    of = {"chains": CHAINS, "warmup": 0, "draws": DRAWS}
    thin = {"chains": CHAINS, "warmup": 0, "draws": DRAWS, "thinning": 1}
    return {
        "random walk": lamu.mcmc.random_walk(**of, step_size=step, thinning=1),
        "MALA": lamu.mcmc.mala(**of, step_size=0.5 * step),
        "ULA": lamu.mcmc.ula(**of, step_size=0.3 * step),
        "HMC": lamu.mcmc.hmc(**of, step_size=0.3 * step, path_length=4.0),
        "NUTS": lamu.mcmc.nuts(chains=CHAINS, warmup=64, draws=DRAWS),
        "replicas": lamu.mcmc.parallel_tempering(
            **of, step_size=0.3 * step, temperatures=(1.0, 3.0, 9.0), kernel=lamu.mcmc.hmc(path_length=4.0).kernel
        ),
        "SGLD": lamu.mcmc.sgld(0.03, **thin),
        "SGHMC": lamu.mcmc.sghmc(0.03, **thin),
    }


def any_target(theta):
    """All three as one, by a number that is held: so each sampler is compiled once, and not once a target."""
    return jax.lax.switch(theta["which"].astype(int), [target for target, *_ in TARGETS.values()], theta["z"])


def drawn(which, start, sampler):
    """Draws `[chains, draws, 2]`; what ran away from the target is left out of the picture."""
    start = {"which": jnp.array(float(which)), "z": jnp.array(start)}
    density = lamu.LogDensity(any_target, start).freeze({"network": start}, "which")
    with warnings.catch_warnings():
        # Some of these chains are slow on purpose, and say so.
        warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)
        try:
            samples = lamu.fit(density, None, sampler, seed=1, progress=False).posterior.samples
            return np.asarray(samples["network"]["z"])
        except lamu.Diverged:
            return np.full((CHAINS, DRAWS, 2), np.nan)


def picture(results, length):
    """A panel for each target and sampler, with the first `length` draws of one chain as a line."""
    columns = len(next(iter(results.values())))
    figure = Figure(figsize=(1.9 * columns, 1.9 * len(results)), dpi=120, layout="constrained")
    panels = figure.subplots(len(results), columns)
    for row, (target, found) in zip(panels, results.items(), strict=True):
        log_density, _, (left, right, low, high), _ = TARGETS[target]
        x, y = np.meshgrid(np.linspace(left, right, 120), np.linspace(low, high, 120))
        values = np.asarray(jax.vmap(log_density)(jnp.stack([x.ravel(), y.ravel()], axis=1))).reshape(x.shape)
        levels = values.max() - np.array([8.0, 4.5, 2.0, 0.5])
        for axes, (name, draws) in zip(row, found.items(), strict=True):
            axes.contour(x, y, values, levels=levels, colors=PALE, linewidths=0.8, linestyles="solid")
            axes.plot(*draws.reshape(-1, 2).T, ".", color=DOT, markersize=1.2, alpha=0.35)
            axes.plot(*draws[0, :length].T, "-", color=ACCENT, linewidth=0.8)
            axes.plot(*draws[0, :length].T, "o", color=ACCENT, markersize=1.8)
            axes.set(xlim=(left, right), ylim=(low, high), xticks=[], yticks=[])
            if target == next(iter(results)):
                axes.set_title(name, fontsize=9, color=INK)
            if name == next(iter(found)):
                axes.set_ylabel(target, fontsize=9, color=INK)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="a folder; a temporary one where none is given")
    parser.add_argument("--frames", type=int, default=0)
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    print(f"{'target':10}{'sampler':14}{'mean':>16}{'deviation':>16}")
    for which, (target, (_, start, _, step)) in enumerate(TARGETS.items()):
        results[target] = {name: drawn(which, start, sampler) for name, sampler in samplers(step).items()}
        for name, draws in results[target].items():
            mean, deviation = np.nanmean(draws, axis=(0, 1)), np.nanstd(draws, axis=(0, 1))
            print(f"{target:10}{name:14}{mean[0]:8.2f}{mean[1]:8.2f}{deviation[0]:8.2f}{deviation[1]:8.2f}")
    path = folder / "samplers_in_2d.png"
    picture(results, FIRST).savefig(path)
    for number in range(options.frames):
        length = max(2, FIRST * 2 * (number + 1) // options.frames)
        picture(results, length).savefig(folder / f"frame_{number:03d}.png")
    print(f"drawn in {path}" + (f", with {options.frames} frames beside it" if options.frames else ""))


if __name__ == "__main__":
    main()
