//! State that a relay keeps across restarts, besides its keys: its bandwidth history and overload.
//! C tor keeps both in its file `state`.

use crate::history::History;
use crate::overload::Overload;
use files::Access;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// The name of the file, in the folder of keys.
pub(crate) const FILE: &str = "flashflow-state.json";
/// The longest file that is read, in bytes.
const LEN_MAX: u64 = 64 << 10;

/// The content of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    #[serde(default)]
    pub(crate) history: History,
    #[serde(default)]
    pub(crate) overload: Overload,
}

impl State {
    /// Reads the file; the default if it does not exist. The error is a message: a relay can run
    /// without its state.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = match fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file.and_then(|file| io::read_to_string(io::Read::take(file, LEN_MAX))),
        };
        let place = path.display();
        let text = text.map_err(|error| format!("machine: cannot read `{place}`: {error}"))?;
        serde_json::from_str(&text).map_err(|error| {
            format!("configuration: `{place}` is damaged ({error}): what was carried before is forgotten")
        })
    }

    /// Replaces the file atomically.
    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        let written = || files::replace(path, &serde_json::to_vec(self)?, Access::Owner);
        written().map_err(|error| format!("machine: cannot write `{}`: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_restored_and_damage_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        assert_eq!(State::load(&path).expect("nothing yet").history.observed_bytes_s(), 0);
        let mut state = State::default();
        for second in 0..10 {
            state.history.note_second(1_700_000_000 + second, 500, 500);
        }
        state.save(&path).expect("written");
        assert_eq!(State::load(&path).expect("read").history.observed_bytes_s(), 500);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        fs::write(&path, "{\"history\":").expect("written");
        let problem = State::load(&path).expect_err("damaged");
        assert!(problem.contains(FILE) && problem.contains("damaged"), "{problem}");
        let problem = State::default().save(Path::new("/nowhere/x")).expect_err("no folder");
        assert!(problem.contains("/nowhere/x"), "{problem}");
    }
}
