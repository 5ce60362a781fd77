//! The document of a pool's orders.

use super::{CONFIGURATION, SCHEMA};
use rota_docstore::{DocName, Document, DocumentEdit};
use rota_model::items::{ORDERS_CLASS, Orders};
use rota_model::{FieldError, PoolName, Stamp};
use std::sync::Arc;

/// Name of the document of a pool's orders.
pub fn orders_name(pool: &PoolName) -> DocName {
    DocName::new(&CONFIGURATION, ORDERS_CLASS, pool.as_str()).expect("names of pools are ids")
}

/// Whether a document of class `orders` is one.
pub(super) fn is_orders(name: &DocName) -> bool {
    name.space() == CONFIGURATION.as_str()
}

pub(super) fn decode(document: &Document) -> Result<Orders, FieldError> {
    let missing = || FieldError::new("orders", "are missing");
    document.one::<Orders>()?.ok_or_else(missing)
}

/// The document after `before`.
pub(super) fn next(
    before: Option<&Arc<Document>>,
    pool: &PoolName,
    orders: &Orders,
    now: Stamp,
) -> Document {
    let version = before.map_or(now, |it| now.max(it.version().next()));
    let mut edited = DocumentEdit::new(orders_name(pool), before.cloned(), SCHEMA.clone());
    edited.ensure();
    edited.put_one(orders).expect("numbers and names are short");
    edited.settle_at(version, version, Stamp::MIN).expect("one item at a newer version")
}
