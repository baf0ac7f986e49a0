use super::*;
use std::collections::BTreeSet;

fn whole() -> String {
    let totals = RouterTotals {
        reclaimed_bytes: 7,
        limited: 8,
        limited_reads: 9,
        conflux_sets: 11,
        conflux_legs: 23,
        conflux_switches: 12,
        conflux_resent: 13,
        ..RouterTotals::default()
    };
    let traffic = Traffic { received_bytes: 5, sent_bytes: 6, ..Traffic::default() };
    let reading =
        Reading { totals, traffic, links: 3, circuits: 4, streams: 1, ..Reading::default() };
    let mut flags = Flags::default();
    flags.insert(Flag::Fast);
    let mut text = Text::default();
    text.engine(&reading);
    text.process(&reading, Exhaustion { descriptors: 1, ports: 2 }, 1_000);
    text.status(&RelayStatus { flags, is_reached: true, certified_until: 9, published: 10 });
    let health = Health::new(std::sync::mpsc::channel().0);
    for outcome in [Outcome::Success, Outcome::Timeout, Outcome::Timeout] {
        health.note(onion::Instant::from_millis(1), outcome);
    }
    text.dns(&health);
    text.into_string()
}

#[test]
fn metrics_of_c_tor_have_its_names_and_labels() {
    let text = whole();
    for line in [
        "tor_relay_connections{type=\"OR\",state=\"opened\"} 3",
        "tor_relay_circuits_total{state=\"opened\"} 4",
        "tor_relay_traffic_bytes{direction=\"read\"} 5",
        "tor_relay_traffic_bytes{direction=\"written\"} 6",
        "tor_relay_load_oom_bytes_total{subsys=\"cell\"} 7",
        "tor_relay_load_global_rate_limit_reached_total{side=\"read\"} 9",
        "tor_relay_load_global_rate_limit_reached_total{side=\"write\"} 8",
        "tor_relay_load_tcp_exhaustion_total 2",
        "tor_relay_load_socket_total{state=\"opened\"} 4",
        "tor_relay_load_socket_total 1000",
        "tor_relay_flag{type=\"Fast\"} 1",
        "tor_relay_flag{type=\"Guard\"} 0",
        "tor_relay_signing_cert_expiry_timestamp 9",
        "tor_relay_exit_dns_query_total 3",
        "tor_relay_exit_dns_error_total{reason=\"success\"} 1",
        "tor_relay_exit_dns_error_total{reason=\"tor_timeout\"} 2",
        "tor_relay_exit_dns_error_total{reason=\"refused\"} 0",
        "flashflow_relay_reached 1",
        "flashflow_relay_conflux_sets_total 11",
        "flashflow_relay_conflux_legs_total 23",
        "flashflow_relay_conflux_switches_total 12",
        "flashflow_relay_conflux_resent_total 13",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[test]
fn each_metric_is_declared_once_before_its_values() {
    let text = whole();
    let mut declared = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().expect("a name");
            assert!(declared.insert(name), "{name} twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().expect("a name");
            assert_eq!(declared.last().map(|_| declared.contains(name)), Some(true), "{line}");
            let value = line.rsplit(' ').next().expect("a value");
            value.parse::<f64>().expect("a number");
        }
    }
    assert!(declared.len() > 15);
}
