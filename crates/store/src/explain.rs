//! Explains in words why a relay has its weight, or none.

use crate::error::StoreError;
use crate::likeness::Suspect;
use crate::mode_word;
use crate::open::Reader;
use crate::read::{Measurement, State, decline_kind};
use crate::relays::RelayRow;
use crate::series::{Limiter, Second};
use crate::words::{roughly, utc};
use coordinator::{Decline, DeclineKind, History, HistoryPolicy, Mode, PastEstimate, Suspicion};
use onion::{Duration, Rate};

/// The serialised cause of a measurement that was interrupted because the coordinator had to end:
/// [`Failure::Cancelled`](coordinator::Failure).
const CANCELLED: &str = "cancelled";

/// The data of an explanation.
struct Story<'s> {
    relay: &'s RelayRow,
    measurements: &'s [Measurement],
    /// The number of other relays at its address.
    neighbours: u64,
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

impl Reader {
    /// Explains why a relay has its weight, or none: one paragraph for each fact; the first one is the short answer.
    ///
    /// `measurements` are the relay's, the newest first; more than those of one period. `line` is the newest bandwidth file's data
    /// about it; the outer `None` means that no file was read.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn explain(
        &self,
        relay: &RelayRow,
        measurements: &[Measurement],
        line: Option<Option<Line>>,
        now_unix_s: u64,
    ) -> Result<Vec<String>, StoreError> {
        Ok(explain(&Story {
            relay,
            measurements,
            neighbours: self.neighbours(relay)?,
            suspects: &self.suspects(Some(relay.rsa))?,
            consensus_seen_unix_s: self.newest_consensus(now_unix_s)?.map(|it| it.seen_unix_s),
            line,
            policy: self.history_policy()?,
            now_unix_s,
        }))
    }
}

fn explain(story: &Story<'_>) -> Vec<String> {
    let mut said = vec![in_short(story)];
    said.extend(presence(story));
    for (which, it) in worth_telling(story) {
        said.push(measurement(it, story, which));
        said.extend(limits(&it.seconds));
    }
    said.extend(neighbours(story));
    said.extend(suspected(story));
    said.extend(weight(story));
    said.extend(standing_estimate(story));
    said.extend(repeated(story));
    if let Some(running) = story.measurements.iter().find(|it| it.state == State::Running) {
        said.push(format!("It is being measured since {}.", utc(running.started_unix_s)));
    }
    said.push(outlook(story));
    said
}

/// The last measurement, and the last one with a result, which the estimate is from.
fn worth_telling<'s>(story: &Story<'s>) -> Vec<(&'static str, &'s Measurement)> {
    let ended = || story.measurements.iter().filter(|it| it.ended_unix_s.is_some());
    let last = ended().next().map(|it| ("The last measurement", it));
    let has_result = ended().find(|it| it.state.has_result());
    let of = has_result.filter(|it| last.is_some_and(|(_, last)| !std::ptr::eq(*it, last)));
    last.into_iter().chain(of.map(|it| ("The last one with a result", it))).collect()
}

fn in_short(Story { relay, line, .. }: &Story<'_>) -> String {
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
            "{name} has no weight yet, nor has any relay: under 60 % of all have a result{capacity}."
        ),
        Some(Some(_)) => format!("{name} has no weight: its line is not to be voted by{capacity}."),
        Some(None) => {
            format!("{name} has no weight: the bandwidth file has no line of it{capacity}.")
        }
        None => format!("{name}{capacity}."),
    }
}

/// Whether the newest consensus does not list it.
fn is_gone(story: &Story<'_>) -> bool {
    story.consensus_seen_unix_s.is_some_and(|seen| story.relay.last_seen_unix_s < seen)
}

fn presence(story: &Story<'_>) -> Vec<String> {
    let Story { relay, .. } = story;
    let mut said = Vec::new();
    if is_gone(story) {
        let last = utc(relay.last_seen_unix_s);
        said.push(format!("The newest consensus does not have it. It was seen last at {last}."));
    } else if !relay.left_out.is_empty() {
        said.push(format!("It is not measured: {}.", relay.left_out));
    }
    let first = relay.first_seen_unix_s;
    let age = Duration::from_secs(story.now_unix_s.saturating_sub(first));
    if relay.estimated_unix_s.is_none() && age < story.policy.kept_for {
        said.push(format!("It is new: it was seen first at {}.", utc(first)));
    }
    said
}

/// The result of one of its measurements; `which` starts the sentence.
fn measurement(last: &Measurement, story: &Story<'_>, which: &str) -> String {
    let when = utc(last.ended_unix_s.unwrap_or(last.started_unix_s));
    let ago = roughly(Duration::from_secs(
        story.now_unix_s.saturating_sub(last.ended_unix_s.unwrap_or(story.now_unix_s)),
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
            format!("{which} was broken off at {when}: the coordinator had to end.")
        }
        State::Failed => {
            let who = match last.blame.as_deref() {
                Some("relay") => " That is for the relay's operator to look into.",
                Some("measurer") => " That is for the measurer's operator to look into.",
                Some("configuration") => " It was not permitted, or not at that time.",
                Some("coordinator") => " That is for the coordinator's operator to look into.",
                _ => "",
            };
            format!("{which} ended at {when}, {ago} ago, without a result: it {reason}.{who}")
        }
        State::Running | State::BrokenOff => format!("{which} was broken off at {when}."),
    }
}

/// The cause that limited most seconds, if known.
fn limits(seconds: &[Second]) -> Option<String> {
    let counted: Vec<&Second> = seconds.iter().filter(|it| it.counts).collect();
    let known = [Limiter::Relay, Limiter::Path, Limiter::Processor, Limiter::AssignedRate];
    let count = |limiter| counted.iter().filter(|it| it.limiter == limiter).count();
    let most = known.into_iter().max_by_key(|limiter| count(*limiter))?;
    let (most_count, all) = (count(most), counted.len());
    let rounds = counted.iter().map(|it| it.round).max()?;
    let (rates, last): (Vec<Rate>, u32) = (
        counted
            .iter()
            .filter(|it| it.round == rounds)
            .map(|it| Rate::from_byte_per_s(it.bytes))
            .collect(),
        rounds,
    );
    let (least, best) = (rates.iter().min()?, rates.iter().max()?);
    let spread = format!("In round {last} its slowest second had {least}, its fastest {best}.");
    if most_count == 0 {
        return Some(spread);
    }
    Some(format!(
        "In {most_count} of {all} seconds most of what was sent waited for {}. {spread}",
        most.in_words()
    ))
}

/// The relays of its machine.
fn neighbours(story: &Story<'_>) -> Option<String> {
    let others = match story.neighbours {
        0 => return None,
        1 => "One other relay is".to_owned(),
        count => format!("{count} other relays are"),
    };
    Some(format!(
        "{others} at its address. They are measured at the same instant, and each has its part of what was found of all of them together: what \
         one of them carries the others may lack."
    ))
}

/// The relays that may share its machine.
fn suspected(Story { relay, suspects, .. }: &Story<'_>) -> Option<String> {
    /// The maximum number in a page.
    const NAMED: usize = 3;
    let first = suspects.first()?;
    let named = suspects.iter().take(NAMED).map(|suspect| {
        let (other, nickname) = suspect.other(relay.rsa);
        let Suspicion { moves, alike, .. } = suspect.suspicion;
        format!("{nickname} ({other}; {alike} of {moves} times the same way)")
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match suspects.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (other, _) = first.other(relay.rsa);
    Some(format!(
        "It may share a machine with relays at other addresses: its estimates rise and fall together with those of {named}{more}. That is a suspicion \
         and no proof: it may be a common provider, and a relay that reads another's weights can follow them. `together = [[\"{}\", \"{other}\"]]` in \
         coordinator.toml has both measured at the same instant, which shows whether what one of them carries the other lacks.",
        relay.rsa
    ))
}

fn weight(story: &Story<'_>) -> Option<String> {
    let line = story.line.flatten().filter(|line| line.is_voted)?;
    let capacity = story.relay.capacity?;
    let weight = Rate::from_byte_per_s(line.bw_kb_s.saturating_mul(1000));
    // Weights are whole KB/s.
    let is_rounded = weight.as_byte_per_s().abs_diff(capacity.as_byte_per_s()) <= 1000;
    if is_rounded {
        return Some("The weight is the estimate in KB/s of 1,000 bytes.".to_owned());
    }
    let is_of_it = line.time_unix_s == story.relay.estimated_unix_s;
    Some(if weight < capacity && is_of_it && story.neighbours > 0 {
        format!(
            "The weight is less than the estimate: the operator allows {weight} and no more (bandwidth-avg of its descriptor), or the relays at its \
             address were measured at different times and would have more together than was found of their machine at any of them."
        )
    } else if weight < capacity && is_of_it {
        format!(
            "The weight is less than the estimate: the operator allows {weight} and no more (bandwidth-avg of its descriptor)."
        )
    } else {
        "The bandwidth file was made before the last estimate; the next one has it.".to_owned()
    })
}

/// The estimate that is still valid after a failure, and for how long.
fn standing_estimate(story: &Story<'_>) -> Option<String> {
    let Story { relay, policy, now_unix_s, .. } = story;
    if relay.last_state != Some(State::Failed) {
        return None;
    }
    let estimated = relay.estimated_unix_s?;
    let age = Duration::from_secs(now_unix_s.saturating_sub(estimated));
    // Not necessarily the last measurement: a later interrupted one has no effect.
    let refutes =
        |it: &Measurement| it.is_about_relay() && it.ended_unix_s.is_some_and(|at| at > estimated);
    let refuted = story.measurements.iter().find(|it| refutes(it));
    Some(if let Some(refuted) = refuted {
        let whose = match refuted.blame.as_deref() {
            Some("relay") => "the relay's doing",
            _ => "for want of consent",
        };
        format!(
            "The estimate of {} is no longer valid: what failed since was {whose}.",
            utc(estimated)
        )
    } else if age < policy.kept_for {
        let left = policy.kept_for.saturating_sub(age);
        let kept = after_declines(story).map(|it| it.capacity);
        match kept {
            Some(kept) if Some(kept) == relay.capacity => {}
            Some(kept) => {
                return Some(format!(
                    "The relay declined two measurements in a row, or seemed to, so half of its estimate of {} holds for {} more: {kept}. After a \
                     third time nothing holds until it is measured.",
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
            "What failed says nothing of the relay, so its estimate of {} holds for {} more.",
            utc(estimated),
            roughly(left)
        )
    } else {
        format!("Its estimate of {} is too old to be voted by.", utc(estimated))
    })
}

/// The rest of the estimate after the declined measurements, by the coordinator's rules.
fn after_declines(
    Story { relay, measurements, policy, now_unix_s, .. }: &Story<'_>,
) -> Option<PastEstimate> {
    let mut history = History::default();
    history.add(relay.rsa, relay.estimate()?);
    for it in *measurements {
        let kind = decline_kind(it.cause.as_deref());
        if let Some((at_unix_s, kind)) = it.ended_unix_s.zip(kind) {
            history.decline(relay.rsa, Decline { at_unix_s, kind });
        }
        if it.mode == Some(Mode::Echo) && kind != Some(DeclineKind::NotNow) {
            history.order(relay.rsa, it.started_unix_s);
        }
    }
    history.kept(policy, relay.rsa, None, *now_unix_s)
}

/// Whether the same failure occurs repeatedly.
fn repeated(story: &Story<'_>) -> Option<String> {
    let is_cancelled = |it: &Measurement| it.cause.as_deref() == Some(CANCELLED);
    let has_ended = |it: &&Measurement| it.ended_unix_s.is_some() && !is_cancelled(it);
    let ended = story.measurements.iter().filter(has_ended);
    let in_row = ended.take_while(|it| it.state == State::Failed).count();
    (in_row > 1).then(|| format!("It has failed {in_row} times in a row."))
}

fn outlook(story: &Story<'_>) -> String {
    let Story { relay, policy, now_unix_s, .. } = story;
    if is_gone(story) {
        return "It is measured again once a consensus has it.".to_owned();
    }
    if !relay.left_out.is_empty() {
        return "It will be measured once nothing is in the way of that.".to_owned();
    }
    let age = |at| Duration::from_secs(now_unix_s.saturating_sub(at));
    let is_old = relay.estimated_unix_s.is_some_and(|at| age(at) < policy.valid_for);
    if is_old {
        let expected = relay.capacity.unwrap_or_default().max(policy.least);
        format!(
            "It is measured about once in each period, at times that are secret. Next, {expected} are expected of it."
        )
    } else {
        "It counts as new, since there is no estimate of the last month: it is measured as soon as there is room.".to_owned()
    }
}

#[cfg(test)]
mod tests;
