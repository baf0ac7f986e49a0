//! Coordinators, measurers and relays as processes.

use crate::{Running, Scratch};
use lab::{Network, NetworkSpec, RelaySpec};
use netdoc::consensus::{Consensus, Flag};
use onion::Rate;
use std::cell::RefCell;
use std::fs;

/// Makes a key, and returns its public key.
pub fn make_key(scratch: &Scratch, file: &str) -> String {
    let ended = scratch.run(&["keys", "--out", file]);
    ended.assert_code(0);
    ended.out[0].clone()
}

/// Starts a measurer. Returns it with its address when it is ready.
pub fn start_measurer(scratch: &Scratch, config: &str) -> (Running, String) {
    ready_measurer(scratch.start(&["measurer", "--config", config]))
}

/// Waits until a measurer is ready. Returns it with its address.
pub fn ready_measurer(mut measurer: Running) -> (Running, String) {
    let address = RefCell::new(String::new());
    measurer.wait_for_out("an address", |line| {
        let said = line.strip_prefix("listening on ");
        said.map(|at| address.replace(at.to_owned())).is_some()
    });
    (measurer, address.into_inner())
}

/// The consensus with other dates: valid for three hours, the second of which begins `from_now_s` seconds after now.
#[must_use]
pub fn dated_consensus(text: &str, from_now_s: i64) -> String {
    let now = link::unix_time_s().saturating_add_signed(from_now_s);
    let times = [("valid-after", now - 3600), ("fresh-until", now), ("valid-until", now + 7200)];
    let dated = |line: &str| {
        let time = times.into_iter().find(|(name, _)| line.split(' ').next() == Some(*name));
        match time {
            Some((name, at)) => format!("{name} {}\n", netdoc::write::date_time(at)),
            None => format!("{line}\n"),
        }
    };
    text.lines().map(dated).collect()
}

/// Writes a [`dated_consensus`] of the public network. Its relays have public addresses, so nothing may be measured. Returns their
/// fingerprints, as an opt-in list.
pub fn write_consensus(scratch: &Scratch, file: &str, from_now_s: i64) -> String {
    let text =
        dated_consensus(include_str!("../../../engine/netdoc/tests/data/consensus-ns"), from_now_s);
    fs::write(scratch.path(file), &text).expect("written");
    let consensus = Consensus::parse(text.as_bytes()).expect("a consensus");
    consensus.routers().iter().map(|router| format!("{}\n", router.fingerprint)).collect()
}

/// Writes the configuration of a measurer of 200 Mbit/s.
pub fn write_measurer(scratch: &Scratch, name: &str, listen: &str, coordinator: &str) {
    let text = format!(
        "listen = \"{listen}\"\nkey = \"{name}.key\"\ncoordinators = [\"{coordinator}\"]\n\
         capacity_mbit_per_s = 200\npumps = 1\n"
    );
    fs::write(scratch.path(&format!("{name}.toml")), text).expect("written");
}

/// The measurer of [`write_measurer`] in the configuration of its coordinator.
pub fn measurer_of(address: &str, key: &str) -> String {
    format!("[[measurers]]\naddress = \"{address}\"\nkey = \"{key}\"\ncapacity_mbit_per_s = 200\n")
}

/// A network of two relays, `slow` and `fast`, of 10 and 30 Mbit/s.
pub fn two_relays() -> Network {
    let limited = |name: &str, mbit| RelaySpec::new(name).limited_to(Rate::from_mbit_per_s(mbit));
    let spec = NetworkSpec::new(vec![limited("slow", 10.0), limited("fast", 30.0)]);
    Network::start(&spec, &mut |_| {}).expect("up")
}

/// [`two_relays`], a measurer, and `c.toml` for a coordinator that measures the relays by a secret plan.
pub fn two_relays_by_plan(scratch: &Scratch, period_s: u64) -> (Network, Running) {
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

/// Ten relays, a measurer, and `c.toml` for a coordinator that measures them by a secret plan.
pub struct Ten {
    /// The network.
    pub network: Network,
    /// FlashFlow's relays, which take part.
    pub echoes: Vec<Running>,
    /// The measurer.
    pub measurer: Running,
}

impl Ten {
    /// Nicknames of relays of C tor, which are measured in transit.
    pub const STOCK: [&str; 7] =
        ["stock1", "stock2", "stock3", "stock4", "stock5", "stock6", "stock7"];
    /// Nicknames of FlashFlow's relays, which take part.
    pub const ECHO: [&str; 3] = ["echo1", "echo2", "echo3"];
    /// The number of relays that the measurer can load at the same time, by its limit of file descriptors.
    pub const AT_ONCE_MAX: usize = 4;

    /// Starts ten relays of 4 Mbit/s each, for slots of 8 s.
    pub fn by_plan(scratch: &Scratch, period_s: u64) -> Self {
        const RATE_MBIT_S: f64 = 4.0;
        const SOCKETS: u32 = 16;
        let rate = Rate::from_mbit_per_s(RATE_MBIT_S);
        let stock = Self::STOCK.map(|name| RelaySpec::new(name).limited_to(rate));
        let spec = NetworkSpec::new(stock.to_vec());
        let network = Network::start(&spec, &mut |_| {}).expect("up");
        let authorities = network.directory_addrs();
        let list = authorities.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let coordinator = make_key(scratch, "c.key");
        let echo = |name: &str| {
            let config = format!(
                "nickname = \"{name}\"\naddress = \"127.0.0.1\"\nor_port = 0\nkeys = \"keys-{name}\"\n\
                 rate_mbit_per_s = {RATE_MBIT_S}\n[flashflow]\nmeasurements_allowed = true\n\
                 allowed_coordinators = [\"{coordinator}\"]\nmeasurements_per_period = 1000\n"
            );
            let file = format!("{name}.toml");
            fs::write(scratch.path(&file), config).expect("written");
            let options = ["--authority", &list, "--assume-reachable"];
            let mut relay = scratch.start(&[&["relay", "--config", &file][..], &options].concat());
            relay.wait_for_out("listening", |line| line.starts_with("listening on "));
            relay
        };
        let echoes = Self::ECHO.map(echo).into();
        let mut are_listed = |text: &str| {
            let consensus = Consensus::parse(text.as_bytes()).expect("a consensus");
            let runs = |name: &str| {
                consensus.by_nickname(name).is_ok_and(|relay| relay.flags.contains(Flag::Running))
            };
            Self::STOCK.into_iter().chain(Self::ECHO).all(runs)
        };
        network.wait_for_consensus(None, &mut are_listed, crate::PATIENCE).expect("listed");

        let key = make_key(scratch, "m1.key");
        write_measurer(scratch, "m1", "127.0.0.1:0", &coordinator);
        // The measurer needs 512, and five for each socket.
        let sockets = u32::try_from(Self::AT_ONCE_MAX).expect("few") * SOCKETS;
        let arguments = ["measurer", "--config", "m1.toml"];
        let command = scratch.command_with_descriptors(512 + 5 * sockets, &arguments);
        let (measurer, at) = ready_measurer(Running::new(command));
        let echo: Vec<String> = Self::ECHO.iter().map(|name| format!("\"{name}\"")).collect();
        let config = format!(
            "key = \"c.key\"\nout = \"bandwidth\"\nauthority = \"{}\"\necho = [{}]\nseconds = 5\n\
             sockets = {SOCKETS}\nguess_mbit_per_s = 5\nperiod_s = {period_s}\nslot_s = 8\nrefresh_s = 10\n{}",
            authorities[0],
            echo.join(", "),
            measurer_of(&at, &key),
        );
        fs::write(scratch.path("c.toml"), config).expect("written");
        Self { network, echoes, measurer }
    }
}
