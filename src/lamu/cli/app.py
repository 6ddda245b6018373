"""The commands and their options; heavy modules are imported inside the commands, so that `--help` is fast."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lamu.cli.output_dir import Interrupted, read_config, refuse_existing, refuse_unwritable
from lamu.cli.request import (
    FLAG,
    OF_IMAGES,
    OF_ROWS,
    Request,
    learning_rows,
    read_options,
    refuse_untrusted,
    takes_request,
)
from lamu.running.progress import interruptible

__all__ = ["app", "main"]

app = typer.Typer(
    name="lamu",
    help="Bayesian deep learning: one learning rule, and the algorithms that are choices made inside it.",
    epilog="To begin: lamu fit diabetes --out run, which fits a bundled table and writes run/report.html.",
    pretty_exceptions_enable=False,
)

_DEBUG = "--debug"
_OBJECTS = 1_000_000  # Python's default is 700
_OF_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)
_Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        callback=refuse_untrusted,
        help="A module that a run or a --config file names and that may be imported; repeatable.",
    ),
]
_Network = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="PACKAGE.MODULE:NAME",
        help="The network, or a function that returns it, where a saved posterior lacks its code.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print one JSON document and nothing else.")]
_Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", is_eager=True, callback=read_options, help="A .toml file with options by name."
    ),
]
_Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the algorithm; repeatable.")
]

_Saved = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `lamu fit` or a posterior's `save` made.")]
_Draws = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Posterior draws of a prediction, where it needs draws.")
]


@contextmanager
def _collected_seldom() -> Iterator[None]:
    """Makes Python collect garbage only after a million new objects, inside a `with` block."""
    # Imports and traces create many objects and little garbage: collection took half a second of a command's start.
    # Long commands still collect their garbage; a million objects are some hundred megabytes.
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: the words after `lamu`; by default those of the process.

    Returns:
        The exit code: 0; 1 if a verification or an algorithm of a comparison failed, and for an internal error;
        2 for invalid input, after one sentence on standard error; 130 after an interruption.

    Raises:
        Exception: an internal error, with `--debug` among the words.

    Examples:
        >>> from lamu.cli import main
        >>> main(["fit", "no such file.csv", "--out", "run"])
        2
    """
    debug = False
    if arguments is None:  # before NumPy is imported: its idle threads otherwise spin, 0.3 s of lamu fit
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        # At any position, since users append it to the command that failed.
        debug, words = _DEBUG in words, [word for word in words if word != _DEBUG]
        with _collected_seldom(), interruptible():
            result = app(args=words or ["--help"], prog_name="lamu", standalone_mode=False)
    except Interrupted as kept:
        print(f"lamu: {kept}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, for instance `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        sentence = _sentence(error)
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()) if "--resume" in note)
        if sentence is None:
            reason = " ".join(str(error).split())
            print(f"lamu: {type(error).__name__}: {reason}; --debug shows where{notes}", file=sys.stderr)
            return 1
        print(f"lamu: {sentence}{notes}", file=sys.stderr)
        return 2
    finally:
        if arguments is None:  # the process ends: a search of all imported objects for garbage would be wasted
            gc.freeze()
    if result == 130:
        print("lamu: interrupted, and nothing was written", file=sys.stderr)
    return result if isinstance(result, int) else 0


def _sentence(error: Exception) -> str | None:
    """Returns the message for the user, or None for an internal error."""
    # Usage errors: Typer and Click name the class of that error differently.
    wrong_usage = getattr(error, "format_message", None)
    if wrong_usage is not None:
        return " ".join(wrong_usage().split()) + _value(error)
    if isinstance(error, ValueError | TypeError | OSError | RuntimeError) and _is_deliberate(error):
        return _in_options(str(error))
    # A path of the command: only the system's message has the reason.
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.errno in _OF_PATHS:
        return f"{_shortened(error.filename)!r} is not a path here ({str(error.strerror).lower()}); give another"
    # Python's own error names the missing module; the library's names the extra to install.
    if isinstance(error, ImportError) and error.name is None and _is_deliberate(error):
        return str(error)
    return None


def _in_options(sentence: str) -> str:
    """Returns a message with Python's arguments and calls replaced by the options of the command line."""
    sentence = re.sub(r"\bmax_memory=(['\"])(.*?)\1", r"--max-memory \1\2\1", sentence)
    sentence = re.sub(r"\btrust=\['([\w.]+)'\]", r"--trust \1", sentence)
    network = "the network that holds it to `lamu serve` or `lamu export`, --network package.module:name"
    sentence = sentence.replace("what holds it, for instance lamu.load(path, network=...)", network)
    return re.sub(r"(?<![\w.])([a-z_]+)\(\)", _option_of_call, sentence)


def _option_of_call(call: re.Match[str]) -> str:
    from lamu.cli.recipes import recipes

    return f"--algorithm {call[1]}" if call[1] in recipes() else call[0]


def _shortened(path: str) -> str:
    """Returns a path shortened to at most sixty characters."""
    return path if len(path) <= 60 else f"{path[:59]}…"


def _value(error: Exception) -> str:
    """Returns the value of the wrong type, which Typer's own message omits."""
    cause: Any = error.__cause__
    return f"; {cause.errors()[0]['input']!r} was given" if hasattr(cause, "errors") else ""


def _is_deliberate(error: Exception) -> bool:
    """Whether the library itself raised the error, in one line: such messages are written for users."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return (
        frame is not None
        and "\n" not in str(error)
        and str(frame.tb_frame.f_globals.get("__name__")).startswith(("lamu.", "lamu_verification."))
    )


def _print_version(asked: bool) -> bool:
    if asked:
        from lamu.cli.versions import version

        typer.echo(f"lamu {version('lamu')}")
        raise typer.Exit
    return asked


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar=FLAG, callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, metavar=FLAG, help="Show the traceback of an error; taken behind any command, too.")
    ] = False,
) -> None:
    pass


def _refuse_foreign(given: dict[str, Any], model: str, images: bool) -> None:
    """Raises an error of one sentence for an option that does not apply to models without a target."""
    allowed = OF_IMAGES if images else OF_ROWS
    foreign = next((name for name, value in given.items() if value is not None and name not in allowed), None)
    if foreign is None:
        return
    option = foreign.replace("_", "-")
    if images:
        raise typer.BadParameter(f"--{option} is of tables, and --model {model} learns images; leave one of them out")
    raise typer.BadParameter(f"--{option} is for a target, and --model {model} has none; leave one of them out")


@app.command("fit")
@takes_request()
def _fit(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make; refused if it exists.")],
    request: Request,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One of `lamu algorithms`, or PACKAGE.MODULE:NAME; if left out, a mixture of candidates.",
        ),
    ] = None,
    setting: _Settings = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="Weights that laplace is about: all, last_layer, or a path pattern."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", metavar=FLAG, help="Replace a folder that `lamu fit` made.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", metavar=FLAG, help="Go on with the same command, interrupted before.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", metavar=FLAG, help="Write report.html into the folder.")
    ] = True,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A model without a target: vae, ppca, fa, gmm, lda or hmm; vae of an .npz file is of images.",
        ),
    ] = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Fit a model to a table, and score it on held-out rows; with --model, to a table without a target."""
    begun = time.perf_counter()
    refuse_existing(out, force)
    if model is not None:
        images = model == "vae" and request.data.lower().endswith(".npz")
        _refuse_foreign({"algorithm": algorithm, "weights": weights, **request.given()}, model, images)
        from lamu.memory import within

        with within(request.max_memory):
            request.check()
            if images:
                from lamu.cli.images import train_images

                train_images(request, out, model, setting or (), as_json, force, resume)
            else:
                from lamu.cli.latents import train_rows

                train_rows(request, out, model, setting or (), as_json, force, resume, report)
        return
    if sys.stderr.isatty() and not as_json:
        print(f"reading {request.data}", file=sys.stderr)  # before JAX is imported, which takes seconds
    from lamu.memory import within

    settings = (*(setting or ()), *(() if weights is None else (f"weights={weights}",)))
    with within(request.max_memory):
        request.check()
        if algorithm is not None:
            from lamu.cli.recipes import find

            find(algorithm)  # rejects an unknown name before a table is read
        rows = learning_rows(request.read(), request, request.seed)
        refuse_unwritable(out)
        if algorithm is None and request.likelihood is None and not settings and not as_json:
            # All options are valid; the imports that follow take seconds.
            count, features = len(set(rows[0].numbers.tolist())), len(rows[0].features.columns)
            print(f"read {request.data}: {count:,} rows of {features} features", flush=True)
        from lamu.cli.training import train

        before = time.perf_counter() - begun
        train(request, rows, out, algorithm, settings, as_json, force, resume, report, before)


@app.command("predict")
@takes_request(only=("data", "samples", "max_memory", "separator"))
def _predict(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `lamu fit` made.")],
    request: Request,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="A .csv file to make; of images .npz.")
    ] = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Predict the rows of a table, with scores if it has the target; after --model, latents or images filled in."""
    if out is not None:
        refuse_existing(out)
    request.check()
    chosen = read_config(run)
    if chosen.get("model") is None:
        from lamu.cli.predicting import predict
    elif "shape" in chosen:
        from lamu.cli.images import fill_images as predict
    else:
        from lamu.cli.latents import predict_rows as predict
    from lamu.memory import within

    with within(request.max_memory):
        predict(run, request, out, as_json, trust or ())


@app.command("impute")
@takes_request(only=("data", "samples", "max_memory", "separator"))
def _impute(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `lamu fit --model` made.")],
    request: Request,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A .csv file to make.")] = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Fill in the empty cells of a table with a model of its rows, each with an interval."""
    if out is not None:
        refuse_existing(out)
    request.check()
    if "shape" in read_config(run):
        from lamu.cli.images import fill_images as impute
    else:
        from lamu.cli.latents import impute_rows as impute
    from lamu.memory import within

    with within(request.max_memory):
        impute(run, request, out, as_json, trust or ())


@app.command("serve")
def _serve(
    run: _Saved,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0 for a free one.")] = 8000,
    max_rows: Annotated[int, typer.Option(metavar="N", help="Rows of a request, and predicted at once.")] = 1024,
    max_body: Annotated[int, typer.Option(metavar="BYTES", help="Size of a request.")] = 1_000_000,
    max_waiting: Annotated[int, typer.Option(metavar="N", help="Requests at a time; others get 503.")] = 64,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time of a request.")] = 10.0,
    shape: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Shape of a row, where the network does not tell it.")
    ] = None,
    samples: _Draws = None,
    network: _Network = None,
    trust: _Trust = None,
    config: _Config = None,
) -> None:
    """Serve predictions over HTTP: JSON in; mean, interval, probabilities and uncertainty out."""
    from lamu.cli.serving import serve

    limits = {"body": max_body, "rows": max_rows, "waiting": max_waiting, "seconds": timeout}
    serve(run, host, port, limits, shape, samples, trust or (), network)


@app.command("export")
def _export(
    run: _Saved,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make; refused if it exists.")],
    samples: _Draws = None,
    network: _Network = None,
    trust: _Trust = None,
    config: _Config = None,
) -> None:
    """Write predictions as programs that need only JAX, together with the encoding of the table."""
    from lamu.cli.serving import export_run

    export_run(run, out, samples, trust or (), network)


@app.command("compare")
@takes_request(without=("folds", "max_memory", "trials", "censored"))
def _compare(
    request: Request,
    algorithms: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Names from `lamu algorithms`, PACKAGE.MODULE:NAME, default, what fit runs unless told, and "
            "scikit-learn's linear, boosting and forest; the first is the measure.",
        ),
    ] = "default,linear,boosting,forest",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.KEY=VALUE", help="An option of an algorithm; repeatable.")
    ] = None,
    splits: Annotated[int, typer.Option(metavar="N", help="How many splits into training and test rows.")] = 1,
    by: Annotated[
        str | None, typer.Option(metavar="SCORE", help="The order of the rows: nll or evidence, the best first.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A sampler, such as hmc, that the others are to come close to; 250 draws a chain where not set.",
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="An .html file to make.")] = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Compare algorithms on the same rows with the same budget."""
    from lamu.cli.comparing import compare

    if request.temperature is None and (by == "evidence" or reference is not None):
        request = replace(request, temperature=1.0)  # evidence and closeness are defined for Bayes' rule itself
    if not compare(request, algorithms, setting or (), splits, as_json, by, reference, report):
        raise typer.Exit(1)


@app.command("algorithms")
def _algorithms(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them, with its options.")] = None,
    as_json: _Json = False,
) -> None:
    """List the algorithms, or show the choices, source and options of one."""
    from lamu.cli.listing import list_algorithms, show_algorithm

    if name is None:
        list_algorithms(as_json)
    else:
        show_algorithm(name, as_json)


@app.command("cite")
def _cite(name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of `lamu algorithms`.")] = None) -> None:
    """Print the BibTeX entries of an algorithm's papers."""
    from lamu.cli.listing import cite

    cite(name)


@app.command("verify")
def _verify(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A check, or likelihoods, or latent; all if left out.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", metavar=FLAG, help="A row of each kind, in a minute.")] = False,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Check the algorithms against independent references, on this machine."""
    from lamu.cli.listing import verify

    if not verify(name, as_json, quick):
        raise typer.Exit(1)


@app.command("doctor")
def _doctor(as_json: _Json = False) -> None:
    """Show versions, devices, memory and the cache of compiled programs."""
    from lamu.cli.listing import doctor

    doctor(as_json)
