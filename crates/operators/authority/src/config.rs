//! `coordinator.toml`.

mod authorities;
mod gate;

pub use authorities::{Authorities, Authority};
pub use gate::{Gate, USUAL_TABLE};

use crate::config_file::{self, Key, Mbit, PolicyFile};
use crate::stop_file;
use cli::Error;
use control::keys::{PublicKey, SecretKey};
use coordinator::period::Timing;
use coordinator::policy::PolicyInForce;
use coordinator::{HistoryPolicy, Params, ROUNDS_ALLOWED};
use documents::Source;
use measurer::Consent;
use netdoc::bwfile::NodeIdStyle;
use onion::identity::RsaId;
use onion::{Duration, Rate};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use store::Retention;

/// The file's format.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    key: PathBuf,
    out: PathBuf,
    authority: Option<SocketAddr>,
    consensus: Option<PathBuf>,
    #[serde(default)]
    authority_identities: Vec<String>,
    certificates: Option<PathBuf>,
    descriptors: Option<PathBuf>,
    relays: Option<Vec<String>>,
    #[serde(default)]
    echo: Vec<String>,
    echo_rounds: Option<u32>,
    opt_in: Option<PathBuf>,
    policy: Option<PathBuf>,
    policy_authority: Option<String>,
    family: Option<bool>,
    #[serde(default)]
    together: Vec<Vec<String>>,
    keep_files: Option<usize>,
    node_id_dollar: Option<bool>,
    diagnostics: Option<bool>,
    store: Option<PathBuf>,
    keep_records_days: Option<u32>,
    keep_measurements_days: Option<u32>,
    period_s: Option<u64>,
    #[serde(default)]
    schedule: Schedule,
    seed: Option<PathBuf>,
    slot_s: Option<u64>,
    at_once_max: Option<NonZeroU32>,
    refresh_s: Option<u64>,
    seconds: Option<u32>,
    sockets: Option<u32>,
    check_share: Option<f64>,
    guess_mbit_per_s: Option<Mbit>,
    measurers: Vec<Measurer>,
    agree_listen: Option<SocketAddr>,
    agree_round_s: Option<u64>,
    #[serde(default)]
    authorities: Vec<authorities::Entry>,
    gate: Option<toml::Table>,
    #[serde(default)]
    header: gate::Header,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measurer {
    address: SocketAddr,
    key: Key,
    capacity_mbit_per_s: Option<Mbit>,
}

/// The schedule of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// In slots that are drawn from a secret seed, at times that no relay can predict from its earlier measurements.
    #[default]
    Randomised,
    /// Each relay in one slot of each period, drawn from a secret seed; new relays in the first one with room.
    Paper,
    /// One after the other from the beginning of each period, the largest first.
    Greedy,
}

impl Schedule {
    /// The timing of its periods.
    #[must_use]
    pub const fn timing(self) -> Timing {
        match self {
            Self::Randomised => Timing::Slots,
            Self::Paper => Timing::PaperSlots,
            Self::Greedy => Timing::Greedy,
        }
    }

    /// The longest period in which each relay is measured again before its estimate expires. In the paper's plan, nearly
    /// two periods may lie between the slots of a relay.
    fn period_max(self) -> Duration {
        match self {
            Self::Randomised | Self::Greedy => HistoryPolicy::PERIOD_MAX,
            Self::Paper => HistoryPolicy::PERIOD_MAX / 2,
        }
    }
}

/// A measurer of the team.
pub struct ConfiguredMeasurer {
    /// Its address.
    pub address: SocketAddr,
    /// Its public key.
    pub key: PublicKey,
    /// Its assumed maximum capacity; `None` until it has been measured.
    pub capacity: Option<Rate>,
}

/// A coordinator's checked configuration.
pub struct Config {
    /// The configuration file, and its content when it was read.
    path: PathBuf,
    settings: toml::Table,
    /// The coordinator's key.
    pub secret: SecretKey,
    /// The folder of bandwidth files.
    pub out: PathBuf,
    /// The source of the consensus.
    pub source: Source,
    /// More than half of these must have signed a consensus; with none, signatures are not verified.
    pub authority_identities: BTreeSet<RsaId>,
    /// Their certificates, if the consensus is a file.
    pub certificates: Option<PathBuf>,
    /// The relays' descriptors, if the consensus is a file.
    pub descriptors: Option<PathBuf>,
    /// The relays to measure, by fingerprint or nickname; `None` for all permitted relays.
    pub relays: Option<Vec<String>>,
    /// The participating relays, by fingerprint or nickname.
    pub echo: Vec<String>,
    /// The number of rounds that those allow in a period.
    pub echo_rounds: u32,
    /// Reloaded on SIGHUP.
    consent: Mutex<Consent>,
    opt_in: Option<PathBuf>,
    policy: Option<PolicyFile>,
    /// Whether relays that declare each other to be of their family are measured together.
    pub family: bool,
    /// Pairs of relays that the operator declares to be measured together.
    pub together: Vec<(RsaId, RsaId)>,
    /// The number of bandwidth files that stay in the folder, in addition to those of the last day.
    pub keep_files: usize,
    /// The format of relay identities in bandwidth files.
    pub node_ids: NodeIdStyle,
    /// Whether they also list relays that are not measured.
    pub diagnostics: bool,
    /// The database of measurements.
    pub store: PathBuf,
    /// How long measurements stay in the store.
    pub retention: Retention,
    /// The length of a period.
    pub period: Duration,
    /// The schedule of a period.
    pub schedule: Schedule,
    /// The file with the secret seed of the schedule.
    pub seed: PathBuf,
    /// A slot of the schedule, in seconds.
    pub slot_s: u64,
    /// The operator's limit on the number of relays that are measured at once, if any.
    pub at_once_max: Option<NonZeroU32>,
    /// The interval at which the consensus is read, and a bandwidth file written.
    pub refresh: Duration,
    /// Parameters of the measurements.
    pub params: Params,
    /// The expected capacity of relays while nothing has been measured.
    pub guess: Option<Rate>,
    /// The team.
    pub measurers: Vec<ConfiguredMeasurer>,
    /// The authorities with which the seed of the schedule is agreed; without them the seed is our own.
    pub authorities: Option<Authorities>,
    /// The gate of bandwidth files; without it, each replaces the last.
    pub gate: Option<Gate>,
    /// Further keys of the header of bandwidth files.
    pub header: Vec<(String, String)>,
}

impl Config {
    /// Reads a configuration file and checks it.
    ///
    /// # Errors
    /// The file cannot be read, or a setting is wrong: the error names it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = config_file::read_text(path)?;
        let file: File = config_file::parse(path, &text)?;
        let settings = config_file::parse(path, &text)?;
        let bad = |problem: String| Error::Config { path: path.to_owned(), problem };
        let resolve = |file: &Path| config_file::resolve(path, file);
        let source = match (file.authority, &file.consensus) {
            (Some(authority), None) => Source::Authority(authority),
            (None, Some(consensus)) => Source::File(resolve(consensus)),
            _ => return Err(bad("give either `authority` or `consensus`".to_owned())),
        };
        let identity = |text: &String| {
            let problem = || format!("`authority_identities`: {text} is not a fingerprint");
            text.parse::<RsaId>().map_err(|_| bad(problem()))
        };
        let identities = file.authority_identities.iter().map(identity);
        let authority_identities = identities.collect::<Result<BTreeSet<_>, Error>>()?;
        if file.consensus.is_some()
            && !authority_identities.is_empty()
            && file.certificates.is_none()
        {
            let problem = "`consensus` is a file: to verify it, name the `certificates`, too, such as cached-certs";
            return Err(bad(problem.to_owned()));
        }
        let family = file.family.unwrap_or(false);
        if file.authority.is_some() && file.descriptors.is_some() {
            let problem = "`descriptors` go with a `consensus` that is a file: an `authority` is asked for them";
            return Err(bad(problem.to_owned()));
        }
        if family && file.consensus.is_some() && file.descriptors.is_none() {
            let problem = "`family`: relays declare their families in descriptors: name the file of `descriptors`, too, such as \
                           cached-descriptors";
            return Err(bad(problem.to_owned()));
        }
        let together = together(&file.together).map_err(bad)?;
        if file.measurers.is_empty() {
            return Err(bad("there are no `[[measurers]]`".to_owned()));
        }
        let mut measurers = Vec::new();
        for Measurer { address, key: Key(key), capacity_mbit_per_s: capacity } in file.measurers {
            if measurers.iter().any(|mate: &ConfiguredMeasurer| mate.key == key) {
                return Err(bad(format!("two measurers have the key {key}")));
            }
            measurers.push(ConfiguredMeasurer {
                address,
                key,
                capacity: capacity.map(|mbit| mbit.0),
            });
        }
        let defaults = Params::default();
        let params = Params {
            seconds: file.seconds.unwrap_or(defaults.seconds),
            sockets: file.sockets.unwrap_or(defaults.sockets),
            check_share: file.check_share.unwrap_or(defaults.check_share),
            ..defaults
        };
        params.validate().map_err(|error| bad(error.to_string()))?;
        let period_s = file.period_s.unwrap_or(24 * 3600);
        let slot_s = file.slot_s.unwrap_or_else(|| slot_s(&params));
        if slot_s == 0 || slot_s > period_s {
            let problem = format!("a slot of {slot_s} s, but a period of {period_s} s");
            return Err(bad(format!("{problem}: `slot_s` is 1 or more, and `period_s` not less")));
        }
        let period_max_s = file.schedule.period_max().as_secs();
        if period_s > period_max_s {
            return Err(bad(format!(
                "`period_s` is {period_s}, but must be at most {period_max_s} with this `schedule`: in a longer period, estimates of \
                 relays expire before the next measurement. Lower it; if relays do not fit then, add measurers"
            )));
        }
        let out = resolve(&file.out);
        let opt_in = file.opt_in.as_deref().map(resolve);
        let policy = PolicyFile::new(file.policy.as_deref().map(resolve), file.policy_authority);
        let policy = policy.map_err(bad)?;
        if let Some(policy) = &policy
            && !authority_identities.contains(&policy.authority)
        {
            let problem = "`policy_authority` must be one of the `authority_identities`, so that the consensus is verified";
            return Err(bad(problem.to_owned()));
        }
        let kept = Retention::default();
        let retention = Retention {
            records_days: file.keep_records_days.unwrap_or(kept.records_days),
            measurements_days: file.keep_measurements_days.unwrap_or(kept.measurements_days),
        };
        let store = file.store.as_deref().map_or_else(|| out.join("store.db"), resolve);
        let authorities = Authorities::new(file.agree_listen, file.agree_round_s, file.authorities);
        let authorities = authorities.map_err(bad)?;
        let gate = file.gate.map(|table| Gate::new(table, &resolve)).transpose().map_err(bad)?;
        let header = file.header.pairs().map_err(bad)?;
        let this = Self {
            path: path.to_owned(),
            settings,
            secret: SecretKey::read(&resolve(&file.key))?,
            seed: file.seed.as_deref().map_or_else(|| out.join("schedule.seed"), resolve),
            out,
            schedule: file.schedule,
            slot_s,
            at_once_max: file.at_once_max,
            refresh: Duration::from_secs(file.refresh_s.unwrap_or(3600).max(1)),
            source,
            authority_identities,
            certificates: file.certificates.as_deref().map(resolve),
            descriptors: file.descriptors.as_deref().map(resolve),
            node_ids: match file.node_id_dollar {
                Some(false) => NodeIdStyle::Plain,
                Some(true) | None => NodeIdStyle::Dollar,
            },
            diagnostics: file.diagnostics.unwrap_or(false),
            relays: file.relays,
            echo: file.echo,
            echo_rounds: file.echo_rounds.unwrap_or(ROUNDS_ALLOWED).max(1),
            consent: Mutex::new(read_consent(opt_in.as_deref(), policy.as_ref())?),
            opt_in,
            policy,
            family,
            together,
            keep_files: file.keep_files.unwrap_or(30),
            store,
            retention,
            period: Duration::from_secs(period_s),
            params,
            guess: file.guess_mbit_per_s.map(|mbit| mbit.0),
            measurers,
            authorities,
            gate,
            header,
        };
        authorities::check(&this).map_err(bad)?;
        let consent = this.consent();
        let has_tokens = consent.policy().is_some_and(|rule| rule.policy.has_contact_tokens());
        if has_tokens && matches!(this.source, Source::File(_)) && this.descriptors.is_none() {
            let problem = "`policy`: relays decline by their ContactInfo, which is in descriptors: name the file of `descriptors`, \
                           too, such as cached-descriptors";
            return Err(bad(problem.to_owned()));
        }
        Ok(this)
    }
}

/// The pairs of groups of fingerprints.
fn together(groups: &[Vec<String>]) -> Result<Vec<(RsaId, RsaId)>, String> {
    let mut pairs = Vec::new();
    for group in groups {
        let id = |text: &String| {
            let problem = || format!("`together`: {text} is not a fingerprint");
            text.parse::<RsaId>().map_err(|_| problem())
        };
        let ids = group.iter().map(id).collect::<Result<BTreeSet<_>, _>>()?;
        let mut ids = ids.into_iter();
        let first = ids.next().filter(|_| ids.len() > 0);
        let first = first.ok_or_else(|| {
            "`together`: a group is a list of two relays or more: [[\"FINGERPRINT\", \"FINGERPRINT\"]]".to_owned()
        })?;
        pairs.extend(ids.map(|other| (first, other)));
    }
    Ok(pairs)
}

fn read_consent(list: Option<&Path>, policy: Option<&PolicyFile>) -> Result<Consent, Error> {
    let local = Consent::local_only();
    let consent = match list {
        Some(list) => measurer::read_opt_in(local, list)?,
        None => local,
    };
    let Some(file) = policy else { return Ok(consent) };
    let policy = Arc::new(file.read()?.policy);
    // A period adds the relays and the team.
    Ok(consent.with_policy(Some(PolicyInForce { policy, relays: None, team: Vec::new() })))
}

/// The default length of a slot: the load of a measurement. It is set up while the measurement before it ends.
pub fn slot_s(params: &Params) -> u64 {
    /// The longest load before the seconds that count of a relay less than 200 ms away
    /// ([`PathParams::at_distance`](coordinator::PathParams::at_distance)). Farther ones delay the next measurements.
    const LEAD_S: u64 = 3;
    LEAD_S + u64::from(params.seconds)
}

impl ConfiguredMeasurer {
    /// Its assumed maximum capacity. If its own report were trusted, a single measurer could get nearly the whole load
    /// of a relay, and so determine the result.
    pub fn bound(&self) -> Result<Rate, Error> {
        let Self { address, key, .. } = self;
        self.capacity.ok_or_else(|| {
            Error::Failed(format!(
                "measurer {key} at {address} has no `capacity_mbit_per_s` in the configuration. With two measurers or \
                 more, `flashflow measure-team --team FILE` with this file finds it out: put the lines that it prints \
                 there. With one measurer, write what its link carries by hand: `capacity_mbit_per_s = 1000`"
            ))
        })
    }
}

impl Config {
    /// The relays that may be measured.
    pub fn consent(&self) -> Consent {
        self.consent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reloads the opt-in list and the measurement policy. On an error, the old ones stay in effect.
    pub fn reload_consent(&self) -> Result<(), Error> {
        let consent = read_consent(self.opt_in.as_deref(), self.policy.as_ref())?;
        *self.consent.lock().unwrap_or_else(PoisonError::into_inner) = consent;
        Ok(())
    }

    /// The names of settings whose value in the file differs from that at the start. They take effect after a restart.
    pub fn changed_settings(&self) -> Result<Vec<String>, Error> {
        let file: toml::Table = config_file::read(&self.path)?;
        let names: BTreeSet<&String> = file.keys().chain(self.settings.keys()).collect();
        let is_changed = |name: &&String| file.get(*name) != self.settings.get(*name);
        Ok(names.into_iter().filter(is_changed).cloned().collect())
    }

    /// Whether all measurements are stopped, with the reason: by `flashflow coordinator stop-all`.
    ///
    /// # Errors
    /// They are.
    pub fn check_stop_file(&self) -> Result<(), Error> {
        stop_file::check(&self.out).map_err(Error::Failed)
    }

    /// The policy for earlier results.
    pub fn history_policy(&self) -> HistoryPolicy {
        let usual = HistoryPolicy::over(self.period);
        let default = self.guess.unwrap_or(usual.default);
        HistoryPolicy { default, rounds_allowed: self.echo_rounds, ..usual }
    }

    /// Whether a relay takes part in measurements.
    pub fn takes_part(&self, relay: RsaId, nickname: &str) -> bool {
        let is_named = |name: &String| {
            let fingerprint = name.parse::<RsaId>();
            fingerprint.is_ok_and(|fingerprint| fingerprint == relay) || name == nickname
        };
        self.echo.iter().any(is_named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Error> {
        read_in(tempfile::tempdir().expect("temporary folder").path(), text)
    }

    fn read_in(dir: &Path, text: &str) -> Result<Config, Error> {
        let _made_before = SecretKey::from_seed([1; 32]).write_new(&dir.join("coordinator.key"));
        std::fs::write(dir.join("opt-in.txt"), "").expect("space");
        let path = dir.join("coordinator.toml");
        std::fs::write(&path, text).expect("space");
        Config::read(&path)
    }

    #[test]
    fn settings_that_need_a_restart_are_named() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let config = read_in(dir.path(), SAMPLE).expect("valid");
        assert!(config.changed_settings().expect("valid").is_empty());
        let (measurers, others) = (SAMPLE.find("[[measurers]]").expect("one"), "seconds = 20\n");
        let (head, tail) = SAMPLE.split_at(measurers);
        let changed = tail.replace("= 1000", "= 900").replace(":7001", ":7002");
        read_in(dir.path(), &(head.to_owned() + others + &changed)).expect("valid");
        assert_eq!(config.changed_settings().expect("valid"), ["measurers", "seconds"]);
        assert!(read_in(dir.path(), &SAMPLE.replace("out =", "# out =")).is_err());
        assert_eq!(config.changed_settings().expect("TOML"), ["out"]);
        std::fs::write(dir.path().join("coordinator.toml"), "key =").expect("space");
        assert!(config.changed_settings().is_err());
    }

    const SAMPLE: &str = include_str!("../../../../docs/coordinator.toml");

    #[test]
    fn the_sample_is_a_valid_configuration() {
        let config = read(SAMPLE).expect("valid");
        assert_eq!((config.measurers.len(), config.keep_files), (2, 30));
        assert!(config.out.is_absolute() && config.out.ends_with("bandwidth"));
        let retention = config.retention;
        // The commented-out settings are valid, too, and are the defaults. A policy has to be signed.
        let all: String = SAMPLE
            .lines()
            .filter(|line| !line.starts_with("#: policy"))
            .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
            .collect();
        let config = read(&all).expect("valid");
        assert_eq!(config.params, Params::default());
        assert_eq!((config.retention, retention), (Retention::default(), Retention::default()));
        assert!(config.relays.is_some() && config.echo.len() == 1 && config.guess.is_some());
        assert!(!config.family);
        assert_eq!(config.at_once_max.map(NonZeroU32::get), Some(32));
        assert_eq!(config.together.len(), 1);
        let authorities = config.authorities.expect("two others");
        assert_eq!((authorities.others.len(), authorities.round_s), (2, 10));
        let gate = config.gate.expect("a gate");
        assert_eq!(gate.limits, documents::gate::Limits::default());
        assert!(gate.votes.is_some_and(|path| path.is_absolute()));
        let header = config.header.iter().map(|(key, value)| format!("{key}={value}"));
        assert_eq!(header.collect::<Vec<_>>()[1], "destinations_countries=AT,DE");
    }

    #[test]
    fn a_period_may_be_as_long_as_estimates_are_kept() {
        let days = |schedule: &str, days: u64| {
            let text = format!("schedule = \"{schedule}\"\nperiod_s = {}\n{SAMPLE}", days * 86_400);
            read(&text).is_ok()
        };
        assert_eq!([1, 2, 3].map(|count| days("randomised", count)), [true, true, false]);
        assert_eq!([1, 2].map(|count| days("paper", count)), [true, false]);
        assert_eq!([2, 3].map(|count| days("greedy", count)), [true, false]);
    }

    #[test]
    fn a_measurer_without_a_configured_capacity_is_refused() {
        let config = read(SAMPLE).expect("valid");
        let bounds = config.measurers.iter().map(ConfiguredMeasurer::bound);
        let bounds = bounds.collect::<Result<Vec<_>, _>>().expect("bounds");
        assert_eq!(bounds, [Rate::from_mbit_per_s(1000.0); 2]);
        // The configuration is still valid for measuring the capacity.
        let without = SAMPLE.replacen("capacity_mbit_per_s = 1000", "", 1);
        let config = read(&without).expect("valid");
        let error = config.measurers[0].bound().expect_err("no bound").to_string();
        assert!(
            error.contains("measure-team --team") && error.contains("127.0.0.1:7100"),
            "{error}"
        );
        // `measure-team` is of no use if there is a capacity.
        assert!(error.contains("by hand: `capacity_mbit_per_s = 1000`"), "{error}");
        assert!(super::super::RemoteTeam::new(&config).is_err());
    }

    #[test]
    fn errors_name_the_wrong_setting() {
        for (from, to, word) in [
            ("authority =", "#", "either `authority` or `consensus`"),
            ("authority =", "consensus = \"c\"\nauthority =", "either `authority` or `consensus`"),
            ("authority =", "secnds = 3\nauthority =", "`secnds`"),
            ("authority =", "at_once_max = 0\nauthority =", "nonzero"),
            ("authority =", "seconds = 0\nauthority =", "seconds is 0, but must lie in 1 to 600"),
            ("authority =", "period_s = 172801\nauthority =", "at most 172800"),
            ("authority =", "schedule = \"paper\"\nperiod_s = 86401\nauthority =", "at most 86400"),
            ("authority =", "opt_in = \"none\"\nauthority =", "opt-in list"),
            ("authority =", "together = [[\"AB\"]]\nauthority =", "AB is not a fingerprint"),
            ("authority =", "together = [[]]\nauthority =", "two relays or more"),
            (
                "authority = \"127.0.0.1:7001\"",
                "consensus = \"c\"\nfamily = true",
                "such as cached-descriptors",
            ),
            ("authority =", "descriptors = \"d\"\nauthority =", "go with a `consensus`"),
            (
                "authority =",
                "authority_identities = [\"AB\"]\nauthority =",
                "AB is not a fingerprint",
            ),
            (
                "authority = \"127.0.0.1:7001\"",
                "consensus = \"c\"\nauthority_identities = [\"0232AF901C31A04EE9848595AF9BB7620D4C5B2E\"]",
                "`certificates`",
            ),
            ("= \"coordinator.key\"", "= \"another.key\"", "another.key"),
            ("authority =", "gate = { age_h = 3 }\nauthority =", "age_h"),
            ("authority =", "gate = { age_max_h = -3 }\nauthority =", "[gate]: `age_max_h`"),
            ("authority =", "gate = { geoip = \"none\" }\nauthority =", "tor-geoipdb"),
            (
                "authority =",
                "header = { scanner_country = \"Austria\" }\nauthority =",
                "[header]: scanner_country=Austria: expected two capital letters",
            ),
            ("authority =", "agree_listen = \"127.0.0.1:1\"\nauthority =", "go together"),
            (
                "27d848e16b694ef11314b9e3299fb6f5aa6fc5ba1d79f3709051f3ad0aa75750",
                "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1",
                "two measurers",
            ),
        ] {
            assert!(SAMPLE.contains(from), "{from}");
            let error = read(&SAMPLE.replacen(from, to, 1)).map(|_| ()).expect_err(to).to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
