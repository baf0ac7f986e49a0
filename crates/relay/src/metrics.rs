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
        text.conflux(&reading.totals);
        text.process(&reading, Exhaustion::so_far(), self.descriptors_max);
        text.status(&status);
        text.dns(&self.dns);
        let name = "flashflow_relay_memory_max_bytes";
        text.gauge(
            name,
            "What peers may have it hold (MaxMemInQueues)",
            self.held_bytes_max as u64,
        );
        let name = "flashflow_relay_observed_bandwidth_bytes_per_second";
        text.gauge(
            name,
            "The observed bandwidth of its descriptor",
            self.bandwidth.observed_bytes_s(),
        );
        Some(text.into_string())
    }
}

/// Groups of the relay's metrics.
trait RelayMetrics {
    fn engine(&mut self, reading: &Reading);
    fn conflux(&mut self, totals: &RouterTotals);
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
        self.value(name, &[("side", "write")], totals.limited);

        self.counter("flashflow_relay_circuits_opened_total", "Circuits opened", totals.circuits);
        let help = "Streams opened and names looked up for clients";
        self.counter("flashflow_relay_streams_opened_total", help, totals.streams);
        let help = "Bytes of clients' cells sent, either way";
        self.counter("flashflow_relay_client_bytes_total", help, totals.client_bytes);
        let help = "Bytes of measurement cells sent back";
        self.counter("flashflow_relay_measured_bytes_total", help, totals.measured_bytes);
        let help = "Cells that next hops with windows from hop to hop have passed on";
        self.counter("flashflow_relay_passed_on_cells_total", help, totals.passed_on_cells);
        let help = "Links closed, since the other end broke the rules of windows from hop to hop";
        self.counter("flashflow_relay_feedback_refused_total", help, totals.feedback_refused);
        let help = "Circuits whose queue filled up while the next hop passed nothing on";
        self.counter("flashflow_relay_stalled_circuits_total", help, totals.stalled_circuits);
        let name = "flashflow_relay_cells_waited_seconds_total";
        self.head(
            name,
            "counter",
            "Seconds that cells have waited in circuits' queues, all together",
        );
        self.value(name, &[], reading.waited_cell_s);
        let help = "Bytes of cells and of streams' data that wait";
        self.gauge("flashflow_relay_queued_bytes", help, reading.queued_bytes as u64);
        let help = "Bytes that peers have it hold in all, the kernel's buffers aside";
        self.gauge("flashflow_relay_held_bytes", help, reading.held_bytes as u64);
    }

    /// Conflux sets that end at this exit (proposal 329). C tor has no such metric.
    fn conflux(&mut self, totals: &RouterTotals) {
        let help = "Sets of circuits that were linked here";
        self.counter("flashflow_relay_conflux_sets_total", help, totals.conflux_sets);
        let help = "Circuits that were linked into sets";
        self.counter("flashflow_relay_conflux_legs_total", help, totals.conflux_legs);
        let help = "Times that clients or the relay went over from one linked circuit to another";
        self.counter("flashflow_relay_conflux_switches_total", help, totals.conflux_switches);
        let help = "Messages sent again, since the linked circuit was lost that had them";
        self.counter("flashflow_relay_conflux_resent_total", help, totals.conflux_resent);
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
        self.counter(
            name,
            "Times that there was no file descriptor for a socket",
            exhaustion.descriptors,
        );
    }

    fn status(&mut self, status: &RelayStatus) {
        let name = "tor_relay_flag";
        self.head(name, "gauge", "Relay flags from consensus");
        for flag in Flag::ALL {
            let is_set = u8::from(status.flags.contains(*flag));
            self.value(name, &[("type", flag.name())], is_set);
        }
        let name = "tor_relay_signing_cert_expiry_timestamp";
        self.gauge(
            name,
            "Timestamp at which the current signing keypair will expire",
            status.certified_until,
        );
        let name = "flashflow_relay_reached";
        self.gauge(
            name,
            "Whether a circuit through others has come back to its port",
            u64::from(status.is_reached),
        );
        let name = "flashflow_relay_published_timestamp";
        self.gauge(name, "When it last made a descriptor; 0 if it has not", status.published);
    }
}
