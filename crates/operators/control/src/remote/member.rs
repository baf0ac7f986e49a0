use super::session_task::{Command, ReportSink, RoundKey};
use measurer::Member;
use measurer::member::{MemberError, Reports, RoundOrder};
use onion::Duration;
use tokio::sync::mpsc;

/// A remote measurer in one measurement. No method blocks on the network.
///
/// A session that is lost, refused or cannot be made is reported as
/// [`Broken`](measurer::member::FailureKind::Broken); the next round tries again. Dropping it ends its round.
pub struct RemoteMember {
    commands: mpsc::UnboundedSender<Command>,
    round: Option<Round>,
}

struct Round {
    key: RoundKey,
    sink: ReportSink,
}

impl RemoteMember {
    pub(super) const fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { commands, round: None }
    }
}

impl Member for RemoteMember {
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        self.stop();
        let (key, sink) = (RoundKey::new(), ReportSink::new(reports));
        let command =
            Command::Prepare { key: key.clone(), order: Box::new(order), sink: sink.clone() };
        let ended = |_| MemberError("the sessions with measurers have ended".to_owned());
        self.commands.send(command).map_err(ended)?;
        self.round = Some(Round { key, sink });
        Ok(())
    }

    fn start(&mut self, delay: Duration) {
        if let Some(round) = &self.round {
            // A session task that has ended has reported the reason.
            let _ = self.commands.send(Command::Start { key: round.key.clone(), delay });
        }
    }

    fn stop(&mut self) {
        if let Some(Round { key, sink }) = self.round.take() {
            sink.close();
            let _ = self.commands.send(Command::Stop { key });
        }
    }
}

impl Drop for RemoteMember {
    fn drop(&mut self) {
        self.stop();
    }
}
