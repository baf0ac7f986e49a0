use crate::input::Input;
use client::begin_dir::{Answer, Exchange, HEAD_MAX};
use netdoc::fetch::Resource;
use onion::cell::msg::EndReason;
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::cell_model::{Cell, Tor};
use onion::circuit::NextHop;
use onion::client::{CircuitPlan, ClientEvent, Core, Destination, Outcome};
use onion::crypto::{HopKeys, RelayHop, fast};
use onion::identity::{RelayIds, RsaId};
use onion::node::ConnId;
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{Ipv4Addr, SocketAddr};

/// A directory server may send anything on its circuit of one hop: the client buffers stream data in order, up
/// to its limit, and accepts only complete documents.
pub fn begin_dir(data: &[u8]) {
    let mut input = Input::new(data);
    let document_max_bytes = u64::from(input.u16());
    let mut directory = Directory::new(document_max_bytes);
    while !input.is_empty() && directory.send_cell(&mut input) {}
}

/// The client, and the relay that it requests from.
struct Directory {
    core: Core<Tor, Exchange, ChaCha8Rng>,
    now: Instant,
    conn: ConnId,
    circ_id: CircId,
    hop: RelayHop,
    stream_id: u16,
    is_connected: bool,
    document_max_bytes: u64,
    answer: Answer,
    /// The stream's data that the client had to accept.
    sent_data: Vec<u8>,
}

impl Directory {
    /// With an open circuit, and the request sent.
    fn new(document_max_bytes: u64) -> Self {
        let mut core = Core::new(ChaCha8Rng::seed_from_u64(1));
        let now = Instant::ORIGIN;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9001));
        let ids = RelayIds { rsa: RsaId([1; 20]), ed25519: None };
        let hop = NextHop { address, ids, onion_key: [0; 32] };
        let plan = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![hop]) };
        let circuit = core.open(now, &plan);
        let (exchange, answer) =
            Exchange::new(&Resource::ConsensusMicrodesc, &[[7; 32]], document_max_bytes);
        core.begin(now, circuit, Destination::Directory, exchange);
        let conn = core.poll_dial().expect("a link is wanted").conn;
        core.handle_link_open(now, conn, false);
        let [create] = sent(&mut core, now, conn)[..] else { panic!("one cell") };
        let (created, keys) = created(&create);
        let circ_id = create.circ_id();
        core.handle_cell(now, conn, circ_id, Command::CREATED_FAST, &created);
        let mut hop = RelayHop::new(&keys);
        let [mut begin] = sent(&mut core, now, conn)[..] else { panic!("one cell") };
        assert!(hop.decrypt(begin.body_mut()));
        let RelayMessage { command, stream_id, .. } =
            RelayMessage::parse(begin.body()).expect("a message");
        assert_eq!(command, RelayCommand::BEGIN_DIR);
        let (is_connected, sent_data) = (false, Vec::new());
        Self {
            core,
            now,
            conn,
            circ_id,
            hop,
            stream_id,
            is_connected,
            document_max_bytes,
            answer,
            sent_data,
        }
    }

    /// The directory sends one cell. Returns whether the stream continues.
    fn send_cell(&mut self, input: &mut Input<'_>) -> bool {
        self.now += Duration::from_millis(input.u8().into());
        let kind = input.u8() % 8;
        let (command, stream_id) = match kind {
            0 => (RelayCommand::CONNECTED, self.stream_id),
            1..=4 => (RelayCommand::DATA, self.stream_id),
            5 => (RelayCommand::END, self.stream_id),
            _ => (RelayCommand(input.u8()), input.choose(&[0, self.stream_id, 77])),
        };
        let len = usize::from(input.u16()) % 499;
        let data = input.take(len);
        let message = RelayMessage { command, stream_id, data };
        let mut body = message.to_body().expect("it fits");
        self.hop.originate(&mut body);
        let (mut cell, before) = (Command::RELAY, body);
        if kind == 7 && input.bool() {
            let other = Command::new(input.u8());
            cell = input.choose(&[Command::RELAY, Command::DESTROY, other]);
            body[usize::from(input.u16()) % BODY_LEN] ^= input.u8();
        }
        let is_altered = (cell, body) != (Command::RELAY, before);
        let taken = is_data(command, self.is_connected).then_some(data);
        self.core.handle_cell(self.now, self.conn, self.circ_id, cell, &body);
        // The relay ignores its answers, SENDMEs among them.
        drop(sent(&mut self.core, self.now, self.conn));
        let is_ours = !is_altered && stream_id == self.stream_id;
        self.is_connected |= is_ours && command == RelayCommand::CONNECTED;
        let events: Vec<ClientEvent> = std::iter::from_fn(|| self.core.poll_event()).collect();
        let over = events.iter().find_map(|event| match event {
            ClientEvent::Over { outcome, .. } => Some(*outcome),
            _ => None,
        });
        let is_lost = events.iter().any(|event| matches!(event, ClientEvent::Lost { .. }));
        if let (Some(data), true, None, false) = (taken, is_ours, over, is_lost) {
            self.sent_data.extend_from_slice(data);
        }
        assert!(self.answer.held_bytes() <= self.answer.max_bytes());
        let has_lost_nothing = self.answer.held_bytes() == self.sent_data.len();
        assert!(
            is_lost || has_lost_nothing,
            "{} of {}",
            self.answer.held_bytes(),
            self.sent_data.len()
        );
        match over {
            Some(outcome) => self.conclude(outcome, data),
            None if is_lost => assert_eq!(self.core.open_streams(), 0),
            None => return true,
        }
        false
    }

    /// The stream has ended with this cell.
    fn conclude(&self, outcome: Outcome, last: &[u8]) {
        let sent_data = &self.sent_data;
        match outcome {
            Outcome::Ended(EndReason::DONE) => {}
            Outcome::Ended(_) => return,
            Outcome::WrongBytes { offset } => {
                assert_eq!(offset, sent_data.len() as u64);
                assert!(sent_data.len() + last.len() > self.answer.max_bytes(), "it had room");
                return;
            }
            Outcome::Complete => panic!("only the directory knows when all is sent"),
        }
        let document = match self.answer.clone().document() {
            Ok(document) => document,
            Err(problem) => return assert!(!problem.to_string().is_empty()),
        };
        assert!(document.len() as u64 <= self.document_max_bytes);
        let head =
            sent_data.strip_suffix(&document[..]).expect("only the document after the header");
        assert!(head.len() <= HEAD_MAX && (head.ends_with(b"\n\r\n") || head.ends_with(b"\n\n")));
        let status = head.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"HTTP/1."));
        assert!(status.is_some_and(|line| line[8..].starts_with(b" 200")), "{status:?}");
    }
}

/// Whether a relay's message brings data to a stream.
fn is_data(command: RelayCommand, is_connected: bool) -> bool {
    command == RelayCommand::DATA && is_connected
}

/// Everything that the client has to send.
fn sent(
    core: &mut Core<Tor, Exchange, ChaCha8Rng>,
    now: Instant,
    conn: ConnId,
) -> Vec<[u8; CELL_LEN]> {
    let mut out = [<[u8; CELL_LEN]>::EMPTY; 8];
    let mut sent = Vec::new();
    while core.poll_writable().is_some() {
        loop {
            let count = core.poll_cells(now, conn, &mut out);
            sent.extend_from_slice(&out[..count]);
            if count == 0 {
                break;
            }
        }
    }
    sent
}

/// The body of the answer to a CREATE_FAST, and the keys.
fn created(create: &[u8; CELL_LEN]) -> ([u8; BODY_LEN], HopKeys) {
    assert_eq!(create.command(), Command::CREATE_FAST);
    let (mut x, mut encoded, mut body) = ([0; 20], Vec::new(), [0; BODY_LEN]);
    x.copy_from_slice(&create.body()[..20]);
    let (created, keys) = fast::respond(&x, [2; 20]);
    created.encode_into(&mut encoded);
    body[..encoded.len()].copy_from_slice(&encoded);
    (body, keys)
}

/// Answers of a directory: the document's bound; then cells of a pause, a kind, a length and content.
pub(crate) fn begin_dir_seeds() -> Vec<crate::Seed> {
    let cell = |kind: u8, content: &[u8]| {
        let len = u16::try_from(content.len()).expect("short").to_le_bytes();
        [&[1, kind], &len[..], content].concat()
    };
    let answer = |max_bytes: u16, pieces: &[&[u8]]| {
        let data = pieces.iter().flat_map(|piece| cell(1, piece));
        let begins = max_bytes.to_le_bytes().into_iter().chain(cell(0, b""));
        begins.chain(data).chain(cell(5, &[EndReason::DONE.0])).collect::<Vec<u8>>()
    };
    let head = b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n";
    let (long, endless) = ([b'a'; 498], [b'x'; 498]);
    let padded = [&b"HTTP/1.0 200 OK\r\nX: "[..], &long].concat();
    vec![
        ("begin_dir", "whole", answer(9, &[head, b"r relay", b"s\n"])),
        ("begin_dir", "in-pieces", answer(9, &[&head[..5], &head[5..], b"r", b" relays\n"])),
        ("begin_dir", "too-short", answer(9, &[head, b"r relay"])),
        ("begin_dir", "too-long", answer(8, &[head, b"r relays\n"])),
        ("begin_dir", "without-a-head", answer(0, &[&endless[..]; 40])),
        ("begin_dir", "a-long-head", answer(20, &[&padded[..498], b"\r\n\r\nr relay"])),
        ("begin_dir", "refused", answer(9, &[b"HTTP/1.0 404 Not found\r\n\r\n"])),
        ("begin_dir", "altered", [answer(9, &[head])[..].to_vec(), cell(7, b"")].concat()),
    ]
}
