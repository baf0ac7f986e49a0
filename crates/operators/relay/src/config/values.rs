//! Checks and defaults of single settings.

use super::{ConfigError, SchedulerName, invalid};
use dirmgr::public;
use netdoc::RsaId;
use onion::flow::hop::HopWindows;
use onion::router::is_private;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

/// The longest scheduler interval, as in C tor.
const INTERVAL_MAX_MS: u32 = 100;
/// Limit on I/O threads: far more than the engine's thread can feed.
const THREADS_MAX: usize = 64;
/// The minimum of [`RelayConfig::max_mem_in_queues_mib`].
const HELD_MIN_MIB: u32 = 64;
/// The share of the limit reserved for memory outside the account: allocator fragmentation and
/// buffers just freed. In `experiment dos` the process grew by a fortieth more than the account.
const UNSEEN_PART: u64 = 16;
/// Default time limit of a graceful shutdown: C tor's 30 seconds.
const SHUTDOWN_WAIT_S: u32 = 30;
/// The maximum: a day.
const SHUTDOWN_WAIT_MAX_S: u32 = 86_400;

pub(super) fn scheduler(
    name: Option<SchedulerName>,
    interval_ms: Option<u32>,
) -> Result<SchedulerConfig, ConfigError> {
    let interval = match interval_ms {
        None => SchedulerConfig::INTERVAL,
        Some(ms @ 1..=INTERVAL_MAX_MS) => Duration::from_millis(u64::from(ms)),
        Some(ms) => {
            let reason = format!("{ms} is not from 1 to {INTERVAL_MAX_MS}");
            return Err(invalid("scheduler_interval_ms", reason));
        }
    };
    let config = match name.unwrap_or_default() {
        SchedulerName::Kist => SchedulerConfig::kist(interval),
        SchedulerName::KistLite => SchedulerConfig::kist_lite(interval),
        SchedulerName::Vanilla => SchedulerConfig::vanilla(),
    };
    Ok(SchedulerConfig { is_interval_fixed: interval_ms.is_some(), ..config })
}

pub(super) fn hop_windows(name: Option<&str>) -> Result<Option<HopWindows>, ConfigError> {
    match name {
        None | Some("off") => Ok(None),
        Some(name) => HopWindows::named(name).map(Some).ok_or_else(|| {
            let names = HopWindows::NAMED.map(|(name, _)| name).join(", ");
            invalid("hop_windows", format_args!("{name:?} is not one of off, {names}"))
        }),
    }
}

/// The authorities of the public network, for a relay that may join it.
pub(super) fn public_authorities(
    address: Ipv4Addr,
    has_own: bool,
    identities: Option<Vec<RsaId>>,
) -> Result<(Vec<SocketAddr>, Vec<RsaId>), ConfigError> {
    if has_own || identities.is_some() {
        let reason = "the public network has its own authorities: leave out `authorities` and `authority_identities`";
        return Err(invalid("public_network", reason));
    }
    if is_private(address.into()) {
        let reason =
            format!("nobody there can reach a relay at {address}: set `address` to the public one");
        return Err(invalid("public_network", reason));
    }
    Ok(public::authorities())
}

pub(super) fn link_observations(
    every_s: Option<u32>,
    authorities: &[SocketAddr],
    address: Ipv4Addr,
) -> Result<Option<Duration>, ConfigError> {
    let Some(every_s) = every_s else { return Ok(None) };
    let key = "link_observations_every_s";
    let (public, _) = public::authorities();
    if authorities.iter().any(|authority| public.contains(authority)) {
        let reason = "observations of links in the public network help to trace its users: remove this setting";
        return Err(invalid(key, reason));
    }
    let least_s = if is_private(address.into()) { 10 } else { 3600 };
    if every_s < least_s {
        return Err(invalid(key, format_args!("{every_s} is less than {least_s}")));
    }
    Ok(Some(Duration::from_secs(every_s.into())))
}

/// Refuses a metrics address that others may reach, unless the operator permits it.
pub(super) fn check_metrics(at: Option<SocketAddr>, is_allowed: bool) -> Result<(), ConfigError> {
    let Some(at) = at.filter(|_| !is_allowed) else { return Ok(()) };
    let is_own = match at.ip().to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    };
    if is_own {
        return Ok(());
    }
    let what = match at.ip().to_canonical().is_unspecified() {
        true => "stands for all addresses of this machine, public ones too",
        false => "is neither a loopback address nor one of a private network",
    };
    let reason = format!(
        "{} {what}, and the figures of a relay help to follow its clients. Use 127.0.0.1 or an address of a private network; if a \
         firewall keeps others out, set `public_metrics = true` (--public-metrics)",
        at.ip()
    );
    Err(invalid("metrics", reason))
}

pub(super) fn threads(count: Option<usize>) -> Result<NonZeroUsize, ConfigError> {
    let count = NonZeroUsize::new(count.unwrap_or(1)).filter(|count| count.get() <= THREADS_MAX);
    count.ok_or_else(|| invalid("threads", format_args!("a number from 1 to {THREADS_MAX}")))
}

pub(super) fn held_bytes_max(mib: Option<u32>) -> Result<usize, ConfigError> {
    let bytes = match mib {
        None => default_held_bytes_max(rustix::system::sysinfo().totalram),
        Some(mib @ HELD_MIN_MIB..) => u64::from(mib) << 20,
        Some(mib) => {
            let reason = format!("{mib} is less than {HELD_MIN_MIB}: a few clients fill that");
            return Err(invalid("max_mem_in_queues_mib", reason));
        }
    };
    Ok(usize::try_from(bytes - bytes / UNSEEN_PART).unwrap_or(usize::MAX))
}

/// The default for a host with this amount of memory: C tor's rule.
pub(super) fn default_held_bytes_max(total_bytes: u64) -> u64 {
    let share = if total_bytes >= 8 << 30 { total_bytes / 5 * 2 } else { total_bytes / 4 * 3 };
    share.clamp(256 << 20, 8 << 30)
}

pub(super) fn shutdown_wait(seconds: Option<u32>) -> Result<Duration, ConfigError> {
    match seconds.unwrap_or(SHUTDOWN_WAIT_S) {
        seconds @ 0..=SHUTDOWN_WAIT_MAX_S => Ok(Duration::from_secs(seconds.into())),
        seconds => {
            let reason = format!("{seconds} is not from 0 to {SHUTDOWN_WAIT_MAX_S}");
            Err(invalid("shutdown_wait_s", reason))
        }
    }
}

pub(super) fn amount(key: &str, mbit: f64) -> Result<Rate, ConfigError> {
    if mbit.is_finite() && mbit > 0.0 {
        return Ok(Rate::from_mbit_per_s(mbit));
    }
    Err(invalid(key, format_args!("{mbit} is not an amount")))
}
