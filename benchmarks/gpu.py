"""What an accelerator does with the library: checks in float32 and times of steps, in one JSON file.

    python -m benchmarks.gpu --out gpu.json          about eight minutes, most of them compilation
    python -m benchmarks.gpu --tiny --out tiny.json  the same parts on little data, on any device
    python -m benchmarks.gpu --only checks steps     parts by name: checks, steps, fits, images

`checks` compares what needs its digits in float32 with NumPy in float64: products as the device takes them and as Lamu
asks for them, a Cholesky solve, a conjugate posterior, Laplace's method beside it, Kronecker factors, microbatches and
passes in bfloat16. `steps` are seconds a step of algorithms on an MLP, beside Adam of optax in plain JAX, after a first
run that compiles. `fits` are whole fits: Laplace's pass, predictions, NUTS, a VAE, `vmp` on a mixture and on topics.
`images` is a ResNet-20 on 60,000 images of the size of Fashion-MNIST's, of noise: it is about seconds.

A part that fails is written with its error, and the others go on. After `--limit` seconds no further part begins; the
file is written after each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from lamu.base.compile_once import all_digits
from lamu.data import Batch
from lamu.networks import MLP, Linear, MixedPrecision, ResNet
from lamu.objective import Objective

A = lamu.algorithms
Part = tuple[str, Callable[[], dict[str, Any]]]


def seconds(run: Callable[[], Any]) -> dict[str, float]:
    """Returns the seconds of a first run, which compiles, and of a second one."""
    found = {}
    for name in ("first", "second"):
        start = time.perf_counter()
        jax.block_until_ready(run())
        found[name] = time.perf_counter() - start
    return found


def off(found: Any, exact: Any) -> float:
    """Returns the largest deviation relative to the largest number."""
    found, exact = (np.asarray(value, np.float64) for value in (found, exact))
    return float(np.max(np.abs(found - exact)) / np.max(np.abs(exact)))


def regression(rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a linear function with noise, in float32."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, features)).astype(np.float32)
    return x, (x @ draw.standard_normal(features) + 0.5 * draw.standard_normal(rows)).astype(np.float32)


def checks(tiny: bool) -> Iterator[Part]:
    """Yields comparisons, each with a deviation and what it may be."""
    size = 64 if tiny else 1024
    x, y = regression(20 * size, 20)
    a = np.random.default_rng(1).standard_normal((size, size)).astype(np.float32)
    wide = a.astype(np.float64)

    def products() -> dict[str, Any]:
        plain = off(jnp.asarray(a) @ a.T, wide @ wide.T)
        with all_digits():
            exact = off(jnp.asarray(a) @ a.T, wide @ wide.T)
        return {"as the device takes them": plain, "deviation": exact, "allowed": 1e-5}

    def cholesky() -> dict[str, Any]:
        matrix = wide @ wide.T / size + np.eye(size)
        with all_digits():
            root = jax.scipy.linalg.cho_factor(jnp.asarray(matrix, jnp.float32))
            found = jax.scipy.linalg.cho_solve(root, jnp.asarray(a[:, 0]))
        return {"deviation": off(found, np.linalg.solve(matrix, wide[:, 0])), "allowed": 1e-4}

    model = lamu.Model(Linear(bias=False), lamu.likelihoods.Gaussian(0.5), lamu.priors.Normal(1.0))
    precision = x.astype(np.float64).T @ x / 0.25 + np.eye(x.shape[1])
    mean = np.linalg.solve(precision, x.astype(np.float64).T @ y / 0.25)

    def against_closed_form(algorithm: Any, **length: int) -> dict[str, Any]:
        posterior = lamu.fit(model, (x, y), algorithm, batch_size=len(x), **length).posterior
        found = posterior.mean["network"]["layers"][0]["kernel"][:, 0]
        return {"deviation": off(found, mean), "allowed": 1e-3}

    network = MLP((32,), activation="tanh")
    net = lamu.Model(network, lamu.likelihoods.Gaussian(0.5))

    def gradient(model: Any, size: int | None = None) -> Any:
        batch = Batch.of(jnp.asarray(x[:256]), jnp.asarray(y[:256]))
        params, state = net.init(jax.random.key(0), batch)
        loss = Objective(model, 256, microbatch_size=size)
        found = jax.jit(jax.grad(lambda p: loss.mean_loss(p, batch, state)[0]))(params)
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(found)])

    narrow = lamu.Model(MixedPrecision(network), net.likelihood)

    def state_of(algorithm: Any) -> dict[str, Any]:
        fit = lamu.fit(net, (x, y), algorithm, steps=20)
        return {
            "deviation": 0.0 if bool(jnp.isfinite(fit.posterior.predict(x[:64]).std).all()) else 1.0,
            "allowed": 0.0,
        }

    yield "products", products
    yield "cholesky", cholesky
    yield "conjugate", lambda: against_closed_form(A.conjugate())
    yield "laplace of a linear map", lambda: against_closed_form(A.laplace(), steps=200 if tiny else 1000)
    yield "microbatches", lambda: {"deviation": off(gradient(net, 50), gradient(net)), "allowed": 1e-3}
    yield "bfloat16", lambda: {"deviation": off(gradient(narrow), gradient(net)), "allowed": 5e-2}
    yield "noisy_kfac is finite", lambda: state_of(A.noisy_kfac())
    yield "slang is finite", lambda: state_of(A.slang(rank=5))


def steps(tiny: bool) -> Iterator[Part]:
    """Yields seconds a step on a perceptron, batches of 512 rows (64 where tiny)."""
    features, width, rows = (8, 16, 256) if tiny else (784, 1024, 16384)
    size, count = (64, 8) if tiny else (512, 256)
    x = np.random.default_rng(0).standard_normal((rows, features)).astype(np.float32)
    y = np.random.default_rng(1).integers(0, 10, rows)
    network = MLP((width, width))

    def plain() -> dict[str, Any]:
        params, _ = network.init(jax.random.key(0), jnp.asarray(x[:1]), 10)
        optimiser = optax.adam(1e-3)

        @jax.jit
        def run(params: Any, x: Any, y: Any) -> Any:
            def step(carry: Any, t: Any) -> tuple[Any, None]:
                params, memory = carry
                chosen = jax.random.randint(jax.random.fold_in(jax.random.key(1), t), (size,), 0, rows)

                def loss(params: Any) -> Any:
                    logits = network.apply(params, {}, x[chosen], None, True)[0]
                    return optax.softmax_cross_entropy_with_integer_labels(logits, y[chosen]).mean()

                updates, memory = optimiser.update(jax.grad(loss)(params), memory, params)
                return (optax.apply_updates(params, updates), memory), None

            return jax.lax.scan(step, (params, optimiser.init(params)), jnp.arange(count))[0][0]

        rows_there = jnp.asarray(x), jnp.asarray(y)
        found = seconds(lambda: run(params, *rows_there))
        return {**found, "a step": found["second"] / count}

    def of(algorithm: Any, network: Any = network, **options: Any) -> dict[str, Any]:
        model = lamu.Model(network, lamu.likelihoods.Categorical(10))
        length = {} if algorithm.traits.length is not None else {"steps": count}
        found = seconds(lambda: lamu.fit(model, (x, y), algorithm, batch_size=size, **length, **options).state)
        return {**found, "a step": found["second"] / (algorithm.traits.length or count)}

    yield "optax adam", plain
    for name in ("adam", "ivon", "vogn", "ogn", "noisy_kfac", "slang", "bayes_by_backprop"):
        yield name, lambda name=name: of(getattr(A, name)())
    yield "sgld", lambda: of(lamu.mcmc.sgld(draws=count))
    yield "adam, bfloat16", lambda: of(A.adam(), MixedPrecision(network))
    yield "ivon, bfloat16", lambda: of(A.ivon(), MixedPrecision(network))
    yield "ivon, microbatches", lambda: of(A.ivon(), microbatch_size=size // 4)


def fits(tiny: bool) -> Iterator[Part]:
    """Yields seconds of whole fits."""
    rows = 200 if tiny else 10_000
    x, y = regression(rows, 8)
    draw = np.random.default_rng(2)
    model = lamu.Model(MLP((50,)), lamu.likelihoods.Gaussian(0.5))
    first = lamu.fit(model, (x, y), A.adam(1e-2), epochs=2).posterior

    def laplace() -> Any:
        return lamu.fit(model.starting_at(first.mean), (x, y), A.laplace(), epochs=0).posterior.belief

    ivon = lamu.fit(model, (x, y), A.ivon(), epochs=1).posterior
    line = lamu.Model(Linear(), lamu.likelihoods.Gaussian(0.5))
    nuts = lamu.mcmc.nuts(chains=4, warmup=100 if tiny else 500, draws=100 if tiny else 500)

    def vae(m: Any) -> None:
        decode = m.network("decode", MLP((200,)), outputs=64)
        with m.rows():
            z = m.sample("z", lamu.graphs.Normal(jnp.zeros(8), 1.0))
            m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))

    bits = (draw.random((rows, 64)) > 0.5).astype(np.float32)
    coder = lamu.Graph(vae, local={"z": lamu.latent.Amortised(MLP((200,)))})
    points = draw.standard_normal((rows, 4)).astype(np.float32)
    mixture = lamu.graphs.models.GaussianMixture(3, 4)
    sweeps = 5 if tiny else 50
    yield "laplace", lambda: seconds(laplace)
    yield "predict", lambda: seconds(lambda: ivon.predict(x, samples=32).mean)
    yield "nuts", lambda: seconds(lambda: lamu.fit(line, (x[:1000], y[:1000]), nuts).state)
    yield (
        "vae",
        lambda: seconds(
            lambda: lamu.fit(coder, {"y": bits}, A.adam(1e-3), steps=20 if tiny else 500, batch_size=100).state
        ),
    )
    yield "vmp of a mixture", lambda: seconds(lambda: lamu.fit(mixture, {"y": points}, A.vmp(), steps=sweeps).state)
    topics = lamu.graphs.models.Topics(4, 100, share=0.05, word=0.05)
    counts = draw.poisson(0.3, (min(rows, 1000), 100)).astype(np.float32)
    words = np.tile(np.arange(100, dtype=np.int32), (len(counts), 1)), counts
    yield "vmp of topics", lambda: seconds(lambda: lamu.fit(topics, {"words": words}, A.vmp(), steps=sweeps).state)


def images(tiny: bool) -> Iterator[Part]:
    """Yields seconds an epoch of a ResNet-20."""
    rows, size = (64, 32) if tiny else (60_000, 128)
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, 8, 8, 1) if tiny else (rows, 28, 28, 1)).astype(np.float32)
    y = draw.integers(0, 10, rows)

    def of(algorithm: Any, network: Any) -> dict[str, Any]:
        model = lamu.Model(network, lamu.likelihoods.Categorical(10))
        found = seconds(lambda: lamu.fit(model, (x, y), algorithm, epochs=1, batch_size=size).state)
        return {**found, "an epoch": found["second"], "a step": found["second"] / -(-rows // size)}

    yield "adam", lambda: of(A.adam(), ResNet())
    yield "ivon", lambda: of(A.ivon(), ResNet())
    yield "ivon, bfloat16", lambda: of(A.ivon(), MixedPrecision(ResNet()))


PARTS = {"checks": checks, "steps": steps, "fits": fits, "images": images}


def main() -> None:
    """Runs the parts and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--limit", type=float, default=480.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device, begun = jax.devices()[0], time.perf_counter()
    report: dict[str, Any] = {
        "device": device.device_kind,
        "platform": device.platform,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {"jax": jax.__version__, "lamu": lamu.__version__},
        "tiny": options.tiny,
    }
    for name in options.only:
        found = report[name] = {}
        parts = PARTS[name](options.tiny)
        while True:
            if time.perf_counter() - begun > options.limit:
                found["left out"] = f"after {options.limit:g} seconds"
                break
            try:
                part = next(parts, None)
            except Exception as error:  # what a part needs could not be made
                found["not begun"] = {"error": f"{type(error).__name__}: {error}"}
                break
            if part is None:
                break
            title, run = part
            try:
                found[title] = run()
            except Exception as error:
                found[title] = {
                    "error": f"{type(error).__name__}: {error}"[:500],
                    "where": traceback.format_exc()[-500:],
                }
            print(
                f"{time.perf_counter() - begun:6.1f} s  {name}: {title}  {json.dumps(found[title])[:160]}", flush=True
            )
            report["seconds"] = time.perf_counter() - begun
            options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
