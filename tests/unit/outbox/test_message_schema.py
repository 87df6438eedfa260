"""The published JSON Schema says the same as the code that reads messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from outbox import message
from outbox.errors import InvalidMessage
from outbox.message import Email, StoredMessage
from outbox.message_schema import MESSAGE_SCHEMA, message_schema

VALIDATOR = Draft202012Validator(message_schema())
GOOD: dict[str, Any] = {"to": "ana@example.org", "text": "x"}


def test_the_schema_is_a_valid_schema() -> None:
    """The schema follows draft 2020-12 and is JSON."""
    Draft202012Validator.check_schema(MESSAGE_SCHEMA)
    assert json.loads(json.dumps(MESSAGE_SCHEMA)) == MESSAGE_SCHEMA


def test_the_schema_is_handed_out_as_a_copy() -> None:
    """Changing the schema one got changes nobody else's."""
    message_schema()["properties"].clear()
    assert message_schema() == MESSAGE_SCHEMA
    assert MESSAGE_SCHEMA["properties"]


def test_every_field_is_in_the_schema_and_described() -> None:
    """The schema names exactly the members that are read, each with a description."""
    assert tuple(MESSAGE_SCHEMA["properties"]) == message._MEMBERS
    assert all(field["description"] for field in MESSAGE_SCHEMA["properties"].values())


@pytest.mark.parametrize("example", MESSAGE_SCHEMA["examples"])
def test_the_examples_are_messages(example: dict[str, Any]) -> None:
    """Each example is valid and is read as a message, from JSON and from a row."""
    VALIDATOR.validate(example)
    email = Email.from_json(example)
    assert StoredMessage.parse(json.dumps(example)).canonical() == email.to_json()
    VALIDATOR.validate(json.loads(email.to_json()))


@pytest.mark.parametrize("example", MESSAGE_SCHEMA["$defs"]["mailbox"]["examples"])
def test_the_examples_of_a_mailbox_are_mailboxes(example: Any) -> None:
    """Each example of a mailbox is valid and is read."""
    document = {**GOOD, "to": [example]}
    VALIDATOR.validate(document)
    assert len(Email.from_json(document).to) == 1


@pytest.mark.parametrize("name", list(MESSAGE_SCHEMA["properties"]))
@pytest.mark.parametrize("value", [5, True, {"unknown": 1}, [[]]])
def test_a_wrong_type_is_refused_by_both(name: str, value: Any) -> None:
    """A value of another structure is refused by the schema and by the code."""
    _refused_by_both({**GOOD, name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"subjct": "x"},
        {"from_": "ana@example.org"},
        {"to": None},
        {"text": None},
        {"to": {"name": "Ana"}},
        {"to": {"address": "ana@example.org", "nam": "Ana"}},
        {"to": [""]},
        {"subject": "s" * 999},
        {"headers": [["X-A"]]},
        {"headers": [["X-A", "1", "2"]]},
        {"headers": {"X-A": None}},
        {"headers": {"": "x"}},
        {"attachments": [{"filename": "a"}]},
        {"attachments": [{"sha256": "0" * 64}]},
        {"attachments": [{"sha256": "X" * 64, "size": 1}]},
        {"attachments": [{"sha256": "0" * 64, "size": -1}]},
        {"attachments": [{"content": "YQ==", "path": "x"}]},
        {"attachments": [{"content": 5}]},
        {"tags": [""]},
        {"tags": ["x"] * 51},
        {"metadata": {"a": 1}},
        {"metadata": {"": "x"}},
        {"provider_options": {"Resend": {}}},
        {"provider_options": {"resend": 1}},
        {"list_unsubscribe": {"urls": []}},
        {"list_unsubscribe": {"urls": ["https://example.com"], "one_click": 1}},
        {"list_unsubscribe": {"one_click": True}},
        {"auto_submitted": "no"},
    ],
)
def test_a_wrong_structure_is_refused_by_both(change: dict[str, Any]) -> None:
    """Unknown and missing members and sizes are refused by the schema and by the code."""
    document = {**GOOD, **change}
    _refused_by_both({name: value for name, value in document.items() if value is not None})


def _refused_by_both(document: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(InvalidMessage):
        Email.from_json(document)
    with pytest.raises(InvalidMessage):
        StoredMessage.parse(json.dumps(document))
