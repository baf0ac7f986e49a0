//! Measures a relay from code, with a team of two measurers on this machine.
//!
//! ```sh
//! cargo run --release -p measurer --example measure_relay -- 127.0.0.1:9001 9695DFC35FFEB861329B9F1AB04C46397020CE31
//! ```
#![expect(clippy::print_stdout, reason = "an example")]

use coordinator::{Consent, Defences, Outcome, Params};
use measurer::{Approach, Progress, Request, Team, TeamOptions};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use onion::measure::load::Target;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(relay)) = (arguments.next(), arguments.next()) else {
        return Err("which relay? ADDRESS:PORT FINGERPRINT".into());
    };
    let address: SocketAddr = address.parse()?;
    let rsa = RsaId(*relay.parse::<netdoc::Fingerprint>()?.as_bytes());
    // A measurement floods a relay. Those of others need the consent of their operators: `Consent::with_list`.
    Consent::local_only().check(rsa, address.ip())?;

    let params = Params { seconds: 10, ..Params::default() };
    let mut team = Team::new(TeamOptions { params, ..TeamOptions::default() })?;
    let request = Request {
        target: Target { address, ids: RelayIds { rsa, ed25519: None } },
        guess: Rate::from_mbit_per_s(100.0),
        defences: Defences::default(),
        approach: Approach::Transit,
    };
    let mut show = |progress| {
        if let Progress::Second { round, index, measured, .. } = progress {
            println!("round {round}, second {index}: {measured}");
        }
    };
    let cancel = AtomicBool::new(false);
    match team.measure(&request, &mut show, &cancel)?.outcome {
        Outcome::Measured(estimate) => println!("{estimate:?}"),
        Outcome::Failed { reason, .. } => {
            println!("no estimate: {reason}; to blame: {}", reason.blame());
        }
    }
    Ok(())
}
