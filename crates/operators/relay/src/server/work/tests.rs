use super::*;
use crate::server::answer::{Request, answer};
use dirmgr::fixture::documents;
use dirmgr::{Cache, Documents};
use flate2::read::ZlibDecoder;
use std::io::Read;

fn work() -> Arc<Work> {
    Arc::new(Work::new(Instant::now()))
}

fn held(work: &Arc<Work>) -> Held {
    Held::new(Arc::clone(work))
}

/// Documents of this length in bytes, which the client accepts compressed.
fn found(bytes: usize) -> Answer {
    let body = Body::Texts(vec![vec![0; bytes].into()]);
    Answer { body, wants_deflated: true, ..Answer::short(200, "OK") }
}

#[tokio::test(start_paused = true)]
async fn compression_for_single_requests_is_rate_limited() {
    let work = work();
    let ask = async |bytes| held(&work).finish(found(bytes)).await;
    for _ in 0..10 * BURST_BYTES / TEXT_MAX {
        let answer = ask(TEXT_MAX).await;
        assert_eq!(answer.status, 200, "no request is refused");
        assert!(answer.is_deflated || answer.body.len() == TEXT_MAX);
    }
    assert_eq!(work.compressed_bytes(), BURST_BYTES);
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..10 * RATE_BYTES_S / TEXT_MAX {
        ask(TEXT_MAX).await;
    }
    assert_eq!(work.compressed_bytes(), BURST_BYTES + RATE_BYTES_S);
    // After a long pause only the burst is available.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    for _ in 0..2 * BURST_BYTES / TEXT_MAX {
        ask(TEXT_MAX).await;
    }
    assert_eq!(work.compressed_bytes(), 2 * BURST_BYTES + RATE_BYTES_S);
    // A text larger than any honest request is never compressed.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(!ask(TEXT_MAX + 1).await.is_deflated);
    assert_eq!(work.compressed_bytes(), 2 * BURST_BYTES + RATE_BYTES_S);
}

fn all(documents: &Documents) -> Answer {
    let path = "/tor/server/all.z";
    answer(
        documents,
        Request { path, accept_encoding: "", if_modified_since: None, diff_from: "" },
        0,
    )
}

#[tokio::test]
async fn the_descriptors_of_all_relays_are_compressed_once() {
    let (work, cache) = (work(), Cache::default());
    cache.set(documents().0);
    let text = all(&cache.get()).body.texts().concat();
    assert!(text.len() > 1000);
    // Some clients disconnect before their answers.
    for _ in 0..3 {
        let impatient = held(&work);
        tokio::select! {
            biased;
            () = std::future::ready(()) => {}
            _ = impatient.finish(all(&cache.get())) => {}
        }
    }
    for round in 0..5 {
        let asked: Vec<_> = (0..4).map(|_| (held(&work), all(&cache.get()))).collect();
        for (held, answer) in asked {
            let answer = held.finish(answer).await;
            let mut inflated = Vec::new();
            let body = answer.body.texts().concat();
            ZlibDecoder::new(&body[..]).read_to_end(&mut inflated).expect("deflated");
            assert!(answer.is_deflated && inflated == text);
        }
        // The same documents are set again, as after a fetch without new documents.
        cache.set(Documents::clone(&cache.get()));
        assert_eq!(work.compressed_bytes(), text.len(), "round {round}");
    }
    // Another descriptor changes the documents.
    let mut other = Documents::clone(&cache.get());
    other.own.fingerprint = Some("0123456789ABCDEF0123456789ABCDEF01234567".parse().expect("one"));
    other.own.descriptor = Bytes::from_static(b"router own\n");
    cache.set(other);
    for _ in 0..3 {
        assert!(held(&work).finish(all(&cache.get())).await.is_deflated);
    }
    assert_eq!(work.compressed_bytes(), 2 * text.len() + "router own\n".len());
}

#[tokio::test(start_paused = true)]
async fn documents_are_sent_uncompressed_if_unread_answers_fill_the_memory() {
    let work = work();
    let full = held(&work);
    assert!(full.take(ANSWERS_MAX - 1000));
    let other = held(&work);
    let found = found(10_000);
    let text = found.body.texts()[0].as_ptr();
    let answer = other.finish(found).await;
    assert_eq!((answer.status, answer.is_deflated), (200, false));
    assert_eq!(answer.body.texts()[0].as_ptr(), text, "nothing is copied");
    assert_eq!(work.compressed_bytes(), 0, "memory is taken before the work is done");
    assert_eq!(work.held_bytes.load(Ordering::Relaxed), ANSWERS_MAX - 1000, "it holds nothing");
    drop(full);
    let answer = other.finish(self::found(10_000)).await;
    assert!(answer.is_deflated);
    assert_eq!(work.compressed_bytes(), 10_000);
    let held = work.held_bytes.load(Ordering::Relaxed);
    assert_eq!(held, answer.body.len(), "what is left is the answer's own");
    drop(other);
    assert_eq!(work.held_bytes.load(Ordering::Relaxed), 0);
}
