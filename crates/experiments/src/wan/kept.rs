//! Runs that are over, in files: the same command goes on where it was interrupted.

use super::judge::Judged;
use super::plan::{Path, Plan, What};
use crate::error::Error;
use crate::simulated::Store;
use report::experiment::{Case, CaseVerdict, Value};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::path::Path as FilePath;

/// Where runs that are over are kept, in the folder of results.
const RUNS: &str = "wan-runs";

/// A run as it is in its file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    /// What all runs of a folder have in common.
    conditions: String,
    name: String,
    truth_mbit_per_s: Option<f64>,
    estimate_mbit_per_s: Option<f64>,
    ratio: Option<f64>,
    ended: CaseVerdict,
    word: String,
    detail: String,
    columns: Vec<(String, Value)>,
}

/// The files of a folder.
pub(super) struct Kept {
    store: Store,
    conditions: String,
}

impl Kept {
    pub(super) fn new(out: &FilePath, plan: &Plan) -> Result<Self, Error> {
        let conditions =
            format!("t = {} s, seed {}, program {}", plan.seconds, plan.seed, program()?);
        Ok(Self { store: Store::new(out.join(RUNS))?, conditions })
    }

    /// The run, if it is over.
    ///
    /// # Errors
    /// Where its file is of other parameters or of another program, or is none that this program wrote.
    pub(super) fn read(&self, what: What, path: Path) -> Result<Option<Judged>, Error> {
        let name = what.file_name(&path);
        let Some(run) = self.store.read::<Run>(&name)? else { return Ok(None) };
        if run.conditions != self.conditions {
            return Err(Error::Failed(format!(
                "{} is of other runs ({}; these are {}): take another --out, or remove the folder",
                self.store.path(&name).display(),
                run.conditions,
                self.conditions,
            )));
        }
        let word = Judged::word(&run.word);
        let case = Case {
            name: run.name,
            truth_mbit_per_s: run.truth_mbit_per_s,
            estimate_mbit_per_s: run.estimate_mbit_per_s,
            ratio: run.ratio,
            verdict: run.ended,
            word: Some(word),
            detail: run.detail,
            columns: run.columns,
        };
        Ok(Some(Judged { case, path, verdict: word, is_trial: true }))
    }

    /// Keeps a run that is over, and was a trial.
    pub(super) fn write(&self, what: What, run: &Judged) -> Result<(), Error> {
        let case = run.case.clone();
        let kept = Run {
            conditions: self.conditions.clone(),
            name: case.name,
            truth_mbit_per_s: case.truth_mbit_per_s,
            estimate_mbit_per_s: case.estimate_mbit_per_s,
            ratio: case.ratio,
            ended: case.verdict,
            word: run.verdict.to_owned(),
            detail: case.detail,
            columns: case.columns,
        };
        self.store.write(&what.file_name(&run.path), &kept)
    }
}

/// This very program: its version and the digest of its file, since a version has many builds.
fn program() -> Result<String, Error> {
    const FILE: &str = "/proc/self/exe";
    let failed =
        |source| Error::File { what: "read this program's file", path: FILE.into(), source };
    let mut digest = Sha256::new();
    let mut file = File::open(FILE).map_err(failed)?;
    io::copy(&mut file, &mut digest).map_err(failed)?;
    let digest: String = digest.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{} with digest {digest}", env!("CARGO_PKG_VERSION")))
}
