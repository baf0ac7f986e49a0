//! The measurer's part of a capacity test that a coordinator orders.

use super::Service;
use super::accept::Peer;
use crate::capacity::{CapacityAnswer, CapacityOrder};
use crate::messages::End;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancels the test when it is dropped: the coordinator is gone.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes part, unless the capacity is in use, and reports. The test reserves the capacity that it uses.
pub(super) async fn serve(
    peer: Peer,
    order: &CapacityOrder,
    service: &Service,
) -> Result<CapacityAnswer, End> {
    let resources = &service.resources;
    let in_force = Arc::clone(&service.in_force.borrow());
    let peers = &in_force.rules.peers;
    let test = order.test(service.address, resources.capacity(), peers).map_err(End::lasting)?;
    // It opens no socket to a relay.
    let reserved = resources.reserve(peer.key, test.rate, 0);
    let (reservation, mark) = reserved.map_err(|refusal| End::lasting(refusal.reason))?;
    let (peers, seconds, rate) = (test.peers.len(), test.seconds, test.rate);
    tracing::info!("capacity test of {peer}: {peers} peers, {seconds} s, {rate}");
    let guard = CancelOnDrop(Arc::default());
    let cancel = Arc::clone(&guard.0);
    let work = tokio::task::spawn_blocking(move || {
        // Both are released when the test is over, even if its task was dropped.
        let _mark = mark;
        reservation.wait_for_room().map_err(|error| error.to_string())?;
        test.run(&cancel).map_err(|error| error.to_string())
    });
    let mut stopped = service.stopped.clone();
    let report = tokio::select! {
        report = work => report,
        _ = stopped.wait_for(|stop| *stop) => return Err(End::lasting("the measurer is ending")),
    };
    let report = report.map_err(|_| End::lasting("the capacity test failed"))?;
    Ok(CapacityAnswer::from(&report.map_err(End::lasting)?))
}
