//! The tables of a dataset: one Rust type for each, its Arrow schema, and the conversions between both.
//!
//! Columns carry their units. A relay is its identity fingerprint, 40 upper-case hex digits; in memory it is an index into
//! [`Relays`].

mod cells;

pub(crate) use cells::Texts;
pub use cells::{Origin, RelayId, Relays, Text};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use cells::Cell;
use netdoc::consensus::{Flag, Flags};
use std::cmp::Ordering;
use std::sync::Arc;

/// The time whose rows a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A month.
    Month,
    /// A day, in tables with a row for each relay, hour and authority.
    Day,
}

impl Span {
    /// The name of the column that contains it.
    #[must_use]
    pub const fn column(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Day => "day",
        }
    }

    /// Its value at a time.
    #[must_use]
    pub fn value(self, unix_s: i64) -> String {
        match self {
            Self::Month => crate::times::month(unix_s),
            Self::Day => crate::times::day(unix_s),
        }
    }
}

/// A row of a table.
pub trait Row: Clone + Send + Sync + 'static {
    /// The name of the table and of its folder.
    const TABLE: &'static str;
    /// The time column, which determines the file and, after the relay, the order.
    const TIME: &'static str;
    /// The time whose rows a file has.
    const SPAN: Span;

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
    /// Removes or merges duplicates. The rows are sorted.
    fn united(mut rows: Vec<Self>) -> Vec<Self> {
        rows.dedup_by(|second, first| second.is_duplicate_of(first));
        rows
    }
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
        $(#[$meta:meta])* $name:ident in $table:literal each $span:ident by $time:ident key ($($key:ident),*) $(until $until:ident)? {
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
            const SPAN: Span = Span::$span;

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

            $(fn united(rows: Vec<Self>) -> Vec<Self> {
                let mut united: Vec<Self> = Vec::new();
                let mut first = 0;
                for row in rows {
                    if united.get(first).is_some_and(|other| other.relay != row.relay) {
                        first = united.len();
                    }
                    let known = united.iter_mut().skip(first).find(|other| row.is_duplicate_of(other));
                    match known {
                        // Sorted, so the first row has the first time.
                        Some(known) => known.$until = known.$until.max(row.$until),
                        None => united.push(row),
                    }
                }
                united
            })?

            fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![
                    Field::new("relay", RelayId::data_type(), false),
                    $(Field::new(stringify!($field), <$kind>::data_type(), <$kind>::NULLABLE),)*
                ]))
            }

            fn to_batch(rows: &[Self], relays: &Relays) -> Result<RecordBatch, ArrowError> {
                RecordBatch::try_new(Self::schema(), vec![
                    relays.column(rows.iter().map(|row| row.relay)),
                    $(<$kind>::column(rows.iter().map(|row| row.$field.clone())),)*
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
                    rows.push(Self { relay, $($field: $field[index].clone(),)* });
                }
                Ok(())
            }
        }
    };
}

row! {
    /// A relay in a view of the network: a consensus, a snapshot of Onionoo, a list of running relays.
    Status in "statuses" each Month by valid_after_unix_s key (valid_after_unix_s, origin) {
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
        /// All flags, in alphabetical order.
        flags: Flags,
    }
}

impl Status {
    /// A relay in a view, with what its flags say.
    #[must_use]
    pub const fn new(
        relay: RelayId,
        valid_after_unix_s: u32,
        origin: Origin,
        flags: Flags,
    ) -> Self {
        Self {
            relay,
            valid_after_unix_s,
            origin,
            weight_kb_per_s: None,
            is_unmeasured: false,
            is_running: flags.contains(Flag::Running),
            is_guard: flags.contains(Flag::Guard),
            is_exit: flags.contains(Flag::Exit),
            is_bad_exit: flags.contains(Flag::BadExit),
            is_authority: flags.contains(Flag::Authority),
            flags,
        }
    }
}

row! {
    /// What a relay was in a month: one row for each set of properties. They come from its server descriptors, or from Onionoo.
    Properties in "relays" each Month by first_seen_unix_s
        key (origin, nickname, address, country, as_number, as_name, version, platform, family, contact) until last_seen_unix_s {
        /// The first time in the month at which it published them; for Onionoo, the time of the snapshot.
        first_seen_unix_s: u32,
        /// The last time in the month.
        last_seen_unix_s: u32,
        /// Their origin.
        origin: Origin,
        /// Its nickname.
        nickname: Option<Text>,
        /// Its IPv4 address, or with Onionoo its first address.
        address: Option<Text>,
        /// Code of the country: from Onionoo, or by the import's `--geoip`.
        country: Option<Text>,
        /// Number of the autonomous system.
        as_number: Option<u32>,
        /// Its name.
        as_name: Option<Text>,
        /// Version of tor.
        version: Option<Text>,
        /// Version and operating system.
        platform: Option<Text>,
        /// The relays that it declares as its family, as written.
        family: Option<Text>,
        /// The operator's contact information.
        contact: Option<Text>,
    }
}

row! {
    /// A relay in the vote of an authority.
    Vote in "votes" each Day by valid_after_unix_s key (valid_after_unix_s, authority) {
        /// When the consensus that the vote is for becomes valid.
        valid_after_unix_s: u32,
        /// Nickname of the authority.
        authority: Text,
        /// `w Measured=`: the weight that its bandwidth file has.
        measured_kb_per_s: Option<u32>,
        /// `w Bandwidth=`: the bandwidth that the relay advertises.
        claimed_kb_per_s: Option<u32>,
        /// The flags that the authority gives it.
        flags: Flags,
        /// SHA-256 of the authority's bandwidth file, in hex.
        bandwidth_file_sha256: Option<Text>,
    }
}

row! {
    /// A relay's line in a bandwidth file.
    BandwidthLine in "bandwidths" each Day by created_unix_s key (created_unix_s, file_sha256) {
        /// When the file was created; in a file that does not have it, the time of its newest result.
        created_unix_s: u32,
        /// SHA-256 of the file, in hex: votes name their file by it.
        file_sha256: Text,
        /// The program that made it.
        software: Text,
        /// The weight.
        bandwidth_kb_per_s: u32,
        /// When the relay was measured.
        measured_unix_s: Option<u32>,
        /// Whether authorities vote on the line.
        is_voted: bool,
        /// The generator has too few measurements of the relay.
        is_unmeasured: bool,
    }
}

row! {
    /// A published bandwidth: a server descriptor, or the value that Onionoo gives at a snapshot.
    Descriptor in "descriptors" each Month by published_unix_s
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
    Staged in "staging" each Month by from_unix_s key (from_unix_s) {
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
    Campaign in "campaigns" each Month by started_unix_s key (started_unix_s) {
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
    Variation in "variations" each Month by from_unix_s key (from_unix_s) {
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
    NetworkHour in "network_hours" each Month by valid_after_unix_s key (valid_after_unix_s) {
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

/// All tables: name, time column, time of a file, and schema.
#[must_use]
pub fn tables() -> Vec<(&'static str, &'static str, Span, SchemaRef)> {
    fn table<R: Row>() -> (&'static str, &'static str, Span, SchemaRef) {
        (R::TABLE, R::TIME, R::SPAN, R::schema())
    }
    vec![
        table::<Status>(),
        table::<Descriptor>(),
        table::<Properties>(),
        table::<Vote>(),
        table::<BandwidthLine>(),
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
