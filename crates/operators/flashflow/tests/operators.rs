//! `flashflow relay` as a service: reload, notifications for systemd, metrics for Prometheus.

use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::net::UnixDatagram;
use testbin::{PATIENCE, Running, Scratch, text};

/// The next notification to systemd.
fn next_notification(systemd: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let len = systemd.recv(&mut buffer).expect("a notification");
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

fn configuration(more: &str) -> String {
    format!(
        "nickname = \"mine\"\naddress = \"127.0.0.1\"\nkeys = \"keys\"\nmetrics = \"127.0.0.1:0\"\n{more}"
    )
}

#[test]
fn a_relay_reloads_its_configuration_notifies_systemd_and_serves_metrics() {
    let scratch = Scratch::new();
    let file = scratch.path("relay.toml");
    fs::write(&file, configuration("")).expect("written");
    let notify = scratch.path("notify");
    let systemd = UnixDatagram::bind(&notify).expect("a socket");
    systemd.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut command = scratch.command(&["relay", "--config", "relay.toml", "--json"]);
    // A watchdog notification every 0.2 s.
    command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", "400000");
    let mut relay = Running::new(command);
    assert_eq!(next_notification(&systemd).trim(), "READY=1");
    assert_eq!(next_notification(&systemd).trim(), "WATCHDOG=1");
    assert_eq!(next_notification(&systemd).trim(), "WATCHDOG=1");

    // Metrics over HTTP.
    let metrics = relay.wait_for_record("metrics", |_| true);
    let answer = |path| testbin::get(text(&metrics, "address"), path);
    let figures = answer("/metrics");
    assert!(figures.starts_with("HTTP/1.1 200 OK\r\n"), "{figures}");
    for line in [
        "tor_relay_circuits_total{state=\"opened\"} 0",
        "tor_relay_flag{type=\"Running\"} 0",
        "flashflow_relay_reached 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} in {figures}");
    }
    testbin::monitoring::assert_exported(&figures, &["tor_relay_", "flashflow_relay_"]);
    assert!(answer("/").starts_with("HTTP/1.1 404"));

    // Some settings change at once; the others are reported.
    let reload = |relay: &Running, more: &str| {
        fs::write(&file, configuration(more)).expect("written");
        relay.signal(Signal::HUP);
        let after_watchdog = || loop {
            let notification = next_notification(&systemd);
            if notification.trim() != "WATCHDOG=1" {
                break notification;
            }
        };
        let notification = after_watchdog();
        assert!(notification.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{notification}");
        assert_eq!(after_watchdog().trim(), "READY=1");
    };
    reload(&relay, "contact = \"me\"\nthreads = 2\n[flashflow]\nmeasurements_allowed = true\n");
    relay.wait_for_record("reloaded", |value| {
        value["changed"] == json!(["contact", "flashflow"])
            && value["needs_restart"] == json!(["threads"])
    });
    relay.wait_for_record("measurements", |value| value["allowed"] == true);
    reload(&relay, "nonsense = 1\n");
    relay.wait_for_record("reloaded", |value| {
        value["error"].as_str().is_some_and(|error| error.contains("nonsense"))
    });

    relay.signal(Signal::TERM);
    // Read notifications before waiting for the end, because the socket's buffer is small.
    let notification = std::iter::from_fn(|| Some(next_notification(&systemd)))
        .find(|notification| notification.trim() != "WATCHDOG=1");
    assert_eq!(notification.as_deref().map(str::trim), Some("STOPPING=1"));
    let ended = relay.end();
    ended.assert_code(0);
    assert!(ended.error.contains("the previous one stays in effect"), "{}", ended.error);
}
