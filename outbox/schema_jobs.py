"""The tables of jobs, as SQLAlchemy sees them; see :mod:`outbox.schema` for the others.

Who writes what is part of why a run happens once:

- ``outbox_runs`` is written by planning, claim, rescue, failure, and by the transaction that
  finishes a run. Its ``token`` rises with each of them but the last, which only asks for it.
- ``outbox_run_attempts`` holds lease and beat. The transaction that finishes a run never
  touches it, so that a job at REPEATABLE READ does not fight its own beat. No lease column is
  in an index, so that a beat changes no index.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    true,
)

from outbox import states_jobs as states
from outbox.checks import check_words, forms, one_of, reasons
from outbox.columns import Instant, default_now
from outbox.limits_jobs import (
    EVENT_CHARACTERS,
    JOB_CHARACTERS,
    LABEL_CHARACTERS,
    RUN_KEY_CHARACTERS,
    SOURCE_CHARACTERS,
    SUBJECT_CHARACTERS,
)
from outbox.schema import metadata

__all__ = ["backfills", "consumed_events", "run_attempts", "runs", "schedules"]

_Id = BigInteger().with_variant(Integer, "sqlite")

_FINAL = ", ".join(repr(str(state)) for state in states.RunState if state in states.RUN_FINAL)

schedules = Table(
    "outbox_schedules",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("job", String(JOB_CHARACTERS), nullable=False),
    Column("subject", String(SUBJECT_CHARACTERS), nullable=False),
    Column("source", String(16), nullable=False, server_default="operator"),
    Column("state", String(16), nullable=False, server_default="active"),
    Column("timezone", String(64), nullable=False, server_default="UTC"),
    Column("rule", Text),
    Column("missed", String(8)),
    Column("overlap", String(8)),
    Column("due_after", BigInteger),
    Column("useful_for", BigInteger),
    Column("overdue_after", BigInteger),
    Column("attributes", Text, nullable=False, server_default="{}"),
    Column("active_since", Instant, nullable=False, server_default=default_now()),
    Column("planned_until", Instant),
    Column("planned_label", String(LABEL_CHARACTERS)),
    Column("planned_rule", Text),
    Column("planned_timezone", String(64)),
    Column("planned_zone_data", String(16)),
    Column("next_due_at", Instant),
    Column("definition_version", String(80)),
    Column("note", Text),
    Column("created_at", Instant, nullable=False, server_default=default_now()),
    Column("updated_at", Instant, nullable=False, server_default=default_now()),
    Column("ended_at", Instant),
    UniqueConstraint("job", "subject"),
    CheckConstraint(one_of("source", states.ScheduleSource), name="source"),
    CheckConstraint(one_of("state", states.ScheduleState), name="state"),
    check_words("missed", "missed", states.MissedPolicy),
    check_words("overlap", "overlap", states.OverlapPolicy),
    CheckConstraint(
        "NOT (missed IS NOT NULL AND overlap IS NOT NULL AND missed = 'all' AND overlap = 'skip')",
        name="policies",
    ),
    CheckConstraint("(state = 'ended') = (ended_at IS NOT NULL)", name="ended"),
    *forms("active_since", "planned_until", "next_due_at", "created_at", "updated_at", "ended_at"),
    sqlite_autoincrement=True,
)
_PLANS = schedules.c.state == "active"
Index(
    "ix_outbox_schedules_next_due_at",
    schedules.c.next_due_at,
    postgresql_where=_PLANS,
    sqlite_where=_PLANS,
)

backfills = Table(
    "outbox_backfills",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("job", String(JOB_CHARACTERS), nullable=False, index=True),
    Column("subjects", Text),
    Column("range_start", Instant, nullable=False),
    Column("range_end", Instant, nullable=False),
    Column("state", String(16), nullable=False, server_default="active"),
    Column("pause_reason", String(32)),
    Column("pause_detail", Text),
    Column("runs_per_hour", Integer),
    Column("concurrency", Integer, nullable=False, server_default="1"),
    Column("deliveries", Boolean, nullable=False, server_default=false()),
    Column("definition_version", String(80)),
    Column("parameters", Text, nullable=False, server_default="{}"),
    Column("parameter_hash", String(80)),
    Column("cursor", Text),
    Column("expected_runs", Integer),
    Column("planned_runs", Integer, nullable=False, server_default="0"),
    Column("left_out", Integer, nullable=False, server_default="0"),
    Column("last_started_at", Instant),
    Column("ordered_by", String(255), nullable=False, server_default=""),
    Column("note", Text),
    Column("created_at", Instant, nullable=False, server_default=default_now()),
    Column("updated_at", Instant, nullable=False, server_default=default_now()),
    Column("finished_at", Instant),
    CheckConstraint(one_of("state", states.BackfillState), name="state"),
    check_words("pause_reason", "pause_reason", states.BackfillPause),
    CheckConstraint("(state = 'paused') = (pause_reason IS NOT NULL)", name="paused"),
    CheckConstraint(
        "(state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)", name="finished"
    ),
    CheckConstraint("range_end > range_start", name="range"),
    CheckConstraint("concurrency >= 1", name="concurrency"),
    CheckConstraint("runs_per_hour IS NULL OR runs_per_hour >= 1", name="runs_per_hour"),
    *forms(
        "range_start", "range_end", "last_started_at", "created_at", "updated_at", "finished_at"
    ),
    sqlite_autoincrement=True,
)

runs = Table(
    "outbox_runs",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("run_key", String(RUN_KEY_CHARACTERS), nullable=False, unique=True),
    Column("job", String(JOB_CHARACTERS), nullable=False),
    Column("subject", String(SUBJECT_CHARACTERS), nullable=False),
    Column("label", String(LABEL_CHARACTERS), nullable=False),
    Column("kind", String(16), nullable=False, server_default="period"),
    Column("revision", Integer, nullable=False, server_default="1"),
    Column("period_start", Instant),
    Column("period_end", Instant),
    Column("periods", Integer, nullable=False, server_default="1"),
    Column("adjusted", Boolean, nullable=False, server_default=false()),
    Column("timezone", String(64)),
    Column("origin", String(16), nullable=False, server_default="manual"),
    Column("backfill_id", _Id, ForeignKey("outbox_backfills.id")),
    Column("deliveries", Boolean, nullable=False, server_default=true()),
    Column("state", String(16), nullable=False, server_default="planned"),
    Column("reason", String(16)),
    Column("detail", Text),
    Column("due_at", Instant),
    Column("deadline_at", Instant),
    Column("overdue_at", Instant),
    Column("next_attempt_at", Instant, nullable=False, server_default=default_now()),
    Column("token", _Id, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_attempt", Integer, nullable=False, server_default="0"),
    Column("max_attempts", Integer),
    Column("input_hash", String(80)),
    Column("input_version", String(255)),
    Column("inputs", Text),
    Column("definition_version", String(80)),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("duration", Float),
    Column("records", BigInteger),
    Column("output", Text),
    Column("output_summary", Text),
    Column("last_error", Text),
    Column("created_at", Instant, nullable=False, server_default=default_now()),
    Column("updated_at", Instant, nullable=False, server_default=default_now()),
    UniqueConstraint(
        "job", "subject", "period_start", "kind", "revision", name="uq_outbox_runs_period"
    ),
    CheckConstraint(f"length(run_key) BETWEEN 1 AND {RUN_KEY_CHARACTERS}", name="run_key_length"),
    CheckConstraint(one_of("kind", states.RunKind), name="kind"),
    CheckConstraint(one_of("origin", states.RunOrigin), name="origin"),
    CheckConstraint(one_of("state", states.RunState), name="state"),
    CheckConstraint(reasons(states.RUN_REASONS), name="reason"),
    CheckConstraint("revision >= 1 AND periods >= 1", name="counts"),
    CheckConstraint("(kind = 'label') = (period_start IS NULL)", name="label"),
    CheckConstraint("(period_start IS NULL) = (period_end IS NULL)", name="period"),
    CheckConstraint("period_end IS NULL OR period_end > period_start", name="period_order"),
    CheckConstraint("(kind = 'backfill') = (backfill_id IS NOT NULL)", name="backfill"),
    CheckConstraint("kind <> 'range' OR state = 'skipped'", name="range"),
    CheckConstraint("kind = 'range' OR periods = 1", name="periods"),
    CheckConstraint("state <> 'running' OR started_at IS NOT NULL", name="started"),
    CheckConstraint(f"(state IN ({_FINAL})) = (finished_at IS NOT NULL)", name="finished"),
    *forms(
        "period_start",
        "period_end",
        "due_at",
        "deadline_at",
        "overdue_at",
        "next_attempt_at",
        "started_at",
        "finished_at",
        "created_at",
        "updated_at",
    ),
    sqlite_autoincrement=True,
)
_PLANNED = runs.c.state == "planned"
Index(
    "ix_outbox_runs_ready",
    runs.c.next_attempt_at,
    runs.c.id,
    postgresql_where=_PLANNED,
    sqlite_where=_PLANNED,
)
_RUNNING = runs.c.state == "running"
Index(
    "ix_outbox_runs_running",
    runs.c.job,
    runs.c.subject,
    postgresql_where=_RUNNING,
    sqlite_where=_RUNNING,
)
_LATE = runs.c.state.in_(["planned", "running", "failed"])
Index("ix_outbox_runs_overdue", runs.c.overdue_at, postgresql_where=_LATE, sqlite_where=_LATE)
Index("ix_outbox_runs_label", runs.c.job, runs.c.subject, runs.c.label)
Index("ix_outbox_runs_finished", runs.c.job, runs.c.finished_at)
Index("ix_outbox_runs_backfill_id", runs.c.backfill_id)

run_attempts = Table(
    "outbox_run_attempts",
    metadata,
    Column("run_id", _Id, ForeignKey("outbox_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("owner", String(64), nullable=False),
    Column("token", _Id, nullable=False),
    Column("lease_expires_at", Instant),
    Column("beat_at", Instant),
    Column("started_at", Instant, nullable=False, server_default=default_now()),
    Column("finished_at", Instant),
    Column("outcome", String(16)),
    Column("error", Text),
    Column("error_type", String(255)),
    Column("traceback", Text),
    Column("permanent", Boolean),
    Column("retry_at", Instant),
    Column("progress_done", BigInteger),
    Column("progress_total", BigInteger),
    Column("log_excerpt", Text),
    Column("input_hash", String(80)),
    Column("input_version", String(255)),
    Column("definition_version", String(80)),
    check_words("outcome", "outcome", states.RunOutcome),
    CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="finished"),
    CheckConstraint("(outcome IS NULL) = (lease_expires_at IS NOT NULL)", name="lease"),
    *forms("lease_expires_at", "beat_at", "started_at", "finished_at", "retry_at"),
)
_OPEN = run_attempts.c.outcome.is_(None)
Index(
    "uq_outbox_run_attempts_open",
    run_attempts.c.run_id,
    unique=True,
    postgresql_where=_OPEN,
    sqlite_where=_OPEN,
)

consumed_events = Table(
    "outbox_consumed_events",
    metadata,
    Column("source", String(SOURCE_CHARACTERS), primary_key=True),
    Column("event_id", String(EVENT_CHARACTERS), primary_key=True),
    Column("consumed_at", Instant, nullable=False, server_default=default_now()),
    *forms("consumed_at"),
)
Index("ix_outbox_consumed_events_consumed_at", consumed_events.c.consumed_at)
