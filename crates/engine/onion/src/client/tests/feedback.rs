//! Hop-by-hop windows at a client whose first hop is silent, lies, or sends malformed reports.

use super::*;
use crate::cell::msg::FeedbackEntry;
use crate::flow::hop::HopWindows;
use alloc::sync::Arc;

/// The window to the first hop, in cells.
const WINDOW: u32 = 10;

/// A report of the first hop; returns false if the client closes the link.
type Lie = fn(&mut Hop) -> bool;

/// A client that uploads over a circuit of three hops, on a link with windows.
struct Hop {
    world: World<HeaderOnly>,
    /// Cells that the first hop has reported, and cells that it has received.
    reported: u32,
}

impl Hop {
    /// The circuit is open, and all its cells have been reported.
    fn new(upload_bytes: u64) -> Self {
        let mut core = Core::new(ChaCha8Rng::seed_from_u64(1));
        core.set_flows(Arc::new(HopWindows::Fixed { cells: WINDOW }.flows(Duration::ZERO)));
        let now = Instant::ORIGIN;
        let circuit = core.open(now, &path(3, false, false));
        let conn = core.poll_dial().expect("a link is wanted").conn;
        core.handle_link_open(now, conn, true);
        let transfer = Transfer::upload(1, upload_bytes);
        // Circuit IDs begin with one.
        let chains: [&[Transfer]; 2] = [&[], &[transfer]];
        let chain = |(number, transfers): (u32, &[Transfer])| {
            Chain::new(CircId::of_initiator(number), transfers, Liar::Nobody)
        };
        let chains = (0..).zip(chains).map(chain).collect();
        let (seen, events) = (Vec::new(), Vec::new());
        let world = World { core, now, conn, chains, seen, events, cells_max: 40 };
        let mut hop = Self { world, reported: 0 };
        hop.world.run();
        assert!(hop.pass_on(u32::MAX));
        hop.world.core.begin(hop.world.now, circuit, destination(), transfer);
        hop.world.run();
        hop
    }

    /// Cells received and not reported.
    fn under_way(&self) -> u32 {
        let is_relay = |cell: &&Seen| matches!(cell.1, Command::RELAY | Command::RELAY_EARLY);
        let received = self.world.seen.iter().filter(is_relay).count();
        u32::try_from(received).expect("few") - self.reported
    }

    fn handle_feedback(&mut self, body: &[u8]) -> bool {
        let World { core, now, conn, .. } = &mut self.world;
        core.handle_feedback(*now, *conn, body)
    }

    /// Reports cells of a circuit; returns false if the client closes the link.
    fn report(&mut self, circuit: u32, cells: u16) -> bool {
        let mut body = Vec::new();
        FeedbackEntry { circ_id: CircId::of_initiator(circuit), cells }.encode_into(&mut body);
        self.handle_feedback(&body)
    }

    /// Truthfully reports at most this number of cells.
    fn pass_on(&mut self, most: u32) -> bool {
        let cells = self.under_way().min(most);
        self.reported += cells;
        let is_taken = cells == 0 || self.report(1, u16::try_from(cells).expect("few"));
        self.world.run();
        is_taken
    }

    fn is_complete(&self) -> bool {
        let is = |event: &ClientEvent| {
            matches!(event, ClientEvent::Over { outcome: Outcome::Complete, .. })
        };
        self.world.events.iter().any(is)
    }
}

#[test]
fn a_silent_first_hop_gets_one_window_of_cells() {
    let mut hop = Hop::new(1_000_000);
    assert_eq!(hop.under_way(), WINDOW);
    hop.world.run();
    assert_eq!(hop.under_way(), WINDOW);
    assert!(hop.pass_on(3));
    assert_eq!(hop.under_way(), WINDOW, "three more have left");
}

#[test]
fn a_first_hop_that_reports_early_never_has_more_than_a_window_in_flight() {
    let mut hop = Hop::new(100_000);
    while !hop.is_complete() {
        assert!((1..=WINDOW).contains(&hop.under_way()), "{}", hop.under_way());
        assert!(hop.pass_on(u32::MAX));
    }
}

#[test]
fn excessive_and_malformed_feedback_closes_the_link_with_distinct_errors() {
    let too_much = |hop: &mut Hop| hop.report(1, u16::try_from(hop.under_way() + 1).expect("few"));
    let malformed = |hop: &mut Hop| hop.handle_feedback(&[1, 2, 3]);
    let nothing = |hop: &mut Hop| hop.report(1, 0);
    let lies: [(Lie, &str); 3] = [
        (too_much, "it reported more forwarded cells than it received"),
        (malformed, "FEEDBACK"),
        (nothing, "FEEDBACK"),
    ];
    for (lie, expected) in lies {
        let mut hop = Hop::new(1_000_000);
        assert!(!lie(&mut hop));
        assert_eq!(hop.world.core.poll_close(), Some(hop.world.conn));
        let Some(ClientEvent::Lost { cause: Loss::Channel(problem), .. }) =
            hop.world.core.poll_event()
        else {
            panic!("the circuit is closed")
        };
        assert!(problem.contains(expected), "{problem}");
        assert!(!hop.report(1, 1), "the link is closed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any reports, of this circuit or of one that never existed: an impossible report closes the link, and
    /// a possible one never permits more cells in flight than the window.
    #[test]
    fn impossible_feedback_is_detected_to_the_cell(
        reports in prop::collection::vec((1u32..3, 0u16..14), 1..40),
        noise in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut hop = Hop::new(200_000);
        for (circuit, cells) in reports {
            let under_way = hop.under_way();
            let can_be = cells > 0 && (circuit == 2 || u32::from(cells) <= under_way);
            prop_assert_eq!(hop.report(circuit, cells), can_be);
            if !can_be {
                return Ok(());
            }
            hop.reported += if circuit == 1 { u32::from(cells) } else { 0 };
            hop.world.run();
            prop_assert!(hop.under_way() <= WINDOW, "{}", hop.under_way());
        }
        let _ = hop.handle_feedback(&noise);
    }
}
