//! A C tor client with our relay as its guard receives padding, unless it requests none.

use crate::common::{PATIENCE, config};
use lab::{Client, Network, NetworkSpec, RelaySpec};
use link::Clock;
use relay::{Relay, RelayConfig};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A client whose only guard is this relay, and its log file.
struct Watched {
    client: Client,
    log: PathBuf,
}

impl Watched {
    fn start(network: &Network, guard: &Relay, nickname: &str, extra: &str) -> Self {
        let log = network.dir().join(format!("{nickname}-info"));
        let lines = [
            format!("EntryNodes ${}", guard.rsa()),
            "StrictNodes 1".to_owned(),
            format!("Log info file {}", log.display()),
            extra.to_owned(),
        ];
        let relays = [guard.rsa().0];
        let client = Client::start(network, nickname, &lines, &relays, PATIENCE);
        Self { client: client.expect("a client"), log }
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// The number of PADDING cells that it has sent.
    fn sent(&self) -> usize {
        self.logged().matches("Sending netflow keepalive on").count()
    }

    /// The number of PADDING cells that it has received, from its log.
    fn received(&mut self) -> u64 {
        let count_of = |text: &str| text.matches("Cells processed: ").count();
        let before = count_of(&self.logged());
        self.client.control().request("SIGNAL DUMP").expect("accepted");
        self.until("its counts", |watched| count_of(&watched.logged()) > before);
        let logged = self.logged();
        let (_, count) = logged.rsplit_once("Cells processed: ").expect("just seen");
        count.split(' ').next().and_then(|count| count.parse().ok()).expect("a count")
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let clock = Clock::start();
        let deadline = clock.now() + PATIENCE;
        while !is_so(self) {
            assert!(clock.now() < deadline, "no {what}");
            let _news = self.client.control().events().recv_timeout(Duration::from_millis(200));
        }
    }

    /// First hops of its multi-hop circuits.
    fn guards(&mut self) -> Vec<String> {
        let status = self.client.control().get_info("circuit-status").expect("an answer");
        let paths = status.lines().filter_map(|line| line.split(" BUILT ").nth(1));
        let long = paths.filter_map(|path| path.split(' ').next()?.split_once(','));
        long.map(|(first, _)| first[1..41].to_owned()).collect()
    }
}

#[test]
fn a_c_tor_client_receives_padding_unless_it_reduces_connection_padding() {
    let spec = NetworkSpec {
        extra_torrc_authorities: vec![
            // Shorter intervals make the test faster.
            "ConsensusParams nf_ito_low=500 nf_ito_high=3000 nf_ito_low_reduced=500 \
             nf_ito_high_reduced=1000"
                .to_owned(),
        ],
        ..NetworkSpec::new(vec![RelaySpec {
            extra_torrc: vec!["ExitRelay 1".to_owned(), "ExitPolicy accept *:*".to_owned()],
            ..RelaySpec::new("stock")
        }])
    };
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let settings = RelayConfig {
        authorities: Some(network.directory_addrs()),
        ..config("ours", &folder.path().join("keys"))
    };
    let settings = settings.check().expect("sound");
    let ours = Relay::start(&settings, channel().0).expect("started");
    network.wait_until_known(&[ours.rsa().0], PATIENCE).expect("listed as a guard");

    let mut usual = Watched::start(&network, &ours, "usual", "ConnectionPadding auto");
    let mut reduced = Watched::start(&network, &ours, "reduced", "ReducedConnectionPadding 1");
    usual.until("padding by both ends", |watched| watched.sent() > 0 && watched.received() > 0);
    let guards = usual.guards();
    let is_ours = |guard: &String| *guard == ours.rsa().to_string();
    assert!(!guards.is_empty() && guards.iter().all(is_ours), "{guards:?}");

    reduced.until("padding by its own", |watched| watched.sent() >= 10);
    let guards = reduced.guards();
    assert!(!guards.is_empty() && guards.iter().all(is_ours), "{guards:?}");
    assert_eq!(reduced.received(), 0);
    assert!(usual.received() > 0);
}
