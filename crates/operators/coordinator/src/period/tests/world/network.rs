//! The relays of the world, as a consensus lists them.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Conduct {
    Honest,
    /// The relay takes part, and answers "not now".
    Declines,
    Unreachable,
    /// On a public address, and not on the opt-in list.
    NotAsked,
}

#[derive(Clone, Debug)]
pub(in super::super) struct SimRelay {
    pub(in super::super) ids: RelayIds,
    pub(in super::super) address: SocketAddr,
    /// Bytes per second.
    pub(in super::super) capacity: u64,
    pub(in super::super) is_echo: bool,
    pub(in super::super) conduct: Conduct,
}

pub(super) fn relays(options: &WorldOptions) -> Vec<SimRelay> {
    let mut state = options.seed | 1;
    let mut next = move |below: u64| {
        // Knuth's generator provides enough variety.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let relay = |number: u8| {
        let conduct = match next(20) {
            0 => Conduct::Declines,
            1 => Conduct::Unreachable,
            2 => Conduct::NotAsked,
            _ => Conduct::Honest,
        };
        // By a policy most relays are measured that have not opted in.
        let is_by_policy = options.policy.is_some() && !number.is_multiple_of(3);
        let conduct = match conduct {
            Conduct::Honest if is_by_policy => Conduct::NotAsked,
            other => other,
        };
        // Some hosts have two relays.
        let host = if number % 10 == 9 { number - 1 } else { number };
        let network = match conduct {
            Conduct::NotAsked if number.is_multiple_of(2) => [198, 52, 100],
            Conduct::NotAsked => [198, 51, 100],
            _ => [10, 0, 0],
        };
        let [a, b, c] = network;
        let is_echo = conduct == Conduct::Declines
            || (number.is_multiple_of(4) && conduct == Conduct::Honest);
        SimRelay {
            ids: RelayIds { rsa: RsaId([number; 20]), ed25519: None },
            address: ([a, b, c, host], 9000 + u16::from(number)).into(),
            capacity: if options.are_large {
                80_000_000 + next(45_000_000)
            } else {
                200_000 + next(10_000_000)
            },
            is_echo,
            conduct,
        }
    };
    (1..=options.relays).map(relay).collect()
}

/// The consent of the operator: no relay has opted in.
pub(super) fn consent(options: &WorldOptions) -> Consent {
    let rule = options.policy.clone().map(|policy| PolicyInForce {
        policy: Arc::new(policy),
        relays: None,
        team: Vec::new(),
    });
    Consent::local_only().with_policy(rule)
}

impl World {
    pub(in super::super) fn view(&self) -> NetworkView {
        let router = |relay: &SimRelay| Router {
            ids: relay.ids,
            nickname: format!("relay{}", relay.ids.rsa.0[0]),
            address: relay.address,
            is_authority: false,
            is_running: true,
            weight_kb_s: None,
        };
        NetworkView {
            valid_after_unix_s: BEGIN,
            source: "the world".to_string(),
            signers: None,
            routers: self.relays.iter().map(router).collect(),
            named: None,
            echo: self
                .relays
                .iter()
                .filter(|relay| relay.is_echo)
                .map(|relay| relay.ids.rsa)
                .collect(),
            families: Vec::new(),
            policy_relays: self.policy_relays(),
            defences: Defences::default(),
        }
    }

    fn policy_relays(&self) -> Option<Arc<PolicyRelays>> {
        self.options.policy.as_ref()?;
        let relays = self.relays.iter();
        let relays =
            relays.map(|relay| (relay.ids.rsa, (relay.address.ip(), Contact::Silent))).collect();
        Some(Arc::new(PolicyRelays { usable_until_unix_s: u64::MAX, relays }))
    }

    pub(super) fn slot_seed(&self) -> SlotSeed {
        let room = TeamRoom { capacity: Rate::from_mbit_per_s(3000.0), at_once_max: 16 };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.options.seed.to_be_bytes());
        SlotSeed { seed: Seed::from_bytes(seed), teams: vec![room; self.teams], own: self.own }
    }

    pub(in super::super) fn relay(&self, relay: RsaId) -> &SimRelay {
        self.relays.iter().find(|known| known.ids.rsa == relay).expect("one of the world")
    }

    pub(in super::super) fn conduct(&self, relay: RsaId) -> Conduct {
        self.relay(relay).conduct
    }

    pub(in super::super) fn may_be_measured(&self, relay: RsaId) -> bool {
        let is_permitted = self.is_listed || self.options.policy.is_some();
        is_permitted || self.conduct(relay) != Conduct::NotAsked
    }

    pub(in super::super) fn group_size(&self, relay: RsaId) -> usize {
        let ip = self.relay(relay).address.ip();
        self.relays.iter().filter(|relay| relay.address.ip() == ip).count()
    }
}
