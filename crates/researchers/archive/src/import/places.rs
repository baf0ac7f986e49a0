//! Countries and autonomous systems of addresses, from files in MaxMind's format.

use crate::error::ArchiveError;
use maxminddb::Reader;
use serde::Deserialize;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

/// Where an address is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Code of the country, in upper case.
    pub(super) country: Option<String>,
    /// The autonomous system.
    pub(super) as_number: Option<u32>,
    pub(super) as_name: Option<String>,
}

/// The fields of a record that are used. Files of countries and files of autonomous systems have different ones.
#[derive(Deserialize)]
struct Record<'a> {
    country: Option<CountryRecord<'a>>,
    autonomous_system_number: Option<u32>,
    autonomous_system_organization: Option<&'a str>,
}

#[derive(Deserialize)]
struct CountryRecord<'a> {
    iso_code: Option<&'a str>,
}

/// The files.
#[derive(Default)]
pub(super) struct Places(Vec<Reader<Vec<u8>>>);

impl Places {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, ArchiveError> {
        let mut readers = Vec::new();
        for path in paths {
            let bytes = fs::read(path).map_err(ArchiveError::file("read", path))?;
            let reader = Reader::from_source(bytes).map_err(|error| ArchiveError::Source {
                path: path.clone(),
                problem: format!("not a file in MaxMind's format (.mmdb): {error}"),
            })?;
            readers.push(reader);
        }
        Ok(Self(readers))
    }

    /// What the files know of an address. For each field, the first file that has it counts.
    pub(super) fn find(&self, address: IpAddr) -> Place {
        let mut place = Place::default();
        for reader in &self.0 {
            let found =
                reader.lookup(address).ok().and_then(|found| found.decode::<Record<'_>>().ok()?);
            let Some(found) = found else { continue };
            let code = found.country.and_then(|country| country.iso_code);
            place.country = place.country.or_else(|| code.map(str::to_ascii_uppercase));
            place.as_number = place.as_number.or(found.autonomous_system_number);
            let name = found.autonomous_system_organization;
            place.as_name = place.as_name.or_else(|| name.map(str::to_owned));
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A string in MaxMind's format. From 29 bytes on, a second byte has the rest of its length.
    fn text(text: &str) -> Vec<u8> {
        let len = u8::try_from(text.len()).unwrap();
        let (first, more) = (len.min(29), len.checked_sub(29));
        let head = [0x40 | first].into_iter().chain(more);
        head.chain(text.bytes()).collect()
    }

    fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let pairs = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
        [0xe0 | u8::try_from(entries.len()).unwrap()].into_iter().chain(pairs).collect()
    }

    /// A file by the format's specification (version 2.0): the lower half of IPv4 has this record, the rest none.
    fn maxmind(record: &[u8]) -> Vec<u8> {
        const NODES: u8 = 1;
        let tree = [0, 0, NODES + 16, 0, 0, NODES];
        let metadata = map(&[
            ("node_count", vec![0xc1, NODES]),
            ("record_size", vec![0xa1, 24]),
            ("ip_version", vec![0xa1, 4]),
            ("database_type", text("Country")),
            ("languages", vec![0x00, 0x04]),
            ("binary_format_major_version", vec![0xa1, 2]),
            ("binary_format_minor_version", vec![0xa0]),
            ("build_epoch", vec![0x01, 0x02, 1]),
            ("description", vec![0xe0]),
        ]);
        [&tree[..], &[0; 16], record, b"\xab\xcd\xefMaxMind.com", &metadata].concat()
    }

    #[test]
    fn countries_and_systems_come_from_different_files() {
        let folder = tempfile::tempdir().unwrap();
        let number = [0xc4_u8].into_iter().chain(24_940_u32.to_be_bytes()).collect();
        let records = [
            map(&[("country", map(&[("iso_code", text("de"))]))]),
            map(&[
                ("autonomous_system_number", number),
                ("autonomous_system_organization", text("Hetzner")),
            ]),
        ];
        let mut paths = Vec::new();
        for (name, record) in ["country.mmdb", "asn.mmdb"].iter().zip(records) {
            paths.push(folder.path().join(name));
            fs::write(paths.last().unwrap(), maxmind(&record)).unwrap();
        }
        let places = Places::read(&paths).unwrap();
        let place = Place {
            country: Some("DE".to_owned()),
            as_number: Some(24_940),
            as_name: Some("Hetzner".to_owned()),
        };
        assert_eq!(places.find("78.46.1.2".parse().unwrap()), place);
        assert_eq!(places.find("200.1.1.1".parse().unwrap()), Place::default());
        let text = folder.path().join("text");
        fs::write(&text, "16777216,16777471,AU\n").unwrap();
        assert!(Places::read(&[text]).is_err());
    }
}
