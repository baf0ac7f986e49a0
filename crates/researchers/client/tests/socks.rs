//! SOCKS requests of all kinds to C tor and to our client, whose replies must be identical.
//!
//! Neither knows a network. The program closes its side after its last message, so requests that need a circuit and incomplete
//! requests end without a reply. No result depends on time.

mod conversations;

use client::{Choices, ClientProxy, Settings};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use crate::common::PATIENCE;
use conversations::{Conversation, conversations, shown};

/// A C tor without a network. Dropping it ends the process.
struct Tor {
    child: Child,
    socks: Vec<SocketAddr>,
}

impl Drop for Tor {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Tor {
    /// Starts C tor with an unreachable bridge, so that it knows no network. `Err` names what is missing.
    fn start(folder: &Path, addresses: &[IpAddr], lines: &str) -> Result<Self, String> {
        let binary = std::env::var_os("FLASHFLOW_TOR").unwrap_or_else(|| "tor".into());
        let mut torrc = format!(
            "DataDirectory {}\nLog notice stdout\nUseBridges 1\nBridge 127.0.0.1:1\n\
             __OwningControllerProcess {}\n{lines}",
            folder.display(),
            std::process::id()
        );
        for address in addresses {
            // Our client does not support onion services; C tor can disable them.
            let at = SocketAddr::new(*address, 1).to_string();
            let host = at.strip_suffix(":1").expect("a port");
            writeln!(torrc, "SocksPort {host}:auto NoOnionTraffic").expect("into memory");
        }
        let file = folder.with_extension("torrc");
        std::fs::write(&file, torrc).expect("written");
        let mut command = Command::new(&binary);
        command.arg("--defaults-torrc").arg("/nonexistent").arg("--ignore-missing-torrc");
        command.arg("-f").arg(&file).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("the program tor: {error}"))?;
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut tor = Self { child, socks: Vec::new() };
        let mut printed = Vec::new();
        while tor.socks.len() < addresses.len() {
            let line = lines.next().unwrap_or_else(|| panic!("tor has ended: {printed:#?}"));
            let line = line.expect("text");
            if let Some((_, at)) = line.split_once("Opened Socks listener connection (ready) on ") {
                tor.socks.push(at.trim().parse().expect("an address"));
            }
            printed.push(line);
        }
        // tor must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(tor)
    }
}

/// Holds a conversation, closes the program's side, and returns all replies.
fn converse(socks: SocketAddr, conversation: &Conversation) -> Vec<u8> {
    let mut stream = TcpStream::connect(socks).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut answer = Vec::new();
    for (bytes, awaited) in &conversation.parts {
        // The proxy may have closed the connection already.
        if stream.write_all(bytes).is_err() {
            break;
        }
        if *awaited > 0 {
            let mut part = vec![0; *awaited];
            if stream.read_exact(&mut part).is_err() {
                break;
            }
            answer.extend_from_slice(&part);
        }
    }
    let _closed_already = stream.shutdown(Shutdown::Write);
    let _ended_or_reset = stream.read_to_end(&mut answer);
    // The text of the HTTP page differs.
    if let Some(at) = answer.windows(12).position(|window| window == b"HTTP/1.0 501") {
        answer.truncate(at + 12);
    }
    answer
}

fn answers_of_both(rejects_internal: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let addresses: Vec<IpAddr> = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]
        .into_iter()
        .filter(|address| TcpListener::bind((*address, 0)).is_ok())
        .collect();
    let lines = if rejects_internal {
        ""
    } else {
        // C tor permits lookups of private addresses only in test networks, which have their own authorities.
        "TestingTorNetwork 1\nClientRejectInternalAddresses 0\nClientDNSRejectInternalAddresses 0\n\
         DirAuthority test orport=1 v3ident=0000000000000000000000000000000000000001 127.0.0.1:1 \
         0000000000000000000000000000000000000002\n"
    };
    let tor = match Tor::start(&folder.path().join("tor"), &addresses, lines) {
        Ok(tor) => tor,
        Err(lacking) => skip::this_test!("{lacking}"),
    };
    let all = conversations();
    assert!(all.len() > 4000, "{}", all.len());
    let mut differences = Vec::new();
    for (address, theirs) in addresses.iter().zip(&tor.socks) {
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let name = if address.is_ipv4() { "ours4" } else { "ours6" };
        let settings = Settings {
            socks: SocketAddr::new(*address, 0),
            choices: Choices { rejects_internal, ..Choices::default() },
            ..Settings::new(vec![nobody], folder.path().join(name))
        };
        let (sender, _events) = channel();
        let ours = ClientProxy::start(settings, sender).expect("started");
        for conversation in &all {
            let (right, found) =
                (converse(*theirs, conversation), converse(ours.socks(), conversation));
            if right != found {
                let name = &conversation.name;
                differences.push(format!(
                    "{address}: {name}: C tor {} ours {}",
                    shown(&right),
                    shown(&found)
                ));
            }
        }
    }
    assert_eq!(differences, Vec::<String>::new());
}

#[test]
fn each_request_gets_c_tors_reply() {
    answers_of_both(false);
}

#[test]
fn each_request_gets_c_tors_reply_if_private_addresses_are_refused() {
    answers_of_both(true);
}
