//! Relays and records for tests.

use super::*;
use coordinator::{Guess, GuessSource, Mode, Params};
use measurer::{Approach, Defences, Request};
use netdoc::Fingerprint;
use onion::Rate;
use onion::measure::pump::Target;
use terminal::measuring::Subject;

pub(in super::super) const NOW: u64 = 1_800_000_000;

pub(in super::super) fn relay(number: u8) -> Relay {
    let fingerprint = Fingerprint::from_bytes([number; 20]);
    let (ids, address) = (Subject::ids(fingerprint, None), ([127, 0, 0, 1], 9001).into());
    let guess = Rate::from_mbit_per_s(50.0);
    let request = Request {
        target: Target { address, ids },
        guess,
        defences: Defences::default(),
        approach: Approach::Transit,
    };
    let nickname = format!("relay{number}");
    let subject = Subject { nickname: nickname.clone(), fingerprint, limit: None, request };
    let guess = Guess { capacity: guess, source: GuessSource::Default, sockets_min: 0 };
    let own = ids.rsa;
    let nickname = nickname.parse().expect("a nickname");
    Relay { subject, nickname, guess, together: own, machine: own }
}

pub(in super::super) fn record(relay: &Relay, end: coordinator::End) -> Record {
    let target = relay.subject.target();
    Record {
        relay: coordinator::Subject {
            nickname: relay.nickname.to_string(),
            ids: target.ids,
            address: target.address,
            limit: None,
        },
        ended_unix_s: NOW + 40,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end,
    }
}

pub(in super::super) fn measured() -> coordinator::End {
    let capacity = Rate::from_mbit_per_s(30.0);
    coordinator::End::Measured { capacity, round: 1, inconclusive: None }
}
