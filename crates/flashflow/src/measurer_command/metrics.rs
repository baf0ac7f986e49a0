//! The measurer's metrics.

use control::{MeasurerStatus, RefusalCode};
use metrics::Text;

/// The metrics in the text format of Prometheus.
pub(super) fn text(status: &MeasurerStatus) -> String {
    let MeasurerStatus {
        capacity,
        reserved,
        sessions,
        rounds,
        sockets,
        sockets_max,
        opted_in,
        totals,
    } = status;
    let mut text = Text::default();
    let mut gauge = |name: &str, help: &str, value: u64| {
        text.gauge(&format!("flashflow_measurer_{name}"), help, value);
    };
    let help = "Send and receive rate of this measurer.";
    gauge("capacity_bytes_per_second", help, capacity.as_byte_per_s());
    let help = "The part of it that is reserved for measurements.";
    gauge("reserved_bytes_per_second", help, reserved.as_byte_per_s());
    gauge("sessions", "Open sessions with coordinators.", *sessions as u64);
    gauge("rounds", "Measurement rounds that are being prepared or run.", *rounds as u64);
    gauge("sockets", "Sockets to relays that these may open.", (*sockets).into());
    let help = "The number of sockets for which there are file descriptors.";
    gauge("sockets_max", help, (*sockets_max).into());
    gauge("opted_in_relays", "Relays on the opt-in list.", *opted_in as u64);
    let help = "Measurement rounds that were begun.";
    text.counter("flashflow_measurer_rounds_total", help, totals.rounds);
    let help = "Measurement rounds that have failed.";
    text.counter("flashflow_measurer_failed_rounds_total", help, totals.failed_rounds);
    let help = "Bytes of cells that came back from relays.";
    text.counter("flashflow_measurer_measured_bytes_total", help, totals.measured_bytes);
    let name = "flashflow_measurer_refused_orders_total";
    text.head(name, "counter", "Orders of coordinators that were refused, by reason.");
    for code in RefusalCode::ALL {
        let count = totals.refused_orders.get(&code).copied().unwrap_or(0);
        text.value(name, &[("reason", code.name())], count);
    }
    text.into_string()
}
