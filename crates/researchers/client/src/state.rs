//! State that a client keeps across restarts: its guards and circuit build times.

use crate::build_timeout::BuildTimes;
use crate::guards::Guards;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The file's name, in the client's folder.
pub(crate) const FILE: &str = "client-state.json";
/// Version of the file's format.
const VERSION: u32 = 1;
/// The longest file, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// The stored state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) guards: Guards,
    pub(crate) build_times: BuildTimes,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Written {
    flashflow_client: u32,
    guards: Guards,
    build_times_ms: BuildTimes,
}

impl State {
    /// Reads the file. Without a file the state is empty.
    ///
    /// # Errors
    /// A message if the file exists but is unusable. Silently selecting new guards would be worse
    /// than a failure.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let failed = |problem: String| {
            format!("`{}`: {problem}; remove it to choose new guards", path.display())
        };
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Ok(found) if found.len() > LEN_MAX => return Err(failed("far too long".to_owned())),
            _ => fs::read_to_string(path).map_err(|error| failed(error.to_string()))?,
        };
        let read: Written =
            serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if read.flashflow_client != VERSION {
            return Err(failed(format!("of format {}, not {VERSION}", read.flashflow_client)));
        }
        Ok(Self { guards: read.guards, build_times: read.build_times_ms })
    }

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// A message if it cannot be written.
    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write `{}`: {error}", path.display());
        let written = Written {
            flashflow_client: VERSION,
            guards: self.guards.clone(),
            build_times_ms: self.build_times.clone(),
        };
        let text = serde_json::to_vec_pretty(&written).map_err(|error| failed(error.into()))?;
        files::replace(path, &text, files::Access::Owner).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Duration;

    #[test]
    fn a_state_is_read_back_and_a_corrupt_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        assert_eq!(State::load(&path), Ok(State::default()));
        let mut state = State::default();
        state.build_times.handle_built(Duration::from_millis(7));
        state.save(&path).expect("written");
        let read = State::load(&path).expect("read");
        assert_eq!((read.build_times.len(), &read.guards), (1, &state.guards));
        for broken in ["", "{}", r#"{"flashflow_client":9,"guards":[],"build_times_ms":[]}"#] {
            fs::write(&path, broken).expect("written");
            let problem = State::load(&path).expect_err("broken");
            assert!(problem.contains("remove it to choose new guards"), "{problem}");
        }
        assert!(State::default().save(&folder.path().join("none/x")).is_err());
    }
}
