use super::*;
use crate::Params;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;

fn mbit(rate: f64) -> Rate {
    Rate::from_mbit_per_s(rate)
}

fn launches(campaign: &mut Campaign) -> Vec<usize> {
    core::iter::from_fn(|| campaign.poll_launch()).map(|launch| launch.relay.0).collect()
}

/// A campaign with f = 2.
fn campaign(capacities: &[f64]) -> Campaign {
    Campaign::new(2.0, 160, capacities.iter().copied().map(mbit).collect())
}

/// The turn after an inconclusive one in which the relay forwarded next to nothing.
fn enlarged(launch: &Launch) -> Next {
    launch.turn.enlarged(Rate::ZERO).map_or(Next::Nothing, Next::Enlarged)
}

/// Appendix F: eight relays of 100 Mbit/s take as much as four of 200, or two of 400.
#[test]
fn relays_run_concurrently_as_far_as_the_team_has_capacity() {
    for (count, capacity) in [(8, 100.0), (4, 200.0), (2, 400.0)] {
        let factor = Params::default().excess_factor();
        let team = vec![mbit(1000.0), mbit(1000.0), mbit(363.0)];
        let mut campaign = Campaign::new(factor, 160, team);
        for relay in 0..20 {
            campaign.add(RelayIndex(relay), Priority::Known, mbit(capacity), 12);
        }
        assert_eq!(launches(&mut campaign).len(), count);
        assert_eq!((campaign.running(), campaign.queued()), (count, 20 - count));
    }
}

/// A limit of each of two measurers in a network.
fn in_network(number: u8, rates: [f64; 2]) -> ZoneLimit {
    ZoneLimit { zone: Zone::Network([number, 0, 0, 0].into()), rates: rates.map(mbit).into() }
}

#[test]
fn a_relay_gets_what_its_zones_leave_and_delays_no_other() {
    let mut campaign = campaign(&[1000.0, 1000.0]);
    let host =
        ZoneLimit { zone: Zone::Host([7, 0, 0, 1].into()), rates: [60.0, 40.0].map(mbit).into() };
    let add = |campaign: &mut Campaign, relay, limits: Vec<ZoneLimit>| {
        campaign.set_limits(RelayIndex(relay), limits);
        campaign.add(RelayIndex(relay), Priority::Known, mbit(200.0), 12);
    };
    add(&mut campaign, 0, vec![host, in_network(7, [90.0, 90.0])]);
    let launch = campaign.poll_launch().expect("room");
    let rates: Vec<Rate> = launch.allocation.assignments.iter().map(|share| share.rate).collect();
    assert_eq!(rates, [60.0, 40.0].map(mbit), "instead of 400");
    assert!(launch.is_whole_team, "more is not permitted");
    // Its network has 30 and 50 left, and this relay needs 180.
    add(&mut campaign, 1, vec![in_network(7, [90.0, 90.0])]);
    for relay in 2..22 {
        add(&mut campaign, relay, vec![]);
        assert_eq!(launches(&mut campaign), [relay], "it overtakes, however often");
        campaign.handle_end(RelayIndex(relay), Next::Nothing);
    }
    // The load of the first has not ended.
    campaign.handle_ending(RelayIndex(0));
    assert!(launches(&mut campaign).is_empty());
    campaign.handle_end(RelayIndex(0), Next::Nothing);
    assert_eq!(launches(&mut campaign), [1]);
    // Without a share it never starts, and holds nothing up.
    add(&mut campaign, 30, vec![in_network(9, [0.0, 0.0])]);
    add(&mut campaign, 31, vec![]);
    assert_eq!(launches(&mut campaign), [31]);
}

proptest! {
    /// Also for relays that share a machine, and while loads end.
    #[test]
    fn no_measurer_exceeds_its_limits_in_a_zone(
        machines in vec((vec(1u32..200, 1..4), 0u8..3), 1..12), steps in vec(0usize..30, 0..60),
        limits in (10u32..200, 10u32..200), capacities in (50u32..500, 50u32..500),
    ) {
        let mut campaign = campaign(&[capacities.0, capacities.1].map(f64::from));
        let rates = [limits.0, limits.1].map(f64::from);
        let mut networks = Vec::new();
        for (guesses, network) in machines {
            let turns: Vec<RelayTurn> = guesses.iter().map(|guess| {
                let relay = RelayIndex(networks.len());
                networks.push(network);
                campaign.set_limits(relay, vec![in_network(network, rates)]);
                let turn = Attempt::first(mbit(f64::from(*guess)), 12);
                RelayTurn { relay, priority: Priority::Known, turn }
            }).collect();
            campaign.add_machine(&turns);
        }
        let mut running: BTreeMap<usize, Allocation> = BTreeMap::new();
        for step in steps {
            while let Some(launch) = campaign.poll_launch() {
                prop_assert!(running.insert(launch.relay.0, launch.allocation).is_none());
            }
            for network in 0..3 {
                for (place, most) in rates.iter().enumerate() {
                    let of_it = running.iter().filter(|(relay, _)| networks[**relay] == network);
                    let shares = of_it.flat_map(|(_, launch)| &launch.assignments);
                    let shares = shares.filter(|share| share.measurer == MeasurerId(place));
                    let used: Rate = shares.map(|share| share.rate).sum();
                    prop_assert!(used <= mbit(*most), "{} of {}", used, most);
                }
            }
            let Some(relay) = running.keys().nth(step % running.len().max(1)).copied() else { break };
            if step % 2 == 0 {
                campaign.handle_ending(RelayIndex(relay));
            } else {
                running.remove(&relay);
                campaign.handle_end(RelayIndex(relay), Next::Nothing);
            }
        }
    }
}

#[test]
fn the_number_of_concurrent_relays_is_limited_whatever_the_capacity() {
    let mut campaign = campaign(&[1000.0]);
    campaign.set_at_once_max(3);
    for relay in 0..5 {
        campaign.add(RelayIndex(relay), Priority::New, mbit(10.0), 1);
    }
    // Two that share a machine start together. Four exceed the limit, and are measured when nothing else runs.
    let turn = |relay| RelayTurn {
        relay: RelayIndex(relay),
        priority: Priority::New,
        turn: Attempt::first(mbit(10.0), 1),
    };
    campaign.add_machine(&[turn(5), turn(6)]);
    campaign.add_machine(&[turn(7), turn(8), turn(9), turn(10)]);
    assert_eq!(launches(&mut campaign), [0, 1, 2]);
    campaign.handle_end(RelayIndex(1), Next::Nothing);
    assert_eq!(launches(&mut campaign), [3]);
    campaign.handle_end(RelayIndex(0), Next::Nothing);
    assert_eq!(launches(&mut campaign), [4]);
    campaign.handle_end(RelayIndex(2), Next::Nothing);
    assert!(launches(&mut campaign).is_empty(), "room for one of two");
    campaign.handle_end(RelayIndex(3), Next::Nothing);
    assert_eq!(launches(&mut campaign), [5, 6]);
    for relay in [4, 5] {
        campaign.handle_end(RelayIndex(relay), Next::Nothing);
        assert!(launches(&mut campaign).is_empty(), "four do not fit with one");
    }
    campaign.handle_end(RelayIndex(6), Next::Nothing);
    assert_eq!(launches(&mut campaign), [7, 8, 9, 10]);
    // A higher limit, as after the return of a measurer.
    campaign.set_at_once_max(5);
    campaign.add(RelayIndex(11), Priority::Known, mbit(1.0), 1);
    campaign.add(RelayIndex(12), Priority::Known, mbit(1.0), 1);
    assert_eq!(launches(&mut campaign), [11]);
}

#[test]
fn old_relays_come_first_the_largest_before_the_others() {
    let mut campaign = campaign(&[1000.0]);
    campaign.add(RelayIndex(1), Priority::New, mbit(1.0), 1);
    campaign.add(RelayIndex(2), Priority::Known, mbit(10.0), 1);
    campaign.add(RelayIndex(3), Priority::New, mbit(50.0), 1);
    campaign.add(RelayIndex(4), Priority::Known, mbit(100.0), 1);
    campaign.add(RelayIndex(5), Priority::Known, mbit(10.0), 1);
    assert_eq!(launches(&mut campaign), [4, 2, 5, 1, 3]);
}

/// The participants of a launch, each with its Mbit/s.
fn shares(launch: &Launch) -> Vec<(usize, f64)> {
    let shares = launch.allocation.assignments.iter();
    shares.map(|share| (share.measurer.0, share.rate.as_mbit_per_s())).collect()
}

/// A measurer's observation of a path of this length, and its returned rate if the path limited it.
fn path(rtt_ms: u64, held_back: Option<f64>) -> PathSeen {
    let rtt = Some(onion::Duration::from_millis(rtt_ms));
    PathSeen { rtt, loss_ppm: None, limit: held_back.map(mbit) }
}

#[test]
fn a_relay_known_to_be_distant_gets_two_measurers_at_different_hosts_in_its_first_turn() {
    let launched = |rtts_ms: &[u64], hosts: &[u32]| {
        let hosts = hosts.iter().copied().map(Some).collect();
        let mut campaign = campaign(&[100.0, 90.0, 80.0]).at_hosts(hosts);
        for (place, rtt_ms) in rtts_ms.iter().enumerate() {
            campaign.expect_path(RelayIndex(1), MeasurerId(place), path(*rtt_ms, None));
        }
        campaign.add(RelayIndex(1), Priority::Known, mbit(20.0), 1);
        let launch = campaign.poll_launch().expect("room");
        let rtts =
            launch.vantages.iter().map(|vantage| vantage.path.rtt.map(|rtt| rtt.as_millis()));
        (shares(&launch), rtts.collect::<Vec<_>>())
    };
    let alone = |rtt| (vec![(0, 40.0)], vec![rtt]);
    assert_eq!(launched(&[], &[]), alone(None), "nothing is known");
    assert_eq!(launched(&[1, 1, 1], &[]), alone(Some(1)), "near");
    let two = |second, rtt| (vec![(0, 20.0), (second, 20.0)], vec![Some(1), rtt]);
    assert_eq!(launched(&[1, 90, 200], &[]), two(1, Some(90)));
    assert_eq!(launched(&[1, 90, 200], &[5, 5, 6]), two(2, Some(200)));
    assert_eq!(launched(&[1, 90], &[5, 5, 6]), two(2, None));
}

#[test]
fn a_measurer_limited_by_a_path_gets_a_smaller_share_of_this_relay_only() {
    let mut campaign = campaign(&[100.0, 90.0]);
    campaign.expect_path(RelayIndex(1), MeasurerId(0), path(50, Some(8.0)));
    campaign.add(RelayIndex(1), Priority::Known, mbit(40.0), 1);
    campaign.add(RelayIndex(2), Priority::Known, mbit(20.0), 1);
    let both = [campaign.poll_launch(), campaign.poll_launch()]
        .map(|launch| shares(&launch.expect("room")));
    assert_eq!(both, [vec![(1, 70.0), (0, 10.0)], vec![(0, 40.0)]]);
    // No other measurer has the rest.
    campaign.expect_path(RelayIndex(3), MeasurerId(0), path(50, Some(8.0)));
    campaign.add(RelayIndex(3), Priority::Known, mbit(30.0), 1);
    assert_eq!(shares(&campaign.poll_launch().expect("room")), [(1, 20.0), (0, 40.0)]);
}

/// A relay that blocks a measurer excludes it from its own measurement, and from no other.
#[test]
fn a_measurer_that_cannot_reach_a_relay_is_replaced_for_this_relay_only() {
    let failed = |place| Outcome::Failed {
        reason: Failure::OutOfReach { detail: "refused".into() },
        measurer: Some(MeasurerId(place)),
        round: 1,
        second: None,
    };
    let mut campaign = campaign(&[100.0, 90.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(60.0), 3);
    let launch = campaign.poll_launch().expect("room");
    let Some(place) = launch.allocation.place(MeasurerId(0)) else { panic!("{launch:?}") };
    let ended = campaign.handle_outcome(RelayIndex(1), &failed(place));
    assert_eq!((ended.is_over, ended.lost), (false, None));
    assert_eq!(campaign.capacity(), mbit(190.0), "no measurer is lost");
    let launch = campaign.poll_launch().expect("room");
    assert_eq!(shares(&launch), [(1, 90.0)]);
    assert!(launch.is_whole_team, "no more capacity reaches this relay");
    campaign.add(RelayIndex(2), Priority::Known, mbit(20.0), 1);
    assert_eq!(shares(&campaign.poll_launch().expect("room")), [(0, 40.0)]);
    // If no measurer is left, all try once more.
    assert!(!campaign.handle_outcome(RelayIndex(1), &failed(0)).is_over);
    campaign.handle_end(RelayIndex(2), Next::Nothing);
    let launch = campaign.poll_launch().expect("room");
    assert_eq!(launch.allocation.total(), mbit(120.0));
    assert!(campaign.handle_outcome(RelayIndex(1), &failed(0)).is_over);
}

/// A relay that makes one measurer after the other look wrong excludes them from its own measurement. They are lost for
/// other relays only if a relay of another machine does the same.
#[test]
fn a_measurer_accused_by_one_machine_is_excluded_there_and_lost_once_another_accuses_it() {
    let miscount = Failure::CountsDiffer { returned_bytes: 5, sent_bytes: 1 };
    for reason in [miscount, Failure::GotNothing] {
        let failed = |place| Outcome::Failed {
            reason: reason.clone(),
            measurer: Some(MeasurerId(place)),
            round: 1,
            second: None,
        };
        let mut campaign = campaign(&[200.0, 90.0]);
        let turn = |relay| machine(&[(relay, 20.0)])[0];
        campaign.add_machine(&[turn(1), turn(2)]);
        assert_eq!(launches(&mut campaign), [1, 2]);
        for relay in [1, 2] {
            let ended = campaign.handle_outcome(RelayIndex(relay), &failed(0));
            assert_eq!((ended.is_over, ended.lost), (false, None), "two relays of one machine");
        }
        assert_eq!(campaign.capacity(), mbit(290.0));
        let launch = campaign.poll_launch().expect("room");
        assert_eq!(shares(&launch), [(1, 40.0)], "the other measurer takes part");
        assert_eq!(launches(&mut campaign), [2]);
        // A relay of another machine.
        campaign.add(RelayIndex(3), Priority::Known, mbit(50.0), 2);
        let launch = campaign.poll_launch().expect("room");
        assert_eq!(shares(&launch), [(0, 100.0)]);
        let ended = campaign.handle_outcome(RelayIndex(3), &failed(0));
        assert_eq!(ended.lost, Some(MeasurerId(0)), "two machines accuse it");
        assert_eq!(campaign.capacity(), mbit(90.0));
    }
    // A failure that the coordinator itself observes excludes a measurer everywhere.
    let mut campaign = campaign(&[100.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(20.0), 2);
    let _ = campaign.poll_launch();
    let reason = Failure::MeasurerLost { detail: "gone".into() };
    let outcome = Outcome::Failed { reason, measurer: Some(MeasurerId(0)), round: 1, second: None };
    assert_eq!(campaign.handle_outcome(RelayIndex(1), &outcome).lost, Some(MeasurerId(0)));
}

#[test]
fn a_share_is_released_when_its_measurement_ends() {
    let mut campaign = campaign(&[60.0, 40.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(45.0), 1);
    campaign.add(RelayIndex(2), Priority::Known, mbit(40.0), 1);
    assert_eq!(launches(&mut campaign), [1]);
    assert_eq!(campaign.residuals(), [Rate::ZERO, mbit(10.0)]);
    assert!(campaign.handle_end(RelayIndex(1), Next::Nothing));
    assert_eq!(campaign.residuals(), [mbit(60.0), mbit(40.0)]);
    assert_eq!(launches(&mut campaign), [2]);
    assert!(campaign.handle_end(RelayIndex(2), Next::Nothing) && campaign.is_over());
}

#[test]
fn a_relay_that_takes_the_whole_load_is_measured_again_up_to_the_whole_team() {
    let mut campaign = campaign(&[100.0]);
    campaign.add(RelayIndex(1), Priority::New, mbit(20.0), 12);
    let launch = campaign.poll_launch().expect("room");
    assert_eq!((launch.allocation.total(), launch.is_whole_team), (mbit(40.0), false));
    assert!(!campaign.handle_end(RelayIndex(1), enlarged(&launch)));
    let launch = campaign.poll_launch().expect("room");
    assert_eq!(launch.allocation.total(), mbit(80.0));
    assert!(!campaign.handle_end(RelayIndex(1), enlarged(&launch)));
    let launch = campaign.poll_launch().expect("room");
    assert_eq!((launch.allocation.total(), launch.is_whole_team), (mbit(100.0), true));
    assert!(campaign.handle_end(RelayIndex(1), enlarged(&launch)));
    assert!(campaign.is_over());
}

#[test]
fn a_relay_that_allows_two_rounds_gets_two() {
    let mut campaign = campaign(&[1000.0]);
    campaign.add(RelayIndex(1), Priority::New, mbit(1.0), 2);
    let launch = campaign.poll_launch().expect("room");
    assert!(!campaign.handle_end(RelayIndex(1), enlarged(&launch)));
    let launch = campaign.poll_launch().expect("room");
    assert_eq!(launch.turn.guess, mbit(2.0));
    assert!(campaign.handle_end(RelayIndex(1), enlarged(&launch)));
}

#[test]
fn a_turn_in_which_a_measurer_failed_is_repeated_even_with_the_whole_team() {
    let mut campaign = campaign(&[10.0]);
    campaign.add(RelayIndex(1), Priority::New, mbit(50.0), 2);
    assert!(campaign.poll_launch().expect("room").is_whole_team);
    assert!(!campaign.handle_end(RelayIndex(1), Next::Repeated));
    assert_eq!(campaign.poll_launch().expect("room").turn.guess, mbit(50.0));
    assert!(campaign.handle_end(RelayIndex(1), Next::Repeated), "up to the limit of rounds");
}

#[test]
fn a_relay_without_room_for_circuits_is_measured_again_and_no_measurer_is_lost() {
    let mut campaign = campaign(&[10.0]);
    campaign.add(RelayIndex(1), Priority::New, mbit(5.0), 2);
    campaign.poll_launch().expect("room");
    let reason = Failure::NoRoom { detail: "0 of 2".into() };
    let measurer = Some(MeasurerId(0));
    let outcome = Outcome::Failed { reason, measurer, round: 1, second: None };
    let ended = campaign.handle_outcome(RelayIndex(1), &outcome);
    assert_eq!((ended.is_over, ended.lost), (false, None));
    assert_eq!(campaign.poll_launch().expect("room").turn.guess, mbit(5.0));
}

#[test]
fn a_relay_that_is_queued_or_running_is_not_added_again() {
    let mut campaign = campaign(&[100.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(40.0), 1);
    campaign.add(RelayIndex(1), Priority::New, mbit(1.0), 1);
    assert_eq!(launches(&mut campaign), [1]);
    campaign.add(RelayIndex(1), Priority::New, mbit(1.0), 1);
    assert_eq!(launches(&mut campaign), [0; 0]);
    assert!(campaign.handle_end(RelayIndex(2), Next::Nothing), "an unknown relay");
}

/// An endless stream of small relays competes with one that needs the whole team.
#[test]
fn a_large_relay_does_not_starve_behind_a_stream_of_small_ones() {
    let mut campaign = campaign(&[100.0]);
    for relay in 0..10 {
        campaign.add(RelayIndex(relay), Priority::New, mbit(5.0), 1);
    }
    let mut running: VecDeque<usize> = launches(&mut campaign).into();
    campaign.add(RelayIndex(1000), Priority::Known, mbit(500.0), 1);
    for relay in 10..200 {
        campaign.add(RelayIndex(relay), Priority::New, mbit(5.0), 1);
        let ended = running.pop_front().expect("always one");
        campaign.handle_end(RelayIndex(ended), Next::Nothing);
        running.extend(launches(&mut campaign));
        if running.contains(&1000) {
            assert!(relay < 40, "it took until {relay}");
            return;
        }
    }
    panic!("it starves");
}

#[test]
fn a_measurer_that_is_lost_gets_no_work_until_it_is_back() {
    let mut campaign = campaign(&[100.0, 50.0]);
    for relay in 0..3 {
        campaign.add(RelayIndex(relay), Priority::Known, mbit(50.0), 1);
    }
    assert_eq!(launches(&mut campaign), [0]);
    campaign.set_capacity(MeasurerId(0), Rate::ZERO);
    assert_eq!(campaign.residuals(), [Rate::ZERO, mbit(50.0)]);
    let launch = campaign.poll_launch().expect("the remaining capacity");
    assert!(launch.is_whole_team && launch.allocation.total() == mbit(50.0));
    assert!(campaign.handle_end(RelayIndex(0), Next::Nothing));
    assert_eq!(campaign.residuals(), [Rate::ZERO, Rate::ZERO]);
    campaign.set_capacity(MeasurerId(0), mbit(100.0));
    assert_eq!(launches(&mut campaign), [2]);
}

#[test]
fn a_team_without_capacity_launches_nothing_and_its_queue_can_be_cleared() {
    let mut campaign = campaign(&[0.0]);
    campaign.add(RelayIndex(7), Priority::Known, mbit(50.0), 1);
    assert_eq!(launches(&mut campaign), [0; 0]);
    assert_eq!(campaign.clear_queue(), [RelayIndex(7)]);
    assert!(campaign.is_over());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add { is_old: bool, guess: u64, rounds: u32 },
    End { which: usize, again: bool },
    Capacity { measurer: usize, capacity: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<bool>(), 1u64..150, 1u32..5).prop_map(|(is_old, guess, rounds)| Step::Add {
            is_old,
            guess,
            rounds
        }),
        (any::<usize>(), any::<bool>()).prop_map(|(which, again)| Step::End { which, again }),
        (0usize..5, 0u64..100)
            .prop_map(|(measurer, capacity)| Step::Capacity { measurer, capacity }),
    ]
}

fn bits(rates: &[u64]) -> Vec<Rate> {
    rates.iter().copied().map(Rate::from_bit_per_s).collect()
}

proptest! {
    #[test]
    fn no_measurer_exceeds_its_capacity_and_every_relay_is_launched(
        mut team in vec(0u64..100, 1..5), steps in vec(step(), 1..150),
    ) {
        let mut campaign = Campaign::new(2.0, 160, bits(&team));
        let mut running: Vec<Launch> = Vec::new();
        let (mut launched, mut rounds_max) = (vec![], vec![]);
        for step in steps {
            match step {
                Step::Add { is_old, guess, rounds } => {
                    let priority = if is_old { Priority::Known } else { Priority::New };
                    let relay = RelayIndex(launched.len());
                    campaign.add(relay, priority, Rate::from_bit_per_s(guess), rounds);
                    rounds_max.push(rounds);
                    launched.push(0u32);
                }
                Step::End { which, again } if !running.is_empty() => {
                    let ended = running.swap_remove(which % running.len());
                    let next = if again { enlarged(&ended) } else { Next::Nothing };
                    campaign.handle_end(ended.relay, next);
                }
                Step::End { .. } => {}
                Step::Capacity { measurer, capacity } => {
                    campaign.set_capacity(MeasurerId(measurer), Rate::from_bit_per_s(capacity));
                    if let Some(known) = team.get_mut(measurer) {
                        *known = capacity;
                    }
                }
            }
            let whole = Rate::from_bit_per_s(team.iter().sum());
            loop {
                let left = campaign.residuals();
                let Some(launch) = campaign.poll_launch() else { break };
                let needed = launch.turn.guess.scaled(2.0).min(whole);
                prop_assert_eq!(launch.allocation.total(), needed);
                prop_assert_eq!(launch.is_whole_team, needed == whole);
                for assignment in &launch.allocation.assignments {
                    prop_assert!(assignment.rate <= left[assignment.measurer.0]);
                }
                launched[launch.relay.0] += 1;
                prop_assert!(launched[launch.relay.0] <= rounds_max[launch.relay.0]);
                running.push(launch);
            }
            for (index, capacity) in team.iter().enumerate() {
                let assignments = running.iter().flat_map(|launch| &launch.allocation.assignments);
                let used = assignments.filter(|assignment| assignment.measurer.0 == index).map(|assignment| assignment.rate);
                let left = Rate::from_bit_per_s(*capacity).saturating_sub(used.sum());
                prop_assert_eq!(campaign.residuals()[index], left);
            }
            prop_assert_eq!(campaign.running(), running.len());
            let is_idle = running.is_empty() && whole > Rate::ZERO;
            prop_assert!(!is_idle || campaign.queued() == 0, "an idle team has no queue");
        }
        campaign.set_capacity(MeasurerId(0), Rate::from_bit_per_s(50));
        loop {
            while let Some(launch) = campaign.poll_launch() {
                launched[launch.relay.0] += 1;
                running.push(launch);
            }
            let Some(ended) = running.pop() else { break };
            campaign.handle_end(ended.relay, Next::Nothing);
        }
        prop_assert!(campaign.is_over());
        prop_assert!(launched.iter().all(|count| *count > 0), "each was launched");
    }
}

fn machine(relays: &[(usize, f64)]) -> Vec<RelayTurn> {
    let turn = |(relay, guess): &(usize, f64)| RelayTurn {
        relay: RelayIndex(*relay),
        priority: Priority::Known,
        turn: Attempt::first(mbit(*guess), 12),
    };
    relays.iter().map(turn).collect()
}

#[test]
fn relays_of_a_machine_start_together_or_not_at_all() {
    let mut campaign = campaign(&[100.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(30.0), 1);
    campaign.add_machine(&machine(&[(2, 20.0), (3, 5.0)]));
    campaign.add(RelayIndex(4), Priority::New, mbit(10.0), 1);
    // 60 of 100 are in use. The machine needs 50, so a relay that needs 20 overtakes it.
    assert_eq!(launches(&mut campaign), [1, 4]);
    assert!(campaign.handle_end(RelayIndex(1), Next::Nothing));
    assert_eq!(launches(&mut campaign), [2, 3], "consecutively");
    // The next turn of one of them waits until the other has ended.
    let again = Attempt::first(mbit(25.0), 12);
    assert!(!campaign.handle_end(RelayIndex(2), Next::Enlarged(again)));
    assert!(launches(&mut campaign).is_empty());
    assert!(!campaign.handle_end(RelayIndex(3), Next::Enlarged(Attempt::first(mbit(10.0), 12))));
    assert_eq!(launches(&mut campaign), [2, 3]);
    for relay in [2, 3, 4] {
        assert!(campaign.handle_end(RelayIndex(relay), Next::Nothing));
    }
    assert!(campaign.is_over() && campaign.machines.is_empty());
    assert_eq!(campaign.residuals(), [mbit(100.0)]);
}

/// If each were fast in a different round, their results would count the machine twice.
#[test]
fn the_result_of_an_earlier_round_counts_unless_the_relay_shares_a_machine() {
    let mut campaign = campaign(&[1000.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(30.0), 12);
    campaign.add_machine(&machine(&[(2, 20.0), (3, 20.0)]));
    let passed = |campaign: &mut Campaign| -> Vec<(usize, Rate)> {
        let all = core::iter::from_fn(|| campaign.poll_launch());
        all.map(|launch| (launch.relay.0, launch.turn.passed)).collect()
    };
    assert_eq!(passed(&mut campaign), [1, 2, 3].map(|relay| (relay, Rate::ZERO)));
    for relay in [1, 2, 3] {
        let next = Attempt { round: 2, passed: mbit(19.0), ..Attempt::first(mbit(20.0), 12) };
        assert!(!campaign.handle_end(RelayIndex(relay), Next::Enlarged(next)));
    }
    let mut again = passed(&mut campaign);
    again.sort_unstable();
    assert_eq!(again, [(1, mbit(19.0)), (2, Rate::ZERO), (3, Rate::ZERO)]);
}

/// Measured one after the other, each relay could use the whole machine.
#[test]
fn a_machine_that_needs_more_than_the_team_gets_all_of_it_divided_among_its_relays() {
    let mut campaign = campaign(&[60.0, 60.0]);
    campaign.add(RelayIndex(1), Priority::Known, mbit(1.0), 1);
    campaign.add_machine(&machine(&[(2, 100.0), (3, 50.0), (4, 50.0)]));
    let all: Vec<Launch> = core::iter::from_fn(|| campaign.poll_launch()).collect();
    let shares: Vec<_> =
        all.iter().map(|launch| (launch.relay.0, launch.allocation.total())).collect();
    assert_eq!(shares, [(2, mbit(60.0)), (3, mbit(30.0)), (4, mbit(30.0))]);
    // Another round could not have a larger load.
    assert!(all.iter().all(|launch| launch.is_whole_team));
    all.iter().for_each(|launch| assert!(campaign.handle_end(launch.relay, enlarged(launch))));
    assert_eq!(launches(&mut campaign), [1], "no capacity was left for others");
    assert!(campaign.handle_end(RelayIndex(1), Next::Nothing));
    assert!(campaign.is_over() && campaign.machines.is_empty());
}
