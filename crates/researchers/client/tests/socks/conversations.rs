//! What programs say to a SOCKS port: all that is right, and much that is not.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What a program sends, and how many bytes of an answer it awaits before it sends more. C tor writes the answer to a message over the
/// one before if both messages arrived at once.
pub(crate) struct Conversation {
    pub(crate) name: String,
    pub(crate) parts: Vec<(Vec<u8>, usize)>,
}

const PLAIN: &[u8] = &[5, 1, 0];
const WITH_USER: &[u8] = &[5, 1, 2];
const COMMANDS: [(&str, u8); 3] = [("connect", 1), ("resolve", 0xf0), ("resolve_ptr", 0xf1)];

fn request(command: u8, address_type: u8, address: &[u8], port: u16) -> Vec<u8> {
    [&[5, command, 0, address_type][..], address, &port.to_be_bytes()].concat()
}

fn named(command: u8, name: &[u8], port: u16) -> Vec<u8> {
    let len = u8::try_from(name.len()).expect("short");
    request(command, 3, &[&[len], name].concat(), port)
}

fn to_ipv4(command: u8, address: [u8; 4], port: u16) -> Vec<u8> {
    request(command, 1, &address, port)
}

fn credentials(user: &[u8], password: &[u8]) -> Vec<u8> {
    let len = |text: &[u8]| u8::try_from(text.len()).expect("short");
    [&[1, len(user)], user, &[len(password)], password].concat()
}

fn socks4(command: u8, port: u16, address: [u8; 4], user: &[u8], name: Option<&[u8]>) -> Vec<u8> {
    let name = name.map(|name| [name, &[0]].concat()).unwrap_or_default();
    [&[4, command][..], &port.to_be_bytes(), &address, user, &[0], &name].concat()
}

const SOMEWHERE: [u8; 4] = [192, 0, 2, 1];
/// SOCKS 4a: a name follows.
const NAMED: [u8; 4] = [0, 0, 0, 1];

/// Hosts that are names, addresses, neither, and what C tor treats in a way of its own.
fn hosts() -> Vec<Vec<u8>> {
    let texts = [
        "a.invalid",
        "A.Invalid",
        "localhost",
        "LOCALHOST",
        "local",
        "a.local",
        "a_b.invalid",
        "_a.invalid",
        "a._b",
        "a.b_",
        "-a.b",
        "a-.b",
        "--",
        "_",
        "a..b",
        ".a",
        "a.",
        "a..",
        ".",
        "..",
        "",
        "a b",
        " a",
        "a\tb",
        "a\0b",
        "a\0_",
        "\0",
        "\0a",
        "127.0.0.1\0.example",
        "[a]",
        "[a.b]",
        "[]",
        "[",
        "]",
        "[::1]",
        "[2001:db8::1]",
        "[1.2.3.4]",
        "[[::1]]",
        "[::1",
        "::1]",
        "::1",
        "::",
        "2001:db8::1",
        "2001:DB8::1",
        "::ffff:1.2.3.4",
        "::ffff:127.0.0.1",
        "::1.2.3.4",
        "1::2::3",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd12::1",
        "fe80::1%eth0",
        "64:ff9b::1",
        "1.2.3.4",
        "1.2.3.4.",
        "1.2.3",
        "1.2.3.4.5",
        "1",
        "0x7f.1",
        "010.0.0.1",
        "1.2.3.256",
        "01.2.3.4",
        "1.2.3.4:80",
        "a:80",
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "100.128.0.1",
        "127.0.0.1",
        "127.191.255.255",
        "127.192.0.0",
        "127.255.0.1",
        "169.254.1.1",
        "172.16.0.1",
        "172.32.0.1",
        "192.168.0.1",
        "192.0.2.1",
        "224.0.0.1",
        "255.255.255.255",
        "a@b",
        "a/b",
        "a*b",
        "*",
        "a:b",
        "a,b",
        "a$b",
        "a%b",
        "caf\u{e9}.invalid",
        "xn--caf-dma.invalid",
        "x.exit",
        "x.EXIT",
        "www.example.com.relay1.exit",
        "exit",
        ".exit",
        "x.exitt",
        "x.exit.y",
        "exit.y",
        "x.onion",
        "x.ONION",
        "onion",
        ".onion",
        "x.onion.y",
        "onion.y",
        "x.onionn",
        "expyuzz4wqqyqhjn.onion",
        "duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczad.onion",
        "www.DUCKDUCKGOGG42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczad.onion",
        "a.b.duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczad.onion",
        "duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczae.onion",
        "duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzcza.onion",
        "duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczad1.onion",
        "duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzcza1.onion",
        "x.noconnect",
        "x.virtual",
        "virtual",
        "1.0.0.127.in-addr.arpa",
        "x.torproject.org",
    ];
    let mut hosts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    hosts.push(b"caf\xe9.invalid".to_vec());
    hosts.push(vec![0xff; 3]);
    hosts.push(vec![b'a'; 255]);
    hosts.push([&[b'a'; 64][..], b".b"].concat());
    hosts.push(b"a.".repeat(127));
    hosts.push([&[b'a'; 56][..], b".onion"].concat());
    hosts.push([&[b'a'; 55][..], b"d.onion"].concat());
    hosts
}

/// Bytes for people, the first of them if they are many.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    if text.len() > 60 { format!("{}… ({} bytes)", &text[..60], bytes.len()) } else { text }
}

/// All of them.
pub(crate) fn conversations() -> Vec<Conversation> {
    let mut all = Vec::new();
    let mut add = |name: String, parts: &[(&[u8], usize)]| {
        let parts = parts.iter().map(|(bytes, awaited)| (bytes.to_vec(), *awaited)).collect();
        all.push(Conversation { name, parts });
    };
    for host in hosts() {
        for (name, command) in COMMANDS {
            let asked = named(command, &host, 80);
            add(format!("{name} {}", shown(&host)), &[(PLAIN, 2), (&asked, 0)]);
        }
        for command in [1, 0xf0] {
            let asked = socks4(command, 80, NAMED, b"", Some(&host));
            add(format!("SOCKS 4a {command:#x} {}", shown(&host)), &[(&asked, 0)]);
        }
    }
    for address in [
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::UNSPECIFIED,
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
        [0xfe80, 0, 0, 0, 0, 0, 0, 1].into(),
        Ipv4Addr::new(1, 2, 3, 4).to_ipv6_mapped(),
    ] {
        for (name, command) in COMMANDS {
            add(
                format!("{name} to {address}"),
                &[(PLAIN, 2), (&request(command, 4, &address.octets(), 80), 0)],
            );
        }
    }
    for address in [
        [0, 0, 0, 0],
        [0, 0, 0, 1],
        [10, 0, 0, 1],
        [127, 0, 0, 1],
        [127, 200, 0, 1],
        [192, 0, 2, 1],
    ] {
        for port in [0, 1, 80, 65535] {
            for (name, command) in COMMANDS {
                add(
                    format!("{name} to {address:?}:{port}"),
                    &[(PLAIN, 2), (&to_ipv4(command, address, port), 0)],
                );
            }
        }
    }
    for address in [
        [0, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 255],
        [0, 0, 1, 0],
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [10, 0, 0, 1],
        [127, 200, 0, 1],
        SOMEWHERE,
        [255; 4],
    ] {
        for (port, command) in [(0, 1), (80, 1), (0, 0xf0), (80, 0xf0)] {
            add(
                format!("SOCKS 4 {command:#x} to {address:?}:{port}"),
                &[(&socks4(command, port, address, b"u", None), 0)],
            );
            add(
                format!("SOCKS 4 {command:#x} to {address:?}:{port}, and a name"),
                &[(&socks4(command, port, address, b"u", Some(b"5.6.7.8")), 0)],
            );
        }
    }
    for command in 0..=u8::MAX {
        for (what, asked) in [
            ("address", to_ipv4(command, SOMEWHERE, 80)),
            ("bad name", named(command, b"_x", 80)),
            ("internal address", to_ipv4(command, [127, 0, 0, 1], 80)),
        ] {
            add(format!("command {command:#x}, {what}"), &[(PLAIN, 2), (&asked, 0)]);
        }
        add(format!("command {command:#x}, cut off"), &[(PLAIN, 2), (&[5, command], 0)]);
        add(
            format!("SOCKS 4 command {command:#x}"),
            &[(&socks4(command, 80, SOMEWHERE, b"", None), 0)],
        );
        add(
            format!("SOCKS 4a command {command:#x}"),
            &[(&socks4(command, 80, NAMED, b"", Some(b"1.2.3.4")), 0)],
        );
        add(
            format!("SOCKS 4 command {command:#x}, cut off"),
            &[(&[4, command, 0, 80, 192, 0, 2, 1], 0)],
        );
        add(format!("version {command}"), &[(&[command, 1, 0], 0)]);
        add(
            format!("version {command}, and a request"),
            &[(&[command, 1, 0], 0), (&to_ipv4(0xf0, SOMEWHERE, 80), 0)],
        );
        add(format!("one byte {command}"), &[(&[command], 0)]);
        let asked = to_ipv4(0xf0, SOMEWHERE, 80);
        // A user and a password may be sent although they were not negotiated.
        if command != 1 {
            add(
                format!("request of version {command}"),
                &[(PLAIN, 2), (&[&[command], &asked[1..]].concat(), 0)],
            );
        }
        add(
            format!("request of version {command}, two bytes"),
            &[(PLAIN, 2), (&[command, 0xf0], 0)],
        );
        add(
            format!("reserved byte {command}"),
            &[(PLAIN, 2), (&[5, 0xf0, command, 1, 192, 0, 2, 1, 0, 80], 0)],
        );
        add(format!("reserved byte {command}, cut off"), &[(PLAIN, 2), (&[5, 0xf0, command], 0)]);
        add(
            format!("address type {command}"),
            &[(PLAIN, 2), (&[5, 0xf0, 0, command, 3, 46, 50, 46, 0, 80], 0)],
        );
        add(format!("address type {command}, cut off"), &[(PLAIN, 2), (&[5, 0xf0, 0, command], 0)]);
        let version = [&[command][..], b"\x01u\x01p"].concat();
        add(format!("authentication of version {command}"), &[(WITH_USER, 2), (&version, 0)]);
        add(
            format!("authentication of version {command}, cut off"),
            &[(WITH_USER, 2), (&[command, 2], 0)],
        );
        add(
            format!("method {command}"),
            &[
                (&[5, 1, command], 2),
                (
                    if command == 2 { b"\x01\x01u\x01p" } else { &[] },
                    if command == 2 { 2 } else { 0 },
                ),
                (&asked, 0),
            ],
        );
    }
    let resolve = to_ipv4(0xf0, SOMEWHERE, 80);
    for (user, password) in [
        (&b"<torS0X>0"[..], &b""[..]),
        (b"<torS0X>0", b"x"),
        (b"<torS0X>1", b""),
        (b"<torS0X>", b""),
        (b"<torS0X>00", b""),
        (b"<torS0X>0abc", b"x"),
        (b"<torS0X>9", b""),
        (b"<torS0X>0 ", b""),
        (b"<torS0X> 0", b""),
        (b"<torS0X", b""),
        (b"<torS0X>O", b""),
        (b"<tors0x>9", b""),
        (b"<TORS0X>9", b""),
        (b" <torS0X>9", b""),
        (b"a<torS0X>9", b""),
        (b"x", b"<torS0X>9"),
        (b"<torS0X>0\0", b""),
        (b"<torS0X>\0", b""),
        (b"\0<torS0X>9", b""),
        (b"<torS1X>9", b""),
        (b"", b""),
        (b"", b"x"),
        (b"x", b""),
        (b"\0", b"\0"),
        (&[b'u'; 255], &[b'p'; 255]),
        (&[0xff; 9], &[0xff; 9]),
    ] {
        let name = format!("{} {}", shown(user), shown(password));
        let both = credentials(user, password);
        add(format!("user {name}"), &[(WITH_USER, 2), (&both, 2), (&resolve, 0)]);
        add(format!("user {name}, not negotiated"), &[(PLAIN, 2), (&both, 2), (&resolve, 0)]);
        add(format!("user {name}, before the methods"), &[(&both, 0)]);
        add(
            format!("user {name}, and no password"),
            &[(WITH_USER, 2), (&both[..user.len() + 2], 0)],
        );
        if !user.contains(&0) {
            add(format!("SOCKS 4 user {name}"), &[(&socks4(0xf0, 80, SOMEWHERE, user, None), 0)]);
            add(
                format!("SOCKS 4a user {name}"),
                &[(&socks4(0xf0, 80, NAMED, user, Some(b"1.2.3.4")), 0)],
            );
        }
    }
    for len in [0, 1, 254, 255, 256, 257, 300, 490, 503, 504, 511, 512, 513, 600, 4000] {
        let user = vec![b'u'; len];
        add(
            format!("SOCKS 4 user of {len} bytes"),
            &[(&socks4(0xf0, 80, SOMEWHERE, &user, None), 0)],
        );
        add(
            format!("SOCKS 4a user of {len} bytes"),
            &[(&socks4(0xf0, 80, NAMED, &user, Some(b"1.2.3.4")), 0)],
        );
        let request = socks4(0xf0, 80, SOMEWHERE, &user, None);
        add(
            format!("SOCKS 4 user of {len} bytes without an end"),
            &[(&request[..request.len() - 1], 0)],
        );
        let name = socks4(1, 80, NAMED, b"", Some(&user));
        add(format!("SOCKS 4a name of {len} bytes"), &[(&name, 0)]);
        add(
            format!("SOCKS 4a name of {len} bytes without an end"),
            &[(&name[..name.len() - 1], 0)],
        );
    }
    for methods in [
        &[][..],
        &[0, 2],
        &[2, 0],
        &[1, 0],
        &[1, 2],
        &[3, 4],
        &[0xff, 1],
        &[0; 255],
        &[2; 255],
        &[7; 255],
    ] {
        let greeting = [&[5, u8::try_from(methods.len()).expect("few")][..], methods].concat();
        let wanted = if methods.contains(&2) { credentials(b"u", b"p") } else { Vec::new() };
        let awaited = if wanted.is_empty() { 0 } else { 2 };
        add(
            format!("methods {}", shown(methods)),
            &[(&greeting, 2), (&wanted, awaited), (&resolve, 0)],
        );
        add(
            format!("methods {}, cut off", shown(methods)),
            &[(&greeting[..greeting.len() - 1], 0)],
        );
    }
    let user = credentials(b"u", b"p");
    let http: &[u8] = b"GET / HTTP/1.0\r\nHost: x\r\n\r\n";
    for (name, parts) in [
        ("nothing", &[][..]),
        ("authentication twice", &[(WITH_USER, 2), (&user[..], 2), (&user, 0)]),
        ("methods twice", &[(PLAIN, 2), (PLAIN, 0)]),
        ("methods twice, and a request", &[(PLAIN, 2), (PLAIN, 0), (&resolve, 0)]),
        ("methods twice, with a user", &[(WITH_USER, 2), (WITH_USER, 0)]),
        ("a request without the negotiated authentication", &[(WITH_USER, 2), (&resolve, 0)]),
        ("SOCKS 4 after methods", &[(PLAIN, 2), (&socks4(0xf0, 80, SOMEWHERE, b"", None), 0)]),
        (
            "SOCKS 4 after authentication",
            &[(WITH_USER, 2), (&user, 2), (&socks4(0xf0, 80, SOMEWHERE, b"", None), 0)],
        ),
        ("bad SOCKS 4 after methods", &[(PLAIN, 2), (&socks4(9, 80, SOMEWHERE, b"", None), 0)]),
        ("SOCKS 4 in two pieces", &[(&[4, 0xf0, 0], 0), (&[80, 192, 0, 2, 1, 0], 0)]),
        ("HTTP after methods", &[(PLAIN, 2), (http, 0)]),
        ("HTTP GET", &[(http, 0)]),
        ("HTTP CONNECT", &[(b"CONNECT a.invalid:80 HTTP/1.1\r\nHost: a.invalid\r\n\r\n", 0)]),
        ("HTTP POST", &[(b"POST / HTTP/1.1\r\n\r\n", 0)]),
        ("HTTP PUT", &[(b"PUT / HTTP/1.1\r\n\r\n", 0)]),
        ("HTTP HEAD", &[(b"HEAD / HTTP/1.1\r\n\r\n", 0)]),
        ("HTTP OPTIONS", &[(b"OPTIONS * HTTP/1.1\r\n\r\n", 0)]),
        ("HTTP DELETE", &[(b"DELETE / HTTP/1.1\r\n\r\n", 0)]),
        ("TLS", &[(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rrrrrrrrrrrrrrrrrrrr", 0)]),
        ("zeros", &[(&[0; 600], 0)]),
        ("a request, and data behind it", &[(PLAIN, 2), (&[&resolve[..], b"more"].concat(), 0)]),
        (
            "SOCKS 4, and data behind it",
            &[(&[&socks4(0xf0, 80, SOMEWHERE, b"u", None)[..], b"more"].concat(), 0)],
        ),
        (
            "a name that is longer than the rest of the request",
            &[(PLAIN, 2), (b"\x05\x01\x00\x03\x20abc\x00\x50", 0)],
        ),
    ] {
        add(name.to_owned(), parts);
    }
    all
}
