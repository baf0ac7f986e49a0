//! `flashflow measure`: measures one relay.

use authority::one_relay::{self, Request};
use authority::{Config, RemoteTeam, events, shell};
use clap::Args;
use cli::Error;
use coordinator::period::{Event, Period, Router};
use coordinator::{Consent, Defences, Inconclusive, Mode, Params, ROUNDS_ALLOWED, Verdict};
use documents::Source;
use link::unix_time_s;
use measurer::LocalTeam;
use onion::Rate;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use report::RelayReport;
use schemars::JsonSchema;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use terminal::measuring;
use terminal::{Exit, Interrupt, Output, TeamArguments, socket_address};

/// Measure the capacity of one relay.
///
/// The relay is found in a consensus (--authority or --consensus) by fingerprint or nickname, or given by address and fingerprint
/// (--address).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow measure relay1 --authority 127.0.0.1:7001
  flashflow measure MyRelay --consensus cached-consensus --opt-in mine.txt
  flashflow measure 8EE1049573B166736DA32BD3F9BB1C1DAB4ECB53 --address 127.0.0.1:9001

A measurement floods the relay. A relay on a public address must have opted in: --opt-in names a file with its fingerprint.

Exit status: 0 conclusive; 1 failed; 2 wrong arguments; 3 a lower bound only; 130 interrupted.")]
pub(crate) struct MeasureOptions {
    /// Fingerprint (40 hex digits) or, with a consensus, nickname.
    pub(crate) relay: String,
    /// Directory authority or cache to fetch the consensus from.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["consensus", "address"], value_parser = socket_address)]
    pub(crate) authority: Option<SocketAddr>,
    /// File with a consensus, such as tor's `cached-consensus`.
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    pub(crate) consensus: Option<PathBuf>,
    /// Address of the relay, instead of a consensus.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    pub(crate) address: Option<SocketAddr>,
    /// Ed25519 identity of the relay in base64. If it is given, the relay must prove it.
    #[arg(long, value_name = "BASE64", requires = "address")]
    pub(crate) ed25519: Option<String>,
    /// File with the fingerprints of relays whose operators agreed to be measured.
    #[arg(long, value_name = "FILE")]
    pub(crate) opt_in: Option<PathBuf>,
    /// The relay has no clients, such as one that is not in a consensus yet. Without this, an estimate in transit is a lower
    /// bound, since clients' traffic is not counted.
    #[arg(long)]
    pub(crate) no_clients: bool,
    /// Also print what held back the sockets of each measurer, according to its kernel.
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) team: TeamArguments,
    /// Measure with the measurers of a coordinator's configuration, instead of threads of this process.
    #[arg(long = "team", value_name = "FILE")]
    pub(crate) coordinator: Option<PathBuf>,
}

pub(crate) fn run(
    options: &MeasureOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let relay = relay(options, output)?;
    let consent = match &options.opt_in {
        Some(list) => measurer::read_opt_in(Consent::local_only(), list)?,
        None => Consent::local_only(),
    };
    // Before any key is made or a measurer contacted.
    consent.check(relay.router.ids.rsa, relay.router.address.ip(), unix_time_s())?;
    let Relay { router, defences, source } = relay;
    let id = router.ids.rsa;
    // The sessions end when the team is dropped.
    let mut coordinator_folder = None;
    let (team, echo_rounds, key_seed, takes_part) = match &options.coordinator {
        None => {
            let team = Team::Local(measuring::local_team(&options.team, output)?);
            (team, ROUNDS_ALLOWED, shell::random()?, false)
        }
        Some(path) => {
            measuring::check(&options.team)?;
            let config = Config::read(path)?;
            config.check_stop_file()?;
            coordinator_folder = Some(config.out.clone());
            let takes_part = config.takes_part(id, &router.nickname);
            let team = Team::Remote(Box::new(RemoteTeam::new(&config)?));
            (team, config.echo_rounds, config.secret.seed(), takes_part)
        }
    };
    interrupt.wind_up_in_order();
    // One line per second, also in a log.
    output.log_progress();
    let params = measuring::params(&options.team);
    let request = Request {
        router,
        source,
        defences,
        mode: if takes_part { Mode::Echo } else { Mode::Transit },
        guess: Rate::from_mbit_per_s(options.team.guess),
        params: Params { may_have_clients: !options.no_clients, ..params },
        path: None,
        always_authenticate: options.team.authenticate,
        measurers_min: 1,
        repeats_failures: true,
        key_seed,
        echo_rounds,
        consent,
        coordinator_folder,
    };
    let mut show = |period: &Period, event| team.show(period, event, output);
    let record = one_relay::measure(team.team(), request, &mut show, interrupt.requested())?;
    output.quiet();
    let Some(record) = record else { return Ok(output.interrupted()) };
    let report = RelayReport::from(&record);
    let relays = std::slice::from_ref(&report);
    let mut parts = vec![report::table(relays)];
    parts.extend(options.verbose.then(|| report::sockets(relays)).filter(|text| !text.is_empty()));
    parts.extend(store::explain_record(&record));
    parts.extend(advice(record.verdict(), &report));
    output.result(parts.join("\n"), || report.value("summary"));
    Ok(match record.verdict() {
        Verdict::Conclusive => Exit::Done,
        Verdict::LowerBound(_) => Exit::Inconclusive,
        Verdict::Failed(_) => Exit::Failed,
    })
}

/// A line with `--json`, in addition to those of each second.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "a schema: a report prints itself")]
pub(crate) enum Line {
    /// The result.
    Summary(RelayReport),
}

/// What the operator of the relay can do about a result without an upper bound.
fn advice(verdict: Verdict<'_>, report: &RelayReport) -> Option<String> {
    let Verdict::LowerBound(reason) = verdict else { return None };
    let twice = 2.0 * report.estimate_mbit_per_s.unwrap_or_default();
    let remedy = match reason {
        Inconclusive::TeamTooSmall { needed, .. } => format!(
            "Measure again with measurers of {needed} or more in all: a machine with a faster link, or several (--team)."
        ),
        Inconclusive::RoundLimit { .. } | Inconclusive::LoadTooSmall { .. } => {
            format!("Measure again with --guess {twice:.0}.")
        }
        Inconclusive::MeasurerLimited { .. } | Inconclusive::QueueOfOne { .. } => {
            "Measure again while this machine has nothing else to do, or from a faster machine, or several (--team)."
                .to_owned()
        }
        Inconclusive::ClientsUnknown => {
            "If it has no clients, for example because no consensus lists it yet, measure again with --no-clients. Else its capacity is \
             this and what its clients used in the same seconds."
                .to_owned()
        }
        Inconclusive::PathLimited { .. }
        | Inconclusive::PathSettling { .. }
        | Inconclusive::PathUnknown { .. } => {
            "Measure again from a machine that is nearer to the relay, or with more --sockets.".to_owned()
        }
        Inconclusive::Contended { .. } => {
            "Others use the relay. Measure again at other times: the largest result counts.".to_owned()
        }
        _ => "Measure again when the relay, its machine and this machine have little else to do.".to_owned(),
    };
    Some(format!("The relay can carry at least this. {remedy}"))
}

/// The measurers.
enum Team {
    /// Threads of this process.
    Local(LocalTeam),
    /// The measurers of a coordinator's configuration.
    Remote(Box<RemoteTeam>),
}

impl Team {
    fn team(&self) -> &dyn shell::Team {
        match self {
            Self::Local(team) => team,
            Self::Remote(team) => &**team,
        }
    }

    fn show(&self, period: &Period, event: Event, output: &Output) {
        let address = |id| match self {
            Self::Local(_) => None,
            Self::Remote(team) => team.address(id),
        };
        match (event, self) {
            // The table shows the result, and a local team has shown its capacity.
            (Event::RelayDone(_) | Event::Planned { .. }, _)
            | (Event::Measurer(_, Ok(_)), Self::Local(_)) => {}
            (event, _) => events::show(period, event, address, output),
        }
    }
}

/// The relay to measure.
struct Relay {
    router: Router,
    defences: Defences,
    /// The source of its address.
    source: String,
}

/// Finds the relay that the arguments name.
fn relay(options: &MeasureOptions, output: &Output) -> Result<Relay, Error> {
    if let Some(address) = options.address {
        let rsa = options.relay.parse::<RsaId>().map_err(|error| {
            Error::Usage(format!("with --address, the relay is named by fingerprint: {error}"))
        })?;
        let ed25519 = options.ed25519.as_deref().map(str::parse::<Ed25519Id>).transpose();
        let ed25519 = ed25519.map_err(|error| Error::Usage(format!("--ed25519: {error}")))?;
        let ids = RelayIds { rsa, ed25519 };
        let router = Router {
            ids,
            nickname: rsa.to_string(),
            address,
            is_authority: false,
            is_running: true,
            weight_kb_s: None,
        };
        let source = "--address".to_owned();
        return Ok(Relay { router, defences: Defences::default(), source });
    }
    let source = match (options.authority, &options.consensus) {
        (Some(authority), _) => Source::Authority(authority),
        (None, Some(path)) => Source::File(path.clone()),
        (None, None) => {
            let message = "no relay address: give --authority, --consensus or --address";
            return Err(Error::Usage(message.to_owned()));
        }
    };
    if matches!(source, Source::Authority(_)) {
        output.doing(format!("fetching {source}"));
    }
    let consensus = source.consensus(unix_time_s())?;
    let router = consensus.find(&options.relay);
    let router = router.map_err(|error| Error::Failed(format!("{source}: {error}")))?;
    let router = authority::router(router);
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    Ok(Relay { router, defences, source: source.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_without_an_upper_bound_says_what_to_do() {
        let report = RelayReport { estimate_mbit_per_s: Some(18.4), ..RelayReport::default() };
        let rate = Rate::from_mbit_per_s(150.0);
        for (reason, remedy) in [
            (
                Inconclusive::TeamTooSmall { needed: rate, available: rate },
                "of 150.00 Mbit/s or more",
            ),
            (Inconclusive::RoundLimit { rounds: 12 }, "--guess 37"),
            (Inconclusive::ClientsUnknown, "--no-clients"),
            (Inconclusive::QueueOfOne { queue_ms: 80, next: None }, "--team"),
            (Inconclusive::PathUnknown { rtt_ms: 90, next: None }, "--sockets"),
            (Inconclusive::Unsteady { mean: 1, median: 2 }, "little else to do"),
        ] {
            let text = advice(Verdict::LowerBound(&reason), &report).expect("a lower bound");
            assert!(text.starts_with("The relay can carry at least this. "), "{text}");
            assert!(text.contains(remedy), "{text}");
        }
        assert_eq!(advice(Verdict::Conclusive, &report), None);
    }
}
