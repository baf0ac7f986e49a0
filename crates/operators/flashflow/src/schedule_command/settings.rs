//! The settings of a plan, from a coordinator's configuration, the command line, or both.

use super::ScheduleOptions;
use authority::{Config, ConfiguredMeasurer, Schedule, slot_s};
use cli::Error;
use coordinator::Params;
use coordinator::plan::{Slots, TeamRoom};
use documents::Source;
use measurer::Consent;
use onion::Rate;
use onion::identity::RsaId;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The settings of a plan.
pub(super) struct Settings {
    pub(super) source: Source,
    pub(super) descriptors: Option<PathBuf>,
    pub(super) teams: Vec<TeamRoom>,
    pub(super) is_greedy: bool,
    pub(super) slot_s: u32,
    pub(super) period_s: u32,
    pub(super) at_once: u32,
    pub(super) excess: f64,
    pub(super) families: bool,
    /// Pairs of relays that the operator declares to be measured together.
    pub(super) together: Vec<(RsaId, RsaId)>,
    /// The relays to plan, by fingerprint or nickname; all relays if `None`.
    pub(super) relays: Option<Vec<String>>,
    /// The relays that may be measured; all if `None`.
    pub(super) consent: Option<Consent>,
    /// The public keys of the team.
    pub(super) measurers: Vec<[u8; 32]>,
}

impl Settings {
    pub(super) fn from_options(options: &ScheduleOptions) -> Result<Self, Error> {
        let defaults = Params::default();
        let settings = match &options.config {
            Some(path) => Self::of_coordinator(Config::read(path)?)?,
            None => Self {
                source: Source::File(PathBuf::new()),
                descriptors: None,
                teams: Vec::new(),
                is_greedy: options.greedy,
                slot_s: seconds(slot_s(&defaults)),
                period_s: 86_400,
                at_once: control::ROUNDS_MAX,
                excess: Params::default().excess_factor(),
                families: options.families,
                together: Vec::new(),
                relays: None,
                consent: None,
                measurers: Vec::new(),
            },
        };
        let at_once = options.at_once.unwrap_or(settings.at_once);
        let room = |capacity| TeamRoom { capacity, at_once_max: at_once };
        let teams: Vec<TeamRoom> = match &options.team[..] {
            [] => settings.teams.iter().map(|team| room(team.capacity)).collect(),
            teams => teams.iter().map(|team| room(team.0)).collect(),
        };
        Ok(Self {
            source: options.consensus.clone().map_or(settings.source, Source::File),
            descriptors: options.descriptors.clone().or(settings.descriptors),
            teams,
            slot_s: options.slot_s.unwrap_or(settings.slot_s),
            period_s: options.period_s.unwrap_or(settings.period_s),
            at_once,
            excess: options.excess.unwrap_or(settings.excess),
            ..settings
        })
    }

    /// The slots of the period, without those out of the hours of a measurement policy. A period is planned as one that begins at
    /// midnight.
    pub(super) fn slots(&self) -> Slots {
        let count = self.period_s / self.slot_s;
        let policy = self.consent.as_ref().and_then(Consent::policy);
        let slot_s = u64::from(self.slot_s);
        // A load ends with its slot.
        policy.map_or_else(|| count.into(), |rule| rule.policy.slots(count, 0, slot_s, slot_s))
    }

    /// The settings of a coordinator with one team.
    fn of_coordinator(config: Config) -> Result<Self, Error> {
        let bounds = config.measurers.iter().map(ConfiguredMeasurer::bound);
        let capacity = bounds.sum::<Result<Rate, Error>>()?;
        let at_once = config.at_once_max.map_or(control::ROUNDS_MAX, NonZeroU32::get);
        let at_once_max = at_once.min(control::ROUNDS_MAX);
        Ok(Self {
            teams: vec![TeamRoom { capacity, at_once_max }],
            is_greedy: config.schedule == Schedule::Greedy,
            slot_s: seconds(config.slot_s),
            period_s: seconds(config.period.as_secs()),
            at_once: at_once_max,
            excess: config.params.excess_factor(),
            families: config.family,
            consent: Some(config.consent()),
            measurers: config.measurers.iter().map(|measurer| measurer.key.0).collect(),
            source: config.source,
            descriptors: config.descriptors,
            together: config.together,
            relays: config.relays,
        })
    }
}

fn seconds(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
