"""Saved posteriors, damaged or forged by chance: files, archives, JSON, and arrays with all checksums made to fit."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.families import Draws, Gaussian, Point, Product
from lamu.operators import Dense, Diagonal
from lamu.predictives import ClosedForm, Linearised, Sampled
from lamu.record import _crc32

__all__ = ["FORGERIES", "forged", "posteriors"]

FILES = ("content.json", "arrays.npz", "checksums.json")
rng = np.random.default_rng(0)


def _layer(before: int, after: int) -> dict[str, Any]:
    kernel = jnp.asarray(rng.normal(size=(before, after)), jnp.float32)
    return {"kernel": kernel, "bias": jnp.asarray(rng.normal(size=after), jnp.float32)}


def _dense(numbers: int) -> Dense:
    a = rng.normal(size=(numbers, numbers)) / numbers
    return Dense(jnp.asarray(a @ a.T + np.eye(numbers), jnp.float32))


def posteriors() -> dict[str, Any]:
    """Posteriors of four kinds of beliefs and rules, which nobody had to train."""
    key, nothing = jax.random.key(1), Point({})
    linear, one, two = ({"layers": {0: _layer(3, 1)}}, {"layers": {0: _layer(3, 2)}}, None)
    two = {"layers": {0: _layer(3, 2), 1: _layer(2, 3)}}
    scaled = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5)).standardised(
        rng.normal(size=(9, 3)).astype(np.float32), rng.normal(size=9).astype(np.float32)
    )
    classes = lamu.Model(lamu.networks.MLP((2,)), lamu.likelihoods.Categorical(3), lamu.priors.Normal(2.0))
    pair = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(2))
    draws = jax.tree.map(lambda leaf: jnp.stack([jnp.stack([leaf, leaf + 0.1, leaf - 0.1])] * 2), two)
    precisions = jax.tree.map(lambda leaf: jnp.full_like(leaf, 4.0), two)

    def of(model: Any, network: Any, rule: Any) -> Any:
        return lamu.Posterior(model, Product({"network": network, "likelihood": nothing}), {}, rule, key)

    return {
        "closed": of(scaled, Gaussian(linear, _dense(4)), ClosedForm()),
        "linearised": of(pair, Gaussian(one, _dense(8)), Linearised()),
        "sampled": of(classes, Gaussian(two, Diagonal(precisions)), Sampled()),
        "draws": lamu.Posterior(classes, Draws({"network": draws, "likelihood": {}}), {}, Sampled(), key),
    }


def seal(folder: Path) -> None:
    """Makes the checksums fit what is in the files now, as who forges one would."""
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES[:2]}
    (folder / "checksums.json").write_text(json.dumps(sums))


# What happens to a file.
def truncated(folder: Path, choose: random.Random) -> None:
    path = folder / choose.choice(FILES)
    path.write_bytes(path.read_bytes()[: choose.randrange(path.stat().st_size)])


def flipped(folder: Path, choose: random.Random) -> None:
    path = folder / choose.choice(FILES)
    data = bytearray(path.read_bytes())
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(bytes(data))


def longer(folder: Path, choose: random.Random) -> None:
    path = folder / choose.choice(FILES)
    path.write_bytes(path.read_bytes() + choose.randbytes(choose.randrange(1, 40)))


def missing(folder: Path, choose: random.Random) -> None:
    (folder / choose.choice(FILES)).unlink()


def of_another_kind(folder: Path, choose: random.Random) -> None:
    path = folder / choose.choice(FILES)
    path.unlink()
    if choose.random() < 0.5:
        path.mkdir()
    else:
        path.symlink_to(choose.choice(["/etc/passwd", "/dev/zero", "nowhere", folder]))


def sealed(harm: Callable[[Path, random.Random], None]) -> Callable[[Path, random.Random], None]:
    def both(folder: Path, choose: random.Random) -> None:
        harm(folder, choose)
        if all((folder / name).is_file() and not (folder / name).is_symlink() for name in FILES[:2]):
            seal(folder)

    both.__name__ = f"{harm.__name__}_and_sealed"
    return both


# What happens to the archive.
def members(folder: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(folder / "arrays.npz") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(folder: Path, parts: list[tuple[str, bytes]], kind: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(folder / "arrays.npz", "w", kind) as archive:
        for name, data in parts:
            info = zipfile.ZipInfo(name)
            info.compress_type = kind
            archive.writestr(info, data)
    seal(folder)


def header(shape: str, descr: str = "'<f4'", order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def archive(folder: Path, choose: random.Random) -> None:
    parts = list(members(folder).items())
    i = choose.randrange(len(parts))
    name, data = parts[i]
    kind = choose.randrange(12)
    if kind == 0:
        return archived(folder, parts, zipfile.ZIP_DEFLATED)
    if kind == 1:  # small in the file, large in the memory
        zeros = header(f"({2**22},)") + bytes(2**24)
        return archived(folder, [*parts[:i], (name, zeros), *parts[i + 1 :]], zipfile.ZIP_DEFLATED)
    if kind == 2:
        del parts[i]
    elif kind == 3:
        parts.append((choose.choice(["a99.npy", "evil.py", "../a0.npy", "a0", ""]), data))
    elif kind == 4:
        j = choose.randrange(len(parts))
        parts[i], parts[j] = (name, parts[j][1]), (parts[j][0], data)
    elif kind == 5:
        shape = choose.choice(["(10**12,)", f"({2**40},)", "(-1,)", "(2, -3)", "(2.0,)", "()", "5", "(True,)", "(0,)"])
        parts[i] = name, header(shape) + data[128:]
    elif kind == 6:
        descr = choose.choice(["'|O'", "'<U4'", "'|S3'", "'<M8[s]'", "'<i4'", "'<f8'", "[('a', '<f4')]", "'<q9'", "os"])
        parts[i] = name, header("(1,)", descr) + data[128:]
    elif kind == 7:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.array([print, {}], object), allow_pickle=True)
        parts[i] = name, buffer.getvalue()
    elif kind == 8:
        parts[i] = name, data[: choose.randrange(len(data))]
    elif kind == 9:
        changed = bytearray(data)
        changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
        parts[i] = name, bytes(changed)
    elif kind == 10:
        parts[i] = name, data + bytes(choose.randrange(1, 100))
    else:
        parts[i] = name, choose.choice([b"", b"\x93NUMPY", b"\x93NUMPY\x03\x00" + bytes(200), choose.randbytes(300)])
    archived(folder, parts)


# What happens to the JSON data.
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 10**9, 2**63, 10**40, -0.5, 0.0, 1e30, 1e308, float("nan"), float("inf"), "", "x",
    "relu", "../../x", [], [1], {}, {"list": []}, {"tuple": [1, 2]}, {"dict": []}, {"array": "no"}, {"record": "x:y"},
    {"function": "os.system"}, {"record": "os:system", "fields": {}}, {"record": "priors.Normal", "fields": {}},
    {"record": "networks.Linear", "fields": {"bias": True}}, {"list": [{"list": [None]}]},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside of a value of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def json_data(folder: Path, choose: random.Random) -> None:
    body = json.loads((folder / "content.json").read_text())
    for _ in range(choose.choice([1, 1, 1, 2])):
        *path, last = choose.choice([place for place in places(body) if place])
        holder = body
        for key in path:
            holder = holder[key]
        kind = choose.randrange(5)
        if kind == 0:
            del holder[last]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(choose.choice([*holder, *VALUES])))
        elif kind == 1:
            holder[choose.choice(["x", "array", "record", "fields", "__class__"])] = holder.pop(last)
        elif kind == 2:
            other = body
            for key in choose.choice(places(body)):
                other = other[key]
            holder[last] = copy.deepcopy(other)
        else:
            holder[last] = copy.deepcopy(choose.choice(VALUES))
    (folder / "content.json").write_text(json.dumps(body))
    seal(folder)


def json_text(folder: Path, choose: random.Random) -> None:
    text = (folder / "content.json").read_text()
    kind = choose.randrange(6)
    if kind == 0:
        text = text.replace('"content":', '"content": 3, "content":')
    elif kind == 1:
        text = text.replace('"temperature": 1.0', '"temperature": ' + "[" * 20_000 + "]" * 20_000)
    elif kind == 2:
        text = text.replace('"temperature": 1.0', '"temperature": ' + '{"list": [' * 500 + "]}" * 500)
    elif kind == 3:
        text = text.replace('"temperature": 1.0', '"temperature": ' + "9" * 5000)
    elif kind == 4:
        text = choose.choice(["", "[]", "null", "3", '"x"', "{}", '{"format": "lamu-store-2"}', text[:-1], "NaN"])
    else:
        i = choose.randrange(len(text))
        text = text[:i] + choose.choice(["", " ", "x", "0", '"', "{", "]", "\x00", "λ", "-"]) + text[i + 1 :]
    (folder / "content.json").write_text(text)
    seal(folder)


# What happens to the arrays, everything that is said of them made to fit.
def arrays(folder: Path, choose: random.Random) -> None:
    body = json.loads((folder / "content.json").read_text())
    parts = [np.load(io.BytesIO(data)) for data in members(folder).values()]
    i = choose.randrange(len(parts))
    array = parts[i]
    bad = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30, 3e38]
    kind = choose.randrange(8)
    if kind < 3 and array.size and array.dtype.kind == "f":
        array = array.copy()
        array.flat[choose.randrange(array.size)] = choose.choice(bad)
    elif kind == 3:
        array = array.reshape(-1)[: choose.randrange(array.size + 1)]
    elif kind == 4:
        array = array[None] if choose.random() < 0.5 else array.reshape(-1)
    elif kind == 5:
        with np.errstate(all="ignore"):
            array = array.astype(choose.choice([np.float64, np.float16, np.int32, bool, np.complex64, "U8"]))
    elif kind == 6:
        array = np.concatenate([np.atleast_1d(array)] * 2)
    else:
        array = choose.choice(parts)
    parts[i] = array
    name = body["arrays"][i]
    nodes = [body["content"]]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict) and name in (node.get("array"), node.get("key")):
            node.update(dtype=str(array.dtype), shape=list(array.shape), crc32=_crc32(array))
        nodes += list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    (folder / "content.json").write_text(json.dumps(body))
    np.savez(folder / "arrays.npz", **{f"a{i}": part for i, part in enumerate(parts)})
    seal(folder)


FORGERIES: tuple[Callable[[Path, random.Random], None], ...] = (
    truncated, flipped, longer, missing, of_another_kind, sealed(truncated), sealed(flipped), sealed(longer),
    archive, archive, archive, json_data, json_data, json_data, json_data, json_data, json_text, arrays, arrays, arrays,
)  # fmt: skip


def forged(whole: Path, copy_at: Path, seed: int) -> str:
    """Makes a forgery of a saved posterior, another one for each seed; returns its kind."""
    if copy_at.exists():
        shutil.rmtree(copy_at)
    copy_at.mkdir()
    for name in FILES:
        (copy_at / name).write_bytes((whole / name).read_bytes())
    choose = random.Random(seed)
    harm = choose.choice(FORGERIES)
    harm(copy_at, choose)
    return harm.__name__
