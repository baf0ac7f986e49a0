//! `flashflow-lab experiment speed-test`: observed bandwidths in relays' descriptors before and after a campaign.

mod results;

use crate::common::{Session, mbit, values_or};
use crate::error::{Error, Result};
use crate::grid::{self, Row, Undivided};
use crate::reporting::{claim_holds, list, parameter, rule};
use crate::testbed::{Testbed, params, wait_until_known};
use crate::{measuring, private_network};
use authority::one_relay::Request;
use clap::Args;
use coordinator::Params;
use lab::load::{ClientLoad, ClientTraffic};
use lab::{Network, NetworkSpec, OwnRelay, RelaySpec};
use link::unix_time_s;
use netdoc::descriptor;
use netdoc::fetch::{Fetcher, Resource};
use onion::identity::RsaId;
use onion::measure::load::Target;
use onion::{Duration, Rate};
use report::experiment::{ExperimentReport, Promise};
use results::{Claim, Observed};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Do relays advertise more after they were measured?
///
/// A private network has C tor and FlashFlow relays, all with little client traffic. Half of each are measured: C tor in transit,
/// FlashFlow by echo. Then the observed bandwidths in all new descriptors are compared with the relays' limits. C tor counts
/// a day only when it is over, so the C tor relays start with the bandwidth history of an earlier run, whose day ends soon
/// after the campaign.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment speed-test --quick --out results")]
pub(super) struct Options {
    /// Limits of relays in Mbit/s, 20 or more; 20,40,80 by default, 20 with --quick. Each limit has two C tor and two
    /// FlashFlow relays.
    #[arg(long, value_name = "MBIT,...", value_delimiter = ',', value_parser = mbit)]
    limits: Vec<f64>,
    /// Seconds of a measurement, 12 to 60. A relay's observed bandwidth is the mean of ten seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(12..=60))]
    seconds: u32,
}

const LIMITS: [f64; 3] = [20.0, 40.0, 80.0];
const LIMITS_QUICK: [f64; 1] = [20.0];

/// Client traffic through each relay, as a share of its limit.
const CLIENTS: f64 = 0.05;
/// Expected capacity of a relay, divided by its limit.
const GUESS: f64 = 1.2;
/// Capacity of each of the two measurers.
const MEASURER: Rate = Rate::from_bit_per_s(400_000_000);
/// Time until the network is up, its clients send, and our relays are [`SETTLED`].
const START_S: u64 = 150;
/// For a minute after a FlashFlow relay has tested its bandwidth, it publishes each change by a factor of two, perhaps halfway through
/// a measurement. Authorities would then ignore the descriptor after the other half, as only cosmetically different.
const SETTLED: Duration = Duration::from_secs(80);
/// Time for the set-up of a measurement, and for a possible second round.
const EXTRA_S: u64 = 30;
/// A relay of C tor checks each minute whether to replace its descriptor.
const PUBLISHED: Duration = Duration::from_secs(180);
const LISTED: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(2);

/// A relay of the experiment.
struct Subject {
    name: String,
    target: Target,
    limit: Rate,
    is_tor: bool,
    is_measured: bool,
}

/// Not divided: all descriptors are of one campaign on one day of the relays.
struct SpeedTest {
    limits: Vec<f64>,
    seconds: u32,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let limits = values_or(&options.limits, session.common.quick, &LIMITS_QUICK, &LIMITS);
    if let Some(low) = limits.iter().find(|limit| **limit < 20.0) {
        return Err(Error::Usage(format!("--limits {low}: not 20 Mbit/s or more")));
    }
    grid::run_whole(&SpeedTest { limits, seconds: options.seconds }, session)
}

impl Undivided for SpeedTest {
    const NAME: &'static str = "speed-test";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/speed-test.md");

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("seconds of a measurement", self.seconds),
            parameter("load of clients", "a twentieth of the limit"),
            parameter("limits", list(&self.limits)),
        ]
    }

    fn run(&self, session: Session<'_>) -> Result<Option<Row>> {
        campaign(self, session)
    }

    fn conclude(&self, row: &Row, report: &mut ExperimentReport) {
        report.answer = results::answer(&row.data::<Vec<Observed>>().unwrap_or_default());
        let held = claim_holds(&report.cases);
        report.promise = Promise::Decided { held, rule: rule(Self::TEXT) };
    }
}

/// Measures half of the relays, and compares the descriptors of all.
fn campaign(experiment: &SpeedTest, session: Session<'_>) -> Result<Option<Row>> {
    let Session { output, interrupt, .. } = session;
    let SpeedTest { limits, seconds } = experiment;
    let measured = 2 * limits.len() as u64;
    let day_ends_unix_s = unix_time_s() + START_S + measured * (u64::from(*seconds) + EXTRA_S);
    let tor = roles("tor", limits).into_iter().map(|role| RelaySpec {
        state: history_that_ends_at(day_ends_unix_s),
        // As in the public network: in a testing network, the current day counts from its first second.
        extra_torrc: vec!["TestingMinTimeToReportBandwidth 1 day".to_owned()],
        ..RelaySpec::new(&role.name).limited_to(role.limit)
    });
    let network = private_network::start(&NetworkSpec::new(tor.collect()), output)?;
    let testbed = Testbed::with_measurers(2, MEASURER, output)?;
    let (ours, subjects) = subjects(limits, &network, &testbed)?;
    let settled = testbed.clock().now() + SETTLED;
    output.doing("waiting for the consensus that lists all relays");
    let ids: Vec<[u8; 20]> = subjects.iter().map(|subject| subject.target.ids.rsa.0).collect();
    wait_until_known(&network, &ids, &ours, LISTED)?;

    let clients = subjects.iter().map(|subject| {
        ClientLoad::start(
            subject.target,
            ClientTraffic::at(subject.limit.scaled(CLIENTS)),
            testbed.clock(),
        )
    });
    let _clients = clients.collect::<Result<Vec<_>, _>>()?;
    let authority = network.directory_addrs().first().copied();
    let authority =
        authority.ok_or_else(|| Error::Failed("the network has no authority".to_owned()))?;
    output.doing("waiting until our relays have tested their bandwidth");
    interrupt.wait(settled - testbed.clock().now());
    let before = observed(authority, &subjects)?;
    let mut estimates_mbit = BTreeMap::new();
    for subject in subjects.iter().filter(|subject| subject.is_measured) {
        if interrupt.is_requested() {
            return Ok(None);
        }
        output.doing(format!("measuring {}", subject.name));
        let estimate_mbit = measure(&testbed, subject, *seconds, session)?;
        estimates_mbit.insert(subject.name.as_str(), estimate_mbit);
    }
    let after_campaign = observed(authority, &subjects)?;
    if unix_time_s() >= day_ends_unix_s {
        let late = "the campaign ended after the day of the relays' history: this machine is too slow or busy; use fewer --limits";
        return Err(Error::Failed(late.to_owned()));
    }
    ours.iter().for_each(|relay| relay.process.reload());
    output.doing("waiting for the end of the day and new descriptors of all relays");
    let deadline_unix_s = day_ends_unix_s + PUBLISHED.as_secs();
    let mut after = after_campaign.clone();
    while unix_time_s() < deadline_unix_s && !interrupt.is_requested() {
        after = observed(authority, &subjects)?;
        let is_new = |subject: &Subject| {
            let published = |of: &BTreeMap<RsaId, Published>| {
                of.get(&subject.target.ids.rsa).map(|published| published.unix_s)
            };
            published(&after) > published(&after_campaign)
        };
        if subjects.iter().all(is_new) {
            break;
        }
        interrupt.wait(PAUSE);
    }
    let observed = |subject: &Subject| {
        let of = |of: &BTreeMap<RsaId, Published>| {
            of.get(&subject.target.ids.rsa).map(|published| published.observed.as_mbit_per_s())
        };
        Observed {
            name: subject.name.clone(),
            limit_mbit_per_s: subject.limit.as_mbit_per_s(),
            claim: Claim { is_tor: subject.is_tor, is_measured: subject.is_measured },
            measured_mbit_per_s: estimates_mbit.get(subject.name.as_str()).copied().flatten(),
            before_mbit_per_s: of(&before),
            after_campaign_mbit_per_s: of(&after_campaign),
            after_mbit_per_s: of(&after),
        }
    };
    let all: Vec<Observed> = subjects.iter().map(observed).collect();
    let (cases, is_temporary) =
        (all.iter().map(Observed::case).collect(), interrupt.is_requested());
    Ok(Some(Row { cases, is_temporary, ..Row::default() }.with_data(&all)?))
}

/// Role of a relay: measured, or control.
struct Role {
    name: String,
    limit: Rate,
    is_measured: bool,
}

/// Two relays for each limit: one that is measured, and one to compare with.
fn roles(kind: &str, limits_mbit: &[f64]) -> Vec<Role> {
    let of_limit = |mbit: &f64| {
        [("measured", true), ("control", false)].map(|(word, is_measured)| Role {
            name: format!("{kind}{mbit:.0}{word}"),
            limit: Rate::from_mbit_per_s(*mbit),
            is_measured,
        })
    };
    limits_mbit.iter().flat_map(of_limit).collect()
}

/// The relays of the network, and the FlashFlow relays.
fn subjects(
    limits_mbit: &[f64],
    network: &Network,
    testbed: &Testbed,
) -> Result<(Vec<OwnRelay>, Vec<Subject>)> {
    let subject = |role: Role, target: Target, is_tor: bool| {
        let Role { name, limit, is_measured } = role;
        Subject { name, target, limit, is_tor, is_measured }
    };
    let mut subjects = Vec::new();
    for (node, role) in network.relays().iter().zip(roles("tor", limits_mbit)) {
        subjects.push(subject(role, node.target(), true));
    }
    let mut ours = Vec::new();
    for role in roles("ff", limits_mbit) {
        let authorities = network.directory_addrs();
        let relay = testbed.published_relay(&role.name, Some(role.limit), None, authorities)?;
        subjects.push(subject(role, relay.target, false));
        ours.push(relay);
    }
    Ok((ours, subjects))
}

fn measure(
    testbed: &Testbed,
    subject: &Subject,
    seconds: u32,
    session: Session<'_>,
) -> Result<Option<f64>> {
    // They do have clients.
    let params = Params { may_have_clients: true, ..params(seconds) };
    let guess = subject.limit.scaled(GUESS);
    let request = match subject.is_tor {
        false => testbed.echo_request(subject.target, guess, params),
        true => Request { params, ..Request::new(subject.target, guess) },
    };
    let stop = session.interrupt.requested();
    let measured = measuring::measure(&testbed.team(2), request, &mut |_| {}, stop)?;
    Ok(measured.and_then(|measured| measured.record.capacity()).map(Rate::as_mbit_per_s))
}

/// Content of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Published {
    unix_s: u64,
    observed: Rate,
}

/// The newest descriptor of each relay that an authority has.
fn observed(authority: SocketAddr, subjects: &[Subject]) -> Result<BTreeMap<RsaId, Published>> {
    let all = subjects.iter().map(|subject| subject.target.ids.rsa);
    let text = Fetcher::default().get(authority, &Resource::Descriptors(all.collect()))?;
    let published = |descriptor: &descriptor::ServerDescriptor<'_>| Published {
        unix_s: descriptor.published,
        observed: Rate::from_byte_per_s(descriptor.bandwidth_observed_bytes_s),
    };
    let newest = descriptor::newest(&text);
    Ok(newest
        .descriptors
        .iter()
        .map(|descriptor| (descriptor.fingerprint, published(descriptor)))
        .collect())
}

/// The bandwidth history of a relay that has run for nearly a day and carried nothing, as tor stores it.
fn history_that_ends_at(unix_s: u64) -> Vec<String> {
    let lines = ["Read", "Write"].map(|direction| {
        let name = format!("BWHistory{direction}");
        vec![
            format!("{name}Ends {}", netdoc::write::date_time(unix_s)),
            format!("{name}Interval 86400"),
            format!("{name}Values 0"),
            format!("{name}Maxima 0"),
        ]
    });
    lines.concat()
}
