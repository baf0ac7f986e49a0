//! Countries, and what lies between them.
//!
//! Latency is what light needs in fibre over the distance, with detours, and something for both ends, of which a window is at least as long. Where the users and
//! machines of a country are is one point; within a country they are some distance from each other. There is no map of measured latencies with this project:
//! whoever has one can hold it beside these. How long detours and ends are was chosen so that round trips over circuits come out as in the published runs of
//! Shadow's 5 % sample of Tor, whose map was measured between RIPE Atlas' probes, most of which are at people's homes (docs/simulation.md).

use crate::error::Error;
use onion::Duration;
use std::collections::BTreeMap;

const TABLE: &str = include_str!("places.csv");

/// Kilometres that light passes in fibre in a millisecond.
const KM_PER_MS: f64 = 204.0;

/// How much longer a cable is than the way that a bird would take.
const DETOUR: f64 = 2.2;

/// What both ends add, one way.
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
    /// Time from here to there, one way.
    #[must_use]
    pub fn latency_to(&self, other: &Self) -> Duration {
        let km = self.distance_km(other).max(self.within_km.max(other.within_km) / 2.0);
        let ms = ENDS_MS + km * DETOUR / KM_PER_MS;
        // Whole microseconds: no machine's cosine makes a difference then.
        Duration::from_micros(micros(ms))
    }

    /// On a sphere.
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

/// All countries that are known.
#[derive(Clone, Debug)]
pub struct Places {
    all: BTreeMap<String, Place>,
}

impl Places {
    /// Those of the table.
    ///
    /// # Errors
    /// None, as long as the table that the program was built with is sound.
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

    /// One of them.
    ///
    /// # Errors
    /// Where it is not known.
    pub fn find(&self, country: &str) -> Result<Place, Error> {
        self.all.get(country).copied().ok_or_else(|| {
            let known: Vec<&str> = self.all.keys().map(String::as_str).collect();
            let known = known.join(" ");
            Error::Impossible(format!("no place is known for country {country:?}; known: {known}"))
        })
    }
}
