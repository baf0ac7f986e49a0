//! Names for exits, looked up on a thread of its own.
//!
//! The name servers are the system's (`/etc/resolv.conf`) or those of the configuration. The system's
//! hosts file and search domains are not looked at: what a machine knows of its own network is not for
//! strangers. Answers are kept for a time that is drawn by lot; questions that are under way are bounded,
//! and those beyond fail at once.

mod cache;
#[cfg(test)]
mod tests;

use cache::Cache;
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
use onion::node::{Answer, Question};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, mpsc};

/// Questions under way. Each circuit may have some tens of them (`onion::router`): a few circuits do not take all.
const QUESTIONS_MAX: usize = 4_096;
/// But of all file descriptors no more than one in so many: each question may take two sockets, and connections have three quarters.
const DESCRIPTORS_PER_QUESTION: u32 = 16;
/// Addresses of one name that are passed on.
const ADDRESSES_MAX: usize = 16;
/// For one attempt at one server.
const ATTEMPT: Duration = Duration::from_secs(5);

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
    questions: mpsc::Sender<(Question, Reply)>,
}

impl Names {
    /// Starts the thread. It asks these servers, or the system's if there are none; it ends when
    /// this is dropped.
    ///
    /// # Errors
    /// Where the system names no servers, or gives no thread.
    pub fn start(servers: &[SocketAddr]) -> Result<Self, NoNames> {
        let no_names = |problem: &dyn std::fmt::Display| NoNames(problem.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| no_names(&error))?;
        let resolver = {
            let _inside = runtime.enter();
            resolver(servers).map_err(|error| no_names(&error))?
        };
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(|error| no_names(&error))?;
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        thread::Builder::new()
            .name("dns".to_owned())
            .spawn(move || runtime.block_on(serve(resolver, rng, asked)))
            .map_err(|error| no_names(&error))?;
        Ok(Self { questions })
    }
}

impl Resolver for Names {
    fn ask(&mut self, question: Question, reply: Reply) {
        // Beyond the bound the reply is dropped, and thereby says that it failed.
        let _ = self.questions.try_send((question, reply));
    }
}

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let mut config = match servers {
        [] => ResolverConfig::from_name_servers(read_system_conf()?.0.into_parts().2),
        _ => ResolverConfig::from_name_servers(servers.iter().map(name_server).collect()),
    };
    for server in &mut config.name_servers {
        // One server's word that there is no such name is enough, as for any program.
        server.trust_negative_responses = true;
    }
    let provider = TokioRuntimeProvider::default();
    let mut builder = TokioResolver::builder_with_config(config, provider);
    let options = builder.options_mut();
    // We keep answers ourselves.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = ATTEMPT;
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
async fn serve(resolver: TokioResolver, rng: StdRng, mut asked: mpsc::Receiver<(Question, Reply)>) {
    let places = Arc::new(Semaphore::new(questions_at_once()));
    let clock = Clock::start();
    // All of this is one thread's.
    let cache = Arc::new(Mutex::new(Cache::new(rng)));
    while let Some((question, reply)) = asked.recv().await {
        if let Some(answer) = cache.lock().await.find(clock.now(), &question) {
            reply.answer(answer);
            continue;
        }
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (resolver, cache) = (resolver.clone(), Arc::clone(&cache));
        tokio::spawn(async move {
            let answer = look_up(&resolver, question.clone()).await;
            cache.lock().await.keep(clock.now(), question, &answer);
            reply.answer(answer);
            drop(place);
        });
    }
}

async fn look_up(resolver: &TokioResolver, question: Question) -> Answer {
    let result = match question {
        Question::Addresses(name) => addresses(resolver, &name).await,
        Question::Name(address) => name_of(resolver, address).await,
    };
    result.unwrap_or_else(|error| failure(&error))
}

async fn addresses(resolver: &TokioResolver, name: &str) -> Result<Answer, NetError> {
    let mut name = Name::from_utf8(name)?;
    // Not below any of our own domains.
    name.set_fqdn(true);
    let found = resolver.lookup_ip(name).await?;
    let addresses: Vec<IpAddr> = found.iter().take(ADDRESSES_MAX).collect();
    Ok(match addresses.is_empty() {
        true => Answer::NoSuchName,
        false => Answer::Addresses(addresses),
    })
}

async fn name_of(resolver: &TokioResolver, address: IpAddr) -> Result<Answer, NetError> {
    let found = resolver.lookup(Name::from(address), RecordType::PTR).await?;
    let mut names = found.answers().iter().filter_map(|record| match &record.data {
        RData::PTR(name) => Some(name.0.to_ascii()),
        _ => None,
    });
    let name = names.next().map(|name| Answer::Name(name.trim_end_matches('.').to_owned()));
    Ok(name.unwrap_or(Answer::NoSuchName))
}

/// What an error says of the name.
fn failure(error: &NetError) -> Answer {
    match error {
        // There is no such name, or it has no address.
        NetError::Dns(DnsError::NoRecordsFound(_)) => Answer::NoSuchName,
        NetError::Dns(DnsError::ResponseCode(ResponseCode::NXDomain)) => Answer::NoSuchName,
        // It is none.
        NetError::Proto(_) => Answer::NoSuchName,
        _ => Answer::Failed,
    }
}
