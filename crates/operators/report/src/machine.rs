//! The machine that a result was obtained on.

use std::{fs, thread};

/// Processor and kernel of this machine, such as `2 cores of an AMD EPYC 9B14, Linux 6.12`.
#[must_use]
pub fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unknown processor", |(_, model)| model.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {model}, Linux {}", kernel.trim())
}
