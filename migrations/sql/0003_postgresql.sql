-- 0003, PostgreSQL. Statements are paragraphs: no blank line inside one.

CREATE TABLE outbox_schedules (
    id BIGSERIAL NOT NULL,
    job VARCHAR(100) NOT NULL,
    subject VARCHAR(200) NOT NULL,
    source VARCHAR(16) DEFAULT 'operator' NOT NULL,
    state VARCHAR(16) DEFAULT 'active' NOT NULL,
    timezone VARCHAR(64) DEFAULT 'UTC' NOT NULL,
    rule TEXT,
    missed VARCHAR(8),
    overlap VARCHAR(8),
    due_after BIGINT,
    useful_for BIGINT,
    overdue_after BIGINT,
    attributes TEXT DEFAULT '{}' NOT NULL,
    active_since TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    planned_until TIMESTAMP WITH TIME ZONE,
    planned_label VARCHAR(200),
    planned_rule TEXT,
    planned_timezone VARCHAR(64),
    planned_zone_data VARCHAR(16),
    next_due_at TIMESTAMP WITH TIME ZONE,
    definition_version VARCHAR(80),
    note TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox_schedules PRIMARY KEY (id),
    CONSTRAINT uq_outbox_schedules_job UNIQUE (job, subject),
    CONSTRAINT ck_outbox_schedules_source CHECK (source IN ('code', 'operator')),
    CONSTRAINT ck_outbox_schedules_state CHECK (state IN ('active', 'paused', 'ended')),
    CONSTRAINT ck_outbox_schedules_missed CHECK (missed IS NULL OR missed IN ('all', 'latest', 'none')),
    CONSTRAINT ck_outbox_schedules_overlap CHECK (overlap IS NULL OR overlap IN ('wait', 'skip', 'allow')),
    CONSTRAINT ck_outbox_schedules_policies CHECK (NOT (missed IS NOT NULL AND overlap IS NOT NULL AND missed = 'all' AND overlap = 'skip')),
    CONSTRAINT ck_outbox_schedules_ended CHECK ((state = 'ended') = (ended_at IS NOT NULL))
);

CREATE INDEX ix_outbox_schedules_next_due_at ON outbox_schedules (next_due_at) WHERE state = 'active';

CREATE TABLE outbox_backfills (
    id BIGSERIAL NOT NULL,
    job VARCHAR(100) NOT NULL,
    subjects TEXT,
    range_start TIMESTAMP WITH TIME ZONE NOT NULL,
    range_end TIMESTAMP WITH TIME ZONE NOT NULL,
    state VARCHAR(16) DEFAULT 'active' NOT NULL,
    pause_reason VARCHAR(32),
    pause_detail TEXT,
    runs_per_hour INTEGER,
    concurrency INTEGER DEFAULT '1' NOT NULL,
    deliveries BOOLEAN DEFAULT false NOT NULL,
    definition_version VARCHAR(80),
    parameters TEXT DEFAULT '{}' NOT NULL,
    parameter_hash VARCHAR(80),
    cursor TEXT,
    expected_runs INTEGER,
    planned_runs INTEGER DEFAULT '0' NOT NULL,
    left_out INTEGER DEFAULT '0' NOT NULL,
    last_started_at TIMESTAMP WITH TIME ZONE,
    ordered_by VARCHAR(255) DEFAULT '' NOT NULL,
    note TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox_backfills PRIMARY KEY (id),
    CONSTRAINT ck_outbox_backfills_state CHECK (state IN ('active', 'paused', 'done', 'cancelled')),
    CONSTRAINT ck_outbox_backfills_pause_reason CHECK (pause_reason IS NULL OR pause_reason IN ('operator', 'definition_changed')),
    CONSTRAINT ck_outbox_backfills_paused CHECK ((state = 'paused') = (pause_reason IS NOT NULL)),
    CONSTRAINT ck_outbox_backfills_finished CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT ck_outbox_backfills_range CHECK (range_end > range_start),
    CONSTRAINT ck_outbox_backfills_concurrency CHECK (concurrency >= 1),
    CONSTRAINT ck_outbox_backfills_runs_per_hour CHECK (runs_per_hour IS NULL OR runs_per_hour >= 1)
);

CREATE INDEX ix_outbox_backfills_job ON outbox_backfills (job);

CREATE TABLE outbox_runs (
    id BIGSERIAL NOT NULL,
    run_key VARCHAR(200) NOT NULL,
    job VARCHAR(100) NOT NULL,
    subject VARCHAR(200) NOT NULL,
    label VARCHAR(200) NOT NULL,
    kind VARCHAR(16) DEFAULT 'period' NOT NULL,
    revision INTEGER DEFAULT '1' NOT NULL,
    period_start TIMESTAMP WITH TIME ZONE,
    period_end TIMESTAMP WITH TIME ZONE,
    periods INTEGER DEFAULT '1' NOT NULL,
    adjusted BOOLEAN DEFAULT false NOT NULL,
    timezone VARCHAR(64),
    origin VARCHAR(16) DEFAULT 'manual' NOT NULL,
    backfill_id BIGINT,
    deliveries BOOLEAN DEFAULT true NOT NULL,
    state VARCHAR(16) DEFAULT 'planned' NOT NULL,
    reason VARCHAR(16),
    detail TEXT,
    due_at TIMESTAMP WITH TIME ZONE,
    deadline_at TIMESTAMP WITH TIME ZONE,
    overdue_at TIMESTAMP WITH TIME ZONE,
    next_attempt_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    token BIGINT DEFAULT '0' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_attempt INTEGER DEFAULT '0' NOT NULL,
    max_attempts INTEGER,
    input_hash VARCHAR(80),
    input_version VARCHAR(255),
    inputs TEXT,
    definition_version VARCHAR(80),
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    duration FLOAT,
    records BIGINT,
    output TEXT,
    output_summary TEXT,
    last_error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_runs PRIMARY KEY (id),
    CONSTRAINT uq_outbox_runs_period UNIQUE (job, subject, period_start, kind, revision),
    CONSTRAINT ck_outbox_runs_run_key_length CHECK (length(run_key) BETWEEN 1 AND 200),
    CONSTRAINT ck_outbox_runs_kind CHECK (kind IN ('period', 'label', 'backfill', 'range')),
    CONSTRAINT ck_outbox_runs_origin CHECK (origin IN ('schedule', 'manual', 'backfill', 'recorded')),
    CONSTRAINT ck_outbox_runs_state CHECK (state IN ('planned', 'running', 'succeeded', 'failed', 'skipped', 'cancelled')),
    CONSTRAINT ck_outbox_runs_reason CHECK ((state IN ('failed', 'skipped', 'cancelled')) = (reason IS NOT NULL) AND (reason IS NULL OR (state = 'failed' AND reason IN ('permanent', 'exhausted')) OR (state = 'skipped' AND reason IN ('too_late', 'overlap', 'missed', 'inactive')) OR (state = 'cancelled' AND reason IN ('operator', 'replanned')))),
    CONSTRAINT ck_outbox_runs_counts CHECK (revision >= 1 AND periods >= 1),
    CONSTRAINT ck_outbox_runs_label CHECK ((kind = 'label') = (period_start IS NULL)),
    CONSTRAINT ck_outbox_runs_period CHECK ((period_start IS NULL) = (period_end IS NULL)),
    CONSTRAINT ck_outbox_runs_period_order CHECK (period_end IS NULL OR period_end > period_start),
    CONSTRAINT ck_outbox_runs_backfill CHECK ((kind = 'backfill') = (backfill_id IS NOT NULL)),
    CONSTRAINT ck_outbox_runs_range CHECK (kind <> 'range' OR state = 'skipped'),
    CONSTRAINT ck_outbox_runs_periods CHECK (kind = 'range' OR periods = 1),
    CONSTRAINT ck_outbox_runs_started CHECK (state <> 'running' OR started_at IS NOT NULL),
    CONSTRAINT ck_outbox_runs_finished CHECK ((state IN ('succeeded', 'failed', 'skipped', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT uq_outbox_runs_run_key UNIQUE (run_key),
    CONSTRAINT fk_outbox_runs_backfill_id FOREIGN KEY(backfill_id) REFERENCES outbox_backfills (id)
);

CREATE INDEX ix_outbox_runs_backfill_id ON outbox_runs (backfill_id);

CREATE INDEX ix_outbox_runs_finished ON outbox_runs (job, finished_at);

CREATE INDEX ix_outbox_runs_label ON outbox_runs (job, subject, label);

CREATE INDEX ix_outbox_runs_overdue ON outbox_runs (overdue_at) WHERE state IN ('planned', 'running', 'failed');

CREATE INDEX ix_outbox_runs_ready ON outbox_runs (next_attempt_at, id) WHERE state = 'planned';

CREATE INDEX ix_outbox_runs_running ON outbox_runs (job, subject) WHERE state = 'running';

CREATE TABLE outbox_run_attempts (
    run_id BIGINT NOT NULL,
    number INTEGER NOT NULL,
    owner VARCHAR(64) NOT NULL,
    token BIGINT NOT NULL,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    beat_at TIMESTAMP WITH TIME ZONE,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome VARCHAR(16),
    error TEXT,
    error_type VARCHAR(255),
    traceback TEXT,
    permanent BOOLEAN,
    retry_at TIMESTAMP WITH TIME ZONE,
    progress_done BIGINT,
    progress_total BIGINT,
    log_excerpt TEXT,
    input_hash VARCHAR(80),
    input_version VARCHAR(255),
    definition_version VARCHAR(80),
    CONSTRAINT pk_outbox_run_attempts PRIMARY KEY (run_id, number),
    CONSTRAINT ck_outbox_run_attempts_outcome CHECK (outcome IS NULL OR outcome IN ('succeeded', 'failed', 'lost', 'given_back', 'cancelled')),
    CONSTRAINT ck_outbox_run_attempts_finished CHECK ((outcome IS NULL) = (finished_at IS NULL)),
    CONSTRAINT ck_outbox_run_attempts_lease CHECK ((outcome IS NULL) = (lease_expires_at IS NOT NULL)),
    CONSTRAINT fk_outbox_run_attempts_run_id FOREIGN KEY(run_id) REFERENCES outbox_runs (id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX uq_outbox_run_attempts_open ON outbox_run_attempts (run_id) WHERE outcome IS NULL;

CREATE TABLE outbox_consumed_events (
    source VARCHAR(128) NOT NULL,
    event_id VARCHAR(255) NOT NULL,
    consumed_at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    CONSTRAINT pk_outbox_consumed_events PRIMARY KEY (source, event_id)
);

CREATE INDEX ix_outbox_consumed_events_consumed_at ON outbox_consumed_events (consumed_at);

UPDATE outbox_instance SET oldest_code_at = '0003';
