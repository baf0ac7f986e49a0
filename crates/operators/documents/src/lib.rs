//! Documents of a network: consensuses and server descriptors, from files, standard input or authorities, and the lines
//! of measurements in a bandwidth file.

pub mod countries;
mod descriptors;
mod error;
pub mod families;
mod files;
pub mod gate;
mod places;
pub mod policy;
mod source;
mod votes;

pub use descriptors::Origin;
pub use error::Error;
pub use files::{consensus, newest, no_weights, read, read_raw, validity_problem};
pub use places::{Place, UnreadPlace, read_places};
pub use source::Source;
pub use votes::{Vote, votes};

use coordinator::{Mode, Params, PastEstimate, Record};
use netdoc::Nickname;
use netdoc::bwfile::{self, RelayLine};
use netdoc::consensus::{Consensus, Router};
use onion::Rate;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use std::collections::BTreeMap;

/// A consensus, and the data of its descriptors.
pub struct Documents {
    /// A description of the consensus.
    pub what: String,
    /// The consensus.
    pub consensus: Consensus,
    /// Authorities whose signatures were verified, if any had to be.
    pub signers: Option<u32>,
    /// Relays of one operator, in pairs: each names the other in its descriptor, or both prove that they belong to one
    /// family.
    pub families: Vec<(RsaId, RsaId)>,
    /// The bandwidths in the descriptor of each relay.
    bandwidths: BTreeMap<RsaId, Bandwidths>,
    /// The Ed25519 identity in the descriptor of each relay. A consensus has none.
    ed25519: BTreeMap<RsaId, Ed25519Id>,
    /// The `ContactInfo` in the descriptor of each relay; empty if it has none.
    contacts: BTreeMap<RsaId, String>,
}

/// The bandwidths in a server descriptor, in bytes per second.
#[derive(Clone, Copy)]
struct Bandwidths {
    /// The relay's rate limit.
    avg_bytes_s: u64,
    /// What it claims to have carried.
    observed_bytes_s: u64,
}

/// FlashFlow's keys in the lines of a bandwidth file.
const MODE: &str = "flashflow_mode";
/// Whether an estimate has an upper bound: `1`, or `0` for a lower bound.
pub const CONCLUSIVE: &str = "flashflow_conclusive";
const CAPACITY: &str = "flashflow_capacity_bytes_s";
const WITH_CLIENTS: &str = "flashflow_with_clients_bytes_s";
const SOCKETS: &str = "flashflow_next_sockets";
/// Why an estimate is a lower bound, by the name of the reason.
pub const CAUSE: &str = "flashflow_cause";

impl Documents {
    /// Parses a consensus, and takes rate limits and families that are valid at this time from its descriptors.
    ///
    /// # Errors
    /// If the consensus cannot be parsed, or the descriptors are not available.
    pub fn new(
        what: String,
        consensus: &[u8],
        origin: Origin<'_>,
        now_unix_s: u64,
    ) -> Result<Self, Error> {
        let parsed = Consensus::parse(consensus);
        let consensus = parsed.map_err(|source| Error::Consensus { what: what.clone(), source })?;
        let text = origin.get(&consensus)?;
        let named = descriptors::named(&consensus, &text);
        if !matches!(origin, Origin::Nowhere) {
            descriptors::check(&what, &consensus, named.len())?;
        }
        let bandwidths = |descriptor: &netdoc::ServerDescriptor<'_>| Bandwidths {
            avg_bytes_s: descriptor.bandwidth_avg_bytes_s,
            observed_bytes_s: descriptor.bandwidth_observed_bytes_s,
        };
        let bandwidths =
            named.iter().map(|(relay, descriptor)| (*relay, bandwidths(descriptor))).collect();
        let ed25519 = named
            .iter()
            .filter_map(|(relay, descriptor)| Some((*relay, descriptor.ed25519?)))
            .collect();
        let contact = |descriptor: &netdoc::ServerDescriptor<'_>| {
            descriptor.contact().map(|contact| contact.into_owned())
        };
        let contacts = named
            .iter()
            .map(|(relay, descriptor)| (*relay, contact(descriptor).unwrap_or_default()))
            .collect();
        let families = families::pairs(named.values(), now_unix_s);
        Ok(Self { what, consensus, signers: None, families, bandwidths, ed25519, contacts })
    }

    /// The `ContactInfo` of a relay, empty if it has none; `None` without its descriptor.
    #[must_use]
    pub fn contact(&self, relay: &RsaId) -> Option<&str> {
        self.contacts.get(relay).map(String::as_str)
    }

    /// The identities of a relay of the consensus. Its Ed25519 identity is in its descriptor, whose digest the consensus has.
    #[must_use]
    pub fn ids(&self, router: &Router) -> RelayIds {
        let ed25519 = router.ed25519.or_else(|| self.ed25519.get(&router.fingerprint).copied());
        RelayIds { rsa: router.fingerprint, ed25519 }
    }

    /// Sets the number of authorities whose signatures were verified.
    #[must_use]
    pub fn signed_by(self, signers: Option<u32>) -> Self {
        Self { signers, ..self }
    }

    /// A measurement's entry in the bandwidth file. Even a lower bound is more accurate than the relay's own claim.
    ///
    /// # Errors
    /// The record's nickname is invalid.
    pub fn entry(&self, record: &Record) -> Result<bwfile::Estimate, Error> {
        let (ids, nickname) = (&record.relay.ids, nickname(&record.relay.nickname)?);
        Ok(match PastEstimate::of(record) {
            Some(estimate) => self.entry_of(ids, nickname, &estimate),
            None => {
                let (reason, tried) = (record.to_string(), Some(record.ended_unix_s));
                failed(ids, nickname, reason, Some(record.mode), tried)
            }
        })
    }

    /// The line of an estimate of this or an earlier period.
    ///
    /// The weight of a lower bound in transit includes what the relay claims to have carried besides
    /// ([`PastEstimate::with_clients`]).
    #[must_use]
    pub fn entry_of(
        &self,
        ids: &RelayIds,
        nickname: Nickname,
        estimate: &PastEstimate,
    ) -> bwfile::Estimate {
        let RelayIds { rsa: fingerprint, ed25519 } = *ids;
        let capacity = estimate.capacity.as_byte_per_s();
        let bandwidths = self.bandwidths.get(&fingerprint);
        let with_clients = bandwidths.and_then(|Bandwidths { avg_bytes_s, observed_bytes_s }| {
            let advertised = Rate::from_byte_per_s(*avg_bytes_s.min(observed_bytes_s));
            estimate.with_clients(advertised, &Params::default()).map(Rate::as_byte_per_s)
        });
        let outcome = bwfile::Outcome::Measured {
            capacity_bytes_s: with_clients.unwrap_or(capacity),
            measured_at: estimate.measured_unix_s,
            descriptor_avg_bytes_s: bandwidths.map(|bandwidth| bandwidth.avg_bytes_s),
        };
        let mode = estimate.mode.map(|mode| (MODE, name(mode).to_owned()));
        let is_conclusive = estimate.is_conclusive;
        let conclusive =
            is_conclusive.map(|is_conclusive| (CONCLUSIVE, u8::from(is_conclusive).to_string()));
        let sockets = estimate.sockets.map(|sockets| (SOCKETS, sockets.to_string()));
        let with_clients = with_clients.map(|rate| (WITH_CLIENTS, rate.to_string()));
        let capacity = Some((CAPACITY, capacity.to_string()));
        let extra = [mode, conclusive, capacity, with_clients, sockets];
        let extra =
            extra.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect();
        bwfile::Estimate { fingerprint, ed25519, nickname, outcome, extra }
    }
}

/// The entry of a relay without an estimate, with the time of the attempt, if any, in Unix seconds.
pub fn failed(
    ids: &RelayIds,
    nickname: Nickname,
    reason: String,
    mode: Option<Mode>,
    tried_at: Option<u64>,
) -> bwfile::Estimate {
    let RelayIds { rsa: fingerprint, ed25519 } = *ids;
    let outcome = bwfile::Outcome::Failed { reason, tried_at };
    let extra = mode.map(|mode| (MODE.to_owned(), name(mode).to_owned()));
    bwfile::Estimate { fingerprint, ed25519, nickname, outcome, extra: extra.into_iter().collect() }
}

/// The estimate in a line of an earlier bandwidth file, if the relay was measured.
#[must_use]
pub fn estimate_in(line: &RelayLine) -> Option<PastEstimate> {
    // The weight is bounded by the operator's limit. Files of older versions have no capacity.
    let weight = line.bw_kb_s.saturating_mul(1000);
    let capacity = line.extra(CAPACITY).and_then(|value| value.parse().ok()).unwrap_or(weight);
    let modes = [Mode::Transit, Mode::Echo];
    (!line.unmeasured).then_some(PastEstimate {
        capacity: Rate::from_byte_per_s(capacity),
        measured_unix_s: line.time?,
        mode: modes.into_iter().find(|mode| line.extra(MODE) == Some(name(*mode))),
        is_conclusive: line.extra(CONCLUSIVE).map(|value| value == "1"),
        sockets: line.extra(SOCKETS).and_then(|value| value.parse().ok()),
    })
}

/// The identities of the relay of a line.
#[must_use]
pub fn identities(line: &RelayLine) -> RelayIds {
    RelayIds { rsa: line.node_id, ed25519: line.master_key_ed25519 }
}

/// Parses a nickname.
///
/// # Errors
/// If it is invalid.
pub fn nickname(text: &str) -> Result<Nickname, Error> {
    text.parse().map_err(|_| Error::Unusable(format!("{text} is not a nickname")))
}

const fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Transit => "transit",
        Mode::Echo => "echo",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::{End, Failure, Inconclusive, ProcessorTime, Subject};
    use netdoc::bwfile::{BandwidthFile, Eligibility, NodeIdStyle, Settings};
    use onion::Duration;

    const NOW: u64 = 1_800_000_000;
    const IDS: RelayIds = RelayIds { rsa: RsaId([7; 20]), ed25519: None };

    /// The documents of a network with this limit of the relay.
    fn documents(limit_bytes_s: Option<u64>) -> Documents {
        let consensus = include_bytes!("../../../engine/netdoc/tests/data/consensus-ns");
        let mut documents =
            Documents::new("it".to_owned(), consensus, Origin::Nowhere, NOW).expect("a consensus");
        let bandwidths = |avg_bytes_s| Bandwidths { avg_bytes_s, observed_bytes_s: 5_000_000 };
        documents.bandwidths.extend(limit_bytes_s.map(|limit| (IDS.rsa, bandwidths(limit))));
        documents
    }

    fn record(end: End) -> Record {
        Record {
            relay: Subject {
                nickname: "quiet".to_owned(),
                ids: IDS,
                address: ([127, 0, 0, 1], 9001).into(),
                limit: None,
            },
            ended_unix_s: NOW - 3600,
            mode: Mode::Echo,
            params: Params::default(),
            rounds: Vec::new(),
            processor: None,
            shared: None,
            end,
        }
    }

    const fn measured(bytes_s: u64, inconclusive: Option<Inconclusive>) -> End {
        End::Measured { capacity: Rate::from_byte_per_s(bytes_s), round: 1, inconclusive }
    }

    /// The line of an entry, written and read again.
    fn line(entry: bwfile::Estimate) -> RelayLine {
        let counts = Eligibility { eligible: 1, in_consensus: 1 };
        // A file needs at least one other result.
        let other = RelayIds { rsa: RsaId([8; 20]), ..IDS };
        let other = Documents::entry_of(
            &documents(None),
            &other,
            nickname("other").expect("a nickname"),
            &PastEstimate::of(&record(measured(1, None))).expect("an estimate"),
        );
        let settings = Settings::new("0", NOW, NOW);
        let file = BandwidthFile::generate(&[entry, other], counts, &settings).expect("a result");
        let text = file.to_text(NodeIdStyle::default()).expect("a valid file");
        let parsed = BandwidthFile::parse(text.as_bytes()).expect("what we wrote");
        parsed.file.relays.into_iter().next().expect("a line")
    }

    #[test]
    fn a_weight_is_limited_by_the_operator_and_the_line_keeps_the_capacity() {
        let record = record(measured(5_000_000, None));
        for (limit, weight) in [(None, 5000), (Some(2_000_000), 2000)] {
            let line = line(documents(limit).entry(&record).expect("an entry"));
            assert_eq!(line.bw_kb_s, weight);
            assert_eq!(estimate_in(&line), PastEstimate::of(&record), "for the next period");
        }
    }

    #[test]
    fn the_weight_of_a_lower_bound_in_transit_includes_what_the_relay_claims_of_its_clients() {
        let bound = measured(4_500_000, Some(Inconclusive::ClientsUnknown));
        let record = Record { mode: Mode::Transit, ..record(bound) };
        for (limit, weight) in [(None, 4500), (Some(9_000_000), 5000), (Some(4_800_000), 4800)] {
            let line = line(documents(limit).entry(&record).expect("an entry"));
            assert_eq!(line.bw_kb_s, weight);
            assert_eq!(estimate_in(&line), PastEstimate::of(&record), "for the next period");
            let expected = limit.map(|_| (weight * 1000).to_string());
            assert_eq!(line.extra(WITH_CLIENTS), expected.as_deref());
        }
    }

    #[test]
    fn the_number_of_sockets_for_the_next_period_is_kept() {
        let estimate = PastEstimate::of(&record(measured(5_000_000, None))).expect("an estimate");
        let estimate = PastEstimate { sockets: Some(64), ..estimate };
        let entry = documents(None).entry_of(&IDS, nickname("relay").expect("one"), &estimate);
        assert_eq!(estimate_in(&line(entry)), Some(estimate));
    }

    #[test]
    fn a_doubt_about_a_record_is_in_its_line() {
        let times = (Duration::from_secs(1), Duration::from_secs(2));
        let processor = ProcessorTime::within(times.0, times.1).expect("time passed");
        let doubts = [None, Some(Inconclusive::RelayStarved { processor })];
        for (doubt, value) in doubts.into_iter().zip(["1", "0"]) {
            let line = line(documents(None).entry(&record(measured(9_000, doubt))).expect("one"));
            let expected = [(MODE, "echo"), (CONCLUSIVE, value), (CAPACITY, "9000")];
            let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
            assert_eq!((line.bw_kb_s, line.extra), (9, expected.to_vec()));
        }
    }

    #[test]
    fn a_failure_has_a_reason_and_no_estimate() {
        let reason = Failure::RelayClosed { detail: "bye".to_owned() };
        let end = End::Failed { reason, measurer: None, round: 1, second: None };
        let line = line(documents(None).entry(&record(end)).expect("an entry"));
        assert!(line.unmeasured && estimate_in(&line).is_none());
        let reason = "failed_in_round_1:_the_relay_closed_the_connection:_bye";
        assert!(line.extra.contains(&("error".to_owned(), reason.to_owned())), "{line:?}");
    }

    #[test]
    fn a_line_of_an_older_version_is_read_by_its_weight() {
        let line = RelayLine { time: Some(NOW), ..RelayLine::new(IDS.rsa, 12) };
        let estimate = estimate_in(&line).expect("measured");
        assert_eq!(estimate.capacity, Rate::from_byte_per_s(12_000));
        assert_eq!((estimate.mode, estimate.is_conclusive), (None, None));
    }
}
