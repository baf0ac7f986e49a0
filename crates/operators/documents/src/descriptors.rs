//! Server descriptors whose digests are in the consensus, so that its signatures cover them, too.

use super::read;
use crate::error::Error;
use netdoc::RsaId;
use netdoc::consensus::Consensus;
use netdoc::descriptor::{self, ServerDescriptor};
use netdoc::fetch::{Fetcher, Resource};
use netdoc::pieces::server_descriptors;
use sha1::{Digest as _, Sha1};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The source of server descriptors.
#[derive(Clone, Copy)]
pub enum Origin<'o> {
    /// The directory port of an authority or cache.
    Authority(SocketAddr),
    /// Tor's `cached-descriptors`; the newer ones in `cached-descriptors.new` are read, too.
    File(&'o Path),
    /// None: relays have no rate limits and families.
    Nowhere,
}

/// Maximum number of digests in a request, as in C tor.
const AT_ONCE: usize = 96;

impl Origin<'_> {
    /// Reads or fetches the descriptors.
    pub(super) fn get(self, consensus: &Consensus) -> Result<Vec<u8>, Error> {
        match self {
            Self::Nowhere => Ok(Vec::new()),
            Self::File(path) => from_files(path),
            Self::Authority(authority) => {
                let fetcher = Fetcher::default();
                let mut text = fetcher.get(authority, &Resource::AllDescriptors)?;
                // Descriptors that relays have replaced since the consensus are requested by digest.
                let missing = missing(consensus, &text);
                for some in missing.chunks(AT_ONCE) {
                    let names: Vec<String> = some.iter().map(hex::encode).collect();
                    let path = format!("/tor/server/d/{}", names.join("+"));
                    match fetcher.get(authority, &Resource::Path(path)) {
                        Ok(more) => text.extend(more),
                        Err(error) => tracing::debug!("without some descriptors: {error}"),
                    }
                }
                Ok(text)
            }
        }
    }
}

fn from_files(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |path: &Path, source| Error::File {
        what: "read the descriptors",
        path: path.to_owned(),
        source,
    };
    let mut text = read(path, "read the descriptors")?;
    let mut newer = path.as_os_str().to_owned();
    newer.push(".new");
    let newer = PathBuf::from(newer);
    match fs::read(&newer) {
        Ok(more) => text.extend(more),
        // Standard input and archives have no second file.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&newer, error)),
    }
    Ok(text)
}

/// The descriptor of each relay whose digest is in the consensus. Others are not authenticated.
pub(super) fn named<'t>(
    consensus: &Consensus,
    text: &'t [u8],
) -> BTreeMap<RsaId, ServerDescriptor<'t>> {
    let wanted = wanted(consensus);
    let found = server_descriptors(text).filter_map(|piece| {
        let digest: [u8; 20] = Sha1::digest(piece.digested).into();
        let whose = wanted.get(&digest)?;
        // A relay whose descriptor cannot be parsed has no limit.
        let descriptor = descriptor::iter(piece.text).next()?.ok()?;
        (descriptor.fingerprint == *whose).then_some((*whose, descriptor))
    });
    found.collect()
}

/// Logs a warning if descriptors are missing.
///
/// # Errors
/// If the consensus names no descriptors, because then every limit and family would be ignored silently.
pub(super) fn check(what: &str, consensus: &Consensus, found: usize) -> Result<(), Error> {
    let wanted = wanted(consensus).len();
    if wanted == 0 && !consensus.routers().is_empty() {
        return Err(Error::Unusable(format!(
            "{what} names no server descriptors: it has the flavour microdesc, as tor's cached-microdesc-consensus. Use tor's \
             cached-consensus, which tor keeps with `UseMicrodescriptors 0`, or leave out `descriptors`"
        )));
    }
    if found < wanted {
        let missing = wanted - found;
        tracing::warn!(
            "{missing} of {wanted} descriptors are missing: their relays have neither their operators' limits nor families"
        );
    }
    Ok(())
}

fn wanted(consensus: &Consensus) -> BTreeMap<[u8; 20], RsaId> {
    let routers = consensus.routers().iter();
    routers.filter_map(|router| Some((router.descriptor_digest?, router.fingerprint))).collect()
}

/// Digests of the consensus that are missing in the text.
fn missing(consensus: &Consensus, text: &[u8]) -> Vec<[u8; 20]> {
    let mut wanted = wanted(consensus);
    for piece in server_descriptors(text) {
        wanted.remove(&<[u8; 20]>::from(Sha1::digest(piece.digested)));
    }
    wanted.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSENSUS: &str = include_str!("../../../engine/netdoc/tests/data/consensus-ns");
    const DESCRIPTORS: &[u8] =
        include_bytes!("../../../engine/netdoc/tests/data/server-descriptors");
    /// The digest of the first descriptor in base64, computed by another program.
    const DIGEST: &str = "rZ5lEvCtKCWpSKBZ0WIaECLWE/E";

    /// The relay of the first descriptor.
    fn author() -> RsaId {
        descriptor::iter(DESCRIPTORS).next().expect("one").expect("a descriptor").fingerprint
    }

    /// A consensus with a relay of this identity, and a descriptor with this digest.
    fn naming(identity: &RsaId, digest: &str) -> Consensus {
        let text = naming_text(identity, digest);
        Consensus::parse(text.as_bytes()).expect("a consensus")
    }

    fn naming_text(identity: &RsaId, digest: &str) -> String {
        let (head, _) = CONSENSUS.split_once("\nr ").expect("a relay");
        let (_, foot) = CONSENSUS.split_once("\ndirectory-footer").expect("a footer");
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&identity.0);
        // 20 bytes; the following zeros are ignored.
        let identity = netdoc::Ed25519Id(bytes).to_string();
        format!(
            "{head}\nr relay {} {digest} 2020-02-28 21:39:07 192.0.2.1 9001 0\ns Running Valid\nw Bandwidth=1\n\
             directory-footer{foot}",
            &identity[..27]
        )
    }

    #[test]
    fn the_ed25519_identity_of_a_relay_is_that_of_its_descriptor() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cached-descriptors");
        fs::write(&path, DESCRIPTORS).expect("room");
        let ed25519 = |consensus: &str, origin: Origin<'_>| {
            let new =
                super::super::Documents::new("it".to_owned(), consensus.as_bytes(), origin, 0);
            let documents = new.expect("a consensus");
            let router = &documents.consensus.routers()[0];
            let ids = documents.ids(router);
            assert_eq!(ids.rsa, author());
            ids.ed25519.map(|id| id.to_string())
        };
        let consensus = naming_text(&author(), DIGEST);
        let known = ed25519(&consensus, Origin::File(&path));
        assert_eq!(known.as_deref(), Some("cvBD6VtTgGHX9teN59R3rGppq4ZBEvz/v74QOAlu3NI"));
        assert_eq!(ed25519(&consensus, Origin::Nowhere), None);
        // A descriptor that the consensus does not name proves nothing.
        let other = naming_text(&author(), "fT1lwALw2cmUMK6Otfxu5FIrrSc");
        assert_eq!(ed25519(&other, Origin::File(&path)), None);
    }

    #[test]
    fn only_descriptors_whose_digests_are_in_the_consensus_are_accepted() {
        let found = |consensus: &Consensus, text: &[u8]| {
            named(consensus, text).into_keys().collect::<Vec<_>>()
        };
        let consensus = naming(&author(), DIGEST);
        assert_eq!(found(&consensus, DESCRIPTORS), [author()]);
        let lacks = |text: &[u8]| missing(&consensus, text).len();
        assert_eq!((lacks(DESCRIPTORS), lacks(b"")), (0, 1));
        // A changed limit, another descriptor of the same relay, and the descriptor of another relay.
        let text = String::from_utf8(DESCRIPTORS.to_vec()).expect("text");
        let forged = text.replacen("\nbandwidth ", "\nbandwidth 1", 1);
        assert_eq!(found(&consensus, forged.as_bytes()), []);
        assert_eq!(lacks(forged.as_bytes()), 1);
        let other = naming(&author(), "fT1lwALw2cmUMK6Otfxu5FIrrSc");
        assert_eq!(found(&other, DESCRIPTORS), []);
        let stranger = naming(&RsaId([1; 20]), DIGEST);
        assert_eq!(found(&stranger, DESCRIPTORS), []);
    }

    #[test]
    fn a_consensus_without_digests_is_refused_if_there_are_descriptors() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cached-descriptors");
        fs::write(&path, DESCRIPTORS).expect("room");
        let clients = include_bytes!("../../../engine/netdoc/tests/data/consensus-microdesc");
        let new = |origin| super::super::Documents::new("it".to_owned(), clients, origin, 0);
        let error = new(Origin::File(&path)).map(drop).expect_err("no digests").to_string();
        assert!(error.contains("cached-microdesc-consensus"), "{error}");
        assert!(new(Origin::Nowhere).is_ok());
    }

    #[test]
    fn tors_cached_descriptors_are_read_with_the_newer_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cached-descriptors");
        let consensus = naming(&author(), DIGEST);
        let read = || Origin::File(&path).get(&consensus);
        let error = read().expect_err("none yet").to_string();
        assert!(error.contains("cached-descriptors"), "{error}");
        fs::write(&path, "@downloaded-at 2020-02-29 10:00:00\n").expect("room");
        assert!(named(&consensus, &read().expect("read")).is_empty());
        fs::write(folder.path().join("cached-descriptors.new"), DESCRIPTORS).expect("room");
        assert_eq!(named(&consensus, &read().expect("read")).len(), 1);
        assert!(Origin::Nowhere.get(&consensus).expect("nothing").is_empty());
    }
}
