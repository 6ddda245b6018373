"""A checkpoint is whole or not there, comes back bit for bit, and says so where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu.record import record
from lamu.running.checkpoints import CheckpointError, Checkpoints

PARAMS = {"w": jnp.linspace(-1.0, 1.0, 6).reshape(2, 3), "b": jnp.asarray(0.1, jnp.float32)}


class Pair(NamedTuple):
    left: Any
    right: Any


@record
class Held:
    inner: Any
    missing: Any


def content_of(value: float) -> dict[str, Any]:
    """Every kind of leaf that a run may hold, so that the restored one can be told from a fresh one."""
    return {
        "optimiser": optax.adam(1e-3).init(jax.tree.map(lambda leaf: leaf + jnp.asarray(value, leaf.dtype), PARAMS)),
        "key": jax.random.key(int(value)),
        "keys": jax.random.split(jax.random.key(int(value), impl="rbg"), 2),
        "record": Held(Pair(jnp.full(2, value, jnp.bfloat16), np.full((1, 2), value)), None),
        "empty": jnp.zeros((0, 3)),
        "whole": np.int64(value),
        "numbers": (int(value), float(value), bool(value), jnp.asarray(True), jnp.arange(3, dtype=jnp.uint8)),
    }


def same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array) and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            assert a.dtype == b.dtype
            a, b = (np.asarray(jax.random.key_data(jax.random.clone(key))) for key in (a, b))
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one checkpoint, for tests to copy and damage."""
    folder = tmp_path_factory.mktemp("run")
    Checkpoints(folder).save(7, content_of(1.0), 0.5, {"seed": 3, "sizes": [1, 2]}, {"loss": np.arange(7.0)})
    return folder


def test_what_was_saved_comes_back_bit_for_bit(whole: Path) -> None:
    content, facts, extra = Checkpoints(whole).restore(7, like=content_of(2.0))
    same(content, content_of(1.0))
    assert isinstance(content["optimiser"][0], optax.ScaleByAdamState)
    assert facts == {"seed": 3, "sizes": [1, 2]}
    assert list(extra) == ["loss"]
    assert extra["loss"].dtype == np.float64
    assert extra["loss"].tolist() == list(range(7))


def test_shapes_alone_are_enough_to_restore(tmp_path: Path) -> None:
    made = {"w": jnp.ones(2, jnp.float32), "key": jax.random.key(4), "twice": jnp.ones(2)}
    Checkpoints(tmp_path).save(1, made)
    same(Checkpoints(tmp_path).restore(1, like=jax.eval_shape(lambda: made))[0], made)


def test_one_restored_array_may_be_given_away(tmp_path: Path) -> None:
    made = {"w": jnp.ones(4)}
    Checkpoints(tmp_path).save(1, made)
    content, _, _ = Checkpoints(tmp_path).restore(1, like=made)
    assert jax.jit(lambda tree: tree["w"] + 1.0, donate_argnums=0)(content).tolist() == [2.0] * 4


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path / "made" / "here", last=2, best=1)
    assert keeper.latest() is None
    assert keeper.lowest() is None
    for step, score in ((1, 0.9), (2, 0.1), (3, float("nan")), (4, None), (5, 0.3), (10, 0.2)):
        keeper.save(step, {"x": step}, score)
    assert keeper.steps() == [2, 5, 10]
    assert (keeper.latest(), keeper.lowest()) == (10, 2)
    assert keeper.restore(2, like={"x": 0})[0] == {"x": 2}
    assert sorted(path.name for path in keeper.folder.iterdir()) == [f"step-{step:012d}" for step in (2, 5, 10)]


def test_steps_only_grow(tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path)
    keeper.save(5, {})
    for step in (4, 5):
        with pytest.raises(CheckpointError, match=f"step {step} is not beyond 5"):
            keeper.save(step, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content | {"whole": np.zeros(3, np.int64)}, r"leaf \['whole'\] has shape \(\) and not \(3,\)"),
        (lambda content: content | {"whole": np.int32(1)}, "has dtype int64 and not int32"),
        (lambda content: content | {"key": jax.random.key(0, impl="rbg")}, "dtype key<fry> and not key<rbg>"),
        (lambda content: content | {"more": 1.0}, r"leaf \['more'\] is missing in it"),
        (lambda content: {"key": content["key"]}, r"leaf \['empty'\] is in it alone"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(whole: Path, change: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=f"another (model or algorithm|precision): .*{said}"):
        Checkpoints(whole).restore(7, like=change(content_of(1.0)))


def damaged(folder: Path, how: str) -> None:
    place = folder / "step-000000000007"
    content, arrays = place / "content.json", place / "arrays.npz"
    if how == "arrays gone":
        arrays.unlink()
    elif how == "arrays cut":
        arrays.write_bytes(arrays.read_bytes()[:-5])
    elif how == "arrays flipped":
        data = bytearray(arrays.read_bytes())
        data[len(data) // 2] ^= 1
        arrays.write_bytes(data)
    elif how == "arrays of another step":
        Checkpoints(folder / "other").save(7, content_of(3.0), extra={"loss": np.arange(7.0)})
        os.replace(folder / "other" / place.name / "arrays.npz", arrays)
    elif how == "content cut":
        content.write_text(content.read_text()[:-5])
    elif how == "content altered":
        content.write_text(content.read_text().replace('"seed": 3', '"seed": 4'))
    elif how == "foreign":
        content.write_text("[]")


@pytest.mark.parametrize(
    "how",
    [
        "arrays gone",
        "arrays cut",
        "arrays flipped",
        "arrays of another step",
        "content cut",
        "content altered",
        "foreign",
    ],
)
def test_damage_is_one_sentence(whole: Path, tmp_path: Path, how: str) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    damaged(folder, how)
    with pytest.raises(
        CheckpointError, match=r"altered|is not a folder that Lamu saved.*; remove .* to use another"
    ) as raised:
        Checkpoints(folder).restore(7, like=content_of(1.0))
    assert "\n" not in str(raised.value)


def test_a_damaged_one_does_not_stop_the_next(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    damaged(folder, "content cut")
    Checkpoints(folder).save(8, {"x": 1.0}, 0.7)
    assert Checkpoints(folder).steps() == [8]


def test_what_is_not_there_is_one_sentence(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3; there are \[7\]"):
        Checkpoints(whole).restore(3, like={})
    with pytest.raises(CheckpointError, match="there is none"):
        Checkpoints(tmp_path / "nowhere").restore(3, like={})


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Checkpoints(tmp_path / "run")
    with pytest.raises(TypeError, match=r"leaf \['name'\] is a str"):
        keeper.save(1, {"name": "adam"})
    with pytest.raises(TypeError, match="JSON"):
        keeper.save(1, {}, facts={"model": object()})
    keeper.save(1, {"x": jnp.ones(3)})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(CheckpointError, match=r"step 2 could not be written .*No space left on device"):
            keeper.save(2, {"x": jnp.ones(3)})
    assert [path.name for path in keeper.folder.iterdir()] == ["step-000000000001"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="could not be written"):
        Checkpoints(tmp_path / "file").save(1, {})
    with pytest.raises(ValueError, match="last=0"):
        Checkpoints(tmp_path, last=0)


KILLED = """
    import os, random, signal, sys, time
    from pathlib import Path
    import numpy as np
    from lamu.running.checkpoints import Checkpoints

    moments = random.Random(0)
    for run in range(5):
        keeper = Checkpoints(Path(sys.argv[1]) / str(run))
        child = os.fork()
        if not child:
            step = 0
            while True:
                step += 1
                keeper.save(step, {"x": np.full(60_000, step, np.float32), "y": np.full(5, step)}, 1.0 / step)
        while keeper.latest() is None:
            time.sleep(0.005)
        time.sleep(moments.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


def test_a_kill_leaves_a_whole_checkpoint_and_nothing_that_looks_whole(tmp_path: Path) -> None:
    """Killed at five moments of a loop that does nothing but save, so that it is in the middle of one."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path(lamu.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], check=True, env=environment)
    like = {"x": np.empty(60_000, np.float32), "y": np.empty(5, np.int64)}
    for folder in sorted(tmp_path.iterdir()):
        keeper = Checkpoints(folder)
        assert keeper.latest() is not None
        for step in keeper.steps():
            content, _, _ = keeper.restore(step, like)
            assert (content["x"] == step).all()
            assert (content["y"] == step).all()
        following = keeper.steps()[-1] + 1
        keeper.save(following, like, 0.0)
        assert [path.name for path in folder.iterdir()] == [keeper._place(following).name]
