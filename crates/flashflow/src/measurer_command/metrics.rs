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
    for (name, help, value) in [
        (
            "capacity_bytes_per_second",
            "Rate at which this measurer can send and receive at the same time.",
            capacity.as_byte_per_s(),
        ),
        (
            "reserved_bytes_per_second",
            "Part of the capacity that is reserved for measurements.",
            reserved.as_byte_per_s(),
        ),
        ("sessions", "Open sessions with coordinators.", *sessions as u64),
        ("rounds", "Measurement rounds in preparation or running.", *rounds as u64),
        ("sockets", "Sockets to relays that these rounds may open.", (*sockets).into()),
        (
            "sockets_max",
            "Maximum number of sockets, given by the file descriptor limit.",
            (*sockets_max).into(),
        ),
        ("opted_in_relays", "Relays on the opt-in list.", *opted_in as u64),
    ] {
        text.gauge(&format!("flashflow_measurer_{name}"), help, value);
    }
    text.counters(&[
        ("flashflow_measurer_rounds_total", "Measurement rounds started.", totals.rounds),
        (
            "flashflow_measurer_failed_rounds_total",
            "Failed measurement rounds.",
            totals.failed_rounds,
        ),
        (
            "flashflow_measurer_measured_bytes_total",
            "Bytes of cells received back from relays.",
            totals.measured_bytes,
        ),
    ]);
    let name = "flashflow_measurer_refused_orders_total";
    text.head(name, "counter", "Refused orders of coordinators, by reason.");
    for code in RefusalCode::ALL {
        let count = totals.refused_orders.get(&code).copied().unwrap_or(0);
        text.value(name, &[("reason", code.name())], count);
    }
    text.into_string()
}
