//! Pages and error responses. Knows nothing of the store's content or the server.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use onion::identity::RsaId;
use store::StoreError;

/// Why a request fails.
pub(crate) enum ErrorResponse {
    /// No such page or object.
    NotFound(String),
    /// The store cannot be read.
    Store(StoreError),
    /// A bug.
    Broken(String),
    /// Too many event streams are open.
    TooMany,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct Problem {
    here: &'static str,
    problem: String,
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let (status, problem) = match self {
            Self::NotFound(what) => (StatusCode::NOT_FOUND, what),
            Self::Store(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Self::Broken(what) => (StatusCode::INTERNAL_SERVER_ERROR, what),
            Self::TooMany => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many event streams are open".to_owned())
            }
        };
        match (Problem { here: "", problem }).render() {
            Ok(text) => (status, Html(text)).into_response(),
            Err(_) => status.into_response(),
        }
    }
}

/// Renders a page.
pub(crate) fn page(template: &impl Template) -> Result<Html<String>, ErrorResponse> {
    template.render().map(Html).map_err(|error| ErrorResponse::Broken(error.to_string()))
}

/// Parses the relay in a path.
pub(crate) fn relay(fingerprint: &str) -> Result<RsaId, ErrorResponse> {
    let problem = |_| ErrorResponse::NotFound(format!("{fingerprint} is not a fingerprint"));
    fingerprint.parse().map_err(problem)
}
