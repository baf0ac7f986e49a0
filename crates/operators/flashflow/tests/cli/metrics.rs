//! The metrics of the daemons are those that `docs/metrics.md` lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use testbin::team::{make_key, measurer_of, write_measurer};
use testbin::{Running, Scratch, text};

/// The names of the metrics at this address, and the text.
fn exported(address: &str) -> BTreeSet<String> {
    let answer = testbin::get(address, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let build =
        format!("flashflow_build_info{{version=\"{}\",commit=\"", env!("CARGO_PKG_VERSION"));
    assert!(answer.lines().any(|line| line.starts_with(&build)), "no {build}: {answer}");
    let names = answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.filter(|name| *name != "flashflow_build_info").map(ToOwned::to_owned).collect()
}

/// The names in the table of a section of the page that has this first column.
fn documented(section: &str, column: &str, prefix: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/metrics.md");
    let page = fs::read_to_string(page).expect("the page");
    let heading = format!("\n## {section}\n");
    let (_, rest) = page.split_once(&heading).unwrap_or_else(|| panic!("no section {section}"));
    let section = rest.split("\n#").next().expect("a section");
    let head = format!("| {column} |");
    let table = section.lines().skip_while(|line| !line.starts_with(&head));
    let rows = table.take_while(|line| line.starts_with('|'));
    let names = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(|name| format!("{prefix}{name}")).collect()
}

fn address_of_metrics(daemon: &mut Running) -> String {
    text(&daemon.wait_for_record("metrics", |_| true), "address").to_owned()
}

#[test]
fn each_daemon_exports_the_metrics_of_its_table_and_no_others() {
    let scratch = Scratch::new();
    let relay = ["relay", "--json", "--nickname", "mine", "--address", "127.0.0.1"];
    let options = ["--keys", "keys", "--metrics", "127.0.0.1:0"];
    let mut relay = scratch.start(&[&relay[..], &options].concat());
    assert_eq!(exported(&address_of_metrics(&mut relay)), documented("Relay", "Name", ""));

    let (coordinator, key) = (make_key(&scratch, "c.key"), make_key(&scratch, "m.key"));
    write_measurer(&scratch, "m", "127.0.0.1:0", &coordinator);
    let config = fs::read_to_string(scratch.path("m.toml")).expect("written");
    fs::write(scratch.path("m.toml"), config + "metrics = \"127.0.0.1:0\"\n").expect("written");
    let mut measurer = scratch.start(&["measurer", "--json", "--config", "m.toml"]);
    let found = exported(&address_of_metrics(&mut measurer));
    assert_eq!(found, documented("Measurer", "Name", "flashflow_measurer_"));

    // A store without any measurement.
    let team = measurer_of("127.0.0.1:1", &key);
    let config = format!("key = \"c.key\"\nout = \"out\"\nauthority = \"127.0.0.1:1\"\n{team}");
    fs::write(scratch.path("c.toml"), config).expect("written");
    scratch.run(&["coordinator", "--config", "c.toml", "--once"]).assert_code(1);
    let options = ["--store", "out/store.db", "--listen", "127.0.0.1:0"];
    let mut dashboard = scratch.start(&[&["dashboard", "--json"], &options[..]].concat());
    let address = text(&dashboard.wait_for_value(), "address").to_owned();
    let mut names = documented("Coordinator", "Name", "flashflow_coordinator_");
    names.extend(documented("Coordinator", "Name, of a gate", "flashflow_gate_"));
    assert_eq!(exported(&address), names);
}
