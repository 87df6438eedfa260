"""The same inputs have one hash, and others are told apart by name."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import pytest

from outbox.errors import InvalidMessage
from outbox.jobs.inputs import INPUT_CHARACTERS, described, differing, inputs_of


def test_order_and_kind_of_container_do_not_count() -> None:
    """Members are sorted, tuples are lists, and nothing given is an empty object."""
    first = inputs_of({"a": 1, "b": [1, {"x": None, "y": True}]}, "7")
    second = inputs_of(OrderedDict(b=(1, {"y": True, "x": None}), a=1), "7")
    assert first == second
    assert inputs_of(None, None) == inputs_of({}, None)


def test_the_hash_is_stable() -> None:
    """It may never change: a complete run would be called changed after an upgrade. This is
    the SHA-256 of ``{"inputs":{"rules":"v7","url":"https://example.org/ä"},"version":"9"}``."""
    assert inputs_of({"rules": "v7", "url": "https://example.org/ä"}, "9").hash == (
        "1:35157a03e3f18fb6f6047c22d98cf7686ac0da60e5be769445ec06f197767029"
    )


@pytest.mark.parametrize(
    ("was", "now", "fields"),
    [
        ({"rules": "v6"}, {"rules": "v7"}, ("rules",)),
        ({"a": 1}, {"b": 1}, ("a", "b")),
        ({"a": 1}, {"a": 1.0}, ("a",)),
        ({"a": None}, {}, ("a",)),
        ({"a": "missing"}, {}, ("a",)),
        ({"a": [1]}, {"a": [1]}, ()),
    ],
)
def test_what_differs_is_named(
    was: dict[str, Any], now: dict[str, Any], fields: tuple[str, ...]
) -> None:
    """By the name of the input; hash and names agree on whether anything does."""
    before, after = inputs_of(was, None), inputs_of(now, None)
    assert differing(before, after) == fields
    assert (before.hash == after.hash) is (fields == ())


def test_the_version_is_an_input_too() -> None:
    """It is named like one, and its values are shown."""
    was, now = inputs_of({"a": 1}, "v1"), inputs_of({"a": 1}, "v2")
    assert differing(was, now) == ("input_version",)
    assert described(was, ("input_version",)) == 'input_version "v1"'
    assert was.hash != now.hash


def test_long_values_and_many_fields_are_cut() -> None:
    """An error line stays one line."""
    was = inputs_of({"a": "x" * 100, "b": 1, "c": {"d": 2}, "e": 3}, None)
    said = described(was, ("a", "b", "c", "e"))
    assert said == f'"a": "{"x" * 39}…, "b": 1, "c": {{"d":2}}, …'
    assert described(was, ("gone",)) == '"gone": missing'


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": {1, 2}}, "inputs.a: is of type set"),
        ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "inputs.a: is of type datetime"),
        ({"a": [float("nan")]}, r"inputs.a\[0\]: is nan"),
        ({"a": b"x"}, "inputs.a: is bytes"),
        ({1: 2}, "inputs: has a name that is a number"),
        ({"a": "\0"}, "holds NUL"),
        ([1], "inputs: is a list, not an object"),
        ({"a": "x" * INPUT_CHARACTERS}, "pass a checksum of it as input_version"),
    ],
)
def test_what_has_no_one_form_is_refused(given: Any, problem: str) -> None:
    """By the path of the value, and with what to use instead."""
    with pytest.raises(InvalidMessage, match=problem):
        inputs_of(given, None)


def test_an_empty_version_is_refused() -> None:
    """Left out and empty would be two spellings of one thing."""
    with pytest.raises(InvalidMessage, match="input_version: is empty"):
        inputs_of(None, "")
