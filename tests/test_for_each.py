"""Checks of many values in one case name all that fail, and are not passed over."""

from __future__ import annotations

import pytest

from tests.for_each import for_each


def test_all_values_that_fail_are_named(tmp_path) -> None:
    seen = []

    @for_each("one, other", [("a", 1), ("b", 2), ("c", 3)])
    def check(one, tmp_path, other) -> None:
        seen.append((one, other, tmp_path))
        assert other % 2, "even"
        assert one != "c", {}["lost"]

    with pytest.raises(AssertionError, match="2 of 3 fail:") as caught:
        check(tmp_path=tmp_path)
    lines = str(caught.value).splitlines()
    assert any(line.startswith("b, 2: AssertionError: even") for line in lines)
    assert any(line.startswith("c, 3: KeyError: 'lost'") for line in lines)
    assert seen == [("a", 1, tmp_path), ("b", 2, tmp_path), ("c", 3, tmp_path)]


@for_each("value", [0, 1])
def test_a_value_is_passed_without_a_fixture(value) -> None:
    assert value in {0, 1}


def test_a_check_that_does_not_raise_is_named() -> None:
    @for_each("value", ["a", "1"])
    def check(value) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(value)

    with pytest.raises(AssertionError, match="1: Failed: DID NOT RAISE"):
        check()


def test_no_values_are_refused() -> None:
    with pytest.raises(AssertionError, match="no value"):
        for_each("value", [])(lambda value: None)
