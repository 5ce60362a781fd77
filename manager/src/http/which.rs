//! Which session a call is about.

use super::call::{Call, decoded, segments};
use axum::http::Uri;
use rota_model::FieldError;

/// Which session a call is about: its namespace and its id.
pub struct Which {
    /// Its namespace.
    pub namespace: String,
    /// Its id.
    pub id: String,
}

impl Which {
    /// By the path, of which the last part is given.
    pub fn of_path(uri: &Uri, last: &str) -> Result<Self, FieldError> {
        let namespace = segments(uri)?.into_iter().nth(1).unwrap_or_default();
        Ok(Self { namespace, id: decoded(last)? })
    }

    /// By the query.
    pub fn of_query(call: &mut Call) -> Self {
        let namespace = call.given("namespace").unwrap_or_else(|| "default".to_owned());
        Self { namespace, id: call.text("id") }
    }
}
