//! The parties of a team, as processes.

use super::{Running, Scratch};
use lab::{Network, NetworkSpec, RelaySpec};
use onion::Rate;
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

/// A network of two relays, `slow` and `fast`, of 10 and 30 Mbit/s.
pub(crate) fn two_relays() -> Network {
    let limited = |name: &str, mbit| RelaySpec::new(name).limited_to(Rate::from_mbit_per_s(mbit));
    let spec = NetworkSpec::new(vec![limited("slow", 10.0), limited("fast", 30.0)]);
    Network::start(&spec, &mut |_| {}).expect("up")
}

/// Those two relays, a measurer, and `c.toml` for a coordinator that measures them by a secret plan.
pub(crate) fn two_relays_by_plan(scratch: &Scratch, period_s: u64) -> (Network, Running) {
    let network = two_relays();
    let coordinator = make_key(scratch, "c.key");
    let key = make_key(scratch, "m1.key");
    write_measurer(scratch, "m1", "127.0.0.1:0", &coordinator);
    let (measurer, at) = start_measurer(scratch, "m1.toml");
    let config = format!(
        "key = \"c.key\"\nout = \"bandwidth\"\nauthority = \"{}\"\nseconds = 5\nguess_mbit_per_s = 35\n\
         period_s = {period_s}\nslot_s = 8\nrefresh_s = 10\n{}",
        network.directory_addrs()[0],
        measurer_of(&at, &key),
    );
    fs::write(scratch.path("c.toml"), config).expect("written");
    (network, measurer)
}
