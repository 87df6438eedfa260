-- 0001, PostgreSQL. Statements are paragraphs: no blank line inside one.

-- Every name below is found through the connection's search path; the functions
-- keep the schema they were created in, and nothing behind it but pg_temp. At the end
-- the path is put back: a host application's own revisions may follow in this transaction.
SELECT set_config('outbox.search_path', current_setting('search_path'), true);

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The one expression that gives the time. now() would stand still in a transaction.
CREATE FUNCTION outbox_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

CREATE TABLE outbox_accounts (
    account VARCHAR(64) NOT NULL,
    scope VARCHAR(255) DEFAULT '' NOT NULL,
    provider VARCHAR(64) DEFAULT '' NOT NULL,
    identity VARCHAR(255),
    limits TEXT DEFAULT '{}' NOT NULL,
    paused_since TIMESTAMP WITH TIME ZONE,
    paused_until TIMESTAMP WITH TIME ZONE,
    pause_reason VARCHAR(16),
    pause_detail TEXT,
    paused_by VARCHAR(64),
    paused_seconds FLOAT DEFAULT '0' NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    rate_state TEXT,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_accounts PRIMARY KEY (account, scope),
    CONSTRAINT ck_outbox_accounts_pause_reason CHECK (pause_reason IS NULL OR pause_reason IN ('credentials', 'permission', 'suspended', 'quota', 'sender_domain', 'throttled', 'breaker', 'operator')),
    CONSTRAINT ck_outbox_accounts_paused CHECK ((paused_until IS NULL) = (pause_reason IS NULL)),
    CONSTRAINT ck_outbox_accounts_paused_since CHECK ((paused_until IS NULL) = (paused_since IS NULL))
);

CREATE TABLE outbox_blobs (
    sha256 VARCHAR(64) NOT NULL,
    size BIGINT NOT NULL,
    content BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_blobs PRIMARY KEY (sha256),
    CONSTRAINT ck_outbox_blobs_sha256 CHECK (length(sha256) = 64)
);

CREATE TABLE outbox_deliveries (
    id BIGSERIAL NOT NULL,
    delivery_key VARCHAR(255) NOT NULL,
    public_id VARCHAR(36),
    resend_of BIGINT,
    superseded_by BIGINT,
    state VARCHAR(16) DEFAULT 'pending' NOT NULL,
    claimed_from VARCHAR(16),
    held_from VARCHAR(16),
    stop_requested VARCHAR(8),
    send_after TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    message TEXT,
    default_from TEXT,
    fingerprint VARCHAR(80),
    account VARCHAR(64) DEFAULT '' NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    send_before TIMESTAMP WITH TIME ZONE,
    when_unsure VARCHAR(16),
    tenant VARCHAR(255),
    tags TEXT DEFAULT '[]' NOT NULL,
    run_key VARCHAR(512),
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_attempt INTEGER DEFAULT '0' NOT NULL,
    crashes INTEGER DEFAULT '0' NOT NULL,
    copies INTEGER DEFAULT '0' NOT NULL,
    extra_transmission VARCHAR(32),
    window_started_at TIMESTAMP WITH TIME ZONE,
    window_paused FLOAT DEFAULT '0' NOT NULL,
    lease_owner VARCHAR(64),
    lease_token BIGINT DEFAULT '0' NOT NULL,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    first_transmitted_at TIMESTAMP WITH TIME ZONE,
    account_identity VARCHAR(255),
    reason VARCHAR(32),
    last_error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox_deliveries PRIMARY KEY (id),
    CONSTRAINT ck_outbox_deliveries_state CHECK (state IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_claimed_from CHECK (claimed_from IS NULL OR claimed_from IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_held_from CHECK (held_from IS NULL OR held_from IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_stop_requested CHECK (stop_requested IS NULL OR stop_requested IN ('cancel', 'hold')),
    CONSTRAINT ck_outbox_deliveries_when_unsure CHECK (when_unsure IS NULL OR when_unsure IN ('hold', 'send_again')),
    CONSTRAINT ck_outbox_deliveries_reason CHECK ((state IN ('held', 'failed', 'cancelled')) = (reason IS NOT NULL) AND (reason IS NULL OR (state = 'held' AND reason IN ('no_evidence', 'key_mismatch', 'exhausted_in_doubt', 'account_changed', 'blocked_too_long', 'unknown_account', 'crashed_alone', 'operator')) OR (state = 'failed' AND reason IN ('rejected', 'exhausted', 'throttled', 'sender_not_allowed', 'suppressed', 'invalid_message')) OR (state = 'cancelled' AND reason IN ('producer', 'operator', 'already_settled')))),
    CONSTRAINT ck_outbox_deliveries_key_length CHECK (length(delivery_key) BETWEEN 1 AND 255),
    CONSTRAINT ck_outbox_deliveries_key_tilde CHECK (resend_of IS NOT NULL OR delivery_key NOT LIKE '%~%'),
    CONSTRAINT ck_outbox_deliveries_key_printable CHECK (delivery_key !~ '[[:cntrl:]]'),
    CONSTRAINT ck_outbox_deliveries_send_before CHECK (send_before IS NULL OR send_before > send_after),
    CONSTRAINT ck_outbox_deliveries_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT ck_outbox_deliveries_lease CHECK ((state = 'sending') = (lease_owner IS NOT NULL)),
    CONSTRAINT ck_outbox_deliveries_lease_expires_at CHECK ((lease_owner IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT ck_outbox_deliveries_held CHECK ((state = 'held') = (held_from IS NOT NULL)),
    CONSTRAINT ck_outbox_deliveries_finished CHECK ((state IN ('accepted', 'failed', 'expired', 'cancelled', 'unresolved')) = (finished_at IS NOT NULL)),
    CONSTRAINT ck_outbox_deliveries_message CHECK (message IS NOT NULL OR state IN ('accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_deliveries_send_after_form CHECK (send_after BETWEEN '1000-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'),
    CONSTRAINT ck_outbox_deliveries_due_at_form CHECK (due_at BETWEEN '1000-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'),
    CONSTRAINT ck_outbox_deliveries_send_before_form CHECK (send_before BETWEEN '1000-01-01 00:00:00+00' AND '9999-12-30 00:00:00+00'),
    CONSTRAINT uq_outbox_deliveries_delivery_key UNIQUE (delivery_key),
    CONSTRAINT uq_outbox_deliveries_public_id UNIQUE (public_id),
    CONSTRAINT fk_outbox_deliveries_resend_of FOREIGN KEY(resend_of) REFERENCES outbox_deliveries (id),
    CONSTRAINT fk_outbox_deliveries_superseded_by FOREIGN KEY(superseded_by) REFERENCES outbox_deliveries (id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

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
    started_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_dispatchers PRIMARY KEY (owner)
);

CREATE TABLE outbox_instance (
    id INTEGER NOT NULL,
    name VARCHAR(64) DEFAULT '' NOT NULL,
    namespace VARCHAR(36) NOT NULL,
    surroundings TEXT DEFAULT '{}' NOT NULL,
    epoch BIGINT DEFAULT '0' NOT NULL,
    oldest_code VARCHAR(32) DEFAULT '0.1.0' NOT NULL,
    oldest_code_at VARCHAR(32) DEFAULT '0001' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_instance PRIMARY KEY (id),
    CONSTRAINT ck_outbox_instance_one_row CHECK (id = 1)
);

CREATE TABLE outbox_tallies (
    name VARCHAR(64) NOT NULL,
    labels VARCHAR(255) NOT NULL,
    shard SMALLINT NOT NULL,
    value BIGINT NOT NULL,
    CONSTRAINT pk_outbox_tallies PRIMARY KEY (name, labels, shard)
) WITH (fillfactor = 50);

CREATE TABLE outbox_tombstones (
    key_hash VARCHAR(64) NOT NULL,
    delivery_id BIGINT NOT NULL,
    state VARCHAR(16) NOT NULL,
    fingerprint VARCHAR(80),
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_outbox_tombstones PRIMARY KEY (key_hash),
    CONSTRAINT ck_outbox_tombstones_state CHECK (state IN ('pending', 'sending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved'))
);

CREATE TABLE outbox_attempts (
    delivery_id BIGINT NOT NULL,
    number INTEGER NOT NULL,
    kind VARCHAR(8) NOT NULL,
    account VARCHAR(64) NOT NULL,
    account_identity VARCHAR(255),
    batch_id BIGINT,
    phase VARCHAR(16) NOT NULL,
    owner VARCHAR(64) NOT NULL,
    token BIGINT NOT NULL,
    recipients TEXT DEFAULT '[]' NOT NULL,
    idempotency_key VARCHAR(64),
    request_digest VARCHAR(64),
    started_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    transmitting_at TIMESTAMP WITH TIME ZONE,
    deadline_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome VARCHAR(16),
    status_code INTEGER,
    outcome_reason TEXT,
    detail TEXT,
    provider_message_id TEXT,
    retry_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox_attempts PRIMARY KEY (delivery_id, number),
    CONSTRAINT ck_outbox_attempts_kind CHECK (kind IN ('send', 'replay', 'look_up')),
    CONSTRAINT ck_outbox_attempts_phase CHECK (phase IN ('claimed', 'transmitting', 'settled')),
    CONSTRAINT ck_outbox_attempts_outcome CHECK (outcome IS NULL OR outcome IN ('accepted', 'duplicate', 'rejected', 'throttled', 'unavailable', 'account_blocked', 'in_doubt', 'in_flight', 'key_mismatch', 'not_started', 'too_late', 'lost')),
    CONSTRAINT ck_outbox_attempts_settled CHECK ((phase = 'settled') = (outcome IS NOT NULL)),
    CONSTRAINT ck_outbox_attempts_transmitting CHECK (phase <> 'transmitting' OR transmitting_at IS NOT NULL),
    CONSTRAINT fk_outbox_attempts_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE outbox_delivery_blobs (
    delivery_id BIGINT NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    CONSTRAINT pk_outbox_delivery_blobs PRIMARY KEY (delivery_id, sha256),
    CONSTRAINT fk_outbox_delivery_blobs_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE,
    CONSTRAINT fk_outbox_delivery_blobs_sha256 FOREIGN KEY(sha256) REFERENCES outbox_blobs (sha256)
);

CREATE INDEX ix_outbox_delivery_blobs_sha256 ON outbox_delivery_blobs (sha256);

CREATE TABLE outbox_evidence (
    id BIGSERIAL NOT NULL,
    delivery_id BIGINT NOT NULL,
    attempt INTEGER,
    recipient INTEGER,
    kind VARCHAR(16) NOT NULL,
    verdict VARCHAR(16) NOT NULL,
    provider_message_id TEXT,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    detail TEXT,
    CONSTRAINT pk_outbox_evidence PRIMARY KEY (id),
    CONSTRAINT ck_outbox_evidence_kind CHECK (kind IN ('answer', 'replay', 'look_up', 'event', 'operator', 'adoption')),
    CONSTRAINT ck_outbox_evidence_verdict CHECK (verdict IN ('taken', 'not_taken', 'unknown')),
    CONSTRAINT fk_outbox_evidence_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
);

CREATE INDEX ix_outbox_evidence_delivery_id ON outbox_evidence (delivery_id);

CREATE TABLE outbox_recipients (
    delivery_id BIGINT NOT NULL,
    position INTEGER NOT NULL,
    kind VARCHAR(3) NOT NULL,
    address TEXT NOT NULL,
    address_hash VARCHAR(64) NOT NULL,
    result VARCHAR(16) DEFAULT 'pending' NOT NULL,
    code VARCHAR(64),
    reason TEXT,
    delivery_status VARCHAR(32),
    provider_message_id TEXT,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_recipients PRIMARY KEY (delivery_id, position),
    CONSTRAINT uq_outbox_recipients_delivery_id UNIQUE (delivery_id, address_hash),
    CONSTRAINT ck_outbox_recipients_kind CHECK (kind IN ('to', 'cc', 'bcc')),
    CONSTRAINT ck_outbox_recipients_result CHECK (result IN ('pending', 'in_doubt', 'held', 'accepted', 'failed', 'expired', 'cancelled', 'unresolved')),
    CONSTRAINT ck_outbox_recipients_delivery_status CHECK (delivery_status IS NULL OR delivery_status IN ('delivered', 'deferred', 'bounced', 'complained', 'suppressed_by_provider', 'dropped')),
    CONSTRAINT fk_outbox_recipients_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ix_outbox_recipients_address_hash ON outbox_recipients (address_hash);

CREATE INDEX ix_outbox_recipients_provider_message_id ON outbox_recipients (provider_message_id);

CREATE TABLE outbox_requests (
    delivery_id BIGINT NOT NULL,
    digest VARCHAR(64) NOT NULL,
    content BYTEA NOT NULL,
    renderer_version INTEGER NOT NULL,
    CONSTRAINT pk_outbox_requests PRIMARY KEY (delivery_id, digest),
    CONSTRAINT fk_outbox_requests_delivery_id FOREIGN KEY(delivery_id) REFERENCES outbox_deliveries (id) ON DELETE CASCADE
);

INSERT INTO outbox_instance (id, namespace) VALUES (1, gen_random_uuid()::text);

CREATE VIEW outbox_delivery_status AS
SELECT id, delivery_key, state, reason, account, tenant, run_key, send_after, due_at, send_before,
       attempts, copies, resend_of, superseded_by, created_at, updated_at, finished_at
FROM outbox_deliveries;

-- Two texts are the same message if they are the same JSON value. jsonb refuses what json
-- keeps (a lone surrogate); then only equal text is equal.
CREATE FUNCTION outbox_same_message(first text, second text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF first = second THEN RETURN true; END IF;
    RETURN first::jsonb = second::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;

CREATE FUNCTION outbox_enqueue(
    key text,
    message text,
    account text DEFAULT '',
    send_after timestamptz DEFAULT NULL,
    send_before timestamptz DEFAULT NULL,
    when_unsure text DEFAULT NULL,
    priority integer DEFAULT 0,
    tenant text DEFAULT NULL,
    run_key text DEFAULT NULL,
    if_exists text DEFAULT 'raise'
) RETURNS TABLE (id bigint, created boolean, state text, conflict boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    parsed json := outbox_enqueue.message::json;
    start timestamptz := coalesce(outbox_enqueue.send_after, outbox_now());
    new_id bigint;
    known record;
    differs boolean;
BEGIN
    IF if_exists IS NULL OR if_exists NOT IN ('raise', 'keep', 'return') THEN
        RAISE EXCEPTION 'outbox: if_exists is raise, keep or return, not %', if_exists USING ERRCODE = '22023';
    END IF;
    IF json_typeof(parsed) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'outbox: message: not a JSON object' USING ERRCODE = '22023';
    END IF;
    SELECT t.delivery_id, t.state INTO known FROM outbox_tombstones t
        WHERE t.key_hash = encode(sha256(convert_to(outbox_enqueue.key, 'UTF8')), 'hex');
    IF FOUND THEN
        RETURN QUERY SELECT known.delivery_id, false, known.state::text, false;
        RETURN;
    END IF;
    INSERT INTO outbox_deliveries AS d
        (delivery_key, message, account, send_after, due_at, send_before, when_unsure, priority, tenant, run_key, tags)
    SELECT outbox_enqueue.key, outbox_enqueue.message, outbox_enqueue.account, start, start,
        outbox_enqueue.send_before, outbox_enqueue.when_unsure, outbox_enqueue.priority,
        outbox_enqueue.tenant, outbox_enqueue.run_key,
        CASE WHEN json_typeof(parsed->'tags') = 'array' THEN (parsed->'tags')::text ELSE '[]' END
    -- A CHECK is asked before a conflict: a known key must not fail for a send_before that has passed.
    WHERE NOT EXISTS (SELECT 1 FROM outbox_deliveries e WHERE e.delivery_key = outbox_enqueue.key)
    ON CONFLICT (delivery_key) DO NOTHING RETURNING d.id INTO new_id;
    IF new_id IS NOT NULL THEN
        IF json_typeof(parsed->'attachments') = 'array' THEN
            INSERT INTO outbox_delivery_blobs (delivery_id, sha256)
            SELECT DISTINCT new_id, a->>'sha256' FROM json_array_elements(parsed->'attachments') a
            WHERE json_typeof(a) = 'object' AND a->>'sha256' IS NOT NULL ORDER BY 2;
        END IF;
        RETURN QUERY SELECT new_id, true, 'pending'::text, false;
        RETURN;
    END IF;
    SELECT d.id, d.state, d.message, d.created_at INTO known FROM outbox_deliveries d
        WHERE d.delivery_key = outbox_enqueue.key;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'outbox: % was enqueued after this transaction began; retry it', outbox_enqueue.key
            USING ERRCODE = '40001';
    END IF;
    differs := known.message IS NOT NULL AND NOT outbox_same_message(known.message, outbox_enqueue.message);
    IF differs AND if_exists = 'raise' THEN
        RAISE EXCEPTION 'outbox: % was enqueued at % with another message; the first stays',
            outbox_enqueue.key, known.created_at USING ERRCODE = '23505', CONSTRAINT = 'outbox_key_conflict';
    END IF;
    RETURN QUERY SELECT known.id, false, known.state::text, differs;
END $$;

CREATE FUNCTION outbox_put_blob(content bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    digest text := encode(sha256(content), 'hex');
BEGIN
    LOOP
        INSERT INTO outbox_blobs (sha256, size, content)
            VALUES (digest, octet_length(outbox_put_blob.content), outbox_put_blob.content)
            ON CONFLICT DO NOTHING;
        PERFORM 1 FROM outbox_blobs b WHERE b.sha256 = digest FOR KEY SHARE;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN digest;
END $$;

-- What outbox.cancel does, for producers without table rights: 'cancelled', 'requested',
-- or the state in which it came too late; NULL for a key that is not known.
CREATE FUNCTION outbox_cancel(key text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    row outbox_deliveries%ROWTYPE;
    instant timestamptz := outbox_now();
    ended text;
BEGIN
    SELECT * INTO row FROM outbox_deliveries d WHERE d.delivery_key = outbox_cancel.key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN (SELECT t.state FROM outbox_tombstones t
            WHERE t.key_hash = encode(sha256(convert_to(outbox_cancel.key, 'UTF8')), 'hex'));
    END IF;
    IF row.state = 'sending' THEN
        UPDATE outbox_deliveries d SET stop_requested = 'cancel', updated_at = instant WHERE d.id = row.id;
        RETURN 'requested';
    END IF;
    IF row.state <> 'pending' AND NOT (row.state = 'held' AND row.held_from = 'pending') THEN
        RETURN row.state;
    END IF;
    UPDATE outbox_recipients r SET result = 'cancelled', updated_at = instant
        WHERE r.delivery_id = row.id AND r.result IN ('pending', 'held');
    ended := coalesce((
        SELECT CASE
            WHEN bool_or(r.result = 'accepted') THEN 'accepted'
            WHEN bool_or(r.result = 'unresolved') THEN 'unresolved'
            WHEN bool_or(r.result = 'expired') THEN 'expired'
            WHEN bool_or(r.result = 'failed') THEN 'failed'
        END FROM outbox_recipients r WHERE r.delivery_id = row.id), 'cancelled');
    UPDATE outbox_deliveries d
        SET state = ended,
            reason = CASE ended WHEN 'cancelled' THEN 'producer' WHEN 'failed' THEN 'rejected' END,
            held_from = NULL, finished_at = instant, updated_at = instant
        WHERE d.id = row.id;
    INSERT INTO outbox_tallies AS t (name, labels, shard, value)
        VALUES ('deliveries_finished', row.account || ' ' || ended, 0, 1)
        ON CONFLICT (name, labels, shard) DO UPDATE SET value = t.value + 1;
    RETURN ended;
END $$;

-- A function is executable by everybody unless this is said: only those who were
-- granted the right may use the definer's rights.
REVOKE EXECUTE ON FUNCTION outbox_enqueue, outbox_put_blob, outbox_cancel FROM PUBLIC;

SELECT set_config('search_path', current_setting('outbox.search_path'), true);
