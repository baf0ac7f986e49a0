//! `flashflow experiment paths`, over a distance of its own.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{Scratch, lacking, number, text};

/// Of half of the sockets this path lets some 35 Mbit/s through, of all of them twice as much, and never what the
/// relay could do: the number that comes back says nothing of the relay, and must not be called conclusive.
#[test]
fn a_path_that_no_number_of_sockets_makes_wide_enough_is_named_and_no_wrong_number_is_conclusive() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment paths --modes echo --limits 200 --rtts-ms 300 --losses-percent 1 \
                     --congestions reno --seconds 12 --out results --json";
    let ended = scratch.run(&arguments.split_whitespace().collect::<Vec<_>>());
    ended.assert_no_panic();
    let summary = ended.summary();
    assert_eq!(text(&summary, "experiment"), "paths");
    let [case] = summary["cases"].as_array().expect("cases").as_slice() else {
        panic!("{summary}");
    };
    assert_eq!(text(case, "verdict"), "lower_bound", "{case}");
    // Where the machine stood still for a while, that is what is told.
    let detail = text(case, "detail");
    let was_hindered = detail.contains("unsteady") || detail.contains("processor");
    assert!(was_hindered || text(case, "limited_by") == "path", "{case}");
    assert_eq!(text(case, "ended"), "inconclusive");
    assert!(was_hindered || detail.contains("held it back"), "{case}");
    assert!(number(case, "estimate_mbit_per_s") < 0.9 * number(case, "truth_mbit_per_s"), "{case}");
    assert!(number(case, "rounds") >= 1.0, "{case}");
}
