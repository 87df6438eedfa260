-- 0001, SQLite. Statements are paragraphs: no blank line inside one.

CREATE TABLE outbox_accounts (
    account VARCHAR(64) NOT NULL,
    scope VARCHAR(255) DEFAULT '' NOT NULL,
    provider VARCHAR(64) DEFAULT '' NOT NULL,
    identity VARCHAR(255),
    limits TEXT DEFAULT '{}' NOT NULL,
    paused_since VARCHAR(24),
    paused_until VARCHAR(24),
    pause_reason VARCHAR(16),
    pause_detail TEXT,
    paused_by VARCHAR(64),
    paused_seconds FLOAT DEFAULT '0' NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    rate_state TEXT,
    updated_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    CONSTRAINT pk_outbox_accounts PRIMARY KEY (account, scope),
    CONSTRAINT ck_outbox_accounts_pause_reason CHECK (pause_reason IS NULL OR pause_reason IN ('credentials', 'permission', 'suspended', 'quota', 'sender_domain', 'throttled', 'breaker', 'operator')),
    CONSTRAINT ck_outbox_accounts_paused CHECK ((paused_until IS NULL) = (pause_reason IS NULL)),
    CONSTRAINT ck_outbox_accounts_paused_since CHECK ((paused_until IS NULL) = (paused_since IS NULL)),
    CONSTRAINT ck_outbox_accounts_paused_since_form CHECK (paused_since IS NULL OR (paused_since GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(paused_since, '+0 days') IS substr(paused_since, 1, 10))),
    CONSTRAINT ck_outbox_accounts_paused_until_form CHECK (paused_until IS NULL OR (paused_until GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(paused_until, '+0 days') IS substr(paused_until, 1, 10))),
    CONSTRAINT ck_outbox_accounts_updated_at_form CHECK (updated_at IS NULL OR (updated_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(updated_at, '+0 days') IS substr(updated_at, 1, 10)))
);

CREATE TABLE outbox_blobs (
    sha256 VARCHAR(64) NOT NULL,
    size BIGINT NOT NULL,
    content BLOB NOT NULL,
    created_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    CONSTRAINT pk_outbox_blobs PRIMARY KEY (sha256),
    CONSTRAINT ck_outbox_blobs_sha256 CHECK (length(sha256) = 64),
    CONSTRAINT ck_outbox_blobs_created_at_form CHECK (created_at IS NULL OR (created_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(created_at, '+0 days') IS substr(created_at, 1, 10)))
);

CREATE TABLE outbox_deliveries (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    delivery_key VARCHAR(255) NOT NULL,
    public_id VARCHAR(36),
    resend_of INTEGER,
    superseded_by INTEGER,
    state VARCHAR(16) DEFAULT 'pending' NOT NULL,
    claimed_from VARCHAR(16),
    held_from VARCHAR(16),
    stop_requested VARCHAR(8),
    send_after VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    message TEXT,
    default_from TEXT,
    fingerprint VARCHAR(80),
    account VARCHAR(64) DEFAULT '' NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    due_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    send_before VARCHAR(24),
    when_unsure VARCHAR(16),
    tenant VARCHAR(255),
    tags TEXT DEFAULT '[]' NOT NULL,
    run_key VARCHAR(512),
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_attempt INTEGER DEFAULT '0' NOT NULL,
    crashes INTEGER DEFAULT '0' NOT NULL,
    copies INTEGER DEFAULT '0' NOT NULL,
    extra_transmission VARCHAR(32),
    window_started_at VARCHAR(24),
    window_paused FLOAT DEFAULT '0' NOT NULL,
    lease_owner VARCHAR(64),
    lease_token INTEGER DEFAULT '0' NOT NULL,
    lease_expires_at VARCHAR(24),
    first_transmitted_at VARCHAR(24),
    account_identity VARCHAR(255),
    reason VARCHAR(32),
    last_error TEXT,
    created_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    updated_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    finished_at VARCHAR(24),
    CONSTRAINT ck_outbox_deliveries_state CHECK (state IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_claimed_from CHECK (claimed_from IS NULL OR claimed_from IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_held_from CHECK (held_from IS NULL OR held_from IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_stop_requested CHECK (stop_requested IS NULL OR stop_requested IN ('cancel', 'hold')),
    CONSTRAINT ck_outbox_deliveries_when_unsure CHECK (when_unsure IS NULL OR when_unsure IN ('hold', 'send_again')),
    CONSTRAINT ck_outbox_deliveries_reason CHECK ((state IN ('held', 'failed', 'cancelled')) = (reason IS NOT NULL) AND (reason IS NULL OR (state = 'held' AND reason IN ('no_evidence', 'key_mismatch', 'exhausted_in_doubt', 'account_changed', 'blocked_too_long', 'unknown_account', 'crashed_alone', 'operator')) OR (state = 'failed' AND reason IN ('rejected', 'exhausted', 'throttled', 'sender_not_allowed', 'suppressed', 'invalid_message')) OR (state = 'cancelled' AND reason IN ('producer', 'operator', 'already_settled')))),
    CONSTRAINT ck_outbox_deliveries_key_length CHECK (length(delivery_key) BETWEEN 1 AND 255),
    CONSTRAINT ck_outbox_deliveries_key_tilde CHECK (resend_of IS NOT NULL OR delivery_key NOT LIKE '%~%'),
    CONSTRAINT ck_outbox_deliveries_key_printable CHECK (delivery_key NOT GLOB ('*[' || char(1) || '-' || char(31) || char(127) || ']*') AND instr(delivery_key, char(0)) = 0),
    CONSTRAINT ck_outbox_deliveries_text CHECK (typeof(delivery_key) = 'text' AND typeof(account) = 'text' AND typeof(message) IN ('text', 'null')),
    CONSTRAINT ck_outbox_deliveries_send_before CHECK (send_before IS NULL OR send_before > send_after),
    CONSTRAINT ck_outbox_deliveries_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT ck_outbox_deliveries_lease CHECK ((state = 'sending') = (lease_owner IS NOT NULL)),
    CONSTRAINT ck_outbox_deliveries_lease_expires_at CHECK ((lease_owner IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT ck_outbox_deliveries_held CHECK ((state = 'held') = (held_from IS NOT NULL)),
    CONSTRAINT ck_outbox_deliveries_finished CHECK ((state IN ('accepted', 'failed', 'expired', 'cancelled', 'unresolved')) = (finished_at IS NOT NULL)),
    CONSTRAINT ck_outbox_deliveries_message CHECK (message IS NOT NULL OR state IN ('accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_send_after_form CHECK (send_after IS NULL OR (send_after GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(send_after, '+0 days') IS substr(send_after, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_due_at_form CHECK (due_at IS NULL OR (due_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(due_at, '+0 days') IS substr(due_at, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_send_before_form CHECK (send_before IS NULL OR (send_before GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(send_before, '+0 days') IS substr(send_before, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_window_started_at_form CHECK (window_started_at IS NULL OR (window_started_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(window_started_at, '+0 days') IS substr(window_started_at, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_lease_expires_at_form CHECK (lease_expires_at IS NULL OR (lease_expires_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(lease_expires_at, '+0 days') IS substr(lease_expires_at, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_first_transmitted_at_form CHECK (first_transmitted_at IS NULL OR (first_transmitted_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(first_transmitted_at, '+0 days') IS substr(first_transmitted_at, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_created_at_form CHECK (created_at IS NULL OR (created_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(created_at, '+0 days') IS substr(created_at, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_updated_at_form CHECK (updated_at IS NULL OR (updated_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(updated_at, '+0 days') IS substr(updated_at, 1, 10))),
    CONSTRAINT ck_outbox_deliveries_finished_at_form CHECK (finished_at IS NULL OR (finished_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(finished_at, '+0 days') IS substr(finished_at, 1, 10))),
    CONSTRAINT uq_outbox_deliveries_delivery_key UNIQUE (delivery_key),
    CONSTRAINT uq_outbox_deliveries_public_id UNIQUE (public_id),
    CONSTRAINT fk_outbox_deliveries_resend_of FOREIGN KEY(resend_of) REFERENCES outbox_deliveries (id),
    CONSTRAINT fk_outbox_deliveries_superseded_by FOREIGN KEY(superseded_by) REFERENCES outbox_deliveries (id)
);

CREATE INDEX ix_outbox_deliveries_due ON outbox_deliveries (account, priority DESC, due_at, id) WHERE state = 'pending';

CREATE INDEX ix_outbox_deliveries_finished_at ON outbox_deliveries (finished_at);

CREATE INDEX ix_outbox_deliveries_open ON outbox_deliveries (state, due_at, id) WHERE state IN ('sending', 'in_doubt', 'held');

CREATE INDEX ix_outbox_deliveries_run_key ON outbox_deliveries (run_key);

CREATE INDEX ix_outbox_deliveries_send_before ON outbox_deliveries (send_before) WHERE state = 'pending' AND send_before IS NOT NULL;

CREATE TABLE outbox_dispatchers (
    owner VARCHAR(64) NOT NULL,
    host VARCHAR(255) NOT NULL,
    machine_boot VARCHAR(64),
    pid INTEGER NOT NULL,
    process_start VARCHAR(64),
    version VARCHAR(32) NOT NULL,
    slots INTEGER NOT NULL,
    slots_used INTEGER DEFAULT '0' NOT NULL,
    started_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    seen_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    CONSTRAINT pk_outbox_dispatchers PRIMARY KEY (owner),
    CONSTRAINT ck_outbox_dispatchers_started_at_form CHECK (started_at IS NULL OR (started_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(started_at, '+0 days') IS substr(started_at, 1, 10))),
    CONSTRAINT ck_outbox_dispatchers_seen_at_form CHECK (seen_at IS NULL OR (seen_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(seen_at, '+0 days') IS substr(seen_at, 1, 10)))
);

CREATE TABLE outbox_instance (
    id INTEGER NOT NULL,
    name VARCHAR(64) DEFAULT '' NOT NULL,
    namespace VARCHAR(36) NOT NULL,
    surroundings TEXT DEFAULT '{}' NOT NULL,
    epoch BIGINT DEFAULT '0' NOT NULL,
    oldest_code VARCHAR(32) DEFAULT '0.1.0' NOT NULL,
    oldest_code_at VARCHAR(32) DEFAULT '0001' NOT NULL,
    created_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    CONSTRAINT pk_outbox_instance PRIMARY KEY (id),
    CONSTRAINT ck_outbox_instance_one_row CHECK (id = 1),
    CONSTRAINT ck_outbox_instance_created_at_form CHECK (created_at IS NULL OR (created_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(created_at, '+0 days') IS substr(created_at, 1, 10)))
);

CREATE TABLE outbox_tallies (
    name VARCHAR(64) NOT NULL,
    labels VARCHAR(255) NOT NULL,
    shard SMALLINT NOT NULL,
    value BIGINT NOT NULL,
    CONSTRAINT pk_outbox_tallies PRIMARY KEY (name, labels, shard)
);

CREATE TABLE outbox_tombstones (
    key_hash VARCHAR(64) NOT NULL,
    delivery_id INTEGER NOT NULL,
    state VARCHAR(16) NOT NULL,
    fingerprint VARCHAR(80),
    finished_at VARCHAR(24) NOT NULL,
    CONSTRAINT pk_outbox_tombstones PRIMARY KEY (key_hash),
    CONSTRAINT ck_outbox_tombstones_state CHECK (state IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_tombstones_finished_at_form CHECK (finished_at IS NULL OR (finished_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(finished_at, '+0 days') IS substr(finished_at, 1, 10)))
);

CREATE TABLE outbox_attempts (
    delivery_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind VARCHAR(8) NOT NULL,
    account VARCHAR(64) NOT NULL,
    account_identity VARCHAR(255),
    batch_id INTEGER,
    phase VARCHAR(16) NOT NULL,
    owner VARCHAR(64) NOT NULL,
    token INTEGER NOT NULL,
    recipients TEXT DEFAULT '[]' NOT NULL,
    idempotency_key VARCHAR(64),
    request_digest VARCHAR(64),
    started_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    transmitting_at VARCHAR(24),
    deadline_at VARCHAR(24),
    finished_at VARCHAR(24),
    outcome VARCHAR(16),
    status_code INTEGER,
    outcome_reason TEXT,
    detail TEXT,
    provider_message_id TEXT,
    retry_at VARCHAR(24),
    CONSTRAINT pk_outbox_attempts PRIMARY KEY (delivery_id, number),
    CONSTRAINT ck_outbox_attempts_kind CHECK (kind IN ('send', 'replay', 'look_up')),
    CONSTRAINT ck_outbox_attempts_phase CHECK (phase IN ('claimed', 'transmitting', 'settled')),
    CONSTRAINT ck_outbox_attempts_outcome CHECK (outcome IS NULL OR outcome IN ('accepted', 'duplicate', 'rejected', 'throttled', 'unavailable', 'account_blocked', 'in_doubt', 'in_flight', 'key_mismatch', 'not_started', 'too_late', 'lost')),
    CONSTRAINT ck_outbox_attempts_settled CHECK ((phase = 'settled') = (outcome IS NOT NULL)),
    CONSTRAINT ck_outbox_attempts_transmitting CHECK (phase <> 'transmitting' OR transmitting_at IS NOT NULL),
    CONSTRAINT ck_outbox_attempts_started_at_form CHECK (started_at IS NULL OR (started_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(started_at, '+0 days') IS substr(started_at, 1, 10))),
    CONSTRAINT ck_outbox_attempts_transmitting_at_form CHECK (transmitting_at IS NULL OR (transmitting_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(transmitting_at, '+0 days') IS substr(transmitting_at, 1, 10))),
    CONSTRAINT ck_outbox_attempts_deadline_at_form CHECK (deadline_at IS NULL OR (deadline_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(deadline_at, '+0 days') IS substr(deadline_at, 1, 10))),
    CONSTRAINT ck_outbox_attempts_finished_at_form CHECK (finished_at IS NULL OR (finished_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(finished_at, '+0 days') IS substr(finished_at, 1, 10))),
    CONSTRAINT ck_outbox_attempts_retry_at_form CHECK (retry_at IS NULL OR (retry_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(retry_at, '+0 days') IS substr(retry_at, 1, 10))),
    CONSTRAINT fk_outbox_attempts_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
);

CREATE TABLE outbox_delivery_blobs (
    delivery_id INTEGER NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    CONSTRAINT pk_outbox_delivery_blobs PRIMARY KEY (delivery_id, sha256),
    CONSTRAINT fk_outbox_delivery_blobs_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE,
    CONSTRAINT fk_outbox_delivery_blobs_sha256 FOREIGN KEY(sha256) REFERENCES outbox_blobs (sha256)
);

CREATE INDEX ix_outbox_delivery_blobs_sha256 ON outbox_delivery_blobs (sha256);

CREATE TABLE outbox_evidence (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    delivery_id INTEGER NOT NULL,
    attempt INTEGER,
    recipient INTEGER,
    kind VARCHAR(16) NOT NULL,
    verdict VARCHAR(16) NOT NULL,
    provider_message_id TEXT,
    seen_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    detail TEXT,
    CONSTRAINT ck_outbox_evidence_kind CHECK (kind IN ('answer', 'replay', 'look_up', 'event', 'operator', 'adoption')),
    CONSTRAINT ck_outbox_evidence_verdict CHECK (verdict IN ('taken', 'not_taken', 'unknown')),
    CONSTRAINT ck_outbox_evidence_seen_at_form CHECK (seen_at IS NULL OR (seen_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(seen_at, '+0 days') IS substr(seen_at, 1, 10))),
    CONSTRAINT fk_outbox_evidence_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
);

CREATE INDEX ix_outbox_evidence_delivery_id ON outbox_evidence (delivery_id);

CREATE TABLE outbox_recipients (
    delivery_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind VARCHAR(3) NOT NULL,
    address TEXT NOT NULL,
    address_hash VARCHAR(64) NOT NULL,
    result VARCHAR(16) DEFAULT 'pending' NOT NULL,
    code VARCHAR(64),
    reason TEXT,
    delivery_status VARCHAR(32),
    provider_message_id TEXT,
    updated_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    CONSTRAINT pk_outbox_recipients PRIMARY KEY (delivery_id, position),
    CONSTRAINT uq_outbox_recipients_delivery_id UNIQUE (delivery_id, address_hash),
    CONSTRAINT ck_outbox_recipients_kind CHECK (kind IN ('to', 'cc', 'bcc')),
    CONSTRAINT ck_outbox_recipients_result CHECK (result IN ('pending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_recipients_delivery_status CHECK (delivery_status IS NULL OR delivery_status IN ('delivered', 'deferred', 'bounced', 'complained', 'suppressed_by_provider', 'dropped')),
    CONSTRAINT ck_outbox_recipients_updated_at_form CHECK (updated_at IS NULL OR (updated_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(updated_at, '+0 days') IS substr(updated_at, 1, 10))),
    CONSTRAINT fk_outbox_recipients_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
);

CREATE INDEX ix_outbox_recipients_address_hash ON outbox_recipients (address_hash);

CREATE INDEX ix_outbox_recipients_provider_message_id ON outbox_recipients (provider_message_id);

CREATE TABLE outbox_requests (
    delivery_id INTEGER NOT NULL,
    digest VARCHAR(64) NOT NULL,
    content BLOB NOT NULL,
    renderer_version INTEGER NOT NULL,
    CONSTRAINT pk_outbox_requests PRIMARY KEY (delivery_id, digest),
    CONSTRAINT fk_outbox_requests_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
);

INSERT INTO outbox_instance (id, namespace)
SELECT 1, substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3) || '-8' || substr(h, 18, 3) || '-' || substr(h, 21)
FROM (SELECT lower(hex(randomblob(16))) AS h);

CREATE VIEW outbox_delivery_status AS
SELECT id, delivery_key, state, reason, account, tenant, run_key, send_after, due_at, send_before,
       attempts, copies, resend_of, superseded_by, created_at, updated_at, finished_at
FROM outbox_deliveries;

-- The plain INSERT is the contract for other languages: with ON CONFLICT DO NOTHING a known
-- key with other text would be dropped in silence, so it is refused loudly here.
CREATE TRIGGER outbox_deliveries_key_conflict BEFORE INSERT ON outbox_deliveries
WHEN EXISTS (SELECT 1 FROM outbox_deliveries d
    WHERE d.delivery_key = NEW.delivery_key AND d.message IS NOT NULL AND d.message <> NEW.message)
BEGIN
    SELECT RAISE(ABORT, 'outbox: this delivery_key was enqueued with another message; the first stays');
END;

-- Whoever inserts says when (send_after); the row is due then and not before.
CREATE TRIGGER outbox_deliveries_due_at AFTER INSERT ON outbox_deliveries
WHEN NEW.state = 'pending' AND NEW.due_at < NEW.send_after
BEGIN
    UPDATE outbox_deliveries SET due_at = NEW.send_after WHERE id = NEW.id;
END;
