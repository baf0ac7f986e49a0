use super::*;
use crate::cell::msg::Sendme;
use proptest::prelude::*;

/// One end's window and tags, and a number for each cell as its tag.
#[derive(Default)]
struct End {
    flow: Flow,
    sent: u64,
}

fn tag(cell: u64) -> [u8; 20] {
    let mut tag = [0xee; 20];
    tag[..8].copy_from_slice(&cell.to_be_bytes());
    tag
}

impl End {
    fn send(&mut self) {
        self.sent += 1;
        let sent = self.sent;
        self.flow.handle_sent(Instant::ORIGIN, || tag(sent));
    }

    fn handle(&mut self, sendme: &Sendme<'_>) -> Result<(), FlowError> {
        self.flow.handle_sendme(Instant::ORIGIN, sendme, PathState::default())
    }
}

proptest! {
    #[test]
    fn the_fixed_window_is_respected_and_reopened_by_sendmes(steps in prop::collection::vec(1usize..300, 1..100)) {
        let (mut sender, mut receiver) = (End::default(), Flow::default());
        let mut acknowledged = 0;
        for cells in steps {
            for _ in 0..cells.min(sender.flow.room_cells() as usize) {
                sender.send();
                prop_assert!(sender.sent - acknowledged <= 1000);
                if receiver.handle_received() {
                    acknowledged += 100;
                    prop_assert_eq!(sender.handle(&Sendme::Tagged(&tag(sender.sent))), Ok(()));
                    prop_assert_eq!(u64::from(sender.flow.room_cells()), 1000 - (sender.sent - acknowledged));
                }
            }
        }
    }

    #[test]
    fn the_blocked_mark_has_hysteresis(lengths in prop::collection::vec(0u32..400, 1..100)) {
        let mut mark = BlockedMark::default();
        for queued in lengths {
            let before = mark.is_blocked();
            let after = mark.handle_queue(queued);
            prop_assert_eq!(after, queued >= 256 || (before && queued > 10));
        }
    }
}

#[test]
fn a_sendme_with_a_wrong_tag_is_rejected() {
    for (sendme, refusal) in [
        (Sendme::Tagged(&tag(99)), FlowError::WrongTag),
        (Sendme::Tagged(&tag(100)[..16]), FlowError::WrongTag),
        (Sendme::Tagged(&[]), FlowError::WrongTag),
        (Sendme::Bare, FlowError::SendmeVersion(0)),
        (Sendme::Unknown(2), FlowError::SendmeVersion(2)),
    ] {
        let mut sender = End::default();
        (0..150).for_each(|_| sender.send());
        assert_eq!(sender.handle(&sendme), Err(refusal));
    }
}

#[test]
fn a_sendme_before_its_cells_is_rejected() {
    let mut sender = End::default();
    (0..99).for_each(|_| sender.send());
    assert_eq!(sender.handle(&Sendme::Tagged(&tag(99))), Err(FlowError::UnexpectedSendme));
    sender.send();
    assert_eq!(sender.handle(&Sendme::Tagged(&tag(100))), Ok(()));
    assert_eq!(sender.handle(&Sendme::Tagged(&tag(100))), Err(FlowError::UnexpectedSendme));
}

#[test]
fn old_directory_clients_may_omit_tags() {
    let mut tags = SendmeTags::new();
    tags.expect(tag(1));
    assert_eq!(tags.handle_sendme(&Sendme::Bare, true), Ok(()));
    assert!(tags.is_empty());
}
