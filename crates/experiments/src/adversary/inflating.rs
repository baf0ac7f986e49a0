use measurer::Member;
use measurer::member::{MeasurerKey, MemberError, MemberReport, Reports, RoundOrder};
use onion::Duration;
use onion::measure::Second;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A measurer that says it got so many times as much back as it did.
pub(super) struct Inflating<M> {
    pub(super) honest: M,
    pub(super) factor: u64,
}

impl<M: Member> Member for Inflating<M> {
    fn key(&self) -> MeasurerKey {
        self.honest.key()
    }

    fn address(&self) -> Option<IpAddr> {
        self.honest.address()
    }

    fn anticipate(&mut self, order: &RoundOrder, cancel: &AtomicBool) -> Result<(), MemberError> {
        self.honest.anticipate(order, cancel)
    }

    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        let factor = self.factor;
        let inflated = Arc::new(move |report| {
            reports(match report {
                MemberReport::Second(second) => {
                    let bytes = second.bytes.saturating_mul(factor);
                    MemberReport::Second(Second { bytes, ..second })
                }
                other => other,
            });
        });
        self.honest.prepare(order, inflated)
    }

    fn start(&mut self, delay: Duration) {
        self.honest.start(delay);
    }

    fn stop(&mut self) {
        self.honest.stop();
    }
}
