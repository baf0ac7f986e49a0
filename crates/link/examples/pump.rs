//! Prints what the bare TLS pump costs, and how long a relay identity takes to make.
use link::{Clock, Forge, pump, tls::TlsConfigs};
use onion::Duration;

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() {
    let clock = Clock::start();
    let mut forge = Forge::new([1; 32], link::unix_time_s()).expect("keys");
    println!("forge: {}", clock.now());
    for _ in 0..8 {
        forge.identity().expect("keys");
    }
    println!("and 8 identities: {}", clock.now());
    let configs = TlsConfigs::new(&forge).expect("usable");
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
