-- 0002, PostgreSQL. Statements are paragraphs: no blank line inside one.

ALTER TABLE outbox_deliveries
    ADD COLUMN sender_domain VARCHAR(255),
    ADD COLUMN crashes_alone INTEGER DEFAULT '0' NOT NULL;

ALTER TABLE outbox_attempts ADD COLUMN alone BOOLEAN DEFAULT false NOT NULL;

ALTER TABLE outbox_accounts
    ADD COLUMN probe_until TIMESTAMP WITH TIME ZONE,
    ADD COLUMN consecutive INTEGER DEFAULT '0' NOT NULL;

CREATE INDEX ix_outbox_deliveries_quarantine ON outbox_deliveries (account, due_at) WHERE crashes >= 3 AND state IN ('pending', 'in_doubt');

CREATE TABLE outbox_audit (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT outbox_now() NOT NULL,
    actor VARCHAR(255) NOT NULL,
    action VARCHAR(32) NOT NULL,
    subject TEXT NOT NULL,
    operator_note TEXT NOT NULL,
    before TEXT,
    after TEXT,
    CONSTRAINT pk_outbox_audit PRIMARY KEY (id)
);

CREATE INDEX ix_outbox_audit_subject ON outbox_audit (subject);

UPDATE outbox_instance SET oldest_code_at = '0002';
