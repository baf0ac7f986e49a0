//! What becomes of the results of the demo's period.

use authority::shell::Observer;
use cli::Error;
use coordinator::journal::Entry;
use coordinator::period::{Event, NetworkView, Period, PublishedRelay, SlotSeed};
use coordinator::{Consent, Record};
use documents::Documents;
use lab::{CpuReading, RelayReports};
use netdoc::bwfile;
use onion::identity::RsaId;
use onion::{Instant, Rate};
use report::RelayReport;
use terminal::Output;
use terminal::measuring::{self, ProcessorReading, RelayWitness, Watch};

/// Takes the results, and what the relays themselves report.
pub(super) struct Observed<'a> {
    documents: &'a Documents,
    /// In the order of the network.
    watches: Vec<(RsaId, Watch<Watched<'a>>)>,
    output: &'a Output,
    records: Vec<Record>,
    published: Vec<PublishedRelay>,
}

impl<'a> Observed<'a> {
    pub(super) const fn new(
        documents: &'a Documents,
        watches: Vec<(RsaId, Watch<Watched<'a>>)>,
        output: &'a Output,
    ) -> Self {
        Self { documents, watches, output, records: Vec::new(), published: Vec::new() }
    }

    /// The reports on the relays, and their entries in a bandwidth file.
    ///
    /// # Errors
    /// A relay's nickname is invalid.
    pub(super) fn results(self) -> Result<(Vec<RelayReport>, Vec<bwfile::Estimate>), Error> {
        let result =
            |(id, _): &(RsaId, _)| self.records.iter().find(|record| record.relay.ids.rsa == *id);
        let reports = self.watches.iter().filter_map(result).map(RelayReport::from).collect();
        let lines = self.published.iter().map(|relay| authority::line(self.documents, relay));
        Ok((reports, lines.collect::<Result<_, _>>()?))
    }

    fn finish(&mut self, record: Record) {
        let watch = self.watch(record.relay.ids.rsa);
        let observations = watch.map(|watch| watch.observations()).unwrap_or_default();
        let record = record.observed(observations);
        let report = RelayReport::from(&record);
        self.output.step(report::line(&report));
        self.output.record(|| report.value("relay"));
        self.records.push(record);
    }

    fn watch(&mut self, relay: RsaId) -> Option<&mut Watch<Watched<'a>>> {
        self.watches.iter_mut().find(|(id, _)| *id == relay).map(|(_, watch)| watch)
    }
}

impl Observer<NetworkView> for Observed<'_> {
    fn take_network(&mut self, network: NetworkView) -> (NetworkView, Option<SlotSeed>) {
        (network, None)
    }

    fn show_network_failure(&mut self, error: &Error) {
        self.output.error(error);
    }

    fn note(&mut self, _: Entry) {}

    fn publish(&mut self, _: &Period, relays: &[PublishedRelay]) {
        self.published = relays.to_vec();
    }

    fn show(&mut self, period: &Period, event: Event) {
        match event {
            // The team has shown its capacity.
            Event::Measurer(_, Ok(_)) | Event::Planned { .. } => {}
            Event::RelayDone(record) => self.finish(*record),
            Event::MeasurementEnded(record) => {
                measuring::show_accounts(&record, self.output);
                if let Some(watch) = self.watch(record.relay.ids.rsa) {
                    watch.handle_end();
                }
            }
            Event::Progress(relay, progress) => {
                let id = period.relay(relay).map(coordinator::period::Relay::id);
                if let Some(watch) = id.and_then(|id| self.watch(id)) {
                    watch.handle_progress(progress);
                }
                let event = Event::Progress(relay, progress);
                authority::events::show(period, event, |_| None, self.output);
            }
            event => authority::events::show(period, event, |_| None, self.output),
        }
    }

    fn reloaded_consent(&mut self) -> Option<Consent> {
        None
    }
}

/// A relay of the private network as a [`RelayWitness`].
pub(super) struct Watched<'r>(pub(super) RelayReports<'r>);

impl RelayWitness for Watched<'_> {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn processor(&self) -> Option<ProcessorReading> {
        let CpuReading { at, used } = self.0.cpu()?;
        Some(ProcessorReading { at, used })
    }

    fn gather_until(&mut self, deadline: Instant) {
        self.0.gather_until(deadline);
    }

    fn second_ending(&self, end: Instant) -> Option<Rate> {
        self.0.second_ending(end)
    }
}
