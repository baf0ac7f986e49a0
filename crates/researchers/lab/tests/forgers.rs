//! Forgers in virtual time.

use lab::liars::Forgers;
use std::num::NonZeroU32;

#[test]
fn a_forger_of_all_answers_is_detected_within_the_first_bucket_and_an_honest_relay_never() {
    let one_in = NonZeroU32::new(50).expect("not zero");
    let forgers = Forgers::new(1.0, one_in).expect("keys");
    let mut caught = Vec::new();
    for seed in 0..20 {
        let run = forgers.run(seed).expect("a measurement");
        assert!(run.is_rightly_accused && run.evaded < 50, "seed {seed}: {run:?}");
        assert_eq!(run.caught_at, Some(run.evaded as u64), "seed {seed}");
        assert_eq!(forgers.run(seed).expect("a measurement"), run, "equal seeds give equal runs");
        caught.push(run.evaded);
    }
    caught.sort_unstable();
    caught.dedup();
    assert!(caught.len() > 5, "the positions of checks are random: {caught:?}");

    let honest = Forgers::new(0.0, one_in).expect("keys");
    let run = honest.run(1).expect("a measurement");
    assert_eq!((run.evaded, run.caught_at), (0, None));
}
