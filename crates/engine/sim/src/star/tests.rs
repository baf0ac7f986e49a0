use super::*;
use alloc::vec;
use onion::flow::hop::{BackTap, FixedHopWindow};

const DELAY: Duration = Duration::from_millis(5);
/// 100 Mbit/s in cells of 512 bytes.
const FAST: f64 = 24_400.0;

fn windows(of: impl Fn() -> Box<dyn HopWindow>, hops: usize) -> Vec<Box<dyn HopWindow>> {
    (0..hops).map(|_| of()).collect()
}

/// A circuit of a source, three relays and a sink, one of them slow.
fn chain(slow: usize, rate: f64, of: impl Fn() -> Box<dyn HopWindow>) -> (Star, Vec<StarNode>) {
    let mut star = Star::default();
    let rates = (0..5).map(|node| if node == slow { rate } else { FAST });
    let nodes: Vec<StarNode> = rates.map(|rate| StarNode::new(rate, DELAY)).collect();
    let path: Vec<usize> = nodes.iter().map(|node| star.add_node(*node)).collect();
    let windows = windows(of, 4);
    star.add_circuit(StarCircuit { path, cells: 20_000, begins: Instant::ORIGIN, windows });
    (star, nodes)
}

#[test]
fn a_transfer_is_limited_by_its_slowest_node() {
    let (mut star, _) = chain(2, 1_000.0, || Box::new(FixedHopWindow::new(2_000)));
    star.run(Instant::from_millis(60_000));
    let took = star.results()[0].last_byte.expect("ended").as_secs_f64();
    // Eight latencies to and from the centre, and a cell's time at each node.
    assert!((20.04..20.05).contains(&took), "{took} s");
}

#[test]
fn half_the_optimal_window_gives_half_the_rate() {
    let (_, nodes) = chain(1, 1_000.0, || Box::new(FixedHopWindow::new(1)));
    let optimal = optimal_window_cells(&nodes);
    assert!((20.0..22.0).contains(&optimal), "{optimal}");
    let took = |size| {
        let (mut star, _) = chain(1, 1_000.0, || Box::new(FixedHopWindow::new(size)));
        star.run(Instant::from_millis(120_000));
        star.results()[0].last_byte.expect("ended").as_secs_f64()
    };
    assert!(took(22) < 20.3, "{} s", took(22));
    assert!((37.5..42.0).contains(&took(11)), "{} s", took(11));
}

#[test]
fn the_sources_window_converges_to_the_optimum_for_any_bottleneck() {
    for slow in [1, 2, 3] {
        let (mut star, nodes) = chain(slow, 2_500.0, || Box::new(BackTap::with_circuit_start()));
        let optimal = optimal_window_cells(&nodes);
        star.run(Instant::from_millis(1_000));
        let trace = star.results().swap_remove(0).trace;
        let after = |ms| trace.iter().rfind(|(at, _)| *at <= Instant::from_millis(ms));
        for ms in [200, 350, 700, 1_000] {
            let size = f64::from(after(ms).expect("some").1);
            assert!((0.9..1.1).contains(&(size / optimal)), "{slow}: {size} of {optimal}");
        }
    }
}

#[test]
fn the_windows_bound_the_queueing_delay_at_every_node() {
    let (mut star, _) = chain(3, 2_500.0, || Box::new(BackTap::with_reramp()));
    star.run(Instant::from_millis(3_000));
    let queued = &star.results()[0].most_queued[1..];
    // The source learns of the bottleneck four round trips late: its trains have doubled as often.
    assert!(queued.iter().all(|cells| *cells <= 512), "{queued:?}");
    let (mut bound, _) = chain(3, 2_500.0, || Box::new(FixedHopWindow::new(100)));
    bound.run(Instant::from_millis(3_000));
    // Cells that the slow node cannot receive are queued at the previous one.
    let queued = &bound.results()[0].most_queued[1..];
    assert!(queued.iter().all(|cells| *cells <= 100) && queued[1] > 40, "{queued:?}");
}

#[test]
fn circuits_share_a_node_equally() {
    let mut star = Star::default();
    let shared = star.add_node(StarNode::new(2_000.0, DELAY));
    for _ in 0..4 {
        let [source, sink] = [FAST, FAST].map(|rate| star.add_node(StarNode::new(rate, DELAY)));
        let path = vec![source, shared, sink];
        let windows = windows(|| Box::new(BackTap::with_reramp()), 2);
        star.add_circuit(StarCircuit { path, cells: 2_000, begins: Instant::ORIGIN, windows });
    }
    star.run(Instant::from_millis(60_000));
    let took: Vec<f64> = star
        .results()
        .iter()
        .map(|result| result.last_byte.expect("ended").as_secs_f64())
        .collect();
    // 8,000 cells at 2,000 a second.
    assert!(took.iter().all(|took| (2.5..5.5).contains(took)), "{took:?}");
}

#[test]
fn a_run_in_parts_equals_one_run() {
    let results = |parts: u64| {
        let (mut star, _) = chain(2, 2_500.0, || Box::new(BackTap::with_reramp()));
        for part in 1..=parts {
            star.run(Instant::from_millis(9_000 * part / parts));
        }
        star.results()
    };
    let whole = results(1);
    assert!(whole[0].last_byte.is_some());
    assert_eq!(results(7), whole);
}

/// Nodes behind the bottleneck have windows that are never full; they must not wait for whole trains.
#[test]
fn a_bottleneck_is_saturated_wherever_it_is() {
    for rate in [1_250.0, 2_500.0, 5_000.0] {
        for slow in [1, 2, 3] {
            for of in [BackTap::with_circuit_start, BackTap::with_reramp] {
                let (mut star, _) = chain(slow, rate, || Box::new(of()));
                star.run(Instant::from_millis(60_000));
                let took = star.results()[0].last_byte.expect("ended").as_secs_f64();
                let used = 20_000.0 / rate / (took - 0.4);
                assert!(used > 0.99, "{slow} of {rate}/s: {used}");
            }
        }
    }
}

/// The time until a window has this size and keeps it.
fn reached(trace: &[(Instant, u32)], from: Instant, cells: f64, stays: Duration) -> Duration {
    let sizes = |time: core::ops::Range<Instant>| {
        let first = trace.partition_point(|(at, _)| *at <= time.start).saturating_sub(1);
        trace[first..].iter().take_while(move |(at, _)| *at < time.end)
    };
    let is_there =
        |begin: Instant| sizes(begin..begin + stays).all(|(_, size)| f64::from(*size) >= cells);
    let step = Duration::from_millis(1);
    (0..1_000).map(|nth| nth * step).find(|after| is_there(from + *after)).expect("it is reached")
}

/// At any time and at any node, at 10 and at 20 Mbit/s: nearly always.
#[test]
fn doubled_capacity_is_found_within_five_round_trips() {
    let (mut late, mut all) = (Vec::new(), 0);
    for (rate, slow) in
        [(2_441.0, 1), (2_441.0, 2), (2_441.0, 3), (4_883.0, 1), (4_883.0, 2), (4_883.0, 3)]
    {
        for nth in 0..8 {
            let (mut star, mut nodes) = chain(slow, rate, || Box::new(BackTap::with_reramp()));
            let widened = Instant::from_millis(1_000 + 13 * nth);
            star.change(widened, slow, 2.0 * rate);
            star.run(Instant::from_millis(2_000));
            nodes[slow] = StarNode::new(2.0 * rate, DELAY);
            let trace = star.results().swap_remove(0).trace;
            let round_trip = 4 * DELAY * u32::try_from(slow).expect("few");
            let optimal = optimal_window_cells(&nodes);
            let took = reached(&trace, widened, 0.9 * optimal, 3 * round_trip);
            all += 1;
            if took > 5 * round_trip {
                late.push((rate, slow, nth, took));
            }
        }
    }
    assert!(late.len() * 20 <= all, "{} of {all}: {late:?}", late.len());
}
