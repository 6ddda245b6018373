"""Every axis of a mesh: 50 steps over several devices equal those on one, and a step exchanges no more than it must.

A process of its own has eight devices, which XLA makes of one processor.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

import lamu
from lamu.data import Arrays, Batch
from lamu.objective import Objective
from lamu.objective.curvature import ClippedGradient
from lamu.protocol import Traits
from lamu.running import compiled_steps
from lamu.running.sharding import Devices

A = lamu.algorithms
rng = np.random.default_rng(0)
X = rng.normal(size=(48, 4))
Y = X @ np.array([1.0, -1.0, 0.5, 0.2]) + 0.3 * rng.normal(size=48)
MODEL = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian())

MAKERS: dict[str, Callable[..., Any]] = {
    "adam": A.adam,
    "bayes_by_backprop": A.bayes_by_backprop,
    "bayesbinn": A.bayesbinn,
    "bsam": A.bsam,
    "gradient_descent": lambda: A.gradient_descent(1e-2),
    "ivon": lambda **own: A.ivon(0.1, **own),
    "kfac": A.kfac,
    "laplace": A.laplace,
    "lie_group": A.lie_group,
    "mixture_vi": lambda **own: A.mixture_vi(components=2, **own),
    "noisy_kfac": A.noisy_kfac,
    "ogn": A.ogn,
    "rmsprop": A.rmsprop,
    "sam": A.sam,
    "sgd": A.sgd,
    "slang": A.slang,
    "straight_through": A.straight_through,
    "swag": A.swag,
    "vogn": A.vogn,
    "von": A.von,
    "deep_ensemble": lambda: A.deep_ensemble(A.adam(1e-2), members=8),
    "mixture": lambda: A.mixture(A.ivon(0.1), components=8),
    "hmc": lambda: lamu.mcmc.hmc(chains=8, warmup=6, draws=4),
}
USUAL = [  # an axis, an algorithm and how many devices; all others at night
    "data vogn 8",
    "model ivon 4",
    "samples ivon 8",
]


def sweep(name: str) -> list[str]:
    """An algorithm over every axis that it allows and 1, 2, 4 and 8 devices."""
    axes = (A.registry() | lamu.mcmc.registry())[name].axes
    return [f"{axis} {name} {devices}" for axis in axes for devices in (1, 2, 4, 8)]


def fitted(algorithm: Any, **axes: int) -> lamu.Fit:
    """A run of 50 steps over the first devices."""
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes)) if axes else None
    length = {"steps": 50} if algorithm.traits.length is None else {}
    with pytest.MonkeyPatch.context() as patch:
        # Measured on one device in any case: `check_own_specs` does it after a run over several.
        patch.setattr("lamu.running.fixed_point.convergence_of", lambda *arguments: None)
        return lamu.fit(MODEL, (X, Y), algorithm, batch_size=16, mesh=mesh, **length)


@cache
def run_alone(name: str, **options: int) -> tuple[Any, lamu.Fit]:
    """An algorithm and its run on one device, which all meshes are compared with."""
    algorithm = MAKERS[name](**options)
    return algorithm, fitted(algorithm)


def check_equal(axis: str, name: str, devices: str) -> None:
    """The last state is that of one device, and on "model" lies in parts."""
    share = int(devices)
    algorithm, alone = run_alone(name, samples=8) if axis == "samples" else run_alone(name)
    spread = fitted(algorithm, **{axis: share})
    for one, other in zip(jax.tree.leaves(alone.state), jax.tree.leaves(spread.state), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5 * max(float(np.max(np.abs(one), initial=0)), 1e-6))
    np.testing.assert_allclose(spread.history["loss"], alone.history["loss"], rtol=1e-5, atol=1e-8)
    if axis == "model":
        even = [leaf for leaf in jax.tree.leaves(spread.state) if any(size % share == 0 for size in leaf.shape)]
        widest = max(even, key=lambda leaf: leaf.size)
        assert {shard.data.size for shard in widest.addressable_shards} == {widest.size // share}, widest.sharding


def collectives(algorithm: Any, target: Any = MODEL, x: Any = X, y: Any = Y, **axes: int) -> tuple[Counter[str], Any]:
    """The collectives of one compiled step but those of one number, and what the compiler says of its memory."""
    devices = Devices.of(jax.make_mesh(tuple(axes.values()), tuple(axes)), algorithm)
    objective, rows, key = devices.replicate((Objective(target, 48.0), Arrays.of((x, y)), jax.random.key(0)))
    spread, batch = devices.distribute(algorithm), devices.place_batch(rows.example(16))
    state = compiled_steps.start(spread, key, objective, batch)
    program = compiled_steps.one_step.lower(spread, state, objective, batch, key).compile()
    return exchanges(program), program.memory_analysis()


def exchanges(program: Any) -> Counter[str]:
    """The collectives of a compiled program but those of one number."""
    found = re.findall(r"= (.*) (all-[a-z]+|reduce-scatter|collective-[a-z]+)(?:-start)?\(", program.as_text())
    return Counter(name for shape, name in found if not shape.endswith("[]"))


def by_hand() -> Counter[str]:
    """The collectives of a step of data-parallel SGD on the same network that knows nothing of Lamu."""
    mesh = jax.make_mesh((4,), ("data",))
    on = lambda *names: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names))
    weights = {"w": np.ones((4, 8)), "a": np.zeros(8), "v": np.ones((8, 1)), "b": np.zeros(1)}

    def loss(at: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.numpy.mean((jax.nn.relu(x @ at["w"] + at["a"]) @ at["v"] + at["b"] - y[:, None]) ** 2)

    def step(at: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, at, jax.grad(loss)(at, x, y))

    arguments = jax.device_put((weights, X[:16], Y[:16]), (on(), on("data"), on("data")))
    return exchanges(jax.jit(step, out_shardings=on()).lower(*arguments).compile())


def check_collectives_data() -> None:
    """One reduction of the gradient and the curvature, as SGD by hand has, beside that of one number: how many rows."""
    assert by_hand() == {"all-reduce": 1}
    for algorithm in (A.adam(), A.sgd(), A.ivon(), A.vogn(), A.ogn()):
        found, _ = collectives(algorithm, data=4)
        assert found == {"all-reduce": 1}, (algorithm, found)


def check_collectives_samples() -> None:
    """One reduction of everything that is averaged, and no draw is sent."""
    found, _ = collectives(A.ivon(samples=4), samples=4)
    assert set(found) == {"all-reduce"}, found
    assert found.total() <= 2, found


def check_collectives_model() -> None:
    """Activations are gathered and summed, two exchanges a layer, and a device holds its own part of the state."""
    wide, x, y = lamu.Model(lamu.networks.MLP((256, 256)), lamu.likelihoods.Gaussian()), X.repeat(8, 1), Y
    for algorithm in (A.adam(), A.ivon()):
        found, memory = collectives(algorithm, wide, x, y, model=4)
        _, whole = collectives(algorithm, wide, x, y, model=1)
        assert set(found) <= {"all-gather", "all-reduce", "reduce-scatter"}, found
        assert found.total() <= 2 * 3, found
        assert memory.argument_size_in_bytes < 0.3 * whole.argument_size_in_bytes
        # The program itself, beside its arguments, never holds the parameters whole.
        assert memory.temp_size_in_bytes < 0.5 * whole.temp_size_in_bytes


def check_room() -> None:
    """A state of four times what a device may hold trains within it: the compiler counts the peak."""
    wide = lamu.Model(lamu.networks.MLP((512, 512, 512)), lamu.likelihoods.Gaussian())
    _, memory = collectives(A.ivon(), wide, model=8)
    _, whole = collectives(A.ivon(), wide, model=1)
    allowed = whole.output_size_in_bytes / 4
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    assert peak - memory.alias_size_in_bytes <= allowed, (peak, memory.alias_size_in_bytes, allowed)


def check_two_axes() -> None:
    """Axes go together."""
    algorithm = A.ivon(samples=2)
    alone = fitted(algorithm)
    for axes in ({"data": 2, "model": 2}, {"data": 2, "samples": 2}, {"samples": 2, "model": 2}):
        spread = fitted(algorithm, **axes)
        for one, other in zip(jax.tree.leaves(alone.state), jax.tree.leaves(spread.state), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-8)


def check_clipped() -> None:
    """The norm is that of the whole gradient, wherever its parts lie."""
    for base in (A.adam(), A.ivon(0.1)):
        algorithm = replace(base, curvature=ClippedGradient(base.curvature, 0.05))
        alone, free = fitted(algorithm), fitted(base)
        assert abs(alone.history["loss"][-1] - free.history["loss"][-1]) > 1e-4
        spread = fitted(algorithm, data=2, model=2)
        for one, other in zip(jax.tree.leaves(alone.state), jax.tree.leaves(spread.state), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-8)


def nnx_net(rngs: Any) -> Any:
    """A module of Flax whose kernel lies along its shorter axis, the longer one being what is taken otherwise."""
    rows = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("model", None))
    return nnx.Sequential(nnx.Linear(4, 8, rngs=rngs, kernel_init=rows), nnx.relu, nnx.Linear(8, 1, rngs=rngs))


def linen_net() -> Any:
    kernel = lambda *names: nn.with_partitioning(nn.initializers.lecun_normal(), names)
    return nn.Sequential([nn.Dense(8, kernel_init=kernel(None, "model")), nn.relu, nn.Dense(1)])


def check_own_specs() -> None:
    """Belief, momenta and gradients lie as the network says, and the run is that of one device."""
    wide = P(None, "model")
    plain = lamu.networks.Partitioned(lamu.networks.MLP((8, 8)), {"layers/2/*": P(), "layers/*/kernel": wide})
    algorithm = A.ivon(0.1)
    model = lamu.Model(lamu.networks.NNX(nnx_net), lamu.likelihoods.Gaussian()).standardised(X, Y)
    alone, spread = (
        lamu.fit(model, (X, Y), algorithm, steps=50, batch_size=16, mesh=mesh)
        for mesh in (None, jax.make_mesh((2, 2), ("data", "model")))
    )
    for one, other in zip(jax.tree.leaves(alone.state), jax.tree.leaves(spread.state), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-8)
    for part in (spread.state.mean, spread.state.precision, spread.state.momentum):
        lies = {path: leaf.sharding.spec for path, leaf in lamu.tree.by_path(part).items() if "kernel" in path}
        assert list(lies.values()) == [P("model"), P("model")], lies
    batch = Batch.of(X, Y)
    for network, expected in ((lamu.networks.Linen(linen_net()), 1), (plain, 2)):
        devices = Devices.of(jax.make_mesh((4,), ("model",)), algorithm)
        found = devices.for_network(lamu.Model(network, lamu.likelihoods.Gaussian()), batch).specs
        assert [spec for _, _, spec in found].count(wide) == expected, found


def check_mistakes() -> None:
    """One sentence each."""
    for axes, algorithm, words in (
        ({"samples": 4}, A.adam(), 'averages no draws in a step, and the axis "samples" has 4 devices'),
        (
            {"samples": 4},
            A.ivon(),
            "samples=1 draws a step cannot be shared evenly by the 4 devices .* give 4 or a multiple",
        ),
        ({"model": 4}, A.deep_ensemble(), 'that of several runs, which the axis "model" does not spread'),
        ({"model": 4}, lamu.mcmc.hmc(), 'which the axis "model" does not spread; name that axis "runs"'),
    ):
        with pytest.raises(ValueError, match=words):
            Devices.of(jax.make_mesh(tuple(axes.values()), tuple(axes)), algorithm)
    for specs, words in (
        ({"layers/*": P("row")}, r"lies as .*'row'.*the axes \('model',\); give a mesh with the axis 'row'"),
        ({"layers/*/kernel": P(None, None, "model")}, r"the shape \(4, 6\), and .* is of 3 axes"),
        ({"layers/*/kernel": P(None, "model")}, "6 is not divided by 4 devices; give another axis"),
        ({"layer/kernel": P("model")}, "the pattern 'layer/kernel' matches no leaf"),
    ):
        network = lamu.networks.Partitioned(lamu.networks.MLP((6,)), specs)
        model = lamu.Model(network, lamu.likelihoods.Gaussian())
        with pytest.raises(ValueError, match=words):
            lamu.fit(model, (X, Y), A.adam(), steps=1, mesh=jax.make_mesh((4,), ("model",)))
    with pytest.raises(TypeError, match="'layers/0' has 'model'; give a PartitionSpec"):
        lamu.networks.Partitioned(lamu.networks.MLP((6,)), {"layers": ["model"]})


CHECKS = (
    check_collectives_data,
    check_collectives_samples,
    check_collectives_model,
    check_two_axes,
    check_clipped,
    check_own_specs,
    check_mistakes,
)
OTHERS = {check.__name__: check for check in (*CHECKS, check_room)}


def outcomes(rows: list[str]) -> dict[str, str]:
    """What went wrong in each row, in a process with eight devices; empty where nothing did."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-m", "tests.test_mesh_axes", *rows]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def usual() -> dict[str, str]:
    return outcomes(USUAL + [check.__name__ for check in CHECKS])


@pytest.mark.parametrize("row", USUAL + [check.__name__ for check in CHECKS])
def test_over_several_devices(row: str, usual: dict[str, str]) -> None:
    assert not usual[row], usual[row]


@pytest.mark.stress
@pytest.mark.parametrize("name", MAKERS)  # a process holds no more programs
def test_every_algorithm_over_every_axis(name: str) -> None:
    """On two shared cores eight devices alone take 8 to 64 s an algorithm, `mixture_vi` 164 s."""
    wrong = {row: said for row, said in outcomes(sweep(name)).items() if said}
    assert not wrong, wrong


@pytest.mark.stress
def test_a_state_of_four_times_the_memory_of_a_device() -> None:
    assert outcomes(["check_room"]) == {"check_room": ""}


def test_which_axes_an_algorithm_allows() -> None:
    assert A.registry()["von"].axes == ("data", "model")  # which has no option for more than one draw
    assert A.adam().traits.axes == ("data", "model")
    assert A.ivon().traits.axes == ("data", "model", "samples")
    assert A.deep_ensemble().traits.axes == ("data", "runs")
    assert lamu.mcmc.nuts().traits.axes == ("data", "runs")
    assert Traits(samples=2).axes == ("data", "model", "samples")


def main() -> None:
    """Runs the rows that are named, and prints what went wrong."""
    found = {}
    for row in sys.argv[1:]:
        try:
            OTHERS[row]() if row in OTHERS else check_equal(*row.split())
            found[row] = ""
        except Exception:
            found[row] = traceback.format_exc()[-1500:]
        print(row, "failed" if found[row] else "held", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
