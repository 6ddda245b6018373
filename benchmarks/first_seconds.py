"""The seconds of eight first calls, in processes of their own: without compiled programs on disk, and with them.

`python -m benchmarks.first_seconds [--rounds 3] [--only vmp,nuts] [--beside FOLDER]` prints the table of
`docs/first_seconds.md`. `--beside` names the `src` of another version, whose processes run in turn with ours; that
version keeps compiled programs where this one does (`LAMU_CACHE`), or not at all. Seconds are of the processor, all
threads together, the least of the rounds: imports, tracing (with what XLA's input costs), compilation or reading, and
the rest, which runs. Modules are compiled to bytecode before, as `pip install` does.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("import", "trace", "compile", "run")

DIGITS = """
x, y = lamu.data.load("digits")
x = np.asarray(x, np.float32).reshape(len(y), -1) / np.max(x)
"""
CALLS = {
    "quickstart of the README, `ivon`": """
x, y = lamu.data.load("diabetes")
train, test = lamu.data.split(y, test_size=0.2, seed=0)
model = lamu.Model(
    network=lamu.networks.MLP((32,)), likelihood=lamu.likelihoods.Gaussian(), prior=lamu.priors.Normal(scale=0.3)
).standardised(x[train], y[train])
fit = lamu.fit(model, (x[train], y[train]), lamu.algorithms.ivon(), progress=False)
pred = fit.posterior.predict(x[test])
pred.mean, pred.std, pred.interval(0.9), pred.aleatoric, pred.epistemic
lamu.scores.with_error(lamu.scores.nll, pred, y[test])
""",
    "`laplace` of a trained PyTorch module": DIGITS
    + """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
start()
network = lamu.networks.Torch(module)
model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.LearnedNormal())
fit = lamu.fit(model, (x[:1500], y[:1500]), lamu.algorithms.laplace(), epochs=0, progress=False)
np.asarray(fit.posterior.predict(x[1500:]).mean)
""",
    "`lamu.regression`": """
x, y = lamu.data.load("diabetes")
posterior = lamu.regression(x[:189], y[:189].astype(int), "poisson")
np.asarray(posterior.predict(x[189:]).mean)
""",
    "`fit_table`": """
x, y = lamu.data.load("iris")
fit = lamu.fit_table(x, y, lamu.likelihoods.Categorical(3))
np.asarray(fit.posterior.predict(x).mean)
""",
    "`vmp` on a mixture": """
import jax.numpy as jnp
from lamu import graphs
from lamu.families import Dirichlet, NormalWishart
def mixture(m):
    weight = m.sample("weight", Dirichlet(jnp.ones(3)))
    part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 3.0, jnp.eye(2)), plate=3)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.MultivariateNormal(part[z]))
y = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32) + 4 * np.eye(3, 2)[np.arange(300) % 3]
posterior = lamu.fit(lamu.Graph(mixture), {"y": y}, lamu.algorithms.vmp(), progress=False).posterior
np.asarray(posterior.local({"y": y})["z"].mean)
""",
    "`nuts` on a logistic regression": """
x, y = lamu.data.load("breast_cancer")
model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0)).standardised(x, y)
fit = lamu.fit(model, (x, y), lamu.mcmc.nuts(chains=2, warmup=100, draws=100), progress=False)
np.asarray(fit.posterior.predict(x).mean)
""",
    "a VAE": DIGITS
    + """
from lamu.latent import models
graph = models.VAE(2, 64, decoder=lamu.networks.MLP((50,)), encoder=lamu.networks.MLP((50,)))
data = {"y": (x > 0.5).astype(np.float32)}
fit = lamu.fit(graph, data, lamu.algorithms.adam(1e-3), steps=200, batch_size=128, progress=False)
np.asarray(fit.posterior.local(data)["z"].mean)
""",
    "`lamu fit iris`": """
import tempfile
from lamu.cli import main
assert main(["fit", "iris", "--out", tempfile.mkdtemp() + "/run"]) == 0
""",
}

# Runs a call, and says how the processor's seconds divide: a part within another counts once, as the inner one.
HARNESS = """
import importlib._bootstrap as bootstrap, json, sys, time, warnings
warnings.simplefilter("ignore")
spent, stack, programs, last = {}, ["run"], 0, time.process_time()
def lap():
    global last
    now = time.process_time()
    spent[stack[-1]] = spent.get(stack[-1], 0.0) + now - last
    last = now
def start():
    global programs, last
    spent.clear()
    programs, last = 0, time.process_time()
def inside(part, function):
    def timed(*arguments, **named):
        lap()
        stack.append(part)
        try:
            return function(*arguments, **named)
        finally:
            lap()
            stack.pop()
    return timed
bootstrap._find_and_load = inside("import", bootstrap._find_and_load)
import numpy as np
from jax._src import dispatch
timer = dispatch.LogElapsedTimeContextManager
enter, leave = timer.__enter__, timer.__exit__
def entered(self):
    global programs
    lap()
    stack.append("compile" if self.event == dispatch.BACKEND_COMPILE_EVENT else "trace")
    programs += stack[-1] == "compile"
    return enter(self)
def left(self, *error):
    lap()
    stack.pop()
    return leave(self, *error)
timer.__enter__, timer.__exit__ = entered, left
import lamu
exec(sys.argv[1])
lap()
print("\\n" + json.dumps({**spent, "programs": programs}))
"""


def seconds(call: str, source: Path, folder: str) -> dict[str, float]:
    """The parts of a call's seconds, and its number of programs, with the package of a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    settings = {**kept, "LAMU_CACHE": folder, "PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
    line = [sys.executable, "-c", HARNESS, CALLS[call]]
    done = subprocess.run(line, env=settings, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{call} with {source} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def total(parts: Mapping[str, float]) -> float:
    return sum(parts.get(part, 0.0) for part in PARTS)


def measure(call: str, sources: list[Path], rounds: int) -> list[dict[str, dict[str, float]]]:
    """The least seconds of each version, cold and warm; versions take turns."""
    found: list[dict[str, list[dict[str, float]]]] = [{"cold": [], "warm": []} for _ in sources]
    for _ in range(rounds):
        for source, times in zip(sources, found, strict=True):
            with tempfile.TemporaryDirectory(prefix="lamu-first-") as folder:
                times["cold"].append(seconds(call, source, folder))
                times["warm"].append(seconds(call, source, folder))
    return [{state: min(each, key=total) for state, each in times.items()} for times in found]


def line(call: str, versions: list[dict[str, dict[str, float]]]) -> str:
    cells = [call]
    for state in ("cold", "warm"):
        cells += [f"{total(times[state]):.1f}" for times in reversed(versions)]
        if len(versions) > 1:
            cells.append(f"{total(versions[0][state]) / total(versions[1][state]):.2f}")
        cells += [f"{versions[0][state].get(part, 0.0):.1f}" for part in PARTS]
    cells.append(" / ".join(f"{times['cold']['programs']:.0f}" for times in reversed(versions)))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table, a line a call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    sources = [ROOT / "src", *([asked.beside.resolve()] if asked.beside else [])]
    for source in sources:
        compileall.compile_dir(source, quiet=1)
    before, ratio = (["before"], ["ratio"]) if asked.beside else ([], [])
    states = [name for state in ("cold", "warm") for name in (*before, state, *ratio, *PARTS)]
    names = ["first call", *states, "programs"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)
    results = {}
    for call in CALLS:
        if any(word in call for word in asked.only.split(",")):
            results[call] = measure(call, sources, asked.rounds)
            print(line(call, results[call]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
