//! `flashflow completions`: completions for shells.

use crate::cli;
use clap::Args;
use clap_complete::Shell;
use std::io::{self, Write as _};
use terminal::Exit;

/// Print completions of commands and options for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow completions bash > ~/.local/share/bash-completion/completions/flashflow
  flashflow completions zsh > ~/.zfunc/_flashflow
  flashflow completions fish > ~/.config/fish/completions/flashflow.fish

The Debian package installs them for bash, zsh and fish.

Exit status: 0 done; 2 wrong arguments.")]
pub(crate) struct CompletionsOptions {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(options: &CompletionsOptions) -> Exit {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut cli::command(), "flashflow", &mut text);
    // A reader that went away, as `head` does, is no error of ours.
    let _ = io::stdout().write_all(&text);
    Exit::Done
}
