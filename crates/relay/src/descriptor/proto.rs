//! The line `proto`: what others may rely on (tor-spec.txt, section 9).

/// What the relay can do beyond relaying cells.
///
/// Everything here is a promise to strangers: a client that reads `FlowCtrl=2`, say, negotiates
/// congestion control with us as an exit, and waits in vain if we can't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Serves directory documents over BEGIN_DIR: `tunnelled-dir-server`, and consensuses as differences to
    /// earlier ones, `DirCache=2`.
    pub directory: bool,
    /// SENDME cells of version 1, with the digest of the cell that they acknowledge: `FlowCtrl=1`
    /// (proposal 289).
    pub authenticated_sendmes: bool,
    /// The ntor-v3 handshake: `Relay=4` (proposal 332).
    pub ntor_v3: bool,
    /// Congestion control: `FlowCtrl=2` (proposal 324). Without the two before it is not announced,
    /// since clients ask for it in an ntor-v3 handshake.
    pub congestion_control: bool,
    /// Counter Galois Onion: `Relay=5-6` (proposals 346 and 359), by which a client may ask for it in its
    /// handshake. Not without congestion control, since its cells have no SENDME of streams.
    pub counter_galois_onion: bool,
    /// Circuits that end here can be linked: `Conflux=1` (proposal 329). Not without congestion control, which all that
    /// are linked must have.
    pub conflux: bool,
}

impl Capabilities {
    /// What the engine of this version can do, and a directory if there is one.
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

    /// The same for an exit that links circuits.
    #[must_use]
    pub const fn linking_circuits(self) -> Self {
        Self { conflux: true, ..self }
    }

    /// The value of the line, in tor's order.
    ///
    /// - `Cons`, `Desc`, `Microdesc`: the documents that we read and hand on, and our descriptor with
    ///   its Ed25519 identity and cross-certificates. Without a directory only the latter matters. The latest
    ///   versions are documents without keys for TAP, and with certificates of families (proposals 350 and
    ///   321), which are read and handed on as all others.
    /// - `LinkAuth=3` makes clients and authorities ask for our Ed25519 identity, too.
    /// - `Relay=2` is CREATE2 and EXTEND2 with ntor: without it no client builds circuits through us.
    ///   Version 3 is EXTEND2 to an IPv6 address; it says nothing of an IPv6 port of our own.
    ///   Version 1, TAP, we do not speak.
    /// - Not what onion services want: `HSDir`, `HSIntro`, `HSRend`, `Padding`; nor `Link=3`,
    ///   whose circuit IDs have two bytes, and which nobody needs: every tor since 0.2.4.11 speaks 4. All else is what tor 0.4.9 says of itself.
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
    fn nothing_is_announced_that_the_relay_cannot_do() {
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
