use super::super::way::{Jitter, Narrow, Queue, Reordering};
use super::*;
use onion::{Duration, Rate};
use proptest::prelude::*;

const BYTE_PER_MS: u64 = 1_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn narrow(queue: Queue) -> Narrow {
    Narrow { rate: Rate::from_byte_per_s(BYTE_PER_MS), queue }
}

/// Two hosts with this path in both directions.
fn fabric(way: Way) -> Fabric {
    Fabric::new(1, &[Access::default(); 2], |_, _| way)
}

/// The deliveries, and when they were due; drops are skipped.
fn arrivals(fabric: &mut Fabric) -> Vec<(u32, HostNumber, Instant)> {
    let mut all = Vec::new();
    while let Some(now) = fabric.next_due() {
        while let Some(deed) = fabric.poll(now) {
            if let Deed::Deliver { parcel, to, due } = deed {
                assert!(due <= now);
                all.push((parcel.slot, to, due));
            }
        }
    }
    all
}

fn send(fabric: &mut Fabric, from: HostNumber, to: HostNumber, slot: u32, at: Instant) -> u8 {
    fabric.handle_packet(from, to, Parcel { slot, len: 1000 }, at)
}

#[test]
fn a_packet_arrives_after_the_latency_and_not_before() {
    let mut fabric = fabric(Way::with_latency(ms(20)));
    assert_eq!(send(&mut fabric, 0, 1, 5, Instant::from_millis(1)), 1);
    assert_eq!(fabric.poll(Instant::from_nanos(20_999_999)), None);
    assert_eq!(fabric.next_due(), Some(Instant::from_millis(21)));
    let deed = fabric.poll(Instant::from_millis(30)).expect("due");
    let parcel = Parcel { slot: 5, len: 1000 };
    assert_eq!(deed, Deed::Deliver { parcel, to: 1, due: Instant::from_millis(21) });
    assert_eq!(fabric.poll(Instant::from_millis(30)), None);
}

#[test]
fn the_narrow_place_comes_before_the_latency() {
    let way = Way { narrow: Some(narrow(Queue::Bytes(2000))), ..Way::with_latency(ms(10)) };
    let mut fabric = fabric(way);
    let kept = [0, 1, 2].map(|slot| send(&mut fabric, 0, 1, slot, Instant::ORIGIN));
    assert_eq!(kept, [1, 1, 0]);
    let due = |millis| Instant::from_millis(millis);
    assert_eq!(arrivals(&mut fabric), [(0, 1, due(11)), (1, 1, due(12))]);
    assert_eq!(fabric.counts(0, 1).dropped_by_queue, 1);
    assert_eq!(fabric.counts(1, 0), Counts::default());
}

#[test]
fn those_held_back_are_overtaken_and_nobody_else() {
    let reordering = Reordering { share: 0.3, held_back: ms(5) };
    let mut fabric = fabric(Way { reordering, ..Way::with_latency(ms(10)) });
    for slot in 0..1000 {
        send(&mut fabric, 0, 1, slot, Instant::from_millis(slot.into()));
    }
    let came = arrivals(&mut fabric);
    assert_eq!(came.len(), 1000);
    let (late, on_time): (Vec<_>, Vec<_>) =
        came.iter().partition(|(slot, _, due)| *due > Instant::from_millis(u64::from(*slot) + 10));
    assert!(late.iter().all(|(slot, _, due)| *due == Instant::from_millis(u64::from(*slot) + 15)));
    assert!(on_time.is_sorted());
    assert_eq!(u64::try_from(late.len()).expect("few"), fabric.counts(0, 1).held_back);
    assert!((200..400).contains(&late.len()) && !came.is_sorted_by_key(|(slot, ..)| *slot));
}

#[test]
fn a_duplicate_arrives_beside_its_original() {
    let mut fabric = fabric(Way { duplicate_share: 1.0, ..Way::with_latency(ms(10)) });
    assert_eq!(send(&mut fabric, 0, 1, 3, Instant::ORIGIN), 2);
    assert_eq!(arrivals(&mut fabric), [(3, 1, Instant::from_millis(10)); 2]);
    let counts = fabric.counts(0, 1);
    assert_eq!((counts.packets, counts.duplicated, counts.delivered_packets), (1, 1, 2));
}

#[test]
fn all_ways_of_a_host_share_its_access_link_in_each_direction() {
    let access = Access::both(narrow(Queue::Bytes(3000)));
    let free = Access::default();
    let ways = |_: usize, to: usize| Way::with_latency(ms(if to == 2 { 30 } else { 10 }));
    // The first host's upload: packets to both others leave one after another.
    let mut fabric = Fabric::new(1, &[access, free, free], ways);
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
fn a_change_holds_for_what_is_sent_from_then_on_and_does_not_reorder() {
    let mut fabric = fabric(Way::with_latency(ms(50)));
    send(&mut fabric, 0, 1, 0, Instant::ORIGIN);
    fabric.way_mut(0, 1).is_blackhole = true;
    send(&mut fabric, 0, 1, 1, Instant::ORIGIN);
    *fabric.way_mut(0, 1) = Way::with_latency(ms(5));
    send(&mut fabric, 0, 1, 2, Instant::from_millis(1));
    send(&mut fabric, 0, 1, 3, Instant::from_millis(60));
    let due = |millis| Instant::from_millis(millis);
    assert_eq!(arrivals(&mut fabric), [(0, 1, due(50)), (2, 1, due(50)), (3, 1, due(65))]);
    assert_eq!(fabric.counts(0, 1).blackholed, 1);
}

fn any_way() -> impl Strategy<Value = Way> {
    let shares = (0.0..0.5, 0.0..0.5, 0.0..0.5);
    let times = (0_u64..50, 0_u64..50, 0_u64..50);
    (shares, times, any::<bool>(), prop::option::of(1_u64..20_000)).prop_map(
        |((loss, held_back, duplicated), (latency, jitter, back), reorders, queue)| Way {
            jitter: Jitter { up_to: ms(jitter), reorders },
            reordering: Reordering { share: held_back, held_back: ms(back) },
            duplicate_share: duplicated,
            narrow: queue.map(|bytes| narrow(Queue::Bytes(bytes))),
            ..Way::with_latency(ms(latency)).losing(loss)
        },
    )
}

proptest! {
    #[test]
    fn each_packet_is_told_of_as_often_as_it_has_copies_never_early_and_all_are_counted(
        way in any_way(),
        queue in prop::option::of(1_u64..20_000),
        packets in prop::collection::vec((0_u64..3_000_000, 0_usize..3, 0_usize..3), 1..300),
    ) {
        let access = queue.map_or(Access::default(), |bytes| Access::both(narrow(Queue::Bytes(bytes))));
        let mut fabric = Fabric::new(1, &[access; 3], |_, _| way);
        let mut now = Instant::ORIGIN;
        let mut open: Vec<(u8, Instant)> = Vec::new();
        let mut told = Vec::new();
        for (pause_ns, from, to) in packets {
            now += Duration::from_nanos(pause_ns);
            while let Some(deed) = fabric.poll(now) {
                told.push(deed);
            }
            let slot = u32::try_from(open.len()).expect("few");
            open.push((send(&mut fabric, from, to, slot, now), now));
        }
        while let Some(due) = fabric.next_due() {
            while let Some(deed) = fabric.poll(due) {
                told.push(deed);
            }
        }
        for deed in told {
            let slot = match deed {
                Deed::Deliver { parcel, due, .. } => {
                    let (_, sent) = open[usize::try_from(parcel.slot).expect("small")];
                    prop_assert!(due >= sent + way.latency);
                    parcel.slot
                }
                Deed::Forget { slot } => slot,
            };
            let copies = &mut open[usize::try_from(slot).expect("small")].0;
            prop_assert!(*copies > 0);
            *copies -= 1;
        }
        prop_assert!(open.iter().all(|(copies, _)| *copies == 0));
        let count = |figure: fn(&Counts) -> u64| {
            (0..9).map(|way| figure(&fabric.counts(way / 3, way % 3))).sum::<u64>()
        };
        prop_assert_eq!(count(|it| it.packets), u64::try_from(open.len()).expect("few"));
        prop_assert_eq!(
            count(|it| it.packets + it.duplicated),
            count(|it| it.delivered_packets + it.lost_by_chance + it.dropped_by_queue
                + it.dropped_by_access + it.blackholed)
        );
    }

    #[test]
    fn without_reordering_all_stays_in_order(
        way in any_way(),
        changed in any_way(),
        pauses_ns in prop::collection::vec(0_u64..3_000_000, 1..300),
    ) {
        let orderly = |way: Way| Way {
            jitter: Jitter { reorders: false, ..way.jitter },
            reordering: Reordering { share: 0.0, ..way.reordering },
            ..way
        };
        let mut fabric = fabric(orderly(way));
        let mut now = Instant::ORIGIN;
        for (number, pause_ns) in pauses_ns.iter().enumerate() {
            now += Duration::from_nanos(*pause_ns);
            if number == pauses_ns.len() / 2 {
                *fabric.way_mut(0, 1) = orderly(changed);
            }
            send(&mut fabric, 0, 1, u32::try_from(number).expect("few"), now);
        }
        prop_assert!(arrivals(&mut fabric).is_sorted_by_key(|&(slot, ..)| slot));
    }
}
