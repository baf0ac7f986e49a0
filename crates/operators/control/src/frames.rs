//! Messages over a TLS connection: frames, keep-alives, and bounds.
//!
//! A frame is the length of its content (four bytes, big-endian) and the content, which is one JSON value. An empty frame is
//! a keep-alive. Each side sends one when the connection opens and every [`KEEPALIVE_INTERVAL`] from then on. A peer from
//! which no byte arrives for [`SILENCE_MAX`] is lost, and so is one that does not read for as long.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

/// Time between two keep-alives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// A measurement fills the paths of a measurer, and a loaded machine may be unresponsive for some seconds. A shorter limit
/// would end intact sessions.
const SILENCE_MAX: Duration = Duration::from_secs(12);

/// After its last message a side reads on for this long, unless the peer closes first. A socket that is closed with unread
/// data resets the connection, and the peer might lose that last message.
const LINGER: Duration = Duration::from_secs(2);

const LENGTH_BYTES: usize = 4;

/// The reason why a connection is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lost(pub(crate) String);

/// Bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum length of a received message, in bytes.
    pub(crate) message_max_bytes: usize,
    /// Maximum number of messages that wait to be sent.
    pub(crate) queued_max: usize,
}

/// A connection that sends messages of the type `Out` and receives messages of the type `In`. A task carries them.
pub(crate) struct Connection<In, Out> {
    /// Closed if the connection is lost. Dropping it closes the connection after the messages that it holds.
    pub(crate) outgoing: mpsc::Sender<Out>,
    pub(crate) incoming: Incoming<In>,
    carrier: JoinHandle<()>,
}

/// The messages that a connection receives.
pub(crate) struct Incoming<In>(mpsc::Receiver<Result<In, Lost>>);

impl<In> Incoming<In> {
    /// The next message, or `None` after the peer has closed the connection in order. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<In>, Lost> {
        self.0.recv().await.transpose()
    }
}

impl<In, Out> Connection<In, Out>
where
    In: DeserializeOwned + Send + 'static,
    Out: Serialize + Send + 'static,
{
    /// Starts to carry messages over `stream`.
    pub(crate) fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        Limits { message_max_bytes, queued_max }: Limits,
    ) -> Self {
        let (outgoing, queue) = mpsc::channel(queued_max);
        // The next message is read once the last one is taken.
        let (received, incoming) = mpsc::channel(1);
        let carrier = tokio::spawn(carry(stream, message_max_bytes, queue, received));
        Self { outgoing, incoming: Incoming(incoming), carrier }
    }

    /// Both halves. Dropping the first closes the connection.
    pub(crate) fn split(self) -> (mpsc::Sender<Out>, Incoming<In>) {
        (self.outgoing, self.incoming)
    }

    /// Sends what is queued, and closes.
    pub(crate) async fn close(self) {
        let Self { outgoing, incoming, carrier } = self;
        drop((outgoing, incoming));
        // It does not panic.
        let _ = carrier.await;
    }
}

async fn carry<In: DeserializeOwned, Out: Serialize>(
    stream: impl AsyncRead + AsyncWrite,
    message_max_bytes: usize,
    queue: mpsc::Receiver<Out>,
    received: mpsc::Sender<Result<In, Lost>>,
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = write_all(&mut writer, queue);
    tokio::pin!(writing);
    let written = tokio::select! {
        read = read_all(&mut reader, message_max_bytes, &received) => match read {
            Ok(()) => return,
            Err(end) => {
                let (Unread::Broken(lost) | Unread::Invalid(lost)) = &end;
                let _ = received.send(Err(lost.clone())).await;
                match end {
                    Unread::Broken(_) => return,
                    // The peer can still receive the error in its message.
                    Unread::Invalid(_) => None,
                }
            }
        },
        written = &mut writing => Some(written),
    };
    if let Some(Err(lost)) = written {
        let _ = received.send(Err(lost)).await;
        return;
    }
    let mut sink = tokio::io::sink();
    let rest = tokio::io::copy(&mut reader, &mut sink);
    tokio::pin!(rest);
    if written.is_none() {
        tokio::select! {
            _ = &mut writing => {}
            _ = &mut rest => return,
        }
    }
    // Messages that arrive now are ignored.
    let _ = timeout(LINGER, rest).await;
}

/// The reason why reading ends before the peer closes the connection.
enum Unread {
    /// The connection is gone.
    Broken(Lost),
    /// The peer sent an invalid message.
    Invalid(Lost),
}

/// Reads messages until the peer closes the connection in order. If the receiver is gone, waits until writing ends.
async fn read_all<In: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
    message_max_bytes: usize,
    received: &mpsc::Sender<Result<In, Lost>>,
) -> Result<(), Unread> {
    let mut buffer = Vec::new();
    loop {
        while let Some(content) =
            take_frame(&mut buffer, message_max_bytes).map_err(Unread::Invalid)?
        {
            let message = decode(&content).map_err(Unread::Invalid)?;
            if received.send(Ok(message)).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        let read = timeout(SILENCE_MAX, reader.read_buf(&mut buffer)).await;
        let problem = match read {
            Ok(Ok(0)) if buffer.is_empty() => return Ok(()),
            Ok(Ok(0)) => "it closed the connection within a message".to_owned(),
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it no longer sends anything".to_owned(),
        };
        return Err(Unread::Broken(Lost(problem)));
    }
}

/// The content of the first frame that is not a keep-alive, if the buffer holds all of it.
fn take_frame(buffer: &mut Vec<u8>, max_bytes: usize) -> Result<Option<Vec<u8>>, Lost> {
    while let Some(head) = buffer.first_chunk::<LENGTH_BYTES>() {
        let len = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if len > max_bytes {
            return Err(Lost(format!("a message has {len} bytes; the maximum is {max_bytes}")));
        }
        if buffer.len() < LENGTH_BYTES + len {
            return Ok(None);
        }
        let content = buffer.drain(..LENGTH_BYTES + len).skip(LENGTH_BYTES).collect::<Vec<u8>>();
        if len > 0 {
            return Ok(Some(content));
        }
    }
    Ok(None)
}

/// Sends messages and keep-alives until the queue is closed and empty.
async fn write_all<Out: Serialize>(
    writer: &mut (impl AsyncWrite + Unpin),
    mut queue: mpsc::Receiver<Out>,
) -> Result<(), Lost> {
    let mut keepalives = tokio::time::interval(KEEPALIVE_INTERVAL);
    keepalives.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let frame = tokio::select! {
            message = queue.recv() => match message {
                Some(message) => encode(&message)?,
                None => break,
            },
            _ = keepalives.tick() => vec![0; LENGTH_BYTES],
        };
        let written = timeout(SILENCE_MAX, async {
            writer.write_all(&frame).await?;
            writer.flush().await
        });
        written
            .await
            .map_err(|_| Lost("it does not read".to_owned()))?
            .map_err(|error| Lost(error.to_string()))?;
    }
    let closed = timeout(SILENCE_MAX, writer.shutdown()).await;
    closed
        .map_err(|_| Lost("it does not read".to_owned()))?
        .map_err(|error| Lost(error.to_string()))
}

/// A message as a frame.
pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>, Lost> {
    let mut frame = vec![0; LENGTH_BYTES];
    let unfit = |error: &dyn std::fmt::Display| Lost(format!("cannot encode a message: {error}"));
    serde_json::to_writer(&mut frame, message).map_err(|error| unfit(&error))?;
    let len = u32::try_from(frame.len() - LENGTH_BYTES).map_err(|error| unfit(&error))?;
    frame[..LENGTH_BYTES].copy_from_slice(&len.to_be_bytes());
    Ok(frame)
}

/// The message in a frame.
pub(crate) fn decode<In: DeserializeOwned>(content: &[u8]) -> Result<In, Lost> {
    let unknown = |error| Lost(format!("cannot decode its message: {error}"));
    serde_json::from_slice(content).map_err(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation_and_keepalives_are_skipped(
            messages in prop::collection::vec("[ -~]{0,40}", 0..6),
            cuts in prop::collection::vec(1usize..20, 1..8),
        ) {
            let mut bytes = vec![0; LENGTH_BYTES];
            for message in &messages {
                bytes.extend(encode(message).expect("a string"));
                bytes.extend([0; LENGTH_BYTES]);
            }
            let (mut buffer, mut found, mut cut) = (Vec::new(), Vec::<String>::new(), cuts.iter().cycle());
            while !bytes.is_empty() {
                let count = bytes.len().min(*cut.next().expect("a cycle"));
                buffer.extend(bytes.drain(..count));
                while let Some(content) = take_frame(&mut buffer, 100).expect("short") {
                    found.push(decode(&content).expect("a string"));
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert!(buffer.is_empty());
        }
    }

    #[test]
    fn the_length_of_a_frame_is_checked_before_its_content_is_awaited() {
        let mut buffer = 101_u32.to_be_bytes().to_vec();
        let error = take_frame(&mut buffer, 100).expect_err("too long").to_string();
        assert_eq!(error, "a message has 101 bytes; the maximum is 100");
    }

    fn limits() -> Limits {
        Limits { message_max_bytes: 100, queued_max: 4 }
    }

    #[tokio::test]
    async fn the_last_message_arrives_though_the_peer_still_sends() {
        let (near, far) = tokio::io::duplex(64);
        let near = Connection::<String, String>::over(near, limits());
        let far = Connection::<String, String>::over(far, limits());
        near.outgoing.send("last".to_owned()).await.expect("open");
        let (sender, mut incoming) = far.split();
        let floods = async { while sender.send("more".to_owned()).await.is_ok() {} };
        let reads = async {
            let first = incoming.next().await;
            assert_eq!(first, Ok(Some("last".to_owned())));
            assert_eq!(incoming.next().await, Ok(None));
        };
        tokio::join!(near.close(), floods, reads);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_nothing_is_lost_and_one_that_only_keeps_alive_is_not() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut near = Connection::<String, String>::over(near, limits());
        for _ in 0..100 {
            far.write_all(&[0; LENGTH_BYTES]).await.expect("open");
            tokio::time::sleep(KEEPALIVE_INTERVAL).await;
        }
        assert!(!near.outgoing.is_closed());
        assert_eq!(near.incoming.next().await, Err(Lost("it no longer sends anything".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_lost() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Connection::<String, String>::over(near, limits());
        let keeps_alive = async {
            while far.write_all(&[0; LENGTH_BYTES]).await.is_ok() {
                tokio::time::sleep(KEEPALIVE_INTERVAL).await;
            }
        };
        let lost = async {
            assert_eq!(near.incoming.next().await, Err(Lost("it does not read".to_owned())));
        };
        tokio::join!(keeps_alive, lost);
    }
}
