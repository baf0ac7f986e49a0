-- What each measurer of the team has seen of its path to a relay, the last time that it took part. Measurers are known by
-- their public keys, since their places in the team may change.
CREATE TABLE path (
    relay INTEGER NOT NULL REFERENCES relay (id) ON DELETE CASCADE,
    measurer TEXT NOT NULL,
    seen_unix_s INTEGER NOT NULL,
    -- The least round trip in microseconds.
    rtt_us INTEGER,
    -- Of a million bytes, so many were sent again.
    loss_ppm INTEGER,
    -- What came back to it where the path held it back; NULL if it did not.
    held_back_byte_s INTEGER,
    PRIMARY KEY (relay, measurer)
) STRICT, WITHOUT ROWID;
