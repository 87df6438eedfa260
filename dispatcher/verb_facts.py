"""A row and the configuration, put into the words of the operators' verbs.

Whether a replay is safe is asked of the same function that the dispatchers ask: an operator
must never be told that one is safe which they would not make.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from dispatcher.backoff import RetryPolicy
from dispatcher.config import Config
from dispatcher.doubt import Means, replay_open
from dispatcher.reconcile import doubt_of
from dispatcher.verb_subjects import Replay, Subject
from outbox.records_verbs import SubjectRow
from outbox.states import WhenUnsure
from providers.contract import Capabilities
from providers.settings import AccountSettings

_ORDINARY_SEND = timedelta(minutes=1)


def subject_of(
    row: SubjectRow, config: Config, at: datetime, send_before: datetime | None = None
) -> Subject:
    """The subject of a verb. ``send_before``: the new one that was asked for, if any."""
    history = row.history
    return Subject(
        id=history.id,
        key=history.key,
        account=history.account,
        state=row.state,
        held_from=row.held_from,
        reason=row.reason,
        owner=row.owner,
        token=row.token,
        stop_requested=row.stop_requested,
        recipients=history.recipients,
        doubted=history.doubted,
        transmitted=row.transmitted,
        dropped=row.dropped,
        send_after=history.send_after,
        send_before=history.send_before,
        superseded_by=row.superseded_by,
        has_message=row.has_message,
        replay=_replay(row, config, at, send_before),
    )


def _replay(row: SubjectRow, config: Config, at: datetime, send_before: datetime | None) -> Replay:
    """By the same function that the dispatchers ask; the budget does not count, it is new."""
    history = row.history
    if send_before is not None:
        history = replace(history, send_before=send_before)
    account = config.accounts.get(history.account)
    if account is None or not history.doubted:
        return Replay()
    offers: Capabilities = account.capabilities
    doubt = doubt_of(history, RetryPolicy(), WhenUnsure.HOLD, at)
    means = Means(
        identity=row.identity or "",
        capabilities=offers,
        longest_send=_longest_send(account.settings),
        replay_margin=account.replay_margin,
        evidence_wait=account.evidence_wait,
    )
    return Replay(
        offered=offers.replay != "none" and "replay" in offers.means,
        same_identity=all(each.identity == row.identity for each in history.doubted),
        kept=doubt.request_kept,
        window_open=replay_open(doubt, means, at),
    )


def _longest_send(settings: AccountSettings) -> timedelta:
    """At most how long a send takes: all of the account's time-outs, one after the other.
    The provider itself knows better, and cannot be opened here without its secrets."""
    timeouts = getattr(settings, "timeouts", None)
    fields = type(timeouts).model_fields if timeouts is not None else {}
    values = [getattr(timeouts, name) for name in fields]
    total = sum((v for v in values if isinstance(v, timedelta)), timedelta())
    return max(total, _ORDINARY_SEND)
