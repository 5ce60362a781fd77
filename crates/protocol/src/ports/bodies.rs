//! The bodies of attachments that a manager holds: a port.

use rota_docstore::Digest;
use std::fmt;

/// The bodies that a manager holds.
pub trait Bodies: fmt::Debug + Send + Sync {
    /// The size of this body in bytes, if it is durable here. Then it stays for a while, though
    /// nobody names it yet: long enough for a document that is about to be written.
    fn hold(&self, sha256: &Digest) -> Option<u64>;

    /// What is wrong with the file of a body here, in words that name it, if that is why it is not
    /// held. Who is asked sees to it that the body is fetched from elsewhere. Default: nothing ever is.
    fn damage(&self, _sha256: &Digest) -> Option<String> {
        None
    }
}

/// None: for a manager without a place to keep them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBodies;

impl Bodies for NoBodies {
    fn hold(&self, _: &Digest) -> Option<u64> {
        None
    }
}
