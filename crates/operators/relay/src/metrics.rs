//! Prometheus metrics on a separate port (`MetricsPort`). Names are C tor's where the meaning is
//! the same, and begin with `flashflow_relay_` where C tor has no equivalent.

#[cfg(test)]
mod tests;

use crate::bandwidth::Bandwidth;
use crate::dns::health::{Health, Outcome};
use crate::engine::Engine;
use link::{Exhaustion, NodeHandle, Traffic};
use metrics::Text;
use netdoc::consensus::{Flag, Flags};
use onion::router::RouterTotals;
use std::sync::{Arc, Mutex, PoisonError};

/// Facts about the relay outside its engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayStatus {
    /// Its flags in the consensus.
    pub(crate) flags: Flags,
    /// Whether a circuit through others has reached it.
    pub(crate) is_reached: bool,
    /// When its certificates expire, in Unix seconds.
    pub(crate) certified_until: u64,
    /// When it last made a descriptor, in Unix seconds.
    pub(crate) published: u64,
}

/// The status, written by one thread and read by another.
pub(crate) type SharedStatus = Arc<Mutex<RelayStatus>>;

/// The sources of all metrics.
pub(crate) struct Sources {
    pub(crate) engine: NodeHandle<Engine>,
    pub(crate) bandwidth: Arc<Bandwidth>,
    pub(crate) status: SharedStatus,
    pub(crate) dns: Arc<Health>,
    pub(crate) held_bytes_max: usize,
    pub(crate) descriptors_max: u32,
}

/// The state of the engine and its driver.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    totals: RouterTotals,
    traffic: Traffic,
    links: usize,
    circuits: usize,
    streams: usize,
    queued_bytes: usize,
    held_bytes: usize,
    waited_cell_s: f64,
}

impl Sources {
    /// All metrics; `None` if the engine has ended.
    pub(crate) fn text(&self) -> Option<String> {
        let reading = self.engine.call(|drive| {
            let node = drive.node();
            Reading {
                totals: *node.totals(),
                traffic: *drive.traffic(),
                links: node.open_links(),
                circuits: node.open_circuits(),
                streams: node.open_streams(),
                queued_bytes: node.queued_bytes(),
                held_bytes: node.held_bytes(),
                waited_cell_s: node.waited_cell_s(),
            }
        })?;
        let status = *self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = Text::default();
        text.engine(&reading);
        text.process(&reading, Exhaustion::so_far(), self.descriptors_max);
        text.status(&status);
        text.dns(&self.dns);
        let help = "Limit of the memory that peers may occupy (MaxMemInQueues)";
        text.gauge("flashflow_relay_memory_max_bytes", help, self.held_bytes_max as u64);
        let name = "flashflow_relay_observed_bandwidth_bytes_per_second";
        let help = "Observed bandwidth in the relay's descriptor";
        text.gauge(name, help, self.bandwidth.observed_bytes_s());
        Some(text.into_string())
    }
}

/// Groups of the relay's metrics.
trait RelayMetrics {
    fn engine(&mut self, reading: &Reading);
    fn dns(&mut self, health: &Health);
    fn process(&mut self, reading: &Reading, exhaustion: Exhaustion, descriptors_max: u32);
    fn status(&mut self, status: &RelayStatus);
}

impl RelayMetrics for Text {
    fn engine(&mut self, reading: &Reading) {
        let totals = &reading.totals;
        let name = "tor_relay_connections";
        self.head(name, "gauge", "Total number of opened connections");
        self.value(name, &[("type", "OR"), ("state", "opened")], reading.links);
        self.value(name, &[("type", "Exit"), ("state", "opened")], reading.streams);
        let name = "tor_relay_connections_total";
        self.head(name, "counter", "Total number of created/rejected connections");
        self.value(
            name,
            &[("type", "OR"), ("direction", "received"), ("state", "rejected")],
            totals.refused_links,
        );
        let name = "tor_relay_circuits_total";
        self.head(name, "gauge", "Total number of circuits");
        self.value(name, &[("state", "opened")], reading.circuits);
        let name = "tor_relay_traffic_bytes";
        self.head(name, "counter", "Traffic related counters: bytes inside TLS");
        self.value(name, &[("direction", "read")], reading.traffic.received_bytes);
        self.value(name, &[("direction", "written")], reading.traffic.sent_bytes);
        let name = "tor_relay_dos_total";
        self.head(name, "counter", "Denial of Service defenses related counters");
        self.value(name, &[("type", "circuit_rejected")], totals.refused_circuits);
        let name = "tor_relay_load_oom_bytes_total";
        self.head(name, "counter", "Total number of bytes the OOM has freed by subsystem");
        self.value(name, &[("subsys", "cell")], totals.reclaimed_bytes);
        let name = "tor_relay_load_global_rate_limit_reached_total";
        self.head(name, "counter", "Total number of global connection bucket limit reached");
        self.value(name, &[("side", "read")], totals.limited_reads);
        self.value(name, &[("side", "write")], totals.limited);

        let mut counter = |name: &str, help: &str, value: u64| {
            self.counter(&format!("flashflow_relay_{name}_total"), help, value);
        };
        counter("circuits_opened", "Circuits opened", totals.circuits);
        counter("streams_opened", "Streams opened and names resolved", totals.streams);
        counter(
            "client_bytes",
            "Bytes of client cells sent, in both directions",
            totals.client_bytes,
        );
        counter("measured_bytes", "Bytes of measurement cells returned", totals.measured_bytes);
        counter("passed_on_cells", "Cells acknowledged by next hops", totals.passed_on_cells);
        counter(
            "feedback_refused",
            "Links closed for invalid acknowledgements",
            totals.feedback_refused,
        );
        counter("padding_refused", "Links closed for too much padding", totals.padding_refused);
        counter("stalled_circuits", "Circuits with a stalled next hop", totals.stalled_circuits);
        // Conflux sets that end at this exit (proposal 329). C tor has no such metric.
        counter("conflux_sets", "Conflux sets linked", totals.conflux_sets);
        counter("conflux_legs", "Circuits linked into Conflux sets", totals.conflux_legs);
        counter("conflux_switches", "Switches from one leg to another", totals.conflux_switches);
        counter("conflux_resent", "Messages resent after the loss of a leg", totals.conflux_resent);
        let help = "Total time that cells have spent in circuit queues, in seconds";
        self.counter("flashflow_relay_cells_waited_seconds_total", help, reading.waited_cell_s);
        let help = "Bytes of queued cells and stream data";
        self.gauge("flashflow_relay_queued_bytes", help, reading.queued_bytes as u64);
        let help = "Bytes of memory that peers occupy, without kernel buffers";
        self.gauge("flashflow_relay_held_bytes", help, reading.held_bytes as u64);
    }

    fn dns(&mut self, health: &Health) {
        let name = "tor_relay_exit_dns_query_total";
        self.counter(name, "Total number of DNS queries done by this relay", health.questions());
        let name = "tor_relay_exit_dns_error_total";
        self.head(name, "counter", "Total number of DNS errors encountered by this relay");
        for (outcome, reason) in Outcome::ALL {
            self.value(name, &[("reason", reason)], health.count(outcome));
        }
    }

    fn process(&mut self, reading: &Reading, exhaustion: Exhaustion, descriptors_max: u32) {
        let name = "tor_relay_load_socket_total";
        self.head(name, "gauge", "Total number of sockets");
        self.value(name, &[("state", "opened")], reading.links + reading.streams);
        self.value(name, &[], descriptors_max);
        let name = "tor_relay_load_tcp_exhaustion_total";
        self.counter(name, "Total number of times we ran out of TCP ports", exhaustion.ports);
        let name = "flashflow_relay_descriptor_exhaustion_total";
        let help = "Number of times that no file descriptor was left for a socket";
        self.counter(name, help, exhaustion.descriptors);
    }

    fn status(&mut self, status: &RelayStatus) {
        let name = "tor_relay_flag";
        self.head(name, "gauge", "Relay flags from consensus");
        for flag in Flag::ALL {
            let is_set = u8::from(status.flags.contains(*flag));
            self.value(name, &[("type", flag.name())], is_set);
        }
        let name = "tor_relay_signing_cert_expiry_timestamp";
        let help = "Timestamp at which the current signing keypair will expire";
        self.gauge(name, help, status.certified_until);
        let help = "Whether the relay has found its OR port reachable through a circuit";
        self.gauge("flashflow_relay_reached", help, u64::from(status.is_reached));
        let help = "Time of the last descriptor; 0 if there is none";
        self.gauge("flashflow_relay_published_timestamp", help, status.published);
    }
}
