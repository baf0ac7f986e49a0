//! The requirements of a relay's distance: sockets, a lead, and two halves.

use crate::measurer_path::MeasurerPath;
use crate::mode::Mode;
use crate::params::PathParams;
use crate::socket_ramp::FAR;
use onion::{Duration, Rate};

/// With fewer sockets the loss of one would matter too much.
const SOCKETS_MIN: u32 = 8;

/// *s* of the paper, which is always enough (E.1).
const SOCKETS_MAX: u32 = 160;

/// The bytes in flight on one socket that the kernels' buffers always permit: Linux lets them grow to 4 and 6 MB.
const SOCKET_BUFFER_BYTES: u64 = 2_000_000;

/// The bytes that Reno keeps in flight on one socket at a loss of one packet in a thousand: 1.22/√*p* = 38.6 segments
/// of 1448 bytes (Mathis et al., 1997). Cubic keeps at least as many; BBR ignores the loss.
const SOCKET_IN_FLIGHT_BYTES: u64 = 55_900;

/// The number of round trips in which TCP's congestion window, the relay's receive window and our circuit windows grow
/// from their initial values to those of any path.
const SLOW_START_ROUNDS: u32 = 10;

/// Longest lead: participating relays allow 45 s from the order to the end.
pub(crate) const LEAD_MAX_S: u32 = 6;

/// A shorter round has no halves to compare, and no seconds with few circuits.
const PROBED_SECONDS_MIN: u32 = 8;

/// Seconds with few circuits. The first is that of the burst of a rate-limited relay, and the others are compared.
const FEW_CIRCUITS_S: u32 = 3;

impl PathParams {
    /// The requirements of the path to a relay, to load it with up to `rate` for `seconds` where the round trip is
    /// `rtt`.
    ///
    /// In transit, the minimum number of sockets that carry `rate` without loss: C tor with a limit of 90 Mbit/s
    /// forwarded 4 to 20 % less over 40 to 160 sockets than over 8. If the path limits them, the next round has more.
    /// The number of sockets does not slow a participating relay down, but it allows few rounds. So it gets enough to
    /// carry `rate` at a loss of one packet in a thousand. For long paths there is time for slow start, and a second
    /// half that shows whether that was enough.
    ///
    /// In transit, a relay that is near is first loaded with few circuits: what all of them add shows whether other
    /// circuits compete. For long paths the halves show that, since half of the sockets have half of the circuits. A
    /// participating relay guarantees the measurement its share.
    #[must_use]
    pub fn at_distance(mode: Mode, rate: Rate, rtt: Duration, seconds: u32) -> Self {
        let per_socket = match mode {
            Mode::Transit => SOCKET_BUFFER_BYTES,
            Mode::Echo => SOCKET_IN_FLIGHT_BYTES,
        };
        let flows = rate.bytes_in(rtt).div_ceil(per_socket);
        let first_sockets =
            u32::try_from(flows).unwrap_or(u32::MAX).clamp(SOCKETS_MIN, SOCKETS_MAX);
        if rtt < FAR {
            let is_compared = mode == Mode::Transit && seconds >= PROBED_SECONDS_MIN;
            let few_circuits_s = if is_compared { FEW_CIRCUITS_S } else { 0 };
            return Self { first_sockets, lead_s: few_circuits_s, probes: false, few_circuits_s };
        }
        let slow_start = u32::try_from((rtt * SLOW_START_ROUNDS).as_secs()).unwrap_or(u32::MAX);
        let lead_s = slow_start.min(LEAD_MAX_S - 2) + 2;
        Self { first_sockets, lead_s, probes: seconds >= PROBED_SECONDS_MIN, few_circuits_s: 0 }
    }
}

impl MeasurerPath {
    /// The round trip to a relay: the longest of its measurers', if all have reported; otherwise the longer of that and
    /// the coordinator's (`own`).
    #[must_use]
    pub fn distance(own: Duration, vantages: &[Self]) -> Duration {
        let rtts = || vantages.iter().map(|vantage| vantage.path.rtt);
        let farthest = rtts().flatten().max();
        match farthest {
            Some(farthest) if rtts().all(|rtt| rtt.is_some()) => farthest,
            _ => farthest.unwrap_or_default().max(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurer_path::PathSeen;
    use std::vec::Vec;

    const FAR_AWAY: Duration = Duration::from_millis(200);

    #[test]
    fn a_near_relay_gets_few_sockets_and_a_distant_one_enough_for_a_lossy_path() {
        let rate = Rate::from_mbit_per_s(3000.0);
        let near = PathParams::at_distance(Mode::Transit, rate, Duration::from_micros(80), 30);
        assert_eq!(
            near,
            PathParams { first_sockets: SOCKETS_MIN, lead_s: 3, probes: false, few_circuits_s: 3 }
        );
        let near = PathParams::at_distance(Mode::Echo, rate, Duration::from_micros(80), 30);
        assert_eq!(
            (near.lead_s, near.few_circuits_s),
            (0, 0),
            "it guarantees the measurement its share"
        );
        let short = PathParams::at_distance(Mode::Transit, rate, Duration::from_micros(80), 5);
        assert_eq!((short.lead_s, short.few_circuits_s), (0, 0));
        let fast = PathParams::at_distance(Mode::Echo, rate, FAR_AWAY, 30);
        assert_eq!(fast.first_sockets, SOCKETS_MAX);
        let rate = |mbit| Rate::from_mbit_per_s(mbit * 2.95);
        let path = PathParams::at_distance(Mode::Echo, rate(90.0), FAR_AWAY, 30);
        assert_eq!(
            path,
            PathParams { first_sockets: 119, lead_s: 4, probes: true, few_circuits_s: 0 }
        );
        // Each socket slows C tor down, and it may be measured again.
        for (mbit, first_sockets) in [(90.0, SOCKETS_MIN), (1000.0, 37)] {
            let path = PathParams::at_distance(Mode::Transit, rate(mbit), FAR_AWAY, 30);
            assert_eq!(
                path,
                PathParams { first_sockets, lead_s: 4, probes: true, few_circuits_s: 0 }
            );
        }
        let short = PathParams::at_distance(Mode::Echo, rate(10.0), FAR_AWAY, 5);
        assert_eq!(
            short,
            PathParams { first_sockets: 14, lead_s: 4, probes: false, few_circuits_s: 0 }
        );
    }

    /// Reno's steady state with one loss in a thousand packets, for each of half of the sockets.
    #[test]
    fn half_of_the_sockets_carry_the_guess_over_a_lossy_path() {
        for (mbit, rtt_ms) in [(10.0, 300), (90.0, 100), (90.0, 200), (250.0, 100)] {
            let rtt = Duration::from_millis(rtt_ms);
            let rate = Rate::from_mbit_per_s(mbit * 2.95);
            let path = PathParams::at_distance(Mode::Echo, rate, rtt, 30);
            let per_socket = 1448.0 * 8.0 * 1.22 / (rtt.as_secs_f64() * 0.001f64.sqrt());
            let half = f64::from(path.first_sockets / 2) * per_socket;
            assert!(half > 1.2 * mbit * 1e6, "{half} of {mbit} Mbit/s at {rtt_ms} ms");
        }
    }

    #[test]
    fn the_most_distant_measurer_determines_the_distance() {
        let ms = Duration::from_millis;
        let seen = |rtts_ms: &[Option<u64>]| {
            let vantage = |rtt_ms: &Option<u64>| MeasurerPath {
                path: PathSeen { rtt: rtt_ms.map(ms), ..PathSeen::default() },
                ..MeasurerPath::default()
            };
            let vantages: Vec<MeasurerPath> = rtts_ms.iter().map(vantage).collect();
            MeasurerPath::distance(ms(50), &vantages)
        };
        assert_eq!(seen(&[None, None]), ms(50), "no measurer has reported");
        assert_eq!(seen(&[Some(1), Some(200)]), ms(200));
        assert_eq!(seen(&[Some(1), Some(2)]), ms(2), "nearer than the coordinator");
        assert_eq!(seen(&[Some(1), None]), ms(50), "the other may be as far as the coordinator");
        assert_eq!(seen(&[Some(200), None]), ms(200));
    }
}
