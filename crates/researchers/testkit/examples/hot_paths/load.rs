//! The load generator, and a target that returns its cells by echo.

use onion::cell::{CELL_LEN, CELLS_PER_RECORD, CircId, Command};
use onion::crypto::fast;
use onion::link::Channel;
use onion::measure::load::{Event, LoadConfig, LoadGenerator, Pace, ReturnPath, Target};
use onion::measure::protocol::{Message, Nonce};
use onion::node::{Action, ConnId, Node};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::num::NonZeroU32;
use std::sync::Arc;
use testkit::fixture::Session;
use testkit::vectors::IDENTITIES;

/// Records in flight at once.
const RECORDS: usize = 32;
/// The time until they return.
const ROUND_TRIP: Duration = Duration::from_millis(1);
/// Cells of a repetition.
const CELLS: u64 = 10_000;

type Record = [u8; CELLS_PER_RECORD * CELL_LEN];

/// Sends cells and receives them again. Returns their number.
///
/// The target returns them as they are. Only a cell whose content is checked must be decrypted, and no cell is checked here: in a
/// measurement, it is one in 100,000.
pub(crate) fn run(repetitions: u32) -> u64 {
    let (mut generator, conn) = ready();
    let mut now = Instant::ORIGIN + ROUND_TRIP;
    generator.start(now, now);
    generator.handle_timeout(now);

    let mut records = vec![[0; CELLS_PER_RECORD * CELL_LEN]; RECORDS];
    let mut sent = Vec::with_capacity(RECORDS);
    let wanted = u64::from(repetitions) * CELLS;
    let mut returned_bytes = 0;
    while returned_bytes < wanted * CELL_LEN as u64 {
        sent.clear();
        transmit(&mut generator, now, conn, &mut records, &mut sent);
        assert!(!sent.is_empty(), "the load generator has stopped: {:?}", generator.poll_event());
        now += ROUND_TRIP;
        for (record, len) in records.iter().zip(&sent) {
            generator.handle_bytes(now, conn, &record[..*len]);
            returned_bytes += *len as u64;
        }
        while let Some(event) = generator.poll_event() {
            assert!(matches!(event, Event::Second(_)), "{event:?}");
        }
    }
    returned_bytes / CELL_LEN as u64
}

/// Takes what the generator has to send, up to the number of records.
fn transmit(
    generator: &mut LoadGenerator<ChaCha8Rng>,
    now: Instant,
    conn: ConnId,
    records: &mut [Record],
    sent: &mut Vec<usize>,
) {
    if generator.poll_timeout().is_some_and(|at| at <= now) {
        generator.handle_timeout(now);
    }
    while let Some(action) = generator.poll_action(now) {
        assert!(matches!(action, Action::Transmit(_)), "{action:?}");
    }
    for record in records {
        match generator.poll_transmit(now, conn, record) {
            0 => return,
            len => sent.push(len),
        }
    }
}

/// A generator with one socket, and the socket.
fn ready() -> (LoadGenerator<ChaCha8Rng>, ConnId) {
    let now = Instant::ORIGIN;
    let config = LoadConfig {
        target: Target { address: ([10, 0, 0, 1], 9001).into(), ids: IDENTITIES.own.ids() },
        return_path: ReturnPath::Echo { nonce: Nonce([9; 32]), key_seed: [7; 32] },
        sockets: 1,
        circuits_per_socket: 4,
        pace: Pace { burst: 1, per_s: NonZeroU32::MIN },
        second_tries: 0,
        seconds: 3600,
        held_back: None,
        few_circuits: None,
        rate: Rate::from_mbit_per_s(100_000.0),
        window_cap_cells: 2000,
        check_one_in: NonZeroU32::MAX,
        setup_timeout: Duration::from_secs(8),
        stall_timeout: Duration::from_secs(2),
        unix_time_s: IDENTITIES.unix_time_s,
    };
    let mut generator = LoadGenerator::new(config, ChaCha8Rng::from_seed([1; 32]), now);
    let session = Session { certificate: Arc::clone(&IDENTITIES.certificate), exported: [5; 32] };
    let mut target =
        Channel::responder(Arc::clone(&IDENTITIES.own), &session, [2; 32], IDENTITIES.unix_time_s);
    let dial = generator.poll_dial(now).expect("a dial");
    generator.handle_connected(now, dial.conn, &session);

    let mut buffer = vec![0; CELLS_PER_RECORD * CELL_LEN];
    loop {
        while let Some(action) = generator.poll_action(now) {
            assert!(matches!(action, Action::Transmit(_)), "{action:?}");
        }
        let len = generator.poll_transmit(now, dial.conn, &mut buffer);
        for (circ_id, command, body) in answers(&mut target, &buffer[..len]) {
            target.send(circ_id, command, &body);
        }
        let len = target.poll_transmit(&mut buffer);
        generator.handle_bytes(now, dial.conn, &buffer[..len]);
        if let Some(event) = generator.poll_event() {
            assert!(matches!(event, Event::Ready { circuits: 4, .. }), "{event:?}");
            return (generator, dial.conn);
        }
    }
}

/// The target's answers to the cells of a set-up.
fn answers(target: &mut Channel, mut bytes: &[u8]) -> Vec<(CircId, Command, Vec<u8>)> {
    let mut answers = Vec::new();
    while let Some(cell) = target.handle_bytes(&mut bytes).expect("the measurer's cells") {
        match cell.command {
            Command::MEASURE => {
                answers.push((cell.circ_id, Command::MEASURE, Message::Proven.encode()));
            }
            Command::CREATE_FAST => {
                let client = cell.body.first_chunk().expect("20 bytes");
                let (created, _keys) = fast::respond(client, [3; 20]);
                let mut body = Vec::new();
                created.encode_into(&mut body);
                answers.push((cell.circ_id, Command::CREATED_FAST, body));
            }
            _ => {}
        }
    }
    answers
}
