//! Links to many receivers: what waits for each, and the task that keeps its stream open.

use crate::outbox::{Limits, Outbox};
use prost::Message;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tokio::task::AbortHandle;

struct Link<T> {
    address: String,
    outbox: Arc<Outbox<T>>,
    task: AbortHandle,
}

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The links by who is at the other end. One is opened with the first message.
pub struct Links<K, T> {
    by_receiver: BTreeMap<K, Link<T>>,
}

impl<K, T> Default for Links<K, T> {
    fn default() -> Self {
        Self { by_receiver: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, T: Message> Links<K, T> {
    /// Sends towards a receiver at `host:port`. A receiver that has moved, or is new, gets a new
    /// link, which the future of `keep` serves until the link goes. Gives how many older messages
    /// were dropped for want of room.
    pub fn send<F>(
        &mut self,
        to: &K,
        address: String,
        message: T,
        keep: impl FnOnce(String, Arc<Outbox<T>>) -> F,
    ) -> usize
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let bytes = message.encoded_len();
        if let Some(link) = self.by_receiver.get(to).filter(|link| link.address == address) {
            return link.outbox.push(message, bytes);
        }
        let outbox = Outbox::new(Limits::LINK);
        let task = tokio::spawn(keep(address.clone(), outbox.clone())).abort_handle();
        let dropped = outbox.push(message, bytes);
        self.by_receiver.insert(to.clone(), Link { address, outbox, task });
        dropped
    }

    /// Closes the links for which this does not hold.
    pub fn retain(&mut self, keep: impl Fn(&K, &str) -> bool) {
        self.by_receiver.retain(|to, link| keep(to, &link.address));
    }
}
