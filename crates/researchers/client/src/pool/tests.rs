use super::*;
use crate::netdir::tests::relay;

const WEB: Need = Need::Port { port: 443, is_ipv6: false };

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN + Duration::from_secs(seconds)
}

fn named(name: &str) -> Isolation {
    let (user, password) = (name.as_bytes().to_vec(), b"password".to_vec());
    Isolation { version: 5, from: Some([127, 0, 0, 1].into()), user, password }
}

/// A circuit through relays 1 and 2 and an exit to ports 80 and 443.
fn circuit(number: u64, began_s: u64, took_s: Option<u64>) -> Circuit {
    let path = [1, 2, 3].map(|number| relay(number).fingerprint);
    let mut circuit = Circuit::new(number, path, relay(3), at(began_s));
    circuit.took = took_s.map(Duration::from_secs);
    circuit
}

/// A pool with circuits 0 and 1, which are open, and 2, which is not.
fn pool() -> Pool<u32> {
    let mut pool = Pool::new(false);
    pool.add(0, circuit(0, 0, Some(1)));
    pool.add(1, circuit(1, 0, Some(1)));
    pool.add(2, circuit(2, 0, None));
    pool
}

#[test]
fn streams_share_a_circuit_only_within_an_isolation_group() {
    let mut pool = pool();
    let unnamed = Isolation::default();
    assert_eq!(pool.spare(WEB, at(1)), 3);
    for isolation in [&unnamed, &named("a"), &named("b")] {
        let first = pool.choose(WEB, isolation, at(1));
        assert_eq!(pool.choose(WEB, isolation, at(1)), first);
    }
    assert_eq!(pool.choose(WEB, &unnamed, at(1)), Choice::Use(0));
    assert_eq!(pool.choose(WEB, &named("a"), at(1)), Choice::Use(1));
    assert_eq!(pool.choose(WEB, &named("b"), at(1)), Choice::Wait, "2 is being built for it");
    assert_eq!(pool.choose(WEB, &named("c"), at(1)), Choice::Open);
    for other in [
        Isolation { password: Vec::new(), ..named("a") },
        Isolation { version: 4, ..named("a") },
        Isolation { from: Some([127, 0, 0, 2].into()), ..named("a") },
    ] {
        assert_eq!(pool.choose(WEB, &other, at(1)), Choice::Open, "{other:?}");
    }
    assert_eq!((pool.spare(WEB, at(1)), pool.len(), pool.building()), (0, 3, 1));
    // A circuit that is opened for one isolation group is not used by others.
    pool.add(3, circuit(3, 1, Some(1)));
    pool.reserve(3, &named("c"));
    assert_eq!(pool.choose(WEB, &named("d"), at(2)), Choice::Open);
    assert_eq!(pool.choose(WEB, &named("c"), at(2)), Choice::Use(3));
}

#[test]
fn a_circuit_gets_only_streams_that_its_exit_permits_and_none_once_it_is_old() {
    let mut pool = pool();
    let (isolation, ssh) = (named("a"), Need::Port { port: 22, is_ipv6: false });
    assert_eq!(pool.choose(ssh, &isolation, at(1)), Choice::Open);
    assert_eq!(pool.spare(ssh, at(1)), 0);
    assert_eq!(pool.choose(Need::Lookup, &isolation, at(1)), Choice::Use(0));
    pool.handle_begun(0, at(1));
    assert_eq!(pool.choose(WEB, &isolation, at(600)), Choice::Use(0));
    assert_eq!(
        pool.choose(WEB, &isolation, at(601)),
        Choice::Use(1),
        "ten minutes after its first stream"
    );
    pool.retire(1);
    assert_eq!(pool.choose(WEB, &isolation, at(601)), Choice::Wait);
}

#[test]
fn unused_circuits_are_closed_and_those_in_use_are_not() {
    let mut pool = pool();
    pool.handle_begun(0, at(5));
    let overdue = |pool: &mut Pool<u32>, seconds| {
        pool.overdue(at(seconds), Duration::from_secs(10), Duration::from_secs(60))
    };
    assert_eq!(overdue(&mut pool, 9), (vec![], vec![]));
    assert_eq!(overdue(&mut pool, 10), (vec![2], vec![]), "its build has timed out");
    assert_eq!(pool.building(), 0);
    assert_eq!(overdue(&mut pool, 59), (vec![], vec![]), "late once only");
    assert_eq!(overdue(&mut pool, 60), (vec![], vec![2]));
    pool.remove(2);
    assert_eq!(overdue(&mut pool, 1000), (vec![], vec![]), "a stream is open");
    pool.handle_over(0);
    assert_eq!(overdue(&mut pool, 604), (vec![], vec![]));
    assert_eq!(overdue(&mut pool, 605), (vec![], vec![0]));
    assert_eq!(overdue(&mut pool, 1801), (vec![], vec![0, 1]));
}

#[test]
fn by_latency_a_stream_gets_the_circuit_with_the_least_latency_at_present() {
    let mut pool = Pool::new(true);
    (0..3_u32).for_each(|number| pool.add(number, circuit(u64::from(number), 0, Some(1))));
    pool.add(9, circuit(9, 0, None));
    assert_eq!(pool.take_due(at(1), Duration::from_secs(10)), [0, 1, 2], "the open circuits");
    assert!(pool.take_due(at(5), Duration::from_secs(10)).is_empty(), "not again at once");
    let ms = |count| Some(Duration::from_millis(count));
    let unnamed = Isolation::default();
    pool.set_latency(0, ms(80));
    pool.set_latency(1, ms(30));
    assert_eq!(pool.choose(WEB, &unnamed, at(2)), Choice::Use(1));
    pool.handle_begun(1, at(2));
    pool.handle_over(1);
    pool.set_latency(1, ms(90));
    assert_eq!(pool.choose(WEB, &unnamed, at(3)), Choice::Use(0), "another is faster now");
    // A circuit of one isolation group is not used by others, however fast.
    pool.set_latency(0, ms(1));
    assert_eq!(pool.choose(WEB, &named("a"), at(3)), Choice::Use(2));
    // One with streams is asked as well: another would wait behind them.
    pool.handle_begun(0, at(4));
    pool.get_mut(2).expect("it is there").is_retired = true;
    assert_eq!(pool.take_due(at(20), Duration::from_secs(10)), [0, 1], "not the retired one");
    pool.set_latency(0, ms(200));
    assert_eq!(pool.choose(WEB, &unnamed, at(21)), Choice::Use(1), "the other is too busy now");
}

#[test]
fn a_circuit_fails_once_and_a_late_one_has_not_succeeded() {
    let mut prompt = circuit(0, 0, None);
    prompt.took = Some(Duration::from_secs(1));
    assert!(prompt.has_succeeded() && !prompt.fails_now(), "it is open: its end is not a failure");
    let mut late = circuit(1, 0, None);
    assert!(late.fails_now(), "when its build times out");
    assert!(!late.fails_now(), "and not again when it is given up");
    late.took = Some(Duration::from_secs(30));
    assert!(!late.has_succeeded() && !late.fails_now());
}
