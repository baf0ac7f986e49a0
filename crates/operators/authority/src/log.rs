//! The log of the daemons, on stderr.
//!
//! Each line has a time and a level; `RUST_LOG` selects levels. If stderr is the journal's (systemd sets `JOURNAL_STREAM`), the level
//! becomes the priority of sd-daemon(3), and the time is left to the journal.

use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt;
use terminal::{Output, is_journal};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Options of the log.
#[derive(Clone, Copy, Debug, Args)]
pub struct LogArguments {
    /// Format of the log: lines for people, or a JSON object per line.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// A format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, text, and fields.
    Text,
    /// Objects with `timestamp`, `level`, `message` and fields.
    Json,
}

/// Starts to log, at the level of `RUST_LOG` or INFO. Lines do not break the progress display of `output`.
pub fn start(LogArguments { log_format }: LogArguments, output: &Output) {
    let filter =
        EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let stream = output.error_stream();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || stream.clone())
        .with_ansi(false)
        .with_target(false);
    // A second call has no effect.
    let _ = match (log_format, is_journal()) {
        (LogFormat::Text, false) => log.try_init(),
        (LogFormat::Text, true) => log
            .map_event_format(|format| WithPriority(format.without_time().with_level(false)))
            .try_init(),
        (LogFormat::Json, is_journal) => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            if is_journal { log.map_event_format(WithPriority).try_init() } else { log.try_init() }
        }
    };
}

/// Prints the result of a daemon, such as the address at which it listens: on stdout for programs, and in the log where both are one stream.
pub fn announce<V: Serialize>(output: &Output, text: impl fmt::Display, value: impl FnOnce() -> V) {
    output.announce(text, value, |text| tracing::info!("{text}"));
}

/// Lines that begin with a priority in angle brackets.
struct WithPriority<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithPriority<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}
