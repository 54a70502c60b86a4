-- Version 4. Each receiver has a queue of its own; a notification of a firing alert is kept until the
-- alert has ended. A state more: 'withdrawn' (its alert ended before it could be delivered).
ALTER TABLE outbox ADD COLUMN alert_id TEXT NOT NULL DEFAULT '';        -- the firing it is about
ALTER TABLE outbox ADD COLUMN is_repetition INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN is_refused INTEGER NOT NULL DEFAULT 0;    -- the last answer will not change by itself
ALTER TABLE outbox ADD COLUMN give_up_ns INTEGER;                       -- NULL: not before the alert has ended

UPDATE outbox SET
    alert_id = substr(notification_id, 1, instr(notification_id || '-', '-') - 1),
    is_repetition = notification_id GLOB '*-firing-[0-9]*';

-- Who was given up while the alert still fires is tried again.
UPDATE outbox SET state = 'waiting', ended_ns = NULL, next_attempt_ns = 0
WHERE state = 'dead' AND status = 'firing' AND NOT is_repetition
    AND alert_id IN (SELECT alert_id FROM alerts WHERE state = 'firing')
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS later WHERE later.state = 'delivered'
        AND later.receiver = outbox.receiver AND later.fingerprint = outbox.fingerprint
        AND later.number > outbox.number
    );

-- One repetition at most waits, and none of what has ended.
UPDATE outbox SET state = 'withdrawn', ended_ns = created_ns
WHERE state = 'waiting' AND is_repetition AND (
    alert_id NOT IN (SELECT alert_id FROM alerts WHERE state = 'firing')
    OR EXISTS (
        SELECT 1 FROM outbox AS earlier WHERE earlier.state = 'waiting'
        AND earlier.receiver = outbox.receiver AND earlier.alert_id = outbox.alert_id
        AND earlier.number < outbox.number
    )
);

UPDATE outbox SET give_up_ns = (CAST(strftime('%s', 'now') AS INTEGER) + 86400) * 1000000000
WHERE state = 'waiting' AND alert_id NOT LIKE 'group%'
    AND alert_id NOT IN (SELECT alert_id FROM alerts WHERE state = 'firing');

CREATE INDEX outbox_queue ON outbox (receiver, number) WHERE state = 'waiting';
CREATE INDEX outbox_of_alert ON outbox (alert_id) WHERE state = 'waiting';

-- Firings that are silenced or inhibited now: they are not repeated.
CREATE TABLE withheld (alert_id TEXT PRIMARY KEY) STRICT;

PRAGMA user_version = 4;
