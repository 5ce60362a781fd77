//! Sessions whose open connections count as use, and whether they have any.

use super::terms::Terms;
use crate::lease::boottime_ms;
use rota_daemon::listeners::connected_ports;
use rota_model::{SessionKey, Stamp, Token};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A session that is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// Which session.
    pub key: SessionKey,
    /// Which life.
    pub life: Stamp,
}

#[derive(Debug)]
struct Looked {
    life: Stamp,
    port: u16,
    every_ms: u64,
    due_ms: u64,
    /// So many of the node's own looks may have a connection of their own.
    own_looks: usize,
    /// How many such looks began.
    own_begun: usize,
}

/// Whose connections are looked for.
#[derive(Clone, Default, Debug)]
pub struct InUse {
    /// A lock because sessions have a task each; it is held for one change only.
    sessions: Arc<Mutex<BTreeMap<(SessionKey, Token), Looked>>>,
}

/// While this lives, the node itself may be connected to that session.
pub struct OwnLook {
    all: InUse,
    of: (SessionKey, Token),
}

impl Drop for OwnLook {
    fn drop(&mut self) {
        if let Some(looked) = self.all.locked().get_mut(&self.of) {
            looked.own_looks = looked.own_looks.saturating_sub(1);
        }
    }
}

impl InUse {
    /// A session is READY; its connections are looked for, if its class says so.
    pub fn look_at(&self, terms: &Terms) {
        if let (Some(every_ms), Some(port)) = (terms.use_look_ms, terms.port) {
            let due_ms = boottime_ms().saturating_add(every_ms);
            let looked =
                Looked { life: terms.life, port, every_ms, due_ms, own_looks: 0, own_begun: 0 };
            self.locked().insert((terms.key.clone(), terms.token), looked);
        }
    }

    /// A session ends.
    pub fn forget(&self, terms: &Terms) {
        self.locked().remove(&(terms.key.clone(), terms.token));
    }

    /// The node itself looks at a session: its own connection is no use.
    pub fn own_look(&self, terms: &Terms) -> OwnLook {
        let of = (terms.key.clone(), terms.token);
        if let Some(looked) = self.locked().get_mut(&of) {
            looked.own_looks += 1;
            looked.own_begun = looked.own_begun.wrapping_add(1);
        }
        OwnLook { all: self.clone(), of }
    }

    /// The sessions at which it is time to look, and that have a connection. May read long tables.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn now(&self) -> io::Result<Vec<Used>> {
        let now = boottime_ms();
        let is_due = |it: &Looked| it.due_ms <= now;
        let sessions = self.locked();
        let due = sessions.iter().filter(|(_, it)| is_due(it));
        let before: BTreeMap<_, _> =
            due.map(|(of, it)| (of.clone(), (it.own_looks, it.own_begun))).collect();
        drop(sessions);
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let connected = connected_ports()?;
        let mut used = Vec::new();
        for (of, looked) in self.locked().iter_mut() {
            let Some((own_looks, own_begun)) = before.get(of) else { continue };
            looked.due_ms = now.saturating_add(looked.every_ms);
            // Those that began meanwhile may be over again.
            let own = own_looks + looked.own_begun.wrapping_sub(*own_begun);
            if connected.get(&looked.port).is_some_and(|it| *it > own) {
                used.push(Used { key: of.0.clone(), life: looked.life });
            }
        }
        Ok(used)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<(SessionKey, Token), Looked>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::terms::tests::terms;
    use std::net::{TcpListener, TcpStream};

    /// Looks until the answer is that.
    fn until(all: &InUse, expected: &[Used]) {
        let began = std::time::Instant::now();
        while all.now().unwrap() != expected {
            assert!(began.elapsed().as_secs() < 30, "never {expected:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_session_is_used_while_somebody_else_than_the_node_is_connected_to_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let terms = Terms { port: Some(port), use_look_ms: Some(0), ..terms("s", 4) };
        let used = [Used { key: terms.key.clone(), life: terms.life }];
        let all = InUse::default();
        all.look_at(&terms);
        assert_eq!(all.now().unwrap(), [], "a listener is no connection");
        let connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        until(&all, &used);
        let own = all.own_look(&terms);
        assert_eq!(all.now().unwrap(), [], "the node itself may be the one that is connected");
        let second = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (its, _) = listener.accept().unwrap();
        until(&all, &used);
        drop((second, its));
        until(&all, &[]);
        drop(own);
        until(&all, &used);
        drop((connection, accepted));
        until(&all, &[]);
        let unlisted = Terms { use_look_ms: None, ..terms.clone() };
        all.forget(&terms);
        all.look_at(&unlisted);
        assert!(all.locked().is_empty());
    }

    #[test]
    fn a_session_is_looked_at_no_more_often_than_its_idle_time_asks_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let terms = Terms { port: Some(port), use_look_ms: Some(600_000), ..terms("s", 4) };
        let all = InUse::default();
        all.look_at(&terms);
        assert_eq!(all.now().unwrap(), []);
        all.locked().values_mut().for_each(|it| it.due_ms = 0);
        assert_eq!((all.now().unwrap().len(), all.now().unwrap().len()), (1, 0));
    }
}
