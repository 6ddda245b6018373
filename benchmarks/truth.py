"""Is a belief the posterior that it claims to be, with the defaults that ship? `python -m benchmarks.truth`.

Every algorithm is made without arguments and fitted with `lamu.fit(model, data, algorithm)`; nothing is chosen here.

linear, logistic: 200 data sets each, drawn from the prior (40 rows, 4 columns and an intercept; noise known). Printed
are the share of true parameters inside 90 % intervals, and the median over data sets and coordinates of the sd over
that of the converged belief of the same family: mean field's in NumPy (`lamu_verification.fixed_points`), iterated to
1e-10; the full matrix for `slang`, whose rank of five holds all five coordinates.

dead inputs: digits have constant pixels. The posterior of their first-layer weights is the prior, N(0, 1). One network,
64-64, on all rows. `von()` takes a Hessian product a coordinate and is left out.

starts: the starting curvature `hess_init`, which comes from the data where none is given, at 0.05 and 5 in its place.

fixed points: `fit.convergence` of each belief on digits (the same fits) and on breast_cancer (a linear network).

knowing less: a table of a linear Gaussian model with 40 words, half of them in training, by `lamu.fit_table` over
`lamu.data.table`. Printed are the coverage of 90 % intervals and their mean width over the exact
one, for rows that are complete, lack a number, lack all, have a new word, or are far outside.

evidence: `laplace()` beside the exact evidence of linear regression on diabetes, and on 60 rows of a line beside two
networks.

small: 90 % intervals of `lamu.regression` on data sets of 2 to 50 rows and 0 to 1,000 columns, 40 of each size (10 of
1,000 columns) and 20 new rows in each; slopes from N(0, 1), noise 1. And with 3 columns of `lamu.fit_table` (16 data
sets) and of the estimator with `laplace()` and a linear network (30).

    python -m benchmarks.truth                      everything, two parts at a time
    python -m benchmarks.truth linear evidence      some: linear, logistic, digits, starts, evidence, breast_cancer,
                                                    small, knowing_less
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import lamu
from lamu import tree
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.networks import MLP, Linear
from lamu.priors import Normal
from lamu_verification.fixed_points import Loss, bernoulli, gaussian, gaussian_fixed_point
from lamu_verification.references import linear_regression

A = lamu.algorithms
SETS, ROWS, COLUMNS, NOISE, Z90 = 200, 40, 4, 0.5, 1.6448536
GAUSSIANS: dict[str, Callable[..., Any]] = {
    "ivon": A.ivon,
    "vogn": A.vogn,
    "slang": A.slang,
    "bsam": A.bsam,
    "ogn": A.ogn,
    "lie_group": A.lie_group,
    "bayes_by_backprop": A.bayes_by_backprop,
    "noisy_kfac": A.noisy_kfac,
    "kfac": A.kfac,
    "laplace": A.laplace,
}
STARTS = ("ivon", "vogn", "slang")


class Report:
    """Prints the gates as they come."""

    def gate(self, name: str, figure: float, lower: float, upper: float) -> None:
        """Prints a figure and whether it lies in [lower, upper]."""
        met = lower <= figure <= upper  # NaN is not
        bounds = f"{lower:g} to {upper:g}" if np.isfinite(upper) else f"at least {lower:g}"
        print(f"  {'met    ' if met else 'NOT MET'}  {name:52} {figure:10.4g}   ({bounds})", flush=True)

    def failed(self, name: str, error: Exception) -> None:
        """Prints a fit that ended in an error, which meets no gate."""
        print(f"  NOT MET  {name:52} {type(error).__name__}: {' '.join(str(error).split())[:150]}", flush=True)


def marginals(posterior: lamu.Posterior) -> tuple[Any, Any]:
    """Returns mean and standard deviation of the weights, as trees."""
    import jax

    belief: Any = posterior.belief
    weights = belief.factors["network"]
    return weights.mean, jax.tree.map(lambda v: np.sqrt(np.asarray(v)), weights.precision.variance(weights.mean))


def flat(params: Any) -> np.ndarray:
    return np.asarray(tree.ravel(params)[0], np.float64)


def prior_drawn(seed: int, logistic: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns inputs, targets and the parameters behind them, intercept first."""
    generator = np.random.default_rng([18, seed])
    x = generator.normal(size=(ROWS, COLUMNS))
    theta = generator.normal(size=COLUMNS + 1)
    f = theta[0] + x @ theta[1:]
    if logistic:
        return x.astype(np.float32), (generator.random(ROWS) < 1 / (1 + np.exp(-f))).astype(np.int32), theta
    return x.astype(np.float32), (f + NOISE * generator.normal(size=ROWS)).astype(np.float32), theta


def linear(report: Report) -> None:
    """Prints coverage and ratios of sds on prior-drawn linear regressions."""
    coverage(report, "linear", Gaussian(scale=NOISE), gaussian(NOISE))


def logistic(report: Report) -> None:
    """Prints coverage and ratios of sds on prior-drawn logistic regressions."""
    coverage(report, "logistic", Bernoulli(), bernoulli)


def coverage(report: Report, name: str, likelihood: Any, loss: Loss) -> None:
    """Prints coverage and ratios of sds on prior-drawn data."""
    model = lamu.Model(Linear(), likelihood, Normal(1.0))
    sets = [prior_drawn(seed, name == "logistic") for seed in range(SETS)]
    narrow, wide = converged(sets, loss, full=False), converged(sets, loss, full=True)
    print(f"coverage, {name}, {SETS} data sets of {ROWS} rows, {COLUMNS + 1} parameters, 90 % intervals")
    truth = np.stack([theta for _, _, theta in sets])
    exact = held(truth, *wide)
    print(f"           full Gaussian fixed point covers {exact:.3f}, mean field {held(truth, *narrow):.3f}")
    for algorithm in ("laplace", "ivon", "vogn", "slang", "von"):
        begin = time.perf_counter()
        try:
            means, sds = fitted(model, sets, getattr(A, algorithm))
        except (ValueError, RuntimeError) as error:
            report.failed(f"{name}, {algorithm}: 90 % intervals", error)
            continue
        inside = held(truth, means, sds)
        mean, sd = wide if algorithm in ("laplace", "slang") else narrow
        ratio, offset = sds / sd, np.abs(means - mean) / sd
        seconds = time.perf_counter() - begin
        print(
            f"           {algorithm:10} covers {inside:.3f}; sd / converged sd: median {np.median(ratio):.3f}, "
            f"5 to 95 % {np.quantile(ratio, 0.05):.2f} to {np.quantile(ratio, 0.95):.2f}; "
            f"mean off by {np.median(offset):.3f} sd (median); {seconds:.0f} s"
        )
        if algorithm == "laplace":
            report.gate(f"{name}, {algorithm}: coverage of 90 % intervals", inside, 0.87, 0.93)
        else:
            report.gate(f"{name}, {algorithm}: median sd / converged sd", float(np.median(ratio)), 0.9, 1.1)


def converged(sets: list[Any], loss: Loss, full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns means and sds `[sets, D]` of the Gaussian fixed points."""
    found = [
        gaussian_fixed_point(loss, np.column_stack([np.ones(len(x)), x]).astype(float), y, 1.0, full=full)
        for x, y, _ in sets
    ]
    return np.stack([each.mean for each in found]), np.stack([each.sd for each in found])


def fitted(model: lamu.Model, sets: list[Any], make: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns means and sds `[sets, D]` of the fits."""
    means, sds = [], []
    for seed, (x, y, _) in enumerate(sets):
        mean, sd = marginals(lamu.fit(model, (x, y), make(), seed=seed, progress=False).posterior)
        means.append(flat(mean))
        sds.append(flat(sd))
    return np.stack(means), np.stack(sds)


def held(truth: np.ndarray, means: np.ndarray, sds: np.ndarray) -> float:
    """Returns the share of parameters inside central 90 % intervals."""
    return float(np.mean(np.abs(truth - means) <= Z90 * sds))


def digits(report: Report) -> None:
    """Prints dead inputs, the share of the start, and the distance from the fixed point."""
    x, y = lamu.data.load("digits")
    dead = np.flatnonzero(np.std(x, axis=0) == 0)
    model = lamu.Model(MLP((64, 64)), Categorical(10), Normal(1.0)).standardised(x, y)
    print(f"digits, {len(x)} rows, network 64-64, {len(dead)} constant pixels, prior N(0, 1)")
    for name, make in GAUSSIANS.items():
        found = attempt(report, f"digits, {name}", model, (x, y), make)
        if found is None:
            continue
        fit, seconds = found
        sd = marginals(fit.posterior)[1]
        rows = np.asarray(sd["layers"][0]["kernel"])[dead]
        print(f"           {name}: {seconds:.0f} s, median sd {np.median(flat(sd)):.4f}; {told(fit)}")
        report.gate(f"digits, {name}: sd of dead inputs, lowest", float(rows.min()), 0.95, 1.05)
        report.gate(f"digits, {name}: sd of dead inputs, highest", float(rows.max()), 0.95, 1.05)
        report.gate(f"digits, {name}: converged", float(is_converged(fit)), 1, 1)


def starts(report: Report) -> None:
    """Prints how far the start's curvature moves the median sd, on digits."""
    x, y = lamu.data.load("digits")
    model = lamu.Model(MLP((64, 64)), Categorical(10), Normal(1.0)).standardised(x, y)
    for name in STARTS:
        medians: dict[float | None, float] = {}
        for initial in (None, 0.05, 5.0):
            make = lambda name=name, value=initial: GAUSSIANS[name](hess_init=value)
            fit = attempt(report, f"digits, {name}, hess_init={initial}", model, (x, y), make)
            medians[initial] = float("nan") if fit is None else float(np.median(flat(marginals(fit[0].posterior)[1])))
        for initial in (0.05, 5.0):
            words = f"digits, {name}, hess_init={initial}: median sd / shipped's"
            report.gate(words, medians[initial] / medians[None], 0.9, 1.1)


def breast_cancer(report: Report) -> None:
    """Prints the distance from the fixed point of a linear network, all Gaussian beliefs."""
    x, y = lamu.data.load("breast_cancer")
    model = lamu.Model(Linear(), Bernoulli(), Normal(1.0)).standardised(x, y)
    design = np.column_stack([np.ones(len(x)), (x - x.mean(0)) / x.std(0)]).astype(float)
    narrow, wide = (gaussian_fixed_point(bernoulli, design, y, 1.0, full=full) for full in (False, True))
    print(f"breast_cancer, {len(x)} rows, linear network, prior N(0, 1)")
    for name, make in {**GAUSSIANS, "von": A.von}.items():
        found = attempt(report, f"breast_cancer, {name}", model, (x, y), make)
        if found is None:
            continue
        fit, seconds = found
        sd = flat(marginals(fit.posterior)[1])
        ratios = " and ".join(
            f"{np.median(sd / reference.sd):.3f} of {words}"
            for reference, words in ((narrow, "mean field's"), (wide, "the full matrix's"))
        )
        print(f"           {name}: {seconds:.0f} s; median sd {ratios}; {told(fit)}")
        report.gate(f"breast_cancer, {name}: converged", float(is_converged(fit)), 1, 1)


def evidence(report: Report) -> None:
    """Prints Laplace's evidence beside the exact one, and what it prefers on a line."""
    x, y = lamu.data.load("diabetes")
    scale, shift = y.std(), y.mean()
    x, z = (x - x.mean(0)) / x.std(0), (y - shift) / scale
    exact = linear_regression(np.column_stack([np.ones(len(x)), x]).astype(float), z.astype(float), 0.7, 1.0)[2]
    model = lamu.Model(Linear(), Gaussian(scale=0.7), Normal(1.0))
    found = attempt(report, "diabetes, laplace", model, (x.astype(np.float32), z.astype(np.float32)), A.laplace)
    if found is not None:
        value = known(found[0].posterior.evidence)
        print(
            f"evidence   diabetes, linear: exact {exact:.3f} nats, laplace() {value:.3f}, {found[1]:.0f} s; "
            f"{told(found[0])}"
        )
        report.gate("diabetes: laplace's evidence less the exact one", value - exact, -0.1, 0.1)
    generator = np.random.default_rng(18)
    x = np.linspace(-2.0, 2.0, 60)[:, None]
    y = 0.5 + 1.0 * x[:, 0] + 0.17 * generator.normal(size=60)
    exact = linear_regression(np.column_stack([np.ones(60), x]), y, 0.17, 1.0)[2]
    rows = (x.astype(np.float32), y.astype(np.float32))
    values = {}
    smooth = [("MLP((16,), 'tanh')", MLP((16,), "tanh")), ("MLP((32, 32), 'tanh')", MLP((32, 32), "tanh"))]
    kinked = [("MLP((16,))", MLP((16,))), ("MLP((32, 32))", MLP((32, 32)))]
    for name, network in (("Linear", Linear()), *smooth, *kinked):
        found = attempt(
            report, f"line, {name}", lamu.Model(network, Gaussian(scale=0.17), Normal(1.0)), rows, A.laplace
        )
        values[name] = np.nan if found is None else known(found[0].posterior.evidence)
        if found is not None:
            print(f"evidence   60 rows of a line, {name}: {values[name]:.2f} nats, {found[1]:.0f} s; {told(found[0])}")
    print(f"evidence   60 rows of a line, exact of the line: {exact:.2f} nats")
    report.gate("line: laplace's evidence less the exact one", values["Linear"] - exact, -0.1, 0.1)
    for name, _ in (*smooth, *kinked):
        # A network without an evidence is not preferred, and neither is the line preferred to it.
        report.gate(f"line: evidence of the line less that of {name}", values["Linear"] - values[name], 0.0, np.inf)


def knowing_less(report: Report) -> None:
    """Prints coverage and width of intervals of rows of which less is known, beside the exact widths."""
    import tempfile
    from pathlib import Path

    import pandas as pd

    from lamu.cli.predicting import predicted
    from lamu.data import table

    generator, noise, effect = np.random.default_rng(38), 0.5, 2.0
    effects = effect * generator.normal(size=40)

    def rows(words: np.ndarray, count: int) -> pd.DataFrame:
        word, x = generator.choice(words, count), generator.normal(size=(count, 3))
        y = x @ [1.0, -2.0, 0.5] + effects[word] + noise * generator.normal(size=count)
        return pd.DataFrame(x, columns=["a", "b", "c"]).assign(word=[f"w{k:02d}" for k in word], y=y)

    folder = Path(tempfile.mkdtemp())
    rows(np.arange(20), 500).to_csv(folder / "train.csv", index=False)
    read = table.read(folder / "train.csv", "y", impute=True)
    found = lamu.fit_table(read.x, read.y, Gaussian(), levels=read.encoding.cardinalities, progress=False).posterior
    seen, unseen = rows(np.arange(20), 1000), rows(np.arange(20, 40), 1000)
    outside = seen.assign(a=10.0, y=seen["y"] + 10.0 - seen["a"])
    numbers, both = 5.25, 5.25 + effect**2
    asked = {
        "complete": (seen, [], noise**2),
        "one number missing": (seen, ["b"], noise**2 + 4.0),
        "all missing": (seen, ["a", "b", "c", "word"], noise**2 + both),
        "the word missing": (seen, ["word"], noise**2 + effect**2),
        "a new word": (unseen, [], noise**2 + effect**2),
        "a new word, all numbers missing": (unseen, ["a", "b", "c"], noise**2 + effect**2 + numbers),
        "ten deviations outside": (outside, [], noise**2),
    }
    print("knowing less, 500 rows of a linear Gaussian model, 1,000 new ones, 90 % intervals")
    for name, (frame, columns, variance) in asked.items():
        frame = frame.copy()
        frame[columns] = None
        frame.to_csv(folder / "new.csv", index=False)
        new = table.match(folder / "new.csv", read.encoding)
        lower, upper = map(np.asarray, predicted(found, new, slice(None)).interval(0.9))
        inside, width = np.mean((lower <= new.y) & (new.y <= upper)), (upper - lower).mean()
        ratio = width / (2 * Z90 * variance**0.5)
        print(f"           {name}: covers {inside:.3f}, mean width {width:.2f}, {ratio:.2f} times the exact one")
        report.gate(
            f"knowing less, {name}: coverage of 90 % intervals", inside, 0.85, 1.0 if "outside" in name else 0.95
        )
        report.gate(f"knowing less, {name}: width over the exact one", ratio, 0.9, np.inf)


def known(value: Any) -> float:
    return float("nan") if value is None else float(value)


def attempt(report: Report, name: str, model: lamu.Model, rows: Any, make: Callable[[], Any]) -> Any:
    """Returns a fit and its seconds; None where it ended in an error, which is printed."""
    begin = time.perf_counter()
    try:
        fit = lamu.fit(model, rows, make(), progress=False)
    except (ValueError, RuntimeError, TypeError) as error:
        report.failed(name, error)
        return None
    return fit, time.perf_counter() - begin


def told(fit: lamu.Fit) -> str:
    """Returns the distance from the fixed point in words."""
    convergence = fit.convergence
    if convergence is None:
        return "no convergence was measured"
    values = ", ".join(f"{key} {value:.3g}" for key, value in convergence.describe().items() if key != "converged")
    return f"{len(fit.history['loss'])} steps; {values}"


def is_converged(fit: lamu.Fit) -> bool:
    return fit.convergence is not None and fit.convergence.converged


def small(report: Report) -> None:
    """Prints the coverage of 90 % intervals on few rows, with its standard error over data sets."""
    from lamu.sklearn import BayesianRegressor

    widths = {0: 40, 1: 40, 3: 40, 30: 40, 1000: 10}
    print(f"small      regression: rows down; columns across, {list(widths.values())} data sets each")
    print(f"{'':14}" + "".join(f"{columns:16}" for columns in widths))
    for rows in (2, 3, 5, 10, 20, 50):
        found = [few_rows(rows, columns, sets, lambda x, y: lamu.regression(x, y)) for columns, sets in widths.items()]
        print(f"{rows:14}" + "".join(f"{inside:9.3f} ± {error:.3f}" for inside, error in found), flush=True)
        for columns, (inside, error) in zip(widths, found, strict=True):
            covered(report, f"small, regression, {rows} x {columns}", inside, error)
    table = lambda x, y: lamu.fit_table(x, y, Gaussian(), progress=False).posterior
    named = lambda x, y: BayesianRegressor(network=Linear(), algorithm=A.laplace()).fit(x, y).posterior_
    for name, make, sizes, sets in (("fit_table", table, (5, 20, 50), 16), ("laplace", named, (2, 3, 5, 10, 20), 30)):
        for rows in sizes:
            inside, error = few_rows(rows, 3, sets, make)
            print(f"small      {name}, {rows} x 3, {sets} data sets: {inside:.3f} ± {error:.3f}", flush=True)
            covered(report, f"small, {name}, {rows} x 3", inside, error)


def covered(report: Report, name: str, inside: float, error: float) -> None:
    """Prints whether a coverage lies from .85 to .95, two standard errors aside; never below .75 nor above .99."""
    lowest, highest = max(0.85 - 2 * error, 0.75), min(0.95 + 2 * error, 0.99)
    report.gate(f"{name}: coverage of 90 % intervals", inside, lowest, highest)


def few_rows(
    rows: int, columns: int, sets: int, make: Callable[[np.ndarray, np.ndarray], lamu.Posterior]
) -> tuple[float, float]:
    """Returns the coverage of 90 % intervals at 20 new rows of each of some data sets, and its standard error."""
    inside = []
    for seed in range(sets):
        random = np.random.default_rng([38, rows, columns, seed])
        x, slopes = random.normal(size=(rows + 20, columns)), random.normal(size=columns)
        y = 10 * random.normal() + x @ slopes + random.normal(size=rows + 20)
        # Of two rows and 1,000 columns one may vary less than is kept of 64 bits, which a fit refuses.
        x, y = x.astype(np.float32), y.astype(np.float32)
        low, high = map(np.asarray, make(x[:rows], y[:rows]).predict(x[rows:]).interval(0.9))
        inside.append(np.mean((low <= y[rows:]) & (y[rows:] <= high)))
    return float(np.mean(inside)), float(np.std(inside) / sets**0.5)


PARTS = {
    "linear": linear,
    "logistic": logistic,
    "digits": digits,
    "starts": starts,
    "evidence": evidence,
    "breast_cancer": breast_cancer,
    "small": small,
    "knowing_less": knowing_less,
}
# The longest part first; each is a process of its own, two at a time.
ORDER = ("starts", "digits", "logistic", "linear", "small", "breast_cancer", "evidence", "knowing_less")


def run(part: str) -> str:
    """Returns what a part prints, from a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.truth", part], capture_output=True, text=True, check=False
    )
    return ended.stdout + (ended.stderr[-2000:] if ended.returncode else "")


def main() -> None:
    """Runs the part named on the command line, or all, two at a time."""
    begin, words = time.perf_counter(), sys.argv[1:]
    unknown = [name for name in words if name not in PARTS]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    if len(words) == 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a fit is not converged is printed as a gate
            PARTS[words[0]](Report())
        return
    found: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        for text in pool.map(run, [name for name in ORDER if not words or name in words]):
            print(text, end="", flush=True)
            found += [line for line in text.splitlines() if line.startswith(("  met", "  NOT MET"))]
    missed = [line for line in found if line.startswith("  NOT MET")]
    print(f"{len(found) - len(missed)} of {len(found)} gates met, {time.perf_counter() - begin:.0f} s")
    print("\n".join(missed))


if __name__ == "__main__":
    main()
