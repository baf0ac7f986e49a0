use super::*;
use crate::cache::tests::{authorities, signed_by};
use netdoc::consdiff::ConsensusDigest;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Directories that all say that there is nothing later, or give what is here already; and who of them was asked.
struct NothingLater(Rc<RefCell<Vec<SocketAddr>>>, Option<Vec<u8>>);

fn directory(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number))
}

impl Source for NothingLater {
    fn nearer(&mut self) -> Vec<SocketAddr> {
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
        if let Some(present) = &self.1 {
            return Ok(present.clone());
        }
        Err(FetchError { url: what.to_string(), problem: Problem::Status { status: 304 } })
    }
}

#[test]
fn that_there_is_no_later_consensus_nobody_is_believed_alone_who_should_have_it() {
    let everyone: Vec<_> = authorities().iter().collect();
    let text = signed_by(&everyone);
    let trusted: BTreeSet<_> = everyone.iter().map(|it| it.name().0).collect();
    let listing = Listing::read(text.clone(), Flavour::Microdesc).expect("a consensus");
    let content = Arc::clone(&listing.content);
    let mut documents = Documents::default();
    documents.put_listing(content.valid_until, listing);
    for authority in everyone {
        let certificate = authority.certificate.as_bytes();
        documents.put_certificates(content.valid_until, certificate, Wanted::These(&trusted));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let interval = content.fresh_until - content.valid_after;
    let overdue = content.fresh_until + 120.min(interval / 16).max(1) + interval / 2;
    assert!(overdue < content.valid_until, "the fixture");
    let directories = vec![directory(2), directory(3)];
    // One that is no authority is believed until all should have it, an authority until it has ended.
    let expected =
        [(overdue, 1), (overdue + 1, 2), (content.valid_until, 2), (content.valid_until + 1, 3)];
    for (now, expected) in expected {
        for given in [None, Some(text.clone())] {
            let asked = Rc::default();
            let following = Following::new(
                directories.clone(),
                trusted.clone(),
                folder.path().to_owned(),
                Cache::default(),
                now,
                0,
            );
            let mut following = following.for_client(NothingLater(Rc::clone(&asked), given));
            let found = following.fetch_listing(&mut documents, Flavour::Microdesc, now);
            assert_eq!(found, Ok(false));
            assert_eq!(asked.borrow().len(), expected, "{asked:?} at {now}");
            assert_eq!(asked.borrow()[0], directory(1), "the nearest first");
        }
    }
}

/// A directory that answers all that it is asked for with nothing of use.
struct Useless(Rc<RefCell<Vec<SocketAddr>>>);

impl Source for Useless {
    fn nearer(&mut self) -> Vec<SocketAddr> {
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
        Ok(b"onion-key\nnobody asked for it\n".to_vec())
    }
}

#[test]
fn who_gives_nothing_of_use_is_not_asked_for_all() {
    // A consensus that names many microdescriptors.
    let mut text = String::from_utf8(signed_by(&[&authorities()[0]])).expect("text");
    let at = text.find("directory-footer").expect("a consensus");
    let more: String = (0..1000_u32)
        .map(|number| {
            // After those that are listed already.
            let mut digest = [0xff; 32];
            digest[4..8].copy_from_slice(&number.to_be_bytes());
            let (identity, digest) = (netdoc_base64(&digest[..20]), netdoc_base64(&digest));
            format!("r n{number} {identity} 2020-01-01 00:00:00 10.0.0.1 9001 0\nm {digest}\ns Running Valid\nw Bandwidth=1\n")
        })
        .collect();
    text.insert_str(at, &more);
    let listing = Listing::read(text.into_bytes(), Flavour::Microdesc).expect("a consensus");
    let now = listing.content.valid_after;
    let mut documents = Documents::default();
    documents.put_listing(now, listing);
    assert!(documents.missing_micro().len() > 4 * BATCH);
    let folder = tempfile::tempdir().expect("a folder");
    let asked: Rc<RefCell<Vec<SocketAddr>>> = Rc::default();
    let following = Following::new(
        vec![directory(2)],
        BTreeSet::new(),
        folder.path().to_owned(),
        Cache::default(),
        now,
        0,
    );
    let mut following = following.for_client(Useless(Rc::clone(&asked)));
    following.fetch_missing(&mut documents, now);
    let expected = [directory(1), directory(2)].map(|it| [it; POOR_ANSWERS_MAX]).concat();
    assert_eq!(*asked.borrow(), expected);
}
