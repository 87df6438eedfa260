"""The identity of a run as text, and the keys of its deliveries. Pure.

A run key names the business operation: job, subject, period, kind, revision. Two different
runs must never share one, or the second would be "complete" before it began, and its mail
would never leave. So the parts are joined by the grammar of delivery keys
(:func:`outbox.key`), and each has its place: the third part is always the label, a kind has a
word of its own after it, and a delivery is named by exactly one more part.

=============================== =================================================
a period                        ``website-audit:site-42:2026-W48``
its second revision             ``website-audit:site-42:2026-W48:r2``
a backfill of it                ``website-audit:site-42:2026-W48:backfill``
a row for a range of periods    ``website-audit:site-42:2026-W40..2026-W47:skipped``
a delivery named ``owner``      ``website-audit:site-42:2026-W48:owner``
=============================== =================================================
"""

from __future__ import annotations

from outbox.errors import InvalidKey
from outbox.keys import key as joined
from outbox.limits_jobs import (
    JOB_CHARACTERS,
    LABEL_CHARACTERS,
    RUN_KEY_CHARACTERS,
    SUBJECT_CHARACTERS,
)
from outbox.states_jobs import RunKind

EVERYTHING = "all"
"""The subject of a job that has none."""

_WORDS = {
    RunKind.PERIOD: (),
    RunKind.LABEL: (),
    RunKind.BACKFILL: ("backfill",),
    RunKind.RANGE: ("skipped",),
}


def run_key(
    job: str, subject: str, label: str, *, kind: RunKind = RunKind.PERIOD, revision: int = 1
) -> str:
    """The key of a run.

    Raises InvalidKey if a part is empty, too long or no text, or if the key has more than 200
    characters: its deliveries need room for their names.
    """
    for name, part, most in (
        ("job", job, JOB_CHARACTERS),
        ("subject", subject, SUBJECT_CHARACTERS),
        ("label", label, LABEL_CHARACTERS),
    ):
        if len(part) > most:
            raise InvalidKey(f"the {name} of a run has {len(part)} characters; at most {most}")
    revised = (f"r{revision}",) if revision > 1 else ()
    key = joined(job, subject, label, *_WORDS[kind], *revised)
    if len(key) > RUN_KEY_CHARACTERS:
        raise InvalidKey(
            f"the run key {key[:60]}… has {len(key)} characters; at most {RUN_KEY_CHARACTERS}, "
            "so that its deliveries have room for a name"
        )
    return key


def delivery_key(run_key: str, name: str | int) -> str:
    """The key of the delivery that a run calls ``name``. Raises InvalidKey for a bad name."""
    return f"{run_key}:{joined(name)}"
