//! Options of commands that choose paths: the strategy, and its data.

use clap::{Args, ValueEnum};
use cli::Error;
use client::countries::Countries;
use client::model::{self, Model};
use client::strategy::{
    GeoRule, Geography, Latency, Measured, Ranking, Strategy, Throughput, Uniform, Weighted,
};
pub(crate) use documents::read;
use documents::{newest, read_raw};
use netdoc::bwfile::BandwidthFile;
use netdoc::fetch::{Fetcher, Resource};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where Debian's package `tor-geoipdb` has its tables.
const USUAL_TABLES: [&str; 2] = ["/usr/share/tor/geoip", "/usr/share/tor/geoip6"];

/// How relays are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// By bandwidth, as C tor does.
    #[default]
    Weighted,
    /// Uniformly.
    Uniform,
    /// By the ranking index: uptime, average and observed bandwidth of server descriptors, less for failures.
    Ranking,
    /// Uniformly among the relays that the rules of --geo allow.
    Geography,
    /// By the weights of the bandwidth file --bwfile.
    Measured,
    /// By round trips of links in the model --model.
    Latency,
    /// By throughputs of links in the model --model.
    Throughput,
}

impl StrategyName {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Uniform => "uniform",
            Self::Ranking => "ranking",
            Self::Geography => "geography",
            Self::Measured => "measured",
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }
}

/// Data of the strategies.
#[derive(Clone, Debug, Args)]
pub(crate) struct Choosing {
    /// Weight of the index in the choice, from 0 (uniform) to 1 (index only). For ranking, latency and throughput.
    #[arg(long, value_name = "0..1", default_value_t = 0.9, value_parser = share)]
    pub(crate) influence: f64,
    /// Server descriptors, for the strategy ranking. By default they are fetched from an authority.
    #[arg(long, value_name = "FILE")]
    pub(crate) descriptors: Option<PathBuf>,
    /// Geographic rule for paths, with any strategy; may be repeated. Examples: country=DE, continent=EU, entry=DE, exit=US+CA,
    /// exclude=CN, countries=2..3, continents=..1, continents=unique.
    #[arg(long = "geo", value_name = "RULE")]
    pub(crate) geo: Vec<GeoRule>,
    /// Table of countries in the format of tor or, with the suffix .mmdb, of MaxMind; may be repeated. By default the tables of
    /// Debian's package tor-geoipdb.
    #[arg(long, value_name = "FILE")]
    pub(crate) countries: Vec<PathBuf>,
    /// Bandwidth file, for the strategy measured.
    #[arg(long, value_name = "FILE")]
    pub(crate) bwfile: Option<PathBuf>,
    /// Model of the network, for the strategies latency and throughput: written by `flashflow-lab probe --write-model`,
    /// `flashflow-lab model observe` or `flashflow-lab model fetch`.
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
}

/// A number from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))
}

impl Choosing {
    /// The strategy of this name, for paths of `hops` hops. `authorities` are asked for descriptors if no file is given.
    pub(crate) fn strategy(
        &self,
        name: StrategyName,
        hops: usize,
        authorities: &[SocketAddr],
    ) -> Result<Box<dyn Strategy>, Error> {
        let base: Box<dyn Strategy> = match name {
            StrategyName::Weighted => Box::new(Weighted),
            StrategyName::Uniform => Box::new(Uniform),
            StrategyName::Geography if self.geo.is_empty() => {
                let problem = "--strategy geography needs a rule: add --geo country=DE, --geo continents=unique or the like";
                return Err(Error::Usage(problem.to_owned()));
            }
            StrategyName::Geography => Box::new(Uniform),
            StrategyName::Ranking => Box::new(self.ranking(authorities)?),
            StrategyName::Measured => Box::new(self.measured()?),
            StrategyName::Latency => Box::new(Latency::new(self.known("latency")?, self.influence)),
            StrategyName::Throughput => {
                Box::new(Throughput::new(self.known("throughput")?, self.influence))
            }
        };
        if self.geo.is_empty() {
            return Ok(base);
        }
        let (rules, table) = (self.geo.clone(), Arc::new(self.table()?));
        Ok(Box::new(
            Geography::new(base, rules, table, hops)
                .map_err(|problem| Error::Usage(format!("--geo: {problem}")))?,
        ))
    }

    /// The table of countries.
    pub(crate) fn table(&self) -> Result<Countries, Error> {
        let usual =
            || USUAL_TABLES.iter().map(PathBuf::from).filter(|path| path.is_file()).collect();
        let paths: Vec<PathBuf> =
            if self.countries.is_empty() { usual() } else { self.countries.clone() };
        if paths.is_empty() {
            return Err(Error::Failed(format!(
                "no table of countries: {} is not there (Debian's package tor-geoipdb); give one with --countries",
                USUAL_TABLES[0]
            )));
        }
        Ok(Countries::read(&paths)?)
    }

    fn ranking(&self, authorities: &[SocketAddr]) -> Result<Ranking, Error> {
        let text = match &self.descriptors {
            Some(path) => read(path, "read the descriptors")?,
            None => fetch_descriptors(authorities)?,
        };
        // An authority's answer has no file.
        let source = self.descriptors.as_deref().unwrap_or(Path::new("the authority's answer"));
        let found = newest(source, &text)?;
        Ok(Ranking::new(&Ranking::claims(&found.descriptors), self.influence))
    }

    fn measured(&self) -> Result<Measured, Error> {
        let path = self.bwfile.as_ref().ok_or_else(|| {
            Error::Usage(
                "--strategy measured needs the bandwidth file: add --bwfile FILE".to_owned(),
            )
        })?;
        let text = read(path, "read the bandwidth file")?;
        let parsed = BandwidthFile::parse(&text);
        let wrong = |problem: String| Error::Config { path: path.clone(), problem };
        let measured = Measured::new(&parsed.map_err(|error| wrong(error.to_string()))?.file);
        if measured.is_empty() {
            return Err(wrong("it has no measurement".to_owned()));
        }
        Ok(measured)
    }

    fn known(&self, strategy: &str) -> Result<Arc<Model>, Error> {
        let path = self.model.as_ref().ok_or_else(|| {
            Error::Usage(format!(
                "--strategy {strategy} needs a model of the network: make one with `flashflow-lab probe --write-model FILE`, then add --model FILE"
            ))
        })?;
        let model = read_model(path)?;
        if model.is_empty() {
            let problem = "it knows neither a round trip nor a throughput".to_owned();
            return Err(Error::Config { path: path.clone(), problem });
        }
        Ok(Arc::new(model))
    }
}

/// Reads a model.
pub(crate) fn read_model(path: &Path) -> Result<Model, Error> {
    let bytes = read_raw(path, "read the model")?;
    let wrong = |error: model::FileError| Error::Config {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    model::read(&bytes).map_err(wrong)
}

/// All descriptors, from the first authority that has them.
fn fetch_descriptors(authorities: &[SocketAddr]) -> Result<Vec<u8>, Error> {
    let mut last =
        Error::Usage("no authority to fetch descriptors from; give --descriptors".to_owned());
    for authority in authorities {
        match Fetcher::default().get(*authority, &Resource::AllDescriptors) {
            Ok(text) => return Ok(text),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
