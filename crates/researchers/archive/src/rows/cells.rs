//! Values of rows, and their conversion to and from columns.

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow_cast::cast;
use arrow_schema::DataType;
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A text that many rows share.
pub type Text = Arc<str>;

/// Texts, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Texts(BTreeSet<Text>);

impl Texts {
    pub(crate) fn shared(&mut self, text: &str) -> Text {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Text = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

/// A relay, as an index into [`Relays`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayId(pub(crate) u32);

impl RelayId {
    pub(crate) fn data_type() -> DataType {
        DataType::Utf8
    }
}

/// Fingerprints, each stored once.
#[derive(Debug, Default)]
pub struct Relays {
    known: BTreeMap<RsaId, RelayId>,
    fingerprints: Vec<RsaId>,
    /// The successor of each relay in the last lookups. Documents list mostly the same relays in the same order.
    followers: Vec<RelayId>,
    last: RelayId,
}

impl Relays {
    /// The index of a relay.
    ///
    /// # Panics
    /// Never: 2³² relays do not fit in memory.
    pub fn id(&mut self, fingerprint: RsaId) -> RelayId {
        let last = self.last.0 as usize;
        let mut id = self.followers.get(last).copied().unwrap_or_default();
        if self.fingerprint(id) != Some(fingerprint) {
            id = self.search(fingerprint);
            if let Some(follower) = self.followers.get_mut(last) {
                *follower = id;
            }
        }
        self.last = id;
        id
    }

    fn search(&mut self, fingerprint: RsaId) -> RelayId {
        if let Some(id) = self.known.get(&fingerprint) {
            return *id;
        }
        let id = RelayId(u32::try_from(self.fingerprints.len()).unwrap_or(u32::MAX));
        self.fingerprints.push(fingerprint);
        self.followers.push(RelayId::default());
        self.known.insert(fingerprint, id);
        id
    }

    /// The relay of an index.
    #[must_use]
    pub fn fingerprint(&self, id: RelayId) -> Option<RsaId> {
        self.fingerprints.get(id.0 as usize).copied()
    }

    /// The number of relays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Whether there are no relays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// The rank of each index in the order of fingerprints.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut ranks = vec![0; self.fingerprints.len()];
        for (rank, id) in (0_u32..).zip(self.known.values()) {
            if let Some(place) = ranks.get_mut(id.0 as usize) {
                *place = rank;
            }
        }
        ranks
    }

    pub(crate) fn column(&self, ids: impl ExactSizeIterator<Item = RelayId>) -> ArrayRef {
        let mut builder = StringBuilder::with_capacity(ids.len(), ids.len() * 40);
        let mut digits = [0; 40];
        let mut last = None;
        for id in ids {
            if last != Some(id) {
                last = Some(id);
                let fingerprint = self
                    .fingerprints
                    .get(id.0 as usize)
                    .map_or([0; 20], |fingerprint| fingerprint.0);
                // Both have the same fixed size.
                let _cannot_fail = hex::encode_to_slice(fingerprint, &mut digits);
                digits.make_ascii_uppercase();
            }
            builder.append_value(std::str::from_utf8(&digits).unwrap_or_default());
        }
        Arc::new(builder.finish())
    }

    /// The indices of a column of fingerprints.
    pub(crate) fn ids(&mut self, column: &ArrayRef) -> Result<Vec<RelayId>, String> {
        let column = cast(column, &DataType::Utf8).map_err(|error| error.to_string())?;
        let texts: &StringArray = column.as_string();
        let mut last: Option<(&str, RelayId)> = None;
        let mut ids = Vec::with_capacity(texts.len());
        for text in texts.iter() {
            let text = text.ok_or("a row has no relay")?;
            let id = match last {
                Some((same, id)) if same == text => id,
                _ => {
                    let fingerprint = RsaId::parse(text.as_bytes());
                    self.id(fingerprint.map_err(|error| error.to_string())?)
                }
            };
            last = Some((text, id));
            ids.push(id);
        }
        Ok(ids)
    }
}

/// The origin of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Directory documents: consensuses and server descriptors.
    Tor,
    /// A history of Onionoo's details.
    Onionoo,
    /// Lists of running relays.
    Membership,
    /// `archive synth`.
    Synthetic,
}

impl Origin {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tor, Self::Onionoo, Self::Membership, Self::Synthetic];

    /// The value in the column `origin`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tor => "tor",
            Self::Onionoo => "onionoo",
            Self::Membership => "membership",
            Self::Synthetic => "synthetic",
        }
    }
}

/// A value of a row.
pub(crate) trait Cell: Clone {
    const NULLABLE: bool;

    fn data_type() -> DataType;
    fn column(values: impl Iterator<Item = Self>) -> ArrayRef;
    fn values(column: &ArrayRef) -> Option<Vec<Self>>;
    fn order(&self, other: &Self) -> Ordering;
}

impl Cell for u32 {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Int64
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(values.map(i64::from)))
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        column
            .as_primitive_opt::<Int64Type>()?
            .iter()
            .map(|value| Self::try_from(value?).ok())
            .collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Cell for Option<u32> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Int64
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(values.map(|value| value.map(i64::from)).collect::<Int64Array>())
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = column.as_primitive_opt::<Int64Type>()?;
        column
            .iter()
            .map(|value| {
                value
                    .map(|number| u32::try_from(number).ok())
                    .map_or(Some(None), |number| number.map(Some))
            })
            .collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Cell for bool {
    const NULLABLE: Self = false;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(values.map(Some).collect::<BooleanArray>())
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        column.as_boolean_opt()?.iter().collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Cell for f64 {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Float64
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(values))
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        column.as_primitive_opt::<Float64Type>()?.iter().collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

impl Cell for Option<f64> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Float64
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(values.collect::<Float64Array>())
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        Some(column.as_primitive_opt::<Float64Type>()?.iter().collect())
    }

    fn order(&self, other: &Self) -> Ordering {
        let number = |value: &Self| value.unwrap_or(f64::NEG_INFINITY);
        number(self).total_cmp(&number(other))
    }
}

impl Cell for Origin {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(values.map(Self::word)))
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = cast(column, &DataType::Utf8).ok()?;
        let texts: &StringArray = column.as_string_opt()?;
        texts
            .iter()
            .map(|text| Self::ALL.into_iter().find(|origin| Some(origin.word()) == text))
            .collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Cell for Text {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(values))
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        Option::<Self>::values(column)?.into_iter().collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Cell for Option<Text> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        Arc::new(values.collect::<StringArray>())
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = cast(column, &DataType::Utf8).ok()?;
        let column: &StringArray = column.as_string_opt()?;
        let mut texts = Texts::default();
        Some(column.iter().map(|text| text.map(|text| texts.shared(text))).collect())
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Names of flags in alphabetical order, separated by spaces.
impl Cell for Flags {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
        let mut builder = StringBuilder::new();
        let mut last = (Self::default(), String::new());
        for flags in values {
            if flags != last.0 {
                last = (flags, flags.to_string());
            }
            builder.append_value(&last.1);
        }
        Arc::new(builder.finish())
    }

    fn values(column: &ArrayRef) -> Option<Vec<Self>> {
        let column = cast(column, &DataType::Utf8).ok()?;
        let texts: &StringArray = column.as_string_opt()?;
        let mut last = (String::new(), Self::default());
        let flags = texts.iter().map(|text| {
            let text = text?;
            if text != last.0 {
                let names = text.split_ascii_whitespace();
                let flags = names.map(|name| Flag::from_name(name.as_bytes()));
                last = (text.to_owned(), flags.collect::<Option<Self>>()?);
            }
            Some(last.1)
        });
        flags.collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}
