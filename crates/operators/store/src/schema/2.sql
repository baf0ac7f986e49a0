-- Relays whose estimates rise and fall together, as of the last look: they may share a machine. Times and rates as before.
CREATE TABLE suspicion (
    -- Two relays, the smaller identity first.
    one BLOB NOT NULL CHECK (length(one) = 20),
    other BLOB NOT NULL CHECK (length(other) = 20),
    -- Pairs of periods in which both were measured, and those in which both went the same way.
    moves INTEGER NOT NULL,
    alike INTEGER NOT NULL,
    -- How many such pairs of relays chance alone would bring.
    by_chance REAL NOT NULL,
    PRIMARY KEY (one, other)
) STRICT, WITHOUT ROWID;
CREATE INDEX suspicion_by_other ON suspicion (other);
