//! What answers are: pages, files, events, and problems.

use crate::server::App;
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use onion::identity::RsaId;
use std::convert::Infallible;
use std::sync::Arc;
use store::StoreError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Why somebody gets no answer.
pub(crate) enum Refused {
    /// There is no such thing.
    NotFound(String),
    /// The store cannot be read.
    Store(StoreError),
    /// We have a mistake.
    Broken(String),
    /// Too many follow events.
    TooMany,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct Problem {
    here: &'static str,
    problem: String,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, problem) = match self {
            Self::NotFound(what) => (StatusCode::NOT_FOUND, what),
            Self::Store(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Self::Broken(what) => (StatusCode::INTERNAL_SERVER_ERROR, what),
            Self::TooMany => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many follow already".to_owned())
            }
        };
        match (Problem { here: "", problem }).render() {
            Ok(text) => (status, Html(text)).into_response(),
            Err(_) => status.into_response(),
        }
    }
}

/// A page.
pub(crate) fn page(template: &impl Template) -> Result<Html<String>, Refused> {
    template.render().map(Html).map_err(|error| Refused::Broken(error.to_string()))
}

/// The relay of an address.
pub(crate) fn relay(fingerprint: &str) -> Result<RsaId, Refused> {
    let parsed = fingerprint.parse::<netdoc::Fingerprint>();
    let parsed =
        parsed.map_err(|_| Refused::NotFound(format!("{fingerprint} is no fingerprint")))?;
    Ok(RsaId(*parsed.as_bytes()))
}

pub(crate) async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("assets/style.css"))
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("assets/live.js"))
}

/// An event whenever somebody has written: no more than that, so that nothing is told twice in different ways.
pub(crate) async fn events(State(shared): App) -> Result<impl IntoResponse, Refused> {
    let permit = Arc::clone(&shared.followers).try_acquire_owned();
    let permit = permit.map_err(|_| Refused::TooMany)?;
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
