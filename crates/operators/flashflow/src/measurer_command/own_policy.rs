//! A measurer's own copy of the measurement policy, and its own consensus: what a coordinator sends proves nothing.

use super::Config;
use authority::config_file::{self, PolicyFile};
use cli::Error;
use coordinator::policy::{Contact, PolicyRelays};
use documents::Source;
use documents::policy::{OwnDocuments, SignedPolicy};
use link::{Clock, unix_time_s};
use netdoc::RsaId;
use onion::{Duration, Instant};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

/// Interval at which the consensus is read: authorities make one each hour.
const INTERVAL: Duration = Duration::from_secs(3600);
/// The delay before it is read again after an error.
const RETRY: Duration = Duration::from_secs(300);

/// A verified policy, and where the consensus is.
pub(super) struct OwnPolicy {
    pub(super) signed: SignedPolicy,
    authority: RsaId,
    documents: OwnDocuments,
}

impl OwnPolicy {
    /// `None` without a policy in the configuration, which was read from `path`.
    pub(super) fn read(config: &Config, path: &Path) -> Result<Option<Self>, Error> {
        let bad =
            |problem: &str| Error::Config { path: path.to_owned(), problem: problem.to_owned() };
        let resolve = |file: &Path| config_file::resolve(path, file);
        let (policy, authority) = (config.policy.as_deref(), config.policy_authority.clone());
        let file =
            PolicyFile::new(policy.map(resolve), authority).map_err(|problem| bad(&problem))?;
        let Some(file) = file else { return Ok(None) };
        let source = match (config.authority, &config.consensus) {
            (Some(authority), None) => Source::Authority(authority),
            (None, Some(consensus)) => Source::File(resolve(consensus)),
            _ => {
                return Err(bad(
                    "`policy`: give either `authority` or `consensus`: the policy is for relays of the consensus",
                ));
            }
        };
        let signed = file.read()?;
        let descriptors = config.descriptors.as_deref().map(resolve);
        let is_file = matches!(source, Source::File(_));
        if signed.policy.has_contact_tokens() && is_file && descriptors.is_none() {
            return Err(bad(
                "`policy`: relays decline by their ContactInfo, which is in descriptors: name the file of `descriptors`, too",
            ));
        }
        let documents = OwnDocuments { source, descriptors };
        Ok(Some(Self { signed, authority: file.authority, documents }))
    }

    /// Whether the other one has the same policy of the same authority.
    pub(super) fn is_same_policy(&self, other: &Self) -> bool {
        self.authority == other.authority && self.signed.policy == other.signed.policy
    }

    fn relays(&self) -> Result<PolicyRelays, Error> {
        Ok(self.documents.relays(&self.signed, self.authority, unix_time_s())?)
    }
}

/// Reads the relays of the consensus each hour, on a separate thread.
pub(super) struct RelayReader {
    clock: Clock,
    reading: Option<Receiver<Result<PolicyRelays, Error>>>,
    next: Option<Instant>,
}

impl RelayReader {
    pub(super) fn new() -> Self {
        Self { clock: Clock::start(), reading: None, next: None }
    }

    /// Reads them now. An unfinished reading is dropped: its policy may be another one.
    pub(super) fn read_soon(&mut self, policy: Option<&Arc<OwnPolicy>>) {
        (self.reading, self.next) = (None, None);
        let Some(policy) = policy.cloned() else { return };
        let (sender, receiver) = channel();
        let reading = thread::Builder::new().name("policy".to_owned()).spawn(move || {
            // The receiver is gone if the configuration was reloaded.
            let _ = sender.send(policy.relays());
        });
        match reading {
            Ok(_) => self.reading = Some(receiver),
            Err(error) => self.fail(&Error::Failed(format!("cannot start a thread: {error}"))),
        }
    }

    fn fail(&mut self, error: &Error) {
        tracing::error!("the measurement policy: {error}");
        self.next = Some(self.clock.now() + RETRY);
    }

    /// The relays, if they have been read since the last call.
    pub(super) fn take(&mut self, policy: Option<&Arc<OwnPolicy>>) -> Option<Arc<PolicyRelays>> {
        if self.next.is_some_and(|next| next <= self.clock.now()) {
            self.read_soon(policy);
        }
        let read = match self.reading.as_ref()?.try_recv() {
            Ok(read) => read,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(Error::Failed(
                "the reading of the consensus panicked, which is a bug".to_owned(),
            )),
        };
        self.reading = None;
        match read {
            Ok(relays) => {
                self.next = Some(self.clock.now() + INTERVAL);
                let listed = report::plural(relays.relays.len() as u64, "relay");
                let of = |wanted| {
                    relays.relays.values().filter(|(_, contact)| *contact == wanted).count()
                };
                let (decline, unknown) = (of(Contact::Declines), of(Contact::Unknown));
                tracing::info!(
                    "the measurement policy applies to {listed} of the consensus; {decline} decline by their ContactInfo, and \
                     {unknown} have no descriptor"
                );
                Some(Arc::new(relays))
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }
}
