use super::*;
use crate::fixture::{authorities, signed_by};
use netdoc::consdiff::ConsensusDigest;
use std::cell::RefCell;
use std::rc::Rc;

type Asked = Rc<RefCell<Vec<SocketAddr>>>;

/// Directories that all answer 304, or with the given text. Records which were asked.
struct NothingLater(Asked, Option<Vec<u8>>);

fn directory(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number))
}

fn config(authorities: &[u16], identities: BTreeSet<RsaId>) -> FetcherConfig {
    let authorities = authorities.iter().copied().map(directory).collect();
    FetcherConfig { authorities, identities, folder: "/nonexistent".into(), first: 0 }
}

impl Source for NothingLater {
    fn mirrors(&mut self) -> Vec<SocketAddr> {
        vec![directory(1)]
    }

    fn get_since(
        &mut self,
        from: SocketAddr,
        what: &Resource,
        _: &[ConsensusDigest],
        _: &Fetcher,
    ) -> Result<Vec<u8>, FetchError> {
        self.0.borrow_mut().push(from);
        if let Some(current) = &self.1 {
            return Ok(current.clone());
        }
        Err(FetchError { url: what.to_string(), problem: Problem::Status { status: 304 } })
    }
}

#[test]
fn a_single_directory_cannot_hide_an_overdue_consensus() {
    let all: Vec<_> = authorities().iter().collect();
    let text = signed_by(&all);
    let trusted: BTreeSet<_> = all.iter().map(|authority| authority.name().0).collect();
    let consensus = CachedConsensus::parse(text.clone(), Flavour::Microdesc).expect("a consensus");
    let content = Arc::clone(&consensus.content);
    let mut documents = Documents::default();
    documents.put_consensus(content.valid_until, consensus);
    for authority in all {
        let certificate = authority.certificate.as_bytes();
        documents.put_certificates(content.valid_until, certificate, Wanted::These(&trusted));
    }
    let interval = content.fresh_until - content.valid_after;
    let overdue = content.fresh_until + 120.min(interval / 16).max(1) + interval / 2;
    assert!(overdue < content.valid_until, "the fixture");
    // A mirror is believed until every directory should have a later one, an authority until the
    // consensus has expired.
    let expected =
        [(overdue, 1), (overdue + 1, 2), (content.valid_until, 2), (content.valid_until + 1, 3)];
    for (now, expected) in expected {
        for given in [None, Some(text.clone())] {
            let asked = Asked::default();
            let source = NothingLater(Rc::clone(&asked), given);
            let config = config(&[2, 3], trusted.clone());
            let mut fetcher = ConsensusFetcher::for_client(config, source, now);
            let is_new = fetcher.fetch_consensus(&mut documents, Flavour::Microdesc, now);
            assert!(matches!(is_new, Ok(false)), "{is_new:?}");
            assert_eq!(asked.borrow().len(), expected, "{asked:?} at {now}");
            assert_eq!(asked.borrow()[0], directory(1), "the mirror first");
        }
    }
}

#[test]
fn an_invalid_consensus_is_rejected_with_its_defect() {
    let [a, b, c] = authorities();
    let trusted: BTreeSet<_> = [a, b, c].map(|authority| authority.name().0).into();
    let text = signed_by(&[a]);
    let live = Consensus::parse(&text).expect("a consensus").valid_after;
    let refusal = |text: &[u8], flavour, now| {
        let source = NothingLater(Asked::default(), Some(text.to_vec()));
        let mut fetcher = ConsensusFetcher::for_client(config(&[], trusted.clone()), source, now);
        let mut documents = Documents::default();
        documents.put_certificates(now, a.certificate.as_bytes(), Wanted::All);
        fetcher.fetch_consensus(&mut documents, flavour, now).expect_err("refused")
    };
    let micro = Flavour::Microdesc;
    assert!(matches!(refusal(b"x", micro, live), FetchProblem::Malformed(_)));
    assert!(matches!(refusal(&text, Flavour::Ns, live), FetchProblem::WrongFlavour { .. }));
    assert!(matches!(refusal(&text, micro, 0), FetchProblem::NotLive { .. }));
    let problem = refusal(&text, micro, live);
    assert!(matches!(problem, FetchProblem::TooFewSigners { signers: 1, quorum: 2, .. }));
}

/// A directory that answers every request with a document that was not requested.
struct Useless(Asked);

impl Source for Useless {
    fn mirrors(&mut self) -> Vec<SocketAddr> {
        vec![directory(1)]
    }

    fn get_since(
        &mut self,
        from: SocketAddr,
        _: &Resource,
        _: &[ConsensusDigest],
        _: &Fetcher,
    ) -> Result<Vec<u8>, FetchError> {
        self.0.borrow_mut().push(from);
        Ok(b"onion-key\nnot requested\n".to_vec())
    }
}

#[test]
fn a_directory_with_bad_answers_is_not_asked_for_everything() {
    // A consensus that lists many microdescriptors.
    let mut text = String::from_utf8(signed_by(&[&authorities()[0]])).expect("text");
    let at = text.find("directory-footer").expect("a consensus");
    let more: String = (0..1000_u32)
        .map(|number| {
            // Sorted after the relays that are listed already.
            let mut digest = [0xff; 32];
            digest[4..8].copy_from_slice(&number.to_be_bytes());
            let identity = STANDARD_NO_PAD.encode(&digest[..20]);
            let digest = STANDARD_NO_PAD.encode(digest);
            format!("r n{number} {identity} 2020-01-01 00:00:00 10.0.0.1 9001 0\nm {digest}\ns Running Valid\nw Bandwidth=1\n")
        })
        .collect();
    text.insert_str(at, &more);
    let consensus = CachedConsensus::parse(text.into_bytes(), Flavour::Microdesc).expect("parsed");
    let now = consensus.content.valid_after;
    let mut documents = Documents::default();
    documents.put_consensus(now, consensus);
    assert!(documents.missing_micro().len() > 4 * BATCH);
    let asked = Asked::default();
    let source = Useless(Rc::clone(&asked));
    let mut fetcher = ConsensusFetcher::for_client(config(&[2], BTreeSet::new()), source, now);
    fetcher.fetch_missing(&mut documents, now);
    let expected =
        [directory(1), directory(2)].map(|directory| [directory; POOR_ANSWERS_MAX]).concat();
    assert_eq!(*asked.borrow(), expected);
}
