//! Explains in words why a relay has its weight, or none.

use crate::error::StoreError;
use crate::format::{roughly, utc};
use crate::mode_word;
use crate::open::Reader;
use crate::read::{Measurement, State, decline_kind};
use crate::relays::{RelayRow, shared_host};
use crate::series::{self, Second};
use crate::suspects::Suspect;
use coordinator::{
    Decline, DeclineKind, End, HeldSeconds, History, HistoryPolicy, Mode, PastEstimate, Record,
    Suspicion, Waited,
};
use onion::{Duration, Rate};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The serialised cause of a measurement that was interrupted because the coordinator had to end:
/// [`Failure::Cancelled`](coordinator::Failure).
const CANCELLED: &str = "cancelled";

/// The data of an explanation.
struct Subject<'s> {
    relay: &'s RelayRow,
    measurements: &'s [Measurement],
    /// The number of other relays at its address.
    neighbours: usize,
    /// The relays at other addresses that may share its machine.
    suspects: &'s [Suspect],
    /// The time of the newest consensus, if there is one.
    consensus_seen_unix_s: Option<u64>,
    line: Option<Option<Line>>,
    policy: HistoryPolicy,
    now_unix_s: u64,
}

/// The data of a line of a bandwidth file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The weight, in KB/s.
    pub bw_kb_s: u64,
    /// The time of the result.
    pub time_unix_s: Option<u64>,
    /// Whether authorities use it for their votes.
    pub is_voted: bool,
    /// Whether it marks the relay as not measured.
    pub is_unmeasured: bool,
    /// Whether too few relays have results at all.
    pub is_under_min_report: bool,
}

/// Who reads an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The operator of the coordinator.
    Operator,
    /// Everybody. Relays that may share a machine are left out, since an adversary can make others seem to.
    Public,
}

/// Explains why relays have their weights, or none.
pub struct Explainer<'r> {
    reader: &'r Reader,
    audience: Audience,
    /// When the relays at each address were last observed.
    hosts: BTreeMap<IpAddr, Vec<u64>>,
    /// The time of the newest consensus, if there is one.
    consensus_seen_unix_s: Option<u64>,
    policy: HistoryPolicy,
    now_unix_s: u64,
}

impl Reader {
    /// Reads what the explanations of all relays have in common.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn explainer(
        &self,
        audience: Audience,
        now_unix_s: u64,
    ) -> Result<Explainer<'_>, StoreError> {
        let consensus = self.newest_consensus(now_unix_s)?;
        Ok(Explainer {
            reader: self,
            audience,
            hosts: self.relays_by_host()?,
            consensus_seen_unix_s: consensus.map(|consensus| consensus.seen_unix_s),
            policy: self.history_policy()?,
            now_unix_s,
        })
    }
}

impl Explainer<'_> {
    /// Explains why a relay has its weight, or none: one paragraph for each fact, beginning with the short answer.
    ///
    /// `measurements` are the relay's, the newest first, over more than one period. `line` is its entry in the newest
    /// bandwidth file; the outer `None` means that no file was read.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn explain(
        &self,
        relay: &RelayRow,
        measurements: &[Measurement],
        line: Option<Option<Line>>,
    ) -> Result<Vec<String>, StoreError> {
        let suspects = match self.audience {
            Audience::Operator => self.reader.suspects(Some(relay.rsa))?,
            Audience::Public => Vec::new(),
        };
        Ok(explain(&Subject {
            relay,
            measurements,
            neighbours: self.neighbours(relay),
            suspects: &suspects,
            consensus_seen_unix_s: self.consensus_seen_unix_s,
            line,
            policy: self.policy,
            now_unix_s: self.now_unix_s,
        }))
    }

    /// The number of other relays at its address at most an hour before its last observation: those of its machine.
    fn neighbours(&self, relay: &RelayRow) -> usize {
        let since_unix_s = relay.last_seen_unix_s.saturating_sub(3600);
        let host = shared_host(&relay.address).and_then(|host| self.hosts.get(&host));
        let seen = host.into_iter().flatten().filter(|seen_unix_s| **seen_unix_s >= since_unix_s);
        // It is one of them.
        seen.count().saturating_sub(1)
    }
}

fn explain(subject: &Subject<'_>) -> Vec<String> {
    let mut text = vec![short_answer(subject)];
    text.extend(presence(subject));
    for (which, relevant) in relevant_measurements(subject) {
        text.push(measurement(relevant, subject, which));
        text.extend(limits(&relevant.seconds, relevant.state == State::Conclusive));
    }
    text.extend(neighbours(subject));
    text.extend(suspected(subject));
    text.extend(weight(subject));
    text.extend(remaining_estimate(subject));
    text.extend(repeated(subject));
    if let Some(running) =
        subject.measurements.iter().find(|measurement| measurement.state == State::Running)
    {
        text.push(format!("It is being measured since {}.", utc(running.started_unix_s)));
    }
    text.push(outlook(subject));
    text
}

/// The last measurement, and the last one with a result, which yielded the estimate; each with the start of a sentence.
fn relevant_measurements<'s>(subject: &Subject<'s>) -> Vec<(&'static str, &'s Measurement)> {
    let ended =
        || subject.measurements.iter().filter(|measurement| measurement.ended_unix_s.is_some());
    let last = ended().next().map(|measurement| ("The last measurement", measurement));
    let has_result = ended().find(|measurement| measurement.state.has_result());
    let of = has_result
        .filter(|measurement| last.is_some_and(|(_, last)| !std::ptr::eq(*measurement, last)));
    last.into_iter()
        .chain(of.map(|measurement| ("The last one with a result", measurement)))
        .collect()
}

fn short_answer(Subject { relay, line, .. }: &Subject<'_>) -> String {
    let name = format!("{} ({})", relay.nickname, relay.rsa);
    let capacity = relay.capacity.map(|capacity| format!("; its last estimate is {capacity}"));
    let capacity = capacity.unwrap_or_else(|| "; there is no estimate of it".to_owned());
    match line {
        Some(Some(line)) if line.is_voted => {
            format!("{name} has the weight {} KB/s{capacity}.", line.bw_kb_s)
        }
        Some(Some(line)) if line.is_unmeasured => {
            format!("{name} has no weight: it could not be measured{capacity}.")
        }
        Some(Some(line)) if line.is_under_min_report => format!(
            "{name} has no weight yet, like all relays: fewer than 60 % of them have a result{capacity}."
        ),
        Some(Some(_)) => {
            format!("{name} has no weight: authorities do not use its line for votes{capacity}.")
        }
        Some(None) => {
            format!("{name} has no weight: it is not in the bandwidth file{capacity}.")
        }
        None => format!("{name}{capacity}."),
    }
}

/// Whether the newest consensus does not list it.
fn is_gone(subject: &Subject<'_>) -> bool {
    subject.consensus_seen_unix_s.is_some_and(|seen| subject.relay.last_seen_unix_s < seen)
}

fn presence(subject: &Subject<'_>) -> Vec<String> {
    let Subject { relay, .. } = subject;
    let mut text = Vec::new();
    if is_gone(subject) {
        let last = utc(relay.last_seen_unix_s);
        text.push(format!("The newest consensus does not list it. It was last listed at {last}."));
    } else if !relay.left_out.is_empty() {
        text.push(format!("It is not measured: {}.", relay.left_out));
    }
    let first = relay.first_seen_unix_s;
    let age = Duration::from_secs(subject.now_unix_s.saturating_sub(first));
    if relay.estimated_unix_s.is_none() && age < subject.policy.kept_for {
        text.push(format!("It is new: it was first listed at {}.", utc(first)));
    }
    text
}

/// The result of one of its measurements; `which` starts the sentence.
fn measurement(last: &Measurement, subject: &Subject<'_>, which: &str) -> String {
    let when = utc(last.ended_unix_s.unwrap_or(last.started_unix_s));
    let ago = roughly(Duration::from_secs(
        subject.now_unix_s.saturating_sub(last.ended_unix_s.unwrap_or(subject.now_unix_s)),
    ));
    let how = last.mode.map_or("", |mode| mode_word(mode));
    let how = match how {
        "echo" => " as an echo, its clients' traffic included",
        "transit" => " in transit, its clients' traffic not counted",
        _ => "",
    };
    let found = last.capacity.unwrap_or_default();
    let reason = last.reason.as_deref().unwrap_or("no reason was recorded");
    match last.state {
        State::Conclusive => {
            format!(
                "{which} ended at {when}, {ago} ago. It found {found}{how}, and is conclusive: the load was large enough to show the relay's limit."
            )
        }
        State::LowerBound => {
            format!(
                "{which} ended at {when}, {ago} ago. It found {found}{how}. That is a lower bound: {reason}."
            )
        }
        // This needs no investigation.
        State::Failed if last.cause.as_deref() == Some(CANCELLED) => {
            format!("{which} was interrupted at {when}: the coordinator had to stop.")
        }
        State::Failed => {
            let who = match last.blame.as_deref() {
                Some("relay") => " The relay's operator should investigate.",
                Some("measurer") => " The measurer's operator should investigate.",
                Some("configuration") => " It was not permitted, or not at that time.",
                Some("coordinator") => " The coordinator's operator should investigate.",
                _ => "",
            };
            format!("{which} ended at {when}, {ago} ago, without a result: it {reason}.{who}")
        }
        State::Running | State::Interrupted => format!("{which} was interrupted at {when}."),
    }
}

/// Describes where cells waited in the counted seconds of the last round, and what follows for a result with this verdict. `None` without
/// such seconds.
fn limits(seconds: &[Second], is_conclusive: bool) -> Option<String> {
    let last = seconds.iter().filter(|second| second.counts).map(|second| second.round).max()?;
    let counted = || seconds.iter().filter(|second| second.counts && second.round == last);
    let bytes = || counted().map(|second| second.bytes);
    let [least, best] = [bytes().min()?, bytes().max()?].map(Rate::from_byte_per_s);
    let spread = format!("In round {last} its slowest second had {least}, its fastest {best}.");
    let held = HeldSeconds::count(counted().map(|second| second.limiter.waited()));
    let order = held.in_order();
    let Some((most, _)) = order.first() else { return Some(spread) };
    let places =
        order.iter().map(|(waited, count)| format!("for {} in {count}", waited.in_words()));
    let places = places.collect::<Vec<_>>().join(", ");
    let own_cause = held.own_cause().map(|(waited, _)| waited);
    let limit = match (is_conclusive, own_cause, most) {
        (true, _, Waited::Relay) => {
            " So the limit is the relay's own: its configured rate, its processor (a core of tor at 100 %), or its link."
        }
        (false, Some(Waited::Processor), _) => {
            " So the limit is a measurer's processor, not the relay."
        }
        (false, Some(Waited::AssignedRate), _) => " So the limit is the load, not the relay.",
        (false, _, Waited::Path) => {
            " So the limit is the network on the way to the relay, which may be its own link."
        }
        // Cells also wait for a relay with spare capacity.
        _ => "",
    };
    Some(format!("Of {} seconds, most cells waited {places}. {spread}{limit}", counted().count()))
}

/// Explains a measurement to the operator of the relay: what an authority would make of it, and what limited it. Empty without an estimate.
#[must_use]
pub fn explain_record(record: &Record) -> Vec<String> {
    let End::Measured { capacity, inconclusive, .. } = &record.end else { return Vec::new() };
    let weight_kb_s = capacity.as_byte_per_s() / 1000;
    let any_claim = Rate::from_bit_per_s(u64::MAX);
    let most = PastEstimate::of(record)
        .and_then(|estimate| estimate.with_clients(any_claim, &record.params));
    let most = most.map_or_else(String::new, |most| {
        let most = most.as_byte_per_s() / 1000;
        format!(", or up to {most} if the relay's descriptor shows that it has carried more with its clients")
    });
    let mut text = vec![format!(
        "An authority that measures {capacity} gives the weight {weight_kb_s} KB/s{most}. The consensus has the median of all authorities."
    )];
    text.extend(limits(&series::of(record), inconclusive.is_none()));
    text
}

/// The relays at its address, which share its machine.
fn neighbours(subject: &Subject<'_>) -> Option<String> {
    let others = match subject.neighbours {
        0 => return None,
        1 => "One other relay is".to_owned(),
        count => format!("{count} other relays are"),
    };
    Some(format!(
        "{others} at its address. They are measured at the same instant, and share their joint result, since one may use \
         capacity that the others then lack."
    ))
}

/// The relays that may share its machine.
fn suspected(Subject { relay, suspects, .. }: &Subject<'_>) -> Option<String> {
    /// The maximum number in a page.
    const NAMED: usize = 3;
    let first = suspects.first()?;
    let named = suspects.iter().take(NAMED).map(|suspect| {
        let (other, nickname) = suspect.other(relay.rsa);
        let Suspicion { moves, alike, .. } = suspect.suspicion;
        format!("{nickname} ({other}; {alike} of {moves} moves alike)")
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match suspects.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (other, _) = first.other(relay.rsa);
    Some(format!(
        "It may share a machine with relays at other addresses: its estimates rise and fall together with those of {named}{more}. That is a suspicion \
         and no proof: the cause may be a common provider, and a relay that reads another's weights can imitate them. With \
         `together = [[\"{}\", \"{other}\"]]` in coordinator.toml both are measured at the same instant, which shows whether they \
         share capacity.",
        relay.rsa
    ))
}

fn weight(subject: &Subject<'_>) -> Option<String> {
    let line = subject.line.flatten().filter(|line| line.is_voted)?;
    let capacity = subject.relay.capacity?;
    let weight = Rate::from_byte_per_s(line.bw_kb_s.saturating_mul(1000));
    // Weights are whole KB/s.
    let is_rounded = weight.as_byte_per_s().abs_diff(capacity.as_byte_per_s()) <= 1000;
    if is_rounded {
        return Some("The weight is the estimate in KB/s of 1,000 bytes.".to_owned());
    }
    let is_current = line.time_unix_s == subject.relay.estimated_unix_s;
    Some(if weight < capacity && is_current && subject.neighbours > 0 {
        format!(
            "The weight is less than the estimate: the operator allows at most {weight} (bandwidth-avg of its descriptor), or the \
             relays at its address were measured at different times, and their sum exceeds the largest joint result."
        )
    } else if weight < capacity && is_current {
        format!(
            "The weight is less than the estimate: the operator allows at most {weight} (bandwidth-avg of its descriptor)."
        )
    } else if weight > capacity && is_current {
        "The weight is more than the estimate, which does not count the traffic of its clients: the relay claims to have carried as much \
         (bandwidth-observed of its descriptor), and a third more than what was measured is believed."
            .to_owned()
    } else {
        "The bandwidth file was made before the last estimate. The next one that passes the gate, if there is a gate, will include it."
            .to_owned()
    })
}

/// The estimate that is still valid after a failure, and for how long.
fn remaining_estimate(subject: &Subject<'_>) -> Option<String> {
    let Subject { relay, policy, now_unix_s, .. } = subject;
    if relay.last_state != Some(State::Failed) {
        return None;
    }
    let estimated = relay.estimated_unix_s?;
    let age = Duration::from_secs(now_unix_s.saturating_sub(estimated));
    // Not necessarily the last measurement: a later interrupted one has no effect.
    let refutes = |measurement: &Measurement| {
        measurement.is_about_relay() && measurement.ended_unix_s.is_some_and(|at| at > estimated)
    };
    let refuted = subject.measurements.iter().find(|measurement| refutes(measurement));
    Some(if let Some(refuted) = refuted {
        let cause = match refuted.blame.as_deref() {
            Some("relay") => "the relay has failed since",
            _ => "consent was refused since",
        };
        format!("The estimate of {} is no longer valid: {cause}.", utc(estimated))
    } else if age < policy.kept_for {
        let left = policy.kept_for.saturating_sub(age);
        let kept = after_declines(subject).map(|estimate| estimate.capacity);
        match kept {
            Some(kept) if Some(kept) == relay.capacity => {}
            Some(kept) => {
                return Some(format!(
                    "The relay declined two measurements in a row, or seemed to, so half of its estimate of {} remains valid for {} \
                     more: {kept}. After a third decline it has no weight until it is measured.",
                    utc(estimated),
                    roughly(left)
                ));
            }
            None => {
                return Some(format!(
                    "The estimate of {} is no longer valid: the relay declined to be measured three times in a row, or seemed to.",
                    utc(estimated)
                ));
            }
        }
        format!(
            "The failure shows nothing about the relay, so its estimate of {} remains valid for {} more.",
            utc(estimated),
            roughly(left)
        )
    } else {
        format!("Its estimate of {} is too old for votes.", utc(estimated))
    })
}

/// The rest of the estimate after the declined measurements, by the coordinator's rules.
fn after_declines(
    Subject { relay, measurements, policy, now_unix_s, .. }: &Subject<'_>,
) -> Option<PastEstimate> {
    let mut history = History::default();
    history.add(relay.rsa, relay.estimate()?);
    for measurement in *measurements {
        let kind = decline_kind(measurement.cause.as_deref());
        if let Some((at_unix_s, kind)) = measurement.ended_unix_s.zip(kind) {
            history.decline(relay.rsa, Decline { at_unix_s, kind });
        }
        if measurement.mode == Some(Mode::Echo) && kind != Some(DeclineKind::NotNow) {
            history.order(relay.rsa, measurement.started_unix_s);
        }
    }
    history.kept(policy, relay.rsa, None, *now_unix_s)
}

/// Whether the same failure occurs repeatedly.
fn repeated(subject: &Subject<'_>) -> Option<String> {
    let is_cancelled = |measurement: &Measurement| measurement.cause.as_deref() == Some(CANCELLED);
    let has_ended = |measurement: &&Measurement| {
        measurement.ended_unix_s.is_some() && !is_cancelled(measurement)
    };
    let ended = subject.measurements.iter().filter(has_ended);
    let in_row = ended.take_while(|measurement| measurement.state == State::Failed).count();
    (in_row > 1).then(|| format!("It has failed {in_row} times in a row."))
}

fn outlook(subject: &Subject<'_>) -> String {
    let Subject { relay, policy, now_unix_s, .. } = subject;
    if is_gone(subject) {
        return "It is measured again once a consensus lists it.".to_owned();
    }
    if !relay.left_out.is_empty() {
        return "It will be measured once that reason no longer applies.".to_owned();
    }
    let age = |at| Duration::from_secs(now_unix_s.saturating_sub(at));
    let is_old = relay.estimated_unix_s.is_some_and(|at| age(at) < policy.valid_for);
    if is_old {
        let expected = relay.capacity.unwrap_or_default().max(policy.least);
        format!(
            "It is measured about once in each period, at secret times. The next measurement expects {expected}."
        )
    } else {
        "It counts as new, since it has no estimate of the last month: it is measured as soon as there is capacity.".to_owned()
    }
}

#[cfg(test)]
mod tests;
