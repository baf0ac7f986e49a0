//! The checks of the gate.

mod location;
mod places;

use super::{Check, CheckName, CheckVerdict, Comparison, Limits, Unit};
use netdoc::bwfile::{BandwidthFile, FileVerdict, HeaderKey, LineVerdict, RelayLine};
use netdoc::input::without_annotations;
use netdoc::{RsaId, check_as_tor};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// With fewer relays, equal shares may exceed the limit of one relay's share.
const SHARES_MIN: usize = 40;
/// Relays that are named in a sentence.
const NAMED_MAX: usize = 3;
/// Reasons for missing relays that are named.
const REASONS_MAX: usize = 4;
/// Clocks may differ by this, in seconds.
const CLOCKS_S: u64 = link::CLOCK_TOLERANCE.as_secs();
/// The cause of a lower bound that needs no action: clients of the relay may have used the rest.
const CLIENTS: &str = "clients_unknown";

/// A bandwidth file as tor would read it if it were new.
struct Votes {
    file: BandwidthFile,
    /// Without authorities, if a consensus names them.
    kb_s: BTreeMap<RsaId, u64>,
}

/// A judged file, with all that it is compared with.
pub(super) struct Subject<'a> {
    bytes: &'a [u8],
    now_unix_s: u64,
    with: Comparison<'a>,
    limits: &'a Limits,
    /// `None` if the file has no timestamp.
    votes: Option<Votes>,
    previous: Option<Votes>,
}

impl Votes {
    fn new(bytes: &[u8], with: Comparison<'_>) -> Option<Self> {
        let file = BandwidthFile::parse(bytes).ok()?.file;
        let report = check_as_tor(without_annotations(bytes), file.timestamp);
        let authorities = with.consensus.map(|consensus| report.authorities(consensus));
        let authorities: BTreeSet<_> = authorities.unwrap_or_default().into_iter().collect();
        let voted = report.relays.into_iter().filter(|(relay, _)| !authorities.contains(relay));
        let kb_s = voted.map(|(relay, kb_s)| (relay, u64::from(kb_s))).collect();
        (report.verdict == FileVerdict::Read).then_some(Self { file, kb_s })
    }

    fn total(&self) -> u64 {
        self.kb_s.values().sum()
    }

    /// The largest relays, the largest first.
    fn largest(&self, count: usize) -> Vec<RsaId> {
        let mut relays: Vec<(u64, RsaId)> =
            self.kb_s.iter().map(|(relay, kb_s)| (*kb_s, *relay)).collect();
        relays.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
        relays.into_iter().take(count).map(|(_, relay)| relay).collect()
    }

    fn lines(&self) -> BTreeMap<RsaId, &RelayLine> {
        self.file.relays.iter().map(|line| (line.node_id, line)).collect()
    }
}

/// A check before its figure is known.
#[derive(Clone, Copy)]
struct Question {
    check: CheckName,
    limit: f64,
    limit_name: &'static str,
    is_minimum: bool,
    unit: Unit,
}

impl Question {
    const fn at_most(check: CheckName, limit: f64, limit_name: &'static str, unit: Unit) -> Self {
        Self { check, limit, limit_name, is_minimum: false, unit }
    }

    const fn at_least(check: CheckName, limit: f64, limit_name: &'static str) -> Self {
        Self { check, limit, limit_name, is_minimum: true, unit: Unit::Percent }
    }

    /// The check with its figure. `remedy` is what to do if it fails.
    fn answer(self, figure: f64, found: impl Display, remedy: &str) -> Check {
        let fails = if self.is_minimum { figure < self.limit } else { figure > self.limit };
        self.verdict(fails, figure, found, remedy)
    }

    fn verdict(self, fails: bool, figure: f64, found: impl Display, remedy: &str) -> Check {
        let what = if fails { format!("{found}. {remedy}") } else { found.to_string() };
        let verdict = if fails { CheckVerdict::Fail } else { CheckVerdict::Pass };
        self.check(verdict, Some(figure), what)
    }

    fn unknown(self, why: impl Display) -> Check {
        self.check(CheckVerdict::NotChecked, None, format!("not checked: {why}"))
    }

    fn check(self, verdict: CheckVerdict, figure: Option<f64>, what: String) -> Check {
        let Self { check, limit, limit_name, is_minimum, unit } = self;
        let limit_name = limit_name.to_owned();
        Check { check, place: None, verdict, figure, limit, limit_name, is_minimum, unit, what }
    }
}

/// Why a check was not made.
const NO_PREVIOUS: &str = "the previous file is not known (--previous)";
const NO_OTHERS: &str = "measurements of others are not known (--votes, --consensus)";

impl<'a> Subject<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        now_unix_s: u64,
        with: Comparison<'a>,
        limits: &'a Limits,
    ) -> Self {
        let votes = Votes::new(bytes, with);
        let previous = with.previous.and_then(|previous| Votes::new(previous, with));
        Self { bytes, now_unix_s, with, limits, votes, previous }
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.bad_lines()];
        if let Some(votes) = &self.votes {
            checks.extend([self.age(votes), self.measured(votes), self.compared(votes)]);
            checks.push(self.missing(votes));
            checks.extend(self.totals(votes));
            checks.extend([self.scale(votes), self.deviating(votes), self.largest_share(votes)]);
            checks.extend(self.changes_of_large_relays(votes));
            checks.push(self.lower_bounds(votes));
            checks.extend(self.biases(votes));
            checks.extend(self.with.places.iter().flat_map(|place| self.place(votes, place)));
        }
        checks
    }

    fn bad_lines(&self) -> Check {
        let limit = self.limits.bad_lines_max;
        let question = Question::at_most(CheckName::BadLines, limit, "bad_lines_max", Unit::Lines);
        let remedy = "Generate the file again: flashflow bwfile check names each line";
        let parsed = BandwidthFile::parse(self.bytes).ok().filter(|_| self.votes.is_some());
        let Some(parsed) = parsed else {
            let lines = self.bytes.split(|byte| *byte == b'\n').count() as f64;
            let found = "the first line is not a Unix time in seconds, so tor refuses the file";
            return question.verdict(true, lines, found, remedy);
        };
        let plain = without_annotations(self.bytes);
        let skipped = self.bytes[..self.bytes.len() - plain.len()].iter();
        let annotations = skipped.filter(|byte| **byte == b'\n').count();
        let report = check_as_tor(plain, parsed.file.timestamp);
        let is_bad = |verdict: &LineVerdict| match verdict {
            LineVerdict::Relay { bw_kb_s, .. } => *bw_kb_s == 0 || i32::try_from(*bw_kb_s).is_err(),
            _ => verdict.is_fault(),
        };
        let by_tor = report.lines.iter().filter(|(_, verdict)| is_bad(verdict));
        let mut bad: BTreeSet<usize> = by_tor.map(|(line, _)| line + annotations).collect();
        bad.extend(parsed.skipped.iter().map(|skipped| skipped.line));
        bad.extend(1..=annotations);
        let header = &parsed.file.header;
        let is_wrong = |(key, value): &(&str, Cow<'_, str>)| {
            HeaderKey::find(key).is_some_and(|known| known.check(value).is_err())
        };
        let differs = header.latest_bandwidth.is_some_and(|latest| latest != parsed.file.timestamp);
        let count = bad.len() + header.pairs().filter(is_wrong).count() + usize::from(differs);
        let first = bad.first().map(|line| format!(", such as line {line}"));
        let found = format!("{count} bad lines{}", first.unwrap_or_default());
        question.answer(count as f64, found, remedy)
    }

    fn age(&self, votes: &Votes) -> Check {
        let question =
            Question::at_most(CheckName::Age, self.limits.age_max_h, "age_max_h", Unit::Hours);
        let hours = |seconds: u64| seconds as f64 / 3600.0;
        let made = votes.file.timestamp;
        if let Some(early_s) =
            made.checked_sub(self.now_unix_s).filter(|early_s| *early_s > CLOCKS_S)
        {
            let found = format!("the newest result is {early_s} s in the future");
            let remedy = "Set the clock of the generator: tor would use the file for too long";
            return question.verdict(true, -hours(early_s), found, remedy);
        }
        let age_s = self.now_unix_s.saturating_sub(made);
        let found =
            format!("the newest result is {} min old; tor refuses a file after 72 h", age_s / 60);
        question.answer(hours(age_s), found, "Look why nothing is measured")
    }

    /// The relays that could be measured, if they are known.
    fn measurable(&self) -> Option<BTreeSet<RsaId>> {
        if let Some(consensus) = self.with.consensus {
            let running = consensus.routers().iter().filter(|router| router.is_measurable());
            return Some(running.map(|router| router.fingerprint).collect());
        }
        self.with.others.map(|others| others.measurable.keys().copied().collect())
    }

    fn measured(&self, votes: &Votes) -> Check {
        let limit = self.limits.measured_min_percent;
        let question = Question::at_least(CheckName::Measured, limit, "measured_min_percent");
        let remedy =
            "Wait until more relays are measured: below 60 %, FlashFlow writes vote=0 on all lines";
        if votes.kb_s.is_empty() {
            return question.answer(0.0, "authorities would vote on no relay", remedy);
        }
        let header = &votes.file.header;
        let (some, all, source) = match self.measurable() {
            Some(relays) => {
                let some = relays.iter().filter(|relay| votes.kb_s.contains_key(relay)).count();
                (some as u64, relays.len() as u64, "running relays")
            }
            None => match header.number_consensus_relays {
                // The header may count relays that have no vote.
                Some(all) => (votes.kb_s.len() as u64, all, "relays by the header"),
                None => {
                    let why = "the number of relays is not known (--consensus, or \
                               number_consensus_relays in the header)";
                    return question.unknown(why);
                }
            },
        };
        let found = format!("authorities would vote on {some} of {all} {source}");
        question.answer(percent(some, all), found, remedy)
    }

    fn compared(&self, votes: &Votes) -> Check {
        let limit = self.limits.compared_min_percent;
        let question = Question::at_least(CheckName::Compared, limit, "compared_min_percent");
        let Some(others) = self.with.others else { return question.unknown(NO_OTHERS) };
        let mut counts = others.measured.clone();
        counts.sort_unstable();
        let typical = counts.get(counts.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let ours = votes.kb_s.keys();
        let ours = ours.filter(|relay| others.measurable.contains_key(relay)).count() as u64;
        let found = format!("{ours} measured relays; {typical} by {}", others.source);
        question.answer(
            percent(ours, typical),
            found,
            "Look at the check `missing` for the reasons",
        )
    }

    fn missing(&self, votes: &Votes) -> Check {
        let limit = self.limits.missing_max_percent;
        let question =
            Question::at_most(CheckName::Missing, limit, "missing_max_percent", Unit::Percent);
        let Some(others) = self.with.others else { return question.unknown(NO_OTHERS) };
        let measurable = self.measurable().unwrap_or_default();
        let theirs = others.medians_kb_s.keys().filter(|relay| measurable.contains(relay));
        let theirs: Vec<&RsaId> = theirs.collect();
        if theirs.is_empty() {
            return question.unknown("no relay was measured by more than half of the others");
        }
        let lines = votes.lines();
        let mut reasons: BTreeMap<String, (u64, RsaId)> = BTreeMap::new();
        for relay in theirs.iter().filter(|relay| !votes.kb_s.contains_key(relay)) {
            let reason = lines.get(relay).map_or_else(|| "no line".to_owned(), |line| why(line));
            reasons.entry(reason).or_insert((0, **relay)).0 += 1;
        }
        let count: u64 = reasons.values().map(|(count, _)| count).sum();
        let mut found =
            format!("{count} of {} relays that others measured have no vote", theirs.len());
        let mut reasons: Vec<(String, (u64, RsaId))> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        let named = reasons.iter().take(REASONS_MAX);
        let named: Vec<String> = named
            .map(|(reason, (count, example))| format!("{count} {reason} (such as {example})"))
            .collect();
        if !named.is_empty() {
            let more = reasons.len().saturating_sub(REASONS_MAX);
            let more = if more > 0 { format!("; {more} other reasons") } else { String::new() };
            found += &format!(": {}{more}", named.join("; "));
        }
        let remedy = "Remove the reasons: flashflow bwfile explain has more about each relay";
        question.answer(percent(count, theirs.len() as u64), found, remedy)
    }

    fn totals(&self, votes: &Votes) -> [Check; 2] {
        let Limits { total_fall_max_percent: fall, total_rise_max_percent: rise, .. } =
            *self.limits;
        let fall =
            Question::at_most(CheckName::TotalFall, fall, "total_fall_max_percent", Unit::Percent);
        let rise =
            Question::at_most(CheckName::TotalRise, rise, "total_rise_max_percent", Unit::Percent);
        let Some(previous) = &self.previous else {
            return [fall, rise].map(|question| question.unknown(NO_PREVIOUS));
        };
        let (before, now) = (previous.total(), votes.total());
        if before == 0 {
            let why = "authorities vote on no relay of the previous file";
            return [fall, rise].map(|question| question.unknown(why));
        }
        let change = (now as f64 / before as f64 - 1.0) * 100.0;
        let found = format!("from {before} KB/s in all to {now} KB/s");
        let remedy = "Compare both files: flashflow bwfile diff. If the change is right, let latest.v3bw point to the new file";
        [(fall, -change), (rise, change)]
            .map(|(question, figure)| question.answer(figure.max(0.0), &found, remedy))
    }

    /// Our weights and the others' medians of relays that have both.
    fn common(&self, votes: &Votes) -> Vec<(RsaId, f64, f64)> {
        let Some(others) = self.with.others else { return Vec::new() };
        let theirs = others.medians_kb_s.iter().filter(|(_, kb_s)| **kb_s > 0);
        theirs
            .filter_map(|(relay, theirs)| {
                let ours = votes.kb_s.get(relay).filter(|ours| **ours > 0)?;
                Some((*relay, *ours as f64, f64::from(*theirs)))
            })
            .collect()
    }

    fn scale(&self, votes: &Votes) -> Check {
        let limit = self.limits.scale_max_factor;
        let question = Question::at_most(CheckName::Scale, limit, "scale_max_factor", Unit::Factor);
        let common = self.common(votes);
        let (ours, theirs) = sums(&common);
        let Some(factor) = Some(ours / theirs).filter(|_| !common.is_empty()) else {
            return question.unknown(NO_OTHERS);
        };
        let (times, side) = match factor < 1.0 {
            true => (factor.recip(), "less than"),
            false => (factor, "of"),
        };
        let found = format!(
            "{} relays that others measured, too, have {ours:.0} KB/s, {times:.2} times {side} the others' medians",
            common.len()
        );
        let remedy = "Look for a mistake with units: bw is in KB/s of 1,000 bytes";
        question.answer(factor.max(factor.recip()), found, remedy)
    }

    fn deviating(&self, votes: &Votes) -> Check {
        let Limits { deviation_percent: most, deviating_max_percent: limit, .. } = *self.limits;
        let question =
            Question::at_most(CheckName::Deviating, limit, "deviating_max_percent", Unit::Percent);
        let common = self.common(votes);
        if common.is_empty() {
            return question.unknown(NO_OTHERS);
        }
        let (ours, theirs) = sums(&common);
        let ratio = |(_, own, other): &(RsaId, f64, f64)| own / ours / (other / theirs);
        let mut beyond: Vec<&(RsaId, f64, f64)> =
            common.iter().filter(|pair| (ratio(pair) - 1.0).abs() * 100.0 > most).collect();
        // Those that move most of the traffic come first.
        let moved = |(_, own, other): &(RsaId, f64, f64)| (own / ours - other / theirs).abs();
        beyond.sort_by(|left, right| moved(right).total_cmp(&moved(left)));
        let first = beyond.iter().take(NAMED_MAX);
        let named = list(first.map(|pair| format!("{} {:.2} times", pair.0, ratio(pair))));
        let found = format!(
            "{} of {} relays have a share more than {most} % from that by the others{named}",
            beyond.len(),
            common.len()
        );
        let remedy = "Explain the largest ten with flashflow bwfile explain";
        question.answer(percent(beyond.len() as u64, common.len() as u64), found, remedy)
    }

    fn largest_share(&self, votes: &Votes) -> Check {
        let limit = self.limits.largest_share_max_percent;
        let name = "largest_share_max_percent";
        let question = Question::at_most(CheckName::LargestShare, limit, name, Unit::Percent);
        let largest = votes.largest(1).pop();
        let Some(relay) = largest.filter(|_| votes.kb_s.len() >= SHARES_MIN) else {
            return question
                .unknown(format!("authorities would vote on under {SHARES_MIN} relays"));
        };
        let kb_s = votes.kb_s.get(&relay).copied().unwrap_or_default();
        let found = format!("{relay} has {kb_s} KB/s of {}", votes.total());
        let remedy = "Measure it again: no relay should see that much of all traffic";
        question.answer(percent(kb_s, votes.total()), found, remedy)
    }

    fn changes_of_large_relays(&self, votes: &Votes) -> [Check; 2] {
        let Limits { large_changed_max_percent: limit, largest_relays, .. } = *self.limits;
        let name = "large_changed_max_percent";
        let losses = Question::at_most(CheckName::LargeLosses, limit, name, Unit::Percent);
        let gains = Question::at_most(CheckName::LargeGains, limit, name, Unit::Percent);
        let Some(previous) = &self.previous else {
            return [losses, gains].map(|question| question.unknown(NO_PREVIOUS));
        };
        let kb_s = |votes: &Votes, relay: &RsaId| {
            votes.kb_s.get(relay).copied().unwrap_or_default() as f64
        };
        let change =
            |relay: &RsaId| (kb_s(votes, relay) / kb_s(previous, relay).max(1.0) - 1.0) * 100.0;
        // A relay that lost was large before, one that gained is large now.
        let sides = [
            (losses, previous, "lost", self.limits.large_loss_percent, -1.0),
            (gains, votes, "gained", self.limits.large_gain_percent, 1.0),
        ];
        sides.map(|(question, side, verb, most, sign)| {
            let large = side.largest(largest_relays);
            if large.is_empty() {
                return question.unknown("there is no relay with a vote");
            }
            let changed: Vec<&RsaId> =
                large.iter().filter(|relay| sign * change(relay) > most).collect();
            let named = list(changed.iter().take(NAMED_MAX).map(|relay| {
                let (before, now) = (kb_s(previous, relay), kb_s(votes, relay));
                format!("{relay} from {before} to {now} KB/s")
            }));
            let found = format!(
                "{} of the {} largest relays {verb} more than {most} %{named}",
                changed.len(),
                large.len()
            );
            let remedy = "Many at once are rarely the relays' fault: look at the measurers first";
            question.answer(percent(changed.len() as u64, large.len() as u64), found, remedy)
        })
    }

    fn lower_bounds(&self, votes: &Votes) -> Check {
        let Limits { lower_bounds_max_percent: limit, largest_relays, .. } = *self.limits;
        let name = "lower_bounds_max_percent";
        let question = Question::at_most(CheckName::LowerBounds, limit, name, Unit::Percent);
        let lines = votes.lines();
        let largest = votes.largest(largest_relays).into_iter();
        let largest = largest.filter_map(|relay| lines.get(&relay));
        let stated: Vec<&&RelayLine> =
            largest.filter(|line| line.extra(crate::CONCLUSIVE).is_some()).collect();
        if stated.is_empty() {
            return question.unknown("no large relay has flashflow_conclusive");
        }
        let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
        for line in stated.iter().filter(|line| line.extra(crate::CONCLUSIVE) == Some("0")) {
            let cause = line.extra(crate::CAUSE).unwrap_or("unknown cause");
            *causes.entry(cause).or_default() += 1;
        }
        causes.remove(CLIENTS);
        let count: u64 = causes.values().sum();
        let named = list(causes.iter().map(|(cause, count)| format!("{count} {cause}")));
        let found = format!(
            "{count} of the {} largest relays have a lower bound, not counting those for their clients{named}",
            stated.len()
        );
        let remedy = "Add measurers: the fastest relays get less than they carry";
        question.answer(percent(count, stated.len() as u64), found, remedy)
    }
}

fn percent(some: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { some as f64 * 100.0 / all as f64 }
}

fn sums(common: &[(RsaId, f64, f64)]) -> (f64, f64) {
    let ours = common.iter().map(|(_, ours, _)| ours).sum();
    (ours, common.iter().map(|(_, _, theirs)| theirs).sum())
}

/// The end of a sentence that lists these things, if there are any.
fn list(things: impl Iterator<Item = String>) -> String {
    let things: Vec<String> = things.collect();
    if things.is_empty() { String::new() } else { format!(": {}", things.join(", ")) }
}

/// Why a relay with a line has no vote. Numbers in a reason differ between relays, so they are left out.
fn why(line: &RelayLine) -> String {
    let reason = match line.extra("error") {
        Some(reason) => reason.replace('_', " "),
        None if line.unmeasured => "not measured".to_owned(),
        None if line.under_min_report => "too few relays measured".to_owned(),
        None => "vote=0".to_owned(),
    };
    let words =
        reason.split(' ').map(|word| match word.bytes().any(|byte| byte.is_ascii_digit()) {
            true => "…",
            false => word,
        });
    words.collect::<Vec<_>>().join(" ")
}
