//! `flashflow completions`: completions for shells.

use crate::cli;
use clap::Args;
use clap_complete::Shell;
use std::io::{self, Write as _};
use terminal::{Exit, Output};

/// Print completions of commands and options for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow completions bash > ~/.local/share/bash-completion/completions/flashflow
  flashflow completions zsh > ~/.zfunc/_flashflow
  flashflow completions fish > ~/.config/fish/completions/flashflow.fish

The Debian package installs them for bash, zsh and fish.

Exit status: 0 done; 1 standard output takes no more; 2 wrong arguments.")]
pub(crate) struct CompletionsOptions {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(options: &CompletionsOptions, output: &Output) -> Exit {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut cli::command(), "flashflow", &mut text);
    let mut stdout = io::stdout().lock();
    output.keep_account(stdout.write_all(&text).and_then(|()| stdout.flush()));
    Exit::Done
}
