//! The directory authorities of the public network, as built into tor 0.4.9.11. A relay uses them only
//! if its operator has configured it for that network (`public_network`).

use netdoc::RsaId;
use std::net::SocketAddr;

/// A directory authority.
struct Authority {
    nickname: &'static str,
    /// Address of its directory port.
    directory: &'static str,
    /// Digest of its identity key as an authority (`v3ident`).
    identity: &'static str,
    or_port: u16,
    /// Digest of its identity key as a relay.
    fingerprint: &'static str,
}

const AUTHORITIES: [Authority; 9] = [
    Authority {
        nickname: "moria1",
        directory: "128.31.0.39:9231",
        identity: "F533C81CEF0BC0267857C99B2F471ADF249FA232",
        or_port: 9201,
        fingerprint: "1A25C6358DB91342AA51720A5038B72742732498",
    },
    Authority {
        nickname: "tor26",
        directory: "217.196.147.77:80",
        identity: "2F3DF9CA0E5D36F2685A2DA67184EB8DCB8CBA8C",
        or_port: 443,
        fingerprint: "FAA4BCA4A6AC0FB4CA2F8AD5A11D9E122BA894F6",
    },
    Authority {
        nickname: "dizum",
        directory: "45.66.35.11:80",
        identity: "E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58",
        or_port: 443,
        fingerprint: "7EA6EAD6FD83083C538F44038BBFA077587DD755",
    },
    Authority {
        nickname: "gabelmoo",
        directory: "131.188.40.189:80",
        identity: "ED03BB616EB2F60BEC80151114BB25CEF515B226",
        or_port: 443,
        fingerprint: "F2044413DAC2E02E3D6BCF4735A19BCA1DE97281",
    },
    Authority {
        nickname: "dannenberg",
        directory: "193.23.244.244:80",
        identity: "0232AF901C31A04EE9848595AF9BB7620D4C5B2E",
        or_port: 443,
        fingerprint: "7BE683E65D48141321C5ED92F075C55364AC7123",
    },
    Authority {
        nickname: "maatuska",
        directory: "171.25.193.9:443",
        identity: "49015F787433103580E3B66A1707A00E60F2D15B",
        or_port: 80,
        fingerprint: "BD6A829255CB08E66FBE7D3748363586E46B3810",
    },
    Authority {
        nickname: "longclaw",
        directory: "199.58.81.140:80",
        identity: "23D15D965BC35114467363C165C4F724B64B4F66",
        or_port: 443,
        fingerprint: "74A910646BCEEFBCD2E874FC1DC997430F968145",
    },
    Authority {
        nickname: "bastet",
        directory: "204.13.164.118:80",
        identity: "27102BC123E7AF1D4741AE047E160C91ADC76B21",
        or_port: 443,
        fingerprint: "24E2F139121D4394C54B5BCC368B3B411857C413",
    },
    Authority {
        nickname: "faravahar",
        directory: "216.218.219.41:80",
        identity: "70849B868D606BAECFB6128C5E3D782029AA394F",
        or_port: 443,
        fingerprint: "E3E42D35F801C9D5AB23584E0025D56FE2B33396",
    },
];

/// The addresses of the authorities' directory ports, and the identities that sign consensuses.
#[must_use]
pub fn authorities() -> (Vec<SocketAddr>, Vec<RsaId>) {
    let parsed = |authority: &Authority| -> Option<(SocketAddr, RsaId)> {
        authority.directory.parse().ok().zip(authority.identity.parse().ok())
    };
    AUTHORITIES.iter().filter_map(parsed).unzip()
}

/// An authority as a relay.
#[derive(Clone, Copy, Debug)]
pub struct AuthorityRelay {
    /// Its nickname.
    pub nickname: &'static str,
    /// Its directory port.
    pub directory: SocketAddr,
    /// Its OR port.
    pub or_port: SocketAddr,
    /// Its identity as a relay.
    pub fingerprint: RsaId,
}

/// The authorities as relays.
#[must_use]
pub fn authority_relays() -> Vec<AuthorityRelay> {
    let parsed = |authority: &Authority| {
        let directory: SocketAddr = authority.directory.parse().ok()?;
        let or_port = SocketAddr::new(directory.ip(), authority.or_port);
        Some(AuthorityRelay {
            nickname: authority.nickname,
            directory,
            or_port,
            fingerprint: authority.fingerprint.parse().ok()?,
        })
    };
    AUTHORITIES.iter().filter_map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn all_authorities_are_parsed() {
        let (addresses, identities) = authorities();
        assert_eq!((addresses.len(), identities.len(), authority_relays().len()), (9, 9, 9));
    }

    /// The executable contains lines `NAME orport=N v3ident=FP … ADDRESS:PORT FP`; the last fingerprint may have spaces.
    #[test]
    fn the_authorities_are_those_of_the_installed_tor() {
        let path = ["/usr/bin/tor", "/usr/sbin/tor"]
            .map(Path::new)
            .into_iter()
            .find(|path| path.is_file());
        let Some(path) = path else { skip::this_test!("no tor in /usr/bin or /usr/sbin") };
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
        let owned = |authority: &Authority| {
            let [nickname, directory, identity, fingerprint] = [
                authority.nickname,
                authority.directory,
                authority.identity,
                authority.fingerprint,
            ]
            .map(str::to_owned);
            (nickname, directory, identity, authority.or_port, fingerprint)
        };
        let mut ours: Vec<(String, String, String, u16, String)> =
            AUTHORITIES.iter().map(owned).collect();
        found.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, found);
    }
}
