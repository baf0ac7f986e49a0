//! `shadow.config.yaml`, as far as needed.

use crate::error::{Error, read};
use crate::map::Map;
use crate::network::Site;
use crate::units::{shadow_rate, shadow_time};
use onion::{Duration, Rate};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) general: General,
    pub(super) network: NetworkTable,
    pub(super) hosts: BTreeMap<String, Host>,
}

#[derive(Default, Deserialize)]
pub(super) struct General {
    bootstrap_end_time: Option<Amount>,
    template_directory: Option<PathBuf>,
}

impl General {
    /// When the network has bootstrapped: time zero here.
    pub(super) fn bootstrapped(&self) -> Result<Duration, String> {
        let at = self.bootstrap_end_time.as_ref().map_or(Ok(Duration::ZERO), Amount::time);
        at.map_err(|problem| format!("bootstrap_end_time: {problem}"))
    }

    /// The folder of hosts' files, relative to the sample's.
    pub(super) fn template(&self) -> &Path {
        self.template_directory.as_deref().unwrap_or(Path::new("shadow.data.template"))
    }
}

/// A number, with or without unit.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Amount {
    Number(u64),
    Text(String),
}

impl Amount {
    fn time(&self) -> Result<Duration, String> {
        shadow_time(&self.text())
    }

    fn rate(&self) -> Result<Rate, String> {
        shadow_rate(&self.text())
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct NetworkTable {
    graph: GraphTable,
    #[serde(default = "yes")]
    use_shortest_path: bool,
}

/// Shadow's default.
const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct GraphTable {
    #[serde(default, rename = "type")]
    kind: GraphKind,
    /// Its location since Shadow 2.1.
    file: Option<GraphFile>,
    inline: Option<String>,
    /// Its location before.
    path: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
enum GraphKind {
    #[default]
    #[serde(rename = "gml")]
    Gml,
    #[serde(rename = "1_gbit_switch")]
    Switch,
}

#[derive(Deserialize)]
struct GraphFile {
    path: PathBuf,
    compression: Option<String>,
}

impl GraphFile {
    /// The named file, or the one with that name in `conf/`: tornettools' names are relative to where it was
    /// run.
    fn find(&self, folder: &Path) -> PathBuf {
        let named = folder.join(&self.path);
        let in_conf = self.path.file_name().map(|name| folder.join("conf").join(name));
        in_conf.filter(|path| !named.is_file() && path.is_file()).unwrap_or(named)
    }
}

impl NetworkTable {
    /// The map with these nodes; `None` if the sample lacks the map that it names, like those from before
    /// Shadow 2.1.
    pub(super) fn map(
        &self,
        config: &Path,
        folder: &Path,
        used: &BTreeSet<u32>,
    ) -> Result<Option<Map>, Error> {
        let (path, text) = match &self.graph {
            GraphTable { kind: GraphKind::Switch, .. } => return Ok(Some(Map::one_switch())),
            // If hosts are located by hints only, so are their places.
            _ if used.is_empty() => return Ok(None),
            GraphTable { inline: Some(text), .. } => (config.to_owned(), text.clone()),
            GraphTable { file: Some(file), .. } => {
                let path = file.find(folder);
                let unpacked = path.with_extension("");
                let path = match &file.compression {
                    None => path,
                    Some(_) if unpacked.is_file() => unpacked,
                    Some(compression) => {
                        let problem = format!(
                            "its map {} is compressed ({compression}): unpack it in the same folder, as by `xz -dk`",
                            path.display()
                        );
                        return Err(Error::malformed(config, problem));
                    }
                };
                let text = read(&path)?;
                (path, text)
            }
            GraphTable { path: Some(path), .. } if folder.join(path).is_file() => {
                let path = folder.join(path);
                let text = read(&path)?;
                (path, text)
            }
            GraphTable { .. } => return Ok(None),
        };
        let malformed = |problem| Error::malformed(path, problem);
        Map::parse(&text, self.use_shortest_path, used).map(Some).map_err(malformed)
    }
}

#[derive(Deserialize)]
pub(super) struct Host {
    #[serde(default)]
    options: Options,
    /// The number of hosts, until Shadow 3: their names have a number as suffix.
    #[serde(default = "one")]
    quantity: u32,
    pub(super) network_node_id: Option<u32>,
    /// Its node's rate if absent.
    bandwidth_down: Option<Amount>,
    bandwidth_up: Option<Amount>,
    #[serde(default)]
    pub(super) processes: Vec<Process>,
}

const fn one() -> u32 {
    1
}

#[derive(Default, Deserialize)]
struct Options {
    country_code_hint: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Process {
    path: String,
    #[serde(default)]
    args: Args,
    start_time: Option<Amount>,
    #[serde(default = "one")]
    quantity: u32,
}

/// As one command line, or as a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Args {
    Line(String),
    List(Vec<String>),
}

impl Default for Args {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Process {
    /// Its arguments.
    pub(super) fn words(&self) -> Vec<String> {
        match &self.args {
            Args::Line(line) => split(line),
            Args::List(words) => words.clone(),
        }
    }

    /// When it begins.
    pub(super) fn start_time(&self) -> Result<Duration, String> {
        let at = self.start_time.as_ref().map_or(Ok(Duration::ZERO), Amount::time);
        at.map_err(|problem| format!("start_time: {problem}"))
    }
}

/// Splits a command line into words as a shell does, with quotes.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (_, Some(mark)) if character == mark => quote = None,
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, None) if character.is_whitespace() => words.extend(word.take()),
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

impl Host {
    /// The names of the hosts that it represents.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        match self.quantity {
            1 => vec![name.to_owned()],
            count => (1..=count).map(|number| format!("{name}{number}")).collect(),
        }
    }

    /// The process that runs this program, if one does.
    pub(super) fn runs(&self, program: &str) -> Result<Option<&Process>, String> {
        let is_it = |process: &&Process| process.path.rsplit('/').next() == Some(program);
        let found = self.processes.iter().find(is_it);
        let count: u64 =
            self.processes.iter().filter(is_it).map(|process| u64::from(process.quantity)).sum();
        if count > 1 {
            return Err(format!(
                "{count} processes of {program} at one host are not simulated: use several hosts"
            ));
        }
        Ok(found.filter(|process| process.quantity > 0))
    }

    /// Its location and its rates: its own, or those of its map node.
    pub(super) fn site(&self, name: &str, map: Option<&Map>) -> Result<Site, String> {
        let node = self.network_node_id.filter(|_| map.is_some());
        let there = map.zip(node).and_then(|(map, node)| map.node(node));
        let hint = self.options.country_code_hint.as_ref();
        let country = hint.or_else(|| there?.country.as_ref());
        let rate_of = |own: &Option<Amount>, of_node: Option<Rate>, what: &str| match own {
            Some(amount) => amount.rate().map_err(|problem| format!("{what}: {problem}")),
            None => of_node.ok_or_else(|| format!("no {what}, of the host or of its node")),
        };
        Ok(Site {
            name: name.to_owned(),
            // With a map, the country is not needed.
            country: country.map_or_else(|| UNKNOWN.to_owned(), Clone::clone),
            node,
            up: rate_of(&self.bandwidth_up, there.and_then(|node| node.up), "bandwidth_up")?,
            down: rate_of(
                &self.bandwidth_down,
                there.and_then(|node| node.down),
                "bandwidth_down",
            )?,
        })
    }
}

/// Not a country in ISO 3166.
const UNKNOWN: &str = "ZZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_arguments_is_split_as_a_shell_does() {
        assert_eq!(
            split(r#"--BandwidthRate "10 MBits" -f 'my torrc' a\ b "" x"y z"  "#),
            ["--BandwidthRate", "10 MBits", "-f", "my torrc", "a b", "", "xy z"]
        );
    }
}
