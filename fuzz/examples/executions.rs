//! Runs a target over mutations of its corpus, so often, and says how fast:
//! `cargo run --release -p fuzz --example executions -- seam 1000000 [SEED]`
//!
//! It needs no nightly compiler, but sees no coverage: `cargo fuzz` looks deeper, this goes further.

use fuzz::{Mutator, TARGETS};
use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "it prints its speed")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count, seed @ ..] = &arguments[..] else {
        return Err("usage: executions TARGET COUNT [SEED]".into());
    };
    let found = TARGETS.iter().find(|(known, _)| known == name);
    let (_, target) = found.ok_or_else(|| format!("no target is called {name}"))?;
    let (count, seed): (u64, u64) =
        (count.parse()?, seed.first().map_or(Ok(0), |seed| seed.parse())?);
    let corpus = fuzz::corpus(name)?.into_iter().map(|(_, content)| content).collect();
    let mut mutator = Mutator::new(seed, corpus);
    let begun = Instant::now();
    for done in 1..=count {
        let input = mutator.next_input();
        // A failing input is printed before the target panics again with its own message.
        if std::panic::catch_unwind(|| target(&input)).is_err() {
            let path = std::env::temp_dir().join(format!("{name}-{seed}-{done}"));
            std::fs::write(&path, &input)?;
            return Err(format!("execution {done} broke: {}", path.display()).into());
        }
        if done.is_multiple_of(10_000_000) {
            notify(done, begun);
        }
    }
    notify(count, begun);
    Ok(())
}

#[expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "for people")]
fn notify(done: u64, begun: Instant) {
    let elapsed_s = begun.elapsed().as_secs_f64();
    println!("{done} executions in {elapsed_s:.1} s: {:.0} a second", done as f64 / elapsed_s);
}
