//! Manual pages for man, and completions for shells, as files. Packages are made with it.

use crate::error::Error;
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use terminal::{Exit, Output};

/// Write manual pages and shell completions of this program.
///
/// A page for the program and one for each of its commands, in the format of man, and completions for bash, zsh and fish.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 done; 1 failed; 2 wrong arguments.")]
pub struct ManualOptions {
    /// Folder, which gets the folders man1 and completions.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl ManualOptions {
    /// Writes the pages and completions of this command line.
    ///
    /// # Errors
    /// [`Error::File`] if a file or folder cannot be written.
    pub fn run(&self, command: &Command, output: &Output) -> Result<Exit, Error> {
        let (pages, completions) = (self.out.join("man1"), self.out.join("completions"));
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source: io::Error| Error::File { what: "write", path, source }
        };
        for folder in [&pages, &completions] {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        let mut program = command.clone().disable_help_subcommand(true);
        program.build();
        write_pages(&program, &pages).map_err(failed(&pages))?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let (mut command, name) = (command.clone(), command.get_name().to_owned());
            let written = clap_complete::generate_to(shell, &mut command, name, &completions);
            written.map_err(failed(&completions))?;
        }
        let folders = format!("{}\n{}", pages.display(), completions.display());
        let value = || json!({"type": "manual", "pages": pages, "completions": completions});
        output.result(folders, value);
        Ok(Exit::Done)
    }
}

/// A page for the command and one for each below it, but for those that are hidden.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write_pages(below, folder)?;
    }
    // In paragraphs, as the library has them, examples would be one long line.
    let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().after_help(Resettable::Reset));
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend(sections(&more).into_bytes());
    fs::write(folder.join(man.get_filename()), page)
}

/// What follows the options in help, as the sections that man-pages(7) names, in its order.
fn sections(text: &str) -> String {
    let [mut status, mut notes, mut examples] = [const { String::new() }; 3];
    for paragraph in text.split("\n\n").map(|it| it.trim_end_matches('\n')) {
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
    all.map(|(heading, text)| format!(".SH \"{heading}\"\n{text}")).collect()
}

/// A paragraph that man fills.
fn filled(text: &str) -> String {
    format!(".PP\n{}", escaped(text))
}

/// Lines in which nothing is a macro, an escape or a hyphen (man-pages(7)).
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
    fn help_becomes_sections_and_nothing_in_it_is_a_macro() {
        let text =
            "Examples:\n  run --once \\\n.SH no\n'quoted'\n\nIt runs.\n\nExit status: 0 done.";
        let expected = ".SH \"EXIT STATUS\"\n.PP\n0 done.\n.SH \"NOTES\"\n.PP\nIt runs.\n\
                        .SH \"EXAMPLES\"\n.\\\" Examples, whose lines stay lines.\n.nf\n  run \\-\\-once \\e\n\\&.SH no\n\\&'quoted'\n.fi\n";
        assert_eq!(sections(text), expected);
    }
}
