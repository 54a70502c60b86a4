-- The calendar period of a budget in words, such as "a calendar month"; empty if its period rolls. For these,
-- period_s is nominal: 30 days for each month.
ALTER TABLE slo_status ADD COLUMN IF NOT EXISTS calendar_period LowCardinality(String) AFTER period_s;
