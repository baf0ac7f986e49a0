//! Metrics of the measurer.

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
    let capacity = capacity.as_byte_per_s();
    gauge("capacity_bytes_per_second", "Capacity to send and receive at the same time.", capacity);
    let reserved = reserved.as_byte_per_s();
    gauge("reserved_bytes_per_second", "Part that is reserved for measurements.", reserved);
    gauge("sessions", "Open sessions with coordinators.", *sessions as u64);
    gauge("rounds", "Measurement rounds in preparation or running.", *rounds as u64);
    gauge("sockets", "Sockets to relays that these rounds may open.", (*sockets).into());
    gauge(
        "sockets_max",
        "Maximum number of sockets, from the limit of file descriptors.",
        (*sockets_max).into(),
    );
    gauge("opted_in_relays", "Relays on the opt-in list.", *opted_in as u64);
    let mut counter = |name: &str, help: &str, value: u64| {
        text.counter(&format!("flashflow_measurer_{name}_total"), help, value);
    };
    counter("rounds", "Measurement rounds started.", totals.rounds);
    counter("failed_rounds", "Failed measurement rounds.", totals.failed_rounds);
    counter("measured_bytes", "Bytes of cells received back from relays.", totals.measured_bytes);
    let name = "flashflow_measurer_refused_orders_total";
    text.head(name, "counter", "Refused orders of coordinators, by reason.");
    for code in RefusalCode::ALL {
        let count = totals.refused_orders.get(&code).copied().unwrap_or(0);
        text.value(name, &[("reason", code.name())], count);
    }
    text.into_string()
}
