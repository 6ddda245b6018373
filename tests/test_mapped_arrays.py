"""Arrays that lie in a file: read in blocks, within the limit of memory or refused before they are read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.data import Arrays, precision
from lamu.data.precision import is_mapped

rng = np.random.default_rng(0)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
ADAM = lamu.algorithms.adam(1e-2)


def in_a_file(folder: Path, name: str, array: np.ndarray, mode: Any = "r") -> np.ndarray:
    np.save(folder / f"{name}.npy", array)
    return np.load(folder / f"{name}.npy", mmap_mode=mode)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_an_array_of_a_file_is_told_from_one_in_memory(tmp_path: Path, mode: str) -> None:
    x = in_a_file(tmp_path, "x", np.ones((5, 4)), mode)
    for view in (x, np.asarray(x), x[1:], x.reshape(-1)[::2], x.T, x.view(np.ndarray)):
        assert is_mapped(view)
    for copy in (np.array(x), x + 1, x[[0, 1]], x.astype(np.float32)):
        assert not is_mapped(copy)
    assert is_mapped(np.memmap(tmp_path / "x.npy", np.float64, "r", offset=128))
    assert not is_mapped(np.frombuffer(memoryview(bytes(8))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_])
@pytest.mark.parametrize("mode", ["r", "c"])
def test_what_is_read_in_blocks_is_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any, mode: str
) -> None:
    monkeypatch.setattr(precision, "_BLOCK", 64)
    x, y = (3 * rng.normal(size=(37, 3))).astype(dtype), rng.normal(size=37)
    files = in_a_file(tmp_path, "x", x, mode), in_a_file(tmp_path, "y", y, mode)
    whole, read = Arrays.to_fit((x, y)), Arrays.to_fit(files)
    for name in ("x", "y", "weight"):
        one, other = getattr(whole, name), getattr(read, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    scaled, of_files = MODEL.standardised(x, y), MODEL.standardised(*files)
    np.testing.assert_allclose(scaled.network.shift, of_files.network.shift, rtol=1e-6)
    np.testing.assert_allclose(scaled.network.scale, of_files.network.scale, rtol=1e-6)
    np.testing.assert_allclose(scaled.likelihood.scale, of_files.likelihood.scale, rtol=1e-6)


def test_changes_that_were_never_written_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a copy on write, whose pages are not in the file."""
    monkeypatch.setattr(precision, "_BLOCK", 64)
    x = in_a_file(tmp_path, "x", np.zeros((400, 3)), "c")
    x[:] = 2.0
    for _ in range(2):
        assert np.asarray(Arrays.to_fit((x, np.ones(400))).x).min() == 2.0


def test_a_place_in_a_later_block_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_BLOCK", 64)
    x = np.zeros((37, 3))
    x[29, 1] = np.nan
    with pytest.raises(ValueError, match=r"x is NaN or infinite in .* in 1 place, first nan in row 29, column 1"):
        Arrays.to_fit((in_a_file(tmp_path, "x", x), np.zeros(37)))


def test_what_has_no_room_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = in_a_file(tmp_path, "x", np.ones((1000, 50), np.float32)), np.ones(1000, np.float32)

    def read(*_: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr("lamu.data.arrays._on_device", read)
    monkeypatch.setattr("lamu.data.arrays.refuse_lost", read)
    words = (
        "what is mapped from a file (x) takes 200.0 kB and 100.0 kB may be used; give an object that yields batches of "
        "rows, which are read one after the other (with data_size=N), or max_memory='200.0 kB' or more"
    )
    for data in ((x, y), {"x": x, "y": y}):
        with pytest.raises(ValueError, match=re.escape(words)):
            lamu.fit(MODEL, data, ADAM, steps=1, max_memory="100kB")
    for several in (lamu.fit_folds, lamu.fit_prior_scale, lamu.fit_temperature):
        model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5), lamu.priors.LearnedNormal())
        options = {"temperatures": (1.0, 0.5)} if several is lamu.fit_temperature else {}
        with pytest.raises(ValueError, match=re.escape(words)):
            several(model, (x, y), ADAM, epochs=1, max_memory="100kB", **options)
    with memory.within("100kB"), pytest.raises(ValueError, match=re.escape(words)):
        Arrays.of((x, y))
    with pytest.raises(ValueError, match=r"with the rows that are set aside takes 400\.0 kB and 300\.0 kB may be used"):
        lamu.fit(MODEL, (x, y), ADAM, steps=1, max_memory="300kB", validation=0.1)


def test_rows_of_a_file_count_among_what_a_run_takes(tmp_path: Path) -> None:
    """As rows that are in memory already do not."""
    x, y = np.ones((1000, 50), np.float32), np.ones(1000, np.float32)
    given = in_a_file(tmp_path, "x", x), in_a_file(tmp_path, "y", y)
    lamu.fit(MODEL, (x, y), ADAM, steps=1, max_memory="206kB")
    with pytest.raises(
        ValueError, match=r"rows from a file 204\.0 kB\) takes .* and 206\.0 kB may be used; give an obj"
    ):
        lamu.fit(MODEL, given, ADAM, steps=1, max_memory="206kB")


SCRIPT = """
import sys, resource
import numpy as np
import jax
from lamu.data.arrays import Arrays
from lamu.data.precision import moments
from lamu.memory import most_held, within
x, y = (np.load(f"{sys.argv[1]}/{name}.npy", mmap_mode="r") for name in "xy")
Arrays.to_fit((np.ones((2, 3)), np.ones(2)))
before = most_held()
moments(x)
print(most_held() - before)
with within("100MB"):
    rows = Arrays.to_fit((x, y))
print(most_held() - before)
"""


def test_reading_takes_the_room_of_the_result_and_a_block(tmp_path: Path) -> None:
    """160 MB of float64 in a file are 80 MB in memory, and blocks of the file are read one after the other."""
    n = 400_000
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (n, 50))
    x[:] = np.arange(n)[:, None] % 1000
    x.flush()
    np.save(tmp_path / "y.npy", np.arange(n) % 7 / 7)
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    of_moments, of_rows = map(int, ran.stdout.split())
    assert of_moments < 40e6
    assert of_rows < 80e6 + 60e6
