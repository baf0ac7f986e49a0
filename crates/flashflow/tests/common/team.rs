//! The parties of a team, as processes.

use super::{Running, Scratch};
use std::cell::RefCell;
use std::fs;

/// Makes a key, and says its public half.
pub(crate) fn make_key(scratch: &Scratch, file: &str) -> String {
    let ended = scratch.run(&["keys", "--out", file]);
    ended.assert_code(0);
    ended.out[0].clone()
}

/// A measurer that is ready, and its address.
pub(crate) fn start_measurer(scratch: &Scratch, config: &str) -> (Running, String) {
    let mut measurer = scratch.start(&["measurer", "--config", config]);
    let address = RefCell::new(String::new());
    measurer.wait_for_out("an address", |line| {
        let said = line.strip_prefix("listening on ");
        said.map(|at| address.replace(at.to_owned())).is_some()
    });
    (measurer, address.into_inner())
}

/// Writes the configuration of a measurer of 200 Mbit/s.
pub(crate) fn write_measurer(scratch: &Scratch, name: &str, listen: &str, coordinator: &str) {
    let text = format!(
        "listen = \"{listen}\"\nkey = \"{name}.key\"\ncoordinators = [\"{coordinator}\"]\n\
         capacity_mbit_per_s = 200\npumps = 1\n"
    );
    fs::write(scratch.path(&format!("{name}.toml")), text).expect("written");
}

/// The same measurer in the configuration of its coordinator.
pub(crate) fn measurer_of(address: &str, key: &str) -> String {
    format!("[[measurers]]\naddress = \"{address}\"\nkey = \"{key}\"\ncapacity_mbit_per_s = 200\n")
}
