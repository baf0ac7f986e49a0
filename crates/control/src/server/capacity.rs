//! The measurer's part of a capacity test that a coordinator orders.

use super::accept::Peer;
use super::book::Book;
use crate::capacity::{CapacityAnswer, CapacityOrder};
use measurer::capacity::CapacityError;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tonic::Status;

/// Cancels the test when the call is dropped: the coordinator is gone.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes part, unless our capacity is in use, and reports. While it lasts, its share of the capacity is
/// no measurement's.
pub(super) async fn serve(
    peer: Peer,
    order: &CapacityOrder,
    listen: SocketAddr,
    book: &Arc<Book>,
    allowed: &BTreeSet<IpAddr>,
    mut stopped: watch::Receiver<bool>,
) -> Result<CapacityAnswer, Status> {
    let test = order.test(listen, book.capacity(), allowed).map_err(Status::invalid_argument)?;
    // It opens none to relays.
    let reserved = book.reserve(peer.key, test.rate, 0);
    let (reservation, claim) =
        reserved.map_err(|refusal| Status::resource_exhausted(refusal.reason))?;
    let (peers, seconds, rate) = (test.peers.len(), test.seconds, test.rate);
    tracing::info!("capacity test of {peer}: {peers} peers, {seconds} s, {rate}");
    let guard = CancelOnDrop(Arc::default());
    let cancel = Arc::clone(&guard.0);
    let work = tokio::task::spawn_blocking(move || {
        // Both are given back when the test is over, even if nobody waits for it any more.
        let _claim = claim;
        if let Err(error) = reservation.wait_for_room() {
            return Err(Status::resource_exhausted(error.to_string()));
        }
        test.run(&cancel).map_err(|error| status(&error))
    });
    let report = tokio::select! {
        report = work => report.map_err(|_| Status::internal("the capacity test broke down"))??,
        _ = stopped.wait_for(|stop| *stop) => {
            return Err(Status::unavailable("the measurer is ending"));
        }
    };
    Ok(CapacityAnswer::from(&report))
}

fn status(error: &CapacityError) -> Status {
    let text = error.to_string();
    match error {
        CapacityError::Config(_) => Status::invalid_argument(text),
        CapacityError::NotAllowed(_) => Status::permission_denied(text),
        CapacityError::Cancelled => Status::cancelled(text),
        CapacityError::Bind { .. }
        | CapacityError::Socket(_)
        | CapacityError::Random(_)
        | CapacityError::Thread(_) => Status::internal(text),
    }
}
