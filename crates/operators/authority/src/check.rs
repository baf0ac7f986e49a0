//! `--check`: reads all the files that the coordinator reads at its start, and changes nothing.

use super::agreed::Seeds;
use super::config::{Config, ConfiguredMeasurer, Schedule};
use super::config_file::check_listen;
use super::lines::{Check, Line};
use cli::Error;
use documents::Source;
use link::unix_time_s;
use onion::Rate;
use rustix::fs::Access;
use std::fs::File;
use std::path::Path;
use store::{Reader, StoreError};
use terminal::{Exit, Output};

/// Checks the configuration at `path`, with all files that it names, and prints a summary. Contacts no other host.
///
/// # Errors
/// The reason why the coordinator would not start.
pub fn check(path: &Path, is_once: bool, output: &Output) -> Result<Exit, Error> {
    let config = Config::read(path)?;
    let bounds = config.measurers.iter().map(ConfiguredMeasurer::bound);
    let capacity = bounds.sum::<Result<Rate, Error>>()?;
    for folder in [Some(config.out.as_path()), config.store.parent()].into_iter().flatten() {
        check_writable(folder)?;
    }
    let store = match Reader::open(&config.store) {
        Ok(_) => "exists",
        Err(StoreError::Missing { .. }) => "will be created",
        Err(error) => return Err(error.into()),
    };
    let documents = match &config.source {
        Source::Authority(authority) => format!("of the authority at {authority}"),
        Source::File(consensus) => {
            let files =
                [Some(consensus), config.certificates.as_ref(), config.descriptors.as_ref()];
            files.into_iter().flatten().try_for_each(|file| check_readable(file))?;
            format!("of the file {}", consensus.display())
        }
    };
    let signatures = match config.authority_identities.len() {
        0 => "not verified".to_owned(),
        count => format!("of more than half of the {count} authorities"),
    };
    let is_slotted = config.schedule.timing().has_slots() && !is_once;
    if is_slotted {
        Seeds::check(&config.seed)?;
    }
    let schedule = match config.schedule {
        _ if is_once => "each relay once, as early as possible".to_owned(),
        Schedule::Greedy => {
            format!("a period of {} s, the largest relays first", config.period.as_secs())
        }
        Schedule::Randomised => {
            format!("a period of {} s, slots of {} s", config.period.as_secs(), config.slot_s)
        }
        Schedule::Paper => {
            let (period_s, slot_s) = (config.period.as_secs(), config.slot_s);
            format!("a period of {period_s} s, slots of {slot_s} s, one for each relay")
        }
    };
    if let Some(authorities) = &config.authorities {
        check_listen(authorities.listen)?;
    }
    let relays = match &config.relays {
        None => "all permitted".to_owned(),
        Some(names) => format!("{} by name", names.len()),
    };
    let agreement = config.authorities.as_ref().map_or(0, |authorities| authorities.others.len());
    let (key, opted_in) = (config.secret.public().to_string(), config.consent().listed());
    let seed = match agreement {
        0 => "its own seed".to_owned(),
        others => {
            let others = report::plural(others as u64, "other coordinator");
            format!("seed agreed with {others}")
        }
    };
    let policy = config
        .consent()
        .policy()
        .map(|rule| documents::policy::describe(&rule.policy, unix_time_s()).join(" "));
    let team = report::plural(config.measurers.len() as u64, "measurer");
    let text = [
        format!("{}: the configuration is valid", path.display()),
        format!("coordinator: {key}"),
        format!("team: {team}, {capacity}"),
        format!("consensus: {documents}; signatures: {signatures}"),
        format!("relays: {relays}; {opted_in} on the opt-in list"),
        format!("measurement policy: {}", policy.as_deref().unwrap_or("none")),
        format!("schedule: {schedule}; {seed}"),
        format!("store: {} ({store})", config.store.display()),
        format!(
            "bandwidth files: in {}, every {} s",
            config.out.display(),
            config.refresh.as_secs()
        ),
        format!(
            "gate: {}",
            if config.gate.is_some() { "each file before tor reads it" } else { "none" }
        ),
    ];
    let stopped = config.check_stop_file().err().map(|reason| reason.to_string());
    let unshared = config.consent().policy().and_then(|rule| {
        let has_share = |measurer: &ConfiguredMeasurer| rule.policy.share(&measurer.key.0) > 0;
        let without = config.measurers.iter().find(|measurer| !has_share(measurer))?;
        Some(format!("policy: it gives the measurer {} no share", without.key))
    });
    let own = config.measurers.iter().any(|measurer| measurer.key == config.secret.public());
    let warning = own.then(|| {
        format!(
            "measurers: {key} is the key of this coordinator: write the public key of the measurer"
        )
    });
    let warnings: Vec<String> = [warning, stopped, unshared].into_iter().flatten().collect();
    let text: Vec<String> =
        text.into_iter().chain(warnings.iter().map(|text| format!("warning: {text}"))).collect();
    output.result(text.join("\n"), || {
        Line::Check(Check {
            configuration: path,
            key: &key,
            measurers: config.measurers.len(),
            capacity_mbit_per_s: capacity.as_mbit_per_s(),
            opted_in,
            policy: policy.is_some(),
            period_s: config.period.as_secs(),
            slot_s: config.slot_s,
            authorities: agreement,
            store: &config.store,
            out: &config.out,
            gate: config.gate.is_some(),
            warnings,
        })
    });
    Ok(Exit::Done)
}

fn check_readable(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::File { what: "read", path: path.to_owned(), source };
    File::open(path).map(drop).map_err(failed)
}

/// Checks that files can be created in this folder, or in its nearest existing parent.
fn check_writable(folder: &Path) -> Result<(), Error> {
    let existing =
        folder.ancestors().find(|ancestor| ancestor.as_os_str().is_empty() || ancestor.exists());
    let existing =
        existing.filter(|existing| !existing.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |source| Error::File { what: "write to", path: existing.to_owned(), source };
    rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| failed(error.into()))
}
