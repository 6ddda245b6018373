"""BibTeX entries of the algorithms' sources."""

import re

import pytest

import lamu
from lamu.cli.listing import bibtex_entries, cite
from tests.for_each import for_each

RECIPES = {**lamu.algorithms.registry(), **lamu.mcmc.registry()}
WITHOUT_A_PAPER = {"map_estimate"}


@for_each("name", RECIPES)
def test_each_algorithm_names_papers_that_have_an_entry(name):
    source = RECIPES[name].source
    entries = bibtex_entries(source)
    years = re.findall(r"\b(?:19|20)\d\d\b", source)
    assert len(entries) == len(set(years)) or len(entries) == len(years)
    assert bool(entries) != (name in WITHOUT_A_PAPER)
    for key, entry in entries.items():
        assert re.fullmatch(r"@\w+\{" + key + r",\n(  \w+ = \{.*\},\n)+\}", entry), entry


def test_the_command_prints_the_algorithm_and_the_rule(capsys):
    cite("ivon")
    printed = capsys.readouterr().out
    assert "Variational Learning is Effective" in printed
    assert "Learning Rule" in printed
    with pytest.raises(ValueError, match="ivon"):
        cite("ivom")
