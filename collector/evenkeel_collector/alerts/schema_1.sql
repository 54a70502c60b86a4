-- Alerts, what they owe their receivers, and silences: version 1 (PRAGMA user_version).
CREATE TABLE alerts (
    slo TEXT NOT NULL,
    severity TEXT NOT NULL,
    state TEXT NOT NULL,
    since_ns INTEGER NOT NULL,
    last_held_ns INTEGER NOT NULL,
    alert_id TEXT NOT NULL,           -- one firing; '' before the first
    is_notified INTEGER NOT NULL,     -- whether receivers were told that it fires
    details TEXT NOT NULL,            -- JSON: labels, annotations and figures of the last change
    PRIMARY KEY (slo, severity)
) STRICT;

CREATE TABLE transitions (
    id TEXT PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    slo TEXT NOT NULL,
    severity TEXT NOT NULL,
    alert_id TEXT NOT NULL,
    from_state TEXT NOT NULL,
    state TEXT NOT NULL,
    starts_at_ns INTEGER NOT NULL,
    is_silenced INTEGER NOT NULL,
    details TEXT NOT NULL,
    is_stored INTEGER NOT NULL DEFAULT 0   -- whether alert_history in the store has it
) STRICT;
CREATE INDEX transitions_to_store ON transitions (time_ns) WHERE is_stored = 0;
CREATE INDEX transitions_by_time ON transitions (time_ns);

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    notification_id TEXT NOT NULL,    -- the same on every attempt: receivers may deduplicate by it
    receiver TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status TEXT NOT NULL,             -- firing, resolved
    body TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',   -- waiting, delivered, dead
    num_attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_ns INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    last_error TEXT,
    UNIQUE (notification_id, receiver)
) STRICT;
CREATE INDEX outbox_waiting ON outbox (receiver, fingerprint, number) WHERE state = 'waiting';
CREATE INDEX outbox_dead ON outbox (number) WHERE state = 'dead';

CREATE TABLE silences (
    id TEXT PRIMARY KEY,
    slo TEXT NOT NULL,                -- the SLO it silences
    from_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    comment TEXT NOT NULL
) STRICT;

PRAGMA user_version = 1;
