//! Bandwidth files of teams at other places, which measure the same relays.

use crate::error::Error;
use crate::files::read;
use netdoc::bwfile::{BandwidthFile, HeaderKey, SCANNER_COUNTRY};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The software whose files have capacities. Files of sbws have a country, too, but their weights have another scale.
const SOFTWARE: &str = "flashflow";

/// The maximum size of a file, which another host supplies. With 10,000 relays it has some 6 MB.
const BYTES_MAX: u64 = 64 << 20;

/// Its value if the country is not known.
const UNKNOWN: &str = "ZZ";

/// The bandwidth file of a team at another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The country in its header. If the header has none, or several files have the same one, the path is part of the name.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
    /// The content, parsed.
    pub file: BandwidthFile,
}

/// A file of another place that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct UnreadPlace {
    /// Its path.
    pub path: PathBuf,
    /// The reason.
    pub error: Error,
}

impl Place {
    fn read(path: &Path) -> Result<Self, Error> {
        let invalid =
            |problem: &str| Error::Invalid { path: path.to_owned(), problem: problem.to_owned() };
        let is_large = |metadata: fs::Metadata| metadata.len() > BYTES_MAX;
        if fs::metadata(path).is_ok_and(is_large) {
            return Err(invalid("it has more than 64 MiB, and so is no bandwidth file"));
        }
        let bytes = read(path, "read the bandwidth file of another place")?;
        let parsed = BandwidthFile::parse(&bytes).map_err(|error| Error::Invalid {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let file = parsed.file;
        if file.header.software.as_deref().is_some_and(|software| software != SOFTWARE) {
            return Err(invalid(
                "its weights are no capacities: only files of FlashFlow can be compared",
            ));
        }
        Ok(Self { name: String::new(), path: path.to_owned(), bytes, file })
    }

    fn country(&self) -> Option<String> {
        let (_, value) = self.file.header.other.iter().find(|(key, _)| key == SCANNER_COUNTRY)?;
        let is_country =
            HeaderKey::find(SCANNER_COUNTRY).is_some_and(|known| known.check(value).is_ok());
        (is_country && value != UNKNOWN).then(|| value.clone())
    }
}

/// Reads the bandwidth files of teams at other places. No two results have the same name: a path that is given twice is read once.
#[must_use]
pub fn read_places(paths: &[PathBuf]) -> Vec<Result<Place, UnreadPlace>> {
    let paths: BTreeSet<&PathBuf> = paths.iter().collect();
    let read = |path: &PathBuf| {
        Place::read(path).map_err(|error| UnreadPlace { path: path.clone(), error })
    };
    let mut places: Vec<Result<Place, UnreadPlace>> = paths.into_iter().map(read).collect();
    let name = |place: &Place| place.country().unwrap_or_else(|| place.path.display().to_string());
    let names: Vec<String> = places.iter().flatten().map(name).collect();
    for place in places.iter_mut().flatten() {
        let path = place.path.display().to_string();
        place.name = match place.country() {
            Some(country) if names.iter().filter(|other| **other == country).count() == 1 => {
                country
            }
            Some(country) => format!("{country} ({path})"),
            None => path,
        };
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_names_of_their_countries_and_paths_where_those_do_not_suffice() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (name, header) in [("a", "=AT"), ("b", "=US"), ("c", "=US"), ("d", "=ZZ"), ("e", "=FR")]
        {
            let text = format!("1800000000\nversion=1.9.0\n{SCANNER_COUNTRY}{header}\n=====\n");
            fs::write(path(name), text).expect("space");
        }
        fs::write(path("f"), "<html>\n").expect("space");
        let paths = ["a", "b", "c", "d", "e", "e", "f", "g"].map(path);
        let places = read_places(&paths);
        let names: Vec<String> = places.iter().flatten().map(|place| place.name.clone()).collect();
        let at = |name: &str| path(name).display().to_string();
        let us = |name: &str| format!("US ({})", at(name));
        assert_eq!(names, ["AT".to_owned(), us("b"), us("c"), at("d"), "FR".to_owned()]);
        let problems: Vec<String> =
            places.iter().filter_map(|place| Some(place.as_ref().err()?.to_string())).collect();
        assert!(problems[0].contains(&at("f")) && problems[0].contains("HTML"), "{problems:?}");
        assert!(problems[1].contains("of another place"), "{problems:?}");
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn files_that_are_too_large_or_not_of_flashflow_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::File::create(path("large"))
            .and_then(|file| file.set_len(BYTES_MAX + 1))
            .expect("space");
        fs::write(path("sbws"), "1800000000\nversion=1.9.0\nsoftware=sbws\n=====\n")
            .expect("space");
        let places = read_places(&["large", "sbws"].map(path));
        let problems: Vec<String> =
            places.iter().filter_map(|place| Some(place.as_ref().err()?.to_string())).collect();
        let [large, sbws] = &problems[..] else { panic!("{problems:?}") };
        assert!(
            large.contains("64 MiB") && sbws.contains("only files of FlashFlow"),
            "{problems:?}"
        );
    }
}
