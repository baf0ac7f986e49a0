//! Server-sent events, and the static files that pages use.

use crate::app::App;
use crate::response::ErrorResponse;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use report::experiment::PAGE_STYLE;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

pub(crate) async fn style() -> impl IntoResponse {
    let style = [include_str!("assets/style.css"), PAGE_STYLE].concat();
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], style)
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("assets/live.js"))
}

/// Sends an event after each write to the store. It carries no data: the page reloads itself, so there
/// is one source of content.
pub(crate) async fn events(State(shared): App) -> Result<impl IntoResponse, ErrorResponse> {
    let permit = Arc::clone(&shared.event_streams).try_acquire_owned();
    let permit = permit.map_err(|_| ErrorResponse::TooMany)?;
    let mut changes = shared.changes.clone();
    let (sender, receiver) = mpsc::channel::<Result<Event, Infallible>>(1);
    tokio::spawn(async move {
        let _permit = permit;
        loop {
            let change = tokio::select! {
                change = changes.changed() => change,
                () = sender.closed() => return,
            };
            let event = Event::default().data("changed");
            if change.is_err() || sender.send(Ok(event)).await.is_err() {
                return;
            }
        }
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()))
}
