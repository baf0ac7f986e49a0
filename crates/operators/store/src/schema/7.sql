-- Old records are found by their own dates. Otherwise each removal would scan two years of measurements.
ALTER TABLE record ADD COLUMN ended_unix_s INTEGER;
UPDATE record SET ended_unix_s = (SELECT ended_unix_s FROM measurement WHERE id = record.measurement);
CREATE INDEX record_by_end ON record (ended_unix_s);
-- Covers the query of falls.
DROP INDEX measurement_by_end;
CREATE INDEX measurement_by_end ON measurement (ended_unix_s, state, is_final, relay, capacity_byte_s);
