//! Shadow's configuration: hosts, their processes, and the map of the network.

use super::{Plan, put};
use crate::error::Error;
use crate::host_paths::HostPaths;
use crate::map::MapPath;
use crate::network::{Client, Site, Users};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

/// Programs, found by Shadow's search path.
const TOR: &str = "tor";
const TGEN: &str = "tgen";

/// The start times: authorities and relays, then clients, then traffic.
const CLIENTS_AT_S: u32 = 240;
const BOOTSTRAPPED_S: u32 = 300;

/// The relay with this index in the list.
pub(super) fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0001 + u32::try_from(place).unwrap_or(0))
}

pub(super) fn write(plan: &Plan<'_>, folder: &Path) -> Result<(), Error> {
    let paths = HostPaths::new(plan.network, &plan.sites())?;
    put(&folder.join("conf/network.gml"), &map(&paths))?;
    let mut text = format!(
        "general:\n  bootstrap_end_time: {BOOTSTRAPPED_S}\n  stop_time: {}\n  template_directory: shadow.data.template\n\
         network:\n  use_shortest_path: false\n  graph:\n    type: gml\n    file:\n      path: conf/network.gml\nhosts:\n",
        BOOTSTRAPPED_S + plan.seconds
    );
    let mut nodes = paths.place_of().iter();
    let mut host = |text: &mut String, site: &Site| {
        let Site { name, up, down, .. } = site;
        let node = nodes.next().copied().unwrap_or(0);
        let (up, down) = (up.as_bit_per_s(), down.as_bit_per_s());
        let _infallible = write!(
            text,
            "  {name}:\n    network_node_id: {node}\n    bandwidth_down: {down} bit\n    bandwidth_up: {up} bit\n"
        );
    };
    // None of them exits: Shadow has to expect that, or reports a failure.
    let process = |text: &mut String, path: &str, args: &str, at: &str| {
        let _infallible = write!(
            text,
            "    - path: {path}\n      args: {args}\n      start_time: {at}\n      expected_final_state: running\n"
        );
        if path == TGEN {
            // The threads of a library that it uses wait in loops, in which Shadow's time does not advance.
            *text += "      environment: { OPENBLAS_NUM_THREADS: \"1\" }\n";
        }
    };
    let tor = |name: &str| {
        format!("--Address {name} --Nickname {name} --defaults-torrc torrc-defaults -f torrc")
    };
    for (place, relay) in plan.relays.iter().enumerate() {
        host(&mut text, &relay.site);
        let _infallible = write!(text, "    ip_addr: {}\n    processes:\n", address(place));
        let at = if Plan::is_authority(relay) { "1 s" } else { "2 s" };
        process(&mut text, TOR, &tor(&relay.site.name), at);
    }
    for server in &plan.network.servers {
        host(&mut text, server);
        text += "    processes:\n";
        let at = format!("{BOOTSTRAPPED_S} s");
        process(&mut text, TGEN, "../../../conf/tgen-server.tgenrc.graphml", &at);
    }
    for (place, client) in plan.network.clients.iter().enumerate() {
        host(&mut text, &client.site);
        text += "    processes:\n";
        // tor's nicknames are for relays: a client needs none.
        let args = "--defaults-torrc torrc-defaults -f torrc";
        process(&mut text, TOR, args, &format!("{CLIENTS_AT_S} s"));
        let at = format!("{} ms", begins_ms(plan, place));
        process(&mut text, TGEN, &format!("../../../conf/{}", plan.tgen_of(client)), &at);
    }
    put(&folder.join("shadow.config.yaml"), &text)
}

/// When the users of a client begin. Benchmarks of one kind are staggered, as in this simulator: otherwise they
/// would always download simultaneously.
fn begins_ms(plan: &Plan<'_>, place: usize) -> u128 {
    let (clients, bootstrapped_ms) = (&plan.network.clients, u128::from(BOOTSTRAPPED_S) * 1000);
    let begins_ms = clients[place].begins.as_millis();
    let Users::Fetch(fetch) = &clients[place].users else {
        return bootstrapped_ms + 1000 + begins_ms;
    };
    let is_alike = |client: &&Client| matches!(&client.users, Users::Fetch(other) if Arc::ptr_eq(fetch, other));
    let number = |clients: &[Client]| clients.iter().filter(is_alike).count() as u128;
    let (before, all) = (number(&clients[..place]), number(clients));
    // No process may begin after the end.
    let every = fetch.pauses.iter().min().copied().unwrap_or_default();
    let every_ms = every.as_millis().min(u128::from(plan.seconds) * 1000);
    bootstrapped_ms + begins_ms + every_ms * before / all.max(1)
}

/// Latency and loss from each place to each, as in this simulator. Nodes are named by their places' numbers.
fn map(paths: &HostPaths<'_>) -> String {
    let mut text = String::from("graph [\n  directed 1\n");
    for node in 0..paths.places() {
        let _infallible = writeln!(text, "  node [\n    id {node}");
        if let Some(country) = paths.country(node) {
            let _infallible =
                writeln!(text, "    label \"{country}\"\n    country_code \"{country}\"");
        }
        text += "    host_bandwidth_up \"1 Gbit\"\n    host_bandwidth_down \"1 Gbit\"\n  ]\n";
    }
    for (from, to) in
        (0..paths.places()).flat_map(|from| (0..paths.places()).map(move |to| (from, to)))
    {
        let MapPath { latency, loss } = paths.between(from, to);
        let (ns, loss) = (latency.as_nanos(), loss.min(1.0));
        let _infallible = write!(
            text,
            "  edge [\n    source {from}\n    target {to}\n    latency \"{ns} ns\"\n    packet_loss {loss:.9}\n  ]\n"
        );
    }
    text + "]\n"
}
