"""pydantic's findings in our words: one line each, with the key's path and what to write.

Values are shown only where they cannot be a secret: a key in the wrong place
may hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dispatcher.config_file import Document, KeyPath, Problem, dotted
from providers.settings import format_duration

M = TypeVar("M", bound=BaseModel)


def validated(
    model: type[M],
    data: Any,
    path: KeyPath,
    document: Document,
    *,
    also: Iterable[str] = (),
) -> tuple[M | None, list[Problem]]:
    """``data`` as ``model``, and what is wrong with it.

    path: where ``data`` stands in the document.
    also: keys that are allowed there and checked by somebody else.
    """
    if not isinstance(data, Mapping):
        return None, [problem(document, path, f"is not a table: write [{dotted(path)}]")]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        known = [*keys_of(model), *also]
        found: dict[KeyPath, Problem] = {}
        for details in error.errors(include_url=False):
            inner = _existing(details, data)
            where = (*path, *inner)
            names = _keys_at(model, inner[:-1]) if len(inner) > 1 else known
            found.setdefault(where, problem(document, where, _text(details, inner, names)))
        return None, list(found.values())


def problem(document: Document, path: KeyPath, text: str) -> Problem:
    """A problem at ``path``, with the variable that set it, if one did."""
    return Problem(dotted(path), text, document.variable(path))


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that nobody knows."""
    names = sorted(known)
    if close := get_close_matches(key, names, n=1, cutoff=0.6):
        return f'is not a known key: did you mean "{close[0]}"?'
    return f"is not a known key: known are {', '.join(names)}"


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys of a model, as they are written in the file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys of the table at ``path`` inside ``model``."""
    for part in path:
        field = next((f for n, f in model.model_fields.items() if (f.alias or n) == part), None)
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return keys_of(model)


def _existing(details: ErrorDetails, data: Any) -> KeyPath:
    """The part of a location that is a path in the file; pydantic adds names of its own
    (the branch of a union) after it."""
    path: list[str | int] = []
    for part in details["loc"]:
        if isinstance(data, Mapping):
            path.append(part)
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            path.append(part)
            data = data[part] if part < len(data) else None
        else:
            break
    return tuple(path)


def _text(details: ErrorDetails, path: KeyPath, known: Iterable[str]) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        return unknown_key(str(path[-1]), known)
    if kind == "value_error":
        return str(details.get("ctx", {}).get("error", details["msg"]))
    return _TEXTS.get(kind, _otherwise)(details)


def _otherwise(details: ErrorDetails) -> str:
    return details["msg"][:1].lower() + details["msg"][1:]


def _limit(name: str, words: str) -> Callable[[ErrorDetails], str]:
    def text(details: ErrorDetails) -> str:
        limit = details["ctx"][name]
        return f"is {_number(details['input'], limit)}; {words} {_number(limit, limit)}"

    return text


def _number(value: Any, like: Any) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(like, str | timedelta) or isinstance(value, int | float):
        return str(value)
    return "out of range"


def _choice(details: ErrorDetails) -> str:
    expected = str(details["ctx"]["expected"])
    return "is not one of " + expected.replace(" or ", ", ").replace("'", '"')


def _says(text: str) -> Callable[[ErrorDetails], str]:
    return lambda _: text


_NOT_WHOLE = _says("is not a whole number")
_NOT_A_TABLE = _says("is not a table: write { key = value }")

_TEXTS: Mapping[str, Callable[[ErrorDetails], str]] = {
    "missing": _says("is missing"),
    "string_type": _says("is not text: write it in quotes"),
    "int_type": _NOT_WHOLE,
    "int_parsing": _NOT_WHOLE,
    "int_from_float": _NOT_WHOLE,
    "bool_type": _says("is neither true nor false"),
    "bool_parsing": _says("is neither true nor false"),
    "float_type": _says("is not a number"),
    "float_parsing": _says("is not a number"),
    "path_type": _says("is not a path: write it in quotes"),
    "list_type": _says("is not a list: write [ ... ]"),
    "tuple_type": _says("is not a list: write [ ... ]"),
    "dict_type": _NOT_A_TABLE,
    "model_type": _NOT_A_TABLE,
    "model_attributes_type": _NOT_A_TABLE,
    "enum": _choice,
    "literal_error": _choice,
    "greater_than_equal": _limit("ge", "at least"),
    "greater_than": _limit("gt", "more than"),
    "less_than_equal": _limit("le", "at most"),
    "less_than": _limit("lt", "less than"),
}
