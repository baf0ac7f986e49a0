//! `flashflow-lab demo` that is stopped, or keeps its network.

use rustix::process::Signal;
use std::fs;
use testbin::{Ended, Scratch, is_second, wait_for};

#[test]
fn the_folder_of_a_kept_network_is_printed_and_its_processes_end() {
    let scratch = Scratch::new();
    let arguments = "demo --keep --limits 10 --echo-limits none --seconds 3";
    let ended = scratch.run(&arguments.split(' ').collect::<Vec<_>>());
    ended.assert_code(0);
    assert_eq!(scratch.processes(), []);
    let networks = scratch.networks();
    let [folder] = &networks[..] else { panic!("{networks:?}") };
    assert!(ended.error.contains(folder.to_str().expect("text")), "{}", ended.error);
    assert!(folder.join("relay1/log").is_file() && folder.join("auth0/torrc").is_file());
    // The same as text.
    let printed = ended.out.join("\n");
    for part in ["relay1", "all as measured", "flashflow-demo/report.html", "bandwidth file: "] {
        assert!(printed.contains(part), "{printed}");
    }
}

/// Starts a demo, stops it at some point, and returns its end.
fn stopped_demo(scratch: &Scratch, when: When, signal: Signal) -> Ended {
    // The FlashFlow relay, which runs from the start, must end as well.
    let limits = ["--limits", "10", "--echo-limits", "10"];
    let arguments = [&["demo", "--json", "--seconds", "30"][..], &limits].concat();
    let mut demo = scratch.start(&arguments);
    match when {
        When::BringUp => wait_for("a tor", || (scratch.tors() > 0).then_some(())),
        When::Measurement => demo.wait_for_out("a second", is_second),
    }
    demo.signal(signal);
    let ended = demo.end();
    ended.assert_no_panic();
    ended
}

enum When {
    BringUp,
    Measurement,
}

#[test]
fn an_interrupt_during_start_up_leaves_nothing() {
    let scratch = Scratch::new();
    let ended = stopped_demo(&scratch, When::BringUp, Signal::INT);
    ended.assert_code(130);
    scratch.wait_until_clean();
}

#[test]
fn an_interrupt_during_a_measurement_leaves_nothing() {
    let scratch = Scratch::new();
    let ended = stopped_demo(&scratch, When::Measurement, Signal::INT);
    ended.assert_code(130);
    // It has cleaned up itself: nothing is left to the keeper.
    scratch.assert_clean();
    assert!(ended.error.contains("interrupted"), "{}", ended.error);
    assert!(!ended.out.iter().any(|line| line.contains("summary")), "{:?}", ended.out);
}

#[test]
fn a_killed_demo_leaves_nothing() {
    let scratch = Scratch::new();
    let ended = stopped_demo(&scratch, When::Measurement, Signal::KILL);
    assert_eq!(ended.code, None);
    scratch.wait_until_clean();
}

#[test]
fn an_unusable_output_folder_is_reported_before_a_network_starts() {
    let scratch = Scratch::new();
    fs::write(scratch.path("file"), "").expect("written");
    let ended = scratch.run(&["demo", "--limits", "10", "--out", "file/below"]);
    ended.assert_refused(&["file/below"]);
    assert_eq!(ended.code, Some(1));
    scratch.assert_clean();
}
