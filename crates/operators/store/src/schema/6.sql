-- The country of the coordinator, in the header of the file; NULL if its operator has not set it.
ALTER TABLE bandwidth_file ADD COLUMN scanner_country TEXT;
