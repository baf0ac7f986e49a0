use super::*;
use hyper::body::Body as _;
use std::task::Waker;

#[test]
fn all_texts_of_an_answer_are_sent_in_small_pieces() {
    let texts: Vec<Bytes> = [0, 1, PIECE_MAX, PIECE_MAX + 1, 5 * PIECE_MAX, 0]
        .iter()
        .enumerate()
        .map(|(number, len)| vec![u8::try_from(number).expect("few"); *len].into())
        .collect();
    let progress = Progress::default();
    let mut sending = Sending::new(Body::Texts(texts.clone()), progress.clone());
    let all = texts.concat();
    let mut sent = Vec::new();
    loop {
        assert_eq!(sending.size_hint().exact(), Some((all.len() - sent.len()) as u64));
        assert_eq!(sending.is_end_stream(), sent.len() == all.len());
        let frame = Pin::new(&mut sending).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(frame) = frame else { panic!("it never waits") };
        let Some(Ok(frame)) = frame else { break };
        let piece = frame.into_data().expect("data");
        assert!((1..=PIECE_MAX).contains(&piece.len()));
        sent.extend_from_slice(&piece);
        assert_eq!(progress.0.bytes.load(Ordering::Relaxed), sent.len() as u64);
    }
    assert_eq!(sent, all);
}

#[tokio::test(start_paused = true)]
async fn a_client_must_keep_the_minimum_rate() {
    let pace = Pace { interval: Duration::from_secs(10), least_bytes: 100 };
    let begin = Instant::now();
    let progress = Progress::default();
    let taking = async {
        for taken in [100, 1000, 100, 99] {
            // Halfway between two checks.
            tokio::time::sleep(Duration::from_secs(5)).await;
            progress.add(taken);
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = taking => {}
        () = progress.too_slow(pace) => {}
    }
    assert_eq!(begin.elapsed().as_secs(), 40);
}
