"""Public names say what they are, show how they are used, and stand in a law; inner names have a summary alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import typing
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import lamu
from tests.for_each import for_each

ROOT, LAWS = Path(__file__).parent.parent, Path(__file__).parent / "laws"
SOURCE = ROOT / "src"
HELP = {"lamu.cli.app"}  # its docstrings are the text of `lamu --help`
PACKAGES = [value for name in lamu.__all__ if isinstance(value := getattr(lamu, name), ModuleType)]
# What is no floor of mathematics is held by tests of its own rather than by laws.
TESTED_ELSEWHERE = {
    "lamu": "test_loop, test_folds, test_validation, test_resume, test_checkpoints, test_model, test_store, "
    "test_neural_linear, test_sequential, test_mixtures, test_widths, test_fidelity, test_metropolis, "
    "test_one_layer, test_likelihood_choice, test_prior_sensitivity, test_evidence_choice, test_sites, "
    "test_low_rank_adapter",
    "lamu.algorithms": "laws/protocol, laws/posteriors, test_binary, test_mixture_of_runs, test_neural_linear",
    "lamu.families": "laws/families, laws/exponential, test_families, test_mixtures",
    "lamu.graphs": "test_graphs, test_graph_programs, test_latent_priors",
    "lamu.latent": "laws/bounds, laws/flows, laws/discrete, test_autoregressive, test_latent, test_coding, "
    "test_deep_latent, test_locals, test_latent_priors, test_drawing, test_binary_latents, "
    "test_latent_models, test_latent_networks",
    "lamu.data": "test_data, test_data_extras, test_batches_of_others, test_table, test_table_match, test_table_kinds",
    "lamu.scores": "test_scores, test_closeness_and_doubt, test_decisions_and_novelty, test_fidelity, test_bounds, "
    "test_latent",
    "lamu.calibration": "test_conformal, test_after_the_posterior, test_decisions_and_novelty",
    "lamu.composition": "test_composition",
    "lamu.acquire": "test_acquire",
    "lamu.mcmc": "test_metropolis, test_stochastic_samplers",
    "lamu.memory": "test_memory",
    "lamu.priors": "laws/priors, laws/scale_laws, test_priors, test_hierarchical, test_correlated_priors, "
    "test_jeffreys",
    "lamu.batch_statistics": "test_statistics",
    "lamu.sklearn": "test_sklearn",
    "lamu.supports": "test_supports",
    "lamu.testing": "test_testing",
    "lamu.divergences": "test_divergences",
    "lamu.limits": "test_limits",
    "lamu.networks": "laws/protocol, test_model, test_networks, test_network_state, test_dropout, test_arrived, "
    "test_torch, test_sequences, test_dense_prediction, test_augmented, test_architectures, "
    "test_low_rank_adapter, test_safetensors, test_latent_networks",
    "lamu.plots": "test_plots",
    "lamu.trackers": "test_trackers",
    "lamu.presets": "test_presets",
    "lamu.programs": "test_numpyro_programs, test_program_messages",
    "lamu.protocol": "laws/protocol, test_wrappers",
    "lamu.rate": "laws/protocol, test_rate",
    "lamu.predictives": "laws/posteriors, test_predictives, test_conjugate, test_targets_by_name, "
    "test_program_predictions",
    "lamu.rule": "laws/rule, laws/protocol",
    "lamu.tree": "test_record, test_tree",
}
WITHOUT_INPUTS = ("cvi", "em", "ncvmp", "svi", "vmp")  # of conjugate models (laws/observations), graphs and programs
RECIPES = {**lamu.algorithms.registry(), **lamu.mcmc.registry()}


def public() -> dict[str, Any]:
    """Every class and function that the door or one of its packages lists."""
    found = {f"lamu.{name}": getattr(lamu, name) for name in lamu.__all__}
    for package in PACKAGES:
        found |= {f"{package.__name__}.{name}": getattr(package, name) for name in package.__all__}
    return {name: value for name, value in found.items() if inspect.isclass(value) or inspect.isroutine(value)}


PUBLIC = public()


def methods(cls: type) -> list[str]:
    return [
        name
        for name, value in vars(cls).items()
        if name[0] != "_" and (inspect.isroutine(value) or isinstance(value, property | classmethod | staticmethod))
    ]


def needs_no_example(value: Any) -> bool:
    """Protocols and abstract bases are shown by those who keep them; an error by what raises it."""
    protocol = inspect.isclass(value) and getattr(value, "_is_protocol", False)
    return protocol or inspect.isabstract(value) or (inspect.isclass(value) and issubclass(value, BaseException))


@for_each("package", [lamu, *PACKAGES])
def test_packages_say_what_they_are_and_list_what_they_hold(package: ModuleType) -> None:
    assert package.__doc__
    assert len(package.__all__) == len(set(package.__all__))
    for name in package.__all__:
        assert hasattr(package, name), f"{package.__name__}.__all__ lists {name!r}, which is not there"


@for_each("name", PUBLIC)
def test_public_names_are_documented_with_an_example(name: str) -> None:
    value, text = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    assert text.split("\n")[0].strip(), f"{name} has no summary"
    if inspect.isclass(value):
        assert value.__doc__ != object.__doc__
        assert not text.startswith(f"{value.__name__}("), f"{name} has the signature for a docstring"
        for method in methods(value):
            assert inspect.getdoc(inspect.getattr_static(value, method)), f"{name}.{method} is undocumented"
    if not needs_no_example(value):
        assert "Example" in text, f"{name} shows no example"
        assert ">>>" in text


@for_each("name", [name for name, value in PUBLIC.items() if inspect.isfunction(value)])
def test_functions_name_their_arguments(name: str) -> None:
    """A function of two arguments or more has an Args section, which names each of them."""
    text, arguments = inspect.getdoc(PUBLIC[name]) or "", list(inspect.signature(PUBLIC[name]).parameters)
    if len(arguments) > 1 and name.split(".")[1] != "tree":
        assert "Args:" in text, f"{name} has no Args"
        for argument in arguments:
            assert f"{argument}:" in text, f"{name} does not say what {argument} is"


@for_each("name", RECIPES)
def test_recipes_state_rule_departures_cost_and_source(name: str) -> None:
    text = inspect.getdoc(RECIPES[name].factory) or ""
    assert "\\[" in text or "\\(" in text, "no equation"
    assert "Departures from the rule" in text
    assert "Source:" in text
    assert "Returns:" in text
    assert "gradient" in text or "Jacobian" in text, "what a step costs"
    arguments = inspect.signature(RECIPES[name].factory).parameters
    assert not arguments or "Args:" in text
    assert all(f"{argument}:" in text for argument in arguments)
    assert all(p.default is not inspect.Parameter.empty for p in arguments.values()), (
        "a recipe is made without arguments"
    )
    assert RECIPES[name].source


@for_each("name", RECIPES)
def test_recipes_are_in_the_laws(name: str) -> None:
    from tests.laws import mcmc, posteriors, protocol, recipes  # noqa: F401  (they register their rows)
    from tests.laws.harness import ROWS

    rows = {(row.kind, row.name.split(" of ")[0]) for row in ROWS}
    assert ("protocol", name) in rows
    assert ("posteriors", name) in rows or name in WITHOUT_INPUTS


def test_every_public_name_is_tested_by_name() -> None:
    """In a law file, or, for what is no floor of mathematics, in a test of its own."""
    laws = "\n".join(path.read_text() for path in sorted(LAWS.glob("*.py")))
    others = "\n".join(path.read_text() for path in sorted(LAWS.parent.glob("**/test_*.py")))
    for name in PUBLIC:
        package, short = name.rsplit(".", 1)
        text = laws + (others if package in TESTED_ELSEWHERE else "")
        if getattr(PUBLIC[name], "_is_protocol", False) or short == "registry":
            text = laws + others
        assert short in text, f"{name} is in no law"


def test_annotations_of_the_public_api_are_real() -> None:
    for name, value in PUBLIC.items():
        if inspect.isfunction(value):
            hints = typing.get_type_hints(value, vars(importlib.import_module(value.__module__)))
            assert "return" in hints, f"{name} does not say what it returns"


class Docstring(NamedTuple):
    """The docstring of a module, or of a class or function by its name in its module."""

    module: str
    name: str
    text: str


def docstrings(module: str, tree: ast.Module) -> list[Docstring]:
    """All docstrings of a file."""
    found, waiting = [], [("", tree)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            found.append(Docstring(module, name, text))
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.ClassDef | ast.FunctionDef)
            waiting.append((f"{name}.{child.name}".lstrip(".") if named else name, child))
    return found


def written() -> list[Docstring]:
    """All docstrings of the source."""
    found = []
    for path in sorted((SOURCE / "lamu").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found += docstrings(module, ast.parse(path.read_text(encoding="utf-8")))
    return found


def faces() -> set[str]:
    """The modules that hand names out: `lamu`, what it lists, and the modules that a page shows."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    found, waiting = set(), ["lamu", *re.findall(r"^::: ([\w.]+)", "\n".join(pages), re.MULTILINE)]
    while waiting:
        face = waiting.pop()
        if face not in found:
            found.add(face)
            module = importlib.import_module(face)
            parts = [getattr(module, name) for name in module.__all__]
            waiting += [part.__name__ for part in parts if isinstance(part, ModuleType) and hasattr(part, "__all__")]
    return found


def bare(value: Any) -> Any:
    """The function behind a property, a class method or a decorator."""
    value = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
    return inspect.unwrap(value)


def handed_out() -> set[tuple[str, str]]:
    """Module and name of every class and function of a face, and of every method that these classes have."""
    values = [getattr(importlib.import_module(face), name) for face in faces() for name in sys.modules[face].__all__]
    values += [recipe.factory for recipe in RECIPES.values()]
    values = [value if hasattr(bare(value), "__qualname__") else type(value) for value in values]
    found = {(bare(value).__module__, bare(value).__qualname__) for value in values}
    for cls in [value for value in values if inspect.isclass(value)]:
        documented = next((base for base in cls.__mro__ if vars(base).get("__doc__")), cls)
        found.add((documented.__module__, documented.__qualname__))
        for name in dir(cls):
            holder = next((base for base in cls.__mro__ if name in vars(base)), cls)
            found.add((holder.__module__, f"{holder.__qualname__}.{name}"))
    return found


def test_inner_names_have_a_summary_alone() -> None:
    """What no face hands out is read beside its code: reasons and equations stand there, as comments."""
    public, shown = handed_out(), faces()
    inner = [d for d in written() if (d.module, d.name) not in public and d.module not in HELP]
    long = [f"{d.module} {d.name}".strip() for d in inner if "\n\n" in d.text and (d.name or d.module not in shown)]
    assert not long, "\n".join(["make these docstrings their summary, and the reasons in them comments:", *long])


def test_the_check_sees_long_docstrings_of_inner_names() -> None:
    text = 'class A:\n    if True:\n        def f(self):\n            """One.\n\n            Two.\n            """\n'
    assert docstrings("lamu.a", ast.parse(text)) == [Docstring("lamu.a", "A.f", "One.\n\nTwo.")]
    assert {("lamu.rule", "Rule"), ("lamu.rule", "Rule.choices"), ("lamu.loop", "fit")} <= handed_out()
    assert ("lamu.rule", "_plus") not in handed_out()


def written_methods() -> list[tuple[type, str, Any]]:
    """The methods and properties that the classes of all modules define, without private classes."""
    names = [found.name for found in pkgutil.walk_packages(lamu.__path__, "lamu.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    classes = [(m, cls) for m in modules for cls in vars(m).values() if inspect.isclass(cls) and cls.__name__[0] != "_"]
    found = [(m, cls, name, bare(vars(cls)[name])) for m, cls in classes for name in methods(cls)]
    return [
        (cls, name, function)
        for module, cls, name, function in found
        if isinstance(function, FunctionType)
        and (function.__module__, function.__qualname__) == (module.__name__, f"{cls.__qualname__}.{name}")
    ]


def test_all_methods_are_documented_or_inherit() -> None:
    """An overriding method inherits its docstring, and has one of its own only where that says more."""
    missing, repeated = [], []
    for cls, name, function in written_methods():
        theirs = [bare(vars(base)[name]).__doc__ for base in cls.__mro__[1:] if name in vars(base)]
        if not function.__doc__ and not any(theirs):
            missing.append(f"{cls.__module__}.{function.__qualname__}")
        inherits = isinstance(vars(cls)[name], FunctionType | property)  # `inspect.getdoc` follows these alone
        if inherits and function.__doc__ and function.__doc__ in theirs:
            repeated.append(f"{cls.__module__}.{function.__qualname__}")
    assert not missing, f"undocumented: {missing}"
    assert not repeated, f"the docstring of the base once more: {repeated}"
