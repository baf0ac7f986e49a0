//! What tests with stock tor have in common.

use lab::Network;
use lab::control::{Control, ControlError};
use link::Clock;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Fingerprint, ServerDescriptor, descriptor};
use relay::publish::{self, Answer, Patience};
use relay::{Relay, RelayConfig, RelayEvent};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Far more than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

pub(crate) fn config(nickname: &str, keys: &Path) -> RelayConfig {
    RelayConfig {
        nickname: Some(nickname.parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        keys: Some(keys.to_owned()),
        ..RelayConfig::default()
    }
}

/// The next event of which `pick` makes something; the others are passed over, and give it no more time.
pub(crate) fn wait_for<T>(
    what: &str,
    events: &Receiver<RelayEvent>,
    mut pick: impl FnMut(RelayEvent) -> Option<T>,
) -> T {
    let mut heard = Vec::new();
    let clock = Clock::start();
    let began = clock.now();
    loop {
        let left = PATIENCE.saturating_sub(clock.now() - began);
        let Ok(event) = events.recv_timeout(left) else { panic!("no {what}: {heard:#?}") };
        heard.push(event.to_string());
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

/// Waits until all three authorities have answered that they have a descriptor of ours.
pub(crate) fn wait_until_known(network: &Network, events: &Receiver<RelayEvent>) {
    let mut left = network.directory_addrs();
    wait_for("answers of all authorities", events, |event| {
        match event {
            // Authorities exchange descriptors, and an answer may be lost.
            RelayEvent::Answered { authority, answer: Answer::Accepted | Answer::NotNew } => {
                left.retain(|other| *other != authority);
            }
            // One that was too busy to answer is asked again.
            RelayEvent::Answered { answer: Answer::Refused { .. }, .. } => panic!("{event}"),
            _ => {}
        }
        left.is_empty().then_some(())
    });
}

/// Has stock tor build a circuit through these relays as soon as it knows them all, and waits until
/// it stands.
pub(crate) fn build_circuit(control: &mut Control, path: &[&str]) {
    // A stock relay that could not connect to ours while it was starting anew remembers that for a minute, and whoever has a
    // circuit of its own through ours at that time has it try.
    for _ in 0..PATIENCE.as_secs() {
        let said = try_circuit(control, path);
        if said.contains(" BUILT ") {
            return;
        }
        // Where the first hop itself could not be reached, no other relay says so.
        let may_pass = ["CONNECTFAILED", "CHANNEL_CLOSED", "OR_CONN_CLOSED", "TIMEOUT"];
        assert!(may_pass.iter().any(|reason| said.contains(&format!("REASON={reason}"))), "{said}");
        let _other_news = control.events().recv_timeout(Duration::from_secs(1));
    }
    panic!("no circuit along {path:?}");
}

/// The last that is said of a circuit that is to come to stand.
fn try_circuit(control: &mut Control, path: &[&str]) -> String {
    let command = format!("EXTENDCIRCUIT 0 {}", path.join(","));
    let reply = loop {
        match control.request(&command) {
            Ok(reply) => break reply,
            // Between a consensus and the descriptors that it names, tor knows less than before.
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

/// The control port of a stock relay, once it has the microdescriptors of these others.
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
    let resource = Resource::Descriptors(vec![Fingerprint::from_bytes(relay.rsa().0)]);
    text(network.directory_addrs()[0], &resource)
}

/// A document that a directory has.
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
        // Authorities exchange the descriptors that they know.
        let answer = answer.expect("an answer");
        assert!(matches!(answer, Answer::Accepted | Answer::NotNew), "{answer}");
    }
}
