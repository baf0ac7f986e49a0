use crate::cell::relay::RelayFormat;
use crate::cell_model::fixture::Staged;
use crate::cell_model::{
    Body, Buffer, CellModel, HeaderOnly, HeaderOnlyPayload, Run, RunRoom, StreamId, Tor,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// An operation on a buffer.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize),
    Pop(usize),
    Shrink,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1usize..498).prop_map(Step::Push),
        3 => (0usize..600).prop_map(Step::Pop),
        1 => Just(Step::Shrink),
    ]
}

/// The output is the input in order, as much as fits.
fn queue<S: Staged>(steps: &[Step], begins_at: u64) -> TestCaseResult {
    let mut buffer = S::Buffer::default();
    let (mut pushed, mut popped) = (begins_at, begins_at);
    for step in steps.iter().copied() {
        let (mut body, stream) = (S::Body::from_bytes(&[]), StreamId(1));
        let held = usize::try_from(pushed - popped).unwrap();
        match step {
            Step::Push(len) => {
                body.write_data(RelayFormat::V0, stream, len, |room| S::put(room, pushed, len));
                buffer.push(body.message(RelayFormat::V0).expect("just written").data);
                pushed += len as u64;
            }
            Step::Pop(most) => {
                let len =
                    body.write_data(RelayFormat::V0, stream, most, |room| buffer.pop_into(room));
                let data = body.message(RelayFormat::V0).expect("just written").data;
                prop_assert_eq!(len, held.min(most).min(498));
                prop_assert!(len == 0 || S::is_from(data, popped));
                popped += len as u64;
            }
            Step::Shrink => buffer.shrink(),
        }
        prop_assert_eq!(buffer.len() as u64, pushed - popped);
        prop_assert_eq!(buffer.is_empty(), pushed == popped);
        // Adjacent runs are merged.
        prop_assert!(buffer.held_bytes() <= buffer.len().max(size_of::<Run>()));
    }
    Ok(())
}

proptest! {
    #[test]
    fn buffers_are_fifo_queues(
        steps in prop::collection::vec(step(), 1..100), begins_at in (1u64 << 32) - 9000..1 << 32,
    ) {
        queue::<Tor>(&steps, begins_at)?;
        queue::<HeaderOnly>(&steps, begins_at)?;
    }
}

#[test]
fn only_adjacent_runs_are_merged() {
    let mut buffer = <HeaderOnly as CellModel>::Buffer::default();
    let mut push = |at, len| buffer.push(HeaderOnlyPayload::Run(Run { at, len }));
    push(u32::MAX, 3);
    push(2, 5);
    push(9, 0);
    push(9, 4);
    assert_eq!((buffer.len(), buffer.held_bytes()), (12, 2 * size_of::<Run>()));
    let mut popped = |room_bytes| {
        let mut room = RunRoom { room_bytes, run: Run::default() };
        (buffer.pop_into(&mut room), room.run)
    };
    assert_eq!(popped(7), (7, Run { at: u32::MAX, len: 7 }));
    assert_eq!(popped(7), (1, Run { at: 6, len: 1 }), "a gap is no data");
    assert_eq!(popped(7), (4, Run { at: 9, len: 4 }));
    assert_eq!(popped(7), (0, Run::default()));
}
