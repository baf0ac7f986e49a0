//! Limits for each client address: C tor's denial-of-service defences (`dos.c`), with the consensus parameters.
//!
//! The limits are per address, since addresses are what an attacker has few of. Listed relays are exempt, since
//! they carry many clients. Without the parameters nothing is limited, as in C tor.

use super::links::uniform_below;
use crate::flow::TokenBucket;
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv6Addr};
use rand_core::Rng;

/// Limits on circuit creation: `DoSCircuitCreation…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitLimit {
    /// `MinConnections`: an address with fewer links is exempt.
    pub links_min: u32,
    /// `Rate`: circuits per second, over all links of an address.
    pub per_s: u32,
    /// `Burst`.
    pub burst: u32,
    /// `DefenseTimePeriod`: after exceeding the limit, an address may create no circuits for this long, plus up
    /// to half of it at random.
    pub period: Duration,
}

/// Limits on links: `DoSConnection…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// `MaxConcurrentCount`: simultaneous links from an address.
    pub max: u32,
    /// `ConnectRate`: new links per second.
    pub per_s: u32,
    /// `ConnectBurst`.
    pub burst: u32,
}

/// Limits on the streams of one circuit: `DoSStreamCreation…`. Lookups count as streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimit {
    /// `Rate`: new streams per second.
    pub per_s: u32,
    /// `Burst`.
    pub burst: u32,
    /// `DefenseType` 3: closes a circuit that exceeds the limit. With 2, the stream is refused.
    pub closes_circuit: bool,
}

/// The consensus parameters `DoS…`. `None` disables a defence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DosParams {
    /// Circuit creation.
    pub circuits: Option<CircuitLimit>,
    /// Connections.
    pub links: Option<ConnectionLimit>,
    /// Stream creation.
    pub streams: Option<StreamLimit>,
}

/// The unit by which addresses are counted: one IPv4 address, or an IPv6 /64. In sorted order the members of a
/// larger network are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    is_v6: bool,
    bits: u64,
}

impl Place {
    /// The unit that contains this address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => Self { is_v6: false, bits: v4.to_bits().into() },
            IpAddr::V6(v6) => Self { is_v6: true, bits: network(v6) },
        }
    }

    /// The network of one customer around it: an IPv4 /24, an IPv6 /48.
    pub(super) const fn network(self) -> (bool, u64) {
        (self.is_v6, self.bits >> if self.is_v6 { 16 } else { 8 })
    }

    /// The network of one provider around it: an IPv4 /16, an IPv6 /32.
    pub(super) const fn provider(self) -> (bool, u64) {
        (self.is_v6, self.bits >> if self.is_v6 { 32 } else { 16 })
    }
}

fn network(ip: Ipv6Addr) -> u64 {
    u64::try_from(ip.to_bits() >> 64).unwrap_or(u64::MAX)
}

/// An address with links, or one that had links recently.
#[derive(Debug)]
struct Neighbour {
    links: u32,
    /// Circuits; one byte of the bucket is one circuit.
    circuits: Option<TokenBucket>,
    /// New links; one byte of the bucket is one link.
    connects: Option<TokenBucket>,
    /// It may create no circuits before this time.
    refused_until: Option<Instant>,
    seen_at: Instant,
}

/// The use of the relay by each client address.
#[derive(Debug, Default)]
pub(super) struct ClientAddresses {
    params: DosParams,
    by_place: BTreeMap<Place, Neighbour>,
    /// When addresses without links were last forgotten.
    kept_up_at: Instant,
}

/// An address without links is forgotten after this time, unless it is refused circuits.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// Above this number of known addresses, those without links are forgotten at the next check: an attacker has
/// many IPv6 /64 networks.
const KNOWN_MAX: usize = 1 << 16;

/// Minimum time between two checks above that number.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

impl ClientAddresses {
    /// The current parameters.
    pub(super) const fn params(&self) -> &DosParams {
        &self.params
    }

    /// Sets the parameters. If they have changed, all counts but those of links start anew.
    pub(super) fn set_dos_params(&mut self, params: DosParams) {
        if params == self.params {
            return;
        }
        self.params = params;
        for neighbour in self.by_place.values_mut() {
            (neighbour.circuits, neighbour.connects) = (None, None);
            neighbour.refused_until = None;
        }
    }

    /// Whether a connection from this address may become a link. `expected` links of measurers are additionally
    /// allowed, since they cannot be distinguished from others yet.
    pub(super) fn admit_connection(&mut self, now: Instant, from: IpAddr, expected: u32) -> bool {
        let Some(ConnectionLimit { max, per_s, burst }) = self.params.links else { return true };
        // Before TLS, new addresses cost an attacker nothing. Addresses that exceed the table are not counted.
        if self.by_place.len() >= KNOWN_MAX && !self.by_place.contains_key(&Place::of(from)) {
            if now - self.kept_up_at < LOOK_PAUSE {
                return true;
            }
            self.expire(now);
        }
        let neighbour = self.neighbour(now, from);
        let connects = neighbour.connects.get_or_insert_with(|| bucket(per_s, burst, now));
        if connects.available_bytes(now) == 0 && expected == 0 {
            return false;
        }
        connects.take(1);
        neighbour.links < max.saturating_add(expected)
    }

    /// An admitted connection has become a link. Returns false, and does not count it, if there are too many by
    /// now.
    pub(super) fn admit_link(&mut self, now: Instant, from: IpAddr, expected: u32) -> bool {
        let max = self.params.links.map_or(u32::MAX, |links| links.max.saturating_add(expected));
        let neighbour = self.neighbour(now, from);
        let is_one_more = neighbour.links < max;
        neighbour.links += u32::from(is_one_more);
        is_one_more
    }

    /// A counted link from this address has closed.
    pub(super) fn handle_closed(&mut self, from: IpAddr) {
        if let Some(neighbour) = self.by_place.get_mut(&Place::of(from)) {
            neighbour.links = neighbour.links.saturating_sub(1);
        }
    }

    /// Whether a link from this address may create a circuit.
    pub(super) fn admit_circuit(&mut self, now: Instant, from: IpAddr, rng: &mut impl Rng) -> bool {
        let Some(CircuitLimit { links_min, per_s, burst, period }) = self.params.circuits else {
            return true;
        };
        let neighbour = self.neighbour(now, from);
        if neighbour.refused_until.is_some_and(|until| now < until) {
            return false;
        }
        let circuits = neighbour.circuits.get_or_insert_with(|| bucket(per_s, burst, now));
        if circuits.available_bytes(now) > 0 {
            circuits.take(1);
            return true;
        }
        if neighbour.links < links_min {
            return true;
        }
        let half_s = u32::try_from(period.as_secs() / 2).unwrap_or(u32::MAX);
        let more = Duration::from_secs(uniform_below(rng, half_s.max(1)).into());
        neighbour.refused_until = Some(now + period + more);
        false
    }

    /// Forgets addresses that have been gone for long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.kept_up_at = now;
        let are_too_many = self.by_place.len() >= KNOWN_MAX;
        self.by_place.retain(|_, neighbour| {
            neighbour.links > 0
                || neighbour.refused_until.is_some_and(|until| now < until)
                || !are_too_many && now - neighbour.seen_at < FORGOTTEN
        });
    }

    fn neighbour(&mut self, now: Instant, from: IpAddr) -> &mut Neighbour {
        let new = || Neighbour {
            links: 0,
            circuits: None,
            connects: None,
            refused_until: None,
            seen_at: now,
        };
        let neighbour = self.by_place.entry(Place::of(from)).or_insert_with(new);
        neighbour.seen_at = now;
        neighbour
    }
}

/// A bucket in which one byte is one counted event.
pub(super) fn bucket(per_s: u32, burst: u32, now: Instant) -> TokenBucket {
    TokenBucket::new(Rate::from_byte_per_s(per_s.into()), Duration::ZERO, burst.max(1).into(), now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    /// As in the live consensus.
    const LIVE: DosParams = DosParams {
        circuits: Some(CircuitLimit {
            links_min: 2,
            per_s: 2,
            burst: 60,
            period: Duration::from_secs(3600),
        }),
        links: Some(ConnectionLimit { max: 50, per_s: 20, burst: 40 }),
        streams: None,
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn addresses(params: DosParams) -> ClientAddresses {
        let mut addresses = ClientAddresses::default();
        addresses.set_dos_params(params);
        addresses
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_address_table_is_bounded_before_tls() {
        let mut addresses = addresses(LIVE);
        assert!(addresses.admit_link(at(1), ip("192.0.2.1"), 0));
        for number in 0..2 * u32::try_from(KNOWN_MAX).expect("few") {
            let from = core::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
            assert!(
                addresses.admit_connection(at(2), from.into(), 0),
                "other addresses do not cause a refusal"
            );
            assert!(addresses.by_place.len() <= KNOWN_MAX);
        }
        // Addresses with links are remembered, and new ones if there is room.
        assert_eq!(addresses.by_place[&Place::of(ip("192.0.2.1"))].links, 1);
        let flooder = ip("198.51.100.7");
        assert!((0..40).all(|_| addresses.admit_connection(at(4), flooder, 0)));
        assert!(!addresses.admit_connection(at(4), flooder, 0));
        assert!(addresses.by_place.len() < 10);
    }

    fn circuits(addresses: &mut ClientAddresses, now: Instant, from: IpAddr, asked: u32) -> usize {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        (0..asked).filter(|_| addresses.admit_circuit(now, from, rng)).count()
    }

    fn admit(addresses: &mut ClientAddresses, now: Instant, from: IpAddr, expected: u32) -> bool {
        addresses.admit_connection(now, from, expected) && addresses.admit_link(now, from, expected)
    }

    #[test]
    fn excess_circuits_block_only_their_address_for_an_hour() {
        let (attacker, honest) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let mut addresses = addresses(LIVE);
        for from in [attacker, attacker, honest, honest] {
            assert!(admit(&mut addresses, at(0), from, 0));
        }
        assert_eq!(circuits(&mut addresses, at(0), attacker, 10_000), 60);
        assert_eq!(circuits(&mut addresses, at(3_500), attacker, 1), 0);
        assert_eq!(circuits(&mut addresses, at(0), honest, 50), 50);
        assert_eq!(
            circuits(&mut addresses, at(5_400), attacker, 1),
            1,
            "refused for at most an hour and a half"
        );
        // At two per second, no circuit is refused.
        for second in 1..1000 {
            assert_eq!(circuits(&mut addresses, at(second), honest, 2), 2);
        }
    }

    #[test]
    fn an_address_with_one_link_is_exempt() {
        let from = ip("192.0.2.1");
        let mut addresses = addresses(LIVE);
        assert!(admit(&mut addresses, at(0), from, 0));
        assert_eq!(circuits(&mut addresses, at(0), from, 500), 500);
        assert!(admit(&mut addresses, at(0), from, 0));
        assert_eq!(circuits(&mut addresses, at(0), from, 500), 0);
    }

    #[test]
    fn links_of_an_address_have_a_maximum_and_a_rate() {
        let mut addresses = addresses(LIVE);
        // Networks of 64 bits are one address.
        let from = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]);
        let count = |addresses: &mut ClientAddresses, now, asked: u16| {
            (0..asked).filter(|host| admit(addresses, now, from(*host), 0)).count()
        };
        assert_eq!(count(&mut addresses, at(0), 100), 40, "at once");
        assert_eq!(count(&mut addresses, at(10), 100), 10, "50 in all");
        assert!(admit(&mut addresses, at(10), ip("2001:db8:0:2::1"), 0), "another network");
        (0..30).for_each(|host| addresses.handle_closed(from(host)));
        assert_eq!(count(&mut addresses, at(20), 100), 30);
        // Measurers are expected.
        let measurers =
            (0..500).filter(|host| admit(&mut addresses, at(20), from(*host), 160)).count();
        assert_eq!(measurers, 160);
        (0..160).for_each(|host| addresses.handle_closed(from(host)));
        // An address without links is forgotten, unless it is refused.
        (0..50).for_each(|host| addresses.handle_closed(from(host)));
        addresses.handle_closed(ip("2001:db8:0:2::1"));
        addresses.expire(at(700));
        assert!(addresses.by_place.is_empty());
    }

    #[test]
    fn connections_that_never_become_links_are_only_rate_limited() {
        let (mut addresses, from) = (addresses(LIVE), ip("192.0.2.1"));
        let come = |addresses: &mut ClientAddresses, now| {
            (0..1000).filter(|_| addresses.admit_connection(now, from, 0)).count()
        };
        assert_eq!(
            (
                come(&mut addresses, at(0)),
                come(&mut addresses, at(1)),
                come(&mut addresses, at(60))
            ),
            (40, 20, 40)
        );
        assert!(addresses.admit_link(at(60), from, 0), "one of the admitted connections");
    }

    #[test]
    fn addresses_without_links_are_soon_forgotten() {
        let mut addresses = addresses(LIVE);
        for number in 0..=KNOWN_MAX as u128 {
            let from = IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | (number << 64)));
            assert!(admit(&mut addresses, at(0), from, 0));
            addresses.handle_closed(from);
        }
        let honest = ip("192.0.2.1");
        assert!(admit(&mut addresses, at(0), honest, 0));
        addresses.expire(at(1));
        assert_eq!(addresses.by_place.len(), 1, "an address with a link is remembered");
    }

    #[test]
    fn without_parameters_nothing_is_limited() {
        let from = ip("192.0.2.1");
        let mut addresses = addresses(DosParams::default());
        assert!((0..1000).all(|_| admit(&mut addresses, at(0), from, 0)));
        assert_eq!(circuits(&mut addresses, at(0), from, 1000), 1000);
    }
}
