use super::*;
use proptest::prelude::*;

proptest! {
    /// The formula of C tor's `update_socket_info_impl`, computed differently.
    #[test]
    fn the_limit_is_what_tcp_can_send_plus_one_window(
        cwnd in 0u32..100_000, unacked in 0u32..100_000, mss in 1u32..65_536,
        notsent in 0u32..50_000_000, unwritten in 0u32..100_000, percent in 0u32..400,
    ) {
        let factor = f64::from(percent) / 100.0;
        let kist = Kist { interval: Duration::from_millis(10), sock_buf_size_factor: factor };
        let limit = kist.limit_bytes(Some(&state(cwnd, unacked, mss, notsent, unwritten)));
        let space = i128::from(cwnd.saturating_sub(unacked)) * i128::from(mss);
        let extra = i128::from(cwnd) * i128::from(mss) * i128::from(percent) / 100;
        let expected = (space + extra - i128::from(notsent) - i128::from(unwritten)).max(0);
        if unacked > 0 || notsent > 0 || unwritten > 0 {
            prop_assert!((i128::from(limit) - expected).abs() <= 1, "{limit} {expected}");
        } else {
            prop_assert!(i128::from(limit) >= expected - 1);
        }
    }

    /// For any input and any reports of the kernel: no link exceeds its limit in a run, runs keep their
    /// interval, and all cells have been sent in the end.
    #[test]
    fn limits_and_run_intervals_are_respected_and_nothing_starves(
        steps in prop::collection::vec((0u64..8, 0u32..4, 0u32..3, 1usize..200, 0u32..60), 1..150),
    ) {
        let mut stage = Stage::new(kist(), 4);
        let circuits: Vec<CircuitIndex> = (0..12).map(|number| stage.circuit(number / 3)).collect();
        let (mut ms, mut queued) = (0, 0);
        let mut runs: Vec<Instant> = Vec::new();
        let mut check = |stage: &mut Stage, ms: u64| -> Result<(), TestCaseError> {
            let (left, asked) = (stage.left.len(), stage.asked.len());
            stage.drain_at(ms);
            if stage.asked.len() > asked {
                let distance = runs.last().is_none_or(|last| {
                    stage.now >= *last + Duration::from_millis(10)
                });
                prop_assert!(distance, "a run too early");
                runs.push(stage.now);
            } else {
                prop_assert_eq!(stage.left.len(), left, "cells left without a run");
            }
            let kist = Kist { interval: Duration::from_millis(10), sock_buf_size_factor: 1.0 };
            for (id, state) in &stage.states {
                let cells = stage.left[left..].iter().filter(|(_, link, _)| link == id).count();
                let bytes = (cells * CELL_LEN) as u64;
                prop_assert!(bytes <= kist.limit_bytes(state.as_ref()), "{cells} cells on {id:?}");
            }
            Ok(())
        };
        for (pause, link, circuit, cells, cwnd) in steps {
            ms += pause;
            stage.states.insert(ConnId(link), Some(state(cwnd, cwnd / 2, 1448, cwnd * 700, 500)));
            stage.queue(circuits[(link * 3 + circuit) as usize], cells);
            queued += cells;
            check(&mut stage, ms)?;
        }
        // The slowest possible path: one cell per run.
        for link in 0..4 {
            stage.states.insert(ConnId(link), Some(state(1, 0, 48, 0, 0)));
        }
        for _ in 0..queued + 1 {
            ms += 10;
            check(&mut stage, ms)?;
        }
        prop_assert_eq!(stage.left.len(), queued);
        prop_assert_eq!(stage.outputs.queued_cells(), 0);
        prop_assert_eq!(stage.outputs.next_run_at(), None);
    }

    /// Cells of one circuit stay in order, and all cells of each circuit are sent, with any scheduler.
    #[test]
    fn no_cell_is_lost_with_any_scheduler(
        which in 0usize..3, steps in prop::collection::vec((0u64..15, 0u32..6, 1usize..60), 1..80),
    ) {
        let interval = Duration::from_millis(10);
        let config = [SchedulerConfig::vanilla(), SchedulerConfig::kist_lite(interval), kist()][which];
        let mut stage = Stage::new(config, 3);
        let circuits: Vec<CircuitIndex> = (0..6).map(|number| stage.circuit(number / 2)).collect();
        let (mut ms, mut queued) = (0, [0; 6]);
        for (pause, circuit, cells) in steps {
            ms += pause;
            stage.queue(circuits[circuit as usize], cells);
            queued[circuit as usize] += cells;
            stage.drain_at(ms);
        }
        for _ in 0..100 {
            ms += 10;
            stage.drain_at(ms);
        }
        for (circuit, queued) in circuits.iter().zip(queued) {
            let left = stage.order().iter().filter(|left| *left == circuit).count();
            prop_assert_eq!(left, queued);
        }
    }
}
