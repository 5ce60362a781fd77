//! Arbitrary values of the model, edge values included.

pub mod documents;
mod names;
mod nodes;
mod operators;
mod peers;
mod records;
mod requests;

pub use documents::*;
pub use names::key;
pub use nodes::{cluster, from_node, register, registered, renew, renewed, to_node};
pub use operators::{ring_view, stats};
pub use peers::envelope;
pub use records::{doc, doc_key, identity, keyed_doc, part_meta};
pub use requests::*;

pub type Any<T> = proptest::strategy::BoxedStrategy<T>;
