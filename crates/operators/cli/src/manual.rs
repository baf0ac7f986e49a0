//! Writes manual pages and shell completions to files, for packages.

use crate::error::Error;
use crate::program::{self, Commands};
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use schemars::JsonSchema;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use terminal::{Exit, Output};

/// Write manual pages and shell completions of this program.
///
/// Writes a page for the program, for each command and for each configuration file, and completions for bash, zsh and fish.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 done; 1 failed; 2 wrong arguments.")]
pub struct ManualOptions {
    /// Output folder. Its subfolders are man1, man5 and completions.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// What the command prints with `--json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ManualLine {
    /// All files are written.
    Manual {
        /// The folder of the pages of commands.
        pages: PathBuf,
        /// The folder of the pages of configuration files.
        configurations: PathBuf,
        /// The folder of completions.
        completions: PathBuf,
    },
}

impl ManualOptions {
    /// Writes the pages and completions of this command line.
    ///
    /// # Errors
    /// [`Error::File`] if a file or folder cannot be written.
    pub fn run<C: Commands>(&self, output: &Output) -> Result<Exit, Error> {
        let command = program::command::<C>();
        let (pages, completions) = (self.out.join("man1"), self.out.join("completions"));
        let configurations = self.out.join("man5");
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source: io::Error| Error::File { what: "write", path, source }
        };
        for folder in [&pages, &configurations, &completions] {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        let mut program = command.clone().disable_help_subcommand(true);
        program.build();
        write_pages(&program, &[], C::CONFIGURATIONS, &pages).map_err(failed(&pages))?;
        for (name, sample) in C::CONFIGURATIONS {
            let path = configurations.join(format!("{}-{name}.toml.5", C::NAME));
            fs::write(&path, configuration_page(C::NAME, name, sample)).map_err(failed(&path))?;
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let (mut command, name) = (command.clone(), command.get_name().to_owned());
            let written = clap_complete::generate_to(shell, &mut command, name, &completions);
            written.map_err(failed(&completions))?;
        }
        let folders =
            [&pages, &configurations, &completions].map(|folder| folder.display().to_string());
        let folders = folders.join("\n");
        output.result(folders, || ManualLine::Manual { pages, configurations, completions });
        Ok(Exit::Done)
    }
}

/// Writes the pages of a command and its subcommands, except hidden ones. `above` are the pages of its parent commands.
fn write_pages(
    command: &Command,
    above: &[String],
    configurations: &[(&str, &str)],
    folder: &Path,
) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut neighbours = above.to_vec();
    let path = [above, &[format!("{name}(1)")]].concat();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, &path, configurations, folder)?;
        neighbours.push(format!("{}(1)", below.get_display_name().unwrap_or(below.get_name())));
    }
    let mut files = String::new();
    for (daemon, _) in configurations.iter().filter(|(daemon, _)| *daemon == command.get_name()) {
        neighbours.push(format!("{name}.toml(5)"));
        files = files_of(daemon);
    }
    // clap_mangen would join the lines of examples.
    let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().after_help(Resettable::Reset));
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend(sections(&more).into_bytes());
    page.extend(files.into_bytes());
    if !neighbours.is_empty() {
        page.extend(section("SEE ALSO", &filled(&neighbours.join(", "))).into_bytes());
    }
    fs::write(folder.join(man.get_filename()), page)
}

/// The text after the options, as the sections of man-pages(7) in their order.
fn sections(text: &str) -> String {
    let [mut status, mut notes, mut examples] = [const { String::new() }; 3];
    for paragraph in text.split("\n\n").map(|paragraph| paragraph.trim_end_matches('\n')) {
        if let Some(text) = paragraph.strip_prefix("Exit status: ") {
            status += &filled(text);
        } else if paragraph.starts_with("Example") {
            let text = paragraph.split_once('\n').map_or("", |(_, text)| text);
            examples +=
                &format!(".\\\" Examples, whose lines stay lines.\n.nf\n{}.fi\n", escaped(text));
        } else if paragraph.lines().any(|line| line.starts_with(' ')) {
            notes += &format!(".PP\n.nf\n{}.fi\n", escaped(paragraph));
        } else if !paragraph.is_empty() {
            notes += &filled(paragraph);
        }
    }
    let all = [("EXIT STATUS", status), ("NOTES", notes), ("EXAMPLES", examples)];
    let all = all.into_iter().filter(|(_, text)| !text.is_empty());
    all.map(|(heading, text)| section(heading, &text)).collect()
}

fn section(heading: &str, text: &str) -> String {
    format!(".SH \"{heading}\"\n{text}")
}

/// The paths of a daemon's configuration and its sample in the package.
fn files_of(daemon: &str) -> String {
    let files = [
        (format!("/etc/flashflow/{daemon}.toml"), "The configuration that the service reads."),
        (
            format!("/usr/share/doc/flashflow/examples/{daemon}.toml"),
            "A sample with every setting.",
        ),
    ];
    let files = files.map(|(path, text)| format!(".TP\n{}{}", escaped(&path), escaped(text)));
    section("FILES", &files.concat())
}

/// The page of a configuration file, made from its sample: comments become text, settings remain lines.
fn configuration_page(program: &str, daemon: &str, sample: &str) -> String {
    let mut text = String::new();
    for paragraph in sample.split("\n\n") {
        let is_comment = |line: &&str| line.starts_with('#') && !line.starts_with("#:");
        let comments: Vec<&str> = paragraph
            .lines()
            .filter(is_comment)
            .map(|line| line.trim_start_matches(['#', ' ']))
            .collect();
        let settings: Vec<&str> = paragraph.lines().filter(|line| !is_comment(line)).collect();
        if !comments.is_empty() {
            text += &filled(&comments.join("\n"));
        }
        if !settings.is_empty() {
            text += &format!(".PP\n.nf\n.RS\n{}.RE\n.fi\n", escaped(&settings.join("\n")));
        }
    }
    let name = format!("{program}-{daemon}.toml");
    [
        format!(".TH {name} 5\n"),
        section("NAME", &escaped(&format!("{name} - configuration of {program} {daemon}"))),
        section("DESCRIPTION", &text),
        files_of(daemon),
        section("SEE ALSO", &filled(&format!("{program}-{daemon}(1)"))),
    ]
    .concat()
}

/// A paragraph that man fills.
fn filled(text: &str) -> String {
    format!(".PP\n{}", escaped(text))
}

/// Escapes macros, backslashes and hyphens (man-pages(7)).
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        all += &format!("{guard}{line}\n");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_becomes_sections_with_escaped_text() {
        let text =
            "Examples:\n  run --once \\\n.SH no\n'quoted'\n\nIt runs.\n\nExit status: 0 done.";
        let expected = ".SH \"EXIT STATUS\"\n.PP\n0 done.\n.SH \"NOTES\"\n.PP\nIt runs.\n\
                        .SH \"EXAMPLES\"\n.\\\" Examples, whose lines stay lines.\n.nf\n  run \\-\\-once \\e\n\\&.SH no\n\\&'quoted'\n.fi\n";
        assert_eq!(sections(text), expected);
    }
}
