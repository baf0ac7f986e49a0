//! `flashflow lab`: private networks for other purposes than the demo.

use crate::cli::LabAction;
use crate::error::{Error, Exit};
use crate::network;
use crate::output::Output;
use lab::NetworkSpec;
use serde_json::{Value, json};

pub(crate) fn run(action: &LabAction, output: &Output) -> Result<Exit, Error> {
    match action {
        LabAction::Up { dir, relays, limits } => {
            let spec = NetworkSpec {
                dir: Some(dir.clone()),
                detached: true,
                ..NetworkSpec::new(network::relays(*relays, limits)?)
            };
            let network = network::start(&spec, output)?;
            output.quiet();
            let nodes: Vec<Value> = network.nodes().iter().map(node_value).collect();
            let lines = network.nodes().iter().map(node_line).collect::<Vec<_>>().join("\n");
            let bandwidth_file = network.bandwidth_file_path();
            let dir = network.detach()?;
            let text = format!(
                "{lines}\nThe authorities vote by {} once it is there.\nTake it down with: flashflow lab \
                 down --dir {}",
                bandwidth_file.display(),
                dir.display()
            );
            output.result(text, || {
                json!({"type": "lab", "dir": dir, "nodes": nodes, "bandwidth_file": bandwidth_file})
            });
            Ok(Exit::Done)
        }
        LabAction::Status { dir } => {
            let status = lab::status(dir)?;
            output.quiet();
            let lines = status.nodes.iter().map(|node| {
                let state = if node.is_alive() { "running" } else { "DEAD" };
                format!("{}  {state}", node_line(node))
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            output.result(text, || {
                let nodes: Vec<Value> = status
                    .nodes
                    .iter()
                    .map(|node| {
                        let mut value = node_value(node);
                        value["alive"] = json!(node.is_alive());
                        value
                    })
                    .collect();
                json!({
                    "type": "lab", "dir": status.dir, "up": status.is_up(), "nodes": nodes,
                    "valid_after_unix_s": status.valid_after_unix,
                    "bandwidth_file": status.bandwidth_file_path(),
                })
            });
            Ok(if status.is_up() { Exit::Done } else { Exit::Failed })
        }
        LabAction::Down { dir } => {
            lab::down(dir)?;
            output.quiet();
            output.result(
                format!("{} is down", dir.display()),
                || json!({"type": "lab", "dir": dir, "up": false}),
            );
            Ok(Exit::Done)
        }
    }
}

fn node_value(node: &lab::Node) -> Value {
    json!({
        "nickname": node.nickname(), "fingerprint": node.rsa_hex(),
        "or_address": node.or_addr(), "dir_address": node.dir_addr(),
        "control_address": node.control_addr(), "pid": node.pid(),
        "limit_mbit_per_s": node.limit().map(onion::Rate::as_mbit_per_s),
    })
}

fn node_line(node: &lab::Node) -> String {
    let directory = node.dir_addr().map_or_else(String::new, |address| format!("  dir {address}"));
    format!("{:<8} {}  or {}{directory}", node.nickname(), node.rsa_hex(), node.or_addr())
}
