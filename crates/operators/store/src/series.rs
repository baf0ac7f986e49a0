//! The seconds of a measurement, in a compact form that is kept for years.

use coordinator::{Inconclusive, Record, Waited, doubt_of_seconds};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};

/// One second of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Second {
    /// The round, from one on.
    pub round: u32,
    /// The second, from zero on.
    pub second: u32,
    /// *zⱼ*: bytes counted in all.
    pub bytes: u64,
    /// The part of them that was client traffic.
    pub client_bytes: u64,
    /// Whether it counts for the estimate; false for the lead.
    pub counts: bool,
    /// What limited it.
    pub limiter: Limiter,
}

/// What limited a second ([`SecondRecord::waited`](coordinator::SecondRecord::waited)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limiter {
    /// There is no account.
    Unknown,
    /// The relay, or the return path.
    Relay,
    /// The path to the relay.
    Path,
    /// The measurer's processor.
    Processor,
    /// The assigned rate.
    AssignedRate,
}

/// No data of a store is larger than this when inflated.
const INFLATED_MAX: u64 = 256 << 20;

/// The stored form: round, second, bytes, client bytes, whether it counts, limiter.
#[derive(Serialize, Deserialize)]
struct Stored(u32, u32, u64, u64, u8, u8);

impl Limiter {
    const ALL: [Self; 5] =
        [Self::Unknown, Self::Relay, Self::Path, Self::Processor, Self::AssignedRate];

    /// The name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Relay => "relay",
            Self::Path => "path",
            Self::Processor => "processor",
            Self::AssignedRate => "assigned_rate",
        }
    }

    /// The name for people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Relay => Waited::Relay.in_words(),
            Self::Path => Waited::Path.in_words(),
            Self::Processor => Waited::Processor.in_words(),
            Self::AssignedRate => Waited::AssignedRate.in_words(),
        }
    }

    const fn from_waited(waited: Option<Waited>) -> Self {
        match waited {
            None => Self::Unknown,
            Some(Waited::Relay) => Self::Relay,
            Some(Waited::Path) => Self::Path,
            Some(Waited::Processor) => Self::Processor,
            Some(Waited::AssignedRate) => Self::AssignedRate,
        }
    }

    /// The place where most cells waited, if known.
    pub(crate) const fn waited(self) -> Option<Waited> {
        match self {
            Self::Unknown => None,
            Self::Relay => Some(Waited::Relay),
            Self::Path => Some(Waited::Path),
            Self::Processor => Some(Waited::Processor),
            Self::AssignedRate => Some(Waited::AssignedRate),
        }
    }

    fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|limiter| *limiter == self).unwrap_or_default();
        u8::try_from(place).unwrap_or_default()
    }

    /// The code of a later version is unknown.
    fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }
}

/// All seconds of a record for which all reports have arrived.
pub(crate) fn of(record: &Record) -> Vec<Second> {
    let mut seconds = Vec::new();
    for round in &record.rounds {
        let assignments = &round.allocation.assignments;
        for second in &round.seconds {
            let ratio = record.params.ratio;
            let Some(totals) = second.totals(record.mode, ratio, assignments) else { continue };
            seconds.push(Second {
                round: round.number,
                second: totals.second,
                bytes: totals.total(),
                client_bytes: totals.client_counted,
                counts: round.schedule.counts(totals.second),
                limiter: Limiter::from_waited(second.waited(assignments, &round.bottlenecks)),
            });
        }
    }
    seconds
}

/// Why the counted seconds of the last round contradict a conclusive result, if they do.
pub(crate) fn doubt(seconds: &[Second]) -> Option<Inconclusive> {
    let last = seconds.iter().map(|second| second.round).max()?;
    let counted = seconds.iter().filter(|second| second.counts && second.round == last);
    let counted: Vec<_> = counted.map(|second| (second.bytes, second.limiter.waited())).collect();
    doubt_of_seconds(&counted)
}

pub(crate) fn pack(seconds: &[Second]) -> Vec<u8> {
    let stored = seconds.iter().map(|second| {
        let counts = u8::from(second.counts);
        Stored(
            second.round,
            second.second,
            second.bytes,
            second.client_bytes,
            counts,
            second.limiter.code(),
        )
    });
    deflate(&stored.collect::<Vec<_>>())
}

pub(crate) fn unpack(bytes: &[u8]) -> io::Result<Vec<Second>> {
    let stored: Vec<Stored> = inflate(bytes)?;
    let second = |Stored(round, second, bytes, client_bytes, counts, limiter)| Second {
        round,
        second,
        bytes,
        client_bytes,
        counts: counts != 0,
        limiter: Limiter::from_code(limiter),
    };
    Ok(stored.into_iter().map(second).collect())
}

/// Serialises as deflated JSON.
pub(crate) fn deflate<T: Serialize>(value: &T) -> Vec<u8> {
    let json = serde_json::to_vec(value).expect("these types have only text as keys");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(&json).and_then(|()| encoder.finish());
    written.expect("a vector accepts all writes")
}

pub(crate) fn inflate<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let mut json = Vec::new();
    ZlibDecoder::new(bytes).take(INFLATED_MAX).read_to_end(&mut json)?;
    serde_json::from_slice(&json).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds() -> impl Strategy<Value = Vec<Second>> {
        let one = (1..9u32, 0..700u32, any::<u64>(), any::<u64>(), any::<bool>(), 0..5u8);
        let one = one.prop_map(|(round, second, bytes, client_bytes, counts, limiter)| Second {
            round,
            second,
            bytes,
            client_bytes,
            counts,
            limiter: Limiter::from_code(limiter),
        });
        proptest::collection::vec(one, 0..100)
    }

    proptest! {
        #[test]
        fn seconds_survive_packing(seconds in seconds()) {
            prop_assert_eq!(unpack(&pack(&seconds)).expect("ours"), seconds);
        }

        #[test]
        fn no_bytes_make_unpacking_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack(&bytes);
        }
    }

    #[test]
    fn truncated_data_is_an_error() {
        let second = Second {
            round: 1,
            second: 0,
            bytes: 125_000_000,
            client_bytes: 0,
            counts: true,
            limiter: Limiter::Relay,
        };
        let packed = pack(&vec![second; 30]);
        for length in 0..packed.len() - 4 {
            assert!(unpack(&packed[..length]).is_err(), "{length} bytes");
        }
    }
}
