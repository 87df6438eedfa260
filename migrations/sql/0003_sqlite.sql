-- 0003, SQLite. Statements are paragraphs: no blank line inside one.

CREATE TABLE outbox_schedules (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
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
    active_since VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    planned_until VARCHAR(24),
    planned_label VARCHAR(200),
    planned_rule TEXT,
    planned_timezone VARCHAR(64),
    planned_zone_data VARCHAR(16),
    next_due_at VARCHAR(24),
    definition_version VARCHAR(80),
    note TEXT,
    created_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    updated_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    ended_at VARCHAR(24),
    CONSTRAINT uq_outbox_schedules_job UNIQUE (job, subject),
    CONSTRAINT ck_outbox_schedules_source CHECK (source IN ('code', 'operator')),
    CONSTRAINT ck_outbox_schedules_state CHECK (state IN ('active', 'paused', 'ended')),
    CONSTRAINT ck_outbox_schedules_missed CHECK (missed IS NULL OR missed IN ('all', 'latest', 'none')),
    CONSTRAINT ck_outbox_schedules_overlap CHECK (overlap IS NULL OR overlap IN ('wait', 'skip', 'allow')),
    CONSTRAINT ck_outbox_schedules_policies CHECK (NOT (missed IS NOT NULL AND overlap IS NOT NULL AND missed = 'all' AND overlap = 'skip')),
    CONSTRAINT ck_outbox_schedules_ended CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT ck_outbox_schedules_active_since_form CHECK (active_since IS NULL OR (active_since GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(active_since, '+0 days') IS substr(active_since, 1, 10))),
    CONSTRAINT ck_outbox_schedules_planned_until_form CHECK (planned_until IS NULL OR (planned_until GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(planned_until, '+0 days') IS substr(planned_until, 1, 10))),
    CONSTRAINT ck_outbox_schedules_next_due_at_form CHECK (next_due_at IS NULL OR (next_due_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(next_due_at, '+0 days') IS substr(next_due_at, 1, 10))),
    CONSTRAINT ck_outbox_schedules_created_at_form CHECK (created_at IS NULL OR (created_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(created_at, '+0 days') IS substr(created_at, 1, 10))),
    CONSTRAINT ck_outbox_schedules_updated_at_form CHECK (updated_at IS NULL OR (updated_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(updated_at, '+0 days') IS substr(updated_at, 1, 10))),
    CONSTRAINT ck_outbox_schedules_ended_at_form CHECK (ended_at IS NULL OR (ended_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(ended_at, '+0 days') IS substr(ended_at, 1, 10)))
);

CREATE INDEX ix_outbox_schedules_next_due_at ON outbox_schedules (next_due_at) WHERE state = 'active';

CREATE TABLE outbox_backfills (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    job VARCHAR(100) NOT NULL,
    subjects TEXT,
    range_start VARCHAR(24) NOT NULL,
    range_end VARCHAR(24) NOT NULL,
    state VARCHAR(16) DEFAULT 'active' NOT NULL,
    pause_reason VARCHAR(32),
    pause_detail TEXT,
    runs_per_hour INTEGER,
    concurrency INTEGER DEFAULT '1' NOT NULL,
    deliveries BOOLEAN DEFAULT 0 NOT NULL,
    definition_version VARCHAR(80),
    parameters TEXT DEFAULT '{}' NOT NULL,
    parameter_hash VARCHAR(80),
    cursor TEXT,
    expected_runs INTEGER,
    planned_runs INTEGER DEFAULT '0' NOT NULL,
    left_out INTEGER DEFAULT '0' NOT NULL,
    last_started_at VARCHAR(24),
    ordered_by VARCHAR(255) DEFAULT '' NOT NULL,
    note TEXT,
    created_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    updated_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    finished_at VARCHAR(24),
    CONSTRAINT ck_outbox_backfills_state CHECK (state IN ('active', 'paused', 'done', 'cancelled')),
    CONSTRAINT ck_outbox_backfills_pause_reason CHECK (pause_reason IS NULL OR pause_reason IN ('operator', 'definition_changed')),
    CONSTRAINT ck_outbox_backfills_paused CHECK ((state = 'paused') = (pause_reason IS NOT NULL)),
    CONSTRAINT ck_outbox_backfills_finished CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT ck_outbox_backfills_range CHECK (range_end > range_start),
    CONSTRAINT ck_outbox_backfills_concurrency CHECK (concurrency >= 1),
    CONSTRAINT ck_outbox_backfills_runs_per_hour CHECK (runs_per_hour IS NULL OR runs_per_hour >= 1),
    CONSTRAINT ck_outbox_backfills_range_start_form CHECK (range_start IS NULL OR (range_start GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(range_start, '+0 days') IS substr(range_start, 1, 10))),
    CONSTRAINT ck_outbox_backfills_range_end_form CHECK (range_end IS NULL OR (range_end GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(range_end, '+0 days') IS substr(range_end, 1, 10))),
    CONSTRAINT ck_outbox_backfills_last_started_at_form CHECK (last_started_at IS NULL OR (last_started_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(last_started_at, '+0 days') IS substr(last_started_at, 1, 10))),
    CONSTRAINT ck_outbox_backfills_created_at_form CHECK (created_at IS NULL OR (created_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(created_at, '+0 days') IS substr(created_at, 1, 10))),
    CONSTRAINT ck_outbox_backfills_updated_at_form CHECK (updated_at IS NULL OR (updated_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(updated_at, '+0 days') IS substr(updated_at, 1, 10))),
    CONSTRAINT ck_outbox_backfills_finished_at_form CHECK (finished_at IS NULL OR (finished_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(finished_at, '+0 days') IS substr(finished_at, 1, 10)))
);

CREATE INDEX ix_outbox_backfills_job ON outbox_backfills (job);

CREATE TABLE outbox_runs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_key VARCHAR(200) NOT NULL,
    job VARCHAR(100) NOT NULL,
    subject VARCHAR(200) NOT NULL,
    label VARCHAR(200) NOT NULL,
    kind VARCHAR(16) DEFAULT 'period' NOT NULL,
    revision INTEGER DEFAULT '1' NOT NULL,
    period_start VARCHAR(24),
    period_end VARCHAR(24),
    periods INTEGER DEFAULT '1' NOT NULL,
    adjusted BOOLEAN DEFAULT 0 NOT NULL,
    timezone VARCHAR(64),
    origin VARCHAR(16) DEFAULT 'manual' NOT NULL,
    backfill_id INTEGER,
    deliveries BOOLEAN DEFAULT 1 NOT NULL,
    state VARCHAR(16) DEFAULT 'planned' NOT NULL,
    reason VARCHAR(16),
    detail TEXT,
    due_at VARCHAR(24),
    deadline_at VARCHAR(24),
    overdue_at VARCHAR(24),
    next_attempt_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    token INTEGER DEFAULT '0' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    last_attempt INTEGER DEFAULT '0' NOT NULL,
    max_attempts INTEGER,
    input_hash VARCHAR(80),
    input_version VARCHAR(255),
    inputs TEXT,
    definition_version VARCHAR(80),
    started_at VARCHAR(24),
    finished_at VARCHAR(24),
    duration FLOAT,
    records BIGINT,
    output TEXT,
    output_summary TEXT,
    last_error TEXT,
    created_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    updated_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
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
    CONSTRAINT ck_outbox_runs_period_start_form CHECK (period_start IS NULL OR (period_start GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(period_start, '+0 days') IS substr(period_start, 1, 10))),
    CONSTRAINT ck_outbox_runs_period_end_form CHECK (period_end IS NULL OR (period_end GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(period_end, '+0 days') IS substr(period_end, 1, 10))),
    CONSTRAINT ck_outbox_runs_due_at_form CHECK (due_at IS NULL OR (due_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(due_at, '+0 days') IS substr(due_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_deadline_at_form CHECK (deadline_at IS NULL OR (deadline_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(deadline_at, '+0 days') IS substr(deadline_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_overdue_at_form CHECK (overdue_at IS NULL OR (overdue_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(overdue_at, '+0 days') IS substr(overdue_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_next_attempt_at_form CHECK (next_attempt_at IS NULL OR (next_attempt_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(next_attempt_at, '+0 days') IS substr(next_attempt_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_started_at_form CHECK (started_at IS NULL OR (started_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(started_at, '+0 days') IS substr(started_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_finished_at_form CHECK (finished_at IS NULL OR (finished_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(finished_at, '+0 days') IS substr(finished_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_created_at_form CHECK (created_at IS NULL OR (created_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(created_at, '+0 days') IS substr(created_at, 1, 10))),
    CONSTRAINT ck_outbox_runs_updated_at_form CHECK (updated_at IS NULL OR (updated_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(updated_at, '+0 days') IS substr(updated_at, 1, 10))),
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
    run_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    owner VARCHAR(64) NOT NULL,
    token INTEGER NOT NULL,
    lease_expires_at VARCHAR(24),
    beat_at VARCHAR(24),
    started_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    finished_at VARCHAR(24),
    outcome VARCHAR(16),
    error TEXT,
    error_type VARCHAR(255),
    traceback TEXT,
    permanent BOOLEAN,
    retry_at VARCHAR(24),
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
    CONSTRAINT ck_outbox_run_attempts_lease_expires_at_form CHECK (lease_expires_at IS NULL OR (lease_expires_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(lease_expires_at, '+0 days') IS substr(lease_expires_at, 1, 10))),
    CONSTRAINT ck_outbox_run_attempts_beat_at_form CHECK (beat_at IS NULL OR (beat_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(beat_at, '+0 days') IS substr(beat_at, 1, 10))),
    CONSTRAINT ck_outbox_run_attempts_started_at_form CHECK (started_at IS NULL OR (started_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(started_at, '+0 days') IS substr(started_at, 1, 10))),
    CONSTRAINT ck_outbox_run_attempts_finished_at_form CHECK (finished_at IS NULL OR (finished_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(finished_at, '+0 days') IS substr(finished_at, 1, 10))),
    CONSTRAINT ck_outbox_run_attempts_retry_at_form CHECK (retry_at IS NULL OR (retry_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(retry_at, '+0 days') IS substr(retry_at, 1, 10))),
    CONSTRAINT fk_outbox_run_attempts_run_id FOREIGN KEY(run_id) REFERENCES outbox_runs (id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX uq_outbox_run_attempts_open ON outbox_run_attempts (run_id) WHERE outcome IS NULL;

CREATE TABLE outbox_consumed_events (
    source VARCHAR(128) NOT NULL,
    event_id VARCHAR(255) NOT NULL,
    consumed_at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    CONSTRAINT pk_outbox_consumed_events PRIMARY KEY (source, event_id),
    CONSTRAINT ck_outbox_consumed_events_consumed_at_form CHECK (consumed_at IS NULL OR (consumed_at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(consumed_at, '+0 days') IS substr(consumed_at, 1, 10)))
);

CREATE INDEX ix_outbox_consumed_events_consumed_at ON outbox_consumed_events (consumed_at);

UPDATE outbox_instance SET oldest_code_at = '0003';
