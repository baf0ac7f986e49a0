//! Names for exits, looked up on a thread of its own.
//!
//! The name servers are the system's (`/etc/resolv.conf`) or those of the configuration. The system's
//! hosts file and search domains are not looked at: what a machine knows of its own network is not for
//! strangers. Answers are kept for a time that is drawn by lot; questions that are under way are bounded,
//! and those beyond fail at once.
//!
//! A question goes to the server that answered last. After a second, or at once if that server refuses or fails, it goes to
//! the next one as well, and after two seconds it has failed. These are C tor's times (`exit_dns_timeout`,
//! `exit_dns_num_attempts`).

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

/// Questions under way. Each circuit may have some tens of them (`onion::router`): a few circuits do not take all.
const QUESTIONS_MAX: usize = 4_096;
/// But of all file descriptors no more than one in so many: each question may take two sockets, and connections have three quarters.
const DESCRIPTORS_PER_QUESTION: u32 = 16;
/// Addresses of one name that are passed on.
const ADDRESSES_MAX: usize = 16;
/// How long a server has before the next one is asked as well: C tor's `exit_dns_timeout`.
const ATTEMPT: Duration = Duration::from_secs(1);
/// How often a question is asked, at least: C tor's `exit_dns_num_attempts`.
const ATTEMPTS: usize = 2;
/// How long a server is waited for. Within it the question is sent to it again, and an answer to either counts.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long all servers together are waited for. It is a little longer, so that a server that has told a name's IPv4 addresses, and not
/// whether there are others, has its say.
const PATIENCE_ALL: Duration = Duration::from_millis(2_200);

/// No names can be looked up.
#[derive(Debug, thiserror::Error)]
#[error(
    "machine: no names for exits: {0}. Does /etc/resolv.conf name servers? Else set `name_servers` in \
     the section [exit]"
)]
pub struct NoNames(String);

/// Looks up names for a driver.
#[derive(Debug)]
pub struct Names {
    questions: mpsc::Sender<(DnsQuery, Reply)>,
}

impl Names {
    /// Starts the thread. It asks these servers, or the system's if there are none; it ends when
    /// this is dropped.
    ///
    /// # Errors
    /// Where the system names no servers, or gives no thread.
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
        // Beyond the bound the reply is dropped, and thereby says that it failed.
        let _ = self.questions.try_send((question, reply));
    }
}

/// The name servers, each with a resolver of its own.
struct Servers {
    all: Vec<TokioResolver>,
    /// The one that answered last.
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

    /// The answer of the first server that has one, and how the question ended.
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
            // Until it is time for the next attempt, or nothing is left to wait for.
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
    // One server's word that there is no such name is enough, as for any program.
    server.trust_negative_responses = true;
    let config = ResolverConfig::from_name_servers(vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    // We keep answers ourselves.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = PATIENCE;
    options.attempts = 0;
    options.max_active_requests = questions_at_once();
    // A forger has to guess the case of each letter, too.
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

/// Answers until nobody can ask any more.
async fn serve(
    servers: Servers,
    health: Arc<Health>,
    rng: StdRng,
    mut asked: mpsc::Receiver<(DnsQuery, Reply)>,
) {
    let places = Arc::new(Semaphore::new(questions_at_once()));
    let clock = Clock::start();
    // All of this is one thread's.
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
    let mut name = Name::from_utf8(name)?;
    // Not below any of our own domains.
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

/// What an error says of the name.
fn failure(error: &NetError) -> (DnsAnswer, Outcome) {
    let code = match error {
        NetError::Dns(DnsError::NoRecordsFound(records)) => records.response_code,
        NetError::Dns(DnsError::ResponseCode(code)) => *code,
        // It is none: it was not even asked for.
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
