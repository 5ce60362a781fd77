//! Links to many receivers: what waits for each, and the task that keeps its stream open.

use crate::outbox::{Limits, Outbox};
use metrics::Counter;
use prost::Message;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;
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
    late: Counter,
}

impl<K, T> Links<K, T> {
    /// No links yet. Counts in `late` what was not sent because its time had passed.
    pub fn new(late: Counter) -> Self {
        Self { by_receiver: BTreeMap::new(), late }
    }
}

impl<K: Ord + Clone, T: Message> Links<K, T> {
    /// Sends towards a receiver at `host:port`. A receiver that has moved, or is new, gets a new
    /// link, which the future of `keep` serves until the link goes. The message is not sent later
    /// than `until`. Gives how many older messages were dropped for want of room.
    pub fn send<F>(
        &mut self,
        to: &K,
        address: String,
        message: T,
        until: Option<Instant>,
        keep: impl FnOnce(String, Arc<Outbox<T>>) -> F,
    ) -> usize
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let bytes = message.encoded_len();
        if let Some(link) = self.by_receiver.get(to).filter(|link| link.address == address) {
            return link.outbox.push(message, bytes, until);
        }
        let outbox = Outbox::new(Limits::LINK, self.late.clone());
        let task = tokio::spawn(keep(address.clone(), outbox.clone())).abort_handle();
        let dropped = outbox.push(message, bytes, until);
        self.by_receiver.insert(to.clone(), Link { address, outbox, task });
        dropped
    }

    /// Closes the links for which this does not hold.
    pub fn retain(&mut self, keep: impl Fn(&K, &str) -> bool) {
        self.by_receiver.retain(|to, link| keep(to, &link.address));
    }
}
