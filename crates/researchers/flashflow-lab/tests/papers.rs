//! The papers' items: their results are those of the commands, and pages are those of the results.

use serde_json::Value;
use std::fs;
use std::path::Path;
use testbin::Scratch;

fn folder() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/papers").to_owned()
}

#[test]
fn pages_are_those_of_the_recorded_results() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["papers", "report", "--check", "--folder", &folder()]);
    assert!(ended.out.is_empty(), "run `flashflow-lab papers report`: {:#?}", ended.out);
    ended.assert_code(0);
}

#[test]
fn the_readme_has_the_counts_of_the_papers() {
    let text = |path: &str| fs::read_to_string(Path::new(&folder()).join(path)).expect("a page");
    let page = text("README.md");
    let (_, counts) = page.split_once("items, ").expect("counts");
    let counts =
        counts.split('.').next().expect("a sentence").replace("differ from the paper", "differ");
    assert!(text("../../README.md").contains(&counts), "README.md has not: {counts}");
}

/// Items that need published data are repeated where these are.
#[test]
fn items_in_virtual_time_repeat_to_the_last_digit() {
    let scratch = Scratch::new();
    let out = scratch.path("papers");
    let (folder, out) = (folder(), out.to_str().expect("text"));
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/data");
    let has_data = Path::new(data).is_dir();
    let of_data: &[&str] = if has_data { &["F-E1"] } else { &[] };
    let arguments = ["papers", "run", "S-1t", "S-1b", "S-f", "--folder", &folder, "--out", out];
    let ended = scratch.run(&[&arguments[..], of_data, &["--data", data, "--json"]].concat());
    let results = ended.values();
    assert!(results.len() >= 3, "{results:#?}");
    let read = |path: &Path| -> Value {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    };
    for result in results {
        let name = format!("data/{}.json", result["id"].as_str().expect("an item"));
        let stored = read(&Path::new(&folder).join(&name));
        let repeated = read(&Path::new(out).join(&name));
        assert_eq!(stored["lines"], repeated["lines"], "{name}");
        assert_eq!(stored["digest"], repeated["digest"], "{name}");
    }
}
