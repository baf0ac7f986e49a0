use hkdf::Hkdf;
use rustls::KeyLog;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// Keeps the exporter secret of one session, from which keying material is exported.
///
/// rustls' unbuffered connections have no exporter, but pass their secrets to a key log; this one
/// discloses them to no one. It relies on the only cipher suite offered, whose hash is SHA-256.
#[derive(Debug, Default)]
pub(super) struct Exporter {
    secret: OnceLock<[u8; 32]>,
}

impl KeyLog for Exporter {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "EXPORTER_SECRET"
            && let Ok(secret) = secret.try_into()
        {
            // A session has one exporter secret; a second would be a bug in rustls.
            let _ = self.secret.set(secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

impl Exporter {
    /// Keying material of the session (RFC 8446 §7.5, after RFC 5705).
    pub(super) fn export(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        let derived = expand_label(self.secret.get()?, label, &Sha256::digest(b""))?;
        expand_label(&derived, b"exporter", &Sha256::digest(context))
    }
}

/// HKDF-Expand-Label of RFC 8446 §7.1, for SHA-256 and 32 bytes.
fn expand_label(secret: &[u8; 32], label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
    let prefixed_len = u8::try_from(b"tls13 ".len() + label.len()).ok()?;
    let context_len = u8::try_from(context.len()).ok()?;
    let info: [&[u8]; 6] =
        [&32u16.to_be_bytes(), &[prefixed_len], b"tls13 ", label, &[context_len], context];
    let mut out = [0; 32];
    Hkdf::<Sha256>::from_prk(secret).ok()?.expand_multi_info(&info, &mut out).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity_issuer::IdentityIssuer;
    use crate::tls::TlsConfigs;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    /// The vector of the protocol: `FLASHFLOW_VECTORS=write` writes it.
    #[test]
    fn exported_keys_match_the_vector() {
        let secret = [0x42; 32];
        let label = onion::measure::protocol::EXPORTER_LABEL;
        let exporter = Exporter::default();
        exporter.log("EXPORTER_SECRET", &[], &secret);
        let exported = exporter.export(label, b"").expect("there is a secret");
        let made = format!(
            "{{\n  \"exporter_secret\": \"{}\",\n  \"label\": \"{}\",\n  \"exported\": \"{}\"\n}}\n",
            hex::encode(secret),
            str::from_utf8(label).expect("ASCII"),
            hex::encode(exported),
        );
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/vectors/exporter.json");
        if std::env::var("FLASHFLOW_VECTORS").as_deref() == Ok("write") {
            std::fs::write(path, &made).expect("writable");
        }
        assert_eq!(std::fs::read_to_string(path).expect("readable"), made);
    }

    #[test]
    fn exported_keys_match_those_of_the_library() {
        let issuer = IdentityIssuer::new([5; 32], 1_700_000_000).expect("keys");
        let configs = TlsConfigs::new(&issuer).expect("usable");
        let exporter = Arc::new(Exporter::default());
        let mut client_config = (*configs.client).clone();
        client_config.key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let name = ServerName::try_from("relay.example").expect("a name");
        let mut client =
            rustls::ClientConnection::new(Arc::new(client_config), name).expect("usable");
        let mut server =
            rustls::ServerConnection::new(configs.server.expect("a key").config).expect("usable");
        while client.is_handshaking() || server.is_handshaking() {
            let mut flight = Vec::new();
            client.write_tls(&mut flight).expect("memory");
            server.read_tls(&mut &flight[..]).expect("memory");
            server.process_new_packets().expect("honest");
            flight.clear();
            server.write_tls(&mut flight).expect("memory");
            let mut rest = &flight[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).expect("memory");
                client.process_new_packets().expect("honest");
            }
        }
        let (label, context) = (b"EXPORTER FOR TESTS", b"some context");
        let expected =
            client.export_keying_material([0; 32], label, Some(context)).expect("finished");
        assert_eq!(exporter.export(label, context), Some(expected));
        let servers =
            server.export_keying_material([0; 32], label, Some(context)).expect("finished");
        assert_eq!(servers, expected);
    }
}
