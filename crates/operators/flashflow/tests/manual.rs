//! Tests of `flashflow manual`, which makes manual pages and completions for packages.

use std::fs;
use std::path::Path;
use std::process::Command;
use testbin::{Ended, Scratch};

fn flashflow(arguments: &[&str]) -> Ended {
    Scratch::new().run(arguments)
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let text = flashflow(&["--help"]).out.join("\n");
    let list = text.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next());
    let names = list.expect("a list").lines().filter(|line| line.starts_with("  "));
    let names = names.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}

#[test]
fn each_command_has_a_manual_page_and_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("manual");
    let written = flashflow(&["manual", "--out", out.to_str().expect("text")]);
    written.assert_code(0);
    let commands = commands();
    assert!(
        commands.iter().any(|name| name == "coordinator") && commands.len() > 10,
        "{commands:?}"
    );
    assert!(!commands.iter().any(|name| name == "manual"), "it is for packages");
    let page = |name: &str| fs::read_to_string(out.join("man1").join(name)).expect(name);
    assert!(page("flashflow.1").contains(".TH flashflow 1"));
    let files = fs::read_dir(out.join("man1"))
        .expect("made")
        .map(|entry| entry.expect("listed").file_name());
    let names = files.map(|name| name.into_string().expect("text"));
    let pages: Vec<(String, String)> = names.map(|name| (name.clone(), page(&name))).collect();
    let shells = ["flashflow.bash", "_flashflow", "flashflow.fish"];
    let shells =
        shells.map(|name| fs::read_to_string(out.join("completions").join(name)).expect(name));
    for name in &commands {
        // Examples of a command with subcommands may be in their help.
        assert!(page(&format!("flashflow-{name}.1")).contains("SYNOPSIS"), "{name}");
        let of_it = pages.iter().filter(|(file, _)| file.starts_with(&format!("flashflow-{name}")));
        assert!(of_it.map(|(_, text)| text).any(|text| text.contains("Example")), "{name}");
        assert!(shells.iter().all(|text| text.contains(name.as_str())), "{name}");
    }
    let coordinator = page("flashflow-coordinator.1");
    assert!(coordinator.contains("Without \\-\\-once"));
    for section in ["EXIT STATUS", "EXAMPLES", "NOTES", "FILES", "SEE ALSO"] {
        assert!(coordinator.contains(&format!(".SH \"{section}\"")), "{section}");
    }
    assert!(coordinator.contains("/etc/flashflow/coordinator.toml"));
    assert!(coordinator.contains("flashflow\\-coordinator.toml(5)"));
    assert!(page("flashflow-bwfile.1").contains("flashflow\\-bwfile\\-check(1)"));
    assert!(!page("flashflow-measure.1").contains(".SH \"FILES\""), "it reads no configuration");
    for daemon in ["coordinator", "measurer", "relay"] {
        let path = out.join("man5").join(format!("flashflow-{daemon}.toml.5"));
        let text = fs::read_to_string(path).expect(daemon);
        let sample =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../docs/{daemon}.toml"));
        let sample = fs::read_to_string(sample).expect(daemon);
        let settings =
            sample.lines().filter_map(|line| line.trim_start_matches("#: ").split_once(" = "));
        for (setting, _) in settings.filter(|(name, _)| !name.starts_with('#')) {
            assert!(
                text.contains(&format!("{} = ", setting.replace('-', "\\-"))),
                "{daemon}: {setting}"
            );
        }
    }
    let refused = flashflow(&["manual", "--out", "/dev/null/manual"]);
    refused.assert_code(1);
    refused.assert_refused(&["/dev/null/manual"]);
}

/// The output of the build script, run for a workspace in this folder.
fn built_from(script: &Path, workspace: &Path, commit: Option<&str>) -> String {
    let folder = workspace.join("crates/operators/cli");
    fs::create_dir_all(&folder).expect("room");
    let mut command = Command::new(script);
    command.current_dir(folder).env("TARGET", "riscv64gc-unknown-linux-gnu");
    command.env_remove("FLASHFLOW_COMMIT").env_remove("SOURCE_VERSION");
    if let Some(commit) = commit {
        command.env("SOURCE_VERSION", commit);
    }
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let set = |name: &str| {
        let line = format!("cargo::rustc-env={name}=");
        text.lines().find_map(|printed| printed.strip_prefix(&line)).expect("set").to_owned()
    };
    format!("{}, {}", set("FLASHFLOW_COMMIT"), set("FLASHFLOW_TARGET"))
}

#[test]
fn the_version_has_commit_and_target_and_builds_need_no_git() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = flashflow(&["--version"]).out.concat();
    let start = concat!("flashflow ", env!("CARGO_PKG_VERSION"), " (");
    assert!(version.starts_with(start) && version.ends_with(')'), "{version}");

    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut build = Command::new(rustc);
    build.args(["--edition", "2024", "-o"]).arg(&script).arg(here.join("../cli/build.rs"));
    let built = build.output().expect("rustc");
    assert!(built.status.success(), "{built:?}");
    const TARGET: &str = ", riscv64gc-unknown-linux-gnu";
    const HEAD: &str = "c1904491aa52d3d0a9f1b7d3f2a9f07ad1a4d6e1";

    let tarball = folder.path().join("tarball");
    assert_eq!(built_from(&script, &tarball, None), format!("unknown commit{TARGET}"));
    assert_eq!(built_from(&script, &tarball, Some(HEAD)), format!("c1904491aa52{TARGET}"));
    assert_eq!(built_from(&script, &tarball, Some("debian/1")), format!("debian/1{TARGET}"));
    // A detached HEAD, a branch, a branch with a packed reference, and a linked work tree.
    let git = folder.path().join("clone/.git");
    fs::create_dir_all(git.join("refs/heads")).expect("room");
    let clone = folder.path().join("clone");
    let write = |name: &str, text: &str| fs::write(git.join(name), text).expect("room");
    write("HEAD", &format!("{HEAD}\n"));
    assert_eq!(built_from(&script, &clone, None), format!("c1904491aa52{TARGET}"));
    write("HEAD", "ref: refs/heads/main\n");
    assert_eq!(built_from(&script, &clone, None), format!("unknown commit{TARGET}"));
    write("packed-refs", &format!("# pack-refs with: peeled\n{HEAD} refs/heads/main\n"));
    assert_eq!(built_from(&script, &clone, None), format!("c1904491aa52{TARGET}"));
    write("refs/heads/main", &"ab".repeat(20));
    assert_eq!(built_from(&script, &clone, None), format!("abababababab{TARGET}"));
    fs::create_dir_all(git.join("worktrees/other")).expect("room");
    write("worktrees/other/HEAD", "ref: refs/heads/main\n");
    write("worktrees/other/commondir", "../..\n");
    let other = folder.path().join("other");
    fs::create_dir_all(&other).expect("room");
    let link = format!("gitdir: {}\n", git.join("worktrees/other").display());
    fs::write(other.join(".git"), link).expect("room");
    assert_eq!(built_from(&script, &other, None), format!("abababababab{TARGET}"));
}

#[test]
fn each_shell_gets_its_completions_on_stdout() {
    for (shell, part) in
        [("bash", "_flashflow()"), ("zsh", "#compdef flashflow"), ("fish", "complete -c flashflow")]
    {
        let written = flashflow(&["completions", shell]);
        written.assert_code(0);
        let text = written.out.join("\n");
        assert!(text.contains(part) && text.contains("measure-team"), "{shell}");
    }
    flashflow(&["completions", "cmd"]).assert_code(2);
}
