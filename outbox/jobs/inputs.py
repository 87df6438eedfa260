"""What a run is produced from: one canonical form, one hash, and what differs. Pure.

The same inputs must give the same hash on every machine and in every release, or a complete
run would be called changed. So only plain JSON values are taken, members are sorted, and the
hash carries the version of this form.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from outbox.characters import check_line
from outbox.errors import InvalidMessage
from outbox.records_runs import Inputs
from outbox.shapes import is_list, kind, member

FORM: Final = "1"
INPUT_CHARACTERS: Final = 64_000
"""Of inputs in canonical JSON: they are stored, so that a change can be named."""

_VERSION_CHARACTERS: Final = 255
_SHOWN_CHARACTERS: Final = 40
_SHOWN_FIELDS: Final = 3


def inputs_of(given: Mapping[str, Any] | None, version: str | None) -> Inputs:
    """``given`` and ``version`` in canonical form. Nothing given is an empty object.

    Raises InvalidMessage with the path of what JSON cannot hold in one way only (a set, a
    date, NaN), or when it is more than 64,000 characters: pass a checksum as the version.
    """
    plain = _plain("inputs", {} if given is None else given)
    if not isinstance(plain, dict):
        raise InvalidMessage("inputs", f"is {kind(given)}, not an object")
    text = _json(plain)
    if len(text) > INPUT_CHARACTERS:
        raise InvalidMessage(
            "inputs",
            f"has {len(text):,} characters; at most {INPUT_CHARACTERS:,}: "
            "pass a checksum of it as input_version instead",
        )
    if version is not None and not check_line("input_version", version, _VERSION_CHARACTERS):
        raise InvalidMessage("input_version", "is empty; leave it out instead")
    whole = _json({"inputs": plain, "version": version})
    return Inputs(f"{FORM}:{hashlib.sha256(whole.encode()).hexdigest()}", text, version)


def short(hash_: str) -> str:
    """The beginning of a hash, for people."""
    return f"{hash_.partition(':')[2][:4]}…"


def differing(was: Inputs, now: Inputs) -> tuple[str, ...]:
    """The names of the inputs that differ; ``input_version`` is one of them."""
    before, after = json.loads(was.text), json.loads(now.text)
    names = [n for n in sorted({*before, *after}) if _shown(before, n) != _shown(after, n)]
    return (*names, *(["input_version"] if was.version != now.version else []))


def described(inputs: Inputs, fields: tuple[str, ...]) -> str:
    """Those of ``fields`` that ``inputs`` has, as ``"rules": "v6"``; at most three."""
    values = json.loads(inputs.text)
    parts = [
        f"input_version {_cut(_json(inputs.version))}"
        if name == "input_version" and name not in values
        else f"{_json(name)}: {_cut(_shown(values, name))}"
        for name in fields[:_SHOWN_FIELDS]
    ]
    return ", ".join([*parts, *(["…"] if len(fields) > _SHOWN_FIELDS else [])])


def _shown(values: Mapping[str, Any], name: str) -> str:
    return _json(values[name]) if name in values else "missing"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _json(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def _plain(field: str, value: object) -> object:
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise InvalidMessage(field, f"is {value}, which JSON cannot hold")
            return float(value)
        case str():
            return _text(field, value)
        case Mapping():
            return {_name(field, k): _plain(member(field, k), v) for k, v in value.items()}
        case _ if is_list(value):
            return [_plain(f"{field}[{n}]", each) for n, each in enumerate(value)]
        case _:
            raise InvalidMessage(field, f"is {kind(value)}; use text, numbers, lists and objects")


def _name(field: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidMessage(field, f"has a name that is {kind(name)}, not text")
    return _text(field, name)


def _text(field: str, text: str) -> str:
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise InvalidMessage(field, "holds NUL or half of a surrogate pair")
    return str.__str__(text)
