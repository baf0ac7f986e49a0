//! The metrics that packaging/monitoring expects: Grafana's dashboard, and Prometheus' alerts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the names of all our metrics begin with.
const OURS: [&str; 2] = ["flashflow_", "tor_relay_"];

/// Asserts that `text`, what a daemon exports, declares each metric in packaging/monitoring that begins with one of these prefixes.
pub fn assert_exported(text: &str, prefixes: &[&str]) {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let declared: BTreeSet<&str> = types.collect();
    let expected = expected();
    let ours =
        expected.iter().filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    let ours: Vec<_> = ours.collect();
    assert!(!ours.is_empty(), "nothing in packaging/monitoring begins with {prefixes:?}");
    for name in ours {
        assert!(
            declared.contains(name.as_str()),
            "packaging/monitoring has {name}, which is not exported:\n{text}"
        );
    }
}

/// All names in the files. Also the names of alerts and variables are words, but none begins as a metric does.
fn expected() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/monitoring");
    let mut names = BTreeSet::new();
    for name in ["alerts.yml", "grafana.json"] {
        let text = fs::read_to_string(folder.join(name)).expect("a file of the package");
        let words =
            text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let ours = words.filter(|word| OURS.iter().any(|prefix| word.starts_with(prefix)));
        names.extend(ours.map(str::to_owned));
    }
    names
}
