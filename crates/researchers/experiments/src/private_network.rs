//! Private networks whose relays have given limits.

use crate::error::{Error, Result};
use lab::{Network, NetworkSpec, RelaySpec};
use onion::Rate;
use terminal::Output;

/// Relays named `relay1`, `relay2`, …, to which the limits are assigned in turn.
///
/// # Errors
/// [`Error::Usage`] if there are no limits, or one is not a rate.
pub fn relays(count: Option<u32>, limits_mbit: &[f64]) -> Result<Vec<RelaySpec>> {
    if limits_mbit.is_empty() {
        return Err(Error::Usage("--limits needs at least one limit; 0 for none".to_owned()));
    }
    if let Some(bad) = limits_mbit.iter().find(|limit| !limit.is_finite() || **limit < 0.0) {
        return Err(Error::Usage(format!("--limits {bad}: not a rate in Mbit/s")));
    }
    let count = count.map_or(limits_mbit.len(), |count| count as usize);
    let limits = limits_mbit.iter().cycle().take(count);
    Ok((1..)
        .zip(limits)
        .map(|(number, mbit)| {
            let relay = RelaySpec::new(&format!("relay{number}"));
            if *mbit > 0.0 { relay.limited_to(Rate::from_mbit_per_s(*mbit)) } else { relay }
        })
        .collect())
}

/// Starts the network and prints its progress.
///
/// # Errors
/// [`Error::Lab`] if it does not start.
pub fn start(spec: &NetworkSpec, output: &Output) -> Result<Network> {
    Ok(Network::start(spec, &mut |progress| {
        output.doing(format!("network: {progress}"));
        if let lab::Progress::Ready { .. } | lab::Progress::Retrying { .. } = progress {
            output.step(format!("network: {progress}"));
        }
    })?)
}
