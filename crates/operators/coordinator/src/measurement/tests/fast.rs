//! Relays of 10, 25 and 40 Gbit/s, which no C tor reaches today: what a team needs, and what limits it.

use super::lab::quiet;
use super::*;
use crate::PathParams;

/// Gbit/s of a relay, and the smallest number of measurers of 10 Gbit/s that can measure it.
const RELAYS: [(f64, usize); 3] = [(10.0, 3), (25.0, 8), (40.0, 12)];

/// Mbit/s.
const MEASURER: f64 = 10_000.0;

/// Measures a relay of this capacity in virtual time. `per_socket` is the rate that the path lets each socket carry, in bytes
/// per second.
fn measured(
    gbit_s: f64,
    guess: f64,
    measurers: usize,
    params: Params,
    per_socket: Option<u64>,
    mode: Mode,
) -> Estimate {
    let mut measurement = measurement_with(params, mode, guess, &vec![MEASURER; measurers]);
    let mut lab = Lab { per_socket, ..relay(gbit_s * 1000.0) };
    estimate(lab.run(&mut measurement))
}

/// The result of each measurer is in whole bytes.
fn is_whole(estimate: &Estimate, gbit_s: f64) -> bool {
    (estimate.capacity.as_mbit_per_s() / (gbit_s * 1000.0) - 1.0).abs() < 1e-6
}

#[test]
fn a_team_measures_new_relays_of_up_to_40_gbit_s_in_at_most_8_rounds() {
    for (gbit_s, measurers) in RELAYS {
        for mode in [Mode::Transit, Mode::Echo] {
            // As for any new relay.
            let estimate = measured(gbit_s, 50.0, measurers, quiet(), None, mode);
            assert!(estimate.is_conclusive() && is_whole(&estimate, gbit_s), "{estimate}");
            assert!(estimate.rounds <= 8, "{estimate}");
        }
    }
}

#[test]
fn a_team_that_lacks_a_measurer_for_a_fast_relay_says_what_it_needs() {
    for (gbit_s, measurers) in RELAYS {
        let guess = gbit_s * 1000.0;
        let estimate = measured(gbit_s, guess, measurers - 1, quiet(), None, Mode::Transit);
        let Some(Inconclusive::TeamTooSmall { needed, available }) = estimate.inconclusive else {
            panic!("{estimate}");
        };
        assert!(needed > available, "{estimate}");
        let factor = needed.as_mbit_per_s() / guess;
        assert!((factor - quiet().excess_factor()).abs() < 1e-3, "{estimate}");
    }
}

/// Linux permits at least 2 MB in flight on each of 160 sockets: 2.56 Gbit in a round trip, thus 256, 102 and 64 ms. A path
/// that carries twice the capacity costs no round.
#[test]
fn beyond_the_round_trip_that_the_buffers_of_160_sockets_carry_the_path_is_the_limit() {
    let rtts_ms = [(125, 384), (50, 154), (31, 96)];
    for ((gbit_s, measurers), (near_ms, beyond_ms)) in RELAYS.into_iter().zip(rtts_ms) {
        let at = |rtt_ms: u64| {
            let (rtt, rate) = (Duration::from_millis(rtt_ms), mbit(gbit_s * 1000.0));
            let load = rate.scaled(quiet().excess_factor());
            let path = PathParams::at_distance(Mode::Transit, load, rtt, quiet().seconds);
            let params = Params { path, ..quiet() };
            let per_socket = Some(2_000_000 * 1000 / rtt_ms);
            measured(gbit_s, gbit_s * 1000.0, measurers, params, per_socket, Mode::Transit)
        };
        let near = at(near_ms);
        assert!(near.is_conclusive() && is_whole(&near, gbit_s) && near.rounds == 1, "{near}");
        let beyond = at(beyond_ms);
        let reason = beyond.inconclusive.as_ref();
        let Some(Inconclusive::PathLimited { sockets, next, .. }) = reason else {
            panic!("{beyond}");
        };
        assert_eq!((*sockets, *next), (160, None), "{beyond}");
        assert!(beyond.capacity < mbit(gbit_s * 1000.0), "{beyond}");
    }
}
