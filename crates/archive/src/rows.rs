//! The tables of a dataset: one Rust type for each, its Arrow schema, and the conversions between both.
//!
//! Columns carry their units. A relay is its identity fingerprint, 40 upper-case hex digits; in memory it is an index into
//! [`Relays`].

mod cells;

pub use cells::{Origin, RelayId, Relays};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use cells::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

/// A row of a table.
pub trait Row: Clone + Send + Sync + 'static {
    /// The name of the table and of its folder.
    const TABLE: &'static str;
    /// The time column, which determines the month and, after the relay, the order.
    const TIME: &'static str;

    /// The relay.
    fn relay(&self) -> RelayId;
    /// Sets the relay.
    fn set_relay(&mut self, relay: RelayId);
    /// The time, in Unix seconds.
    fn time_s(&self) -> i64;
    /// The order of two rows of one relay: first by time.
    fn order(&self, other: &Self) -> Ordering;
    /// Whether a dataset keeps only one of both.
    fn is_duplicate_of(&self, other: &Self) -> bool;
    /// The columns.
    fn schema() -> SchemaRef;
    /// Converts rows to columns.
    ///
    /// # Errors
    /// An error of Arrow, which would be a bug.
    fn to_batch(rows: &[Self], relays: &Relays) -> Result<RecordBatch, ArrowError>;
    /// Converts columns to rows.
    ///
    /// # Errors
    /// A column is missing, or has another type.
    fn from_batch(
        batch: &RecordBatch,
        relays: &mut Relays,
        rows: &mut Vec<Self>,
    ) -> Result<(), String>;
}

/// Declares a row type. Rows are sorted by their fields in order; the time is the last field of the key.
macro_rules! row {
    (
        $(#[$meta:meta])* $name:ident in $table:literal by $time:ident key ($($key:ident),*) {
            $($(#[$doc:meta])* $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            /// The relay.
            pub relay: RelayId,
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl Row for $name {
            const TABLE: &'static str = $table;
            const TIME: &'static str = stringify!($time);

            fn relay(&self) -> RelayId {
                self.relay
            }

            fn set_relay(&mut self, relay: RelayId) {
                self.relay = relay;
            }

            fn time_s(&self) -> i64 {
                i64::from(self.$time)
            }

            fn order(&self, other: &Self) -> Ordering {
                Ordering::Equal$(.then_with(|| self.$field.order(&other.$field)))*
            }

            fn is_duplicate_of(&self, other: &Self) -> bool {
                self.relay == other.relay $(&& self.$key == other.$key)*
            }

            fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![
                    Field::new("relay", RelayId::data_type(), false),
                    $(Field::new(stringify!($field), <$kind>::data_type(), <$kind>::NULLABLE),)*
                ]))
            }

            fn to_batch(rows: &[Self], relays: &Relays) -> Result<RecordBatch, ArrowError> {
                RecordBatch::try_new(Self::schema(), vec![
                    relays.column(rows.iter().map(|row| row.relay)),
                    $(<$kind>::column(rows.iter().map(|row| row.$field)),)*
                ])
            }

            fn from_batch(batch: &RecordBatch, relays: &mut Relays, rows: &mut Vec<Self>) -> Result<(), String> {
                let column = |name: &str| {
                    batch.column_by_name(name).ok_or_else(|| format!("there is no column {name}"))
                };
                let ids = relays.ids(column("relay")?)?;
                $(let $field = <$kind>::values(column(stringify!($field))?)
                    .ok_or_else(|| format!("the column {} has another type", stringify!($field)))?;)*
                for (index, relay) in ids.into_iter().enumerate() {
                    rows.push(Self { relay, $($field: $field[index],)* });
                }
                Ok(())
            }
        }
    };
}

row! {
    /// A relay in a view of the network: a consensus, a snapshot of Onionoo, a list of running relays.
    Status in "statuses" by valid_after_unix_s key (valid_after_unix_s, origin) {
        /// When the view is valid; for lists, when they were made.
        valid_after_unix_s: u32,
        /// The origin of the view.
        origin: Origin,
        /// Consensus weight (`w Bandwidth=`), kB/s. Onionoo's history has weights of guards only.
        weight_kb_per_s: Option<u32>,
        /// The weight is based on fewer than three measurements.
        is_unmeasured: bool,
        /// Flag Running.
        is_running: bool,
        /// Flag Guard.
        is_guard: bool,
        /// Flag Exit.
        is_exit: bool,
        /// Flag BadExit.
        is_bad_exit: bool,
        /// Flag Authority.
        is_authority: bool,
    }
}

row! {
    /// A published bandwidth: a server descriptor, or the value that Onionoo gives at a snapshot.
    Descriptor in "descriptors" by published_unix_s
        key (published_unix_s, origin, advertised_byte_per_s, rate_byte_per_s, burst_byte_per_s, observed_byte_per_s) {
        /// When it was published; for Onionoo, the time of the snapshot.
        published_unix_s: u32,
        /// Its origin.
        origin: Origin,
        /// Advertised bandwidth: min(rate, burst, observed).
        advertised_byte_per_s: u32,
        /// Average rate.
        rate_byte_per_s: Option<u32>,
        /// Burst.
        burst_byte_per_s: Option<u32>,
        /// Observed bandwidth: the maximum over ten seconds within the last days.
        observed_byte_per_s: Option<u32>,
    }
}

row! {
    /// A relay of a network that tornettools staged from a span of archives.
    Staged in "staging" by from_unix_s key (from_unix_s) {
        /// The beginning of the span.
        from_unix_s: u32,
        /// Its end.
        until_unix_s: u32,
        /// Median share of the consensus weight.
        weight_share: f64,
        /// The largest observed bandwidth.
        capacity_byte_per_s: f64,
        /// Median rate.
        rate_byte_per_s: f64,
        /// Median burst.
        burst_byte_per_s: f64,
        /// Share of the consensuses that list it.
        running_share: f64,
        /// Share of those with the flag Guard.
        guard_share: f64,
        /// Share of those with the flag Exit.
        exit_share: f64,
    }
}

row! {
    /// A relay before and after the authors' speed test.
    Campaign in "campaigns" by started_unix_s key (started_unix_s) {
        /// Beginning of the test.
        started_unix_s: u32,
        /// End of the test.
        ended_unix_s: u32,
        /// Whether the relay was measured.
        is_measured: bool,
        /// Mean share of the consensus weight before.
        weight_share_before: Option<f64>,
        /// And after.
        weight_share_after: Option<f64>,
        /// The largest advertised bandwidth before.
        advertised_before_byte_per_s: Option<u32>,
        /// And after.
        advertised_after_byte_per_s: Option<u32>,
    }
}

row! {
    /// The variation of a relay's advertised bandwidth within the weeks of a year, from the authors of the speed test.
    Variation in "variations" by from_unix_s key (from_unix_s) {
        /// The beginning of the year.
        from_unix_s: u32,
        /// Mean of the weeks' relative standard deviation, a fraction.
        advertised_rsd_week: f64,
    }
}

/// The capacity of the network by hour, from the authors of the speed test. Its relay is a placeholder.
#[doc(hidden)]
pub const NETWORK: [u8; 20] = [0; 20];

row! {
    /// The network's advertised bandwidth in an hour, from the authors of the speed test. Its relay is 40 zeros.
    NetworkHour in "network_hours" by valid_after_unix_s key (valid_after_unix_s) {
        /// The authors' key minus four hours: see docs/archives.md.
        valid_after_unix_s: u32,
        /// Sum over all relays.
        advertised_byte_per_s: f64,
        /// Sum over relays that were measured.
        measured_byte_per_s: f64,
        /// Sum over the others.
        unmeasured_byte_per_s: f64,
    }
}

/// All tables: name, time column and schema.
#[must_use]
pub fn tables() -> Vec<(&'static str, &'static str, SchemaRef)> {
    fn table<R: Row>() -> (&'static str, &'static str, SchemaRef) {
        (R::TABLE, R::TIME, R::schema())
    }
    vec![
        table::<Status>(),
        table::<Descriptor>(),
        table::<Staged>(),
        table::<Campaign>(),
        table::<Variation>(),
        table::<NetworkHour>(),
    ]
}

impl Staged {
    /// The capacity limited by rate and burst, byte/s (section 3 of the paper).
    #[must_use]
    pub const fn limited_byte_per_s(&self) -> f64 {
        self.capacity_byte_per_s.min(self.rate_byte_per_s).min(self.burst_byte_per_s)
    }
}
