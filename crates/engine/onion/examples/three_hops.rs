//! A message through three relays: three ntor handshakes, three layers of encryption, and each relay that removes its own.
//!
//! ```sh
//! cargo run -p flashflow-onion --example three_hops
//! ```
#![expect(clippy::print_stdout, reason = "an example")]

use flashflow_onion::cell::Command;
use flashflow_onion::cell::relay::{RelayCommand, RelayMessage};
use flashflow_onion::crypto::{HopKeys, LayerKeys, Layers, RelayHop, ntor};
use std::error::Error;
use x25519_dalek::{PublicKey, StaticSecret};

fn main() -> Result<(), Box<dyn Error>> {
    let mut client = Layers::default();
    let mut relays = Vec::new();
    for number in 1..=3 {
        let (of_client, of_relay) = handshake(number)?;
        client.push(&LayerKeys::from(of_client));
        relays.push(RelayHop::new(&of_relay));
    }

    // A message to the exit, the third hop.
    let message =
        RelayMessage { command: RelayCommand::BEGIN, stream_id: 1, data: b"example.com:443\0" };
    let mut body = message.to_body()?;
    client.seal(2, Command::RELAY, &mut body);

    for (relay, name) in relays.iter_mut().zip(["guard", "middle", "exit"]) {
        let is_for_this_relay = relay.decrypt(&mut body);
        println!("{name}: the cell is for this relay: {is_for_this_relay}");
    }
    let received = RelayMessage::parse(&body)?;
    println!("the exit reads: {}", String::from_utf8_lossy(received.data));
    assert_eq!(received.data, message.data);
    Ok(())
}

/// The keys of both ends after a handshake. A real program takes secrets from the system's random generator.
fn handshake(number: u8) -> Result<(HopKeys, HopKeys), Box<dyn Error>> {
    let rsa_id = [number; 20];
    let onion_secret = StaticSecret::from([10 + number; 32]);
    let keys = ntor::RelayKeys { rsa_id, onion_key: *PublicKey::from(&onion_secret).as_bytes() };
    let client = ntor::Client::new(keys, [20 + number; 32]);
    let (answer, of_relay) =
        ntor::respond(&rsa_id, &onion_secret, [30 + number; 32], &client.message())?;
    Ok((client.finish(&answer)?, of_relay))
}
