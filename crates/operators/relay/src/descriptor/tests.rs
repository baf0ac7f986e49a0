use super::*;
use curve25519_dalek::montgomery::MontgomeryPoint;
use ed25519_dalek::{Verifier, VerifyingKey};
use link::IdentityIssuer;
use onion::keys::verify_rsa;
use onion::router::ExitPolicy;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

struct Made {
    keys: LongTermKeys,
    certified: Certified,
    tap: TapKey,
}

/// Keys are slow to make: one set for all tests.
fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut rng = StdRng::from_seed([5; 32]);
        let keys = LongTermKeys::generate(&mut rng).expect("keys");
        let mut issuer = IdentityIssuer::new([6; 32], 1_700_000_000).expect("keys");
        let certified = issuer.certify(&keys).expect("certificates");
        let tap = TapKey::generate(&keys, &mut rng).expect("a key");
        Made { keys, certified, tap }
    })
}

fn written(announcement: &Announcement) -> String {
    let Made { keys, certified, tap } = made();
    write(announcement, None, keys, certified, tap).expect("written")
}

/// The bytes of the object after an item.
fn object(text: &str, item: &str) -> Vec<u8> {
    let (_, rest) = text.split_once(&format!("\n{item}")).expect("the item");
    let body = rest.lines().skip_while(|line| !line.starts_with("-----BEGIN")).skip(1);
    let body: String = body.take_while(|line| !line.starts_with("-----END")).collect();
    STANDARD.decode(body).expect("base64")
}

/// An exit to port 80.
fn web() -> ExitConfig {
    let policy = ExitPolicy::new(vec!["accept *:80".parse().expect("a rule")]);
    ExitConfig { policy, ipv6: true, ..ExitConfig::default() }
}

fn announcement() -> impl Strategy<Value = Announcement> {
    let who = ("[A-Za-z0-9]{1,19}", any::<[u8; 4]>(), 1..=u16::MAX, any::<[u64; 3]>());
    let when = (0..253_402_300_800_u64, any::<u64>(), proptest::option::of("[!-~]( ?\\PC){0,60}"));
    (who, when).prop_map(
        |((name, address, or_port, bandwidths), (published, uptime_s, contact))| Announcement {
            nickname: name.parse().expect("a nickname"),
            address: address.into(),
            or_port,
            rate_bytes_s: bandwidths[0],
            burst_bytes_s: bandwidths[1],
            observed_bytes_s: bandwidths[2],
            published,
            uptime_s,
            contact,
            capabilities: Capabilities::of_engine(true),
            exit: Some(web()),
            family: Vec::new(),
            family_certs: Vec::new(),
            overload: String::new(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_descriptor_survives_a_round_trip(announced in announcement()) {
        let text = written(&announced);
        let (good, bad) = netdoc::descriptor::parse_all(text.as_bytes());
        prop_assert_eq!(bad, vec![]);
        prop_assert_eq!(good.len(), 1);
        let read = &good[0];
        let own = &made().certified.identity;
        prop_assert_eq!(read.nickname, announced.nickname);
        prop_assert_eq!(read.address, announced.address);
        prop_assert_eq!((read.or_port, read.dir_port), (announced.or_port, 0));
        prop_assert_eq!(read.fingerprint, own.rsa);
        prop_assert_eq!(read.ed25519, Some(own.ed25519));
        prop_assert_eq!(read.ntor_onion_key, Some(own.onion_key()));
        prop_assert_eq!(read.published, announced.published);
        prop_assert_eq!(read.uptime_s, Some(announced.uptime_s));
        let within = |bytes: u64, least: u64| bytes.clamp(least, BANDWIDTH_MAX);
        prop_assert_eq!(read.bandwidth_avg_bytes_s, within(announced.rate_bytes_s, 1));
        prop_assert_eq!(read.bandwidth_burst_bytes_s, within(announced.burst_bytes_s, 1));
        prop_assert_eq!(read.bandwidth_observed_bytes_s, within(announced.observed_bytes_s, 0));
        prop_assert_eq!(read.contact().map(|text| text.into_owned()), announced.contact);
        prop_assert_eq!(read.proto, Some(&*announced.capabilities.protocols()));
        prop_assert_eq!(read.tor_version(), None);
        prop_assert!(!read.hibernating);
        // Far below the limit of authorities (`MAX_DESCRIPTOR_UPLOAD_SIZE`).
        prop_assert!(text.len() < 5_000);
    }
}

fn sample() -> Announcement {
    Announcement {
        nickname: "sample".parse().expect("a nickname"),
        address: Ipv4Addr::LOCALHOST,
        or_port: 9001,
        rate_bytes_s: 1_250_000,
        burst_bytes_s: 2_500_000,
        observed_bytes_s: 0,
        published: 1_700_000_000,
        uptime_s: 7,
        contact: None,
        capabilities: Capabilities::of_engine(false),
        exit: None,
        family: Vec::new(),
        family_certs: Vec::new(),
        overload: String::new(),
    }
}

#[test]
fn items_are_in_the_order_that_tor_requires() {
    let text = written(&sample());
    let mut is_object = false;
    let items = text.lines().filter_map(|line| {
        let skip = is_object || line.starts_with("-----");
        is_object = (is_object || line.starts_with("-----BEGIN")) && !line.starts_with("-----END");
        (!skip).then(|| line.split(' ').next().unwrap_or_default())
    });
    let items: Vec<_> = items.collect();
    // The certificate follows `router`, and the signatures end it all; the rest is free.
    assert_eq!(items[..2], ["router", "identity-ed25519"]);
    assert_eq!(items[items.len() - 2..], ["router-sig-ed25519", "router-signature"]);
    assert!(text.starts_with("router sample 127.0.0.1 9001 0 0\n"));
    assert!(text.contains("\npublished 2023-11-14 22:13:20\n"));
    assert!(text.contains("\nbandwidth 1250000 2500000 0\n") && text.contains("\nreject *:*\n"));
    assert!(text.ends_with("\n-----END SIGNATURE-----\n"));
}

#[test]
fn signatures_and_cross_certificates_are_valid() {
    let Made { keys, certified, .. } = made();
    let text = written(&sample());
    let (signed, signature) = text.split_once("\nrouter-signature\n").expect("signed");
    let signed_by_rsa = format!("{signed}\nrouter-signature\n");
    assert!(signature.starts_with("-----BEGIN SIGNATURE-----\n"));
    let rsa_signature = object(&text, "router-signature");
    let digest = Sha1::digest(signed_by_rsa);
    assert!(verify_rsa(keys.rsa.public_der(), &digest, &rsa_signature));

    let (before, line) = signed.split_once("router-sig-ed25519 ").expect("signed");
    let digest = Sha256::new()
        .chain_update(b"Tor router descriptor signature v1")
        .chain_update(before)
        .chain_update("router-sig-ed25519 ")
        .finalize();
    let signature: [u8; 64] = STANDARD_NO_PAD.decode(line).expect("base64").try_into().expect("64");
    let signing = certified.signing_key.verifying_key();
    signing.verify(&digest, &signature.into()).expect("signed with Ed25519");

    let identities = [&certified.identity.rsa.0[..], &certified.identity.ed25519.0].concat();
    let tap = object(&text, "onion-key\n");
    assert!(verify_rsa(&tap, &identities, &object(&text, "onion-key-crosscert\n")));

    let (_, sign) = text.split_once("\nntor-onion-key-crosscert ").expect("the item");
    let sign = u8::from(sign.starts_with('1'));
    let onion = MontgomeryPoint(certified.identity.onion_key()).to_edwards(sign).expect("a point");
    let onion = VerifyingKey::from_bytes(onion.compress().as_bytes()).expect("a key");
    let cert = object(&text, "ntor-onion-key-crosscert");
    let (body, signature) = cert.split_last_chunk::<64>().expect("signed");
    onion.verify(body, &signature.into()).expect("cross-certified");
    assert_eq!(&body[7..39], &certified.identity.ed25519.0);
}

#[test]
fn the_descriptor_announces_only_existing_capabilities() {
    let text = written(&sample());
    for item in ["tunnelled-dir-server", "extra-info-digest", "ipv6-policy", "accept"] {
        assert!(!text.contains(&format!("\n{item}")), "{item}");
    }
    let capabilities = Capabilities::of_engine(true);
    let exit = Announcement { capabilities, exit: Some(web()), ..sample() };
    let text = written(&exit);
    let lines = "\naccept *:80\nreject *:*\nipv6-policy accept 80\ntunnelled-dir-server\n";
    assert!(text.contains(lines), "{text}");
}

#[test]
fn the_descriptor_has_the_digest_of_its_signed_extra_info_document() {
    let Made { keys, certified, tap } = made();
    let announced = sample();
    let history = "write-history 2023-11-14 22:00:00 (86400 s) 1024\n";
    let (name, date) = (announced.nickname, announced.published);
    let extra = ExtraInfo::new(name, date, history, keys, certified).expect("written");
    let text = write(&announced, Some(&extra), keys, certified, tap).expect("written");
    let (_, rest) = text.split_once("\nextra-info-digest ").expect("named");
    let digests = rest.split('\n').next().expect("a line");
    assert_eq!(digests, extra.digests());

    let document = extra.text();
    let begin = format!("extra-info sample {}\nidentity-ed25519\n", certified.identity.rsa);
    assert!(document.starts_with(&begin), "{document}");
    let date = "\npublished 2023-11-14 22:13:20\nwrite-history";
    assert!(document.contains(date) && document.contains(history));
    let (signed, _) = document.split_once("-----BEGIN SIGNATURE-----").expect("signed");
    let sha1 = Sha1::digest(signed);
    assert_eq!(extra.sha1(), <[u8; 20]>::from(sha1));
    assert!(digests.starts_with(&hex::encode_upper(sha1)));
    assert!(digests.ends_with(&STANDARD_NO_PAD.encode(Sha256::digest(document))));
    let signature = object(document, "router-signature");
    assert!(verify_rsa(keys.rsa.public_der(), &sha1, &signature));
}
