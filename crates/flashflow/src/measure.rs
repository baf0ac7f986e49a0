//! `flashflow measure`: measures one relay.

use authority::{Config, RemoteTeam};
use clap::Args;
use cli::Error;
use coordinator::Verdict;
use link::unix_time_s;
use measurer::{Approach, Consent, Coordinator, Defences, Request, Team, TeamOptions};
use netdoc::consensus::Consensus;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Ed25519Identity, Fingerprint};
use onion::Rate;
use onion::measure::load::Target;
use report::RelayReport;
use std::net::SocketAddr;
use std::path::PathBuf;
use terminal::measuring::{self, Subject};
use terminal::{Exit, Interrupt, Output, TeamArguments, socket_address};

/// Measure the capacity of one relay.
///
/// The relay is found in a consensus (--authority or --consensus) by fingerprint or nickname, or given by address and fingerprint
/// (--address).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow measure relay1 --authority 127.0.0.1:7001
  flashflow measure MyRelay --consensus cached-consensus --opt-in mine.txt
  flashflow measure 8EE1049573B166736DA32BD3F9BB1C1DAB4ECB53 --address 10.0.0.7:9001

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
    let mut subject = subject(options, output)?;
    let consent = match &options.opt_in {
        Some(list) => measurer::read_opt_in(Consent::local_only(), list)?,
        None => Consent::local_only(),
    };
    consent.check(subject.target().ids.rsa, subject.target().address.ip())?;
    // The sessions end when `_remote` is dropped.
    let (mut team, _remote) = match &options.coordinator {
        None => (measuring::team(&options.team, output)?, None),
        Some(path) => {
            let config = Config::read(path)?;
            if config.takes_part(&subject) {
                let coordinator =
                    Coordinator { key_seed: config.secret.seed(), rounds_max: config.echo_rounds };
                subject.request.approach = Approach::Echo(coordinator);
            }
            let (team, remote) = remote_team(options, &config, output)?;
            (team, Some(remote))
        }
    };
    interrupt.wind_up_in_order();
    // A line for each second, also in a log.
    output.log_progress();
    let (_, record) = measuring::measure(&mut team, &subject, None, output, interrupt)?;
    output.quiet();
    if interrupt.is_requested() {
        output.step("interrupted");
        output.record(|| serde_json::json!({"type": "interrupted"}));
        return Ok(Exit::Interrupted);
    }
    let report = RelayReport::from(&record);
    output.result(report::table(std::slice::from_ref(&report)), || report.value("summary"));
    Ok(match record.verdict() {
        Verdict::Conclusive => Exit::Done,
        Verdict::LowerBound(_) => Exit::Inconclusive,
        Verdict::Failed(_) => Exit::Failed,
    })
}

/// The measurers of a coordinator's configuration, with the arguments' parameters.
fn remote_team(
    options: &MeasureOptions,
    config: &Config,
    output: &Output,
) -> Result<(Team, RemoteTeam), Error> {
    measuring::check(&options.team)?;
    let remote = RemoteTeam::new(config)?;
    let mates = remote.mates(&remote.greet(config.params.sockets, output)?);
    let choices = TeamOptions {
        params: measuring::params(&options.team),
        always_authenticate: options.team.authenticate,
        ..TeamOptions::default()
    };
    Ok((Team::of(mates, choices)?, remote))
}

/// Finds the relay that the arguments name.
fn subject(options: &MeasureOptions, output: &Output) -> Result<Subject, Error> {
    let guess = Rate::from_mbit_per_s(options.team.guess);
    if let Some(address) = options.address {
        let fingerprint = options.relay.parse::<Fingerprint>().map_err(|error| {
            Error::Usage(format!("with --address, the relay is named by fingerprint: {error}"))
        })?;
        let ed25519 = options.ed25519.as_deref().map(str::parse::<Ed25519Identity>).transpose();
        let ed25519 = ed25519.map_err(|error| Error::Usage(format!("--ed25519: {error}")))?;
        let ids = Subject::ids(fingerprint, ed25519.map(|id| *id.as_bytes()));
        let request = Request {
            target: Target { address, ids },
            guess,
            defences: Defences::default(),
            approach: Approach::Transit,
        };
        let nickname = fingerprint.to_string();
        return Ok(Subject { nickname, fingerprint, limit: None, request });
    }
    let (what, consensus) = match (&options.authority, &options.consensus) {
        (Some(authority), _) => {
            output.doing(format!("fetching the consensus from {authority}"));
            let text = Fetcher::default().get(*authority, &Resource::Consensus)?;
            let what = format!("the consensus from {authority}");
            let consensus = Consensus::parse(&text)
                .map_err(|error| Error::Failed(format!("{what}: {error}")))?;
            (what, consensus)
        }
        (None, Some(path)) => {
            let consensus = documents::consensus(path, unix_time_s())?;
            (format!("the consensus in {}", path.display()), consensus)
        }
        (None, None) => {
            let message = "no relay address: give --authority, --consensus or --address";
            return Err(Error::Usage(message.to_owned()));
        }
    };
    let router = consensus.find(&options.relay);
    let router = router.map_err(|error| Error::Failed(format!("{what}: {error}")))?;
    let target = Target {
        address: SocketAddr::new(router.address.into(), router.or_port),
        ids: Subject::ids(router.fingerprint, router.ed25519.map(|id| *id.as_bytes())),
    };
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let request = Request { target, guess, defences, approach: Approach::Transit };
    let nickname = router.nickname.to_string();
    Ok(Subject { nickname, fingerprint: router.fingerprint, limit: None, request })
}
