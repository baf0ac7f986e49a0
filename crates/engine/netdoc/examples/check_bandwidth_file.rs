//! Prints what C tor would log and vote for a bandwidth file.
//!
//! ```sh
//! cargo run -p flashflow-netdoc --example check_bandwidth_file -- FILE UNIX-TIME
//! ```
#![expect(clippy::print_stdout, reason = "an example")]

use flashflow_netdoc::check_as_tor;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, now] = arguments.as_slice() else {
        return Err("usage: check_bandwidth_file FILE UNIX-TIME".into());
    };
    let report = check_as_tor(&std::fs::read(file)?, now.parse()?);
    println!("the file: {:?}", report.verdict);
    println!("relays in the vote: {}", report.relays.len());
    for warning in &report.warnings {
        println!("line {}: tor warns: {}", warning.line, warning.text);
    }
    for (line, reason) in report.skipped() {
        println!("line {line}: skipped: {reason}");
    }
    if report.is_clean() { Ok(()) } else { Err("tor would not accept all of it".into()) }
}
