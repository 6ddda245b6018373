"""A hostile environment: runtime type checks, strict promotion, reused keys found; and the count of broken twins."""

from __future__ import annotations

import gc
import itertools
import os
import time
from functools import partial
from pathlib import Path

from tests.type_checks import check_types_of

os.environ.setdefault("JAX_PLATFORMS", "cpu")
check_types_of(["lamu", "lamu_verification"])

import jax  # noqa: E402  (the import hook must stand before anything that could import the package)
import numpy as np  # noqa: E402  (beside it, as the linter sorts them)
import pytest  # noqa: E402  (the same)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_traceback_in_locations_limit", 0)  # no lines of Python in programs: a fortieth of the time


def share_the_compilers_context() -> None:
    """Makes all programs of a process in one MLIR context.

    JAX makes a context for each program, with every dialect in it, and keeps it as long as the program: of thousands of
    small programs it was a quarter of the time and most of five gigabytes. Programs do not know in which they are made.
    """
    from jax._src.interpreters import mlir

    if hasattr(mlir, "make_ir_context"):
        context = mlir.make_ir_context()
        mlir.make_ir_context = lambda: context


share_the_compilers_context()


def write_programs_briefly() -> None:
    """Names no operation after its place in a program, and traces the generator of random numbers once a shape.

    The programs are the same, and to write them takes a quarter less, a twentieth to a tenth of the time.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax._src.random import threefry2x32 as threefry

    mlir.source_info_to_location = lambda *_: ir.Location.unknown()
    in_a_loop = jax.jit(partial(threefry._threefry2x32_lowering, use_rolled_loops=True), inline=True)
    mlir.register_lowering(threefry.threefry2x32_p, mlir.lower_fun(in_a_loop), platform="cpu")


write_programs_briefly()


def look_for_reused_keys_where_keys_are() -> None:
    """Passes over what has no key in it: JAX asks every operation, and every call of a program, for its keys.

    This was an eighth to a quarter of the time, and a call of a compiled program took nine times as long. What has a
    key among its arguments or its results, or anywhere inside, is looked through by JAX as before.
    """
    from jax._src import config, core, pjit, util
    from jax._src.random import prng
    from jax.experimental.key_reuse import _core as reuse

    def is_key(of: object) -> bool:
        return isinstance(getattr(getattr(of, "aval", of), "dtype", None), prng.KeyTy)

    def matters(equation: core.JaxprEqn) -> bool:
        return any(map(is_key, (*equation.invars, *equation.outvars))) or inside(equation.params)

    def inside(parameters: dict) -> bool:
        return any(map(has_keys, core.jaxprs_in_params(parameters)))

    @util.weakref_lru_cache
    def has_keys(program: core.Jaxpr) -> bool:
        return any(map(is_key, (*program.constvars, *program.invars))) or any(map(matters, program.eqns))

    every_equation, every_call = reuse.jaxpr_type_signature, reuse.call_impl_with_key_reuse_checks
    run = pjit._run_python_pjit

    @util.weakref_lru_cache
    def signature(program: core.Jaxpr) -> reuse.KeyReuseSignature:
        return every_equation(program.replace(eqns=[equation for equation in program.eqns if matters(equation)]))

    makes_keys = (prng.random_seed_p, prng.random_wrap_p)

    def call(primitive: core.Primitive, implementation: object, *arguments: object, **parameters: object) -> object:
        if primitive in makes_keys or any(map(is_key, arguments)) or inside(parameters):
            return every_call(primitive, implementation, *arguments, **parameters)
        return implementation(*arguments, **parameters)

    def jitted(prepared: object, flat: list, *rest: object) -> object:
        asked = config.debug_key_reuse.value  # a test may have said no
        with config.debug_key_reuse(asked and (any(map(is_key, flat)) or inside(prepared.params))):
            return run(prepared, flat, *rest)

    reuse.jaxpr_type_signature, reuse.call_impl_with_key_reuse_checks = signature, call
    pjit._run_python_pjit = jitted


look_for_reused_keys_where_keys_are()

collect_ignore = ["as_users_run"]  # which runs without this file (`make users`)

# Traces make many objects and little garbage, and a process of thousands of tests has millions: looking through them as
# often as Python does was a seventh of the time.
gc.set_threshold(100_000)


MAPS, MOST_MAPS, ENDED = Path("/proc/self/maps"), 40_000, itertools.count(1)
MOST_MAPS_BEFORE_LONG_TESTS, LONG, BEGUN = 15_000, 10.0, {"at": 0.0}  # seconds; one of them may add 40,000


def pytest_runtest_logstart(nodeid: str, location: tuple[str, int | None, str]) -> None:
    """Notes when a test began."""
    BEGUN["at"] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str, location: tuple[str, int | None, str]) -> None:
    """Lets compiled programs go before the kernel refuses to map more memory.

    A program takes half a dozen of the 65,530 mappings that Linux allows a process, and the compiler dies of the next
    one without a word: `make stress` did, after some thousand tests in one process.
    """
    # To count them takes a while itself: not after every test.
    was_long = time.monotonic() - BEGUN["at"] > LONG
    most = MOST_MAPS_BEFORE_LONG_TESTS if was_long else MOST_MAPS
    if (next(ENDED) % 16 == 0 or was_long) and MAPS.exists() and MAPS.read_bytes().count(b"\n") > most:
        jax.clear_caches()


NIGHT = set(Path(__file__).with_name("night.txt").read_text(encoding="utf-8").splitlines())


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves to the night the cases of night.txt, and all but the first and the last of a test marked `sampled`."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.nodeid in NIGHT:
            item.add_marker(pytest.mark.stress)
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    for of_test in cases.values():
        for item in of_test[1:-1]:
            item.add_marker(pytest.mark.stress)


GENERATORS: dict[str, list[tuple[np.random.Generator, dict]]] = {}


def pytest_collection_finish(session) -> None:
    """Remembers where every test file's own generators stand, before any test has drawn from them."""
    gc.freeze()  # what was imported and collected stays, and is looked through no more
    for module in {item.module for item in session.items if hasattr(item, "module")}:
        own = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
        GENERATORS[module.__name__] = [(generator, generator.bit_generator.state) for generator in own]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Spares pytest to look for garbage among some millions of objects, twice, before the process ends."""
    gc.freeze()


@pytest.fixture(autouse=True)
def generators_start_anew(request) -> None:
    """Lets no test draw other numbers because others ran before it: which do, is the scheduler's choice."""
    for generator, state in GENERATORS.get(getattr(request.module, "__name__", ""), []):
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def convergence_is_measured_where_a_test_asks(request, monkeypatch) -> None:
    """Leaves out the measurement after a run, a program of its own to compile, but for tests that are about it.

    The tests' runs are short, and hundreds of them would be told that they have not converged.
    """
    if not any(request.node.get_closest_marker(name) for name in ("measured", "stress")):
        monkeypatch.setattr("lamu.running.fixed_point.convergence_of", lambda *arguments: None)
        monkeypatch.setattr("lamu.running.belief_shape.shape_of", lambda posterior, *arguments: posterior.convergence)


@pytest.fixture
def lamu(capsys, tmp_path, monkeypatch):
    """A function that runs a command in an empty folder, in this process."""
    from tests.command_line import runner

    return runner(capsys, tmp_path, monkeypatch)


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints how many broken twins were planted, and how many each law rejected."""
    outcomes: dict[str, list[tuple[str, bool]]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", []))
            if "twin" in properties and report.when == "call":
                outcomes.setdefault(properties["law"], []).append((properties["twin"], outcome == "passed"))
    if not outcomes:
        return
    everything = [result for results in outcomes.values() for result in results]
    planted = {twin for twin, _ in everything}
    survivors = {twin for twin, rejected in everything if not rejected}
    terminalreporter.section("broken twins")
    for law in sorted(outcomes):
        results = outcomes[law]
        terminalreporter.write_line(f"{law}: rejected {sum(rejected for _, rejected in results)} of {len(results)}")
    terminalreporter.write_line(
        f"{len(planted)} twins planted, {len(planted - survivors)} rejected, {len(survivors)} survived"
    )
