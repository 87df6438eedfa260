-- 0002, SQLite. Statements are paragraphs: no blank line inside one.

ALTER TABLE outbox_deliveries ADD COLUMN sender_domain VARCHAR(255);

ALTER TABLE outbox_deliveries ADD COLUMN crashes_alone INTEGER DEFAULT '0' NOT NULL;

ALTER TABLE outbox_attempts ADD COLUMN alone BOOLEAN DEFAULT 0 NOT NULL;

ALTER TABLE outbox_accounts ADD COLUMN probe_until VARCHAR(24)
    CONSTRAINT ck_outbox_accounts_probe_until_form CHECK (probe_until IS NULL OR (probe_until GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(probe_until, '+0 days') IS substr(probe_until, 1, 10)));

ALTER TABLE outbox_accounts ADD COLUMN consecutive INTEGER DEFAULT '0' NOT NULL;

CREATE INDEX ix_outbox_deliveries_quarantine ON outbox_deliveries (account, due_at) WHERE crashes >= 3 AND state IN ('pending', 'in_doubt');

CREATE TABLE outbox_audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at VARCHAR(24) DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    action VARCHAR(32) NOT NULL,
    subject TEXT NOT NULL,
    operator_note TEXT NOT NULL,
    "before" TEXT,
    "after" TEXT,
    CONSTRAINT ck_outbox_audit_at_form CHECK (at IS NULL OR (at GLOB '[1-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z' AND date(at, '+0 days') IS substr(at, 1, 10)))
);

CREATE INDEX ix_outbox_audit_subject ON outbox_audit (subject);

UPDATE outbox_instance SET oldest_code_at = '0002';
