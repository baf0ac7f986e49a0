//! Adversaries as data: what their relays do, and how large they are.

/// What the relays of an adversary do while they attack. A balancer consults the fields that concern its observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behavior {
    /// Self-reports are this many times the truth.
    pub report_factor: f64,
    /// A measurement that the relay recognises gets this many times what the relay carries for clients.
    pub shown_factor: f64,
    /// Whether a measurement that the relay recognises gets all of its capacity, instead of a share next to clients.
    pub prefers_measurements: bool,
    /// Whether the relay carries traffic of clients and other relays.
    pub carries_traffic: bool,
    /// Whether the relay claims as much client traffic as a FlashFlow measurement allows, and carries none.
    pub claims_clients: bool,
    /// Whether the relay always reports to be idle.
    pub claims_idle: bool,
    /// Reports about accomplices are this many times the truth, or what the balancer's detection of liars permits.
    pub praise_factor: f64,
    /// Whether reports about accomplices are chosen to have honest relays removed as liars, instead of for weight.
    pub frames: bool,
    /// Whether the relay carries only the traffic that increases its PeerFlow measurement the most.
    pub favours_witnesses: bool,
    /// Relays on each host. The host's capacity is divided among those that are busy at the same time.
    pub identities: u32,
    /// The share of the time in which the relay is fast, at random. Otherwise it has a tenth of that rate.
    pub time_share: f64,
}

impl Behavior {
    /// As the protocols demand.
    pub const HONEST: Self = Self {
        report_factor: 1.0,
        shown_factor: 1.0,
        prefers_measurements: false,
        carries_traffic: true,
        claims_clients: false,
        claims_idle: false,
        praise_factor: 1.0,
        frames: false,
        favours_witnesses: false,
        identities: 1,
        time_share: 1.0,
    };
}

/// An adversary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attack {
    /// Its name, used in file names.
    pub name: &'static str,
    /// What it does, as a phrase.
    pub description: &'static str,
    /// Its share of all hosts of relays.
    pub relay_share: f64,
    /// Its share of all capacity.
    pub capacity_share: f64,
    /// What its relays do.
    pub behavior: Behavior,
}

/// The share of hosts and of capacity that an adversary has, unless an attack says otherwise.
const USUAL: f64 = 0.02;

/// An exaggeration without a reason to be modest.
const GROSS: f64 = 1000.0;

/// The share of hosts and of capacity of an adversary that lies about its capacity, as a single operator did to TorFlow.
const SMALL: f64 = 0.002;

const fn attack(name: &'static str, description: &'static str, behavior: Behavior) -> Attack {
    Attack { name, description, relay_share: USUAL, capacity_share: USUAL, behavior }
}

/// All attacks. The first is none.
pub const ATTACKS: &[Attack] = &[
    attack("none", "no attack", Behavior::HONEST),
    Attack {
        name: "false-report",
        description: "self-reports of 1,000 times the truth",
        relay_share: SMALL,
        capacity_share: SMALL,
        behavior: Behavior { report_factor: GROSS, ..Behavior::HONEST },
    },
    Attack {
        name: "false-report-fast-scanner",
        description: "self-reports of 1,000 times the truth, and the scanner before all clients",
        relay_share: SMALL,
        capacity_share: SMALL,
        behavior: Behavior { report_factor: GROSS, prefers_measurements: true, ..Behavior::HONEST },
    },
    attack(
        "fast-when-measured",
        "twice its capacity for measurements, before all clients",
        Behavior { shown_factor: 2.0, prefers_measurements: true, ..Behavior::HONEST },
    ),
    attack(
        "proxy",
        "measured through a host four times as fast",
        Behavior { shown_factor: 4.0, prefers_measurements: true, ..Behavior::HONEST },
    ),
    attack(
        "part-time",
        "fast in half of the time, at random, and slow otherwise",
        Behavior { time_share: 0.5, ..Behavior::HONEST },
    ),
    attack(
        "client-claims",
        "claims the largest share of clients, and carries none",
        Behavior { claims_clients: true, prefers_measurements: true, ..Behavior::HONEST },
    ),
    attack(
        "one-host",
        "four relays on each host, at addresses of their own",
        Behavior { identities: 4, ..Behavior::HONEST },
    ),
    attack(
        "sybils",
        "20 relays on each host, which deal only with each other",
        Behavior {
            identities: 20,
            carries_traffic: false,
            praise_factor: GROSS,
            ..Behavior::HONEST
        },
    ),
    attack(
        "mutual-praise",
        "high reports about accomplices",
        Behavior { praise_factor: GROSS, ..Behavior::HONEST },
    ),
    attack(
        "framing",
        "reports about accomplices that have honest relays removed as liars",
        Behavior { praise_factor: GROSS, frames: true, ..Behavior::HONEST },
    ),
    Attack {
        name: "mutual-praise-many",
        description: "high reports about accomplices, twice as many on the same capacity",
        relay_share: 2.0 * USUAL,
        capacity_share: USUAL,
        behavior: Behavior { praise_factor: GROSS, ..Behavior::HONEST },
    },
    attack(
        "witnesses",
        "carries only what its measurement counts the most",
        Behavior { favours_witnesses: true, praise_factor: GROSS, ..Behavior::HONEST },
    ),
    Attack {
        name: "witnesses-large",
        description: "the same, with 8 % of the capacity",
        relay_share: 4.0 * USUAL,
        capacity_share: 4.0 * USUAL,
        behavior: Behavior { favours_witnesses: true, praise_factor: GROSS, ..Behavior::HONEST },
    },
    attack("idle-claims", "reports to be idle", Behavior { claims_idle: true, ..Behavior::HONEST }),
    attack(
        "idle-client-claims",
        "reports to be idle, claims the largest share of clients, and carries none",
        Behavior {
            claims_idle: true,
            claims_clients: true,
            prefers_measurements: true,
            ..Behavior::HONEST
        },
    ),
];

impl Attack {
    /// Whether all relays are honest.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.behavior == Behavior::HONEST
    }

    /// The attack with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ATTACKS.iter().find(|attack| attack.name == name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_attack_is_none_and_names_are_unique() {
        assert_eq!(ATTACKS[0].behavior, Behavior::HONEST);
        let names: BTreeSet<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        assert_eq!(Attack::named("sybils").map(|attack| attack.behavior.identities), Some(20));
        assert_eq!(Attack::named("kindness"), None);
    }
}
