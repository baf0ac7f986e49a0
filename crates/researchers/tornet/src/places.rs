//! Countries, and the latencies between them.
//!
//! Latency is the propagation time in fibre over the distance, with detours, plus a constant for both ends,
//! which bounds the length of a window from below. The users and machines of a country are at one point; within
//! a country they have a fixed distance. There is no map of measured latencies in this project. The detour
//! factor and the constant were fitted to the round-trip times over circuits in the published runs of Shadow's
//! 5 % sample of Tor, whose map was measured between RIPE Atlas probes, most of which are in people's homes
//! (docs/simulation.md).

use crate::error::Error;
use onion::Duration;
use std::collections::BTreeMap;

const TABLE: &str = include_str!("places.csv");

/// Propagation in fibre, in km per ms.
const KM_PER_MS: f64 = 204.0;

/// The ratio of cable length to great-circle distance.
const DETOUR: f64 = 2.2;

/// The constant of both ends, one way.
const ENDS_MS: f64 = 15.0;

const EARTH_RADIUS_KM: f64 = 6371.0;

/// A country.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    latitude: f64,
    longitude: f64,
    within_km: f64,
}

impl Place {
    /// The one-way latency to another country.
    #[must_use]
    pub fn latency_to(&self, other: &Self) -> Duration {
        let km = self.distance_km(other).max(self.within_km.max(other.within_km) / 2.0);
        let ms = ENDS_MS + km * DETOUR / KM_PER_MS;
        // Whole microseconds: the result does not depend on the machine's cosine.
        Duration::from_micros(micros(ms))
    }

    /// Great-circle distance.
    fn distance_km(&self, other: &Self) -> f64 {
        let (from, to) = (self.latitude.to_radians(), other.latitude.to_radians());
        let turn = (self.longitude - other.longitude).to_radians();
        let half = |angle: f64| (angle / 2.0).sin().powi(2);
        let chord = half(from - to) + from.cos() * to.cos() * half(turn);
        2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "under a second")]
fn micros(ms: f64) -> u64 {
    (ms * 10.0).round() as u64 * 100
}

/// All known countries.
#[derive(Clone, Debug)]
pub struct Places {
    all: BTreeMap<String, Place>,
}

impl Places {
    /// The countries of the built-in table.
    ///
    /// # Errors
    /// None, as long as the built-in table is valid.
    pub fn new() -> Result<Self, Error> {
        let malformed = |error: csv::Error| Error::malformed("places.csv", error);
        let mut all = BTreeMap::new();
        for row in csv::Reader::from_reader(TABLE.as_bytes()).deserialize() {
            let (name, latitude, longitude, within_km): (String, f64, f64, f64) =
                row.map_err(malformed)?;
            all.insert(name, Place { latitude, longitude, within_km });
        }
        Ok(Self { all })
    }

    /// A country by its code.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn find(&self, country: &str) -> Result<Place, Error> {
        self.all.get(country).copied().ok_or_else(|| {
            let known: Vec<&str> = self.all.keys().map(String::as_str).collect();
            let known = known.join(" ");
            Error::Impossible(format!("no place is known for country {country:?}; known: {known}"))
        })
    }
}
