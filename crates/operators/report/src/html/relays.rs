//! The sections of the page about relays.

use super::frame::{Badge, figure, numbers};
use crate::figure::ExperimentFigure;
use crate::text::{Escaped, NOTHING, count, mbit, percent, plural, quotient, range};
use crate::{Mode, RelayReport, Report, RoundAccount, Verdict};
use coordinator::Bottleneck;
use std::fmt;

/// All relays in one table.
pub(super) fn results(f: &mut fmt::Formatter<'_>, relays: &[RelayReport]) -> fmt::Result {
    f.write_str("<h2>Results</h2>\n")?;
    if relays.is_empty() {
        return f.write_str("<p class=\"card\">No relay was measured.</p>\n");
    }
    f.write_str(
        "<div class=\"card scroll\"><table><thead><tr><th>Relay</th><th>Verdict</th>\
         <th class=\"number\">Estimate<small>Mbit/s</small></th>\
         <th class=\"number\">Limit<small>Mbit/s</small></th>\
         <th class=\"number\">÷ limit</th>\
         <th class=\"number\">Relay says<small>Mbit/s</small></th>\
         <th class=\"number\">÷ relay’s</th>\
         <th class=\"number\">Quartiles<small>Mbit/s</small></th>\
         <th class=\"number\">Capacity is in<small>Mbit/s</small></th>\
         <th class=\"number\">Rounds</th>\
         <th class=\"number\">Checked<small>cells</small></th></tr></thead><tbody>\n",
    )?;
    for (index, relay) in relays.iter().enumerate() {
        result(f, index, relay)?;
    }
    f.write_str("</tbody></table></div>\n")
}

/// A section for each relay.
pub(super) fn details(
    f: &mut fmt::Formatter<'_>,
    relays: &[RelayReport],
    seconds: &[Option<ExperimentFigure>],
) -> fmt::Result {
    if relays.is_empty() {
        return Ok(());
    }
    f.write_str("<h2>Second by second</h2>\n")?;
    for (index, (relay, seconds)) in relays.iter().zip(seconds).enumerate() {
        writeln!(
            f,
            "<section class=\"card\" id=\"relay-{index}\"><div class=\"head\"><h3>{}</h3>{}\
             <code class=\"muted\">{}</code></div>",
            Escaped(&relay.nickname),
            Badge(relay.verdict().word()),
            Escaped(&relay.fingerprint),
        )?;
        writeln!(f, "<p>{}</p>", Escaped(&in_words(relay)))?;
        if let Some(seconds) = seconds {
            figure(f, seconds)?;
        }
        accounts(f, &relay.accounts)?;
        f.write_str("</section>\n")?;
    }
    Ok(())
}

/// What limited the sockets in each round, if it is known.
fn accounts(f: &mut fmt::Formatter<'_>, accounts: &[RoundAccount]) -> fmt::Result {
    if accounts.is_empty() {
        return Ok(());
    }
    let columns: [(&str, &str); 14] = [
        ("Measurer", ""),
        ("Sockets", ""),
        ("Relay’s window", "of their time"),
        ("Congestion", "of their time"),
        ("Little to send", "of their time"),
        ("Our buffer", "of their time"),
        ("Assigned rate", "of the time"),
        ("Busiest thread", "of the time"),
        ("Retransmitted", "of the bytes"),
        ("Out of order", "received"),
        ("Round trip", "minimum, ms"),
        ("Round trip", "mean, ms"),
        ("Not returned", "kB"),
        ("Acknowledged", "of these, kB"),
    ];
    f.write_str(
        "<details><summary>Where the sockets to it waited</summary>\
         <div class=\"scroll\"><table><thead><tr><th>Round</th>",
    )?;
    for (name, unit) in columns {
        write!(f, "<th class=\"number\">{name}<small>{unit}</small></th>")?;
    }
    f.write_str("</tr></thead><tbody>\n")?;
    for account in accounts {
        let ms = |ms: Option<f64>| ms.map_or_else(|| NOTHING.into(), |ms| format!("{ms:.1}"));
        let kilobytes = |bytes: u64| count(bytes / 1000);
        write!(f, "<tr><th>{}</th>", account.round)?;
        numbers(
            f,
            &[
                match account.limited_by {
                    None => account.measurer.to_string(),
                    Some(Bottleneck::Path { .. } | Bottleneck::Loss { .. }) => {
                        format!("{}, held back by its path", account.measurer)
                    }
                    Some(Bottleneck::Share { .. }) => {
                        format!("{}, held back by a bottleneck of its own", account.measurer)
                    }
                    Some(Bottleneck::Processor) => {
                        format!("{}, held back by its processor", account.measurer)
                    }
                },
                account.sockets.to_string(),
                percent(account.rwnd_limited_share),
                percent(account.congestion_share),
                percent(account.app_limited_share),
                percent(account.sndbuf_limited_share),
                percent(account.throttled_share),
                percent(account.busiest_share),
                percent(account.retransmitted_share),
                percent(account.out_of_order_share),
                ms(account.min_rtt_ms),
                ms(account.mean_rtt_ms),
                kilobytes(account.outstanding_bytes),
                kilobytes(account.taken_bytes),
            ],
        )?;
        f.write_str("</tr>\n")?;
    }
    f.write_str("</tbody></table></div></details>\n")
}

/// The weights in the bandwidth file compared with those in the consensus.
pub(super) fn weights(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let weighed =
        |relay: &&RelayReport| relay.weight_kb_s.is_some() || relay.consensus_weight_kb_s.is_some();
    let relays: Vec<_> = report.relays.iter().filter(weighed).collect();
    if relays.is_empty() && report.bandwidth_file.is_none() {
        return Ok(());
    }
    f.write_str("<h2>Weights</h2>\n<div class=\"card\"><p>")?;
    if let Some(file) = &report.bandwidth_file {
        let file = file.display().to_string();
        write!(f, "The bandwidth file with the estimates is <code>{}</code>. ", Escaped(&file))?;
    }
    f.write_str(match report.weights_in_consensus {
        Some(true) => "A consensus has these weights.",
        Some(false) => "No consensus with these weights was seen.",
        None => "Whether a consensus has these weights was not checked.",
    })?;
    f.write_str(
        "</p>\n<div class=\"scroll\"><table><thead><tr><th>Relay</th>\
         <th class=\"number\">Ours<small>kB/s</small></th>\
         <th class=\"number\">Voted<small>kB/s</small></th>\
         <th class=\"number\">Voted ÷ ours</th></tr></thead><tbody>\n",
    )?;
    for relay in relays {
        let [ours, voted] = [relay.weight_kb_s, relay.consensus_weight_kb_s];
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let ratio = ours.zip(voted).map(|(ours, voted)| voted as f64 / ours as f64);
        let [ours, voted] =
            [ours, voted].map(|weight| weight.map_or_else(|| NOTHING.into(), count));
        write!(f, "<tr><th>{}</th>", Escaped(&relay.nickname))?;
        numbers(f, &[ours, voted, quotient(ratio)])?;
        f.write_str("</tr>\n")?;
    }
    f.write_str("</tbody></table></div></div>\n")
}

fn result(f: &mut fmt::Formatter<'_>, index: usize, relay: &RelayReport) -> fmt::Result {
    let verdict = relay.verdict();
    write!(
        f,
        "<tr><th><a href=\"#relay-{index}\">{}</a><small>{}</small></th><td class=\"why\">{}",
        Escaped(&relay.nickname),
        match relay.mode {
            Mode::Transit => "transit",
            Mode::Echo => "echo",
        },
        Badge(verdict.word())
    )?;
    if let Some(reason) = verdict.reason() {
        write!(f, "<br><span class=\"muted\">{}</span>", Escaped(reason))?;
    }
    f.write_str("</td>")?;
    let none = || NOTHING.to_owned();
    numbers(
        f,
        &[
            mbit(relay.estimate_mbit_per_s),
            mbit(relay.limit_mbit_per_s),
            quotient(relay.ratio_to_limit()),
            mbit(relay.relay_reported_mbit_per_s),
            quotient(relay.ratio_to_relay_reported()),
            relay
                .spread_mbit_per_s
                .map_or_else(none, |spread| range(spread.lower_quartile, spread.upper_quartile)),
            match relay.bounds_mbit_per_s {
                None => none(),
                Some((low, None)) => format!("&gt; {}", mbit(Some(low))),
                Some((low, Some(high))) => range(low, high),
            },
            relay.rounds.to_string(),
            count(relay.cells_checked),
        ],
    )?;
    f.write_str("</tr>\n")
}

/// The result in one or two sentences, not escaped.
fn in_words(relay: &RelayReport) -> String {
    let rounds = plural(relay.rounds.into(), "round");
    let rounds = format!("{rounds} of {}", plural(relay.seconds.into(), "second"));
    let checked = plural(relay.cells_checked, "checked cell");
    let estimate = mbit(relay.estimate_mbit_per_s);
    let mut words = match relay.verdict() {
        Verdict::Failed(reason) => {
            let round = relay.rounds;
            return format!("Failed in round {round} after {checked}: {}.", sentence(reason));
        }
        Verdict::Conclusive => format!("{estimate} Mbit/s after {rounds}, {checked}."),
        Verdict::Inconclusive(reason) => {
            format!(
                "{estimate} Mbit/s after {rounds}, {checked}; inconclusive: {}.",
                sentence(reason)
            )
        }
    };
    let what = match relay.mode {
        Mode::Echo => "The capacity",
        Mode::Transit => "The capacity that clients left unused",
    };
    match relay.bounds_mbit_per_s {
        None => {}
        Some((low, Some(high))) => {
            words +=
                &format!(" {what} is between {} and {} Mbit/s.", mbit(Some(low)), mbit(Some(high)));
        }
        Some((low, None)) => words += &format!(" {what} is more than {} Mbit/s.", mbit(Some(low))),
    }
    words
}

/// A reason without its final full stop.
fn sentence(reason: &str) -> &str {
    reason.trim_end().trim_end_matches('.')
}
