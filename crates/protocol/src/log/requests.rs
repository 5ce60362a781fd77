//! Requests that wait, and how many bytes they hold: bounded in number alone, a few thousand with
//! large attributes would fill the memory.

use crate::log::env::Env;
use crate::log::origin::{Ending, Origin};
use rota_messages::{Op, OpResult};
use rota_model::{LogPos, Refusal, RefusalKind, Retry};
use std::collections::{BTreeMap, btree_map};
use std::ops::Deref;

/// A request at the owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asked {
    pub op: Op,
    pub deadline_ms: u64,
    pub arrived_ms: u64,
    /// The life that was begun for it ends, and that is not known to be committed yet.
    pub ending: Option<Ending>,
}

/// An answer that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PendingReply {
    /// Until this is committed.
    pub at: LogPos,
    /// Who asked.
    pub origin: Origin,
    /// What they get.
    pub result: OpResult,
    /// Whether a node took part in what is answered.
    pub(crate) is_fenced: bool,
}

/// Something that waits because of a request.
pub(crate) trait OfRequest {
    /// The request. Nothing changes how much it holds.
    fn op(&self) -> &Op;
}

impl OfRequest for Asked {
    fn op(&self) -> &Op {
        &self.op
    }
}

/// Requests that wait, by name. Reads like the map that it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Requests<K: Ord, V> {
    by_name: BTreeMap<K, V>,
    /// About how many bytes they hold.
    bytes: usize,
}

impl<K: Ord, V> Default for Requests<K, V> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), bytes: 0 }
    }
}

impl<K: Ord, V: OfRequest> Requests<K, V> {
    /// Why a further request may not wait here, if so. `most`: of them; `place`: where they wait.
    pub fn refuse(&self, env: &Env, op: &Op, most: usize, place: &str) -> Option<Refusal> {
        let (bytes, bytes_max) = (self.bytes + op.bytes(), env.config.sizes.request_bytes);
        let text = if self.by_name.len() >= most {
            format!("{most} requests wait at this {place} already")
        } else if bytes > bytes_max && op.is_large() && !self.by_name.is_empty() {
            format!(
                "requests of {} bytes wait at this {place} already, and the limit is {bytes_max}",
                self.bytes
            )
        } else {
            return None;
        };
        let retry = Retry::AfterMs(env.config.timing.retry_ms);
        Some(Refusal::new(RefusalKind::Overloaded, retry, text))
    }

    pub fn insert(&mut self, name: K, request: V) {
        self.bytes += request.op().bytes();
        if let Some(before) = self.by_name.insert(name, request) {
            self.bytes -= before.op().bytes();
        }
    }

    pub fn remove(&mut self, name: &K) -> Option<V> {
        let request = self.by_name.remove(name)?;
        self.bytes -= request.op().bytes();
        Some(request)
    }

    pub fn get_mut(&mut self, name: &K) -> Option<&mut V> {
        self.by_name.get_mut(name)
    }
}

impl<K: Ord, V> Deref for Requests<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl<K: Ord, V> IntoIterator for Requests<K, V> {
    type Item = (K, V);
    type IntoIter = btree_map::IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_name.into_iter()
    }
}
