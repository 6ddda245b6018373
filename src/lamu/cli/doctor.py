"""`lamu doctor`: the versions, devices, memory and caches of this installation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lamu.cli.compiled_programs import CACHE, compiled_folder
from lamu.cli.printing import show_document, show_line, show_table
from lamu.cli.versions import package_versions, version

__all__ = ["doctor", "findings"]

# What an extra brings, by the extra.
_EXTRAS = {"mcmc": ("arviz", "blackjax"), "torch": ("torch",), "safetensors": ("safetensors",)}
_ADAPTED = ("flax", "equinox")


def findings() -> dict[str, Any]:
    """Returns what there is, by topic."""
    import jax
    import jax.numpy as jnp

    from lamu.memory import budget, free, limit

    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    optional = (*(name for names in _EXTRAS.values() for name in names), *_ADAPTED)
    return {
        "versions": package_versions(),
        "extras": {name: version(name) for name in optional},
        "devices": [f"{each.device_kind} ({each.platform} {each.id})" for each in jax.devices()],
        "precision": "float64" if jnp.result_type(float) == jnp.float64 else "float32",
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": {"free": free(), "limit": limit(), "prediction": budget()},
        "cache": {"folder": folder, "lamu's": compiled_folder() is not None, "bytes": _size(folder)},
    }


def doctor(as_json: bool) -> None:
    """Prints what there is."""
    found = findings()
    if as_json:
        show_document(found)
        return
    from lamu.memory import shown

    absent = lambda number: "not installed" if number == "unknown" else number
    show_table("versions", ("package", "version"), found["versions"].items())
    owner = {name: f"pip install 'lamu[{extra}]'" for extra, names in _EXTRAS.items() for name in names}
    rows = [(name, absent(number), owner.get(name, f"pip install {name}")) for name, number in found["extras"].items()]
    show_table("extras", ("package", "version", "install with"), rows)
    memory, cache = found["memory"], found["cache"]
    show_line(f"devices: {', '.join(found['devices'])}; {found['processors']} processors; {found['precision']}")
    show_line(
        f"memory: {shown(memory['free'])} free, of which a command takes {shown(memory['limit'])} and a prediction "
        f"{shown(memory['prediction'])} at once (--max-memory)"
    )
    if cache["folder"] is None:
        show_line(f"compiled programs are not kept; set {CACHE} to a folder that can be written")
    else:
        show_line(f"compiled programs are kept in {cache['folder']} ({shown(cache['bytes'])}; {CACHE}=off keeps none)")


def _size(folder: str | None) -> int:
    """Returns the bytes of the files of a folder; none where there is none."""
    if folder is None or not Path(folder).is_dir():
        return 0
    return sum(each.stat().st_size for each in os.scandir(folder) if each.is_file())
