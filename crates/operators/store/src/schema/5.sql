-- Counts are of final results: a turn that another one follows is no result.
DROP INDEX measurement_by_end;
CREATE INDEX measurement_by_end ON measurement (ended_unix_s, state, is_final);
DROP INDEX measurement_by_period;
CREATE INDEX measurement_by_period ON measurement (period_unix_s, slot, relay, state, is_final);
