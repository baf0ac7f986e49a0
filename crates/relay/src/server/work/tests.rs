use super::*;
use crate::cache::tests::documents;
use crate::cache::{Cache, Documents};
use crate::server::answer::{Request, answer};
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
    Answer { status: 200, body, wants_deflated: true, ..Answer::BUSY }
}

#[tokio::test(start_paused = true)]
async fn what_single_requests_have_compressed_stays_within_a_rate_whoever_asks() {
    let work = work();
    let ask = async |bytes| held(&work).finish(found(bytes)).await;
    for _ in 0..10 * BURST_BYTES / TEXT_MAX {
        let answer = ask(TEXT_MAX).await;
        assert_eq!(answer.status, 200, "nobody is refused");
        assert!(answer.is_deflated || answer.body.len() == TEXT_MAX);
    }
    assert_eq!(work.compressed_bytes(), BURST_BYTES);
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..10 * RATE_BYTES_S / TEXT_MAX {
        ask(TEXT_MAX).await;
    }
    assert_eq!(work.compressed_bytes(), BURST_BYTES + RATE_BYTES_S);
    // After a long pause it is no more than at first.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    for _ in 0..2 * BURST_BYTES / TEXT_MAX {
        ask(TEXT_MAX).await;
    }
    assert_eq!(work.compressed_bytes(), 2 * BURST_BYTES + RATE_BYTES_S);
    // What is longer than any honest request is never compressed.
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
async fn the_descriptors_of_all_relays_are_compressed_once_however_often_they_are_asked_for() {
    let (work, cache) = (work(), Cache::default());
    cache.set(documents().0);
    let text = all(&cache.get()).body.texts().concat();
    assert!(text.len() > 1000);
    // Some go away before they have their answers.
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
        // The same documents are set again, as after a look at the authorities that brought nothing.
        cache.set(Documents::clone(&cache.get()));
        assert_eq!(work.compressed_bytes(), text.len(), "round {round}");
    }
    // With another descriptor they are other ones.
    let mut other = Documents::clone(&cache.get());
    other.own.fingerprint = Some("0123456789ABCDEF0123456789ABCDEF01234567".parse().expect("one"));
    other.own.descriptor = Bytes::from_static(b"router own\n");
    cache.set(other);
    for _ in 0..3 {
        assert!(held(&work).finish(all(&cache.get())).await.is_deflated);
    }
    assert_eq!(work.compressed_bytes(), 2 * text.len() + "router own\n".len());
}

#[tokio::test]
async fn answers_that_nobody_reads_have_a_bound_together_and_documents_of_the_cache_are_shared() {
    let work = work();
    // As many documents as there may be in one answer, of any length.
    let document = Bytes::from(vec![0; 20_000]);
    let found = || {
        let body = Body::Texts(vec![document.clone(); 500]);
        Answer { status: 200, body, ..Answer::BUSY }
    };
    let mut waiting = Vec::new();
    for _ in 0..ANSWERS_MAX / (500 * size_of::<Bytes>()) {
        let held = held(&work);
        let answer = held.finish(found()).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.texts().iter().all(|text| text.as_ptr() == document.as_ptr()));
        waiting.push((held, answer));
    }
    let one_more = held(&work);
    assert_eq!(one_more.finish(found()).await.status, 503);
    // A client that was refused holds nothing, and one that leaves makes room.
    drop(one_more);
    waiting.pop();
    assert_eq!(held(&work).finish(found()).await.status, 200);
    drop(waiting);
    assert_eq!(work.held_bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn memory_is_taken_before_the_work_is_done() {
    let work = work();
    let full = held(&work);
    assert!(full.take(ANSWERS_MAX - 1000));
    assert_eq!(held(&work).finish(found(10_000)).await.status, 503);
    assert_eq!(work.compressed_bytes(), 0);
    drop(full);
    let held = held(&work);
    let answer = held.finish(found(10_000)).await;
    assert_eq!(work.compressed_bytes(), 10_000);
    let own = answer.body.len() + size_of::<Bytes>();
    assert_eq!(work.held_bytes.load(Ordering::Relaxed), own, "what is left is the answer's own");
}
