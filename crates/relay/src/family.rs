//! Families: relays of one operator, of which clients use at most one in a circuit.
//!
//! Either each relay lists all others (`MyFamily`, the line `family` of dir-spec.txt, section 2.1.1), or
//! all have a common key: each publishes a certificate of its identity by that key (`family-cert`,
//! proposal 321), and authorities put the name of the key into the relay's microdescriptor.
//! Certificates of other relays are verified by [`dirmgr::family`].

use crate::document::{DescriptorError, failed};
use crate::keys::{KeyError, read_family_key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use dirmgr::family::FamilyId;
use netdoc::Fingerprint;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert, EncodedCert};
use tor_llcrypto::pk::ed25519;

/// Extension of family key files, as in tor.
const SUFFIX: &str = "secret_family_key";

/// Which family keys a relay uses: `FamilyId`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FamilyIds {
    /// None.
    #[default]
    None,
    /// All keys in the folder of keys: `FamilyId *`.
    All,
    /// Those with these public keys.
    These(Vec<FamilyId>),
}

impl<'de> Deserialize<'de> for FamilyIds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        match &texts[..] {
            [] => return Ok(Self::None),
            [all] if all == "*" => return Ok(Self::All),
            _ => {}
        }
        let id = |text: &String| {
            let bytes = STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok();
            let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
            bytes.map(FamilyId).ok_or_else(|| {
                let what =
                    "is no family ID: expected what `tor --keygen-family` prints, or \"*\" alone";
                serde::de::Error::custom(format!("{text:?} {what}"))
            })
        };
        texts.iter().map(id).collect::<Result<_, _>>().map(Self::These)
    }
}

/// A family's secret key.
pub struct FamilyKey(ed25519::ExpandedKeypair);

impl fmt::Debug for FamilyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FamilyKey({})", self.id())
    }
}

impl FamilyKey {
    /// Wraps a secret key.
    #[must_use]
    pub const fn new(key: ed25519::ExpandedKeypair) -> Self {
        Self(key)
    }

    /// The public key, which names the family.
    #[must_use]
    pub fn id(&self) -> FamilyId {
        FamilyId(self.0.public().to_bytes())
    }

    /// Certifies that the relay with this identity belongs to the family.
    pub(crate) fn certify(
        &self,
        identity: &ed25519::PublicKey,
        expiry: SystemTime,
    ) -> Result<Vec<u8>, DescriptorError> {
        let identity = ed25519::Ed25519Identity::from(*identity);
        let cert = Ed25519Cert::builder()
            .cert_type(CertType::FAMILY_V_IDENTITY)
            .expiration(expiry)
            .signing_key(ed25519::Ed25519Identity::from(*self.0.public()))
            .cert_key(CertifiedKey::Ed25519(identity))
            .encode_and_sign(&self.0)
            .map_err(failed("family certificate"))?;
        Ok(cert.encoded().to_vec())
    }
}

/// Reads the keys of these families from a folder.
///
/// # Errors
/// [`KeyError`] if a key is missing, corrupt, or readable by others.
pub fn open(folder: &Path, wanted: &FamilyIds) -> Result<Vec<FamilyKey>, KeyError> {
    if *wanted == FamilyIds::None {
        return Ok(Vec::new());
    }
    let unreadable = |source| KeyError::Io {
        action: "look for family keys in",
        path: folder.to_owned(),
        source,
    };
    let mut keys = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path: PathBuf = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            keys.push(FamilyKey::new(read_family_key(&path)?));
        }
    }
    if let FamilyIds::These(ids) = wanted {
        if let Some(missing) = ids.iter().find(|id| keys.iter().all(|key| key.id() != **id)) {
            return Err(KeyError::NoFamilyKey {
                id: missing.to_string(),
                folder: folder.to_owned(),
            });
        }
        keys.retain(|key| ids.contains(&key.id()));
    }
    keys.sort_by_key(FamilyKey::id);
    keys.dedup_by_key(|key| key.id());
    Ok(keys)
}

/// The line `family` with its newline; empty if there are no other members.
pub(crate) fn line(members: &[Fingerprint]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let members: Vec<_> = members.iter().map(|member| format!("${member}")).collect();
    format!("family {}\n", members.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dirmgr::family::proven_families;
    use netdoc::descriptor::ServerDescriptor;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, UNIX_EPOCH};

    /// Generated by `tor --keygen-family`, tor 0.4.9.11, for this test.
    const ID: &str = "cmB9B4v4uElGldOC1//4lJPK2fRX3VYO/jiyXgQ5qR8";
    const FILE: &str = "3d3d206564323535313976312d7365637265743a20666d6c792d6964203d3d00\
        a09267230955fab0ba05b22ac675744625ebaa1b16530340566ddfe22cd5d676\
        bcbb042217392a9115f381312a4694f0f0a201273a63e83f97499d2c61dd2a57";

    fn ids(list: &str) -> Result<FamilyIds, String> {
        #[derive(Deserialize)]
        struct Holder {
            ids: FamilyIds,
        }
        toml::from_str::<Holder>(&format!("ids = {list}"))
            .map(|it| it.ids)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn keys_that_tor_has_made_are_found_by_their_ids() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.secret_family_key");
        fs::write(&path, hex::decode(FILE).expect("hex")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        fs::write(folder.path().join("mine.public_family_id"), ID).expect("written");
        let wanted = ids(&format!("[\"{ID}\"]")).expect("sound");
        for wanted in [&wanted, &FamilyIds::All] {
            let found = open(folder.path(), wanted).expect("found");
            assert_eq!(found.iter().map(|key| key.id().to_string()).collect::<Vec<_>>(), [ID]);
        }
        assert_eq!(ids("[\"*\"]"), Ok(FamilyIds::All));
        assert!(open(folder.path(), &FamilyIds::None).expect("nothing to do").is_empty());
        assert!(open(Path::new("/nowhere"), &FamilyIds::None).is_ok());

        let other = FamilyIds::These(vec![FamilyId([7; 32])]);
        let problem = open(folder.path(), &other).expect_err("none").to_string();
        assert!(problem.contains("BwcH") && problem.contains(".secret_family_key"), "{problem}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let problem = open(folder.path(), &wanted).expect_err("open to others").to_string();
        assert!(problem.contains("chmod 600"), "{problem}");
        for bad in ["[\"x\"]", "[\"*\", \"*\"]", "\"*\""] {
            ids(bad).expect_err("refused");
        }
    }

    #[test]
    fn members_are_named_by_their_fingerprints() {
        assert_eq!(line(&[]), "");
        let members = [Fingerprint::from_bytes([0xAB; 20]), Fingerprint::from_bytes([1; 20])];
        let (one, two) = ("AB".repeat(20), "01".repeat(20));
        assert_eq!(line(&members), format!("family ${one} ${two}\n"));
    }

    fn key(seed: u8) -> ed25519::Keypair {
        ed25519::Keypair::from_bytes(&[seed; 32])
    }

    /// A certificate for `identity` by the family with this seed.
    fn certified(family: u8, identity: &ed25519::Keypair, expiry: SystemTime) -> Vec<u8> {
        let family = FamilyKey::new(ed25519::ExpandedKeypair::from(&key(family)));
        family.certify(&identity.verifying_key(), expiry).expect("certified")
    }

    #[test]
    fn own_certificates_prove_the_family_of_their_key_alone() {
        let (relay, now_s, end_s) = (key(1), 1_795_440_942, 499_454 * 3600);
        let expiry = UNIX_EPOCH + Duration::from_secs(end_s);
        let text = include_bytes!("../../dirmgr/tests/data/family-descriptors");
        let template = netdoc::descriptor::parse_all(text).0.remove(0);
        let proven = |cert: Vec<u8>, now_s| {
            let identity = relay.verifying_key().to_bytes();
            let ed25519 = Some(netdoc::Ed25519Identity::from_bytes(identity));
            let descriptor =
                ServerDescriptor { ed25519, family_certs: vec![cert], ..template.clone() };
            proven_families(&descriptor, now_s)
        };
        let id = |seed| FamilyId(key(seed).verifying_key().to_bytes());
        let cert = certified(2, &relay, expiry);
        assert_eq!(proven(cert.clone(), now_s).families, [id(2)].into());
        assert!(proven(cert.clone(), end_s).families.is_empty());
        // It names the family's key, but another key has signed it.
        let mut forged = certified(3, &relay, expiry);
        let named = cert.len() - 64 - 32;
        forged[named..named + 32].copy_from_slice(&cert[named..named + 32]);
        assert!(proven(forged, now_s).problems[0].to_string().contains("signature"));
        // A relay that uses its own identity as the family key is in a family of its own.
        assert_eq!(proven(certified(1, &relay, expiry), now_s).families, [id(1)].into());
    }
}
