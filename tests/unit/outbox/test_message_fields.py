"""Headers, unsubscribe targets and provider options: their rules and their normal form."""

from __future__ import annotations

from typing import Any

import pytest

from outbox.errors import InvalidMessage
from outbox.message import (
    Email,
    Unsubscribe,
    fingerprint,
)
from tests.unit.outbox.emails import json_refusal, refusal


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("From", "use the field from"),
        ("to", "use the field to"),
        ("CC", "use the field cc"),
        ("Bcc", "use the field bcc"),
        ("X-Private-BCC", "use the field bcc"),
        ("Resent-Bcc", "this is no resent message"),
        ("Resent-To", "this is no resent message"),
        ("Subject", "use the field subject"),
        ("Date", "derived from the delivery"),
        ("Message-Id", "derived from the delivery"),
        ("MIME-Version", "the renderer writes it"),
        ("Content-Type", "the renderer writes it"),
        ("Content-Anything", "the renderer writes it"),
        ("Return-Path", "the server writes it"),
        ("Received", "the server writes it"),
        ("Sender", "settings say who sends"),
        ("Reply-To", "use the field reply_to"),
        ("List-Unsubscribe", "use the field list_unsubscribe"),
        ("List-Unsubscribe-Post", "use the field list_unsubscribe"),
        ("Auto-Submitted", "use the field auto_submitted"),
    ],
)
def test_headers_of_our_own_are_refused(name: str, cure: str) -> None:
    """A header that a field or the renderer writes cannot be set beside it (B12)."""
    for given in ({name: "x"}, [(name, "x")]):
        error = refusal(headers=given)
        assert error.field == f'headers["{name}"]'
        assert cure in error.problem


@pytest.mark.parametrize("name", ["", "X Foo", "X:Foo", "X-Füß", "X\tFoo", "X-Foo:", "x" * 77])
def test_header_names_follow_their_grammar(name: str) -> None:
    """A header name is visible ASCII without a colon, at most 76 characters."""
    assert refusal(headers={name: "x"}).field.startswith("headers[")


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"X-A": "1", "x-a": "2"}, 'headers["x-a"]: stands there twice'),
        ([("References", "<a@b>"), ("references", "<c@d>")], 'headers["references"]: stands'),
        ([("X-A",)], "headers[0]: is not a pair of name and value"),
        (["ab"], "headers[0]: is not a pair of name and value"),
        ([("X-A", 5)], 'headers["X-A"]: is a number, not text'),
        ([(5, "x")], "headers[a number]: is no header name"),
        ("X-A: 1", "headers: is text, not an object or a list of pairs"),
        ({"X-A": "v" * 8193}, 'headers["X-A"]: has 8,193 characters; at most 8,192'),
        ([("X-A", "")] * 101, "headers: has 101 headers; at most 100"),
    ],
)
def test_headers_that_cannot_be_are_refused(headers: Any, error: str) -> None:
    """Repeated names in a mapping, odd shapes and sizes are refused."""
    assert str(refusal(headers=headers)).startswith(error)


def test_pairs_keep_order_and_repetition_and_a_mapping_has_none() -> None:
    """Header pairs stay as given; a mapping is sorted, since JSON objects have no order."""
    pairs = (("X-B", "1"), ("X-A", "2"), ("X-B", "3"))
    assert Email("ana@example.org", text="x", headers=pairs).headers == pairs
    one = Email("ana@example.org", text="x", headers={"X-b": "1", "X-A": "2"})
    other = Email("ana@example.org", text="x", headers={"X-A": "2", "X-b": "1"})
    assert one.headers == (("X-A", "2"), ("X-b", "1"))
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"urls": []}, "urls: is not a list with at least one URL"),
        ({"urls": "https://example.com"}, "urls: is not a list with at least one URL"),
        (
            {"urls": ["http://example.com/u"]},
            'urls[0]: "http://example.com/u" is not an https: URL',
        ),
        ({"urls": ["https:///u"]}, "urls[0]: "),
        ({"urls": ["https://[x/"]}, "urls[0]: "),
        ({"urls": ["mailto:"]}, "urls[0]: "),
        ({"urls": ["mailto:u@"]}, "urls[0]: "),
        ({"urls": ["https://example.com/a b"]}, "urls[0]: "),
        ({"urls": ["https://example.com/>,<x"]}, "urls[0]: "),
        ({"urls": ["https://example.com/é"]}, "urls[0]: "),
        ({"urls": ["https://example.com/\r\nBcc: x"]}, "urls[0]: contains a carriage return"),
        ({"urls": ["https://e.com/" + "x" * 2048]}, "urls[0]: has 2,062 characters"),
        ({"urls": ["mailto:u@example.com"] * 11}, "urls: has 11 URLs; at most 10"),
        ({"urls": ["mailto:u@example.com"], "one_click": True}, "one_click: needs an https: URL"),
        ({"urls": ["https://example.com"], "one_click": 1}, "one_click: is a number, not true"),
    ],
)
def test_unsubscribe_targets_are_checked(arguments: dict[str, Any], error: str) -> None:
    """Only https: and mailto: URLs that fit a header are taken; one click needs https."""
    with pytest.raises(InvalidMessage) as caught:
        Unsubscribe(**arguments)
    assert str(caught.value).startswith(error)
    form = {"to": "ana@example.org", "text": "x", "list_unsubscribe": arguments}
    assert str(json_refusal(form)).startswith(f"list_unsubscribe.{error}")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["resend"], "provider_options: is a list, not an object"),
        ({"Resend": {}}, 'provider_options["Resend"]: is no provider name'),
        ({5: {}}, "provider_options[a number]: is no provider name"),
        ({"resend": [1]}, 'provider_options["resend"]: is a list, not an object'),
        ({"resend": {"a": {1: 2}}}, 'provider_options["resend"]["a"][a number]: has a name'),
        ({"resend": {"a": {1}}}, 'provider_options["resend"]["a"]: is of type set, which JSON'),
        ({"resend": {"a": b"x"}}, 'provider_options["resend"]["a"]: is bytes, which JSON'),
        ({"resend": {"a": float("nan")}}, 'provider_options["resend"]["a"]: is not a finite'),
        ({"resend": {"a": float("inf")}}, 'provider_options["resend"]["a"]: is not a finite'),
        ({"resend": {"a": 2**63}}, 'provider_options["resend"]["a"]: is a whole number of more'),
        ({"resend": {"a": "x" * 70_000}}, 'provider_options["resend"]["a"]: has 70,000 bytes'),
        ({"resend": {"a": ["x" * 40_000] * 2}}, "provider_options: has 80,"),
    ],
)
def test_provider_options_are_json(options: Any, error: str) -> None:
    """Provider options are JSON objects by provider name, bounded in size."""
    assert str(refusal(provider_options=options)).startswith(error)


def test_provider_options_may_not_be_bottomless() -> None:
    """Options that are nested too deeply, or contain themselves, are refused."""
    circle: dict[str, Any] = {}
    circle["a"] = [circle]
    assert refusal(provider_options={"resend": circle}).problem == "is nested too deeply"
