//! Helpers of tests with C tor.

pub(crate) mod recorded_vote;

use lab::Network;
use lab::control::{Control, ControlError};
use link::Clock;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{ServerDescriptor, descriptor};
use relay::publish::{self, Answer, Patience};
use relay::{Relay, RelayConfig, RelayEvent};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Timeout, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

pub(crate) fn config(nickname: &str, keys: &Path) -> RelayConfig {
    RelayConfig {
        nickname: Some(nickname.parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        keys: Some(keys.to_owned()),
        ..RelayConfig::default()
    }
}

/// Returns the first result of `pick`. Other events are skipped, and do not extend the timeout.
pub(crate) fn wait_for<T>(
    what: &str,
    events: &Receiver<RelayEvent>,
    mut pick: impl FnMut(RelayEvent) -> Option<T>,
) -> T {
    let mut seen = Vec::new();
    let clock = Clock::start();
    let began = clock.now();
    loop {
        let left = PATIENCE.saturating_sub(clock.now() - began);
        let Ok(event) = events.recv_timeout(left) else { panic!("no {what}: {seen:#?}") };
        seen.push(event.to_string());
        if let Some(found) = pick(event) {
            return found;
        }
    }
}

/// A relay of this crate with its keys in this folder, once its authorities have its descriptor.
pub(crate) fn published(network: &Network, keys: &Path) -> (Relay, Receiver<RelayEvent>) {
    let settings =
        RelayConfig { authorities: Some(network.directory_addrs()), ..config("ours", keys) };
    let (sender, events) = channel();
    let relay = Relay::start(&settings.check().expect("sound"), sender).expect("started");
    wait_until_known(network, &events);
    (relay, events)
}

/// Waits until all three authorities have accepted the relay's descriptor.
pub(crate) fn wait_until_known(network: &Network, events: &Receiver<RelayEvent>) {
    let mut left = network.directory_addrs();
    wait_for("answers of all authorities", events, |event| {
        match event {
            // Authorities exchange descriptors, and an answer may be lost.
            RelayEvent::Answered { authority, answer: Answer::Accepted | Answer::NotNew } => {
                left.retain(|other| *other != authority);
            }
            // An authority that is too busy to answer gets the descriptor again.
            RelayEvent::Answered { answer: Answer::Refused { .. }, .. } => panic!("{event}"),
            _ => {}
        }
        left.is_empty().then_some(())
    });
}

/// Makes C tor build a circuit through these relays once it knows them all, and waits until the circuit is built.
pub(crate) fn build_circuit(control: &mut Control, path: &[&str]) {
    // A C tor relay that failed to connect to our relay during its restart refuses to retry for a minute.
    for _ in 0..PATIENCE.as_secs() {
        let event = try_circuit(control, path);
        if event.contains(" BUILT ") {
            return;
        }
        let is_temporary = ["CONNECTFAILED", "CHANNEL_CLOSED", "OR_CONN_CLOSED", "TIMEOUT"]
            .iter()
            .any(|reason| event.contains(&format!("REASON={reason}")));
        assert!(is_temporary, "{event}");
        let _other_news = control.events().recv_timeout(Duration::from_secs(1));
    }
    panic!("no circuit along {path:?}");
}

/// Builds a circuit. Returns its final event: built, failed or closed.
fn try_circuit(control: &mut Control, path: &[&str]) -> String {
    let command = format!("EXTENDCIRCUIT 0 {}", path.join(","));
    let reply = loop {
        match control.request(&command) {
            Ok(reply) => break reply,
            // After a new consensus, tor may still lack descriptors.
            Err(ControlError::Refused { code: 552, .. }) => {
                control.events().recv_timeout(PATIENCE).expect("news");
            }
            Err(error) => panic!("{error}"),
        }
    };
    let id = reply.text().strip_prefix("EXTENDED ").expect("a circuit").to_owned();
    loop {
        let event = control.events().recv_timeout(PATIENCE).expect("an event");
        let text = event.message.text();
        let is = |what: &&str| text.starts_with(&format!("CIRC {id} {what}"));
        if ["BUILT", "FAILED", "CLOSED"].iter().any(is) {
            return text.to_owned();
        }
    }
}

/// The control port of a C tor relay, once it has the microdescriptors of these relays.
pub(crate) fn knowing(network: &Network, place: usize, others: &[&str]) -> Control {
    let mut control = network.relays()[place].control().expect("answers");
    control.set_events(&["CIRC", "NEWDESC", "NEWCONSENSUS"]).expect("known");
    for other in others {
        while control.get_info(&format!("md/id/{other}")).is_err() {
            control.events().recv_timeout(PATIENCE).expect("news");
        }
    }
    control
}

/// The first relay of a network as a client: its control port, once it has our relay's
/// microdescriptor, and the name by which it knows our relay.
pub(crate) fn client_that_knows(network: &Network, relay: &Relay) -> (Control, String) {
    let fingerprint = relay.rsa().to_string();
    let control = knowing(network, 0, &[&fingerprint]);
    (control, format!("${fingerprint}"))
}

pub(crate) fn authorities(network: &Network) -> [String; 3] {
    [0, 1, 2].map(|place: usize| format!("${}", network.authorities()[place].rsa_hex()))
}

pub(crate) fn fetched(network: &Network, relay: &Relay) -> String {
    let resource = Resource::Descriptors(vec![relay.rsa()]);
    text(network.directory_addrs()[0], &resource)
}

/// Fetches a document from a directory.
pub(crate) fn text(directory: SocketAddr, resource: &Resource) -> String {
    let text = Fetcher::default().get(directory, resource).expect("served");
    String::from_utf8(text).expect("text")
}

pub(crate) fn only(text: &str) -> ServerDescriptor<'_> {
    let (good, bad) = descriptor::parse_all(text.as_bytes());
    assert!(bad.is_empty() && good.len() == 1, "{bad:?}");
    good[0].clone()
}

/// Publishes a descriptor at all authorities.
pub(crate) fn publish_to_all(network: &Network, text: &str) {
    for authority in network.directory_addrs() {
        let answer = publish::post(authority, text, Clock::start(), Patience::default());
        // Authorities exchange descriptors.
        let answer = answer.expect("an answer");
        assert!(matches!(answer, Answer::Accepted | Answer::NotNew), "{answer}");
    }
}
