use super::*;
use crate::cli;

#[test]
fn paragraphs_become_lines_and_examples_stay_commands() {
    let text = "Examples:\n  flashflow run --once\n  flashflow run --with 'a long value' \\\n      --and another\n\nA sentence that\n\
                goes on.\nIt ends.\n  a table   of its own\n\nExit status: 0\ndone.";
    let expected = "Examples:\n  flashflow run --once\n  flashflow run --with 'a long value' --and another\n\n\
                    A sentence that goes on. It ends.\n  a table   of its own\n\nExit status: 0 done.";
    assert_eq!(reflow(text), expected);
    assert_eq!(reflow(expected), expected);
}

#[test]
fn a_long_example_is_broken_between_arguments() {
    let text = "  flashflow export --store /var/lib/flashflow/bandwidth/store.db --what seconds --out 'a b.csv' > file";
    let expected = "  flashflow export --store /var/lib/flashflow/bandwidth/store.db \\\n      --what seconds --out 'a b.csv' > file";
    assert_eq!(reflow(text), expected);
    // Also one that somebody has broken without saying so to a shell.
    let text = "  flashflow export --store /var/lib/flashflow/bandwidth/store.db\n      --what seconds --out 'a b.csv' > file";
    assert_eq!(reflow(text), expected);
}

/// The command and all below it, with their names.
fn all(command: &Command) -> Vec<(String, Command)> {
    let mut found = vec![(command.get_name().to_owned(), command.clone())];
    for below in command.get_subcommands() {
        let named = |(name, it): (String, Command)| (format!("{} {name}", command.get_name()), it);
        found.extend(all(below).into_iter().map(named));
    }
    found
}

/// Whether a line was broken although the next word had room: so nobody but its author has broken it.
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

#[test]
fn every_help_fits_its_terminal_with_no_line_broken_by_hand_and_examples_to_paste() {
    let mut problems = Vec::new();
    let mut examples = 0;
    for width in [80, 100, 120] {
        for (name, command) in all(&cli::command()) {
            // The list of commands is as narrow for all.
            let room = if command.get_name() == "flashflow" { NARROW } else { width };
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
                if is_command(line) {
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
    assert!(examples > 100, "{examples} examples");
}

#[test]
fn each_command_is_in_one_group() {
    let command = cli::command();
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    let mut shown: Vec<&str> = shown.map(Command::get_name).chain(["help"]).collect();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    shown.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(shown, grouped);
}
