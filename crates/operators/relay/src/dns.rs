//! Resolves names for exits on a separate thread.
//!
//! The name servers are the system's (`/etc/resolv.conf`) or those of the configuration. The
//! system's hosts file and search domains are ignored: what the host knows of its own network must
//! not be disclosed to clients. Answers are cached for a random time. The number of pending queries
//! is limited; further ones fail at once.
//!
//! A query is sent to the server that answered last. After a second, or at once if that server
//! refuses or fails, it is also sent to the next one; after two seconds it has failed. These are C
//! tor's times (`exit_dns_timeout`, `exit_dns_num_attempts`).

mod cache;
pub(crate) mod health;
#[cfg(test)]
mod tests;

use cache::Cache;
use health::{Health, Outcome};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use link::{Clock, Reply, Resolver};
use onion::node::{DnsAnswer, DnsQuery};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Limit on pending queries. Each circuit may have some tens of them (`onion::router`), so a few
/// circuits cannot use up all.
const QUESTIONS_MAX: usize = 4_096;
/// Divisor of the file descriptor limit that bounds pending queries: each may take two sockets, and
/// connections have three quarters.
const DESCRIPTORS_PER_QUESTION: u32 = 16;
/// Limit on the addresses of a name that are passed on.
const ADDRESSES_MAX: usize = 16;
/// Time after which the next server is asked as well: C tor's `exit_dns_timeout`.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Minimum number of attempts: C tor's `exit_dns_num_attempts`.
const ATTEMPTS: usize = 2;
/// Time limit for a server. The query is resent within it, and an answer to either counts.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for all servers together. Slightly longer, so that a server that has sent a name's
/// IPv4 addresses, but not its IPv6 answer, still counts.
const PATIENCE_ALL: Duration = Duration::from_millis(2_200);

/// Names cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[error(
    "machine: no names for exits: {0}. Does /etc/resolv.conf name servers? Else set `name_servers` in \
     the section [exit]"
)]
pub struct NoNames(String);

/// Resolves names for a driver.
#[derive(Debug)]
pub struct Names {
    questions: mpsc::Sender<(DnsQuery, Reply)>,
}

impl Names {
    /// Starts the thread, which ends when this is dropped. It asks these servers, or the system's
    /// if there are none.
    ///
    /// # Errors
    /// [`DnsError`] if the system has no name servers, or provides no thread.
    pub(crate) fn start(servers: &[SocketAddr], health: Arc<Health>) -> Result<Self, NoNames> {
        let no_names = |problem: &dyn std::fmt::Display| NoNames(problem.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| no_names(&error))?;
        let servers = {
            let _inside = runtime.enter();
            Servers::new(servers).map_err(|error| no_names(&error))?
        };
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(|error| no_names(&error))?;
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        thread::Builder::new()
            .name("dns".to_owned())
            .spawn(move || runtime.block_on(serve(servers, health, rng, asked)))
            .map_err(|error| no_names(&error))?;
        Ok(Self { questions })
    }
}

impl Resolver for Names {
    fn ask(&mut self, question: DnsQuery, reply: Reply) {
        // Beyond the limit the reply is dropped, which reports failure.
        let _ = self.questions.try_send((question, reply));
    }
}

/// The name servers, each with its own resolver.
struct Servers {
    all: Vec<TokioResolver>,
    /// The index of the one that answered last.
    first: AtomicUsize,
}

impl Servers {
    fn new(addresses: &[SocketAddr]) -> Result<Self, NetError> {
        let configs = match addresses {
            [] => read_system_conf()?.0.into_parts().2,
            _ => addresses.iter().map(name_server).collect(),
        };
        let all: Result<Vec<_>, _> = configs.into_iter().map(resolver).collect();
        let all = all?;
        if all.is_empty() {
            Err(NetError::NoConnections)
        } else {
            Ok(Self { all, first: 0.into() })
        }
    }

    /// The first server's answer, and the outcome of the query.
    async fn ask(&self, question: &DnsQuery) -> (DnsAnswer, Outcome) {
        let begin = self.first.load(Ordering::Relaxed);
        let deadline = Instant::now() + PATIENCE_ALL;
        let mut asked = JoinSet::new();
        let mut failure = Outcome::Timeout;
        for attempt in 0..ATTEMPTS.max(self.all.len()) {
            let place = (begin + attempt) % self.all.len();
            let (resolver, question) = (self.all[place].clone(), question.clone());
            asked.spawn(async move { (place, look_up(&resolver, &question).await) });
            let is_last = attempt + 1 >= ATTEMPTS.max(self.all.len());
            let until = if is_last { deadline } else { deadline.min(Instant::now() + ATTEMPT) };
            // Until the next attempt is due, or none is pending.
            while let Ok(Some(done)) = timeout_at(until, asked.join_next()).await {
                let Ok((place, (answer, outcome))) = done else { continue };
                if outcome.is_answer() {
                    self.first.store(place, Ordering::Relaxed);
                    return (answer, outcome);
                }
                failure = outcome;
            }
            if Instant::now() >= deadline || failure == Outcome::Timeout && asked.is_empty() {
                break;
            }
        }
        (DnsAnswer::Failed, failure)
    }
}

fn resolver(mut server: NameServerConfig) -> Result<TokioResolver, NetError> {
    // The answer of one server that a name does not exist is enough, as for any program.
    server.trust_negative_responses = true;
    let config = ResolverConfig::from_name_servers(vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    // This module caches answers itself.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = PATIENCE;
    options.attempts = 0;
    options.max_active_requests = questions_at_once();
    // The letters' case is randomized, which a forger must guess, too.
    options.case_randomization = true;
    builder.build()
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

fn questions_at_once() -> usize {
    let most = link::raise_descriptor_limit() / DESCRIPTORS_PER_QUESTION;
    usize::try_from(most).unwrap_or(QUESTIONS_MAX).clamp(64, QUESTIONS_MAX)
}

/// Answers queries until the channel is closed.
async fn serve(
    servers: Servers,
    health: Arc<Health>,
    rng: StdRng,
    mut asked: mpsc::Receiver<(DnsQuery, Reply)>,
) {
    let places = Arc::new(Semaphore::new(questions_at_once()));
    let clock = Clock::start();
    // All of this runs on one thread.
    let (servers, cache) = (Arc::new(servers), Arc::new(Mutex::new(Cache::new(rng))));
    while let Some((question, reply)) = asked.recv().await {
        if let Some(answer) = cache.lock().await.find(clock.now(), &question) {
            reply.answer(answer);
            continue;
        }
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (servers, cache) = (Arc::clone(&servers), Arc::clone(&cache));
        let health = Arc::clone(&health);
        tokio::spawn(async move {
            let (answer, outcome) = servers.ask(&question).await;
            health.note(clock.now(), outcome);
            cache.lock().await.keep(clock.now(), question, &answer);
            reply.answer(answer);
            drop(place);
        });
    }
}

async fn look_up(resolver: &TokioResolver, question: &DnsQuery) -> (DnsAnswer, Outcome) {
    let result = match question {
        DnsQuery::Addresses(name) => addresses(resolver, name).await,
        DnsQuery::Name(address) => name_of(resolver, *address).await,
    };
    match result {
        Ok(DnsAnswer::NoSuchName) => (DnsAnswer::NoSuchName, Outcome::NoData),
        Ok(answer) => (answer, Outcome::Success),
        Err(error) => failure(&error),
    }
}

async fn addresses(resolver: &TokioResolver, name: &str) -> Result<DnsAnswer, NetError> {
    // Clients send names as they are on the wire, in ASCII.
    let mut name = Name::from_ascii(name)?;
    // Absolute: not below the system's search domains.
    name.set_fqdn(true);
    let found = resolver.lookup_ip(name).await?;
    let addresses: Vec<IpAddr> = found.iter().take(ADDRESSES_MAX).collect();
    Ok(match addresses.is_empty() {
        true => DnsAnswer::NoSuchName,
        false => DnsAnswer::Addresses(addresses),
    })
}

async fn name_of(resolver: &TokioResolver, address: IpAddr) -> Result<DnsAnswer, NetError> {
    let found = resolver.lookup(Name::from(address), RecordType::PTR).await?;
    let mut names = found.answers().iter().filter_map(|record| match &record.data {
        RData::PTR(name) => Some(name.0.to_ascii()),
        _ => None,
    });
    let name = names.next().map(|name| DnsAnswer::Name(name.trim_end_matches('.').to_owned()));
    Ok(name.unwrap_or(DnsAnswer::NoSuchName))
}

/// Classifies an error.
fn failure(error: &NetError) -> (DnsAnswer, Outcome) {
    let code = match error {
        NetError::Dns(DnsError::NoRecordsFound(records)) => records.response_code,
        NetError::Dns(DnsError::ResponseCode(code)) => *code,
        // Not a name: it was not queried.
        NetError::Proto(_) => return (DnsAnswer::NoSuchName, Outcome::NotExist),
        NetError::Timeout => return (DnsAnswer::Failed, Outcome::Timeout),
        _ => return (DnsAnswer::Failed, Outcome::Unknown),
    };
    match code {
        ResponseCode::NXDomain => (DnsAnswer::NoSuchName, Outcome::NotExist),
        ResponseCode::NoError => (DnsAnswer::NoSuchName, Outcome::NoData),
        ResponseCode::ServFail => (DnsAnswer::Failed, Outcome::ServerFailed),
        ResponseCode::Refused => (DnsAnswer::Failed, Outcome::Refused),
        ResponseCode::NotImp => (DnsAnswer::Failed, Outcome::NotImplemented),
        ResponseCode::FormErr => (DnsAnswer::Failed, Outcome::Format),
        _ => (DnsAnswer::Failed, Outcome::Unknown),
    }
}
