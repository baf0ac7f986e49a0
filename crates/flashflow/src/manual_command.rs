//! `flashflow manual`: pages for man, and completions for shells. Packages are made with it.

use crate::cli::Cli;
use crate::error::Error;
use clap::builder::Resettable;
use clap::{Args, Command, CommandFactory as _};
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
#[command(after_help = "Examples:
  flashflow manual --out manual
  man ./manual/man1/flashflow-coordinator.1

Exit status: 0 done; 1 failed; 2 wrong arguments.")]
pub(crate) struct ManualOptions {
    /// Folder, which gets the folders man1 and completions.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(options: &ManualOptions, output: &Output) -> Result<Exit, Error> {
    let (pages, completions) = (options.out.join("man1"), options.out.join("completions"));
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source: io::Error| Error::File { what: "write", path, source }
    };
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    write_pages(&program, &pages).map_err(failed(&pages))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut command = Cli::command();
        let written = clap_complete::generate_to(shell, &mut command, "flashflow", &completions);
        written.map_err(failed(&completions))?;
    }
    let told = format!("{}\n{}", pages.display(), completions.display());
    output.result(told, || json!({"type": "manual", "pages": pages, "completions": completions}));
    Ok(Exit::Done)
}

/// A page for the command and one for each below it, but for those that are hidden.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write_pages(below, folder)?;
    }
    // In paragraphs, as the library has them, examples would be one long line.
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().after_help(Resettable::Reset));
    let mut page = Vec::new();
    man.render(&mut page)?;
    if !notes.is_empty() {
        page.extend(as_it_stands("NOTES", &notes).into_bytes());
    }
    fs::write(folder.join(man.get_filename()), page)
}

/// A section of a page whose lines stay lines.
fn as_it_stands(heading: &str, text: &str) -> String {
    let mut section = format!(".SH {heading}\n.nf\n");
    for line in text.lines() {
        // `man-pages(7)`: what would be a macro, an escape or a hyphen.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        section += &format!("{guard}{line}\n");
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines_and_nothing_in_them_is_a_macro() {
        let text = "Examples:\n  run --once \\\n.SH no\n'quoted'";
        let page = as_it_stands("NOTES", text);
        let expected =
            ".SH NOTES\n.nf\nExamples:\n  run \\-\\-once \\e\n\\&.SH no\n\\&'quoted'\n.fi\n";
        assert_eq!(page, expected);
    }
}
