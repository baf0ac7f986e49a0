//! What Shadow reads: hosts, what runs on them, and the map of the network.

use super::{Plan, put};
use crate::error::Error;
use crate::network::{Site, Users};
use crate::places::Places;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

/// When what begins: authorities and relays, then clients, then traffic.
const CLIENTS_AT_S: u32 = 240;
const BOOTSTRAPPED_S: u32 = 300;

/// Of the relay at this place in the list.
pub(super) fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0001 + u32::try_from(place).unwrap_or(0))
}

pub(super) fn write(plan: &Plan<'_>, folder: &Path) -> Result<(), Error> {
    let countries = plan.countries();
    put(&folder.join("conf/network.gml"), &map(plan, &countries)?)?;
    let mut text = format!(
        "general:\n  bootstrap_end_time: {BOOTSTRAPPED_S}\n  stop_time: {}\n  template_directory: shadow.data.template\n\
         network:\n  use_shortest_path: false\n  graph:\n    type: gml\n    file:\n      path: conf/network.gml\nhosts:\n",
        BOOTSTRAPPED_S + plan.seconds
    );
    let host = |text: &mut String, site: &Site| {
        let Site { name, country, up, down } = site;
        let node = countries.get(country.as_str()).copied().unwrap_or(0);
        let (up, down) = (up.as_bit_per_s(), down.as_bit_per_s());
        let _infallible = write!(
            text,
            "  {name}:\n    network_node_id: {node}\n    bandwidth_down: {down} bit\n    bandwidth_up: {up} bit\n"
        );
    };
    let process = |text: &mut String, path: &str, args: &str, at_s: u32| {
        let _infallible =
            write!(text, "    - path: {path}\n      args: {args}\n      start_time: {at_s}\n");
    };
    let tor = |name: &str| {
        format!("--Address {name} --Nickname {name} --defaults-torrc torrc-defaults -f torrc")
    };
    for (place, relay) in plan.relays.iter().enumerate() {
        host(&mut text, &relay.site);
        let _infallible = write!(text, "    ip_addr: {}\n    processes:\n", address(place));
        let at_s = if Plan::is_authority(relay) { 1 } else { 2 };
        process(&mut text, "tor", &tor(&relay.site.name), at_s);
    }
    for server in &plan.network.servers {
        host(&mut text, server);
        text += "    processes:\n";
        process(&mut text, "tgen", "../../../conf/tgen-server.tgenrc.graphml", BOOTSTRAPPED_S);
    }
    for client in &plan.network.clients {
        host(&mut text, &client.site);
        text += "    processes:\n";
        // tor's nicknames are for relays: a client needs none.
        let args = "--defaults-torrc torrc-defaults -f torrc";
        process(&mut text, "tor", args, CLIENTS_AT_S);
        let at_s = BOOTSTRAPPED_S + u32::from(matches!(client.users, Users::Models(_)));
        process(&mut text, "tgen", &format!("../../../conf/{}", plan.tgen_of(client)), at_s);
    }
    put(&folder.join("shadow.config.yaml"), &text)
}

/// Latency and loss from each country to each, those of our own world.
fn map(plan: &Plan<'_>, countries: &BTreeMap<&str, usize>) -> Result<String, Error> {
    let known = Places::new()?;
    let mut text = String::from("graph [\n  directed 1\n");
    for (country, node) in countries {
        let _infallible = write!(
            text,
            "  node [\n    id {node}\n    label \"{country}\"\n    country_code \"{country}\"\n    \
             host_bandwidth_up \"1 Gbit\"\n    host_bandwidth_down \"1 Gbit\"\n  ]\n"
        );
    }
    for (from, source) in countries {
        for (to, target) in countries {
            let latency = known.find(from)?.latency_to(&known.find(to)?);
            let loss = plan.network.choices.loss_at_300_ms * latency.as_secs_f64() / 0.3;
            let (us, loss) = (latency.as_micros(), loss.min(1.0));
            let _infallible = write!(
                text,
                "  edge [\n    source {source}\n    target {target}\n    latency \"{us} us\"\n    packet_loss {loss:.9}\n  ]\n"
            );
        }
    }
    Ok(text + "]\n")
}
