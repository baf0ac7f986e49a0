use super::*;
use crate::cache::tests::{authorities, signed_by};
use netdoc::consdiff::ConsensusDigest;
use std::cell::RefCell;
use std::rc::Rc;

/// Directories that all say that there is nothing later, and who of them was asked.
struct NothingLater(Rc<RefCell<Vec<SocketAddr>>>);

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
        Err(FetchError { url: what.to_string(), problem: Problem::Status { status: 304 } })
    }
}

#[test]
fn that_there_is_no_later_consensus_nobody_is_believed_alone_once_the_present_one_has_ended() {
    let everyone: Vec<_> = authorities().iter().collect();
    let listing = Listing::read(signed_by(&everyone), Flavour::Microdesc).expect("a consensus");
    let valid_until = listing.content.valid_until;
    let mut documents = Documents::default();
    documents.put_listing(valid_until, listing);
    let folder = tempfile::tempdir().expect("a folder");
    let authorities = vec![directory(2), directory(3)];
    for (now, expected) in [(valid_until, 1), (valid_until + 1, 3)] {
        let asked = Rc::default();
        let following = Following::new(
            authorities.clone(),
            BTreeSet::new(),
            folder.path().to_owned(),
            Cache::default(),
            now,
            0,
        );
        let mut following = following.for_client(NothingLater(Rc::clone(&asked)));
        let found = following.fetch_listing(&mut documents, Flavour::Microdesc, now);
        assert_eq!(found, Ok(false));
        assert_eq!(asked.borrow().len(), expected, "{asked:?}");
        assert_eq!(asked.borrow()[0], directory(1), "the nearest first");
    }
}
