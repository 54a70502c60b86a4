-- Cheaper inserts (docs/decisions/0171): parts are merged by the dozen and not by twos and threes, and
-- an insert's part of spans is one file for all columns, not a file a column, each of them synced.

ALTER TABLE spans MODIFY SETTING merge_selector_base = 12, min_bytes_for_wide_part = 134217728;

ALTER TABLE requests MODIFY SETTING merge_selector_base = 12;

ALTER TABLE requests_1m MODIFY SETTING merge_selector_base = 12;

ALTER TABLE requests_1h MODIFY SETTING merge_selector_base = 12;
