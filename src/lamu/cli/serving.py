"""`lamu serve` and `lamu export`: the predictions of a folder over HTTP or as programs."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from inspect import isroutine
from pathlib import Path
from typing import Any

from lamu.cli.output_dir import altered, draft, load_posterior, read_config
from lamu.cli.recipes import named_object
from lamu.cli.versions import version
from lamu.data import Encoding
from lamu.posterior import Posterior, default_samples, load

__all__ = ["export_run", "serve"]


def serve(
    run: Path,
    host: str,
    port: int,
    limits: dict[str, Any],
    shape: str | None = None,
    samples: int | None = None,
    trust: Sequence[str] = (),
    network: str | None = None,
) -> None:
    """Serves the predictions of a folder until interrupted."""
    try:
        import uvicorn

        from lamu.serving import ArrayRows, HttpProtocol, Limits, TableRows, application
    except ImportError as error:
        if error.name is None or not error.name.startswith(("starlette", "uvicorn", "httptools")):
            raise
        raise ImportError(
            '`lamu serve` needs Starlette, uvicorn and httptools; run pip install "lamu[serve]"'
        ) from error
    import jax

    bounds = Limits(**limits)
    # Programs of few rows are faster than their way through another thread: without it two cores sustain a tenth more
    # requests, and the 99th percentile at half of that is 9 ms in place of 11 (means of 7 and 5 runs, which vary by 2).
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    posterior, encoding, default = _opened(run, trust, network)
    if encoding is None:
        row = _shape(shape, posterior)
        rows: Any = ArrayRows(posterior, row, samples or default)
    else:
        rows = TableRows(posterior, encoding, samples or default)
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        raise ValueError(f"port {port} of {host!r} cannot be opened ({error.strerror}); give another --port") from error
    place = f"[{host}]" if ":" in host else host

    class Server(uvicorn.Server):
        """A server that prints its address when it listens, after the programs are compiled."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                print(f"serving {run} on http://{place}:{sock.getsockname()[1]}; Ctrl-C ends it", flush=True)

    # `limit_concurrency` bounds connections: the limits bound bodies, whatever the number of clients.
    config = uvicorn.Config(
        application(rows, bounds, version("lamu")),
        http=HttpProtocol,
        log_level="warning",
        limit_concurrency=1000 + bounds.waiting,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
    )
    Server(config).run(sockets=[sock])


def export_run(
    run: Path, out: Path, samples: int | None = None, trust: Sequence[str] = (), network: str | None = None
) -> None:
    """Writes the programs of a folder, together with the encoding of its table."""
    import numpy as np

    posterior, encoding, default = _opened(run, trust, network)
    with draft(out) as path:
        x = None if encoding is None else np.ones((1, len(encoding.names)), np.float32)
        posterior.export(path, x, samples or default)
        if encoding is not None:
            (path / "encoding.json").write_text(json.dumps(encoding.describe(), indent=1), encoding="utf-8")
    print(f"written to {out}")


def _opened(run: Path, trust: Sequence[str], network: str | None) -> tuple[Posterior, Encoding | None, int]:
    """Returns the posterior of a folder of `lamu fit` or `Posterior.save`, its encoding, and the number of draws."""
    if (run / "content.json").is_file():
        code: Any = None if network is None else named_object(network, "--network")
        posterior = load(run, code() if isroutine(code) else code, trust=trust)
        return posterior, None, default_samples(posterior.belief)
    if network is not None:
        raise ValueError(f"--network is {network!r}, and {str(run)!r} of `lamu fit` contains its network; leave it out")
    config = read_config(run)
    if config.get("model") is not None:
        raise ValueError(f"{str(run)!r} holds a model of images, which `lamu predict` fills in; it cannot be served")
    try:
        encoding = Encoding.of(config)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise altered(run) from error
    return load_posterior(run, config, trust, encoding.task), encoding, config["samples"]


def _shape(shape: str | None, posterior: Posterior) -> tuple[int, ...]:
    """Returns the shape of a row: that of the network, or the option."""
    row_shape = posterior.row_shape
    if shape is None:
        if row_shape is None:
            raise ValueError("the network does not tell the shape of a row; give it, for instance --shape 28,28,1")
        return row_shape
    sizes = shape.split(",")
    if not all(size.strip().isdigit() and int(size) for size in sizes):
        raise ValueError(f"--shape {shape!r} is not a shape; give whole numbers, for instance 28,28,1")
    return tuple(map(int, sizes))
