//! Tests of the package's set-up: a user for each service. The package's own scripts run in a mount namespace with another /etc and
//! /var/lib, and the services' programs as the users and groups of their units.

use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testbin::{Running, Scratch, text};

const STORE: &str = "/var/lib/flashflow/bandwidth/store.db";

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging").join(name)
}

/// A setting of a service's unit.
fn unit(service: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(packaging(&format!("flashflow-{service}.service")));
    let text = text.expect("a unit");
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(ToOwned::to_owned);
    text.lines().find_map(value)
}

/// A host with the package's users: as long as this lives, in a mount namespace.
struct Host {
    keeper: Child,
}

impl Host {
    /// Runs `before` as root, to set up a host with an earlier version, and then the installation scripts of the package.
    fn install(scratch: &Scratch, before: &str) -> Self {
        let etc = scratch.path("etc");
        let script = format!(
            "set -e\ncp -a /etc {etc}\nmount --bind {etc} /etc\nmount -t tmpfs -o mode=755 tmpfs /var/lib\n\
             mount -t tmpfs -o mode=755 tmpfs /run\nmkdir -p /etc/sysusers.d /etc/tmpfiles.d /etc/flashflow\n\
             cp {users} /etc/sysusers.d/flashflow.conf\ncp {folders} /etc/tmpfiles.d/flashflow.conf\n\
             {before}\nsh {postinst} configure >&2\necho installed\ncat\n",
            etc = etc.display(),
            users = packaging("flashflow.sysusers").display(),
            folders = packaging("flashflow.tmpfiles").display(),
            postinst = packaging("debian/postinst").display(),
        );
        let mut keeper = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = [0; 10];
        let out = keeper.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut line).expect("installed; the reason is above");
        assert_eq!(&line, b"installed\n");
        Self { keeper }
    }

    /// A command on this host, by the user and with the groups that systemd gives a service.
    fn by(&self, service: &str, command: &str) -> Command {
        let user = unit(service, "User").expect("a user");
        let group = unit(service, "Group").expect("a group");
        let more = unit(service, "SupplementaryGroups").map_or_else(String::new, |more| {
            let ids = more.split(' ').map(|name| format!(",$(getent group {name} | cut -d: -f3)"));
            ids.collect()
        });
        self.by_root(&format!(
            "exec setpriv --reuid={user} --regid={group} --groups=\"$(id -G {user} | tr ' ' ,){more}\" --no-new-privs -- {command}"
        ))
    }

    fn by_root(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.keeper.id());
        command.args([&namespace, "--", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Whether a service can run this command on a file, such as `cat`.
    fn may(&self, service: &str, what: &str, path: &str) -> bool {
        let output = self.by(service, &format!("{what} {path}")).output().expect("nsenter");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || message.contains("Permission denied"),
            "{path}: {message}"
        );
        output.status.success()
    }

    fn mode(&self, path: &str) -> String {
        let output = self.by_root(&format!("stat -c '%U:%G %a' {path}")).output().expect("nsenter");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // `cat` ends, and with it the last process in the namespace.
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}

/// The reason why this machine cannot run the test.
fn lacking() -> Option<String> {
    for program in ["unshare", "nsenter", "setpriv", "systemd-sysusers", "systemd-tmpfiles"] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(format!("the program `{program}`"));
        }
    }
    let namespace = Command::new("unshare").args(["--mount", "true"]).output().expect("there");
    if !namespace.status.success() {
        return Some("mount namespaces: that needs root".to_owned());
    }
    // Other users start the program, too.
    let program = env!("CARGO_BIN_EXE_flashflow");
    let other = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", "test", "-x", program];
    let is_reachable = Command::new("setpriv").args(other).status().expect("there").success();
    (!is_reachable).then(|| format!("{program} for other users: a folder above it is closed"))
}

/// The files of a version with one user for all services, and the configurations.
const ONE_USER: &str = "groupadd --system flashflow\nuseradd --system -g flashflow -d /var/lib/flashflow flashflow\n\
    mkdir -p /var/lib/flashflow/bandwidth /var/lib/flashflow/relay/keys\n\
    for name in coordinator measurer; do $FLASHFLOW keys --out /etc/flashflow/$name.key >&2; done\n\
    echo 'listen = \"127.0.0.1:7100\"' >/etc/flashflow/measurer.toml\n\
    echo 'key = \"/etc/flashflow/measurer.key\"' >>/etc/flashflow/measurer.toml\n\
    umask 077\n\
    echo secret >/var/lib/flashflow/relay/keys/secret\n\
    chmod 755 /var/lib/flashflow /var/lib/flashflow/bandwidth\n\
    printf '%064d\\n' 0 >/var/lib/flashflow/bandwidth/schedule.seed\n\
    chown -R flashflow:flashflow /var/lib/flashflow /etc/flashflow/*.key\n";

/// A coordinator without a reachable measurer: it opens its store, reads its seed, and retries.
const COORDINATOR: &str = "key = \"coordinator.key\"\nout = \"/var/lib/flashflow/bandwidth\"\nauthority = \"127.0.0.1:1\"\n\
    [[measurers]]\naddress = \"127.0.0.1:1\"\nkey = \"19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1\"\n\
    capacity_mbit_per_s = 10\n";

/// Starts a dashboard and requests a page.
fn first_page(host: &Host) -> String {
    let program = env!("CARGO_BIN_EXE_flashflow");
    let command = format!("{program} dashboard --json --listen 127.0.0.1:0 --store {STORE}");
    let mut dashboard = Running::new(host.by("dashboard", &command));
    let page = page(&mut dashboard);
    dashboard.signal(Signal::TERM);
    dashboard.end().assert_code(0);
    page
}

fn page(dashboard: &mut Running) -> String {
    let listening = dashboard.wait_for_value();
    let mut stream = TcpStream::connect(text(&listening, "address")).expect("connected");
    let request = "GET /api/relays HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn no_service_writes_core_files() {
    for service in ["coordinator", "dashboard", "measurer", "relay"] {
        assert_eq!(unit(service, "LimitCORE").as_deref(), Some("0"), "{service}");
    }
}

#[test]
fn an_upgrade_gives_each_service_a_user_and_the_dashboard_only_the_store() {
    if let Some(lacking) = lacking() {
        skip::this_test!("lacking: {lacking}");
    }
    let program = env!("CARGO_BIN_EXE_flashflow");
    let scratch = Scratch::new();
    let before = format!(
        "FLASHFLOW={program}\n{ONE_USER}cat >/etc/flashflow/coordinator.toml <<'TOML'\n{COORDINATOR}TOML\n\
         chmod 644 /etc/flashflow/*.toml\n\
         install -m 600 -o flashflow -g flashflow /dev/null {STORE}\n\
         install -m 600 /dev/null /etc/flashflow/of-root\nln -s /etc/flashflow/of-root {STORE}-wal\n"
    );
    let host = Host::install(&scratch, &before);
    assert_eq!(host.mode(STORE), "flashflow-coordinator:flashflow-store 640");
    assert_eq!(host.mode("/etc/flashflow/of-root"), "root:root 600", "a link leads nowhere");
    assert!(host.by_root(&format!("rm {STORE}-wal")).status().expect("nsenter").success());
    let coordinate = || {
        let command =
            format!("{program} coordinator --json --config /etc/flashflow/coordinator.toml");
        let mut coordinator = Running::new(host.by("coordinator", &command));
        coordinator.wait_for_out("its first try", |line| line.contains("\"error\""));
        coordinator
    };
    let coordinator = coordinate();
    assert_eq!(host.mode(STORE), "flashflow-coordinator:flashflow-store 640");
    let seed = "/var/lib/flashflow/bandwidth/schedule.seed";
    assert_eq!(host.mode(seed), "flashflow-coordinator:flashflow-store 600");
    let is_there = |page: &str| page.starts_with("HTTP/1.1 200");
    let live = first_page(&host);
    assert!(is_there(&live), "while it is written: {live}");

    let lock = format!("{STORE}.lock");
    let (own, others) = ("/etc/flashflow/coordinator.key", "/etc/flashflow/measurer.key");
    let relays = "/var/lib/flashflow/relay/keys/secret";
    for (service, may, may_not) in [
        ("coordinator", &[STORE, seed, own, &lock][..], &[others, relays][..]),
        ("dashboard", &[STORE], &[seed, own, others, relays, &lock]),
        ("measurer", &[others], &[STORE, seed, own, relays, &lock]),
        ("relay", &[relays], &[STORE, seed, own, others, &lock]),
    ] {
        for path in may {
            assert!(host.may(service, "cat", path), "{service} reads {path}");
        }
        for path in may_not {
            assert!(!host.may(service, "cat", path), "{service} must not read {path}");
        }
    }
    for (what, path) in [
        ("truncate -s +0", STORE),
        ("touch", "/var/lib/flashflow/bandwidth/new"),
        ("rm -f", seed),
        ("mv /var/lib/flashflow/bandwidth", "/var/lib/flashflow/other"),
    ] {
        assert!(!host.may("dashboard", what, path), "the dashboard must not: {what} {path}");
    }

    // After a clean exit there is no write-ahead log.
    coordinator.signal(Signal::TERM);
    coordinator.end().assert_code(130);
    let closed = first_page(&host);
    assert!(is_there(&closed), "after a stop: {closed}");
    // After a kill there is one.
    let coordinator = coordinate();
    coordinator.signal(Signal::KILL);
    let _ended = coordinator.end();
    let killed = first_page(&host);
    assert!(is_there(&killed), "after a kill: {killed}");
    // A second upgrade changes no owner.
    let again = packaging("debian/postinst");
    let again = host.by_root(&format!("sh {} configure", again.display())).output();
    let again = again.expect("nsenter");
    assert!(again.status.success(), "{again:?}");
    assert_eq!(host.mode(seed), "flashflow-coordinator:flashflow-store 600");
}
