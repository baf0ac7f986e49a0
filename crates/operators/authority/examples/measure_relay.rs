//! Measures a relay from code, with a team of two measurers on this machine.
//!
//! ```sh
//! cargo run --release -p authority --example measure_relay -- 127.0.0.1:9001 9695DFC35FFEB861329B9F1AB04C46397020CE31
//! ```
#![expect(clippy::print_stdout, reason = "an example")]

use authority::one_relay::{Request, measure};
use coordinator::period::{Event, Period};
use coordinator::{Params, Progress, Verdict};
use measurer::{LocalTeam, TeamOptions};
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
    let rsa: RsaId = relay.parse()?;
    let target = Target { address, ids: RelayIds { rsa, ed25519: None } };
    // A measurement floods a relay. Those of others need the consent of their operators: `Request::consent`.
    let request = Request::new(target, Rate::from_mbit_per_s(100.0));
    let request = Request { params: Params { seconds: 10, ..Params::default() }, ..request };
    let team = LocalTeam::new(&TeamOptions::default())?;
    let mut show = |_: &Period, event| {
        if let Event::Progress(_, Progress::Second { round, index, measured, .. }) = event {
            println!("round {round}, second {index}: {measured}");
        }
    };
    let stop = AtomicBool::new(false);
    let record = measure(&team, request, &mut show, &stop).map_err(|error| error.to_string())?;
    let record = record.ok_or("stopped")?;
    match record.verdict() {
        Verdict::Failed(reason) => println!("no estimate: {reason}; to blame: {}", reason.blame()),
        Verdict::Conclusive | Verdict::LowerBound(_) => println!("{record}"),
    }
    Ok(())
}
