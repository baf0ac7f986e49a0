//! Assertions about the help of a program.

use clap::Command;

/// The width of the list of commands, on any terminal.
const NARROW: usize = 80;

/// The command and all below it, with their names.
fn all(command: &Command) -> Vec<(String, Command)> {
    let mut found = vec![(command.get_name().to_owned(), command.clone())];
    for below in command.get_subcommands() {
        let named = |(name, subcommand): (String, Command)| {
            (format!("{} {name}", command.get_name()), subcommand)
        };
        found.extend(all(below).into_iter().map(named));
    }
    found
}

/// Whether the next word would have fit on the line, so that the author, and not clap, broke it.
fn is_hard_broken(line: &str, next: &str, width: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_alone = |line: &str| {
        let line = line.trim();
        // Lists, headings, values, usage and examples have lines of their own.
        line.is_empty()
            || line.starts_with(['-', '[', '<'])
            || line.ends_with(':')
            || line.ends_with('\\')
    };
    if is_alone(line) || is_alone(next) || indent(line) != indent(next) || indent(line) == 2 {
        return false;
    }
    let word = next.split_whitespace().next().unwrap_or_default();
    line.chars().count() + 1 + word.chars().count() <= width
}

/// Asserts that the help of each command fits terminals of 80 columns and more, that no line is broken by hand, that at least
/// `examples_min` examples can be pasted, and that each command that is not hidden is in one group.
pub fn assert_help(program: &Command, groups: &[(&str, &[&str])], examples_min: usize) {
    assert_grouped(program, groups);
    let mut problems = Vec::new();
    let mut examples = 0;
    for width in [80, 100, 120] {
        for (name, command) in all(program) {
            // The list of commands is as narrow for all.
            let room = if command.get_name() == program.get_name() { NARROW } else { width };
            let help = command.term_width(width).render_long_help().to_string();
            let lines: Vec<&str> = help.lines().collect();
            for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
                let mut complain = |what: &str| {
                    problems.push(format!("{name} at {width} columns, {what}: {line}"));
                };
                if line.chars().count() > width && line.trim().contains(' ') {
                    complain("too long");
                }
                if is_hard_broken(line, next, room) {
                    complain("broken by hand");
                }
                if is_example(line) {
                    examples += 1;
                    let is_continued = next.starts_with("      ") && !next.trim().is_empty();
                    if is_continued != line.ends_with(" \\") {
                        complain("cannot be pasted");
                    }
                }
            }
        }
    }
    assert_eq!(problems, Vec::<String>::new(), "{}", problems.len());
    assert!(examples >= examples_min, "{examples} examples");
}

fn assert_grouped(program: &Command, groups: &[(&str, &[&str])]) {
    let shown = program.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let mut shown: Vec<&str> = shown.map(Command::get_name).chain(["help"]).collect();
    let mut grouped: Vec<&str> = groups.iter().flat_map(|(_, names)| *names).copied().collect();
    shown.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(shown, grouped);
}

/// Whether a line of help is the first one of an example.
fn is_example(line: &str) -> bool {
    let command = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
    let program = command.and_then(|words| words.split_whitespace().next());
    matches!(program, Some("flashflow" | "flashflow-lab" | "flashflow-archive"))
}
