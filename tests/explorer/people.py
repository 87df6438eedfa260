"""An operator at work: the real table of verbs, and the real writes.

``send-again`` and ``move`` are left out: the first makes a second delivery, the second needs a
second account.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from sqlalchemy import Connection

from dispatcher.config import Config
from dispatcher.doubt import Means
from dispatcher.verb_facts import subject_of
from dispatcher.verb_subjects import Act, Wish
from dispatcher.verbs import Doing, decide
from outbox.states import FailedReason, RecipientResult
from outbox.store import verb_writes, verbs
from outbox.store.reads import database_now
from tests.explorer.world import World

ACTS = tuple(act for act in Act if act not in {Act.SEND_AGAIN, Act.MOVE})
OVERRULING = frozenset({Act.RETRY, Act.RELEASE, Act.SETTLE_NOT_ACCEPTED})
"""After these an earlier cancel is no longer what people want."""


def true(act: Act, world: World) -> bool:
    """Whether a person who knows the truth could type it."""
    doubtful = {RecipientResult.IN_DOUBT, RecipientResult.HELD}
    taken = {
        bool(world.truth.of(recipient["position"]))
        for recipient in world.rows.of("recipients")
        if recipient["result"] in doubtful
    }
    match act:
        case Act.SETTLE_ACCEPTED:
            return taken == {True}
        case Act.SETTLE_NOT_ACCEPTED:
            return taken == {False}
        case _:
            return True


def act(connection: Connection, wanted: Act, id_: int, means: Means) -> bool:
    """Type a verb; whether it did anything."""
    at = database_now(connection)
    account = SimpleNamespace(
        capabilities=means.capabilities,
        settings=None,
        replay_margin=means.replay_margin,
        evidence_wait=means.evidence_wait,
    )
    config = cast(Config, SimpleNamespace(accounts={"main": account}))
    [row] = verbs.subjects(connection, [id_], at=at, locked=True)
    wish = Wish(wanted, include=frozenset(FailedReason))
    decision = decide(wish, subject_of(row, config, at), at)
    if not isinstance(decision, Doing):
        return False
    done = verb_writes.apply(
        connection, [decision.change], action=wanted.value, actor="ops", note="why", at=at
    )
    return bool(done.changed)
