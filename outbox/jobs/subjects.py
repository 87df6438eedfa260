"""What a run of a declared job is about: usually a customer, with a time zone of its own. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from outbox.jobs.errors import InvalidJob
from outbox.jobs.inputs import inputs_of
from outbox.limits_jobs import SUBJECT_CHARACTERS
from outbox.shapes import kind, shown

_OWN: Final = ("id", "timezone", "attributes")


@dataclass(frozen=True, slots=True)
class Subject:
    """One subject of a job, as the job's function sees it.

    id: its name, part of the run key. timezone: an IANA name; None: that of the job's rule.
    attributes: what the function has to know of it, plain JSON values, also readable as
      attributes of the subject itself (``run.subject.url``). They are stored: no secrets.
    """

    id: str
    timezone: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _OWN:
            raise AttributeError(name)
        try:
            return self.attributes[name]
        except KeyError:
            raise AttributeError(
                f"the subject {shown(self.id)} has no attribute {name}; it has "
                f"{', '.join(sorted(self.attributes)) or 'none'}"
            ) from None

    def __str__(self) -> str:
        return self.id


def subject_of(given: object) -> Subject:
    """A subject from what a job's ``subjects`` function yields: a Subject, a text, a number.

    Raises InvalidJob for anything else, InvalidMessage for attributes that JSON cannot hold.
    """
    if isinstance(given, Subject):
        checked(given)
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str):
        raise InvalidJob(f"a subject is {kind(given)}; yield a Subject, a text or a whole number")
    return checked(Subject(given))


def checked(subject: Subject) -> Subject:
    """``subject``. Raises InvalidJob or InvalidMessage if it cannot be stored."""
    if not 0 < len(subject.id) <= SUBJECT_CHARACTERS:
        raise InvalidJob(f"a subject's id is text of 1 to {SUBJECT_CHARACTERS} characters")
    for name in subject.attributes:
        if name in _OWN:
            raise InvalidJob(f"subject {shown(subject.id)}: call the attribute {name} otherwise")
    attributes_text(subject)
    return subject


def attributes_text(subject: Subject) -> str:
    """The attributes as canonical JSON. Raises InvalidMessage for what JSON cannot hold."""
    return inputs_of(subject.attributes, None).text


def attributes_of(text: str) -> Mapping[str, Any]:
    """Attributes as they were stored."""
    found: Mapping[str, Any] = json.loads(text)
    return found
