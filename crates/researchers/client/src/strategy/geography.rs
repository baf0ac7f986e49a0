use super::{NoPath, Position, Strategy};
use crate::countries::{Continent, Countries, Country};
use crate::netdir::{NetDir, RelayInfo};
use netdoc::RsaId;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// A restriction on the countries of a path (Panchenko et al., §IV-B.4), written as `NAME=VALUE`.
/// Several countries or continents are joined by `+`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeoRule {
    /// `continents=unique`: no two relays on one continent.
    UniqueContinents,
    /// `country=DE`: all relays in these countries.
    Within(BTreeSet<Country>),
    /// `continent=EU`: all relays on these continents.
    On(BTreeSet<Continent>),
    /// `entry=DE`: the first hop in one of these countries, such as the client's own.
    Entry(BTreeSet<Country>),
    /// `exit=US`: the last hop in one of these countries, such as the destination's.
    Exit(BTreeSet<Country>),
    /// `exclude=CN`: no relay in these countries.
    Exclude(BTreeSet<Country>),
    /// `countries=2..3`: the minimum and maximum number of different countries; either may be
    /// omitted.
    Countries(Bounds),
    /// `continents=..1`: the minimum and maximum number of different continents.
    Continents(Bounds),
}

/// An inclusive range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The minimum.
    pub least: usize,
    /// The maximum.
    pub most: usize,
}

impl Bounds {
    /// Whether the range can still be met with `count` so far and `left` relays to come.
    const fn hold(self, so_far: usize, to_come: usize) -> bool {
        so_far <= self.most && so_far + to_come >= self.least
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a range: it is written 2..3, 2.. or ..3");
        let (least, most) = text.split_once("..").ok_or_else(wrong)?;
        let read = |text: &str, default| match text {
            "" => Ok(default),
            number => number.parse().map_err(|_| wrong()),
        };
        let bounds = Self { least: read(least, 0)?, most: read(most, usize::MAX)? };
        if bounds.most == 0 || bounds.least > bounds.most {
            return Err(format!("`{text}` lets no path be"));
        }
        Ok(bounds)
    }
}

fn set<T: FromStr<Err = String> + Ord>(text: &str) -> Result<BTreeSet<T>, String> {
    text.split('+').map(str::parse).collect()
}

impl FromStr for GeoRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Ok(match (name, value) {
            ("continents", "unique") => Self::UniqueContinents,
            ("continents", value) => Self::Continents(value.parse()?),
            ("countries", value) => Self::Countries(value.parse()?),
            ("country", value) => Self::Within(set(value)?),
            ("continent", value) => Self::On(set(value)?),
            ("entry", value) => Self::Entry(set(value)?),
            ("exit", value) => Self::Exit(set(value)?),
            ("exclude", value) => Self::Exclude(set(value)?),
            _ => {
                return Err(format!(
                    "`{text}` is not a rule of geography; there are country=, continent=, entry=, exit=, exclude=, \
                     countries=LEAST..MOST, continents=LEAST..MOST and continents=unique"
                ));
            }
        })
    }
}

impl GeoRule {
    /// The countries that it names.
    fn countries(&self) -> impl Iterator<Item = Country> + '_ {
        let named = match self {
            Self::Within(set) | Self::Entry(set) | Self::Exit(set) | Self::Exclude(set) => {
                Some(set)
            }
            _ => None,
        };
        named.into_iter().flatten().copied()
    }
}

/// Restricts another strategy geographically. Relays with an unknown country are never used.
#[derive(Debug)]
pub struct Geography {
    base: Box<dyn Strategy>,
    rules: Vec<GeoRule>,
    table: Arc<Countries>,
    hops: usize,
}

impl Geography {
    /// Selects by `base` among the relays that the rules permit, in paths of `hops` hops.
    ///
    /// # Errors
    /// A rule names a country that is not in the table.
    pub fn new(
        base: Box<dyn Strategy>,
        rules: Vec<GeoRule>,
        table: Arc<Countries>,
        hops: usize,
    ) -> Result<Self, String> {
        let unknown =
            rules.iter().flat_map(GeoRule::countries).find(|country| !table.has(*country));
        match unknown {
            Some(country) => Err(format!("the table of countries has no address in {country}")),
            None => Ok(Self { base, rules, table, hops }),
        }
    }

    /// The country of a relay.
    fn place(&self, relay: &RelayInfo) -> Option<(Country, Continent)> {
        let found = self.table.find(IpAddr::V4(relay.address));
        let found = found.or_else(|| self.table.find(IpAddr::V6(*relay.ipv6?.ip())));
        found.and_then(|country| Some((country, country.continent()?)))
    }
}

impl Strategy for Geography {
    fn name(&self) -> &'static str {
        "geography"
    }

    fn weight(
        &self,
        netdir: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64 {
        self.base.weight(netdir, relay, position, chosen)
    }

    fn check(&self, netdir: &NetDir) -> Result<(), NoPath> {
        self.base.check(netdir)
    }

    fn admits(
        &self,
        netdir: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> bool {
        let Some((country, continent)) = self.place(relay) else { return false };
        let others = || chosen.iter().filter_map(|other| self.place(other));
        let to_come = self.hops.saturating_sub(chosen.len() + 1);
        let keeps = |rule: &GeoRule| match rule {
            GeoRule::UniqueContinents => others().all(|(_, other)| other != continent),
            GeoRule::Within(set) => set.contains(&country),
            GeoRule::On(set) => set.contains(&continent),
            GeoRule::Entry(set) => position != Position::Guard || set.contains(&country),
            GeoRule::Exit(set) => position != Position::Exit || set.contains(&country),
            GeoRule::Exclude(set) => !set.contains(&country),
            GeoRule::Countries(bounds) => {
                let all: BTreeSet<Country> =
                    others().map(|other| other.0).chain([country]).collect();
                bounds.hold(all.len(), to_come)
            }
            GeoRule::Continents(bounds) => {
                let all: BTreeSet<Continent> =
                    others().map(|other| other.1).chain([continent]).collect();
                bounds.hold(all.len(), to_come)
            }
        };
        self.rules.iter().all(keeps) && self.base.admits(netdir, relay, position, chosen)
    }

    fn handle_outcome(&mut self, path: &[RsaId], was_built: bool) {
        self.base.handle_outcome(path, was_built);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdir::tests::{netdir, relay};
    use crate::path::{Need, NoPath, PathRules, select_probe_path};
    use crate::strategy::Uniform;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// Relays 1 to 3 in Germany, 4 and 5 in France, 6 and 7 in the United States, 8 in Japan; that
    /// of 9 is unknown.
    const TABLE: &str = "10.1.0.0,10.3.255.255,DE\n10.4.0.0,10.5.255.255,FR\n10.6.0.0,10.7.255.255,US\n10.8.0.0,10.8.255.255,JP";

    fn geography(rules: &[&str], hops: usize) -> Geography {
        let table = Arc::new(Countries::parse(TABLE).expect("a table"));
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        Geography::new(Box::new(Uniform), rules, table, hops).expect("known countries")
    }

    fn codes(geography: &Geography, hops: usize, seed: u64) -> Result<Vec<String>, NoPath> {
        let network = netdir((1..=9).map(relay));
        let rules = PathRules { distinct_subnets: true };
        let mut rng = StdRng::seed_from_u64(seed);
        let path =
            select_probe_path(&network, geography, rules, Some(Need::Lookup), hops, &mut rng)?;
        let place = |relay: &&RelayInfo| geography.place(relay).expect("known").0.to_string();
        Ok(path.iter().map(place).collect())
    }

    #[test]
    fn rules_are_parsed_and_invalid_ones_are_refused() {
        assert_eq!("continents=unique".parse(), Ok(GeoRule::UniqueContinents));
        let bounds = Bounds { least: 2, most: usize::MAX };
        assert_eq!("countries=2..".parse(), Ok(GeoRule::Countries(bounds)));
        for wrong in [
            "",
            "country",
            "country=",
            "country=GER",
            "continent=XX",
            "countries=3..2",
            "continents=2",
            "entry",
            "x=1",
        ] {
            assert!(wrong.parse::<GeoRule>().is_err(), "{wrong}");
        }
        let table = Arc::new(Countries::parse(TABLE).expect("a table"));
        let rules = vec!["exit=BR".parse().expect("a rule")];
        let error = Geography::new(Box::new(Uniform), rules, table, 3).expect_err("unknown");
        assert!(error.contains("BR"), "{error}");
    }

    #[test]
    fn without_a_relay_that_satisfies_the_rules_there_is_no_path() {
        assert_eq!(codes(&geography(&["country=JP"], 3), 3, 1), Err(NoPath::Guard));
        assert_eq!(codes(&geography(&["continents=unique"], 4), 4, 1), Err(NoPath::Middle));
        assert_eq!(codes(&geography(&["continent=AF"], 3), 3, 1), Err(NoPath::Exit));
    }

    proptest! {
        #[test]
        fn every_path_keeps_the_rules(seed in any::<u64>(), hops in 2_usize..=4) {
            let of = |rules: &[&str]| codes(&geography(rules, hops), hops, seed);
            let distinct = |codes: &[String]| codes.iter().collect::<BTreeSet<_>>().len();
            let path = of(&[]).expect("a path");
            prop_assert_eq!(path.len(), hops);
            if let Ok(path) = of(&["continents=unique"]) {
                let of = |code: &String| code.parse::<Country>().expect("one").continent();
                prop_assert_eq!(path.iter().map(of).collect::<BTreeSet<_>>().len(), hops);
            } else {
                prop_assert_eq!(hops, 4, "there are three continents");
            }
            let path = of(&["continent=EU"]).expect("a path");
            prop_assert!(path.iter().all(|code| ["DE", "FR"].contains(&code.as_str())));
            let path = of(&["entry=DE", "exit=US", "exclude=FR"]).expect("a path");
            prop_assert!(path[0] == "DE" && path[hops - 1] == "US" && !path.contains(&"FR".into()));
            prop_assert!(distinct(&of(&["countries=2.."]).expect("a path")) >= 2);
            prop_assert!(distinct(&of(&["countries=2..2"]).expect("a path")) == 2);
            if let Ok(path) = of(&["countries=..1"]) {
                prop_assert_eq!(distinct(&path), 1);
            }
        }
    }
}
