//! Relays of one host, in network namespaces, because all relays on loopback share an address.

use lab::wan::{Access, Bottleneck, HostSpec, Queue, Wan, WanSpec};
use netdoc::{Ed25519Id, RsaId};
use onion::{Duration, Rate};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use testbin::team::{dated_consensus, make_key, measurer_of, start_measurer, write_measurer};
use testbin::{Running, Scratch, lacking, number, text};

/// Rate of the machine's link in each direction.
const MACHINE_MBIT_S: f64 = 24.0;

/// A consensus with these relays, as an authority would write it.
fn consensus(relays: &[(RsaId, SocketAddr)]) -> String {
    let sample = include_str!("../../../engine/netdoc/tests/data/consensus-ns");
    let (head, _) = sample.split_once("\nr ").expect("a relay");
    let (_, foot) = sample.split_once("\ndirectory-footer").expect("a footer");
    let mut relays = relays.to_vec();
    relays.sort_unstable_by_key(|(fingerprint, _)| *fingerprint);
    let mut text = format!("{head}\n");
    for (fingerprint, address) in relays {
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&fingerprint.0);
        // Of 20 bytes: zeros that follow change nothing.
        let identity = Ed25519Id(bytes).to_string();
        let (ip, port) = (address.ip(), address.port());
        writeln!(
            text,
            "r relay{port} {} fT1lwALw2cmUMK6Otfxu5FIrrSc 2020-02-28 21:39:07 {ip} {port} 0\n\
             s Fast Running Stable Valid\nv Tor 0.4.9.11\nw Bandwidth=1000\np reject 1-65535",
            &identity[..27]
        )
        .expect("memory");
    }
    dated_consensus(&format!("{text}directory-footer{foot}"), 0)
}

#[test]
fn relays_at_one_address_are_measured_together_and_share_the_capacity() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let rate = Rate::from_mbit_per_s(MACHINE_MBIT_S);
    let link = Bottleneck { rate, queue: Queue::Time(Duration::from_millis(50)) };
    let at = |host| Ipv4Addr::new(10, 77, 0, host);
    let machine = HostSpec::new("machine", at(2)).with_access(Access::both(link));
    let wan = Wan::start(&WanSpec::new(vec![HostSpec::new("team", at(1)), machine])).expect("up");
    let (team, machine) = (wan.host("team").expect("it"), wan.host("machine").expect("it"));

    let coordinator = make_key(&scratch, "c.key");
    let start = |name: &str| {
        let arguments = ["relay", "--nickname", name, "--address", "10.77.0.2", "--keys", name];
        let options = ["--coordinator", &coordinator, "--json"];
        let command = scratch.command(&[&arguments[..], &options].concat());
        let mut relay = machine.run(|| Running::new(command)).expect("a process there");
        let listening = relay.wait_for_record("listening", |_| true);
        let fingerprint: RsaId = text(&listening, "fingerprint").parse().expect("one");
        let address: SocketAddr = text(&listening, "address").parse().expect("an address");
        (relay, fingerprint, address)
    };
    let relays = ["one", "two"].map(start);
    let listed = relays.each_ref().map(|(_, fingerprint, address)| (*fingerprint, *address));
    fs::write(scratch.path("consensus"), consensus(&listed)).expect("written");

    let key = make_key(&scratch, "m.key");
    write_measurer(&scratch, "m", "127.0.0.1:0", &coordinator);
    let (measurer, address) = team.run(|| start_measurer(&scratch, "m.toml")).expect("a process");
    let echo: Vec<String> =
        listed.iter().map(|(fingerprint, _)| format!("\"{fingerprint}\"")).collect();
    let config = format!(
        "key = \"c.key\"\nout = \"bandwidth\"\nconsensus = \"consensus\"\necho = [{}]\nseconds = 8\n\
         guess_mbit_per_s = 30\n{}",
        echo.join(", "),
        measurer_of(&address, &key)
    );
    fs::write(scratch.path("c.toml"), config).expect("written");
    let arguments = ["coordinator", "--config", "c.toml", "--once", "--json"];
    let command = scratch.command(&arguments);
    let run = team.run(|| Running::new(command)).expect("a process");
    let ended = run.end();
    ended.assert_code(0);
    let summary = ended.summary();
    let found = summary["relays"].as_array().expect("a list");
    let estimates: Vec<f64> =
        found.iter().map(|relay| number(relay, "estimate_mbit_per_s")).collect();
    assert_eq!(estimates.len(), 2);
    // Measured separately, each would have nearly the whole capacity.
    let sum: f64 = estimates.iter().sum();
    assert!(
        estimates.iter().all(|estimate| *estimate > 0.0) && sum < 1.02 * MACHINE_MBIT_S,
        "{estimates:?}"
    );
    // The sum is that of the joint measurement, not only the larger share.
    assert!(sum > 0.7 * MACHINE_MBIT_S, "{estimates:?}");

    let records =
        scratch.run(&["export", "--store", "bandwidth/store.db", "--what", "records"]).values();
    // An inconclusive measurement is followed by another one of both relays. The result of the last one is shared.
    for (_, address) in &listed {
        let name = format!("relay{}", address.port());
        let is_of_it = |record: &&Value| record["relay"]["nickname"] == name;
        let last = records.iter().rfind(is_of_it).expect("a record");
        let shared = &last["shared"];
        assert_eq!(
            (&shared["relays"], &shared["is_aligned"]),
            (&2.into(), &true.into()),
            "{records:#?}"
        );
    }
    for (relay, _, _) in relays {
        relay.stop();
    }
    measurer.stop();
    drop(wan);
    scratch.wait_until_clean();
}
