//! Checks links, form and commands of the manual. In a `console` block, each line after `$ ` runs in a shell, in a folder with the scenarios
//! and samples of the documentation. Its output must match the following lines. `…` matches any text, and alone on a line any lines.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Maximum median length of sentences in the README and the guides, in words.
const SENTENCE_WORDS: usize = 18;
const CELL_CHARACTERS: usize = 200;
const LINE_CHARACTERS: usize = 200;

fn root() -> PathBuf {
    normal(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
}

/// The path without `.` and `..`, whether or not it exists.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(parts.pop(), "{}", path.display()),
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

/// A page of the manual, or a page next to the README.
struct Page {
    path: PathBuf,
    name: String,
    text: String,
}

impl Page {
    fn is_manual(&self) -> bool {
        self.name.starts_with("docs/")
    }

    /// Results have dates and commits. The manual describes the current version.
    fn is_dated(&self) -> bool {
        self.name == "CHANGELOG.md"
            || ["docs/results/", "docs/papers/"].iter().any(|folder| self.name.starts_with(folder))
    }

    /// Numbered lines outside code blocks.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut is_code = false;
        self.text.lines().enumerate().filter_map(move |(number, line)| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            (!is_code && !is_fence).then_some((number + 1, line))
        })
    }

    /// Targets of links.
    fn links(&self) -> impl Iterator<Item = (usize, &str)> {
        self.prose().flat_map(|(number, line)| {
            let ends = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            ends.map(move |link| (number, link))
        })
    }

    /// Sentences and cells of tables, with the numbers of the first lines of their paragraphs.
    fn statements(&self) -> Vec<(usize, String)> {
        let blocks = self.blocks().into_iter();
        let sentences = blocks.flat_map(|(number, block)| {
            let parts: Vec<String> = block.split_inclusive(". ").map(str::to_owned).collect();
            parts.into_iter().map(move |part| (number, part))
        });
        sentences.collect()
    }

    /// Paragraphs, items of lists and cells of tables, with the numbers of their first lines.
    fn blocks(&self) -> Vec<(usize, String)> {
        let mut blocks: Vec<(usize, String)> = Vec::new();
        let mut previous = 0;
        for (number, line) in self.prose() {
            let begins = line.starts_with(['|', '#', '-']) || line.is_empty();
            if line.starts_with('|') {
                blocks.extend(line.split(" | ").map(|cell| (number, cell.to_owned())));
                continue;
            }
            match blocks.last_mut() {
                Some((_, block)) if !begins && previous + 1 == number => {
                    block.push(' ');
                    block.push_str(line);
                }
                _ => blocks.push((number, line.to_owned())),
            }
            previous = number;
        }
        blocks
    }

    /// The section with this anchor; without an anchor the whole page.
    fn section(&self, anchor: &str) -> String {
        if anchor.is_empty() {
            return self.text.clone();
        }
        let level = |line: &str| line.chars().take_while(|character| *character == '#').count();
        let of = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let mut depth = 0;
        let lines = self.prose().filter(|(_, line)| {
            if level(line) > 0 && (depth == 0 || level(line) <= depth) {
                depth = if of(line) == anchor { level(line) } else { 0 };
            }
            depth > 0
        });
        lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    }

    /// The anchors of headings, as in GitHub and mdBook.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::<String, usize>::new();
        let headings = self.prose().filter(|(_, line)| line.starts_with('#'));
        headings
            .map(|(_, line)| {
                let text = line.trim_start_matches('#').trim().to_lowercase();
                let kept = text
                    .chars()
                    .filter(|character| character.is_alphanumeric() || " -_".contains(*character));
                let anchor = kept.collect::<String>().replace(' ', "-");
                let count = seen.entry(anchor.clone()).or_default();
                *count += 1;
                if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
            })
            .collect()
    }

    /// Lengths of all sentences outside code, tables and headings, in words.
    fn sentences(&self) -> Vec<usize> {
        let mut paragraphs = vec![String::new()];
        for (_, line) in self.prose() {
            let line = line.trim();
            let is_text = !line.is_empty() && !line.starts_with(['|', '#', '!', '>']);
            if !is_text || line.starts_with("- ") {
                paragraphs.push(String::new());
            }
            if is_text && let Some(last) = paragraphs.last_mut() {
                last.push_str(line);
                last.push(' ');
            }
        }
        let sentences = paragraphs.iter().flat_map(|paragraph| {
            paragraph.split_inclusive([' ']).fold(vec![0], |mut counts, word| {
                if let Some(last) = counts.last_mut() {
                    *last += 1;
                }
                if word.trim_end_matches([' ', ')', '*']).ends_with(['.', '?', '!']) {
                    counts.push(0);
                }
                counts
            })
        });
        sentences.filter(|words| *words > 2).collect()
    }
}

/// All pages in this folder and its subfolders.
fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("listed").path());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { pages_in(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.sort();
    found
}

fn pages() -> Vec<Page> {
    let root = root();
    let around = [
        "README",
        "CHANGELOG",
        "SECURITY",
        "ARCHITECTURE",
        "CONTRIBUTING",
        "GOVERNANCE",
        "RELEASING",
        "ROADMAP",
    ];
    let paths = around
        .iter()
        .map(|name| root.join(format!("{name}.md")))
        .chain(pages_in(&root.join("docs")));
    paths
        .map(|path| {
            let name = path.strip_prefix(&root).expect("below").to_str().expect("text").to_owned();
            Page { text: fs::read_to_string(&path).expect("a page"), path, name }
        })
        .collect()
}

/// The pages under a heading of the table of contents, or all pages.
fn listed(heading: Option<&str>) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the table of contents");
    let parts =
        text.split("\n# ").filter(|part| heading.is_none_or(|heading| part.starts_with(heading)));
    let ends = parts.flat_map(|part| part.split("](").skip(1));
    ends.filter_map(|rest| rest.split(')').next()).map(|page| format!("docs/{page}")).collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn links_lead_to_existing_files_and_headings_within_the_manual() {
    let pages = pages();
    let anchors: BTreeMap<_, _> =
        pages.iter().map(|page| (page.path.clone(), page.anchors())).collect();
    let mut problems = Vec::new();
    for page in &pages {
        for (number, link) in page.links().filter(|(_, link)| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.path.clone(),
                file => normal(&page.path.parent().expect("a folder").join(file)),
            };
            let problem = if !target.exists() {
                "leads nowhere"
            } else if !anchor.is_empty()
                && anchors.get(&target).is_some_and(|known| !known.contains(anchor))
            {
                "names a heading that is not there"
            } else if page.is_manual() && !target.starts_with(root().join("docs")) {
                "leaves docs/, which is all that the site has"
            } else {
                continue;
            };
            problems.push(format!("{}:{number}: {link} {problem}", page.name));
        }
    }
    assert_none(&problems);
}

/// The numbers of a text without thousands separators, outside code and link targets.
fn numbers(text: &str) -> Vec<String> {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = prose.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    let words = kept.split(|character: char| {
        !character.is_alphanumeric() && !matches!(character, '.' | ',' | '_')
    });
    let numbers = words.map(|word| word.trim_matches(['.', ',']).replace(',', ""));
    numbers.filter(|number| number.parse::<f64>().is_ok_and(f64::is_finite)).collect()
}

/// Whether a result has this number, possibly with more digits.
fn has(result: &[String], quoted: &str) -> bool {
    let digits = quoted.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    result.iter().any(|number| {
        let exact = number.parse::<f64>().unwrap_or(f64::NAN);
        number == quoted || format!("{exact:.digits$}") == quoted
    })
}

#[test]
fn quoted_numbers_agree_with_the_linked_result() {
    let found = numbers("19 % of 6,433 relays, `7 s`, 0.5 [4](results/a2.md#5), v3, in 1999.");
    assert_eq!(found, ["19", "6433", "0.5", "4", "1999"]);
    assert!(has(&["19.34".to_owned()], "19.3") && !has(&["19.34".to_owned()], "19.4"));
    let pages = pages();
    let by_path: BTreeMap<_, _> = pages.iter().map(|page| (page.path.clone(), page)).collect();
    let results = root().join("docs/results");
    let (mut count, mut problems) = (0, Vec::new());
    for page in pages.iter().filter(|page| !page.is_dated()) {
        for (number, block) in page.statements() {
            let links = block.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let targets = links.filter(|link| !link.contains("://")).filter_map(|link| {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let path = normal(&page.path.parent().expect("a folder").join(file));
                by_path
                    .get(&path)
                    .filter(|_| path.starts_with(&results))
                    .map(|linked| linked.section(anchor))
            });
            let sections: Vec<String> = targets.collect();
            if sections.is_empty() {
                continue;
            }
            let known = numbers(&sections.join("\n"));
            for quoted in numbers(&block) {
                count += 1;
                if !has(&known, &quoted) {
                    let name = &page.name;
                    problems.push(format!("{name}:{number}: the result has no {quoted}: {block}"));
                }
            }
        }
    }
    assert!(count > 3, "{count} numbers are quoted");
    assert_none(&problems);
}

#[test]
fn pages_of_results_are_up_to_date() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["results", "pages", "--check", "--folder"]).arg(root().join("docs/results"));
    let output = command.output().expect("it starts");
    let printed =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "run `flashflow-lab results pages`: {printed:?}");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let listed = listed(None);
    let manual = pages().into_iter().filter(Page::is_manual).map(|page| page.name);
    let missing = manual.filter(|name| name != "docs/SUMMARY.md" && !listed.contains(name));
    let problems = missing.map(|name| format!("docs/SUMMARY.md does not list {name}"));
    assert_none(&problems.collect::<Vec<_>>());
}

/// Whether the text has a date, such as 2026-01-31 or 31 January 2026, or the hash of a commit.
fn dates(line: &str) -> bool {
    // Text in backticks is input or output.
    let prose: String = line.split('`').step_by(2).collect();
    let words: Vec<&str> =
        prose.split(|character: char| !character.is_alphanumeric() && character != '-').collect();
    let is_day = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        let are_numbers =
            parts.iter().all(|part| part.chars().all(|character| character.is_ascii_digit()));
        are_numbers && parts.len() == 3 && parts.first().is_some_and(|part| part.len() == 4)
    };
    let is_number =
        |word: &str| !word.is_empty() && word.chars().all(|character| character.is_ascii_digit());
    let is_hash = |word: &str| {
        (7..=40).contains(&word.len())
            && word
                .chars()
                .all(|character| character.is_ascii_hexdigit() && !character.is_ascii_uppercase())
            && word.chars().any(|character| character.is_ascii_digit())
            && word.chars().any(|character| character.is_ascii_lowercase())
            && word != "ed25519"
    };
    let months = ["January", "February", "March", "April", "May", "June", "July", "August"];
    let months = months.iter().chain(&["September", "October", "November", "December"]);
    let months = months.copied();
    words.iter().any(|word| is_day(word) || is_hash(word))
        || words.windows(3).any(|of| match *of {
            [day, month, year] => {
                is_number(day) && months.clone().any(|name| name == month) && is_number(year)
            }
            _ => false,
        })
        || words.windows(2).any(|of| match *of {
            [day, month] => {
                day.parse().is_ok_and(|day: u8| (1..=31).contains(&day))
                    && months.clone().any(|name| name == month)
            }
            _ => false,
        })
}

#[test]
fn table_cells_and_lines_are_short_and_the_manual_has_no_dates() {
    assert!(dates("on 26 November it was") && dates("by 2026-11-26,") && dates("commit 7c118ce9"));
    assert!(!dates("the network of January 2019, `2020-02-29`, 1234567 cells, 40 May be"));
    let mut problems = Vec::new();
    for page in pages() {
        for (number, line) in page.prose() {
            let mut problem =
                |what: String| problems.push(format!("{}:{number}: {what}", page.name));
            let length = line.chars().count();
            if line.starts_with('|') {
                let cells = line.split(" | ").map(|cell| cell.chars().count());
                let longest = cells.max().unwrap_or_default();
                if longest > CELL_CHARACTERS {
                    problem(format!("a cell of {longest} characters"));
                }
            } else if length > LINE_CHARACTERS {
                problem(format!("a line of {length} characters"));
            }
            if !page.is_dated() && dates(line) {
                problem("a date or a commit: those belong into docs/results".to_owned());
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn sentences_of_the_readme_and_of_the_guides_are_short() {
    let guides = listed(Some("Guides"));
    assert!(guides.len() > 8, "{guides:?}");
    let mut problems = Vec::new();
    for page in
        pages().iter().filter(|page| page.name == "README.md" || guides.contains(&page.name))
    {
        let mut sentences = page.sentences();
        sentences.sort_unstable();
        let median = sentences.get(sentences.len() / 2).copied().unwrap_or_default();
        if median > SENTENCE_WORDS {
            problems.push(format!("{}: the median sentence has {median} words", page.name));
        }
    }
    assert_none(&problems);
}

/// A command of a page, and its expected output.
struct ConsoleCommand {
    line: usize,
    command: String,
    output: Vec<String>,
}

fn console_commands(page: &Page) -> Vec<ConsoleCommand> {
    let mut found: Vec<ConsoleCommand> = Vec::new();
    let mut is_console = false;
    for (number, line) in page.text.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            is_console = kind == "console";
        } else if is_console && let Some(command) = line.strip_prefix("$ ") {
            let (line, command) = (number + 1, command.to_owned());
            found.push(ConsoleCommand { line, command, output: Vec::new() });
        } else if is_console && let Some(last) = found.last_mut() {
            last.output.push(line.to_owned());
        }
    }
    found
}

/// Whether a line matches the pattern of the page.
fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
        last = Some(part);
    }
    match last {
        None => rest.is_empty(),
        Some(part) => line.ends_with(part),
    }
}

/// Whether the lines match the patterns of the page.
fn all_fit(patterns: &[String], lines: &[&str]) -> bool {
    // The numbers of lines that the patterns so far can match.
    let mut counts = BTreeSet::from([0]);
    for pattern in patterns {
        counts = match (pattern.as_str(), counts.first()) {
            ("…", Some(least)) => (*least..=lines.len()).collect(),
            _ => {
                let next = counts
                    .iter()
                    .filter(|count| lines.get(**count).is_some_and(|line| fits(pattern, line)));
                next.map(|count| count + 1).collect()
            }
        };
    }
    counts.contains(&lines.len())
}

#[test]
fn commands_of_the_pages_print_the_documented_output() {
    assert!(fits("in … ms, …", "in 3 ms, 4") && !fits("in … ms", "in 3 ms.") && !fits("a", "ab"));
    let test = env::current_exe().expect("this test");
    let programs = test.parent().and_then(Path::parent).expect("two folders");
    let missing = programs.join("flashflow");
    assert!(missing.is_file(), "no {}: run `cargo build -p flashflow`", missing.display());
    // scripts/package-try runs the pages in a bare Debian.
    let program = env::var_os("PAGES_SHELL").unwrap_or_else(|| "sh".into());
    let paths = env::var_os("PATH").unwrap_or_default();
    let paths = [programs.to_owned()].into_iter().chain(env::split_paths(&paths));
    let paths = env::join_paths(paths).expect("paths");
    let (mut count, mut problems) = (0, Vec::new());
    for page in pages() {
        let folder = tempfile::tempdir().expect("a folder");
        for samples in ["docs/scenarios", "docs/samples"] {
            for sample in fs::read_dir(root().join(samples)).expect("samples") {
                let path = sample.expect("listed").path();
                let name = path.file_name().expect("a name");
                fs::copy(&path, folder.path().join(name)).expect("room");
            }
        }
        for example in console_commands(&page) {
            count += 1;
            let mut shell = Command::new(&program);
            shell.args(["-euc", &example.command]).current_dir(folder.path()).env("PATH", &paths);
            let output = shell.output().expect("a shell");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if !all_fit(&example.output, &text.lines().collect::<Vec<_>>()) {
                let errors = String::from_utf8_lossy(&output.stderr);
                let (name, line, command) = (&page.name, example.line, &example.command);
                problems.push(format!("{name}:{line}: {command}\nprints\n{text}{errors}"));
            }
        }
    }
    assert!(count > 5, "{count} commands");
    assert_none(&problems);
}
