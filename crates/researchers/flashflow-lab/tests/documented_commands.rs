//! Runs the commands of the manual: those in the `sh` and `console` blocks of the README and of the pages in `docs/`, page by page, each page
//! in its own folder, in namespaces of networks and processes. Pages that need a network of C tor share one, one after the other. `documented_commands/pages.toml` says what a page needs, and lists the commands that are
//! not run, each with its reason. Commands of all other pages, such as those of results, must at least parse: see `testbin::manual`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use testbin::manual::{Block, blocks, root};

/// What the commands of a page need. The page `*` holds for all pages.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Rules {
    /// Whether they need a private network.
    network: bool,
    /// Commands before the first one.
    before: String,
    /// Texts of the page, and what they are replaced by: placeholders, paths of an installation, and sizes that take minutes.
    rewrite: BTreeMap<String, String>,
    /// File names for the `toml` blocks of the page, in order; none for an empty name.
    toml: Vec<String>,
    /// Whether its `python` blocks are run.
    python: bool,
    /// Commands that run until they are stopped, by their first words: the text by which they are ready.
    background: BTreeMap<String, String>,
    /// Commands that run until they are stopped, as above, and are stopped as soon as they are ready.
    once: BTreeMap<String, String>,
    /// Commands whose exit status may be another than 0, by their first words.
    status: BTreeMap<String, Vec<i32>>,
    /// Commands that are not run, by their first words, with the reason. An empty text stands for all commands of the page.
    not_run: BTreeMap<String, String>,
}

/// How a command is run.
#[derive(Clone, Copy)]
enum Way<'r> {
    ToItsEnd,
    /// Until the end of the page; it is ready when it has printed this text.
    Background(&'r str),
    /// Until it is ready.
    Once(&'r str),
    Not,
}

impl Way<'_> {
    /// The name of its rules.
    const fn name(self) -> &'static str {
        match self {
            Self::ToItsEnd => "",
            Self::Background(_) => "background",
            Self::Once(_) => "once",
            Self::Not => "not-run",
        }
    }
}

impl Rules {
    /// How this command is run, by the rule with the most of its words.
    fn way(&self, command: &str) -> Option<(&str, Way<'_>)> {
        let background = self.background.iter().map(|(name, ready)| (name, Way::Background(ready)));
        let once = self.once.iter().map(|(name, ready)| (name, Way::Once(ready)));
        let not = self.not_run.keys().map(|name| (name, Way::Not));
        let all = background.chain(once).chain(not);
        let fitting = all.filter(|(name, _)| command.starts_with(name.as_str()));
        fitting.max_by_key(|(name, _)| name.len()).map(|(name, way)| (name.as_str(), way))
    }
}

fn rules() -> BTreeMap<String, Rules> {
    let text = include_str!("documented_commands/pages.toml");
    toml::from_str(text).unwrap_or_else(|error| panic!("pages.toml: {error}"))
}

/// Whether the commands of a page are run.
fn is_run(page: &str) -> bool {
    page == "README.md" || (page.starts_with("docs/") && page.matches('/').count() == 1)
}

/// A page as a program of a shell.
struct Script {
    page: String,
    text: String,
    /// The number of commands that it runs.
    commands: usize,
    needs_python: bool,
    needs_network: bool,
}

impl Script {
    /// `unused` are the names of rules that nothing has needed yet.
    fn new(page: &str, blocks: &[&Block], rules: [&Rules; 2], unused: &mut Vec<String>) -> Self {
        let [common, own] = rules;
        let mut text = PRELUDE.to_owned();
        let rewritten = |text: &str| {
            let all = own.rewrite.iter().chain(&common.rewrite);
            all.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
        };
        text += &own.before;
        let mut toml = own.toml.iter();
        let mut commands = 0;
        for block in blocks {
            for name in own.rewrite.keys().filter(|name| block.text.contains(name.as_str())) {
                unused.retain(|rule| *rule != label(page, "rewrite", name));
            }
            match block.language.as_str() {
                "toml" => {
                    if let Some(name) = toml.next().filter(|name| !name.is_empty()) {
                        let content = rewritten(&block.text);
                        let _ = write!(
                            text,
                            "cat >{name} <<'END OF TOML'\n{content}END OF TOML\nfill {name}\n"
                        );
                    }
                }
                "python" if own.python => {
                    let (page, line) = (&block.page, block.line);
                    let _ =
                        write!(text, "at='{page}:{line}'\npython3 - <<'END'\n{}END\n", block.text);
                    commands += 1;
                }
                _ => {}
            }
            for (line, command) in block.commands() {
                let (rule, way) = match own.way(&command) {
                    Some((name, way)) => (Some(label(page, way.name(), name)), way),
                    None => (None, common.way(&command).map_or(Way::ToItsEnd, |(_, way)| way)),
                };
                unused.retain(|other| Some(other) != rule.as_ref());
                if matches!(way, Way::Not) {
                    continue;
                }
                let statuses = own.status.iter().chain(&common.status);
                let statuses = statuses.filter(|(name, _)| command.starts_with(name.as_str()));
                let statuses: Vec<String> =
                    statuses.flat_map(|(_, codes)| codes).map(ToString::to_string).collect();
                let command = rewritten(&command);
                let _ = writeln!(text, "at='{}:{line}'; echo \"== $at\"", block.page);
                let _ = match way {
                    Way::Background(ready) | Way::Once(ready) => writeln!(
                        text,
                        "{command} >log-{line} 2>&1 &\nuntil_ready log-{line} '{ready}'"
                    ),
                    _ if statuses.is_empty() => writeln!(text, "{command}"),
                    _ => writeln!(text, "{command} || permitted $? {}", statuses.join(" ")),
                };
                if matches!(way, Way::Once(_)) {
                    text += "kill $!; wait $! || true\n";
                }
                commands += 1;
            }
        }
        Self {
            page: page.to_owned(),
            text,
            commands,
            needs_python: own.python,
            needs_network: own.network,
        }
    }
}

/// Runs pages in a new folder, one after the other, and if need be with a private network. Returns what failed, if anything.
fn run(pages: &[Script], programs: &Path, python: Option<&Path>) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = GROUP.to_owned();
    if pages.iter().any(|page| page.needs_network) {
        text += "flashflow-lab lab up --dir net --limits 10,20,20 --exits\n";
    }
    for (number, page) in pages.iter().enumerate() {
        fs::write(folder.path().join(format!("{number}.sh")), &page.text).expect("room");
        let _ = writeln!(text, "page {number}");
    }
    text += "exit $failed\n";
    let own = python.into_iter().chain([programs]).map(Path::to_owned);
    let paths = env::var_os("PATH").unwrap_or_default();
    let paths = env::join_paths(own.chain(env::split_paths(&paths))).expect("paths");
    let output = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &text])
        .current_dir(folder.path())
        .env("PATH", paths)
        .env("HOME", folder.path())
        .env("REPOSITORY", root())
        .env("MPLBACKEND", "Agg")
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::null())
        .output()
        .expect("unshare");
    let end = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(25)..).unwrap_or_default().join("\n")
    };
    let (out, error) = (end(&output.stdout), end(&output.stderr));
    let names: Vec<&str> = pages.iter().map(|page| page.page.as_str()).collect();
    let failed = format!("{}: {}\n{out}\n{error}\n", names.join(", "), output.status);
    (!output.status.success()).then_some(failed)
}

/// The shell of a group of pages.
const GROUP: &str = r#"set -eu
ip link set lo up
failed=0
page() {
    mkdir "page-$1"
    [ ! -e net ] || ln -s ../net "page-$1/net"
    # What it printed is of interest only if it fails.
    (cd "page-$1" && sh "../$1.sh" >output 2>&1) || { failed=1; tail -n 25 "page-$1/output"; }
}
"#;

fn label(page: &str, rule: &str, name: &str) -> String {
    format!("{page}: {rule}: {name}")
}

/// Functions of the pages' shells. The first ones print the directory port of its first authority, the
/// fingerprint and the address of its first relay, the name of a file with its consensus, and the identities of its authorities. `fill`
/// replaces the placeholders of a configuration: `before` has another one.
const PRELUDE: &str = r#"set -eu
trap 'status=$?; [ $status -eq 0 ] || echo "failed at ${at:-the preparation}"; kill $running 2>/dev/null || true; wait' EXIT
running=
mkdir temporary etc lib; export TMPDIR=$PWD/temporary
until_ready() {
    running="$running $!"
    for _ in $(seq 600); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.2; done
    cat "$1"; echo "not ready: $2" >&2; return 1
}
permitted() {
    status=$1; shift
    for code; do [ "$status" -ne "$code" ] || return 0; done
    return "$status"
}
node() { flashflow-lab lab status --dir net --json | tr '{' '\n' | grep "$1" | head -1 | grep -o "\"$2\":\"[^\"]*\"" | cut -d '"' -f 4; }
authority() { node '"dir_address":"' dir_address; }
fingerprint() { node '"nickname":"relay1"' fingerprint; }
or_address() { node '"nickname":"relay1"' or_address; }
consensus() {
    curl -sf "http://$(authority)/tor/status-vote/current/consensus${1:+-$1}" >"cached-${1:+$1-}consensus" && echo "cached-${1:+$1-}consensus"
}
identities() { grep '^dir-source ' "$(consensus)" | cut -d ' ' -f 3 | tr '\n' ' ' | sed 's/ $//; s/ /", "/g'; }
fill() { :; }
"#;

#[test]
fn commands_of_the_manual_run() {
    if let Some(what) = testbin::lacking() {
        skip::this_test!("{what}");
    }
    let rules = rules();
    let (none, blocks) = (Rules::default(), blocks());
    let common = rules.get("*").unwrap_or(&none);
    let mut pages: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
    for block in blocks.iter().filter(|block| is_run(&block.page)) {
        pages.entry(&block.page).or_default().push(block);
    }
    let mut unused: Vec<String> = Vec::new();
    for (page, own) in rules.iter().filter(|(page, _)| page.as_str() != "*") {
        assert!(pages.contains_key(page.as_str()), "pages.toml: no commands in {page}");
        let named = |rule: &'static str, names: Vec<&String>| {
            names.into_iter().map(|name| label(page, rule, name)).collect::<Vec<_>>()
        };
        unused.extend(named("not-run", own.not_run.keys().collect()));
        unused.extend(named("background", own.background.keys().collect()));
        unused.extend(named("once", own.once.keys().collect()));
        unused.extend(named("rewrite", own.rewrite.keys().collect()));
    }
    let scripts = pages.iter().map(|(page, blocks)| {
        let own = rules.get(*page).unwrap_or(&none);
        Script::new(page, blocks, [common, own], &mut unused)
    });
    let only = env::var("MANUAL_PAGE").ok();
    let scripts = scripts.filter(|page| page.commands > 0);
    let scripts: Vec<Script> =
        scripts.filter(|page| only.as_ref().is_none_or(|only| page.page.contains(only))).collect();
    assert_eq!(unused, Vec::<String>::new(), "pages.toml has rules that no command needs");
    let test = env::current_exe().expect("this test");
    let programs = test.parent().and_then(Path::parent).expect("two folders").to_owned();
    let python = scripts.iter().any(|page| page.needs_python).then(|| python(&programs)).flatten();
    let count: usize = scripts.iter().map(|page| page.commands).sum();
    assert!(only.is_some() || count > 80, "{count} commands");
    let is_possible = |page: &Script| python.is_some() || !page.needs_python;
    let (networked, others): (Vec<Script>, Vec<Script>) =
        scripts.into_iter().filter(is_possible).partition(|page| page.needs_network);
    let mut groups: Vec<Vec<Script>> = others.into_iter().map(|page| vec![page]).collect();
    // The longest, and therefore the first to be taken.
    groups.push(networked);
    let (waiting, problems) = (Mutex::new(groups), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no panic").pop();
                    let Some(pages) = next else { break };
                    let problem = run(&pages, &programs, python.as_deref());
                    problems.lock().expect("no panic").extend(problem);
                }
            });
        }
    });
    let problems = problems.into_inner().expect("no panic");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    if python.is_none() && only.is_none() {
        skip::this_test!(
            "the pages on Python: pip cannot install what python/pyproject.toml needs"
        );
    }
}

/// Groups of pages that run at the same time: one of them mostly waits for C tor.
const AT_ONCE: usize = 2;

/// The folder of programs of a Python with `flashflow-results`, if it can be installed.
fn python(programs: &Path) -> Option<PathBuf> {
    let environment = programs.parent().expect("a folder of targets").join("python-manual");
    let made = environment.join("bin");
    let source = tempfile::tempdir().expect("a folder");
    let script = "set -eu; [ -x \"$1/bin/python\" ] || python3 -m venv --system-site-packages \"$1\"; cp -R \"$2/python/.\" \"$3\"; \
                  \"$1/bin/pip\" install --quiet --disable-pip-version-check --upgrade \"$3[parquet]\"";
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([environment.as_path(), &root(), source.path()])
        .status();
    status.is_ok_and(|status| status.success()).then_some(made)
}
