//! Runs the commands and prints their results.

use super::datasets::{CacheOptions, DatasetOptions, notify};
use super::lines::{Line, PageLine};
use super::{
    CheckCommand, Choice, ConvertCommand, ErrorsCommand, ExecutorCommand, Format, Import,
    QueryCommand, RelayCommand, Resources, SchedulerCommand, SpeedtestCommand, StagingCommand,
    SummaryCommand, SynthCommand, WarmUpName,
};
use archive::dataset::{ChangeOptions, Dataset, Imported, Location};
use archive::engine::{Engine, Limits, Period, View};
use archive::errors::{self, ErrorsOptions, WarmUp};
use archive::import::{self, ImportOptions, ImportReport, Observer};
use archive::speedtest::simulated::{self, SimulationOptions};
use archive::speedtest::{self, SpeedTest};
use archive::synth::{self, SynthOptions};
use archive::{convert, printed, relay_page, staging, summary, times};
use cli::Error;
use link::unix_time_s;
use netdoc::RsaId;
use report::experiment::ExperimentReport;
use report::machine;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use terminal::{Exit, Interrupt, Output};

/// Number of relays of a synthetic network: about that of Tor in 2019.
const SYNTHETIC_RELAYS: u32 = 6500;

impl Resources {
    pub(super) fn open(&self, dataset: &DatasetOptions, output: &Output) -> Result<Engine, Error> {
        self.open_at(&dataset.dataset, &dataset.cache, output)
    }

    fn open_at(
        &self,
        location: &Location,
        cache: &CacheOptions,
        output: &Output,
    ) -> Result<Engine, Error> {
        if let (Location::Bucket(name), true) = (location, self.cluster.is_some()) {
            return Err(Error::Usage(format!(
                "{name}: --cluster needs a dataset in a folder that all machines have at the same path"
            )));
        }
        let dataset = cache.open(location, output)?;
        let limits = limits(self.threads, self.memory);
        if let Some(scheduler) = &self.cluster {
            return Ok(Engine::on_cluster(dataset, limits, scheduler.clone())?);
        }
        Ok(Engine::open(dataset, limits)?)
    }
}

fn limits(threads: Option<u16>, memory_mib: u32) -> Limits {
    let default = Limits::default();
    Limits {
        threads: threads.map_or(default.threads, usize::from),
        memory_mib: usize::try_from(memory_mib).unwrap_or(default.memory_mib),
    }
}

impl Choice {
    fn view(&self, engine: &Engine) -> Result<View, Error> {
        let mut names = BTreeSet::new();
        for Period { name, .. } in &self.periods {
            if !names.insert(name) {
                return Err(Error::Usage(format!("--periods: `{name}` is given twice")));
            }
        }
        let origin = engine.origin(self.origin.as_deref())?;
        let mut periods = self.periods.clone();
        if periods.is_empty() {
            let (first, last) = errors::span(engine, &origin)?;
            periods = Period::paper();
            let shortest = periods.first().cloned();
            periods.retain(|period| period.length_s < last - first);
            if periods.is_empty() {
                periods.extend(shortest);
            }
        }
        Ok(View { origin, periods, is_measured_only: self.measured_only })
    }
}

/// Refuses to listen for other machines, unless the user allows it.
fn must_be_private(listen: std::net::SocketAddr, allow_others: bool) -> Result<(), Error> {
    if listen.ip().is_loopback() || allow_others {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--listen {listen}: other machines could run any plan, which reads and writes files of this user, and there is no password. Use \
         an address of loopback, or a private network and --allow-others"
    )))
}

impl SchedulerCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        must_be_private(self.listen, self.allow_others)?;
        output.step(format!("scheduler at df://{}", self.listen));
        archive::cluster::schedule(self.listen)?;
        Ok(Exit::Done)
    }
}

impl ExecutorCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let listen = self.listen;
        must_be_private(listen, self.allow_others)?;
        if listen.ip().is_unspecified() {
            return Err(Error::Usage(format!(
                "--listen {listen}: this wildcard is not an address that others can reach; use one of this machine's"
            )));
        }
        output.step(format!("executor at {listen} of df://{}", self.scheduler.address));
        let Limits { threads, memory_mib } = limits(self.threads, self.memory);
        archive::cluster::execute(&archive::cluster::ExecutorOptions {
            scheduler: self.scheduler.clone(),
            address: listen,
            threads,
            memory_mib,
            work_folder: self.work.clone(),
        })?;
        Ok(Exit::Done)
    }
}

/// Reports the progress and problems of an import.
struct ImportProgress<'a> {
    output: &'a Output,
    begin_unix_s: u64,
    last_unix_s: u64,
}

impl Observer for ImportProgress<'_> {
    fn progress(&mut self, read: u64, total: u64, parsed: u64) {
        let now = unix_time_s();
        if now == self.last_unix_s {
            return;
        }
        self.last_unix_s = now;
        let elapsed_s = (now - self.begin_unix_s).max(1);
        let left_s = elapsed_s as f64 * total.saturating_sub(read) as f64 / read.max(1) as f64;
        self.output.doing(format!(
            "{} of {} MiB, {} MiB of documents, {} MiB/s, {left_s:.0} s to go",
            read >> 20,
            total >> 20,
            parsed >> 20,
            (parsed >> 20) / elapsed_s,
        ));
    }

    fn problem(&mut self, message: String) {
        self.output.step(message);
    }
}

impl Import {
    pub(super) fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
        interrupt.wind_up_in_order();
        let begin_unix_s = unix_time_s();
        let mut observer = ImportProgress { output, begin_unix_s, last_unix_s: begin_unix_s };
        let options = ImportOptions {
            is_again: self.again,
            certificates: self.verify.clone(),
            geoip: self.geoip.clone(),
        };
        let stop = interrupt.requested();
        let change =
            ChangeOptions { cache: self.cache.cache.as_deref(), is_again: self.again, stop };
        let report = self.to.change(change, &mut notify(output), &mut |dataset| {
            import::import(dataset, &self.sources, &options, stop, &mut observer)
        })?;
        let report =
            report.unwrap_or_else(|| ImportReport { is_interrupted: true, ..Default::default() });
        output.quiet();
        for entry in &report.imported {
            output.result(imported(entry), || Line::Imported(entry));
        }
        let (read, known) = (report.imported.len(), report.known);
        let damaged: u64 = report.imported.iter().map(|entry| entry.damaged).sum();
        let counted = |count: u64, one: &str, more: &str| {
            format!("{count} {}", if count == 1 { one } else { more })
        };
        let text = format!(
            "{} imported, {known} skipped as imported before; {}; left out: {}, {}",
            counted(read as u64, "source", "sources"),
            counted(report.new_rows, "new row", "new rows"),
            counted(damaged, "damaged document", "damaged documents"),
            counted(report.unreadable as u64, "unreadable source", "unreadable sources"),
        );
        let is_complete = report.is_complete();
        output.result(text, || Line::Summary {
            sources: read,
            known,
            new_rows: report.new_rows,
            damaged,
            unreadable: report.unreadable,
            is_complete,
        });
        Ok(match is_complete {
            _ if report.is_interrupted => Exit::Interrupted,
            true => Exit::Done,
            false => Exit::Failed,
        })
    }
}

impl CheckCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let checked = self.dataset.check(Limits::default().threads, &mut notify(output))?;
        output.quiet();
        for problem in &checked.problems {
            output.result(problem.to_string(), || Line::Problem { problem: problem.to_string() });
        }
        let (files, problems) = (checked.files, checked.problems.len());
        let text = match problems {
            0 => format!(
                "{}, {:.1} MB: as imported",
                report::plural(files as u64, "file"),
                checked.bytes as f64 / 1e6
            ),
            problems => format!("{problems} of {} files are not as imported", files + problems),
        };
        output.result(text, || Line::Check { files, bytes: checked.bytes, problems });
        Ok(if problems == 0 { Exit::Done } else { Exit::Failed })
    }
}

fn imported(entry: &Imported) -> String {
    let list = |kinds: &std::collections::BTreeMap<String, u64>| {
        kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("{}: {}", entry.source.display(), list(&entry.documents));
    if entry.documents.is_empty() {
        text += "nothing";
    }
    if !entry.skipped.is_empty() {
        text += &format!("; skipped: {}", list(&entry.skipped));
    }
    if entry.damaged > 0 {
        text += &format!("; damaged: {}", entry.damaged);
    }
    if entry.is_truncated {
        text += "; truncated";
    }
    text
}

/// Writes a report with its provenance, and prints where.
pub(super) fn write(
    mut report: ExperimentReport,
    dataset: Option<&Dataset>,
    out: &Path,
    output: &Output,
) -> Result<(), Error> {
    output.version().clone_into(&mut report.software_version);
    report.machine = machine();
    if let Some(dataset) = dataset {
        let (sources, digest) = (dataset.manifest()?.len(), dataset.digest()?);
        let text = format!(
            "{} ({sources} sources, SHA-256 of its files {digest})",
            dataset.name().display()
        );
        report.parameters.push(("dataset".to_owned(), text));
    }
    report.generated_unix_s = i64::try_from(unix_time_s()).unwrap_or_default();
    report.command = std::env::args().collect::<Vec<_>>().join(" ");
    let written = report.write(out)?;
    let page = written.html.display().to_string();
    output.result(format!("page: {page}"), || PageLine::Page { html: &written.html });
    Ok(())
}

impl ErrorsCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let engine = self.resources.open(&self.dataset, output)?;
        let options = ErrorsOptions {
            view: self.choice.view(&engine)?,
            warm_up: match self.warm_up {
                WarmUpName::Longest => WarmUp::Longest,
                WarmUpName::Own => WarmUp::Own,
            },
            from_unix_s: self.from,
            until_unix_s: self.until,
        };
        output.doing("computing errors");
        let found = errors::compute(&engine, &options)?;
        output.quiet();
        output.text(format!(
            "{} relays, {} relay hours, {} to {}, origin {}",
            found.relays,
            found.rows,
            times::minute(found.span_unix_s.0),
            times::minute(found.span_unix_s.1),
            options.view.origin,
        ));
        let percent =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} %"));
        output.text(format!(
            "{:>6} {:<40} {:<6} {:<30} {:>9} {:>9}",
            "figure", "", "period", "", "here", "paper"
        ));
        for line in errors::lines(&found).iter().filter(|line| line.here_percent.is_some()) {
            let text = format!(
                "{:>6} {:<40} {:<6} {:<30} {:>9} {:>9}",
                line.figure,
                line.quantity,
                line.period,
                line.statistic,
                percent(line.here_percent),
                percent(line.paper_percent),
            );
            output.result(text, || Line::Error(line));
        }
        if let Some(out) = &self.out {
            let report = errors::report(&found, &options.view.origin);
            write(report, Some(engine.dataset()), out, output)?;
        }
        Ok(Exit::Done)
    }
}

impl SpeedtestCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let Some(location) = self.dataset.as_ref().filter(|_| !self.simulated) else {
            return self.simulate(output);
        };
        let engine = self.resources.open_at(location, &self.cache, output)?;
        let test = match self.from.zip(self.until) {
            None => speedtest::of_authors(engine.dataset())?,
            Some((from, until)) if from >= until => {
                return Err(Error::Usage("--from must be before --until".to_owned()));
            }
            Some(interval) => {
                let measured = self.relays.as_deref().map(fingerprints).transpose()?;
                let view = View {
                    periods: Vec::new(),
                    ..View::new(&engine.origin(self.origin.as_deref())?)
                };
                speedtest::of_interval(&engine, view, interval, measured.as_ref())?
            }
        };
        self.print(&test, test.report(), Some(engine.dataset()), output)
    }

    /// A test of the dataset's relays, or of synthetic ones.
    fn simulate(&self, output: &Output) -> Result<Exit, Error> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(Error::Usage("--load must lie in 0..1".to_owned()));
        }
        let (load, test_hours, seed) = (self.load, self.test_hours, self.seed);
        let options = SimulationOptions { load, test_hours, seed, ..SimulationOptions::default() };
        let open = |location| self.cache.open(location, output);
        let dataset = self.dataset.as_ref().map(open).transpose()?;
        let capacities = match &dataset {
            Some(dataset) => {
                dataset.verify(Limits::default().threads)?;
                simulated::capacities_of(dataset)?
            }
            None => simulated::synthetic_capacities(SYNTHETIC_RELAYS, self.seed),
        };
        let test = simulated::simulate(&capacities, &options);
        self.print(&test, simulated::report(&test, &options), dataset.as_ref(), output)
    }

    fn print(
        &self,
        test: &SpeedTest,
        report: ExperimentReport,
        dataset: Option<&Dataset>,
        output: &Output,
    ) -> Result<Exit, Error> {
        for case in &report.cases {
            let found = case.value("value").cloned().unwrap_or_default();
            let text = found.as_str().unwrap_or_default().to_owned();
            output.text(format!("{}: {text}", case.name));
        }
        let effect = test.effect();
        output
            .record(|| Line::Speedtest { measured_relays: test.measured_relays, effect: &effect });
        if let Some(out) = &self.out {
            write(report, dataset, out, output)?;
        }
        Ok(Exit::Done)
    }
}

/// Fingerprints, one a line; other words of a line are ignored.
fn fingerprints(path: &Path) -> Result<BTreeSet<String>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        what: "read",
        path: path.to_owned(),
        source,
    })?;
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    let parsed = words.map(|word| {
        let parsed = word.parse::<RsaId>().map(|fingerprint| fingerprint.to_string());
        parsed.map_err(|error| Error::Config { path: path.to_owned(), problem: error.to_string() })
    });
    parsed.collect()
}

impl StagingCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let engine = self.resources.open(&self.dataset, output)?;
        for ((name, _), errors) in
            staging::PARTS.into_iter().zip(staging::errors(engine.dataset())?)
        {
            let text = format!(
                "{name}: {} relays, {:.1} Gbit/s, largest {:.1} Mbit/s, 75th percentile {:.1} Mbit/s; network weight error {}, \
                 {:.1} % of the relays with a capacity have less weight than capacity",
                errors.relays,
                errors.capacity_gbit_per_s,
                errors.largest_mbit_per_s,
                errors.percentile_75_mbit_per_s,
                errors
                    .weight_error
                    .map_or("-".to_owned(), |error| format!("{:.2} %", error * 100.0)),
                errors.underweighted_share * 100.0,
            );
            output.result(text, || Line::Staging { which: name, errors });
        }
        Ok(Exit::Done)
    }
}

impl SummaryCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let engine = self.resources.open(&self.dataset, output)?;
        let origin = match (&self.origin, engine.origins()?.as_slice()) {
            // Relay lists have no bandwidths, but can be summarized.
            (None, [only]) => only.clone(),
            (named, _) => engine.origin(named.as_deref())?,
        };
        let view = View { periods: Vec::new(), ..View::new(&origin) };
        let days = summary::days(&engine, view)?;
        if days.is_empty() {
            return Err(Error::Failed(
                "the dataset has no views of the network; import consensuses".to_owned(),
            ));
        }
        output.text("day         views  relays  with bandwidth  Gbit/s    weights, 1000");
        for day in days {
            let number =
                |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
            let text = format!(
                "{} {:>6} {:>7.0} {:>15.0} {:>7} {:>15}",
                times::day(day.unix_s),
                day.views,
                day.relays,
                day.published_relays,
                number(day.advertised_gbit_per_s),
                number(day.weight_kb_per_s.map(|weight_kb_per_s| weight_kb_per_s / 1000.0)),
            );
            output.result(text, || Line::Day(&day));
        }
        Ok(Exit::Done)
    }
}

impl RelayCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let engine = self.resources.open(&self.dataset, output)?;
        let report = relay_page::report(&engine, self.choice.view(&engine)?, &self.fingerprint)?;
        output.text(&report.answer);
        write(report, Some(engine.dataset()), &self.out, output)?;
        Ok(Exit::Done)
    }
}

impl QueryCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let engine = self.resources.open(&self.dataset, output)?;
        if let Some(origin) = &self.origin {
            engine.view(View::new(&engine.origin(Some(origin))?))?;
        }
        let batches = engine.query(&self.sql)?;
        if let Some(path) = &self.parquet {
            let rows = match batches.first().map(archive::engine::RecordBatch::schema) {
                Some(schema) => printed::parquet(schema, batches.into_iter().map(Ok), path)?,
                None => 0,
            };
            output.result(format!("{}: {rows} rows", path.display()), || Line::Parquet { rows });
            return Ok(Exit::Done);
        }
        let rows = printed::json(&batches)?;
        match self.format {
            Format::Table => output.text(printed::table(&batches)?),
            Format::Csv => output.text(printed::csv(&batches)?.trim_end()),
            Format::Json => rows.iter().for_each(|row| output.text(row)),
        }
        rows.iter().for_each(|row| output.record(|| row.clone()));
        Ok(Exit::Done)
    }
}

impl ConvertCommand {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Error> {
        let rows = convert::to_parquet(&self.table, &self.out)?;
        output.result(format!("{}: {rows} rows", self.out.display()), || Line::Parquet { rows });
        Ok(Exit::Done)
    }
}

impl SynthCommand {
    pub(super) fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
        let is_share = (0.0..=1.0).contains(&self.mean_load);
        if !is_share || !(1.0..=1e9).contains(&self.mean_life) {
            return Err(Error::Usage(
                "--mean-load must lie in 0..1, and --mean-life in 1..1e9".to_owned(),
            ));
        }
        let Ok(from_unix_s) = u32::try_from(self.from) else {
            return Err(Error::Usage("--from must lie between 1970 and 2106".to_owned()));
        };
        interrupt.wind_up_in_order();
        let options = SynthOptions {
            relays: self.relays,
            hours: self.hours,
            from_unix_s,
            mean_life_hours: self.mean_life,
            mean_load: self.mean_load,
            seed: self.seed,
        };
        let mut progress = |hours: u32| output.doing(format!("{hours} of {} hours", self.hours));
        let stop = interrupt.requested();
        let change = ChangeOptions { cache: self.cache.cache.as_deref(), is_again: false, stop };
        let rows = self.to.change(change, &mut notify(output), &mut |dataset| {
            synth::synthesize(dataset, &options, stop, &mut progress)
        })?;
        let rows = rows.unwrap_or_default();
        output.quiet();
        output.result(format!("{}: {rows} new rows", self.to), || Line::Synth { new_rows: rows });
        Ok(if interrupt.is_requested() { Exit::Interrupted } else { Exit::Done })
    }
}
