//! `flashflow manual`, as those who make packages call it.

use std::fs;
use std::process::{Command, Output};

fn flashflow(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashflow")).args(arguments).output().expect("it starts")
}

/// What `--help` lists.
fn commands() -> Vec<String> {
    let help = flashflow(&["--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    let list = text.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next());
    let names = list.expect("a list").lines().filter(|line| line.starts_with("  "));
    let names = names.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}

#[test]
fn each_command_has_a_page_with_its_examples_and_shells_complete_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("manual");
    let written = flashflow(&["manual", "--out", out.to_str().expect("text")]);
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    let commands = commands();
    assert!(
        commands.iter().any(|name| name == "coordinator") && commands.len() > 15,
        "{commands:?}"
    );
    assert!(!commands.iter().any(|name| name == "manual"), "it is for packages");
    let page = |name: &str| fs::read_to_string(out.join("man1").join(name)).expect(name);
    assert!(page("flashflow.1").contains(".TH flashflow 1"));
    let files =
        fs::read_dir(out.join("man1")).expect("made").map(|it| it.expect("listed").file_name());
    let names = files.map(|name| name.into_string().expect("text"));
    let pages: Vec<(String, String)> = names.map(|name| (name.clone(), page(&name))).collect();
    let shells = ["flashflow.bash", "_flashflow", "flashflow.fish"];
    let shells =
        shells.map(|name| fs::read_to_string(out.join("completions").join(name)).expect(name));
    for name in &commands {
        // Of a command that has others below it, theirs have the examples.
        assert!(page(&format!("flashflow-{name}.1")).contains("SYNOPSIS"), "{name}");
        let of_it = pages.iter().filter(|(file, _)| file.starts_with(&format!("flashflow-{name}")));
        assert!(of_it.map(|(_, text)| text).any(|text| text.contains("Example")), "{name}");
        assert!(shells.iter().all(|text| text.contains(name.as_str())), "{name}");
    }
    assert!(page("flashflow-coordinator.1").contains("Without \\-\\-once"));
    let refused = flashflow(&["manual", "--out", "/dev/null/manual"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/dev/null/manual"));
}
