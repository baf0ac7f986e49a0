//! One round, on a thread of its own, since members may block.

use super::resources::{Reservation, RunningMark};
use crate::refusal::Refusal;
use measurer::member::{FailureKind, MemberReport, Reports, RoundOrder};
use onion::Duration;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A round; dropping it ends the round without waiting.
pub(super) struct Round {
    /// Dropping the sender is the command to stop.
    starts: Sender<Duration>,
    mark: RunningMark,
    /// The length of its load.
    length: Duration,
}

impl Round {
    /// Prepares at once, on a separate thread.
    pub(super) fn begin(
        reservation: Reservation,
        mark: RunningMark,
        order: RoundOrder,
        reports: Reports,
    ) -> io::Result<Self> {
        let (starts, receiver) = channel();
        let length = Duration::from_secs(order.seconds.into());
        thread::Builder::new()
            .name("round".to_owned())
            .spawn(move || run(reservation, order, &reports, &receiver))?;
        Ok(Self { starts, mark, length })
    }

    /// Starts to send after `delay`, and not before there is room.
    ///
    /// # Errors
    /// If there is no room by then.
    pub(super) fn start(&self, delay: Duration) -> Result<(), Refusal> {
        let delay = self.mark.start(delay, self.length)?;
        // A thread that has ended has reported the reason.
        let _ = self.starts.send(delay);
        Ok(())
    }
}

fn run(
    reservation: Reservation,
    order: RoundOrder,
    reports: &Reports,
    starts: &Receiver<Duration>,
) {
    let broken = |detail: String| {
        reports(MemberReport::Failed { kind: FailureKind::Broken, detail });
    };
    let _guard = ReportPanic(&broken);
    let mut member = match reservation.wait_for_room().and_then(|()| reservation.member()) {
        Ok(member) => member,
        Err(error) => return broken(error.to_string()),
    };
    if let Err(error) = member.prepare(order, reports.clone()) {
        broken(error.to_string());
    }
    for delay in starts {
        member.start(delay);
    }
    member.stop();
    reservation.give_back(member);
}

/// Reports a panic of the round's thread.
struct ReportPanic<'a>(&'a dyn Fn(String));

impl Drop for ReportPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)("the measurer's round panicked, which is a bug".to_owned());
        }
    }
}
