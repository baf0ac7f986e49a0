//! Directory requests in one-hop circuits, as C tor clients make them: to C tor authorities, a fallback, and guards.

use crate::common::{Ours, PATIENCE, exit, network};
use client::strategy::{Position, Strategy};
use client::{Choices, Directories, Event, NetDir, OnionDirectory, RelayInfo, Settings};
use lab::{Content, ContentServer, Node, download};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use std::fs;
use std::path::Path;

fn onion(node: &Node) -> OnionDirectory {
    let ids = RelayIds { rsa: RsaId(node.rsa()), ed25519: Some(Ed25519Id(node.ed25519())) };
    OnionDirectory { address: node.or_addr(), ids }
}

/// No authority at any position: they are to end.
#[derive(Debug)]
struct Without(Vec<[u8; 20]>);

impl Strategy for Without {
    fn name(&self) -> &'static str {
        "without"
    }

    fn weight(&self, _: &NetDir, _: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        1.0
    }

    fn admits(&self, _: &NetDir, relay: &RelayInfo, _: Position, _: &[&RelayInfo]) -> bool {
        !self.0.contains(&relay.fingerprint.0)
    }
}

#[test]
fn a_client_bootstraps_by_begin_dir_and_later_from_its_guards_alone() {
    let network = network(vec![exit("exita"), exit("exitb"), exit("exitc")]);
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("client");
    let server = ContentServer::start().expect("a server");
    let from = ("127.0.0.1", server.address().port());
    let works = |ours: &mut Ours, seed| {
        let content = Content { len: 100_000, seed };
        let done = download(ours.proxy.socks(), from, content, "x", PATIENCE);
        let done = done.unwrap_or_else(|error| panic!("{error}: {:#?}", ours.all_events()));
        assert!(done.is_right, "{done:?}");
    };

    // The authorities are given by their OR ports, which do not answer HTTP. The fallback has another identity than configured.
    let all: Vec<OnionDirectory> = network.authorities().iter().map(onion).collect();
    let mut false_one = onion(&network.relays()[0]);
    false_one.ids.rsa = RsaId([7; 20]);
    false_one.ids.ed25519 = None;
    let identities = network.authorities().iter().filter_map(Node::v3_identity);
    let settings_with = |authorities: Vec<OnionDirectory>, data: &Path| Settings {
        choices: Choices {
            strategy: Box::new(Without(network.authorities().iter().map(Node::rsa).collect())),
            ..Choices::default()
        },
        identities: identities.clone().map(RsaId).collect(),
        directories: Directories {
            authorities: authorities
                .iter()
                .map(|authority| (authority.address, *authority))
                .collect(),
            fallbacks: vec![false_one],
            has_guards: true,
        },
        ..Settings::new(
            authorities.iter().map(|authority| authority.address).collect(),
            data.to_owned(),
        )
    };
    let settings = || settings_with(all.clone(), &data);

    // With it alone, the client learns nothing: it has the documents, but not the expected identity.
    let nobody = OnionDirectory { address: ([127, 0, 0, 1], 1).into(), ..all[0] };
    let mut misled = Ours::begin(settings_with(vec![nobody], &folder.path().join("misled")));
    misled.wait_for("trouble", |event| matches!(event, Event::Trouble { .. }).then_some(()));
    drop(misled);
    assert!(!folder.path().join("misled/cached-microdesc-consensus").exists());

    let mut ours = Ours::start_with(settings());
    works(&mut ours, 1);
    drop(ours);

    // The client has kept only its guards with their addresses. The authorities are stopped.
    fs::remove_file(data.join("cached-microdescs")).expect("they were kept");
    network.authorities().iter().for_each(Node::kill);
    let mut ours = Ours::start_with(settings());
    works(&mut ours, 2);
    assert!(data.join("cached-microdescs").is_file(), "fetched again: {:#?}", ours.all_events());
}
