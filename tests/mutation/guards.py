"""The guards, each with the invariant it keeps and the test that misses it.

A guard is a place in the source: ``text``, which stands there exactly once, and what stands
there ``without`` it. Where a second guard backs up the first, both are named. ``make mutate``
takes each one out of a copy of the project and runs its test, which has to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

STORE, UNIT = "tests/conformance/test_store.py", "tests/unit/dispatcher"
GATES, RECONCILE = "tests/conformance/test_gates.py", "tests/conformance/test_reconcile.py"
DISPATCHER = "tests/conformance/test_dispatcher.py"
VERBS, SECOND = (
    "tests/conformance/test_operator_verbs.py",
    "tests/conformance/test_second_sendings.py",
)
_MARKS, _SETTLE, _CLAIM = "outbox/store/marks.py", "outbox/store/settle.py", "outbox/store/claim.py"
_DECIDE, _DOUBT, _PERMIT = "dispatcher/decide.py", "dispatcher/doubt.py", "dispatcher/permit.py"
_QUEUE, _LATE, _SWEEP = "outbox/store/queue.py", "outbox/store/late.py", "outbox/store/sweep.py"


@dataclass(frozen=True, slots=True)
class Cut:
    """One piece of source and what stands in its place when the guard is gone."""

    file: str
    text: str
    without: str


@dataclass(frozen=True, slots=True)
class Guard:
    """``invariant`` is a row of ARCHITECTURE's table; ``test`` fails once ``cuts`` are made."""

    name: str
    invariant: int
    test: str
    cuts: tuple[Cut, ...]


def guard(name: str, invariant: int, test: str, *cuts: tuple[str, str, str]) -> Guard:
    return Guard(name, invariant, test, tuple(Cut(*cut) for cut in cuts))


GUARDS: tuple[Guard, ...] = (
    # 1: nothing disappears
    guard(
        "a lapsed claim goes back to the queue", 1, f"{STORE}::test_a_lapsed_claim_goes_back",
        (_SWEEP, '.where(_D.c.state == "sending", _D.c.lease_expires_at <= now(), _LAST)',
         '.where(_D.c.state == "sending", _D.c.lease_expires_at <= now(), _LAST, _D.c.id < 0)'),
    ),
    guard(
        "a settle whose commit was lost is done again", 1,
        "tests/conformance/test_lost_commits.py::test_a_settle_is_written_once_whatever_became_of_its_commit",
        ("dispatcher/rounds.py",
         "self._marks[:0], self._settles[:0] = wanted_marks, wanted_settles", "pass"),
    ),
    guard(
        "throttling ends after a day", 1, f"{GATES}::test_throttling_ends_after_a_day",
        ("dispatcher/answers.py", "return FailedReason.THROTTLED if over else None", "return None"),
    ),
    guard(
        "what no means can settle is held at once", 1,
        f"{UNIT}/test_doubt.py::test_without_any_means_the_policy_decides_at_once",
        (_DOUBT, "        return HoldAs(reason)\n    calm", "        return WaitUntil(now)\n    calm"),
    ),
    guard(
        "rows of an account blocked for days are held", 1,
        f"{GATES}::test_rows_of_an_account_blocked_for_days_are_held",
        (_SWEEP, "    .where(_is_blocked)\n", "    .where(_is_blocked, _D.c.id < 0)\n"),
    ),
    # 2: one transaction
    guard(
        "autocommit is refused", 2,
        "tests/conformance/test_autocommit.py::test_autocommit_is_refused_and_the_cure_works",
        ("outbox/connections.py", ("    if writes and connection.autocommit and _psycopg_idle(connection):\n"
         "            raise"), "    if False:\n            raise"),
    ),
    guard(
        "SQLAlchemy's autocommit is refused", 2,
        "tests/conformance/test_autocommit.py::test_sqlalchemys_autocommit_is_refused",
        ("outbox/connections.py", "    if writes and alone:", "    if False:"),
    ),
    # 3: no recipient twice
    guard(
        "a claim takes a row out of the queue", 3, f"{STORE}::test_a_claim_takes_each_row_once",
        (_CLAIM, "            state=\"sending\",\n            claimed_from", "            claimed_from"),
    ),
    guard(
        "each claim raises the token", 3, f"{STORE}::test_a_mark_needs_the_owner_and_the_token",
        (_CLAIM, "lease_token=_D.c.lease_token + 1", "lease_token=_D.c.lease_token"),
    ),
    guard(
        "a lapsed transmission is in doubt", 3, f"{UNIT}/test_decide.py::test_a_lapsed_lease_is_read_by_phase",
        (_DECIDE, "if attempt.phase is not Phase.TRANSMITTING:", "if True:"),
    ),
    guard(
        "an outcome settles only its own attempt", 3,
        f"{UNIT}/test_decide.py::test_an_outcome_settles_only_its_own_attempt",
        (_DECIDE, "    doubted = recipient.result is RecipientResult.IN_DOUBT\n    back", "    doubted = False\n    back"),
    ),
    guard(
        "a replay ends inside the key's retention", 3,
        f"{UNIT}/test_doubt.py::test_a_replay_must_end_inside_the_retention",
        (_DOUBT, "return now + means.longest_send < end and", "return now < end and"),
    ),
    guard(
        "absence counts only when nothing can arrive any more", 3,
        f"{UNIT}/test_doubt.py::test_absence_counts_in_its_window_only",
        (_DOUBT, "if after is None or begun_at < doubt.over_at + after:", "if after is None:"),
    ),
    guard(
        "absence counts only while the provider remembers", 3,
        f"{UNIT}/test_doubt.py::test_absence_counts_in_its_window_only",
        (_DOUBT, "return forgets is None or begun_at < doubt.first_transmitted_at + timedelta(seconds=forgets)",
         "return True"),
    ),
    guard(
        "heuristic look-ups settle nothing", 3, f"{UNIT}/test_doubt.py::test_heuristic_look_ups_settle_nothing",
        (_DOUBT, 'if capabilities.look_up in {"none", "heuristic"}:', 'if capabilities.look_up == "none":'),
    ),
    guard(
        "a changed account is not asked", 3, f"{RECONCILE}::test_a_changed_account_is_not_asked",
        (_DOUBT, "if any(attempt.identity != means.identity for attempt in doubt.attempts):", "if False:"),
    ),
    guard(
        "send_again buys one transmission", 3, f"{RECONCILE}::test_send_again_buys_one_transmission",
        (_DOUBT, "doubt.when_unsure is WhenUnsure.SEND_AGAIN and not doubt.extra_used",
         "doubt.when_unsure is WhenUnsure.SEND_AGAIN"),
    ),
    guard(
        "send_again waits until nothing is on its way", 3,
        f"{UNIT}/test_doubt.py::test_send_again_waits_until_nothing_can_be_on_its_way",
        (_DOUBT, "return SendExtra() if now >= calm else WaitUntil(calm)", "return SendExtra()"),
    ),
    guard(
        "a key that is taken is not sent again", 3,
        f"{UNIT}/test_doubt.py::test_a_key_that_is_known_to_be_taken_is_not_sent_again",
        (_DOUBT, "if any(attempt.key_taken for attempt in doubt.attempts):", "if False:"),
    ),
    guard(
        "a second sending closes the first", 3, f"{UNIT}/test_verbs.py::test_a_row_with_a_successor_stays_closed",
        ("dispatcher/verbs.py", "if subject.superseded_by is None:", "if True:"),
    ),
    guard(
        "not accepted is believed when all is over", 3, f"{VERBS}::test_not_accepted_waits_until_all_is_over",
        ("dispatcher/verbs.py", "if not ends or now >= max(ends):", "if True:"),
    ),
    guard(
        "SMTP: after the dot nothing is sent again", 3,
        "tests/conformance/test_smtp_data_phase.py::test_a_loss_after_the_dot_is_in_doubt",
        ("providers/smtp_data.py", 'raise Broken(InDoubt(f"no reply after DATA', 'raise Broken(Unavailable(f"no reply after DATA'),
    ),
    # 4: stale writes
    guard(
        "a settle names owner and token", 4, f"{STORE}::test_the_fence_names_the_owner_as_well_as_the_token",
        (_SETTLE, "            _D.c.lease_owner == v.c.owner,\n            _D.c.lease_token == v.c.token,\n", ""),
        ("outbox/records.py", "            and self.owner == self.attempt_owner\n            and self.token == self.attempt_token\n", ""),
    ),
    guard(
        "a mark needs a lease that runs", 4, f"{STORE}::test_a_mark_needs_a_living_lease",
        (_MARKS, "            _D.c.lease_expires_at > now(),\n            _D.c.stop_requested.is_(None),",
         "            _D.c.stop_requested.is_(None),"),
    ),
    guard(
        "a mark needs owner and token", 4, f"{STORE}::test_a_mark_needs_the_owner_and_the_token",
        (_MARKS, ('            _D.c.lease_owner == bindparam("me", type_=Text()),\n'
         "            _D.c.lease_token == v.c.token,\n            _D.c.lease_expires_at > now(),\n"
         "            _D.c.stop_requested"), "            _D.c.lease_expires_at > now(),\n            _D.c.stop_requested"),
    ),
    guard(
        "a renewal needs a lease that runs", 4, f"{STORE}::test_renewal_needs_a_living_lease_of_ours",
        (_MARKS, "            _D.c.lease_expires_at > now(),\n        )\n        .values(lease_expires_at",
         "        )\n        .values(lease_expires_at"),
    ),
    guard(
        "a stale answer is kept as evidence", 4,
        f"{STORE}::test_a_stale_worker_changes_no_state_and_its_answer_is_kept",
        (_SETTLE, "    facts += [(s, Fact(EvidenceKind.ANSWER, _VERDICTS[s.end.outcome])) for s in stale]\n", ""),
    ),
    guard(
        "late proof of acceptance stops everything else", 4,
        f"{STORE}::test_late_proof_of_acceptance_stops_everything_else",
        (_SETTLE, "    late.apply(connection, stale, at=at, shard=shard)\n", ""),
    ),
    guard(
        "a second acceptance is said loudly", 4, f"{STORE}::test_a_second_acceptance_is_said_loudly",
        (_LATE, '"copies": int(twice),', '"copies": 0,'),
    ),
    guard(
        "the sweep leaves a living lease alone", 4, f"{STORE}::test_a_living_lease_is_left_alone",
        (_SWEEP, '.where(_D.c.state == "sending", _D.c.lease_expires_at <= now(), _LAST)',
         '.where(_D.c.state == "sending", _LAST)'),
    ),
    # 5: too late, cancelled, held
    guard(
        "a mark checks stop and send_before", 5, f"{STORE}::test_a_mark_rechecks_what_may_have_changed",
        (_MARKS, ("            _D.c.stop_requested.is_(None),\n"
         "            _D.c.send_before.is_(None) | (_D.c.send_before > now()),\n"), ""),
    ),
    guard(
        "a mark obeys a cancel", 5, f"{DISPATCHER}::test_a_cancel_between_claim_and_mark_stops_the_message",
        (_MARKS, "            _D.c.stop_requested.is_(None),\n", ""),
    ),
    guard(
        "a last look before bytes leave", 5,
        "tests/acceptance/test_crashes.py::test_frozen_after_its_mark_a_dispatcher_does_not_begin_to_send",
        (_PERMIT, "        if now >= self._rounds.lease_deadline(self._claimed):", "        if False:"),
    ),
    guard(
        "nothing is replayed after send_before", 5, f"{RECONCILE}::test_nothing_is_replayed_after_send_before",
        (_DOUBT, "return now + means.longest_send < end and not _past(doubt.send_before, now)",
         "return now + means.longest_send < end"),
        (_MARKS, "            _D.c.send_before.is_(None) | (_D.c.send_before > now()),\n", ""),
        (_PERMIT, "        ends = [self._claimed.send_before]", "        ends = [None]"),
    ),
    guard(
        "what was asked of a row in flight is carried out", 5,
        f"{UNIT}/test_decide.py::test_a_request_to_stop_is_carried_out_at_the_settle",
        (_DECIDE, "    if request is None:\n        return decided\n    results", "    if True:\n        return decided\n    results"),
    ),
    # 6: only itself
    guard(
        "a row that breaks the schema fails alone", 6, f"{STORE}::test_a_broken_row_fails_alone",
        ("outbox/store/first_claims.py", "    except InvalidMessage as error:", "    except ZeroDivisionError as error:"),
    ),
    guard(
        "an adapter may raise anything", 6, f"{DISPATCHER}::test_an_adapter_that_raises_hurts_only_its_own_row",
        ("dispatcher/send.py", "        except BaseException as error:  # noqa: BLE001  (an adapter's",
         "        except ZeroDivisionError as error:  # (an adapter's"),
    ),
    guard(
        "a round that fails is done row by row", 6, f"{DISPATCHER}::test_one_unstorable_result_costs_nobody_else_theirs",
        ("dispatcher/rounds.py", "            await self._one_by_one()\n", "            raise\n"),
    ),
    guard(
        "crashes quarantine a row", 6, f"{GATES}::test_a_row_that_crashes_its_dispatchers_is_claimed_alone",
        (_QUEUE, "crashes >= QUARANTINE_AFTER if quarantined else crashes < QUARANTINE_AFTER,", "crashes >= 0,"),
    ),
    guard(
        "only crashes alone hold", 6, f"{GATES}::test_crashes_in_company_hold_nobody",
        (_DECIDE, "alone = attempt.crashes_alone + int(attempt.alone)", "alone = attempt.crashes_alone + 1"),
    ),
    guard(
        "a sender domain is blocked alone", 6, f"{GATES}::test_a_sender_domain_is_blocked_alone",
        (_QUEUE, "            ~blocked,\n", ""),
    ),
    guard(
        "SQLite text that is no UTF-8 is read", 6,
        "tests/acceptance/test_unreadable_rows.py::test_text_that_is_no_utf_8_stops_nobody_else",
        ("outbox/database.py", '.text_factory = _text', '.text_factory = str'),
    ),
    # 7, 8, 9: keys
    guard(
        "another message under a known key is refused", 7,
        "tests/conformance/test_key_conflicts.py::test_the_fields_that_differ_are_named",
        ("outbox/producer.py", 'if options.if_exists == "raise" and _differs(item, print_, text):', "if False:"),
    ),
    guard(
        "a cleaned-up key is known to enqueue", 8,
        "tests/conformance/test_key_conflicts.py::test_a_tombstoned_key_is_known",
        ("outbox/store/enqueue.py", "            ~exists().where(_T.c.key_hash == v.c.key_hash),\n", ""),
    ),
    guard(
        "a cleaned-up key is known to a plain insert", 8, f"{STORE}::test_the_first_claim_looks_into_the_tombstones",
        ("outbox/store/first_claims.py", "if row.public_id is None and key_hash(row.delivery_key) in buried:", "if False:"),
    ),
    guard(
        "keys are inserted in one order", 9,
        "tests/conformance/test_producer_races.py::test_opposite_order_in_bulk_does_not_deadlock",
        ("outbox/store/enqueue.py",
         '\n        .order_by(v.c.delivery_key if dialect == "sqlite" else v.c.delivery_key.collate("C"))', ""),
        ("outbox/producer.py", "unique = sorted(_first_of_each(items, options).values(), key=lambda item: item.key)",
         "unique = list(_first_of_each(items, options).values())"),
    ),
    guard(
        "a known key is no error of the database's", 9,
        "tests/conformance/test_connections.py::test_a_conflict_leaves_the_transaction_usable",
        ("outbox/store/enqueue.py", "            ~exists().where(_D.c.delivery_key == v.c.delivery_key),\n", ""),
        ("outbox/store/enqueue.py", '    return insert.on_conflict_do_nothing(index_elements=["delivery_key"]).returning(', "    return insert.returning("),
    ),
    # 10: health
    guard(
        "somebody is told that nobody dispatches", 10,
        f"{UNIT}/test_status.py::test_mail_that_is_due_while_nobody_dispatches_needs_a_person",
        ("dispatcher/needs.py", "if alive or slot_since is None or seen.at - slot_since <= NOBODY_FOR:", "if True:"),
    ),
    # 11: the same bytes
    guard(
        "the sender is stored at the first claim", 11,
        f"{STORE}::test_the_sender_of_the_configuration_is_stored_at_the_first_claim",
        (_CLAIM, '"default_from": row.default_from or default_from,\n            "sender_domain": _sender',
         '"default_from": default_from,\n            "sender_domain": _sender'),
    ),
    guard(
        "a replay sends the kept bytes", 11, f"{RECONCILE}::test_a_replay_sends_the_kept_bytes_under_the_same_key",
        ("dispatcher/send.py", "if claimed.kind is not AttemptKind.REPLAY or digest is None:", "if True:"),
    ),
    # 12: one at a time
    guard(
        "a probe is one for all dispatchers", 12, f"{GATES}::test_a_probe_is_one_for_all_dispatchers",
        ("outbox/store/gates.py", "            or_(_X.c.probe_until.is_(None), _X.c.probe_until <= now()),\n", ""),
    ),
    guard(
        "a block ends with one message", 12, f"{GATES}::test_a_block_ends_with_a_probe_of_one",
        ("outbox/store/gates.py", "return ended and row.pause_reason in PROBED", "return False"),
    ),
    guard(
        "the breaker counts all trouble alike", 12, f"{GATES}::test_the_breaker_counts_all_trouble_alike",
        ("dispatcher/answers.py", "case Unavailable(counted=True) | InDoubt() | InFlight():",
         "case Unavailable(counted=True) | InFlight():"),
        ("dispatcher/answers.py", "case Unavailable() | Throttled() | AccountBlocked():",
         "case Unavailable() | Throttled() | AccountBlocked() | InDoubt():"),
    ),
    guard(
        "a paused account is not claimed", 12, f"{DISPATCHER}::test_a_paused_account_starves_nobody",
        ("outbox/store/gates.py", "            most = 0\n        elif", "            most = None\n        elif"),
    ),
    # what they stand on
    guard(
        "SQLite commits reach the disk", 1, "tests/conformance/test_durability.py::test_commits_on_sqlite_reach_the_disk",
        ("outbox/database.py", 'cursor.execute("PRAGMA synchronous = FULL")', 'cursor.execute("PRAGMA synchronous = NORMAL")'),
    ),
    guard(
        "PostgreSQL commits wait for the log", 1,
        "tests/conformance/test_durability.py::test_commits_on_postgresql_wait_for_the_log",
        ("outbox/database.py", 'cursor.execute("SET SESSION synchronous_commit = on")', "pass"),
    ),
)  # fmt: skip
