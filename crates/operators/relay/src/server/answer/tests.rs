use super::*;
use dirmgr::Cache;
use dirmgr::documents::{CachedConsensus, OwnDocuments, PAST_MAX, deflate};
use dirmgr::fixture::{NOW, authorities, documents};
use flate2::read::ZlibDecoder;
use netdoc::descriptor;
use proptest::prelude::*;
use std::io::Read;

const NOBODY: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

/// Documents with consensuses that are valid now.
fn served() -> Documents {
    let (mut documents, _) = documents();
    let live = |listing: &CachedConsensus| {
        let mut content = (*listing.content).clone();
        (content.valid_after, content.fresh_until) = (NOW, NOW + 3_600);
        content.valid_until = NOW + 3 * 3_600;
        Some(CachedConsensus { content: content.into(), ..listing.clone() }.into())
    };
    documents.ns = documents.ns.as_deref().and_then(live);
    documents.microdesc = documents.microdesc.as_deref().and_then(live);
    documents.own = OwnDocuments {
        descriptor: Bytes::from_static(b"router own\n"),
        extra_info: Bytes::from_static(b"extra-info own\n"),
        fingerprint: Some(NOBODY.parse().expect("a fingerprint")),
        descriptor_digest: [1; 20],
        extra_info_digest: [2; 20],
    };
    gathered(documents)
}

/// The documents as a cache prepares them.
fn gathered(documents: Documents) -> Documents {
    let cache = Cache::default();
    cache.set(documents);
    Documents::clone(&cache.get())
}

/// The content that is sent while the limits are not reached.
fn content(answer: &Answer) -> Vec<u8> {
    let texts = answer.body.texts();
    if answer.wants_deflated && !answer.is_deflated {
        return deflate(texts.iter().map(|text| &text[..])).to_vec();
    }
    texts.concat()
}

fn get(documents: &Documents, path: &str) -> Answer {
    answer(
        documents,
        Request { path, accept_encoding: "", if_modified_since: None, diff_from: "" },
        NOW,
    )
}

fn body(documents: &Documents, path: &str) -> String {
    let plain = get(documents, path);
    assert_eq!((plain.status, plain.is_deflated), (200, false), "{path}: {}", plain.reason);
    assert!(!plain.wants_deflated, "{path}");
    let deflated = get(documents, &format!("{path}.z"));
    assert_eq!(deflated.status, 200, "{path}");
    assert!(deflated.is_deflated || deflated.wants_deflated, "{path}");
    let mut inflated = Vec::new();
    ZlibDecoder::new(&content(&deflated)[..]).read_to_end(&mut inflated).expect("deflated");
    assert_eq!(content(&plain), inflated, "{path}");
    String::from_utf8(inflated).expect("text")
}

fn missing(documents: &Documents, path: &str) {
    let Answer { status, .. } = get(documents, path);
    assert_eq!(status, 404, "{path}");
}

#[test]
fn a_consensus_of_either_flavour_needs_enough_of_the_requested_signatures() {
    let documents = served();
    let base = "/tor/status-vote/current/consensus";
    let ns = body(&documents, base);
    assert!(ns.contains("network-status-version 3\n"), "{ns}");
    assert_eq!(body(&documents, &format!("{base}-ns")), ns);
    let micro = body(&documents, &format!("{base}-microdesc"));
    assert!(micro.starts_with("network-status-version 3 microdesc\n"));

    let [a, b, c] = authorities().each_ref().map(|authority| authority.name().0.to_string());
    // Two of three have signed. Prefixes of their identities are enough.
    let (short_a, short_b) = (&a[..6], b[..6].to_lowercase());
    for enough in [format!("{a}+{b}+{c}"), format!("{short_a}+{short_b}"), a.clone()] {
        assert_eq!(body(&documents, &format!("{base}-microdesc/{enough}")), micro);
    }
    for too_few in [format!("{a}+{c}"), c, NOBODY.to_owned(), String::new()] {
        missing(&documents, &format!("{base}-microdesc/{too_few}"));
    }
    missing(&documents, &format!("{base}-microdesc/diff/{}/{a}", "0".repeat(64)));
    missing(&documents, &format!("{base}-other"));
    missing(&Documents::default(), base);
}

#[test]
fn known_and_expired_consensuses_are_not_sent() {
    let documents = served();
    let path = "/tor/status-vote/current/consensus-microdesc.z";
    let at = |now, if_modified_since| {
        let request = Request { path, accept_encoding: "", if_modified_since, diff_from: "" };
        answer(&documents, request, now)
    };
    assert_eq!(at(NOW, Some(NOW - 1)).status, 200);
    assert_eq!(at(NOW, Some(NOW)).status, 304);
    assert_eq!(at(NOW + 1_000, None).lifetime_s, 2_600);
    assert_eq!(at(NOW + 4_000, None).lifetime_s, 0);
    assert!(at(NOW, None).is_consensus);
    assert_eq!(at(NOW + 27 * 3_600, None).status, 200);
    assert_eq!(at(NOW + 27 * 3_600 + 1, None).reason, "Consensus is too old");
}

#[test]
fn a_client_with_an_earlier_consensus_receives_a_diff() {
    let mut documents = served();
    let later = documents.microdesc.clone().expect("one");
    let text = std::str::from_utf8(&later.text).expect("text");
    let earlier = text.replacen("\nparams ", "\nparams a=1 ", 1);
    assert_ne!(earlier, text);
    let earlier =
        CachedConsensus::parse(earlier.into_bytes(), Flavour::Microdesc).expect("a consensus");
    let (from, digest) = (earlier.text.clone(), hex::encode_upper(earlier.digest));
    documents.microdesc = Some(earlier.into());
    documents.put_consensus(NOW, CachedConsensus::clone(&later));

    let path = "/tor/status-vote/current/consensus-microdesc";
    let ask = |documents: &Documents, path: &str, diff_from: &str| {
        let request = Request { path, accept_encoding: "", if_modified_since: None, diff_from };
        answer(documents, request, NOW)
    };
    assert!(!ask(&documents, path, &digest).is_diff, "none is made yet");
    documents.make_diffs();
    let unknown = "0".repeat(64);
    let several = format!("rubbish {unknown} {digest}");
    let by_path = format!("{path}/diff/{digest}");
    let signer = authorities()[0].name().0;
    for (path, diff_from) in [
        (path, &digest[..]),
        (path, &digest.to_lowercase()),
        (path, &several),
        (&by_path, ""),
        (&format!("{by_path}/{signer}"), ""),
    ] {
        let found = ask(&documents, path, diff_from);
        assert!(found.is_diff && found.is_consensus, "{path} {diff_from}");
        let made = netdoc::consdiff::apply(&from, &content(&found), 1 << 20).expect("it fits");
        assert_eq!(made, later.text);
        let deflated = ask(&documents, &format!("{path}.z"), diff_from);
        let mut inflated = Vec::new();
        ZlibDecoder::new(&content(&deflated)[..]).read_to_end(&mut inflated).expect("deflated");
        assert!(deflated.is_deflated);
        assert_eq!(inflated, content(&found));
    }
    for diff_from in ["", &unknown, "rubbish"] {
        assert_eq!(content(&ask(&documents, path, diff_from)), later.text, "{diff_from}");
    }
    assert_eq!(ask(&documents, &format!("{path}/diff/{unknown}"), "").status, 404);
    assert_eq!(ask(&documents, &format!("{by_path}/{NOBODY}"), "").status, 404);
    let present = hex::encode(later.digest);
    assert_eq!(ask(&documents, path, &present).status, 304);
    // The other flavour has another digest.
    assert!(!ask(&documents, "/tor/status-vote/current/consensus", &digest).is_diff);
}

#[test]
fn earlier_consensuses_are_kept_within_bounds() {
    let mut documents = served();
    let text =
        String::from_utf8(documents.microdesc.clone().expect("one").text.to_vec()).expect("text");
    let consensus = |number: usize| {
        let text = text.replacen("\nparams ", &format!("\nparams a={number} "), 1);
        CachedConsensus::parse(text.into_bytes(), Flavour::Microdesc).expect("a consensus")
    };
    let digests: Vec<_> = (0..PAST_MAX + 3).map(|number| consensus(number).digest).collect();
    for number in 0..PAST_MAX + 3 {
        documents.put_consensus(NOW, consensus(number));
    }
    documents.make_diffs();
    let earlier = documents.past(Flavour::Microdesc);
    let found: Vec<_> = digests.iter().map(|digest| earlier.find(&[*digest]).is_some()).collect();
    assert_eq!(found.iter().filter(|found| **found).count(), PAST_MAX);
    assert_eq!(found[..2], [false, false], "the oldest are gone");
    assert!(!found[PAST_MAX + 2], "a client needs no diff to its own consensus");
}

#[test]
fn encodings_are_what_the_client_accepts() {
    let documents = served();
    let deflated = |path, accept_encoding| {
        let request = Request { path, accept_encoding, if_modified_since: None, diff_from: "" };
        answer(&documents, request, NOW).wants_deflated
    };
    let path = "/tor/keys/all";
    assert!(deflated(path, "deflate, gzip, x-zstd, x-tor-lzma"));
    assert!(deflated(path, "identity,deflate;q=1"));
    assert!(!deflated(path, "identity") && !deflated(path, "") && !deflated(path, "x-deflate"));
    assert!(deflated("/tor/keys/all.z", "identity"));
}

#[test]
fn microdescriptors_are_found_by_their_digests() {
    let documents = served();
    let names: Vec<_> =
        documents.micro.keys().map(|digest| STANDARD_NO_PAD.encode(digest)).collect();
    let all: Vec<_> = documents.micro.values().map(|kept| kept.text.clone()).collect();
    let found = body(&documents, &format!("/tor/micro/d/{}", names.join("-")));
    assert_eq!(found.as_bytes(), all.concat());
    let one = format!("/tor/micro/d/{}=-{}-rubbish", names[0], STANDARD_NO_PAD.encode([0; 32]));
    assert_eq!(body(&documents, &one).as_bytes(), all[0]);
    missing(&documents, "/tor/micro/d/");
    missing(&documents, &format!("/tor/micro/d/{}", STANDARD_NO_PAD.encode([0; 32])));
}

#[test]
fn certificates_are_found_by_identity_signing_key_or_both() {
    let documents = served();
    let [a, b, c] = authorities();
    let all = body(&documents, "/tor/keys/all");
    for authority in [a, b, c] {
        assert!(all.contains(&authority.certificate));
        let (identity, key) = authority.name();
        for path in
            [format!("fp/{identity}"), format!("sk/{key}"), format!("fp-sk/{identity}-{key}")]
        {
            assert_eq!(body(&documents, &format!("/tor/keys/{path}")), authority.certificate);
        }
    }
    let ((a, key_a), (b, key_b)) = (a.name(), b.name());
    let two = body(&documents, &format!("/tor/keys/fp-sk/{a}-{key_a}+{b}-{key_b}"));
    assert_eq!(two.matches("dir-key-certificate-version").count(), 2);
    missing(&documents, &format!("/tor/keys/fp-sk/{a}-{key_b}"));
    missing(&documents, &format!("/tor/keys/fp/{NOBODY}"));
    assert_eq!(get(&documents, "/tor/keys/nonsense").status, 400);
    let since = |unix| {
        let request = Request {
            path: "/tor/keys/all",
            accept_encoding: "",
            if_modified_since: Some(unix),
            diff_from: "",
        };
        answer(&documents, request, NOW).status
    };
    // 2023-01-01 00:00:00
    assert_eq!((since(1_672_531_200), since(1_672_531_201)), (200, 304));
}

#[test]
fn descriptors_are_found_by_relay_or_digest_and_the_own_one_as_authority() {
    let documents = served();
    let (relay, digest) = documents.by_relay.iter().next().expect("descriptors");
    let text = body(&documents, &format!("/tor/server/fp/{relay}"));
    let read = descriptor::iter(text.as_bytes()).next().expect("one").expect("sound");
    assert_eq!(read.fingerprint, *relay);
    let by_digest = format!("/tor/server/d/{}+{}", hex::encode(digest), hex::encode([9; 20]));
    assert_eq!(body(&documents, &by_digest), text);
    let own = "router own\n";
    for path in ["authority", &format!("fp/{NOBODY}"), &format!("d/{}", hex::encode([1; 20]))] {
        assert_eq!(body(&documents, &format!("/tor/server/{path}")), own, "{path}");
    }
    let all = body(&documents, "/tor/server/all");
    assert!(all.contains(own) && all.contains(&text));

    let extra = "extra-info own\n";
    for path in ["authority", &format!("fp/{NOBODY}"), &format!("d/{}", hex::encode([2; 20]))] {
        assert_eq!(body(&documents, &format!("/tor/extra/{path}")), extra, "{path}");
    }
    missing(&documents, &format!("/tor/extra/fp/{relay}"));
    missing(&documents, "/tor/extra/all");
    missing(&documents, "/tor/server/nonsense");
    // An empty cache.
    for path in ["/tor/server/authority", "/tor/server/all", "/tor/extra/authority"] {
        missing(&Documents::default(), path);
    }
}

proptest! {
    #[test]
    fn any_request_is_answered(
        path in "/tor/(status-vote/current/consensus|micro/d/|keys/|server/|extra/)\
                 (-microdesc|fp/|d/|sk/|fp-sk/|all|diff/|[0-9A-F]{40}|[-+/.z]|\\PC){0,8}",
    ) {
        let documents = served();
        let Answer { status, body, .. } = get(&documents, &path);
        prop_assert!([200, 304, 400, 404].contains(&status));
        prop_assert_eq!(status == 200, body.len() > 0);
    }
}
