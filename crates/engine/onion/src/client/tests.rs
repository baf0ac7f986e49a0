//! A client's decisions against simulated relays, with the same test over both cell models.

mod chain;
mod feedback;
mod leaky_pipe;
mod linked;

use super::application::Application;
use super::{CircuitNumber, CircuitPlan, ClientEvent, Core, Destination, Loss, Outcome, Transfer};
use crate::cell::relay::RelayCommand;
use crate::cell::{CELLS_PER_RECORD, CircId, Command};
use crate::cell_model::fixture::hop;
use crate::cell_model::{Cell, HeaderOnly, Tor};
use crate::circuit::CircuitError;
use crate::flow::control::FlowError;
use crate::node::{CloseCause, ConnId};
use crate::time::{Duration, Instant};
use alloc::vec;
use alloc::vec::Vec;
use chain::{Chain, Liar, Played, Seen};
use core::net::SocketAddr;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

/// A client, one link, and what is at the other ends of its circuits.
struct World<S: Played> {
    core: Core<S, Transfer, ChaCha8Rng>,
    now: Instant,
    conn: ConnId,
    /// The circuits in the order of their IDs.
    chains: Vec<Chain<S>>,
    /// The cells that the relays received, in order.
    seen: Vec<Seen>,
    events: Vec<ClientEvent>,
    /// Cells that may leave at once.
    cells_max: usize,
}

fn path(hops: u8, is_fast: bool, has_congestion_control: bool) -> CircuitPlan {
    CircuitPlan {
        is_fast,
        has_congestion_control,
        ..CircuitPlan::new((1..=hops).map(hop).collect())
    }
}

fn destination() -> Destination {
    SocketAddr::from(([192, 0, 2, 99], 80)).into()
}

impl<S: Played> World<S>
where
    Transfer: Application<S>,
{
    /// With requested circuits, on one open link.
    fn new(paths: &[CircuitPlan], chains: Vec<Chain<S>>) -> (Self, Vec<CircuitNumber>) {
        let mut core = Core::new(ChaCha8Rng::seed_from_u64(1));
        let now = Instant::ORIGIN;
        let circuits = paths.iter().map(|path| core.open(now, path)).collect();
        let dial = core.poll_dial().expect("a link is wanted");
        assert_eq!((dial.to, core.poll_dial()), (hop(1).address, None), "one link for all");
        core.handle_link_open(now, dial.conn, false);
        let (conn, seen, events) = (dial.conn, Vec::new(), Vec::new());
        (Self { core, now, conn, chains, seen, events, cells_max: 40 }, circuits)
    }

    /// Runs until nothing is left to send.
    fn run(&mut self) {
        loop {
            self.now += Duration::from_millis(10);
            let is_quiet = !self.carry_forward() & !self.carry_backward();
            self.events.extend(core::iter::from_fn(|| self.core.poll_event()));
            match self.core.poll_timeout() {
                Some(at) if is_quiet => {
                    self.now = self.now.max(at);
                    self.core.handle_timeout(self.now);
                }
                None if is_quiet => return,
                _ => {}
            }
        }
    }

    fn carry_forward(&mut self) -> bool {
        let mut out = vec![S::Cell::EMPTY; self.cells_max];
        let mut has_sent = false;
        while let Some(conn) = self.core.poll_writable() {
            assert_eq!(conn, self.conn);
            loop {
                let count = self.core.poll_cells(self.now, conn, &mut out);
                if count == 0 {
                    break;
                }
                has_sent = true;
                let before = self.seen.len();
                for cell in &out[..count] {
                    let chain = &mut self.chains[cell.circ_id().get() as usize & 0xff];
                    chain.handle_cell(self.now, cell.command(), cell.body());
                    self.seen.append(&mut chain.seen);
                }
                let is_data = |cell: &Seen| cell.3 == RelayCommand::DATA.0;
                let sent = &self.seen[before..];
                let data = sent.iter().filter(|cell| is_data(cell)).count();
                assert!(data <= CELLS_PER_RECORD);
                assert!(sent[sent.len() - data..].iter().all(is_data), "data cells are last");
            }
        }
        has_sent
    }

    fn carry_backward(&mut self) -> bool {
        let mut has_sent = false;
        for (number, chain) in (0..).zip(&mut self.chains) {
            for (command, body) in chain.out.drain(..) {
                has_sent = true;
                let circ_id = CircId::of_initiator(number);
                self.core.handle_cell(self.now, self.conn, circ_id, command, &body);
            }
        }
        has_sent
    }
}

/// A test case: circuits with their streams, and the number of cells that leave at once.
#[derive(Clone, Debug)]
struct Plan {
    circuits: Vec<(bool, bool, Vec<Transfer>)>,
    cells_max: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    let bytes = || prop_oneof![0u64..2000, 0u64..700_000];
    let transfer =
        (any::<u64>(), bytes(), bytes()).prop_map(|(seed, download_bytes, upload_bytes)| {
            Transfer { seed, download_bytes, upload_bytes }
        });
    let circuit = (any::<bool>(), any::<bool>(), prop::collection::vec(transfer, 1..4));
    (prop::collection::vec(circuit, 1..4), 1usize..70)
        .prop_map(|(circuits, cells_max)| Plan { circuits, cells_max })
}

/// The whole outcome of a run: what the relays saw, events with their times, and a random number drawn
/// afterwards.
type Course = (Vec<Seen>, Vec<ClientEvent>, u64);

fn course<S: Played>(plan: &Plan) -> Course
where
    Transfer: Application<S>,
{
    let paths: Vec<CircuitPlan> =
        plan.circuits.iter().map(|(fast, cc, _)| path(3, *fast, *cc)).collect();
    let chain = |place, transfers: &[Transfer]| {
        Chain::<S>::new(CircId::of_initiator(place), transfers, Liar::Nobody)
    };
    // Circuit IDs begin with one.
    let chains = core::iter::once(chain(0, &[]))
        .chain((1..).zip(&plan.circuits).map(|(place, (.., transfers))| chain(place, transfers)));
    let (mut world, circuits) = World::new(&paths, chains.collect());
    world.cells_max = plan.cells_max;
    let mut streams = 0;
    for (circuit, (.., transfers)) in circuits.iter().zip(&plan.circuits) {
        for transfer in transfers {
            world.core.begin(world.now, *circuit, destination(), *transfer);
            streams += 1;
        }
    }
    world.run();
    let built =
        world.events.iter().filter(|event| matches!(event, ClientEvent::Built { .. })).count();
    let complete = |event: &&ClientEvent| {
        matches!(event, ClientEvent::Over { outcome: Outcome::Complete, .. })
    };
    let over = world.events.iter().filter(complete).count();
    assert_eq!((built, over), (circuits.len(), streams), "{:?}", world.events);
    assert_eq!((world.core.open_circuits(), world.core.open_streams()), (circuits.len(), 0));
    let sent: u64 =
        plan.circuits.iter().flat_map(|circuit| &circuit.2).map(Transfer::response_bytes).sum();
    assert_eq!(world.core.received_bytes(), sent);
    circuits.into_iter().for_each(|circuit| world.core.destroy(circuit));
    world.run();
    (world.seen, world.events, world.core.rng.next_u64())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A client behaves identically over both cell models: the same cells, order, times and random numbers.
    #[test]
    fn a_client_behaves_identically_over_both_cell_models(plan in plan()) {
        let (tor, header_only) = (course::<Tor>(&plan), course::<HeaderOnly>(&plan));
        prop_assert_eq!(&tor.0, &header_only.0);
        prop_assert_eq!(&tor.1, &header_only.1);
        prop_assert_eq!(tor.2, header_only.2);
    }
}

#[test]
fn streams_and_circuits_are_served_round_robin() {
    let upload = Transfer::upload(1, 40 * 498);
    let circuits = vec![(false, false, vec![upload; 2]); 2];
    let (seen, ..) = course::<HeaderOnly>(&Plan { circuits, cells_max: 50 });
    let data = seen.iter().filter(|cell| cell.3 == RelayCommand::DATA.0);
    let data: Vec<(u32, u16)> = data.map(|cell| (cell.0.get() & 0xff, cell.4.0)).collect();
    let record = |circuit: u32, first: u16| {
        let streams = (0..31).map(move |place| (circuit, (first + place) % 2 + 1));
        streams.collect::<Vec<_>>()
    };
    assert_eq!(&data[..31], record(1, 0));
    assert_eq!(&data[31..62], record(2, 0));
    assert_eq!(&data[62..93], record(1, 1), "the other stream is served next");
}

/// A stream over one circuit whose relays misbehave, and the outcome.
fn lied_to<S: Played>(liar: Liar) -> (Vec<Seen>, Vec<ClientEvent>)
where
    Transfer: Application<S>,
{
    let transfer = Transfer::download(3, 5000);
    let chains = vec![
        Chain::new(CircId::of_initiator(0), &[], liar),
        Chain::new(CircId::of_initiator(1), &[transfer], liar),
    ];
    let (mut world, circuits) = World::<S>::new(&[path(3, true, false)], chains);
    world.run();
    world.core.begin(world.now, circuits[0], destination(), transfer);
    world.run();
    (world.seen, world.events)
}

#[test]
fn a_missing_cell_is_detected() {
    for (_, events) in [lied_to::<Tor>(Liar::Skipping), lied_to::<HeaderOnly>(Liar::Skipping)] {
        let Some(ClientEvent::Over { outcome, .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(*outcome, Outcome::WrongBytes { offset: 2 * 498 });
    }
}

#[test]
fn data_before_connected_belongs_to_no_stream() {
    for (_, events) in [lied_to::<Tor>(Liar::Eager), lied_to::<HeaderOnly>(Liar::Eager)] {
        let Some(ClientEvent::Over { outcome, .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(*outcome, Outcome::Complete);
    }
}

#[test]
fn misbehaving_relays_lose_the_circuit() {
    let reason = crate::cell::msg::DestroyReason::PROTOCOL;
    let cases = [
        (Liar::Forging, Loss::Circuit(CircuitError::Crypt(crate::crypto::CryptError))),
        (Liar::Cutting, Loss::Circuit(CircuitError::Truncated(reason))),
        (Liar::Destroying, Loss::Circuit(CircuitError::Destroyed(reason))),
        (Liar::Acknowledging, Loss::Flow(FlowError::UnexpectedSendme)),
    ];
    for (liar, expected) in cases {
        for (seen, events) in [lied_to::<Tor>(liar), lied_to::<HeaderOnly>(liar)] {
            let Some(ClientEvent::Lost { cause, .. }) = events.last() else { panic!("{events:?}") };
            assert_eq!(*cause, expected);
            let says_so = seen.last().is_some_and(|cell| cell.1 == Command::DESTROY);
            assert_eq!(says_so, liar != Liar::Destroying, "{seen:?}");
        }
    }
}

/// The buffered data of a stream that is not read, with its window, and its outcome after reading resumes.
fn paused<S: Played>(has_congestion_control: bool) -> (u64, Vec<Seen>)
where
    Transfer: Application<S>,
{
    let transfer = Transfer::download(3, 2_000_000);
    let chain = |place, transfers: &[Transfer]| {
        Chain::<S>::new(CircId::of_initiator(place), transfers, Liar::Nobody)
    };
    let chains = vec![chain(0, &[]), chain(1, &[transfer])];
    let paths = [path(3, false, has_congestion_control)];
    let (mut world, circuits) = World::new(&paths, chains);
    let stream = world.core.begin(world.now, circuits[0], destination(), transfer);
    world.core.pause(stream);
    world.run();
    let figures = world.core.figures(stream);
    let held = figures.unwrap_or_else(|| panic!("{:?}", world.events)).received_bytes;
    world.core.resume(world.now, stream);
    world.run();
    let Some(ClientEvent::Over { outcome, figures, .. }) = world.events.last() else { panic!() };
    assert_eq!((*outcome, figures.held_bytes_max), (Outcome::Complete, held));
    (held, world.seen)
}

#[test]
fn a_paused_stream_stops_its_sender() {
    for has_congestion_control in [false, true] {
        let (tor, header_only) =
            (paused::<Tor>(has_congestion_control), paused::<HeaderOnly>(has_congestion_control));
        assert_eq!(tor, header_only);
        assert!(tor.0 < 1_500_000, "{} bytes", tor.0);
        let sent = |command: RelayCommand| tor.1.iter().any(|cell| cell.3 == command.0);
        assert_eq!(sent(RelayCommand::XOFF), has_congestion_control);
        assert_eq!(sent(RelayCommand::XON), has_congestion_control);
    }
}

#[test]
fn a_closing_link_gets_no_new_circuits() {
    let mut core = Core::<HeaderOnly, Transfer, _>::new(ChaCha8Rng::seed_from_u64(1));
    let now = Instant::ORIGIN;
    let first = core.open(now, &path(3, false, false));
    let conn = core.poll_dial().expect("a link is wanted").conn;
    core.handle_link_open(now, conn, false);
    core.destroy(first);
    core.close_idle();
    core.close_idle();
    core.open(now, &path(3, false, false));
    let other = core.poll_dial().expect("another link is wanted").conn;
    assert_ne!(other, conn);
    let mut cells = vec![Cell::EMPTY; 9];
    assert_eq!(core.poll_writable(), Some(conn));
    let count = core.poll_cells(now, conn, &mut cells);
    let commands: Vec<Command> = cells[..count].iter().map(Cell::command).collect();
    assert_eq!(commands, [Command::CREATE2, Command::DESTROY], "DESTROY precedes the close");
    assert_eq!((core.poll_close(), core.poll_close()), (Some(conn), None));
}

#[test]
fn a_lost_link_closes_its_circuits() {
    let mut core = Core::<HeaderOnly, Transfer, _>::new(ChaCha8Rng::seed_from_u64(1));
    let now = Instant::ORIGIN;
    let circuits = [1, 2].map(|_| core.open(now, &path(2, false, false)));
    let own = core.open(now, &CircuitPlan { has_own_link: true, ..path(2, false, false) });
    let (conn, own_conn) = (core.poll_dial().unwrap().conn, core.poll_dial().unwrap().conn);
    core.begin(now, circuits[0], destination(), Transfer::download(0, 0));
    core.handle_closed(now, conn, CloseCause::Reset);
    core.handle_broken(now, own_conn, "no relay".into());
    assert_eq!((core.open_circuits(), core.open_streams()), (0, 0));
    assert_eq!((core.poll_close(), core.poll_close()), (Some(own_conn), None));
    let lost = |circuit, cause| Some(ClientEvent::Lost { circuit, cause });
    for circuit in circuits {
        assert_eq!(core.poll_event(), lost(circuit, Loss::Link(CloseCause::Reset)));
    }
    assert_eq!(core.poll_event(), lost(own, Loss::Channel("no relay".into())));
}

fn padding_goes_to_the_last_hop_and_fills_no_window<S: Played>()
where
    Transfer: Application<S>,
{
    // Circuit IDs begin with one.
    let chains = (0..2).map(|place| Chain::new(CircId::of_initiator(place), &[], Liar::Nobody));
    let (mut world, circuits) = World::<S>::new(&[path(3, false, false)], chains.collect());
    world.run();
    let before = world.seen.len();
    world.core.send_drops(world.now, circuits[0], 1_200);
    world.run();
    let drops = &world.seen[before..];
    assert_eq!(drops.len(), 1_200, "more than a window of data");
    assert!(
        drops.iter().all(|drop| (drop.2, drop.3) == (2, RelayCommand::DROP.0)),
        "{:?}",
        drops[0]
    );
    assert!(world.core.is_built(circuits[0]));
}

#[test]
fn padding_reaches_the_last_hop_and_uses_no_window_in_both_cell_models() {
    padding_goes_to_the_last_hop_and_fills_no_window::<Tor>();
    padding_goes_to_the_last_hop_and_fills_no_window::<HeaderOnly>();
}
