//! The files that are written.

use super::Result;
use onion::identity::OwnIdentity;
use std::fmt::Write;
use std::path::Path;

/// One file of vectors: named byte strings that belong together.
pub(super) struct Scene {
    name: &'static str,
    text: String,
}

impl Scene {
    pub(super) fn new(name: &'static str, what: &str, version: &str) -> Self {
        Self { name, text: format!("# {what}\n# Captured from Tor {version}.\n") }
    }

    /// Adds one byte string.
    pub(super) fn add(&mut self, name: &str, what: &str, bytes: &[u8]) {
        // Writing to a `String` cannot fail.
        let _ = write!(self.text, "\n# {what}\n{name} =");
        for line in bytes.chunks(48) {
            let _ = write!(self.text, "\n{}", hex::encode(line));
        }
        self.text.push('\n');
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(self.name).with_extension("hex");
        Ok(std::fs::write(path, &self.text)?)
    }
}

/// An identity of this program with all its secrets, created for the capture only.
pub(super) fn identity_scene(name: &'static str, own: &OwnIdentity, version: &str) -> Scene {
    let mut scene =
        Scene::new(name, "An identity of the capturing program, with its secrets.", version);
    scene.add("rsa", "SHA-1 of the RSA key.", &own.rsa.0);
    scene.add("rsa_sha256", "SHA-256 of the RSA key.", &own.rsa_sha256);
    scene.add("ed25519", "Ed25519 identity.", &own.ed25519.0);
    scene.add("rsa_identity_cert", "CERTS type 2.", &own.rsa_identity_cert);
    scene.add("signing_cert", "CERTS type 4.", &own.signing_cert);
    scene.add("tls_link_cert", "CERTS type 5.", &own.tls_link_cert);
    scene.add("authenticate_cert", "CERTS type 6.", &own.authenticate_cert);
    scene.add("rsa_cross_cert", "CERTS type 7.", &own.rsa_cross_cert);
    scene.add("authenticate_seed", "Link authentication key.", &own.authenticate_seed);
    scene.add("onion_secret", "Onion key.", &own.onion_secret);
    scene
}
