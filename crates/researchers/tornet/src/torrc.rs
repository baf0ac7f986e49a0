//! The relevant options of a relay's torrc: its rate limit, and an authority's vote.
//!
//! Files are read like C tor reads them: `--defaults-torrc`, then `-f`, then the command line; the last
//! occurrence of an option counts. tests/samples/limits.rs compares the result with tor's own.

use crate::error::{Error, read};
use crate::units::tor_rate;
use onion::Rate;
use std::path::{Component, Path, PathBuf};

/// Maximum nesting of included files (C tor's limit).
const DEPTH_MAX: usize = 31;

/// One option: its lower-case name, its value, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) value: String,
    file: PathBuf,
}

/// All options of a tor process, in order of precedence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Torrc(pub(crate) Vec<Line>);

impl Torrc {
    /// The options of a process with these arguments. Missing files count as empty: samples are often passed on
    /// without them.
    ///
    /// # Errors
    /// If a file is malformed.
    pub(crate) fn of_process(words: &[String], at: &WorkDir<'_>) -> Result<Self, Error> {
        let (mut defaults, mut own) = (None, None);
        let mut command_line = Vec::new();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let name = word.trim_start_matches('-').to_ascii_lowercase();
            match name.as_str() {
                _ if FLAGS.contains(&name.as_str()) => {}
                "f" | "torrc-file" => own = words.next(),
                "defaults-torrc" => defaults = words.next(),
                _ => {
                    let value = words.next().unwrap_or_default().to_owned();
                    let name = name.trim_start_matches(['+', '/']).to_owned();
                    command_line.push(Line { name, value, file: "the command line".into() });
                }
            }
        }
        // A process that names no file has those of its host's folder.
        let is_unnamed = defaults.is_none() && own.is_none();
        let defaults = defaults.or(is_unnamed.then_some("torrc-defaults"));
        let own = own.or(is_unnamed.then_some("torrc"));
        let mut all = Vec::new();
        for file in [defaults, own].into_iter().flatten() {
            read_into(&at.find(file), at, &mut all, 0)?;
        }
        all.append(&mut command_line);
        Ok(Self(all))
    }

    /// The options of one file.
    ///
    /// # Errors
    /// If it is malformed.
    pub(crate) fn of_file(path: &Path, at: &WorkDir<'_>) -> Result<Self, Error> {
        let mut all = Vec::new();
        read_into(path, at, &mut all, 0)?;
        Ok(Self(all))
    }

    /// The last value of an option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let line = self.0.iter().rev().find(|line| line.name == name)?;
        Some(line.value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether an option is present.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The rate limit of a relay: `RelayBandwidthRate` if there is one, which C tor applies to the whole relay
    /// if `BandwidthRate` is less. `MaxAdvertisedBandwidth` limits nothing.
    ///
    /// # Errors
    /// If the rate is invalid.
    pub(crate) fn limit(&self) -> Result<Option<Rate>, Error> {
        let rate = |option: Rates| {
            let line = self.0.iter().rev().find(|line| Rates::of(&line.name) == Some(option));
            let Some(line) = line.filter(|line| !line.value.is_empty()) else { return Ok(None) };
            let rate = tor_rate(&line.value).map_err(|problem| {
                Error::malformed(&line.file, format!("{}: {problem}", line.name))
            })?;
            Ok((rate.as_byte_per_s() > 0).then_some(rate))
        };
        let relayed = rate(Rates::RelayRate)?
            .map_or_else(|| rate(Rates::RelayBurst), |rate| Ok(Some(rate)))?;
        relayed.map_or_else(|| rate(Rates::Rate), |relayed| Ok(Some(relayed)))
    }
}

/// Arguments of tor without a value.
const FLAGS: [&str; 8] = [
    "quiet",
    "hush",
    "verify-config",
    "ignore-missing-torrc",
    "allow-missing-torrc",
    "keygen",
    "no-passphrase",
    "newpass",
];

/// Options that limit a relay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rates {
    Rate,
    RelayRate,
    RelayBurst,
}

impl Rates {
    /// By name; C tor accepts prefixes of names, and uses the first match in alphabetical order.
    fn of(name: &str) -> Option<Self> {
        let begins = |of: &str, least: &str| name.len() >= least.len() && of.starts_with(name);
        match name {
            "bandwidthratebytes" => Some(Self::Rate),
            _ if begins("bandwidthrate", "bandwidthr") => Some(Self::Rate),
            _ if begins("relaybandwidthrate", "relaybandwidthr") => Some(Self::RelayRate),
            _ if begins("relaybandwidthburst", "relaybandwidthb") => Some(Self::RelayBurst),
            _ => None,
        }
    }
}

/// The working folder of a process, to which its paths are relative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkDir<'a> {
    /// The folder of its host, since tornettools 1.1.
    pub(crate) host: &'a Path,
    /// The folder of the whole sample, in earlier versions.
    pub(crate) sample: &'a Path,
}

impl WorkDir<'_> {
    /// The location of a file: relative to the host if it exists there, otherwise relative to the sample.
    pub(crate) fn find(&self, file: impl AsRef<Path>) -> PathBuf {
        let here = lexical(&self.host.join(&file));
        let there = lexical(&self.sample.join(&file));
        if !here.exists() && there.exists() { there } else { here }
    }
}

/// A path without `..`, so that intermediate folders need not exist.
pub(crate) fn lexical(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if all.file_name().is_some() => {
                all.pop();
            }
            Component::CurDir => {}
            part => all.push(part),
        }
    }
    all
}

/// Adds the lines of a file, and of those that it includes.
fn read_into(
    path: &Path,
    at: &WorkDir<'_>,
    all: &mut Vec<Line>,
    depth: usize,
) -> Result<(), Error> {
    if !path.is_file() {
        return Ok(());
    }
    if depth > DEPTH_MAX {
        return Err(Error::malformed(path, "it includes itself, or files more than 31 deep"));
    }
    for (name, value) in lines(&read(path)?) {
        if name == "%include" {
            // Relative to tor's working folder. A folder includes all of its files.
            for file in included(&at.find(&value)) {
                read_into(&file, at, all, depth + 1)?;
            }
            continue;
        }
        let name = name.trim_start_matches(['+', '/']).to_ascii_lowercase();
        all.push(Line { name, value, file: path.into() });
    }
    Ok(())
}

/// The files of `%include`: one, those of a folder, or those matching `*`, in order.
fn included(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.into()];
    }
    let pattern =
        path.file_name().and_then(|file_name| file_name.to_str()).filter(|name| name.contains('*'));
    let folder = if pattern.is_some() { path.parent().unwrap_or(path) } else { path };
    let fits = |name: &str| match pattern.and_then(|pattern| pattern.split_once('*')) {
        Some((before, after)) => {
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        }
        None => true,
    };
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.is_file())
        .filter(|path| {
            path.file_name()
                .and_then(|file_name| file_name.to_str())
                .is_some_and(|name| !name.starts_with('.') && fits(name))
        })
        .collect();
    files.sort();
    files
}

/// Names and values, without comments, with quotes and continuation lines resolved.
fn lines(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return all;
        }
        let end = rest
            .find(|character: char| character.is_whitespace() || character == '#')
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let (value, after) = value(after.trim_start_matches([' ', '\t']));
        if !name.is_empty() {
            all.push((name.to_owned(), value));
        }
        rest = after;
    }
}

/// The value at the beginning of a text, and the text after its last line.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut rest = text;
    if let Some(quoted) = text.strip_prefix('"') {
        let mut characters = quoted.char_indices();
        while let Some((place, character)) = characters.next() {
            match character {
                '"' => {
                    rest = &quoted[place + 1..];
                    break;
                }
                '\\' => value.extend(characters.next().map(|(_, character)| character)),
                character => value.push(character),
            }
            rest = "";
        }
        return (value, rest.split_once('\n').map_or("", |(_, rest)| rest));
    }
    loop {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.strip_suffix('\r').unwrap_or(line);
        if let Some((before, _)) = line.split_once('#') {
            value.push_str(before);
            // A comment between continuation lines does not end them.
            let is_between = before.trim().is_empty() && !value.trim().is_empty();
            if !is_between {
                return (value.trim().to_owned(), after);
            }
        } else if let Some(continued) = line.strip_suffix('\\') {
            value.push_str(continued);
        } else {
            value.push_str(line);
            return (value.trim().to_owned(), after);
        }
        rest = after;
    }
}
