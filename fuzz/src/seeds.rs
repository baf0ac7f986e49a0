use testkit::vectors;

/// A file of the corpus: its target, name and content.
pub type Seed = (&'static str, &'static str, Vec<u8>);

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The initial corpus: recordings of C tor, real documents, and simple sequences of events.
#[must_use]
pub fn seeds() -> Vec<Seed> {
    let mut seeds = links();
    seeds.extend(circuits());
    seeds.extend(documents());
    seeds.extend(courses());
    seeds.extend(crate::control_plane::control_plane_seeds());
    seeds.extend(echoes());
    seeds.extend(orders());
    seeds.extend(routers());
    seeds.extend(flows());
    seeds.extend(onions());
    seeds.extend(differences());
    seeds.extend(sets());
    seeds.extend(crate::begin_dir::begin_dir_seeds());
    seeds.extend(crate::signed_documents::signed_document_seeds());
    seeds.extend(crate::model::model_seeds());
    seeds
}

/// Sets of linked circuits: legs, scheduler and limit; key; whether cells are forged. Then events: link, kind, amount.
fn sets() -> Vec<Seed> {
    // Three legs, LowRTT, a large queue limit, lost cells are retransmitted.
    let head = |lies: u8| [1 << 2 | 2, 9, lies];
    let all_arrives = [0, 3].repeat(6);
    // 255 << 11 bytes down and up.
    let begins = [0, 9, 255, 11, 255, 11, 0, 3, 0, 3, 0, 3];
    let round: Vec<u8> = (0..3u8)
        .flat_map(|leg| [leg, 10, 0, 255, 9, leg, 4, 7 * leg, 2 - leg, 0, 5 + leg, leg, 12, 200, 5])
        .collect();
    let opened = join(&[&all_arrives, &begins]);
    let course = join(&[&opened, &round.repeat(12)]);
    let cut = |end: u8| [1, 13, 0, end];
    let told = [0, 13, 1];
    let lies = |what: u8| [0, 15, 0, what, 3, 0, 0, 0, 9];
    vec![
        ("conflux", "three-legs", join(&[&head(0), &course])),
        ("conflux", "cut-at-the-client", join(&[&head(0), &course, &cut(0), &round.repeat(8)])),
        (
            "conflux",
            "cut-at-the-exit",
            join(&[&head(0), &course, &cut(1), &round.repeat(8), &told]),
        ),
        (
            "conflux",
            "another-in-its-place",
            join(&[&head(0), &course, &cut(0), &told, &[0, 14], &all_arrives, &round.repeat(8)]),
        ),
        ("conflux", "false-switch", join(&[&head(1), &course, &lies(2), &round.repeat(4)])),
        ("conflux", "false-link", join(&[&head(1), &[0, 3, 0, 0, 5], &lies(5), &course])),
        ("conflux", "a-cell-is-gone", join(&[&head(1), &course, &lies(0), &round.repeat(4)])),
        ("conflux", "a-cell-comes-twice", join(&[&head(1), &course, &lies(1), &round.repeat(4)])),
    ]
}

/// Cells through a circuit of Counter Galois Onion: each of direction, hop, command, and content.
fn onions() -> Vec<Seed> {
    let keys = [7; 24];
    let cell = |action: u8, hop: u8, change: [u8; 5]| {
        // DATA with four bytes on stream 3.
        let content = b"\x02\0\x04\0\x03abcd89012345678901234";
        join(&[&[action, hop, 0, 0], content, &change])
    };
    let plain = [0; 5];
    let honest: Vec<_> =
        (0..12u8).map(|at| cell([1, 6][usize::from(at % 2)], at % 3, plain)).collect();
    let altered = [1, 1, 100, 0, 1];
    let dropped = [2, 1, 0, 0, 0];
    let forth = [cell(1, 2, plain), cell(1, 2, altered), cell(1, 2, plain), cell(1, 0, plain)];
    let back = [cell(6, 2, plain), cell(6, 2, dropped), cell(6, 0, plain), cell(6, 2, plain)];
    vec![
        ("cgo", "honest", join(&[&keys, &honest.concat()])),
        ("cgo", "altered-forth", join(&[&keys, &forth.concat()])),
        ("cgo", "dropped-back", join(&[&keys, &back.concat()])),
    ]
}

/// Two consensuses as lists of lines, and scripts for one.
fn differences() -> Vec<Seed> {
    let lines: Vec<String> = (0..30).map(|number| format!("r relay{number}")).collect();
    let mut later = lines.clone();
    later[3] = "r changed".to_owned();
    later.remove(9);
    later.insert(20, "r new".to_owned());
    let both = join(&[b"\x01", lines.join("\n").as_bytes(), b"\n=\n", later.join("\n").as_bytes()]);
    let script = b"\0r a\nr b\nr c\n=\n5,$d\n3c\nr x\n.\n2d\n1a\nr y\n.";
    let wrong = b"\0r a\nr b\n=\n2d\n9d\n1,1c\n.\n";
    vec![
        ("consdiff", "two", both),
        ("consdiff", "script", script.to_vec()),
        ("consdiff", "wrong-script", wrong.to_vec()),
    ]
}

/// The body of the first cell of this command in a link handshake.
fn body_of(stream: &[u8], command: u8) -> Vec<u8> {
    let mut rest = &stream[7 + usize::from(stream[4]) - 2..];
    while let [_, _, _, _, found, after @ ..] = rest {
        let is_variable = *found >= 128;
        let (head, len) = match after {
            [high, low, ..] if is_variable => (2, usize::from(u16::from_be_bytes([*high, *low]))),
            _ => (0, 509),
        };
        let Some(body) = after.get(head..head + len) else { break };
        if *found == command {
            return body.to_vec();
        }
        rest = &after[head + len..];
    }
    Vec::new()
}

/// The offset of a byte of the proof in our own stream to the responder.
fn own_proof(offset: usize) -> [u8; 2] {
    let words = crate::links::own_handshake();
    let proof = words.windows(8).position(|bytes| bytes == b"AUTH0003").unwrap_or_default();
    u16::try_from(proof + offset).unwrap_or_default().to_le_bytes()
}

fn links() -> Vec<Seed> {
    let (to, from) = (vectors::link_to_relay(), vectors::link_from_relay());
    let (heard, asked) = (to.get("heard"), from.get("heard"));
    let create = from.get("create2");
    vec![
        ("framer", "relay-as-responder", join(&[&[0, 3, 1, 20, 255], heard])),
        ("framer", "relay-as-initiator", join(&[&[0, 1, 0], asked, create])),
        ("framer", "wide", join(&[&[1, 2, 128, 128], create, create])),
        ("framer", "oversized", vec![1, 0, 0, 0, 0, 0, 129, 255, 255]),
        ("framer", "http", join(&[&[0, 0], b"HTTP/1.1 400 Bad Request\r\n"])),
        ("messages", "certs", body_of(heard, 129)),
        ("messages", "auth-challenge", body_of(heard, 130)),
        ("messages", "netinfo", body_of(heard, 8)),
        ("messages", "versions", vec![0, 3, 0, 4, 0, 5]),
        ("messages", "create2", create[5..].to_vec()),
        ("certs", "relay-as-responder", body_of(heard, 129)),
        ("certs", "relay-as-initiator", body_of(asked, 129)),
        ("channel_initiator", "anonymous", join(&[&[0, 2, 1, 100], heard])),
        ("channel_initiator", "as-relay", join(&[&[1, 4, 0, 0, 0, 0], heard, create])),
        ("certs", "ourselves-as-initiator", body_of(to.get("said"), 129)),
        ("channel_responder", "relay", join(&[&[0, 3, 0, 2, 100], asked, create])),
        ("channel_responder", "ourselves", join(&[&[2, 1, 9, 0], create])),
        ("channel_responder", "changed", join(&[&[2, 0, 2, 0x20, 3, 1, 0x50, 7, 9], create])),
        // In each field of the proof; the random bytes may differ.
        ("channel_responder", "signed-anew", join(&[&[3, 0, 1], &own_proof(8 + 40), &[1], create])),
        ("channel_responder", "other-random", join(&[&[3, 0, 1], &own_proof(264), &[1], create])),
        // The same cells for another relay.
        ("channel_responder", "to-another", join(&[&[0, 0], to.get("said")])),
    ]
}

fn circuits() -> Vec<Seed> {
    let scene = vectors::circuit();
    let created = scene.get("created2");
    let answers = [vectors::circuit_dead_end(), vectors::circuit_refused()];
    let [dead_end, refused] = answers.each_ref().map(|scene| scene.get("answer")[5..30].to_vec());
    vec![
        ("messages", "created-fast", scene.bodies("created_fast")[0].to_vec()),
        ("messages", "created2", created[5..].to_vec()),
        ("messages", "relay", scene.bodies("extended2")[0].to_vec()),
        ("two_hop", "built", vec![0, 1]),
        ("two_hop", "built-from-our-seal", vec![0, 3, 15, 0, 0, 4, 0, 0, 0, 0, 0]),
        ("two_hop", "truncated", vec![0, 2, 9, 0, 0, 1, 0, 8]),
        ("two_hop", "destroyed", join(&[&[0, 4, 4, 25, 0], &dead_end])),
        ("two_hop", "refused", join(&[&[0, 4, 4, 25, 0], &refused])),
        ("two_hop", "other-message", vec![0, 2, 10, 0, 0, 1, 0, 8, 1]),
        ("two_hop", "nobodys-cell", vec![0, 4, 3, 5, 0, 1, 2, 3, 4, 5]),
    ]
}

fn documents() -> Vec<Seed> {
    macro_rules! document {
        ($name:literal) => {
            include_bytes!(concat!("../../crates/engine/netdoc/tests/data/", $name)).to_vec()
        };
    }
    let file = document!("bandwidth-1.4.0");
    let control = b"250-version=0.4.9.11\r\n250 OK\r\n250+a=\r\nx\r\n..y\r\n.\r\n250 OK\r\n\
        650 BW 12 34\r\n552 Unrecognized key\r\n";
    vec![
        ("consensus", "ns", document!("consensus-ns")),
        ("consensus", "microdesc", document!("consensus-microdesc")),
        ("consensus", "vote", document!("vote")),
        ("descriptors", "three", document!("server-descriptors")),
        ("bandwidth_file", "1.4.0", join(&[&[0, 0], &file])),
        ("bandwidth_file", "stale", join(&[&[0xff, 0xff], &file])),
        ("bandwidth_file", "1.0.0", join(&[&[0, 0], b"1\nnode_id=$", &[b'A'; 40], b" bw=7\n"])),
        ("control_port", "replies", join(&[&[2, 1, 4], control])),
        ("control_port", "http", join(&[&[0], b"HTTP/1.0 400 Bad request\r\n"])),
    ]
}

/// Sequences of events of a router, in the format of its target.
fn routers() -> Vec<Seed> {
    let (new, wait) = ([0, 0], [10, 0, 0x4c, 4]);
    // Index; seconds, sockets, expiry, nonce, key.
    let order = [1, 0, 2, 3, 9, 1, 0];
    let prove = |place: u8, who: u8| [2, place, 1, who];
    let create = |place: u8, circuit: u8| [3, place, circuit];
    // Index, circuit, cells, not early.
    let relay = |place: u8, circuit: u8, cells: u8| [5, place, circuit, cells, 0];
    let extend = |place: u8, port: u8| [6, place, 0, 0, 0, port];
    let (there, answer) = ([12, 1, 1], [13, 1, 3]);
    let (full, reads) = ([14, 0, 1], [14, 0, 0]);
    let measurers = join(&[&new, &new, &new, &order, &prove(1, 0), &prove(2, 1)]);
    let circuits = join(&[&create(1, 0), &create(1, 1), &create(2, 0)]);
    let cells = join(&[&relay(1, 0, 20), &relay(1, 1, 20), &relay(2, 0, 22)]);
    let transit = join(&[&new, &create(0, 0), &extend(0, 0), &there, &answer]);
    let both_ways = join(&[&relay(0, 0, 20), &answer, &[6, 0, 0, 0, 2, 0], &[7, 0, 0, 9]]);
    // Index, circuit, stream, kind.
    let begin = |circuit: u8, stream: u8, kind: u8| [16, 0, circuit, stream, 0, kind];
    // Index, circuit, stream, cells, length.
    let data = |circuit: u8, stream: u8, cells: u8| [17, 0, circuit, stream, 0, cells, 0xf2, 1];
    let sendme = |circuit: u8, how: u8| [19, 0, circuit, how];
    let (meet, feed) = ([20, 0, 0], |len: u16| join(&[&[21, 0], &len.to_le_bytes()]));
    let stream = join(&[&new, &create(0, 0), &begin(0, 1, 0), &meet]);
    let streams = join(&[
        &begin(0, 2, 9),
        &[22, 0, 7, 20, 1, 0],
        &begin(0, 3, 3),
        &[20, 2, 0],
        &begin(0, 4, 10),
        &[22, 0, 7],
        &begin(0, 5, 12),
        &feed(20_000),
        &data(0, 1, 120),
    ]);
    // Two streams of 300 cells each; every destination reads in time.
    let windows =
        join(&[&begin(0, 2, 0), &[20, 1, 0], &feed(60_000).repeat(3), &[21, 1], &[0x60, 0xea]]);
    let windows = join(&[&windows, &sendme(0, 2).repeat(3), &[21, 1, 0x60, 0xea].repeat(2)]);
    let congestion = join(&[&new, &[24, 0, 0], &begin(0, 1, 0), &meet, &feed(60_000).repeat(2)]);
    let congestion = join(&[&congestion, &sendme(0, 2).repeat(4), &feed(60_000), &data(0, 1, 150)]);
    let forged = join(&[&stream, &sendme(0, 1), &feed(1000)]);
    // Two circuits whose destinations do not read.
    let shed = join(&[&[23, 0, 1], &create(0, 1), &begin(1, 1, 0), &[20, 1, 0], &[23, 1, 1]]);
    let shed = join(&[&stream, &shed, &data(0, 1, 120), &data(1, 1, 120), &[10, 0, 0xff, 0xff]]);
    // Each link sends two padding cells, 4 to 5 s apart, until padding is stopped.
    let limits = |how: u8| join(&[&[25, 0, how], &4000_u16.to_le_bytes(), &5000_u16.to_le_bytes()]);
    let padding = join(&[&limits(31), &limits(2), &wait.repeat(10), &limits(1), &wait.repeat(9)]);
    vec![
        ("router", "padding", join(&[&[0], &transit, &relay(0, 0, 1), &padding])),
        ("router", "streams", join(&[&[0], &stream, &streams])),
        ("router", "windows", join(&[&[0], &stream, &windows])),
        ("router", "congestion", join(&[&[0], &congestion])),
        ("router", "forged", join(&[&[0], &forged])),
        ("router", "shed", join(&[&[0], &shed])),
        ("router", "echo", join(&[&[0], &measurers, &circuits, &cells, &wait, &wait])),
        ("router", "limited-echo", join(&[&[1], &measurers, &circuits, &cells, &wait, &wait])),
        ("router", "violation", join(&[&[0], &measurers, &circuits, &[4, 1], &[1; 84], &[5]])),
        (
            "router",
            "refused",
            join(&[
                &[0],
                &new,
                &prove(0, 0),
                &new,
                &[1, 1, 2, 3, 0, 1, 7],
                &new,
                &[1, 2, 0, 0, 1, 1, 0],
            ]),
        ),
        ("router", "transit", join(&[&[0], &transit, &both_ways])),
        ("router", "full", join(&[&[1], &transit, &full, &answer, &answer, &both_ways, &reads])),
        (
            "router",
            "waiting",
            join(&[
                &[2],
                &new,
                &create(0, 0),
                &extend(0, 1),
                &create(0, 1),
                &[6, 0, 1, 0, 0, 2],
                &[7, 0, 0, 0],
                &[12, 2, 1],
                &[12, 1, 0],
            ]),
        ),
    ]
}

/// Sequences of events, in the formats of their targets.
fn courses() -> Vec<Seed> {
    // Flags; sockets, circuits, burst, pace, seconds, rate, window, checks; two timeouts.
    let head = |seconds: u8, rate: u8| -> Vec<u8> {
        vec![3, 1, 1, 2, 0, seconds, rate, 0, 1, 0x40, 0x1f, 0xd0, 0x07]
    };
    let honest = [0, 0, 31];
    let start = [12, 0, 5];
    let wait = [11, 0, 0xe8, 3];
    let set_up = honest.repeat(2);
    let run = [start.as_slice(), &honest.repeat(4), &wait, &honest, &wait, &honest].concat();
    let good = [set_up.as_slice(), &run, &wait, &wait].concat();
    let change = [6, 2, 0x10, 0x27, 4];
    let begin = [start.as_slice(), &[11, 0, 10, 0], &[4, 0, 0xff, 0xff]].concat();
    let rest = [4, 2, 0xff, 0xff];
    // With the longest timeouts and a long silence of the relay.
    let patient = [&head(11, 4)[..11], &[0xff, 0xff]].concat();
    let pause = [11, 0, 0xff, 0x24];
    let altered = [set_up.as_slice(), &begin, &change, &rest].concat();
    let repeated = [set_up.as_slice(), &begin, &[7, 2, 0, 0, 1, 1], &rest].concat();
    let lost = [set_up.as_slice(), &begin, &[7, 2, 0, 0, 1, 0], &rest].concat();
    let stranger = [9, 0, 5, 0, 11, 0, 0, 7, 0, 6, 0, 3, 0, 4, 0, 5, 10, 0];
    let closes = [set_up.as_slice(), &start, &[8, 0], &honest, &[8, 1], &honest, &wait].concat();

    let ready = [0, 0];
    let seconds = [0, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6];
    let round = [ready.as_slice(), &seconds].concat();
    // Mode, rounds, sockets; the guess; two measurers.
    let team = |mode: u8| vec![mode, 3, 20, 20, 0, 1, 2, 20, 0, 4, 20, 0, 8];
    vec![
        ("transit", "good", join(&[&head(2, 0), &good])),
        ("transit", "fast", join(&[&head(2, 4), &good])),
        ("transit", "slow", join(&[&head(11, 1), &good])),
        ("transit", "no-rate", join(&[&head(3, 3), &good])),
        ("transit", "altered", join(&[&head(2, 0), &altered])),
        ("transit", "repeated", join(&[&head(2, 0), &repeated])),
        ("transit", "lost", join(&[&head(2, 0), &lost])),
        ("transit", "long-pause", join(&[&patient, &set_up, &begin, &pause, &honest, &honest])),
        ("transit", "stranger", join(&[&head(2, 0), &stranger, &good])),
        ("transit", "closes", join(&[&head(2, 0), &closes])),
        ("transit", "stopped", join(&[&head(2, 0), &set_up, &start, &[15, 77]])),
        ("transit", "silent", head(3, 0)),
        ("measurement", "echo", join(&[&team(1), &round])),
        ("measurement", "transit", join(&[&team(0), &round, &round, &round, &round])),
        ("measurement", "silent", join(&[&team(0), &ready])),
        ("measurement", "saturated", join(&[&team(0), &ready, &[0, 9], &seconds])),
        ("measurement", "lost", join(&[&team(0), &ready, &[0, 10, 0, 1]])),
        ("measurement", "no-such-second", join(&[&team(1), &ready, &[0, 8, 200, 0, 0, 0]])),
    ]
}

/// 32 honest steps, which deliver everything in flight.
const HONEST_STEPS: [u8; 3] = [0, 0, 31];
/// A second passes.
const WAIT: [u8; 4] = [12, 0, 0xe8, 3];

/// Measurements of a cooperating relay, in the format of `echo`.
fn echoes() -> Vec<Seed> {
    // Flags; sockets, circuits, burst, seconds, rate, window, checks; two timeouts; randomness.
    let head = |flags: u8, seconds: u8, rate: u8| -> Vec<u8> {
        vec![flags, 1, 1, 2, seconds, rate, 0, 1, 0x40, 0x1f, 0xd0, 0x07, 3]
    };
    let start = [13, 0, 5];
    let set_up = HONEST_STEPS.repeat(2);
    let run = [
        start.as_slice(),
        &HONEST_STEPS.repeat(4),
        &WAIT,
        &HONEST_STEPS,
        &WAIT,
        &HONEST_STEPS,
        &WAIT,
    ]
    .concat();
    let all = [14, 0, 0xff, 0xff];
    let begin = [start.as_slice(), &[12, 0, 10, 0], &all, &[15, 0, 63]].concat();
    let good = [set_up.as_slice(), &run].concat();
    let altered = [set_up.as_slice(), &begin, &[9, 0, 0x10, 0x27, 4], &all].concat();
    let repeated = [set_up.as_slice(), &begin, &[10, 0, 1, 1], &all].concat();
    let ahead = [set_up.as_slice(), &[7, 0, 1, 0, 9], &all].concat();
    let refused = [set_up.as_slice(), &[5, 0, 6, 13, 0, 4], b"why?", &HONEST_STEPS].concat();
    let closes =
        [set_up.as_slice(), &start, &HONEST_STEPS, &[11, 0], &HONEST_STEPS, &[11, 1], &WAIT]
            .concat();
    vec![
        ("echo", "good", join(&[&head(0, 2, 0), &good])),
        ("echo", "fast", join(&[&head(0, 2, 3), &good])),
        ("echo", "no-rate", join(&[&head(0, 2, 2), &good])),
        ("echo", "altered", join(&[&head(0, 2, 0), &altered])),
        ("echo", "repeated", join(&[&head(0, 2, 0), &repeated])),
        ("echo", "ahead", join(&[&head(0, 2, 0), &ahead])),
        ("echo", "refused", join(&[&head(0, 2, 0), &refused])),
        ("echo", "closes", join(&[&head(0, 9, 0), &closes])),
        ("echo", "stopped", join(&[&head(0, 2, 0), &set_up, &start, &[15, 77]])),
        ("echo", "not-proven", join(&[&head(1, 2, 0), &set_up])),
        ("echo", "silent", head(0, 2, 0)),
    ]
}

/// Orders, in the format of `order`.
fn orders() -> Vec<Seed> {
    // Flags, seconds, timeout; the link is open and the order has arrived.
    let head = [&[0, 1, 0xff, 0x7f], &HONEST_STEPS[..]].concat();
    let accepted = [5, 0, 1];
    let second = [&[5, 0, 3], &[1; 16][..]].concat();
    let good = [&accepted, &HONEST_STEPS, second.as_slice(), &HONEST_STEPS, &second, &HONEST_STEPS]
        .concat();
    vec![
        ("order", "good", join(&[&head, &good])),
        ("order", "closed-after", join(&[&head, &good, &[11, 0]])),
        ("order", "other-nonce", join(&[&head, &[5, 0, 2, 3], &HONEST_STEPS])),
        ("order", "twice", join(&[&head, &accepted, &second, &[5, 0, 5, 0, 0], &HONEST_STEPS])),
        ("order", "early", join(&[&head, &second, &HONEST_STEPS])),
        ("order", "refused", join(&[&head, &[5, 0, 6, 8, 0, 5], b"never", &HONEST_STEPS])),
        ("order", "unreadable", join(&[&head, &[6, 0, 3, 2, 0, 3], &HONEST_STEPS])),
        ("order", "lost", join(&[&head, &accepted, &HONEST_STEPS, &[11, 0]])),
        ("order", "silent", head.clone()),
    ]
}

fn flows() -> Vec<Seed> {
    let tag = [7; 20];
    // Increment, parameters, Vegas or not; then fill, wait, SENDME, data, drain, the peer's messages.
    let begin = |is_vegas: u8| join(&[&[2, 31], &[0; 40], &[is_vegas]]);
    let round = [0, 255, 2, 200, 195, 0, 1, 0, 0, 0, 1, 1, 44, 1, 3, 3, 4, 255, 255];
    let blocked = [0, 255, 2, 200, 195, 2, 1, 1, 200, 0, 1, 1, 200, 0, 1, 0, 0, 0];
    let peer = [5, 0, 5, 1, 100, 0, 0, 0, 5, 2, 5, 2, 2, 200, 195, 3, 5, 2, 5, 0, 5, 0];
    let (data, later) = ([3; 200], [2, 255, 255, 3]);
    let slow = join(&[&data, &data, &data, &later, &data, &[4, 255, 255, 4, 255, 255].repeat(9)]);
    vec![
        ("flow_control", "sendme", join(&[&[0, 1, 0, 20], &tag])),
        ("flow_control", "conflux-link", join(&[&[0, 1], &[7; 32], &[0; 16], &[3]])),
        ("flow_control", "xon", vec![0, 0, 0, 0, 1, 0]),
        ("flow_control", "link-padding", vec![0, 0, 2, 5, 220, 37, 28]),
        ("flow_control", "circuit-padding", vec![0, 0, 2, 1, 1, 0, 0, 0, 1]),
        ("flow_control", "request", vec![0, 3, 1, 0, 3, 2, 2, 6, 99, 1, 1]),
        ("flow_control", "response", vec![0, 1, 2, 1, 31]),
        ("flow_control", "handshake", join(&[&[1], &[5; 32], &[6; 32], &[0], &[1, 1, 0]])),
        ("flow_control", "forged", join(&[&[1], &[5; 32], &[6; 32], &[1], &[9; 400], &[8; 140]])),
        (
            "flow_control",
            "vegas",
            join(&[&begin(1), &round.repeat(20), &blocked, &round.repeat(5)]),
        ),
        ("flow_control", "fixed", join(&[&begin(0), &round.repeat(20), &blocked])),
        ("flow_control", "peer", join(&[&begin(1), &peer])),
        ("flow_control", "slow-edge", join(&[&begin(1), &slow, &slow])),
        ("flow_control", "slow-edge-with-window", join(&[&begin(0), &slow, &slow])),
    ]
}
