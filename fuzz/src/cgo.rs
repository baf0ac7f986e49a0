use crate::input::Input;
use onion::cell::relay::{RelayFormat, RelayMessage};
use onion::cell::{BODY_LEN, Command};
use onion::crypto::{CgoKeys, Layers, RelayLayer};

const HOPS: usize = 3;

/// The layers of one direction that are out of step: all from one hop on.
#[derive(Clone, Copy, Default)]
struct Harm {
    /// The hop nearest to the client whose layer is out of step.
    from_hop: Option<usize>,
}

impl Harm {
    fn add(&mut self, hop: usize) {
        self.from_hop = Some(self.from_hop.map_or(hop, |before| before.min(hop)));
    }

    fn reaches(self, hop: usize) -> bool {
        self.from_hop.is_some_and(|from| from <= hop)
    }
}

/// A Counter Galois Onion circuit of three hops, and an adversary on the path who alters, drops and injects cells: no
/// hop recognizes an altered cell or any later one through the same hop; all others arrive. Every message parses
/// without panic.
pub fn cgo(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut layers, mut relays) = (Layers::default(), Vec::new());
    for hop in 0..HOPS {
        // With all-zero keys the hash of anything is zero.
        let mut material = [u8::try_from(hop + 1).unwrap_or(9); 160];
        material[..8].copy_from_slice(&input.array::<8>());
        let keys = CgoKeys::from_material(&material).into();
        layers.push(&keys);
        relays.push(RelayLayer::new(&keys));
    }
    let (mut forth, mut back) = (Harm::default(), Harm::default());
    while !input.is_empty() {
        let (action, hop) = (input.u8(), usize::from(input.u8()) % HOPS);
        let command = if input.bool() { Command::RELAY_EARLY } else { Command::RELAY };
        match action % 8 {
            0 => relays[hop].rest(),
            1..=4 => go_forth(&mut input, &mut layers, &mut relays, (hop, command), &mut forth),
            _ => {
                if !go_back(&mut input, &mut layers, &mut relays, hop, &mut back) {
                    return;
                }
            }
        }
    }
}

/// The change made on the path; most cells are unchanged.
struct Change {
    /// Before the cell reaches this hop, or after it has left it towards the client.
    at_hop: usize,
    /// The index and new value of the changed byte, if any.
    byte: Option<(usize, u8)>,
    is_dropped: bool,
}

impl Change {
    fn read(input: &mut Input<'_>) -> Self {
        let kind = input.u8();
        let at_hop = usize::from(input.u8()) % HOPS;
        let (at, by) = (usize::from(input.u16()) % BODY_LEN, input.u8());
        let byte = (kind % 16 == 1 && by != 0).then_some((at, by));
        Self { at_hop, byte, is_dropped: kind % 16 == 2 }
    }

    fn make(&self, body: &mut [u8; BODY_LEN]) {
        if let Some((at, by)) = self.byte {
            body[at] ^= by;
        }
    }
}

fn content(input: &mut Input<'_>) -> [u8; BODY_LEN] {
    let mut body = [input.u8(); BODY_LEN];
    let some = input.take(24);
    body[16..16 + some.len()].copy_from_slice(some);
    body
}

/// Parses what a layer yields; a valid message encodes to the same bytes.
fn read(body: &[u8; BODY_LEN]) {
    let Ok(message) = RelayFormat::V1.parse(body) else { return };
    let mut again = [0xff; BODY_LEN];
    let RelayMessage { command, stream_id, data } = message;
    let written = RelayFormat::V1.write(&message, &mut again);
    // Stream ID 0 parses; the handler of the message refuses it.
    assert_eq!(written.is_ok(), command.is_of_streams() == (stream_id != 0));
    if written.is_ok() {
        let header_len = RelayFormat::V1.header_len(command);
        assert_eq!(again[16..header_len + data.len()], body[16..header_len + data.len()]);
    }
}

fn go_forth(
    input: &mut Input<'_>,
    layers: &mut Layers,
    relays: &mut [RelayLayer],
    (to, command): (usize, Command),
    harm: &mut Harm,
) {
    let sent = content(input);
    let change = Change::read(input);
    let mut body = sent;
    layers.seal(to, command, &mut body);
    if to < change.at_hop {
        return deliver_forth(relays, to, command, (&sent, &mut body), *harm);
    }
    for relay in &mut relays[..change.at_hop] {
        assert!(!relay.decrypt(command, &mut body), "it is for a later one");
    }
    if change.is_dropped {
        return harm.add(change.at_hop);
    }
    if change.byte.is_some() {
        harm.add(change.at_hop);
    }
    change.make(&mut body);
    let found =
        relays[change.at_hop..=to].iter_mut().position(|relay| relay.decrypt(command, &mut body));
    check(found.map(|place| place + change.at_hop), to, (&sent, &body), *harm);
}

fn deliver_forth(
    relays: &mut [RelayLayer],
    to: usize,
    command: Command,
    (sent, body): (&[u8; BODY_LEN], &mut [u8; BODY_LEN]),
    harm: Harm,
) {
    let found = relays[..=to].iter_mut().position(|relay| relay.decrypt(command, body));
    check(found, to, (sent, body), harm);
}

/// The hop that recognized a cell, if no hop up to it is out of step.
fn check(
    found: Option<usize>,
    hop: usize,
    (sent, body): (&[u8; BODY_LEN], &[u8; BODY_LEN]),
    harm: Harm,
) {
    if harm.reaches(hop) {
        assert_eq!(found, None, "what was altered on the way was taken for good");
    } else {
        assert_eq!(found, Some(hop));
        assert_eq!(body[16..], sent[16..]);
        read(body);
    }
}

/// False if the client destroys the circuit, as it does for a forged cell.
fn go_back(
    input: &mut Input<'_>,
    layers: &mut Layers,
    relays: &mut [RelayLayer],
    from: usize,
    harm: &mut Harm,
) -> bool {
    let sent = content(input);
    let change = Change::read(input);
    let mut body = sent;
    relays[from].originate(&mut body);
    for place in (0..=from).rev() {
        // Here the cell has left the relay at `place`.
        if place == change.at_hop {
            if change.is_dropped {
                harm.add(place);
                return true;
            }
            change.make(&mut body);
        }
        if place > 0 {
            relays[place - 1].pass_back(&mut body);
        }
    }
    let found = layers.open(&mut body).ok();
    if change.byte.is_some() && change.at_hop <= from {
        assert_eq!(found, None, "what was altered on the way was taken for good");
    } else {
        check(found, from, (&sent, &body), *harm);
    }
    found.is_some()
}
