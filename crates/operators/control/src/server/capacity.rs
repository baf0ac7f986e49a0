//! The measurer's part of a capacity test that a coordinator orders.

use super::Service;
use super::accept::Peer;
use crate::capacity::{CapacityAnswer, CapacityOrder, CapacityStart};
use crate::frames::Connection;
use crate::messages::{End, FromCoordinator, FromMeasurer};
use measurer::capacity::{PORTS_MAX, ports};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Time from our answer to the start, in which the other members are connected.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The sockets of a test among three members, which any measurer opens.
const SOCKETS_USUAL: u32 = 320;

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
    connection: &mut Connection<FromCoordinator, FromMeasurer>,
) -> Result<CapacityAnswer, End> {
    let resources = &service.resources;
    let in_force = Arc::clone(&service.in_force.borrow());
    let test = order.test(resources.capacity(), peer.address.ip(), &in_force.rules);
    let test = test.map_err(End::lasting)?;
    let (sockets, sockets_max) = (test.sockets_total(), resources.sockets_max().max(SOCKETS_USUAL));
    if sockets > sockets_max {
        return Err(End::lasting(format!(
            "{sockets} sockets are more than the {sockets_max} that this measurer opens in a test"
        )));
    }
    let reserved = resources.reserve(peer.key, test.rate, sockets, &[]);
    let (reservation, mark) = reserved.map_err(|refusal| End::lasting(refusal.reason))?;
    // Before anybody starts: seconds are compared between members.
    let waiting = spawn_blocking(move || reservation.wait_for_room().map(|()| reservation));
    let reservation = waiting.await.map_err(|_| End::lasting("the capacity test failed"))?;
    let reservation = reservation.map_err(|error| End::lasting(error.to_string()))?;
    let pumps = usize::try_from(service.pumps).unwrap_or(1).clamp(1, PORTS_MAX);
    let listeners = service.site.listen(service.address.ip(), pumps);
    let listeners = listeners.map_err(|error| End::lasting(error.to_string()))?;
    let listening = FromMeasurer::CapacityListening { ports: ports(&listeners) };
    // It has room, since nothing was sent before.
    let _ = connection.outgoing.try_send(listening);
    let (mut stopped, mut stop_file) = (service.stopped.clone(), service.stop_file.clone());
    let ending = || End::lasting("the measurer is ending");
    let next = tokio::select! {
        next = tokio::time::timeout(START_TIMEOUT, connection.incoming.next()) => next,
        _ = stopped.wait_for(|stop| *stop) => return Err(ending()),
        reason = stop_file.appeared() => return Err(End::lasting(reason)),
    };
    let Ok(Ok(Some(FromCoordinator::CapacityStart(start)))) = next else {
        return Err(End::lasting("the capacity test was not started"));
    };
    start.check(test.peers.len()).map_err(End::lasting)?;
    let (peers, seconds, rate) = (test.peers.len(), test.seconds, test.rate);
    tracing::info!("capacity test of {peer}: {peers} peers, {seconds} s, {rate}");
    let guard = CancelOnDrop(Arc::default());
    let (cancel, site) = (Arc::clone(&guard.0), service.site.clone());
    let work = spawn_blocking(move || {
        // Both are released when the test is over, even if its task was dropped.
        let (_mark, _reservation) = (mark, reservation);
        let CapacityStart { ports, delay } = start;
        test.run(&site, listeners, &ports, delay, &cancel).map_err(|error| error.to_string())
    });
    let report = tokio::select! {
        report = work => report,
        // The coordinator is gone, or sent an unexpected message. Either ends the test.
        _ = connection.incoming.next() => return Err(End::lasting("the capacity test was cancelled")),
        _ = stopped.wait_for(|stop| *stop) => return Err(ending()),
        reason = stop_file.appeared() => return Err(End::lasting(reason)),
    };
    let report = report.map_err(|_| End::lasting("the capacity test failed"))?;
    Ok(CapacityAnswer::from(&report.map_err(End::lasting)?))
}
