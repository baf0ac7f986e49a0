-- Times are Unix seconds, rates bytes per second. Identities are raw bytes.

CREATE TABLE relay (
    id INTEGER PRIMARY KEY,
    rsa BLOB NOT NULL UNIQUE CHECK (length(rsa) = 20),
    ed25519 BLOB CHECK (ed25519 IS NULL OR length(ed25519) = 32),
    nickname TEXT NOT NULL,
    address TEXT NOT NULL,
    first_seen_unix_s INTEGER NOT NULL,
    last_seen_unix_s INTEGER NOT NULL,
    -- Why it is not measured; empty if it is.
    left_out TEXT NOT NULL DEFAULT '',
    -- Its last estimate, however old: what later periods expect of it.
    capacity_byte_s INTEGER,
    estimated_unix_s INTEGER,
    mode TEXT,
    is_conclusive INTEGER,
    next_sockets INTEGER,
    -- How its last measurement ended.
    last_state INTEGER,
    last_ended_unix_s INTEGER,
    last_cause TEXT
) STRICT;

-- A turn of a relay. It is there from its beginning on, so that one that was broken off is known.
CREATE TABLE measurement (
    id INTEGER PRIMARY KEY,
    relay INTEGER NOT NULL REFERENCES relay (id),
    -- When the period began that it belongs to, and which turn of the relay in it this is, from 1 on.
    period_unix_s INTEGER NOT NULL,
    number INTEGER NOT NULL,
    -- The slot of the secret plan, if there is one. It has begun.
    slot INTEGER,
    started_unix_s INTEGER NOT NULL,
    ended_unix_s INTEGER,
    -- 0 runs, 1 conclusive, 2 lower bound, 3 failed, 4 broken off: the coordinator ended meanwhile.
    state INTEGER NOT NULL DEFAULT 0,
    mode TEXT,
    capacity_byte_s INTEGER,
    rounds INTEGER,
    -- Why it is a lower bound or failed: a name for counting, words for people, and who is to blame.
    cause TEXT,
    reason TEXT,
    blame TEXT,
    -- Whether that was all about the relay in its period; if not, the turn that has to follow, as JSON, if one has.
    is_final INTEGER NOT NULL DEFAULT 0,
    follows TEXT,
    -- Seconds of all rounds: deflated JSON, see series.rs.
    seconds BLOB,
    UNIQUE (relay, period_unix_s, number)
) STRICT;
-- These two hold all that sums over days and periods ask for: rows with their seconds are large.
CREATE INDEX measurement_by_end ON measurement (ended_unix_s, state);
CREATE INDEX measurement_by_period ON measurement (period_unix_s, slot, relay, state);
CREATE INDEX measurement_broken_off ON measurement (started_unix_s) WHERE state = 4;
CREATE INDEX measurement_unfinished ON measurement (id) WHERE state = 0;

-- Whole records, deflated JSON: they are large, and kept for a shorter time.
CREATE TABLE record (
    measurement INTEGER PRIMARY KEY REFERENCES measurement (id) ON DELETE CASCADE,
    json BLOB NOT NULL
) STRICT;

CREATE TABLE period (
    begin_unix_s INTEGER PRIMARY KEY,
    length_s INTEGER NOT NULL,
    slot_s INTEGER NOT NULL,
    -- Only once it is over.
    seed BLOB CHECK (seed IS NULL OR length(seed) = 32)
) STRICT;

CREATE TABLE consensus (
    valid_after_unix_s INTEGER PRIMARY KEY,
    seen_unix_s INTEGER NOT NULL,
    source TEXT NOT NULL,
    relays INTEGER NOT NULL,
    to_be_measured INTEGER NOT NULL,
    -- Authorities of the configuration whose signatures were verified; NULL if none is configured.
    signers INTEGER
) STRICT;

CREATE TABLE bandwidth_file (
    created_unix_s INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    lines INTEGER NOT NULL,
    voted INTEGER NOT NULL
) STRICT;

CREATE TABLE measurer (
    key TEXT PRIMARY KEY,
    place INTEGER NOT NULL,
    address TEXT NOT NULL,
    capacity_byte_s INTEGER NOT NULL,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    since_unix_s INTEGER NOT NULL
) STRICT;

CREATE TABLE measurer_event (
    id INTEGER PRIMARY KEY,
    at_unix_s INTEGER NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    capacity_byte_s INTEGER NOT NULL,
    detail TEXT NOT NULL,
    UNIQUE (at_unix_s, key, state)
) STRICT;

-- How far the period is: one row.
CREATE TABLE progress (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at_unix_s INTEGER NOT NULL,
    period_unix_s INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    running INTEGER NOT NULL,
    done INTEGER NOT NULL,
    without_slot INTEGER NOT NULL
) STRICT;
