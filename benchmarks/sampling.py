"""Samplers on all the data, against reference draws.

    python -m benchmarks.sampling --posteriordb                 NUTS on thirteen posteriors, HMC on nine of them
    python -m benchmarks.sampling --posteriordb --only arK nes  some of them, by the beginnings of their names

The posteriors lie in `posteriordb` below the folder that the variable LAMU_DATA names. A row passes where the Monte
Carlo standard error of every mean is at most 0.02 posterior standard deviations, the largest |z| over all means and
squares is inside the Bonferroni bound at 1 % (errors of both sides by ArviZ, those of squares from the reference
draws), and R-hat is at most 1.01. One posterior has no variance by which to judge: in one_comp_mm_elim_abs the
likelihood knows the ratio of V_m and K_m alone once both are large, so that under their Cauchy priors the density of
K_m falls like its third power: its mean exists, and no standard error of it. Times are of this
machine as it is; `make bench` compares them with those of other libraries.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

import lamu
from benchmarks import posteriordb

HMC = ("arK", "arma", "eight_schools", "garch", "kidiq", "low_dim", "mesquite", "nes", "sblri")
MCSE, R_HAT, LEVEL = 0.02, 1.01, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posteriordb", action="store_true")
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
    else:
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


if __name__ == "__main__":
    main()
