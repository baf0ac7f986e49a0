//! Coordinators and measurers that break the rules: the cases of `flashflow-lab conformance`.

use super::relays::start;
use super::{Cell, Context, Kind};
use crate::error::Result;
use lab::conformance::{BREACHES, Case as Breach, Judge, Subject};
use link::unix_time_s;
use report::experiment::{Case, CaseVerdict};

/// The quota of the relay, which one of the cases exceeds.
const QUOTA: u32 = 10;

/// Each breach, committed once against an honest relay.
pub(super) fn cells() -> impl Iterator<Item = Cell> {
    let cell = |breach: &'static Breach| {
        Cell::new(Kind::Party, breach.name, move |context| run(context, breach))
    };
    BREACHES.iter().map(cell)
}

fn run(context: &Context<'_>, breach: &Breach) -> Result<Case> {
    let relay = start(context, None, QUOTA)?;
    let coordinator = context.testbed.key().seed();
    let subject = Subject { target: relay.target(), coordinator, unix_time_s: unix_time_s() };
    let found = Judge::new(subject)?.play(breach)?;
    relay.stop()?;
    let Breach { name, expected, .. } = breach;
    let case = Case::named(*name).column("expected_errors", *expected).column("errors", &*found);
    Ok(if found == *expected {
        case.ended(CaseVerdict::Refused, format!("errors to coordinator and measurer: {found}"))
    } else {
        case.ended(CaseVerdict::Missed, format!("errors: {found}, not {expected}"))
    })
}
