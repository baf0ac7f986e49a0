-- Weights of the consensus, in KB/s: of a relay in the newest one, and of all relays in each. NULL if it has none.
ALTER TABLE relay ADD COLUMN weight_kb_s INTEGER;
ALTER TABLE consensus ADD COLUMN weight_kb_s INTEGER;
-- The capacities in lines that authorities use, in KB/s; NULL in files of earlier versions.
ALTER TABLE bandwidth_file ADD COLUMN capacity_kb_s INTEGER;
-- A reason for lower bounds has a new name.
UPDATE measurement SET cause = 'measurer_limited' WHERE cause = 'measurer_hindered';
UPDATE relay SET last_cause = 'measurer_limited' WHERE last_cause = 'measurer_hindered';
