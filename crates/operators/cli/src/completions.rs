//! Completions for shells.

use clap::{Args, Command};
use clap_complete::Shell;
use std::io::{self, Write as _};
use terminal::{Exit, Output};

/// Examples for the program `name`.
pub(crate) fn after_help(name: &str) -> String {
    format!(
        "Examples:
  {name} completions bash > ~/.local/share/bash-completion/completions/{name}
  {name} completions zsh > ~/.zfunc/_{name}
  {name} completions fish > ~/.config/fish/completions/{name}.fish

The Debian package installs them for bash, zsh and fish.

Exit status: 0 done; 1 cannot write to standard output; 2 wrong arguments."
    )
}

/// Print completions of commands and options for a shell.
#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// The shell.
    shell: Shell,
}

impl CompletionsOptions {
    /// Prints the completions of this command line.
    #[must_use]
    pub fn run(&self, mut command: Command, output: &Output) -> Exit {
        let (mut text, name) = (Vec::new(), command.get_name().to_owned());
        clap_complete::generate(self.shell, &mut command, name, &mut text);
        let mut stdout = io::stdout().lock();
        output.keep_account(stdout.write_all(&text).and_then(|()| stdout.flush()));
        Exit::Done
    }
}
