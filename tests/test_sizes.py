"""Sizes: every constructor of a network, a latent variable or a graph refuses one that is none, in one sentence."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from lamu import graphs, latent, likelihoods, networks
from lamu.base.arguments import sized, whole_number
from lamu.graphs import models as graph_models
from lamu.latent import models as latent_models
from tests.for_each import for_each

# What is no size of a user's choice: columns as they were learned, and what has a rule of its own.
OTHERS = {
    "Columns",
    "EncodedColumns",
    "Embedded",
    "Stack",
    "BitsBack",
    "Markov",
    "GaussianChain",
    "Flows",
    "LearnedPrior",
}
GIVEN: dict[str, Any] = {
    "likelihood": likelihoods.Bernoulli(), "base": networks.Linear(), "flows": (latent.Planar(),), "nats": 0.1,
    "local": latent.Amortised(networks.MLP((4,))), "bound": latent.ELBO(), "transition": np.eye(2), "alpha": 0.5,
    "columns": networks.EncodedColumns(1, 1, 1), "encoder": networks.Linear(), "inputs": np.ones((2, 3)),
}  # fmt: skip
ONE, SEVERAL, PAIR = "int", "tuple[int, ...]", "tuple[int, int]"
GOOD = {ONE: 2, SEVERAL: (2,), PAIR: (8, 8)}
BAD: dict[str, list[Any]] = {
    ONE: [-1, 0, 2.5, True, "3", None, float("nan"), (2,)],
    SEVERAL: [(-1,), (0,), (2.5,), (True,), ("3",), "64", 64, None],
    PAIR: [(-1, 8), (0, 8), (2.5, 8), (True, 8), ("3", 8), 8, (8,)],
}


def constructors() -> dict[str, tuple[Any, dict[str, str], dict[str, Any]]]:
    """By name every public constructor with sizes, which these are, and good arguments."""
    found = {}
    for module in (latent_models, graph_models, networks, latent, graphs):
        for name in module.__all__:
            of = getattr(module, name)
            if name in OTHERS or not callable(of) or not name[0].isupper():
                continue
            parameters = inspect.signature(of).parameters.values()
            sizes = {each.name: str(each.annotation) for each in parameters if str(each.annotation) in GOOD}
            if sizes:
                needed = [each.name for each in parameters if each.default is each.empty]
                good = {each: GOOD[sizes[each]] if each in sizes else GIVEN[each] for each in needed}
                found[f"{module.__name__}.{name}"] = of, sizes, good
    return found


CONSTRUCTORS = constructors()


def test_many_constructors_have_sizes() -> None:
    assert len(CONSTRUCTORS) > 55
    assert {"lamu.latent.models.VAE", "lamu.networks.MLP", "lamu.graphs.models.Topics"} <= set(CONSTRUCTORS)


def built(of: Any, arguments: dict[str, Any]) -> Any:
    """Builds it as a user does, without the types that these tests check at the door of every class."""
    if not isinstance(of, type):
        return of(**arguments)
    value = object.__new__(of)
    for field in dataclasses.fields(of):
        object.__setattr__(value, field.name, arguments.get(field.name, field.default))
    value.__post_init__()
    return value


@for_each("name", CONSTRUCTORS)
def test_what_is_no_size_is_refused_in_one_sentence(name: str) -> None:
    of, sizes, good = CONSTRUCTORS[name]
    for argument, annotation in sizes.items():
        for bad in BAD[annotation]:
            with pytest.raises((ValueError, TypeError)) as caught:
                built(of, {**good, argument: bad})
            message = str(caught.value)
            inner = bad[0] if isinstance(bad, tuple) else bad
            assert repr(bad) in message or repr(inner) in message, (argument, bad, message)
            assert "\n" not in message
            assert len(message) < 250


def test_the_sentence_quotes_the_value_and_names_the_fix() -> None:
    with pytest.raises(ValueError, match=r"^VAE has latents=-1; give a whole number from 1$"):
        latent_models.VAE(-1, 3)
    with pytest.raises(ValueError, match=r"^GRU has widths='64'; give whole numbers from 1, for instance \(64,\)$"):
        built(networks.GRU, {"widths": "64"})
    assert sized(lambda width: width)(0) == 0  # which is annotated as nothing


@pytest.mark.parametrize("samples", [2.5, 0, -1, True, "3", None, float("nan")])
def test_a_number_of_samples_is_a_whole_number_from_one(samples):
    """A share was taken in silence by predictions that need no draws."""
    with pytest.raises(ValueError, match=re.escape(f"samples={samples!r} cannot be averaged; give a whole")):
        whole_number("samples", samples, problem="cannot be averaged")


@pytest.mark.parametrize("samples", [2, np.int64(2), jnp.int32(2)])
def test_a_number_of_samples_may_be_one_of_numpy(samples):
    assert type(whole_number("samples", samples, problem="cannot be averaged")) is int
