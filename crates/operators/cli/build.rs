//! Passes commit and target to the program, for `flashflow --version`.
//!
//! The commit is the environment variable `FLASHFLOW_COMMIT` or `SOURCE_VERSION` (for packages built from a tarball), or else that of
//! this workspace's `.git`, or else `unknown commit`. A build never fails without it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Number of digits of a commit.
const DIGITS: usize = 12;

fn main() {
    for name in ["FLASHFLOW_COMMIT", "SOURCE_VERSION"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let given = ["FLASHFLOW_COMMIT", "SOURCE_VERSION"].map(|name| env::var(name).ok());
    let given = given.into_iter().flatten().find(|commit| !commit.trim().is_empty());
    let commit = given.map(|commit| shortened(commit.trim()));
    let commit =
        commit.or_else(|| of_git(Path::new("../../.."))).unwrap_or("unknown commit".to_owned());
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=FLASHFLOW_COMMIT={commit}");
    println!("cargo::rustc-env=FLASHFLOW_TARGET={target}");
}

fn shortened(commit: &str) -> String {
    let is_hash = commit.len() >= DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { commit.chars().take(DIGITS).collect() } else { commit.to_owned() }
}

/// The commit of a repository's work tree, with `-dirty` if tracked files differ from it.
fn of_git(root: &Path) -> Option<String> {
    let git = git_folder(&root.join(".git"))?;
    // A linked work tree has a HEAD of its own, and the branches of the repository.
    let common = fs::read_to_string(git.join("commondir"));
    let common = common.map_or_else(|_| git.clone(), |path| git.join(path.trim()));
    let packed = common.join("packed-refs");
    // Not the index, which changes with each `git status`.
    rerun_if_changed(&[&git.join("HEAD"), &git.join("logs/HEAD"), &packed]);
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let commit = match head.trim().strip_prefix("ref: ") {
        None => head.trim().to_owned(),
        Some(name) => {
            let loose = common.join(name);
            rerun_if_changed(&[&loose]);
            match fs::read_to_string(&loose) {
                Ok(commit) => commit.trim().to_owned(),
                Err(_) => of_packed(&fs::read_to_string(&packed).ok()?, name)?,
            }
        }
    };
    let dirty = if is_dirty(root) { "-dirty" } else { "" };
    Some(shortened(&commit) + dirty)
}

/// `.git` is the folder or a file with its path (gitrepository-layout(5)).
fn git_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = fs::read_to_string(path).ok()?;
    let folder = text.trim().strip_prefix("gitdir: ")?;
    Some(path.parent()?.join(folder))
}

/// The commit of a branch with a packed reference.
fn of_packed(packed: &str, name: &str) -> Option<String> {
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    lines.find_map(|(commit, its)| (its == name).then(|| commit.to_owned()))
}

/// Whether the program's sources differ from the commit. Without git they count as clean.
fn is_dirty(root: &Path) -> bool {
    let below = |folder: PathBuf| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let crates = below(root.join("crates")).flat_map(below);
    let sources: Vec<PathBuf> = crates.map(|path| path.join("src")).collect();
    rerun_if_changed(&sources.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    rerun_if_changed(&[&root.join("Cargo.toml"), &root.join("Cargo.lock")]);
    let status = Command::new("git")
        .current_dir(root)
        .args(["--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--"])
        .args(["crates/*/*/src", "crates/*/*/Cargo.toml", "Cargo.toml", "Cargo.lock"])
        .output();
    status.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

/// Makes Cargo rerun the script when one of these files changes. It would always rerun it for a missing file.
fn rerun_if_changed(paths: &[&Path]) {
    for path in paths.iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
