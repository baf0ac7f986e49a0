//! A program from its arguments to its exit status.

use crate::error::Error;
use crate::{completions, help};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, Subcommand};
use std::error::Error as StdError;
use std::io::{self, Write as _};
use std::process::ExitCode;
use terminal::{Exit, Interrupt, Output};

/// The commit that the program is built from. It ends in `-dirty` if the sources differed from that commit.
pub const COMMIT: &str = env!("FLASHFLOW_COMMIT");
/// The target that the program is built for, such as `x86_64-unknown-linux-gnu`.
pub const TARGET: &str = env!("FLASHFLOW_TARGET");
/// The version, the commit, and the target.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("FLASHFLOW_COMMIT"),
    ", ",
    env!("FLASHFLOW_TARGET"),
    ")"
);

/// The commands of a program.
pub trait Commands: Subcommand {
    /// The program's name.
    const NAME: &'static str;
    /// A description in one sentence.
    const ABOUT: &'static str;
    /// The rest of the description.
    const LONG_ABOUT: &'static str;
    /// Examples.
    const EXAMPLES: &'static str;
    /// The commands by purpose: a heading and names. Each command that is not hidden is in one group.
    const GROUPS: &'static [(&'static str, &'static [&'static str])];
    /// Commands that read a configuration, each with its sample, which lists every setting.
    const CONFIGURATIONS: &'static [(&'static str, &'static str)] = &[];

    /// Runs the command.
    ///
    /// # Errors
    /// The error of the command.
    fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error>;

    /// Whether this error of a library is caused by the command line, so that the exit status is 2.
    fn is_usage(error: &(dyn StdError + Send + Sync + 'static)) -> bool;
}

/// The command line of a program, with formatted help.
#[must_use]
pub fn command<C: Commands>() -> Command {
    let json = Arg::new("json").long("json").global(true).action(ArgAction::SetTrue);
    let tied = Arg::new("tied").long("tied").global(true).action(ArgAction::SetTrue).hide(true);
    let command = Command::new(C::NAME)
        .version(VERSION)
        .about(C::ABOUT)
        .long_about(format!("{}\n\n{}", C::ABOUT, C::LONG_ABOUT))
        .after_help(C::EXAMPLES)
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(json.help("Print results as JSON, one value per line"))
        .arg(
            tied.help("End when standard input ends, as it does when the parent process is killed"),
        );
    let command = C::augment_subcommands(command).mut_subcommand("completions", |command| {
        command.after_help(completions::after_help(C::NAME))
    });
    let width = terminal_size::terminal_size().map_or(usize::MAX, |(width, _)| width.0.into());
    help::prepared(with_negative_numbers(command), C::GROUPS, width)
}

/// Accepts `-5` as a value, so that the error names the option and its range.
fn with_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_values = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_values)
    });
    command.mut_subcommands(with_negative_numbers)
}

/// Runs a program.
#[must_use]
pub fn main<C: Commands>() -> ExitCode {
    let parsed = command::<C>().try_get_matches().and_then(|matches| {
        let [is_json, is_tied] = ["json", "tied"].map(|name| matches.get_flag(name));
        Ok((C::from_arg_matches(&matches)?, is_json, is_tied))
    });
    let (command, is_json, is_tied) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(most_similar_first(error)),
    };
    let output = Output::new(is_json).of_version(VERSION);
    let result = Interrupt::install().map_err(Error::from).and_then(|interrupt| {
        if is_tied {
            interrupt.end_with_stdin();
        }
        command.run(&output, &interrupt)
    });
    match result {
        Ok(_) if output.has_lost() => Exit::Failed.into(),
        Ok(exit) => exit.into(),
        Err(error) => {
            output.error(&error);
            let is_usage = match &error {
                Error::Usage(_) => true,
                Error::Other(error) => is_usage::<C>(&**error),
                _ => false,
            };
            if is_usage { Exit::Misused } else { Exit::Failed }.into()
        }
    }
}

fn is_usage<C: Commands>(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<terminal::Error>().is_some_and(terminal::Error::is_usage)
        || C::is_usage(error)
}

/// clap suggests commands in ascending order of similarity.
fn most_similar_first(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(mut commands)) =
        error.remove(ContextKind::SuggestedSubcommand)
    {
        commands.reverse();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(commands));
    }
    error
}

/// Prints help, the version, or an error in the arguments.
fn usage(error: clap::Error) -> ExitCode {
    let output = Output::new(false);
    if error.use_stderr() {
        error.exit();
    }
    // `print` buffers nothing that a full disk could refuse later.
    output.keep_account(error.print().and_then(|()| io::stdout().flush()));
    if output.has_lost() { Exit::Failed.into() } else { Exit::Done.into() }
}
