//! The memory use of applying an unverified consensus diff. The only test of this program, since it reads
//! the peak of the whole process.

use flashflow_netdoc::consdiff::{DiffError, apply, digest_as_signed};
use std::fmt::Write;

/// Bytes of each diff, at most.
const SIZE: usize = 8 << 20;

/// The peak of this process' memory, in bytes; `None` where the system does not report it.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    kib.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok().map(|kib| kib << 10)
}

/// A consensus of 10,000 short lines.
fn consensus() -> Vec<u8> {
    let mut text = "network-status-version 3\n".to_owned();
    (0..10_000).for_each(|number| writeln!(text, "r {number}").expect("text"));
    let name = "0123456789ABCDEF0123456789ABCDEF01234567";
    for _ in 0..2 {
        writeln!(text, "directory-signature {name} {name}").expect("text");
        text.push_str("-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n");
    }
    text.into_bytes()
}

#[test]
fn a_diff_takes_no_more_memory_than_its_result() {
    let from = consensus();
    let digest = hex::encode(digest_as_signed(&from).expect("signed"));
    let diff = |script: &dyn Fn(&mut String)| {
        let mut text = String::with_capacity(SIZE + 1_000);
        writeln!(text, "network-status-diff-version 1\nhash {digest} {}", "0".repeat(64))
            .expect("text");
        script(&mut text);
        text.into_bytes()
    };
    let one_command = |line: &'static str| {
        move |text: &mut String| {
            text.push_str("5a\n");
            (0..SIZE / line.len() - 100).for_each(|_| text.push_str(line));
            text.push_str(".\n");
        }
    };
    let many_commands = |command: &'static str| {
        move |text: &mut String| {
            (0..SIZE / command.len() - 100).for_each(|_| text.push_str(command));
        }
    };
    let Some(before) = peak_bytes() else { skip::this_test!("no VmHWM in /proc/self/status") };
    for script in [
        diff(&one_command("\n")),
        diff(&one_command("x\n")),
        diff(&many_commands("9a\n\n.\n")),
        diff(&many_commands("9c\n\n.\n8a\n\n.\n")),
        diff(&|text| (1..10_000).rev().for_each(|line| writeln!(text, "{line}d").expect("text"))),
    ] {
        let error = apply(&from, &script, 2 * SIZE).expect_err("it does not make what it promises");
        assert!(matches!(error, DiffError::WrongResult | DiffError::Malformed { .. }), "{error}");
    }
    let added = peak_bytes().unwrap_or(usize::MAX) - before;
    // All five diffs, and one result.
    assert!(added < 7 * SIZE, "{} MiB", added >> 20);
}
