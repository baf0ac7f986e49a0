//! Formats help: text fits terminals of 80 columns and more, examples can be pasted, and commands are grouped.

use clap::Command;
use std::fmt::Write as _;

/// The width of examples, and of the list of commands on wider terminals.
const NARROW: usize = 80;
/// A list of commands has columns, which need room.
const LIST_MIN: usize = 30;

/// Formats the help of a command and its subcommands: reflows text, and groups the list of commands. `width` is that of the terminal.
pub(crate) fn prepared(command: Command, groups: &[(&str, &[&str])], width: usize) -> Command {
    let command = reflowed(command);
    let list = list(&command, groups, width.clamp(LIST_MIN, NARROW));
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{list}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn reflowed(command: Command) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let command = match text {
        Some(text) => command.after_help(reflow(&text)),
        None => command,
    };
    command.mut_subcommands(reflowed)
}

/// The groups, each command with the first sentence of its description.
fn list(command: &Command, groups: &[(&str, &[&str])], width: usize) -> String {
    let mut list = String::new();
    for (heading, names) in groups {
        let _cannot_fail = writeln!(list, "{heading}:");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            // clap adds the command `help` later.
            let about =
                about.map_or_else(|| "Print the help of a command".to_owned(), ToString::to_string);
            let mut line = format!("  {name:<14}");
            for word in about.split_whitespace() {
                if line.chars().count() + 1 + word.chars().count() > width {
                    let _cannot_fail = writeln!(list, "{}", line.trim_end());
                    line = " ".repeat(16);
                }
                if !line.ends_with("  ") {
                    line.push(' ');
                }
                line += word;
            }
            let _cannot_fail = writeln!(list, "{line}");
        }
        list.push('\n');
    }
    list.truncate(list.trim_end().len());
    list + "\n"
}

/// Joins each paragraph to one line, which clap wraps, and breaks examples with backslashes.
pub(crate) fn reflow(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_example = false;
    for line in text.lines() {
        let (words, is_indented) = (line.trim(), line.starts_with(' '));
        // Lines that are indented deeper than the first line of an example continue it.
        let continues = match lines.last() {
            Some(last) if last.is_empty() || words.is_empty() => false,
            Some(_) if is_example => line.starts_with("    "),
            Some(last) => !is_indented && !last.starts_with(' '),
            None => false,
        };
        let words = words.strip_suffix(" \\").unwrap_or(words);
        match lines.last_mut().filter(|_| continues) {
            Some(last) => {
                last.push(' ');
                last.push_str(words);
            }
            None if is_command(line) => lines.push(format!("  {words}")),
            None => lines.push(line.trim_end().to_owned()),
        }
        is_example = is_command(line) || (is_example && continues);
    }
    let lines = lines.iter().map(|line| if is_command(line) { broken(line) } else { line.clone() });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a line is the first one of an example: a command, optionally after variable assignments.
fn is_command(line: &str) -> bool {
    let Some(command) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else {
        return false;
    };
    let mut words = command.split_whitespace().skip_while(|word| {
        let name = word.split('=').next().unwrap_or_default();
        word.contains('=') && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    });
    matches!(words.next(), Some("flashflow" | "flashflow-lab" | "man" | "sudo" | "ssh" | "source"))
}

/// An example broken into lines that a shell joins.
fn broken(command: &str) -> String {
    let room = NARROW - 2;
    let mut lines = vec!["  ".to_owned()];
    let mut quote = None;
    let mut word = String::new();
    let mut words = Vec::new();
    for letter in command.trim().chars() {
        match (quote, letter) {
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.push(letter);
            }
            (Some(open), _) => {
                quote = (letter != open).then_some(open);
                word.push(letter);
            }
            (None, _) => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    let mut words = words.into_iter().peekable();
    while let Some(mut word) = words.next() {
        // An option and its value stay together.
        if word.starts_with('-')
            && let Some(value) = words.next_if(|value| !value.starts_with(['-', '>', '|', '<']))
        {
            word = format!("{word} {value}");
        }
        let Some(line) = lines.last_mut() else { break };
        let is_first = line.trim().is_empty();
        if !is_first && line.chars().count() + 1 + word.chars().count() > room {
            line.push_str(" \\");
            lines.push(format!("      {word}"));
        } else {
            if !is_first {
                line.push(' ');
            }
            line.push_str(&word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
