"""The commands and their options. Nothing heavy is imported here, so that `--help` answers at once."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lamu.cli.compiled_programs import collected_seldom, keep_compiled
from lamu.cli.config_file import read_options, refuse_untrusted
from lamu.cli.output_dir import Interrupted, refuse_existing, refuse_unwritable
from lamu.interrupts import heard

__all__ = ["app", "main"]

app = typer.Typer(
    name="lamu",
    help="Bayesian deep learning: one learning rule, and the algorithms that are choices made inside it.",
    epilog="To begin: lamu fit diabetes --out run, which fits a bundled table and writes run/report.html.",
    pretty_exceptions_enable=False,
)

_DEBUG = "--debug"
_FLAG = ""  # in the help: a flag takes no value, and Typer would write <bool>
_OF_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)
_Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A .csv, .parquet, .arrow or .npz file (X and y), or the name of a bundled set."
    ),
]
_Temperature = Annotated[
    float | None,
    typer.Option(
        metavar="T", help="Temperature of the posterior; 1 is Bayes' rule. Chosen on rows set aside if left out."
    ),
]
_Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        callback=refuse_untrusted,
        help="A module that a run or a --config file names and that may be imported; repeatable.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", metavar=_FLAG, help="Print one JSON document and nothing else.")]
_Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict.")]
_Task = Annotated[
    str | None,
    typer.Option(
        metavar="TASK", help="Kind of target: regression, binary or classes. Read off its values if left out."
    ),
]
_Epochs = Annotated[int | None, typer.Option(metavar="N", help="Passes over the training rows.")]
_BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Rows of each gradient step.")]
_Seed = Annotated[
    int, typer.Option(metavar="N", help="Seed of the split into training and test rows, and of the algorithm.")
]
_TestSize = Annotated[float, typer.Option(metavar="F", help="Share of the rows that are held out for the scores.")]
_Samples = Annotated[
    int | None, typer.Option(metavar="N", help="Posterior draws of a prediction, where it needs draws.")
]
_MaxMemory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory to use at most, for instance 2GB; half of what is free if left out."),
]
_Likelihood = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Distribution of the target: gaussian, poisson, ..., or PACKAGE.MODULE:NAME. "
        "Held-out rows choose if left out.",
    ),
]
_Trials = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Number of trials of each row, where the target counts successes.")
]
_Censored = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="1 where the target is only known to be above its value, else 0.")
]
_Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", is_eager=True, callback=read_options, help="A .toml file with options by name."
    ),
]
_Separator = Annotated[
    str | None,
    typer.Option(metavar="CHAR", help="Separator of a CSV file's fields, or tab. Read off its first line if left out."),
]
_Impute = Annotated[
    bool,
    typer.Option(
        "--impute", metavar=_FLAG, help="Draw missing values given the rest of their row, and mark where they were."
    ),
]
_Missing = Annotated[
    str | None,
    typer.Option(
        metavar="VALUES",
        help="What stands for a missing value, for instance -999,unknown; or none. Read off the table if left out.",
    ),
]
_Dates = Annotated[
    bool, typer.Option("--dates", metavar=_FLAG, help="Turn dates into ages, and phases of year, week and day.")
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: the words behind `lamu`; those of the process if left out.

    Returns:
        The exit code: 0; 1 where a verification or an algorithm of a comparison failed, and for a fault of the library;
        2 for a mistake in what was asked, after one sentence on standard error; 130 after an interruption.

    Raises:
        Exception: a fault of the library, with `--debug` among the words.

    Examples:
        >>> from lamu.cli import main
        >>> main(["fit", "no such file.csv", "--out", "run"])
        2
    """
    debug = False
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        # Anywhere, since it is asked for behind the command that has failed.
        debug, words = _DEBUG in words, [word for word in words if word != _DEBUG]
        keep_compiled()
        with collected_seldom(), heard():
            result = app(args=words or ["--help"], prog_name="lamu", standalone_mode=False)
    except Interrupted as kept:
        print(f"lamu: {kept}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output, `head` for instance, has seen enough
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
    if result == 130:
        print("lamu: interrupted, and nothing was written", file=sys.stderr)
    return result if isinstance(result, int) else 0


def _sentence(error: Exception) -> str | None:
    """Returns what to tell a person, or None for an error that is ours."""
    # The command line itself was wrong: Typer and Click name the class of that error differently.
    wrong_usage = getattr(error, "format_message", None)
    if wrong_usage is not None:
        return " ".join(wrong_usage().split()) + _value(error)
    if isinstance(error, ValueError | TypeError | OSError | RuntimeError) and _is_deliberate(error):
        return _in_options(str(error))
    # A path of the command, of which only the system knows what is wrong.
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.errno in _OF_PATHS:
        return f"{_shortened(error.filename)!r} is no path here ({str(error.strerror).lower()}); give another"
    # Python's own names the module that is missing; the library's says which extra brings it.
    if isinstance(error, ImportError) and error.name is None and _is_deliberate(error):
        return str(error)
    return None


def _in_options(sentence: str) -> str:
    """Returns a sentence of Python's arguments and calls, with the options of the command line in their place."""
    sentence = re.sub(r"\bmax_memory=(['\"])(.*?)\1", r"--max-memory \1\2\1", sentence)
    sentence = re.sub(r"\btrust=\['([\w.]+)'\]", r"--trust \1", sentence)
    return re.sub(r"(?<![\w.])([a-z_]+)\(\)", _option_of_call, sentence)


def _option_of_call(call: re.Match[str]) -> str:
    from lamu.cli.recipes import recipes

    return f"--algorithm {call[1]}" if call[1] in recipes() else call[0]


def _shortened(path: str) -> str:
    """Returns a path of sixty characters at most."""
    return path if len(path) <= 60 else f"{path[:59]}…"


def _value(error: Exception) -> str:
    """Returns the value that was of the wrong kind, which Typer's own message leaves out."""
    cause: Any = error.__cause__
    return f"; {cause.errors()[0]['input']!r} was given" if hasattr(cause, "errors") else ""


def _is_deliberate(error: Exception) -> bool:
    """Whether the library itself raised the error, in one line: such messages are written for people."""
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
            "--version", metavar=_FLAG, callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, metavar=_FLAG, help="Show the traceback of an error; taken behind any command, too.")
    ] = False,
) -> None:
    pass


@app.command("fit")
def _fit(
    data: _Data,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make; refused if it exists.")],
    target: _Target = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One of `lamu algorithms`, or PACKAGE.MODULE:NAME; if left out, a mixture of candidates.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the algorithm; repeatable.")
    ] = None,
    task: _Task = None,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    seed: _Seed = 0,
    test_size: _TestSize = 0.2,
    samples: _Samples = None,
    impute: _Impute = False,
    missing: _Missing = None,
    dates: _Dates = False,
    folds: Annotated[
        int | None,
        typer.Option(metavar="K", help="Ensemble over K folds; 0 for one run. Five unless an algorithm is named."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="Weights that laplace is about: all, last_layer, or a path pattern."),
    ] = None,
    max_memory: _MaxMemory = None,
    temperature: _Temperature = None,
    likelihood: _Likelihood = None,
    trials: _Trials = None,
    censored: _Censored = None,
    force: Annotated[
        bool, typer.Option("--force", metavar=_FLAG, help="Replace a folder that `lamu fit` made.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", metavar=_FLAG, help="Go on with the same command, interrupted before.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", metavar=_FLAG, help="Write report.html into the folder.")
    ] = True,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="vae: the rows of X are images, NaN where a pixel is missing.")
    ] = None,
    separator: _Separator = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Fit a model to a table, and score it on rows that it has not seen; with --model vae, to images."""
    begun = time.perf_counter()
    refuse_existing(out, force)
    if model is not None:
        of_tables = {
            "target": target,
            "algorithm": algorithm,
            "task": task,
            "folds": folds,
            "weights": weights,
            "temperature": temperature,
            "likelihood": likelihood,
            "trials": trials,
            "censored": censored,
            "separator": separator,
        }
        _refuse_options_of_tables(model, of_tables)
        from lamu.cli.images import train_images
        from lamu.memory import within as limited

        with limited(max_memory):
            train_images(
                data, out, model, setting or (), epochs, batch_size, seed, test_size, samples, as_json, force, resume
            )
        return
    if sys.stderr.isatty() and not as_json:
        print(f"reading {data}", file=sys.stderr)  # before JAX is imported, which takes seconds
    from lamu.cli.request import Request, learning_rows
    from lamu.memory import within

    request = Request(
        data,
        target,
        task,
        epochs,
        batch_size,
        seed,
        test_size,
        samples,
        impute,
        folds,
        max_memory,
        temperature,
        likelihood,
        trials,
        censored,
        separator,
        dates,
        missing,
    )
    settings = (*(setting or ()), *(() if weights is None else (f"weights={weights}",)))
    with within(max_memory):
        request.check()
        if algorithm is not None:
            from lamu.cli.recipes import find

            find(algorithm)  # an unknown name is refused before a table is read
        rows = learning_rows(request.read(), request, request.seed)
        refuse_unwritable(out)
        if algorithm is None and likelihood is None and not settings and not as_json:
            # Nothing is left to refuse, and what follows is imported for seconds.
            count, features = rows[0].features.values.shape
            print(f"read {data}: {count:,} rows of {features} features", flush=True)
        from lamu.cli.training import train

        before = time.perf_counter() - begun
        train(request, rows, out, algorithm, settings, as_json, force, resume, report, before)


def _refuse_options_of_tables(model: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"--{name} is of tables, and --model {model} learns images; leave one of them out")


@app.command("predict")
def _predict(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `lamu fit` made.")],
    data: _Data,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="A .csv file to make; of images .npz.")
    ] = None,
    samples: _Samples = None,
    max_memory: _MaxMemory = None,
    separator: _Separator = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Predict the rows of a table with a fitted model, and score them where the target is there; fill in images."""
    if out is not None:
        refuse_existing(out)
    from lamu.cli.images import fill_images, holds_images
    from lamu.cli.predicting import predict
    from lamu.memory import within

    with within(max_memory):
        if holds_images(run):
            fill_images(run, data, out, as_json, samples, trust or ())
            return
        predict(run, data, out, as_json, samples, separator, trust or ())


@app.command("compare")
def _compare(
    data: _Data,
    algorithms: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Names from `lamu algorithms`, PACKAGE.MODULE:NAME, default, what fit runs unless told, and "
            "scikit-learn's linear, boosting and forest; the first is the measure.",
        ),
    ] = "default,linear,boosting,forest",
    target: _Target = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.KEY=VALUE", help="An option of an algorithm; repeatable.")
    ] = None,
    splits: Annotated[int, typer.Option(metavar="N", help="How many splits into training and test rows.")] = 1,
    task: _Task = None,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    seed: _Seed = 0,
    test_size: _TestSize = 0.2,
    samples: _Samples = None,
    impute: _Impute = False,
    missing: _Missing = None,
    dates: _Dates = False,
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
    temperature: _Temperature = None,
    likelihood: _Likelihood = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="An .html file to make.")] = None,
    separator: _Separator = None,
    trust: _Trust = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Compare algorithms on the same rows with the same budget."""
    from lamu.cli.comparing import compare
    from lamu.cli.request import Request

    if temperature is None and (by == "evidence" or reference is not None):
        temperature = 1.0  # evidence, and closeness to a sampler, are of Bayes' rule itself
    request = Request(
        data,
        target,
        task,
        epochs,
        batch_size,
        seed,
        test_size,
        samples,
        impute,
        temperature=temperature,
        likelihood=likelihood,
        separator=separator,
        dates=dates,
        missing=missing,
    )
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
    separator: _Separator = None,
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """Check the algorithms against independent references, on this machine."""
    from lamu.cli.listing import verify

    if not verify(name, as_json):
        raise typer.Exit(1)


@app.command("doctor")
def _doctor(as_json: _Json = False) -> None:
    """Show versions, devices, memory and the cache of compiled programs."""
    from lamu.cli.listing import doctor

    doctor(as_json)
