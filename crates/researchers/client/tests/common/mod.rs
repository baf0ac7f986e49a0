//! Shared parts of tests with networks of C tor.

use client::{ClientProxy, Event, Hop, Settings};
use lab::{Network, NetworkSpec, RelaySpec};
use relay::{ExitSection, RelayConfig};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Timeout of all waits, generous even for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// A C tor exit to all destinations, including loopback.
pub(crate) fn exit(nickname: &str) -> RelaySpec {
    exit_with(nickname, "accept *:*")
}

/// An exit with this policy.
pub(crate) fn exit_with(nickname: &str, policy: &str) -> RelaySpec {
    RelaySpec::new(nickname).exiting_to(policy)
}

/// A network of C tor: three authorities, which are not exits, and these relays.
pub(crate) fn network(relays: Vec<RelaySpec>) -> Network {
    Network::start(&NetworkSpec::new(relays), &mut |_| {}).expect("up")
}

/// A relay process of the crate `relay` that is an exit with Conflux.
pub(crate) fn our_exit(nickname: &str, network: &Network, folder: &Path) -> RelayConfig {
    RelayConfig {
        nickname: Some(nickname.parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        keys: Some(folder.join(nickname)),
        authorities: Some(network.directory_addrs()),
        exit: ExitSection {
            policy: Some(vec!["accept *:*".to_owned()]),
            reject_private: Some(false),
            conflux: Some(true),
            ..ExitSection::default()
        },
        ..RelayConfig::default()
    }
}

/// A client of this crate, and its events.
pub(crate) struct Ours {
    pub(crate) proxy: ClientProxy,
    pub(crate) events: Receiver<Event>,
    pub(crate) seen: Vec<Event>,
}

impl Ours {
    /// Starts it, and waits until it has bootstrapped.
    pub(crate) fn start(network: &Network, folder: &Path) -> Self {
        Self::start_with(Settings::new(network.directory_addrs(), folder.join("client")))
    }

    pub(crate) fn start_with(settings: Settings) -> Self {
        let mut ours = Self::begin(settings);
        ours.wait_for("network", |event| matches!(event, Event::Bootstrapped { .. }).then_some(()));
        ours
    }

    /// Starts it without waiting.
    pub(crate) fn begin(settings: Settings) -> Self {
        let (sender, events) = channel();
        let proxy = ClientProxy::start(settings, sender).expect("started");
        Self { proxy, events, seen: Vec::new() }
    }

    /// Waits for the next event for which `pick` returns a value.
    pub(crate) fn wait_for<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            let Ok(event) = self.events.recv_timeout(PATIENCE) else {
                panic!("no {what}: {:#?}", self.seen)
            };
            let found = pick(&event);
            self.seen.push(event);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// All events so far.
    pub(crate) fn all_events(&mut self) -> &[Event] {
        self.seen.extend(self.events.try_iter());
        &self.seen
    }

    /// The path of a circuit.
    pub(crate) fn path(&self, number: u64) -> Vec<Hop> {
        let path = self.seen.iter().find_map(|event| match event {
            Event::CircuitBuilt { circuit, path, .. } if *circuit == number => Some(path.clone()),
            _ => None,
        });
        path.expect("a circuit that was built")
    }

    /// The circuit of the latest opened stream.
    pub(crate) fn last_circuit(&mut self) -> u64 {
        let circuit = self.all_events().iter().rev().find_map(|event| match event {
            Event::StreamOpened { circuit, .. } => Some(*circuit),
            _ => None,
        });
        circuit.expect("a stream that was opened")
    }
}
