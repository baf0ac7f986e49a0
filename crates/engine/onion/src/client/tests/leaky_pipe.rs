//! Streams at hops other than the last, and the time of each hop.

use super::*;
use crate::cell::msg::EndReason;

fn world<S: Played>(liar: Liar) -> (World<S>, CircuitNumber)
where
    Transfer: Application<S>,
{
    // Circuit IDs begin with one.
    let chains = (0..2).map(|place| Chain::new(CircId::of_initiator(place), &[], liar));
    let (mut world, circuits) = World::<S>::new(&[path(3, false, false)], chains.collect());
    assert_eq!(world.core.silent_legs(circuits[0]), [0], "no hop has answered yet");
    world.run();
    assert!(world.core.silent_legs(circuits[0]).is_empty());
    (world, circuits[0])
}

fn each_hop_answers<S: Played>()
where
    Transfer: Application<S>,
{
    let (mut world, circuit) = world::<S>(Liar::Refusing);
    let times = world.core.hop_times(circuit).to_vec();
    assert_eq!(times.len(), 3);
    assert!(times.is_sorted() && times[0] > Duration::ZERO, "{times:?}");
    let built = ClientEvent::Built { circuit, took: times[2] };
    assert_eq!(world.events, [built]);
    for hop in [0, 1, 2] {
        let (seen, earlier_events) = (world.seen.len(), world.events.len());
        let transfer = Transfer::download(1, 1);
        world.core.begin_at(world.now, circuit, Some(hop), destination(), transfer);
        world.run();
        let begins: Vec<_> = world.seen[seen..].iter().map(|cell| (cell.2, cell.3)).collect();
        assert_eq!(begins, [(hop, RelayCommand::BEGIN.0)]);
        let [ClientEvent::Over { outcome, .. }] = &world.events[earlier_events..] else {
            panic!("{:?}", world.events)
        };
        assert_eq!(*outcome, Outcome::Ended(EndReason::EXIT_POLICY));
    }
    // There is no such hop: nothing is sent and nothing breaks.
    let seen = world.seen.len();
    world.core.begin_at(world.now, circuit, Some(3), destination(), Transfer::download(1, 1));
    world.run();
    assert_eq!(world.seen.len(), seen);
    assert!(world.core.is_built(circuit));
}

#[test]
fn each_hop_answers_its_own_requests_in_both_cell_models() {
    each_hop_answers::<Tor>();
    each_hop_answers::<HeaderOnly>();
}

fn other_hops_cannot_answer<S: Played>()
where
    Transfer: Application<S>,
{
    let (mut world, circuit) = world::<S>(Liar::Meddling);
    for hop in [0, 1] {
        world.core.begin_at(world.now, circuit, Some(hop), destination(), Transfer::download(1, 1));
    }
    world.run();
    assert_eq!((world.core.open_streams(), world.events.len()), (2, 1), "{:?}", world.events);
}

#[test]
fn a_hop_cannot_answer_for_another_in_both_cell_models() {
    other_hops_cannot_answer::<Tor>();
    other_hops_cannot_answer::<HeaderOnly>();
}
