//! Our client over our relays, with C tor authorities.

use crate::common::{Ours, PATIENCE, exit, network};
use client::model;
use client::probe::{self, ProbePlan, Subject};
use client::strategy::{Position, Strategy};
use client::{Choices, Directories, NetDir, RelayInfo, Settings};
use dirmgr::{CIRCUITS_MIN, LinkObservations};
use lab::{Content, ContentServer, download};
use link::Clock;
use netdoc::RsaId;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use testkit::exits::{name_server, ours, wait_until_known};

/// Selects relays whose names begin with `ours`, if there are any.
#[derive(Debug)]
struct OnlyOurs;

impl Strategy for OnlyOurs {
    fn name(&self) -> &'static str {
        "only-ours"
    }

    fn weight(&self, _: &NetDir, relay: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        f64::from(u8::from(relay.nickname.as_str().starts_with("ours")))
    }
}

/// The address of a name, by SOCKS (`RESOLVE`); the status if there is none.
fn resolve(socks: SocketAddr, name: &str) -> Result<[u8; 4], u8> {
    let mut stream = TcpStream::connect(socks).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let len = u8::try_from(name.len()).expect("short");
    let mut asked = vec![5, 1, 0, 5, 0xf0, 0, 3, len];
    asked.extend_from_slice(name.as_bytes());
    asked.extend_from_slice(&[0, 0]);
    stream.write_all(&asked).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered and closed");
    assert_eq!(answer[..3], [5, 0, 5], "{answer:?}");
    match answer[3] {
        0 => {
            assert_eq!((answer[5], answer.len()), (1, 12), "{answer:?}");
            Ok(answer[6..10].try_into().expect("four bytes"))
        }
        status => Err(status),
    }
}

#[test]
fn downloads_over_three_of_our_relays_are_complete_and_names_are_resolved() {
    let network = network(vec![exit("stock")]);
    let folder = tempfile::tempdir().expect("a folder");
    let names = name_server();
    let nicknames = ["oursA", "oursB", "oursC"];
    let relays = nicknames.map(|name| ours(&network, name, 1, "off", names, folder.path()));
    wait_until_known(&network, &relays);
    let relays = relays.map(|(relay, _)| relay);
    let all = relays.each_ref().map(|relay| relay.rsa().0);
    let settings = Settings {
        choices: Choices { strategy: Box::new(OnlyOurs), ..Choices::default() },
        ..Settings::new(network.directory_addrs(), folder.path().join("client"))
    };
    let mut client = Ours::start_with(settings);
    let server = ContentServer::start().expect("a server");
    let (socks, port) = (client.proxy.socks(), server.address().port());
    for (number, len) in [1 << 10, 100_000, 2 << 20, 10 << 20].into_iter().enumerate() {
        let content = Content { len, seed: number as u64 };
        let done = download(socks, ("files.test", port), content, "x", PATIENCE);
        let done =
            done.unwrap_or_else(|error| panic!("{len}: {error}: {:#?}", client.all_events()));
        assert!(done.is_right, "{len} bytes: {done:?}");
    }
    let circuit = client.last_circuit();
    let path = client.path(circuit);
    assert!(path.iter().all(|hop| hop.nickname.as_str().starts_with("ours")), "{path:?}");

    // Links with several circuits are reported by both ends, which yields a model for clients.
    let mut accounts = Vec::new();
    let circuits: Vec<String> =
        (0..3 * CIRCUITS_MIN).map(|number| format!("own{number}")).collect();
    let clock = Clock::start();
    let started = clock.now();
    let model = loop {
        for isolation in &circuits {
            let content = Content { len: 50_000, seed: 1 };
            let done = download(socks, ("files.test", port), content, isolation, PATIENCE);
            assert!(done.as_ref().is_ok_and(|done| done.is_right), "{done:?}");
        }
        accounts.clear();
        for (relay, nickname) in relays.iter().zip(nicknames) {
            let file = folder.path().join(nickname).join("link-observations");
            let ed25519 = relay.ed25519().0;
            let Ok(text) = fs::read(file) else { continue };
            accounts.push(LinkObservations::verify(&text, |_| Some(ed25519)).expect("signed"));
        }
        let now = link::unix_time_s();
        let model = model::of_links(&accounts, |_| Some(f64::INFINITY), now);
        if !model.links().is_empty() {
            break model;
        }
        assert!(clock.now() - started < PATIENCE, "{accounts:#?}");
    };
    let ends = model.links().keys().flat_map(|pair| pair.ends().map(|end| end.0));
    assert!(ends.into_iter().all(|end| all.contains(&end)), "{model:?}");

    assert_eq!(resolve(socks, "a.test"), Ok([127, 0, 0, 1]));
    assert_eq!(resolve(socks, "no.such.test"), Err(4));
    assert_eq!(resolve(socks, "198.51.100.7"), Ok([198, 51, 100, 7]));

    drop(server);
    let content = Content { len: 100, seed: 1 };
    let refused = download(socks, ("127.0.0.1", port), content, "x", PATIENCE);
    let problem = refused.expect_err("nobody listens").to_string();
    assert!(problem.contains("code 5"), "{problem}");

    // Each of our hops answers a latency probe without effects on the other hops.
    let authorities = network.directory_addrs();
    let is_enough = |netdir: &NetDir| all.iter().all(|rsa| netdir.find(&RsaId(*rsa)).is_some());
    let known = folder.path().join("probe");
    let netdir = probe::learn(
        authorities,
        Directories::default(),
        [].into(),
        known,
        PATIENCE,
        is_enough,
        || false,
    )
    .expect("known");
    let path = all.map(|rsa| netdir.find(&RsaId(rsa)).expect("listed"));
    let plan = ProbePlan { rounds: 2, ..ProbePlan::default() };
    let mut probed = None;
    let each = |found| {
        probed = Some(found);
        true
    };
    probe::run(plan, vec![Subject::new(&path)], &netdir, each, || false).expect("run");
    let probed = probed.expect("one");
    assert_eq!((probed.failure, probed.hop_times.len()), (None, 3));
    assert!(probed.rtts.iter().all(|of_hop| of_hop.len() == 2), "{:?}", probed.rtts);
}
