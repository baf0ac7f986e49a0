//! Retransmission of the messages of a lost leg.

use super::*;

/// Two ends with retransmission, the legs between them, and when a SENDME is due.
struct Resuming {
    from: Conflux<usize, u64>,
    to: Conflux<usize, u64>,
    /// With whether a SENDME will acknowledge it.
    ways: Vec<VecDeque<(Sent, bool)>>,
    /// On each leg, since the last marked message.
    unmarked: Vec<u32>,
    alive: Vec<usize>,
    sent: u64,
    got: Vec<u64>,
}

/// Messages that one SENDME acknowledges.
const MARKED_EVERY: u32 = 3;

impl Resuming {
    fn new(legs: usize) -> Self {
        let mut ends = [linked(legs, 1000), linked(legs, 1000)];
        ends.iter_mut().for_each(|end| end.set_resumes(true));
        let [from, to] = ends;
        Self {
            from,
            to,
            ways: vec![VecDeque::new(); legs],
            unmarked: vec![0; legs],
            alive: (0..legs).collect(),
            sent: 0,
            got: vec![],
        }
    }

    fn put(&mut self, leg: usize, skipped: Option<u32>, message: u64) {
        self.unmarked[leg] += 1;
        let is_marked = self.unmarked[leg] == MARKED_EVERY;
        if is_marked {
            self.unmarked[leg] = 0;
        }
        self.ways[leg].extend(skipped.map(|skipped| (Sent::Switch(skipped), false)));
        self.ways[leg].push_back((Sent::Message(message), is_marked));
        self.from.keep(leg, message, is_marked);
    }

    fn send(&mut self, leg: usize) {
        self.sent += 1;
        let skipped = self.from.handle_chosen(leg);
        self.from.handle_sent(leg);
        self.put(leg, skipped, self.sent);
    }

    fn arrive(&mut self, leg: usize) -> bool {
        let Some((sent, is_marked)) = self.ways[leg].pop_front() else { return false };
        self.got.extend(arrive(&mut self.to, leg, sent).expect("honest"));
        if is_marked {
            self.from.handle_acknowledged(leg);
        }
        true
    }

    /// Everything in flight on a leg is lost, at both ends.
    fn kill(&mut self, leg: usize) {
        if self.alive.len() == 1 {
            return;
        }
        self.alive.retain(|other| *other != leg);
        self.ways[leg].clear();
        assert_eq!(self.from.remove_leg(leg, 1, false), Removed::Spare);
        assert_eq!(self.to.remove_leg(leg, 0, false), Removed::Spare);
        let mut turn = 0;
        while self.from.next_lost().is_some() {
            turn += 1;
            let other = self.alive[turn % self.alive.len()];
            let (skipped, message) = self.from.take_lost(other).expect("one is lost");
            self.put(other, skipped, message);
        }
    }
}

#[test]
fn an_end_without_retransmission_accepts_no_backward_switch() {
    let mut end = linked(1, 100);
    (0..5).for_each(|_| _ = end.handle_received(0));
    let back = ConfluxSwitch { skipped: 3u32.wrapping_neg() };
    end.handle_switch(0, back).expect("far ahead");
    assert_eq!(end.handle_received(0), Ok(Order::Early(5 + u64::from(u32::MAX) - 2 + 1)));
    let mut end = linked(1, 100);
    end.set_resumes(true);
    (0..5).for_each(|_| _ = end.handle_received(0));
    end.handle_switch(0, back).expect("back");
    assert_eq!(end.handle_received(0), Ok(Order::Duplicate));
    let before_the_first = ConfluxSwitch { skipped: 9u32.wrapping_neg() };
    assert_eq!(end.handle_switch(0, before_the_first), Err(ConfluxError::Switch));
}

#[test]
fn messages_beyond_the_limit_are_not_retransmitted() {
    let mut end = linked(2, 100);
    end.set_resumes(true);
    for number in 0..=1 << 13 {
        end.handle_chosen(0);
        end.handle_sent(0);
        end.keep(0, 1, number % 31 == 0);
    }
    assert_eq!(end.again_len(), 1 << 13);
    assert_eq!(end.remove_leg(0, 9, false), Removed::Broken);
    assert_eq!(end.again_len(), 0);
}

/// Only data is acknowledged: an end that receives only answers makes the other end keep few of them.
#[test]
fn messages_without_sendme_are_kept_up_to_a_limit() {
    let mut end = linked(2, 100);
    end.set_resumes(true);
    for _ in 0..600 {
        end.handle_chosen(0);
        end.handle_sent(0);
        end.keep(0, 1, false);
    }
    assert_eq!(end.again_len(), 512);
    assert_eq!(end.remove_leg(0, 9, false), Removed::Broken);
    assert_eq!(end.again_len(), 0);
}

/// A client that only downloads, slowly, sends thousands of XOFFs and XONs and hardly any data.
#[test]
fn messages_without_sendme_are_kept_until_the_other_end_reports_them() {
    let mut ends = [linked(2, 100), linked(2, 100)];
    ends.iter_mut().for_each(|end| end.set_resumes(true));
    let [mut from, mut to] = ends;
    for number in 1..=5000 {
        from.handle_chosen(0);
        from.handle_sent(0);
        from.keep(0, number, false);
        assert_eq!(to.handle_received(0), Ok(Order::Next));
        if let Some(count) = to.take_report(0, false) {
            from.handle_arrived(0, count);
        }
    }
    assert_eq!(from.again_len(), 5000 % 128);
    assert_eq!(from.remove_leg(0, 9, false), Removed::Spare);
    assert_eq!(from.next_lost(), Some(&(5000 - 5000 % 128 + 1)));
}

/// The SENDME of reported messages acknowledges nothing else.
#[test]
fn a_sendme_after_a_report_acknowledges_nothing_twice() {
    let mut end = linked(2, 100);
    end.set_resumes(true);
    for (number, is_marked) in [(1, false), (2, true), (3, false), (4, true)] {
        end.handle_chosen(0);
        end.handle_sent(0);
        end.keep(0, number, is_marked);
    }
    end.handle_arrived(0, 3);
    assert_eq!(end.again_len(), 1);
    end.handle_arrived(0, 2);
    end.handle_acknowledged(0);
    assert_eq!(end.again_len(), 1, "it acknowledged the second message");
    end.handle_acknowledged(0);
    assert_eq!(end.again_len(), 0);
}

/// A lost leg is not linked, however late its LINK arrives; nor are two legs with one number.
#[test]
fn lost_legs_are_not_linked() {
    let mut end = linked(1, 100);
    end.set_resumes(true);
    let link =
        |end: &Conflux<usize, u64>, leg| ConfluxLink { leg, ..end.link(DesiredUx::NoOpinion) };
    assert_eq!(end.handle_lost_legs(&[5, 9]), [] as [usize; 0]);
    let mut add = |leg, number| {
        let link = link(&end, number);
        end.add_leg(leg, &link, &link, NOW)
    };
    assert_eq!(add(50, 5), Err(ConfluxError::Handshake));
    assert_eq!(add(60, 6), Ok(()));
    assert_eq!(add(61, 6), Err(ConfluxError::Handshake));
    assert_eq!(end.handle_lost_legs(&[6, 5]), [60]);
}

/// A relay that lost all legs has discarded the set, and its LINKED states another first leg. LINKEDs of the earlier state may
/// still arrive: they do not close the open legs.
#[test]
fn a_discarded_set_is_detected_and_late_answers_are_ignored() {
    let mut end = end(100);
    end.set_resumes(true);
    let add = |end: &mut Conflux<usize, u64>, number: u8, first_leg| {
        let link = ConfluxLink { leg: number, first_leg, ..end.link(DesiredUx::NoOpinion) };
        end.set_first_leg(first_leg)?;
        end.add_leg(number.into(), &link, &link, NOW)
    };
    assert_eq!(add(&mut end, 1, 1), Ok(()));
    assert_eq!(add(&mut end, 0, 0), Ok(()), "no message was carried");
    end.handle_chosen(1);
    end.handle_sent(1);
    assert_eq!(add(&mut end, 3, 1), Ok(()), "a leg of the current set");
    assert_eq!(add(&mut end, 4, 4), Err(ConfluxError::Desynchronised));
}

/// A message that was not kept does no harm once a later SENDME has acknowledged it.
#[test]
fn a_leg_is_recoverable_once_its_unkept_message_is_acknowledged() {
    let mut end = linked(2, 100);
    end.set_resumes(true);
    let send = |end: &mut Conflux<usize, u64>, message, is_marked| {
        end.handle_chosen(0);
        end.handle_sent(0);
        end.keep(0, message, is_marked);
    };
    (1..=600).for_each(|message| send(&mut end, message, false));
    send(&mut end, 601, true);
    send(&mut end, 602, false);
    end.handle_acknowledged(0);
    assert_eq!(end.again_len(), 1);
    assert_eq!(end.remove_leg(0, 9, false), Removed::Spare);
    assert_eq!(end.next_lost(), Some(&602));
}

proptest! {
    /// The set is lost with a leg if and only if a message was neither kept nor acknowledged. Otherwise exactly
    /// the unacknowledged messages are retransmitted.
    #[test]
    fn exactly_the_unacknowledged_messages_of_a_leg_are_retransmitted(
        steps in prop::collection::vec((0u8..4, 1u64..700), 1..40),
    ) {
        let mut end = linked(2, 100);
        end.set_resumes(true);
        // By number, with whether a SENDME will acknowledge it.
        let mut open: VecDeque<(u64, bool)> = VecDeque::new();
        let (mut sent, mut unmarked, mut last_dropped) = (0, 0, 0);
        for (what, count) in steps {
            let (count, marked_every) = match what {
                0 => (count, u64::MAX),
                1 => (4 * count, 31),
                2 => (1, 1),
                _ => (0, 1),
            };
            for at in 1..=count {
                let is_marked = at % marked_every == 0;
                unmarked = if is_marked { 0 } else { unmarked + 1 };
                let first = open.front().map_or(sent + 1, |front| front.0).max(last_dropped + 1);
                let kept = sent + 1 - first;
                if kept >= 1 << 13 || (kept > 0 && unmarked > 512) {
                    last_dropped = first;
                }
                sent += 1;
                end.handle_chosen(0);
                end.handle_sent(0);
                end.keep(0, sent, is_marked);
                open.push_back((sent, is_marked));
            }
            if what == 3 && open.iter().any(|(_, is_marked)| *is_marked) {
                while open.pop_front().is_some_and(|(_, is_marked)| !is_marked) {}
                end.handle_acknowledged(0);
            }
        }
        let kept = open.iter().filter(|(number, _)| *number > last_dropped).count();
        prop_assert_eq!(end.again_len(), kept);
        let removed = end.remove_leg(0, 9, false);
        if kept < open.len() {
            prop_assert_eq!((removed, end.again_len()), (Removed::Broken, 0));
        } else {
            prop_assert_eq!(removed, Removed::Spare);
            let again = core::iter::from_fn(|| end.take_lost(1).map(|(_, message)| message));
            prop_assert!(again.eq(open.iter().map(|(number, _)| *number)));
        }
    }

    /// Whichever legs are lost and whenever: as long as one is left, each message arrives once and in order.
    #[test]
    fn with_retransmission_lost_legs_lose_no_messages(
        legs in 2usize..=5,
        steps in prop::collection::vec((0usize..5, 0u8..20), 1..400),
    ) {
        let mut world = Resuming::new(legs);
        for (leg, what) in steps {
            let leg = world.alive[leg % world.alive.len()];
            match what {
                0 => world.kill(leg),
                1..10 => _ = world.arrive(leg),
                _ => world.send(leg),
            }
        }
        for leg in world.alive.clone() {
            while world.arrive(leg) {}
        }
        prop_assert_eq!(world.got, (1..=world.sent).collect::<Vec<u64>>());
        prop_assert_eq!((world.to.early_len(), world.to.delivered()), (0, world.sent));
        let kept = world.alive.iter().map(|leg| world.unmarked[*leg] as usize).sum::<usize>();
        prop_assert_eq!(world.from.again_len(), kept, "acknowledged messages are released");
    }
}
