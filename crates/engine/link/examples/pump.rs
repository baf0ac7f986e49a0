//! Prints the cost of the bare TLS pump, and the time to generate a relay identity.
use link::{Clock, IdentityIssuer, pump, tls::TlsConfigs};
use onion::Duration;

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() {
    let clock = Clock::start();
    let mut issuer = IdentityIssuer::new([1; 32], link::unix_time_s()).expect("keys");
    println!("issuer: {}", clock.now());
    for _ in 0..8 {
        issuer.identity().expect("keys");
    }
    println!("and 8 identities: {}", clock.now());
    let configs = TlsConfigs::new(&issuer).expect("usable");
    for record_len in [514, 4096, 15_934] {
        let result = pump::run(&configs, record_len, Duration::from_secs(1)).expect("loopback");
        println!(
            "records of {record_len}: {} per core; send {:.3}, receive {:.3} CPU s/GB",
            result.rate_per_core(),
            result.send_cpu_s_per_gb(),
            result.receive_cpu_s_per_gb()
        );
    }
}
