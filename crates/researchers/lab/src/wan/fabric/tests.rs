use super::super::path::{Bottleneck, Jitter, Queue, Reordering};
use super::*;
use onion::{Duration, Rate};
use proptest::prelude::*;

const BYTE_PER_MS: u64 = 1_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn bottleneck(queue: Queue) -> Bottleneck {
    Bottleneck { rate: Rate::from_byte_per_s(BYTE_PER_MS), queue }
}

/// Two hosts with this path in both directions.
fn fabric(path: WanPath) -> Fabric {
    Fabric::new(1, &[Access::default(); 2], |_, _| path)
}

/// The deliveries, and when they were due; drops are skipped.
fn arrivals(fabric: &mut Fabric) -> Vec<(u32, HostNumber, Instant)> {
    let mut all = Vec::new();
    while let Some(now) = fabric.next_due() {
        while let Some(action) = fabric.poll(now) {
            if let Action::Deliver { packet, to, due } = action {
                assert!(due <= now);
                all.push((packet.slot, to, due));
            }
        }
    }
    all
}

fn send(fabric: &mut Fabric, from: HostNumber, to: HostNumber, slot: u32, at: Instant) -> u8 {
    fabric.handle_packet(from, to, PacketRef { slot, len: 1000 }, at)
}

#[test]
fn a_packet_arrives_after_the_latency_and_not_before() {
    let mut fabric = fabric(WanPath::with_latency(ms(20)));
    assert_eq!(send(&mut fabric, 0, 1, 5, Instant::from_millis(1)), 1);
    assert_eq!(fabric.poll(Instant::from_nanos(20_999_999)), None);
    assert_eq!(fabric.next_due(), Some(Instant::from_millis(21)));
    let action = fabric.poll(Instant::from_millis(30)).expect("due");
    let packet = PacketRef { slot: 5, len: 1000 };
    assert_eq!(action, Action::Deliver { packet, to: 1, due: Instant::from_millis(21) });
    assert_eq!(fabric.poll(Instant::from_millis(30)), None);
}

#[test]
fn the_latency_is_added_after_the_bottleneck() {
    let path = WanPath {
        bottleneck: Some(bottleneck(Queue::Bytes(2000))),
        ..WanPath::with_latency(ms(10))
    };
    let mut fabric = fabric(path);
    let kept = [0, 1, 2].map(|slot| send(&mut fabric, 0, 1, slot, Instant::ORIGIN));
    assert_eq!(kept, [1, 1, 0]);
    let due = |millis| Instant::from_millis(millis);
    assert_eq!(arrivals(&mut fabric), [(0, 1, due(11)), (1, 1, due(12))]);
    assert_eq!(fabric.counts(0, 1).dropped_by_queue, 1);
    assert_eq!(fabric.counts(1, 0), Counts::default());
}

#[test]
fn only_packets_that_are_held_back_are_overtaken() {
    let reordering = Reordering { share: 0.3, held_back: ms(5) };
    let mut fabric = fabric(WanPath { reordering, ..WanPath::with_latency(ms(10)) });
    for slot in 0..1000 {
        send(&mut fabric, 0, 1, slot, Instant::from_millis(slot.into()));
    }
    let received = arrivals(&mut fabric);
    assert_eq!(received.len(), 1000);
    let (late, on_time): (Vec<_>, Vec<_>) = received
        .iter()
        .partition(|(slot, _, due)| *due > Instant::from_millis(u64::from(*slot) + 10));
    assert!(late.iter().all(|(slot, _, due)| *due == Instant::from_millis(u64::from(*slot) + 15)));
    assert!(on_time.is_sorted());
    assert_eq!(u64::try_from(late.len()).expect("few"), fabric.counts(0, 1).held_back);
    assert!((200..400).contains(&late.len()) && !received.is_sorted_by_key(|(slot, ..)| *slot));
}

#[test]
fn a_duplicate_arrives_together_with_its_original() {
    let mut fabric = fabric(WanPath { duplicate_share: 1.0, ..WanPath::with_latency(ms(10)) });
    assert_eq!(send(&mut fabric, 0, 1, 3, Instant::ORIGIN), 2);
    assert_eq!(arrivals(&mut fabric), [(3, 1, Instant::from_millis(10)); 2]);
    let counts = fabric.counts(0, 1);
    assert_eq!((counts.packets, counts.duplicated, counts.delivered_packets), (1, 1, 2));
}

#[test]
fn all_paths_of_a_host_share_its_access_link_in_each_direction() {
    let access = Access::both(bottleneck(Queue::Bytes(3000)));
    let free = Access::default();
    let paths = |_: usize, to: usize| WanPath::with_latency(ms(if to == 2 { 30 } else { 10 }));
    // The first host's upload: packets to both others leave one after another.
    let mut fabric = Fabric::new(1, &[access, free, free], paths);
    let kept = [1, 2, 1, 2].map(|to| send(&mut fabric, 0, to, 0, Instant::ORIGIN));
    assert_eq!(kept, [1, 1, 1, 0]);
    let due: Vec<_> = arrivals(&mut fabric).iter().map(|&(_, to, due)| (to, due)).collect();
    assert_eq!(due, [(1, 11), (1, 13), (2, 32)].map(|(to, at)| (to, Instant::from_millis(at))));
    assert_eq!(fabric.counts(0, 2).dropped_by_access, 1);
    // And its download: packets from both arrive at the same time.
    for slot in 0..2 {
        for from in [1, 2] {
            send(&mut fabric, from, 0, slot, Instant::from_millis(100));
        }
    }
    let due: Vec<_> = arrivals(&mut fabric).iter().map(|&(_, _, due)| due).collect();
    assert_eq!(due, [111, 112, 113].map(Instant::from_millis));
    let dropped = [1, 2].map(|from| fabric.counts(from, 0).dropped_by_access);
    assert_eq!(dropped, [0, 1]);
}

#[test]
fn a_change_affects_later_packets_only_and_does_not_reorder() {
    let mut fabric = fabric(WanPath::with_latency(ms(50)));
    send(&mut fabric, 0, 1, 0, Instant::ORIGIN);
    fabric.path_mut(0, 1).is_blackhole = true;
    send(&mut fabric, 0, 1, 1, Instant::ORIGIN);
    *fabric.path_mut(0, 1) = WanPath::with_latency(ms(5));
    send(&mut fabric, 0, 1, 2, Instant::from_millis(1));
    send(&mut fabric, 0, 1, 3, Instant::from_millis(60));
    let due = |millis| Instant::from_millis(millis);
    assert_eq!(arrivals(&mut fabric), [(0, 1, due(50)), (2, 1, due(50)), (3, 1, due(65))]);
    assert_eq!(fabric.counts(0, 1).blackholed, 1);
}

fn any_path() -> impl Strategy<Value = WanPath> {
    let shares = (0.0..0.5, 0.0..0.5, 0.0..0.5);
    let times = (0_u64..50, 0_u64..50, 0_u64..50);
    (shares, times, any::<bool>(), prop::option::of(1_u64..20_000)).prop_map(
        |((loss, held_back, duplicated), (latency, jitter, back), reorders, queue)| WanPath {
            jitter: Jitter { up_to: ms(jitter), reorders },
            reordering: Reordering { share: held_back, held_back: ms(back) },
            duplicate_share: duplicated,
            bottleneck: queue.map(|bytes| bottleneck(Queue::Bytes(bytes))),
            ..WanPath::with_latency(ms(latency)).with_loss(loss)
        },
    )
}

proptest! {
    #[test]
    fn each_copy_of_a_packet_gets_one_action_is_never_early_and_is_counted(
        path in any_path(),
        queue in prop::option::of(1_u64..20_000),
        packets in prop::collection::vec((0_u64..3_000_000, 0_usize..3, 0_usize..3), 1..300),
    ) {
        let access = queue.map_or(Access::default(), |bytes| Access::both(bottleneck(Queue::Bytes(bytes))));
        let mut fabric = Fabric::new(1, &[access; 3], |_, _| path);
        let mut now = Instant::ORIGIN;
        let mut open: Vec<(u8, Instant)> = Vec::new();
        let mut actions = Vec::new();
        for (pause_ns, from, to) in packets {
            now += Duration::from_nanos(pause_ns);
            while let Some(action) = fabric.poll(now) {
                actions.push(action);
            }
            let slot = u32::try_from(open.len()).expect("few");
            open.push((send(&mut fabric, from, to, slot, now), now));
        }
        while let Some(due) = fabric.next_due() {
            while let Some(action) = fabric.poll(due) {
                actions.push(action);
            }
        }
        for action in actions {
            let slot = match action {
                Action::Deliver { packet, due, .. } => {
                    let (_, sent) = open[usize::try_from(packet.slot).expect("small")];
                    prop_assert!(due >= sent + path.latency);
                    packet.slot
                }
                Action::Release { slot } => slot,
            };
            let copies = &mut open[usize::try_from(slot).expect("small")].0;
            prop_assert!(*copies > 0);
            *copies -= 1;
        }
        prop_assert!(open.iter().all(|(copies, _)| *copies == 0));
        let count = |figure: fn(&Counts) -> u64| {
            (0..9).map(|path| figure(&fabric.counts(path / 3, path % 3))).sum::<u64>()
        };
        prop_assert_eq!(count(|counts| counts.packets), u64::try_from(open.len()).expect("few"));
        prop_assert_eq!(
            count(|counts| counts.packets + counts.duplicated),
            count(|counts| counts.delivered_packets + counts.lost_by_chance + counts.dropped_by_queue
                + counts.dropped_by_access + counts.blackholed)
        );
    }

    #[test]
    fn packets_stay_in_order_without_reordering(
        path in any_path(),
        changed in any_path(),
        pauses_ns in prop::collection::vec(0_u64..3_000_000, 1..300),
    ) {
        let orderly = |path: WanPath| WanPath {
            jitter: Jitter { reorders: false, ..path.jitter },
            reordering: Reordering { share: 0.0, ..path.reordering },
            ..path
        };
        let mut fabric = fabric(orderly(path));
        let mut now = Instant::ORIGIN;
        for (number, pause_ns) in pauses_ns.iter().enumerate() {
            now += Duration::from_nanos(*pause_ns);
            if number == pauses_ns.len() / 2 {
                *fabric.path_mut(0, 1) = orderly(changed);
            }
            send(&mut fabric, 0, 1, u32::try_from(number).expect("few"), now);
        }
        prop_assert!(arrivals(&mut fabric).is_sorted_by_key(|&(slot, ..)| slot));
    }
}
