//! The directory authorities of the public network: facts, as tor 0.4.9.11 has them built in. A relay uses them only if its
//! operator says that it is to be one of that network (`public_network`).

use netdoc::Fingerprint;
use std::net::SocketAddr;

/// Nickname, where its directory is, and its identity (`v3ident`); its OR port, and its fingerprint as a relay.
const AUTHORITIES: [(&str, &str, &str, u16, &str); 9] = [
    (
        "moria1",
        "128.31.0.39:9231",
        "F533C81CEF0BC0267857C99B2F471ADF249FA232",
        9201,
        "1A25C6358DB91342AA51720A5038B72742732498",
    ),
    (
        "tor26",
        "217.196.147.77:80",
        "2F3DF9CA0E5D36F2685A2DA67184EB8DCB8CBA8C",
        443,
        "FAA4BCA4A6AC0FB4CA2F8AD5A11D9E122BA894F6",
    ),
    (
        "dizum",
        "45.66.35.11:80",
        "E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58",
        443,
        "7EA6EAD6FD83083C538F44038BBFA077587DD755",
    ),
    (
        "gabelmoo",
        "131.188.40.189:80",
        "ED03BB616EB2F60BEC80151114BB25CEF515B226",
        443,
        "F2044413DAC2E02E3D6BCF4735A19BCA1DE97281",
    ),
    (
        "dannenberg",
        "193.23.244.244:80",
        "0232AF901C31A04EE9848595AF9BB7620D4C5B2E",
        443,
        "7BE683E65D48141321C5ED92F075C55364AC7123",
    ),
    (
        "maatuska",
        "171.25.193.9:443",
        "49015F787433103580E3B66A1707A00E60F2D15B",
        80,
        "BD6A829255CB08E66FBE7D3748363586E46B3810",
    ),
    (
        "longclaw",
        "199.58.81.140:80",
        "23D15D965BC35114467363C165C4F724B64B4F66",
        443,
        "74A910646BCEEFBCD2E874FC1DC997430F968145",
    ),
    (
        "bastet",
        "204.13.164.118:80",
        "27102BC123E7AF1D4741AE047E160C91ADC76B21",
        443,
        "24E2F139121D4394C54B5BCC368B3B411857C413",
    ),
    (
        "faravahar",
        "216.218.219.41:80",
        "70849B868D606BAECFB6128C5E3D782029AA394F",
        443,
        "E3E42D35F801C9D5AB23584E0025D56FE2B33396",
    ),
];

/// Where they are, and who must have signed a consensus.
#[must_use]
pub fn authorities() -> (Vec<SocketAddr>, Vec<Fingerprint>) {
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    let identity = |text: &str| text.parse::<Fingerprint>().ok();
    AUTHORITIES.iter().filter_map(|(_, at, who, ..)| address(at).zip(identity(who))).unzip()
}

/// Where each authority's directory is, its OR port, and its fingerprint as a relay.
#[must_use]
pub fn or_ports() -> Vec<(SocketAddr, SocketAddr, Fingerprint)> {
    let one = |(_, at, _, port, relay): &(&str, &str, &str, u16, &str)| {
        let directory: SocketAddr = at.parse().ok()?;
        Some((directory, SocketAddr::new(directory.ip(), *port), relay.parse().ok()?))
    };
    AUTHORITIES.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn all_of_them_are_read() {
        let (addresses, identities) = authorities();
        assert_eq!((addresses.len(), identities.len(), or_ports().len()), (9, 9, 9));
    }

    /// The program has them as text: `NAME orport=N v3ident=FP … ADDRESS:PORT FP`, the last one with spaces or without.
    #[test]
    fn they_are_those_of_the_tor_that_is_installed() {
        let path =
            ["/usr/bin/tor", "/usr/sbin/tor"].map(Path::new).into_iter().find(|it| it.is_file());
        let Some(path) = path else {
            skip::this_test!("there is no tor in /usr/bin and /usr/sbin")
        };
        let program = std::fs::read(path).expect("readable");
        let texts = program.split(|byte| !(b' '..=b'~').contains(byte));
        let lines = texts.filter_map(|text| std::str::from_utf8(text).ok());
        let mut found: Vec<_> = lines
            .filter_map(|line| {
                let (name, rest) = line.split_once(" orport=")?;
                let (port, rest) = rest.split_once(" v3ident=")?;
                let mut words = rest.split(' ');
                let identity = words.next()?.to_owned();
                let address = words.find(|word| word.parse::<SocketAddr>().is_ok())?.to_owned();
                Some((name.to_owned(), address, identity, port.parse().ok()?, words.collect()))
            })
            .collect();
        let owned = |it: &(&str, &str, &str, u16, &str)| {
            (it.0.to_owned(), it.1.to_owned(), it.2.to_owned(), it.3, it.4.to_owned())
        };
        let mut ours: Vec<(String, String, String, u16, String)> =
            AUTHORITIES.iter().map(owned).collect();
        found.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, found);
    }
}
