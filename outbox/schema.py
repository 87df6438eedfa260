"""The tables, as SQLAlchemy sees them. The migrations create them.

Names are part of the contract (``docs/reference``): producers, operators and
dashboards see them. Instants are ``timestamptz`` on PostgreSQL and fixed-width
UTC text on SQLite, guarded by a CHECK so that they compare and sort whoever
writes them. Closed lists come from :mod:`outbox.states` and are repeated as
named CHECK constraints, so that the database refuses nonsense too.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    false,
)

from outbox import states
from outbox.checks import check_words, forms, one_of, ranges, reasons
from outbox.columns import Instant, default_now, now

__all__ = [
    "Instant",
    "accounts",
    "attempts",
    "blobs",
    "default_now",
    "deliveries",
    "delivery_blobs",
    "dispatchers",
    "evidence",
    "instance",
    "metadata",
    "now",
    "recipients",
    "requests",
    "tallies",
    "tombstones",
]

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)
"""Every table of the outbox; public, so that a host application's autogenerate
can include or ignore them."""

_Id = BigInteger().with_variant(Integer, "sqlite")


_FINAL = ", ".join(repr(str(state)) for state in states.State if state in states.FINAL)

deliveries = Table(
    "outbox_deliveries",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("delivery_key", String(255), nullable=False, unique=True),
    Column("public_id", String(36), unique=True),
    Column("resend_of", _Id, ForeignKey("outbox_deliveries.id")),
    Column("superseded_by", _Id, ForeignKey("outbox_deliveries.id")),
    Column("state", String(16), nullable=False, server_default="pending"),
    Column("claimed_from", String(16)),
    Column("held_from", String(16)),
    Column("stop_requested", String(8)),
    Column("send_after", Instant, nullable=False, server_default=default_now()),
    Column("message", Text),
    Column("default_from", Text),
    Column("fingerprint", String(80)),
    Column("account", String(64), nullable=False, server_default=""),
    Column("priority", SmallInteger, nullable=False, server_default="0"),
    Column("due_at", Instant, nullable=False, server_default=default_now()),
    Column("send_before", Instant),
    Column("when_unsure", String(16)),
    Column("tenant", String(255)),
    Column("tags", Text, nullable=False, server_default="[]"),
    Column("run_key", String(512), index=True),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_attempt", Integer, nullable=False, server_default="0"),
    Column("crashes", Integer, nullable=False, server_default="0"),
    Column("copies", Integer, nullable=False, server_default="0"),
    Column("extra_transmission", String(32)),
    Column("window_started_at", Instant),
    Column("window_paused", Float, nullable=False, server_default="0"),
    Column("lease_owner", String(64)),
    Column("lease_token", _Id, nullable=False, server_default="0"),
    Column("lease_expires_at", Instant),
    Column("first_transmitted_at", Instant),
    Column("account_identity", String(255)),
    Column("reason", String(32)),
    Column("last_error", Text),
    Column("created_at", Instant, nullable=False, server_default=default_now()),
    Column("updated_at", Instant, nullable=False, server_default=default_now()),
    Column("finished_at", Instant),
    Column("sender_domain", String(255)),
    Column("crashes_alone", Integer, nullable=False, server_default="0"),
    CheckConstraint(one_of("state", states.State), name="state"),
    check_words("claimed_from", "claimed_from", states.State),
    check_words("held_from", "held_from", states.State),
    check_words("stop_requested", "stop_requested", states.StopRequest),
    check_words("when_unsure", "when_unsure", states.WhenUnsure),
    CheckConstraint(reasons(), name="reason"),
    CheckConstraint("length(delivery_key) BETWEEN 1 AND 255", name="key_length"),
    CheckConstraint("resend_of IS NOT NULL OR delivery_key NOT LIKE '%~%'", name="key_tilde"),
    CheckConstraint("delivery_key !~ '[[:cntrl:]]'", name="key_printable").ddl_if(
        dialect="postgresql"
    ),
    CheckConstraint(
        "delivery_key NOT GLOB ('*[' || char(1) || '-' || char(31) || char(127) || ']*') "
        "AND instr(delivery_key, char(0)) = 0",
        name="key_printable",
    ).ddl_if(dialect="sqlite"),
    CheckConstraint(
        "typeof(delivery_key) = 'text' AND typeof(account) = 'text' "
        "AND typeof(message) IN ('text', 'null')",
        name="text",
    ).ddl_if(dialect="sqlite"),
    CheckConstraint("send_before IS NULL OR send_before > send_after", name="send_before"),
    CheckConstraint("priority BETWEEN -100 AND 100", name="priority"),
    CheckConstraint("(state = 'sending') = (lease_owner IS NOT NULL)", name="lease"),
    CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease_expires_at"),
    CheckConstraint("(state = 'held') = (held_from IS NOT NULL)", name="held"),
    CheckConstraint(f"(state IN ({_FINAL})) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint(f"message IS NOT NULL OR state IN ({_FINAL})", name="message"),
    *ranges("send_after", "due_at", "send_before"),
    *forms(
        "send_after",
        "due_at",
        "send_before",
        "window_started_at",
        "lease_expires_at",
        "first_transmitted_at",
        "created_at",
        "updated_at",
        "finished_at",
    ),
    sqlite_autoincrement=True,
)
Index(
    "ix_outbox_deliveries_due",
    deliveries.c.account,
    deliveries.c.priority.desc(),
    deliveries.c.due_at,
    deliveries.c.id,
    postgresql_where=deliveries.c.state == "pending",
    sqlite_where=deliveries.c.state == "pending",
)
_OPEN = deliveries.c.state.in_(["sending", "in_doubt", "held"])
Index(
    "ix_outbox_deliveries_open",
    deliveries.c.state,
    deliveries.c.due_at,
    deliveries.c.id,
    postgresql_where=_OPEN,
    sqlite_where=_OPEN,
)
_ENDS = (deliveries.c.state == "pending") & deliveries.c.send_before.is_not(None)
Index(
    "ix_outbox_deliveries_send_before",
    deliveries.c.send_before,
    postgresql_where=_ENDS,
    sqlite_where=_ENDS,
)
_QUARANTINED = (deliveries.c.crashes >= 3) & deliveries.c.state.in_(["pending", "in_doubt"])
Index(
    "ix_outbox_deliveries_quarantine",
    deliveries.c.account,
    deliveries.c.due_at,
    postgresql_where=_QUARANTINED,
    sqlite_where=_QUARANTINED,
)
Index("ix_outbox_deliveries_finished_at", deliveries.c.finished_at)


def _of_delivery() -> ForeignKey:
    return ForeignKey("outbox_deliveries.id", ondelete="CASCADE")


recipients = Table(
    "outbox_recipients",
    metadata,
    Column("delivery_id", _Id, _of_delivery(), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(3), nullable=False),
    Column("address", Text, nullable=False),
    Column("address_hash", String(64), nullable=False, index=True),
    Column("result", String(16), nullable=False, server_default="pending"),
    Column("code", String(64)),
    Column("reason", Text),
    Column("delivery_status", String(32)),
    Column("provider_message_id", Text, index=True),
    Column("updated_at", Instant, nullable=False, server_default=default_now()),
    UniqueConstraint("delivery_id", "address_hash"),
    CheckConstraint(one_of("kind", states.RecipientKind), name="kind"),
    CheckConstraint(one_of("result", states.RecipientResult), name="result"),
    check_words("delivery_status", "delivery_status", states.DeliveryStatus),
    *forms("updated_at"),
)

attempts = Table(
    "outbox_attempts",
    metadata,
    Column("delivery_id", _Id, _of_delivery(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(8), nullable=False),
    Column("account", String(64), nullable=False),
    Column("account_identity", String(255)),
    Column("batch_id", _Id),
    Column("phase", String(16), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("token", _Id, nullable=False),
    Column("recipients", Text, nullable=False, server_default="[]"),
    Column("idempotency_key", String(64)),
    Column("request_digest", String(64)),
    Column("started_at", Instant, nullable=False, server_default=default_now()),
    Column("transmitting_at", Instant),
    Column("deadline_at", Instant),
    Column("finished_at", Instant),
    Column("outcome", String(16)),
    Column("status_code", Integer),
    Column("outcome_reason", Text),
    Column("detail", Text),
    Column("provider_message_id", Text),
    Column("retry_at", Instant),
    Column("alone", Boolean, nullable=False, server_default=false()),
    CheckConstraint(one_of("kind", states.AttemptKind), name="kind"),
    CheckConstraint(one_of("phase", states.Phase), name="phase"),
    check_words("outcome", "outcome", states.AttemptOutcome),
    CheckConstraint("(phase = 'settled') = (outcome IS NOT NULL)", name="settled"),
    CheckConstraint("phase <> 'transmitting' OR transmitting_at IS NOT NULL", name="transmitting"),
    *forms("started_at", "transmitting_at", "deadline_at", "finished_at", "retry_at"),
)

requests = Table(
    "outbox_requests",
    metadata,
    Column("delivery_id", _Id, _of_delivery(), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("renderer_version", Integer, nullable=False),
)

evidence = Table(
    "outbox_evidence",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("delivery_id", _Id, _of_delivery(), nullable=False, index=True),
    Column("attempt", Integer),
    Column("recipient", Integer),
    Column("kind", String(16), nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("provider_message_id", Text),
    Column("seen_at", Instant, nullable=False, server_default=default_now()),
    Column("detail", Text),
    CheckConstraint(one_of("kind", states.EvidenceKind), name="kind"),
    CheckConstraint(one_of("verdict", states.Verdict), name="verdict"),
    *forms("seen_at"),
    sqlite_autoincrement=True,
)

tallies = Table(
    "outbox_tallies",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("labels", String(255), primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("value", BigInteger, nullable=False),
)

blobs = Table(
    "outbox_blobs",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False, server_default=default_now()),
    CheckConstraint("length(sha256) = 64", name="sha256"),
    *forms("created_at"),
)

delivery_blobs = Table(
    "outbox_delivery_blobs",
    metadata,
    Column("delivery_id", _Id, _of_delivery(), primary_key=True),
    Column("sha256", String(64), ForeignKey("outbox_blobs.sha256"), primary_key=True, index=True),
)

accounts = Table(
    "outbox_accounts",
    metadata,
    Column("account", String(64), primary_key=True),
    Column("scope", String(255), primary_key=True, server_default=""),
    Column("provider", String(64), nullable=False, server_default=""),
    Column("identity", String(255)),
    Column("limits", Text, nullable=False, server_default="{}"),
    Column("paused_since", Instant),
    Column("paused_until", Instant),
    Column("pause_reason", String(16)),
    Column("pause_detail", Text),
    Column("paused_by", String(64)),
    Column("paused_seconds", Float, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("rate_state", Text),
    Column("updated_at", Instant, nullable=False, server_default=default_now()),
    Column("probe_until", Instant),
    Column("consecutive", Integer, nullable=False, server_default="0"),
    check_words("pause_reason", "pause_reason", states.PauseReason),
    CheckConstraint("(paused_until IS NULL) = (pause_reason IS NULL)", name="paused"),
    CheckConstraint("(paused_until IS NULL) = (paused_since IS NULL)", name="paused_since"),
    *forms("paused_since", "paused_until", "updated_at", "probe_until"),
)

audit = Table(
    "outbox_audit",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("at", Instant, nullable=False, server_default=default_now()),
    Column("actor", String(255), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", Text, nullable=False, index=True),
    Column("operator_note", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    *forms("at"),
    sqlite_autoincrement=True,
)

dispatchers = Table(
    "outbox_dispatchers",
    metadata,
    Column("owner", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("machine_boot", String(64)),
    Column("pid", Integer, nullable=False),
    Column("process_start", String(64)),
    Column("version", String(32), nullable=False),
    Column("slots", Integer, nullable=False),
    Column("slots_used", Integer, nullable=False, server_default="0"),
    Column("started_at", Instant, nullable=False, server_default=default_now()),
    Column("seen_at", Instant, nullable=False, server_default=default_now()),
    *forms("started_at", "seen_at"),
)

tombstones = Table(
    "outbox_tombstones",
    metadata,
    Column("key_hash", String(64), primary_key=True),
    Column("delivery_id", _Id, nullable=False),
    Column("state", String(16), nullable=False),
    Column("fingerprint", String(80)),
    Column("finished_at", Instant, nullable=False),
    CheckConstraint(one_of("state", states.State), name="state"),
    *forms("finished_at"),
)

instance = Table(
    "outbox_instance",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(64), nullable=False, server_default=""),
    Column("namespace", String(36), nullable=False),
    Column("surroundings", Text, nullable=False, server_default="{}"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("oldest_code", String(32), nullable=False, server_default="0.1.0"),
    Column("oldest_code_at", String(32), nullable=False, server_default="0001"),
    Column("created_at", Instant, nullable=False, server_default=default_now()),
    CheckConstraint("id = 1", name="one_row"),
    *forms("created_at"),
)

_STORAGE = {
    deliveries: "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02",
    recipients: "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02",
    attempts: "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02",
    tallies: "fillfactor = 50",
}
for _table, _options in _STORAGE.items():
    # Not every supported SQLAlchemy can say this in CREATE TABLE.
    _set = DDL(f"ALTER TABLE {_table.name} SET ({_options})")  # type: ignore[no-untyped-call]
    event.listen(_table, "after_create", _set.execute_if(dialect="postgresql"))
