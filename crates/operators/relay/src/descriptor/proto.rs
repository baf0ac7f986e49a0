//! The line `proto`: supported protocol versions (tor-spec.txt, section 9).

/// Capabilities beyond relaying cells.
///
/// Each is a promise to clients. For example, a client that reads `FlowCtrl=2` negotiates
/// congestion control with this relay as an exit, and fails if it is not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Serves directory documents over BEGIN_DIR: `tunnelled-dir-server`, and consensus diffs,
    /// `DirCache=2`.
    pub directory: bool,
    /// SENDME cells of version 1, with the digest of the acknowledged cell: `FlowCtrl=1` (proposal
    /// 289).
    pub authenticated_sendmes: bool,
    /// The ntor-v3 handshake: `Relay=4` (proposal 332).
    pub ntor_v3: bool,
    /// Congestion control: `FlowCtrl=2` (proposal 324). Announced only with the two above, since
    /// clients negotiate it in an ntor-v3 handshake.
    pub congestion_control: bool,
    /// Counter Galois Onion: `Relay=5-6` (proposals 346 and 359), which clients negotiate in their
    /// handshake. Requires congestion control, since its cells have no stream SENDME.
    pub counter_galois_onion: bool,
    /// Conflux at this exit: `Conflux=1` (proposal 329). Requires congestion control on all legs.
    pub conflux: bool,
}

impl Capabilities {
    /// The capabilities of this version, with or without a directory.
    #[must_use]
    pub const fn of_engine(directory: bool) -> Self {
        Self {
            directory,
            authenticated_sendmes: true,
            ntor_v3: true,
            congestion_control: true,
            counter_galois_onion: true,
            conflux: false,
        }
    }

    /// The capabilities of an exit with Conflux.
    #[must_use]
    pub const fn linking_circuits(self) -> Self {
        Self { conflux: true, ..self }
    }

    /// The value of the line, in tor's order.
    ///
    /// - `Cons`, `Desc`, `Microdesc`: the documents that this relay parses and serves, and its
    ///   descriptor with its Ed25519 identity and cross-certificates. Without a directory only the
    ///   latter matters. The latest versions are documents without TAP keys and with family
    ///   certificates (proposals 350 and 321), which are parsed and served like all others.
    /// - `LinkAuth=3` makes clients and authorities require the Ed25519 identity, too.
    /// - `Relay=2` is CREATE2 and EXTEND2 with ntor: without it no client builds circuits through
    ///   this relay. Version 3 is EXTEND2 to an IPv6 address; it does not imply an IPv6 port.
    ///   Version 1, TAP, is not supported.
    /// - Nothing for onion services: `HSDir`, `HSIntro`, `HSRend`, `Padding`. Nor `Link=3`, with
    ///   circuit IDs of two bytes, which nobody needs: every tor since 0.2.4.11 supports 4. All
    ///   else equals tor 0.4.9.
    #[must_use]
    pub fn protocols(self) -> String {
        let mut all = Vec::new();
        let has_vegas = self.congestion_control && self.authenticated_sendmes && self.ntor_v3;
        if self.conflux && has_vegas {
            all.push("Conflux=1");
        }
        if self.directory {
            all.extend(["Cons=1-2", "Desc=1-4", "DirCache=2"]);
        } else {
            all.push("Desc=1-4");
        }
        match (self.authenticated_sendmes, has_vegas) {
            (true, true) => all.push("FlowCtrl=1-2"),
            (true, false) => all.push("FlowCtrl=1"),
            (false, _) => {}
        }
        all.extend(["Link=4-5", "LinkAuth=3"]);
        if self.directory {
            all.push("Microdesc=1-3");
        }
        all.push(match (self.ntor_v3, has_vegas && self.counter_galois_onion) {
            (false, _) => "Relay=2-3",
            (true, false) => "Relay=2-4",
            (true, true) => "Relay=2-6",
        });
        all.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_supported_protocols_are_announced() {
        let least = Capabilities::default();
        assert_eq!(least.protocols(), "Desc=1-4 Link=4-5 LinkAuth=3 Relay=2-3");
        let directory = Capabilities { directory: true, ..least };
        assert_eq!(
            directory.protocols(),
            "Cons=1-2 Desc=1-4 DirCache=2 Link=4-5 LinkAuth=3 Microdesc=1-3 Relay=2-3"
        );
        let all = Capabilities {
            directory: true,
            authenticated_sendmes: true,
            ntor_v3: true,
            congestion_control: true,
            counter_galois_onion: true,
            conflux: true,
        };
        assert_eq!(
            all.protocols(),
            "Conflux=1 Cons=1-2 Desc=1-4 DirCache=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=1-3 \
             Relay=2-6"
        );
        // A client could not negotiate it.
        let without_ntor_v3 = Capabilities { ntor_v3: false, ..all }.protocols();
        assert!(without_ntor_v3.contains("FlowCtrl=1 ") && without_ntor_v3.ends_with("Relay=2-3"));
        let without_sendmes = Capabilities { authenticated_sendmes: false, ..all }.protocols();
        assert!(!without_sendmes.contains("FlowCtrl"), "{without_sendmes}");
        let without_vegas = Capabilities { congestion_control: false, ..all }.protocols();
        assert!(without_vegas.ends_with("Relay=2-4"), "{without_vegas}");
        assert!(!without_vegas.contains("Conflux"), "{without_vegas}");
        let without_conflux = Capabilities { conflux: false, ..all }.protocols();
        assert!(without_conflux.starts_with("Cons"), "{without_conflux}");
    }
}
