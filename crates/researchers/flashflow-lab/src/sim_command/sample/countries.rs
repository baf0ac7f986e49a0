//! Countries of addresses.

use cli::Error;
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// Last address and country of each range, by its first address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Countries(BTreeMap<u32, (u32, String)>);

impl Countries {
    /// Reads tor's geoip file, or a CSV file whose first columns are address and country.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::File {
            what: "read the countries of addresses",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|problem| Error::Config { path: path.to_owned(), problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        let lines =
            text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines {
            let mut fields = line.split(',').map(str::trim);
            let mut field = || fields.next().unwrap_or_default();
            let (first, second) = (field(), field());
            let number_of = |text: &str| text.parse::<u32>().ok();
            let range = match (number_of(first), number_of(second)) {
                (Some(first), Some(last)) => Some((first, last, field())),
                _ => first
                    .parse::<Ipv4Addr>()
                    .ok()
                    .map(|address| (address.into(), address.into(), second)),
            };
            match range {
                Some((_, _, "" | "??")) => {}
                Some((first, last, country)) if first <= last && country.len() == 2 => {
                    all.insert(first, (last, country.to_ascii_uppercase()));
                }
                // The heading of a CSV.
                None if all.is_empty() && number == 0 => {}
                _ => {
                    return Err(format!(
                        "line {}: neither \"first,last,COUNTRY\" as in tor's geoip nor \"address,COUNTRY\": {line:?}",
                        number + 1
                    ));
                }
            }
        }
        if all.is_empty() {
            return Err("it contains no address".to_owned());
        }
        Ok(Self(all))
    }

    /// The country of an address.
    pub(super) fn of(&self, address: Ipv4Addr) -> Option<&str> {
        let address = u32::from(address);
        let (_, (last, country)) = self.0.range(..=address).next_back()?;
        (address <= *last).then_some(country)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, address: [u8; 4]) -> Option<String> {
        Countries::parse(text).expect("sound").of(address.into()).map(str::to_owned)
    }

    #[test]
    fn tors_own_file_has_ranges_as_numbers() {
        let text =
            "# Last updated\n16777216,16777471,AU\n16777472,16778239,cn\n16778240,16778240,??\n";
        assert_eq!(of(text, [1, 0, 0, 255]), Some("AU".into()));
        assert_eq!(of(text, [1, 0, 1, 0]), Some("CN".into()));
        assert_eq!(of(text, [1, 0, 4, 0]), None);
        assert_eq!(of(text, [0, 255, 255, 255]), None);
    }

    #[test]
    fn a_table_has_an_address_in_each_row() {
        let text = "IP,CCode,IsExit\n163.172.67.180,GB,True\n";
        assert_eq!(of(text, [163, 172, 67, 180]), Some("GB".into()));
        assert_eq!(of(text, [163, 172, 67, 181]), None);
    }

    #[test]
    fn what_is_neither_is_refused_with_its_line() {
        for (text, line) in [
            ("1,2,DE\nnonsense\n", "line 2"),
            ("2,1,DE\n", "line 1"),
            ("1.2.3.4,Germany\n", "line 1"),
            ("address,country\n", "no address"),
            ("", "no address"),
        ] {
            let problem = Countries::parse(text).expect_err(text);
            assert!(problem.contains(line), "{problem}");
        }
    }
}
