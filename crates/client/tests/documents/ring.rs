//! What all managers of a test share: one store, its bodies, and a clock that the test moves.

use rota_docstore::*;
use rota_model::items::{Machine, SESSION_CLASS, Standing};
use rota_model::{BootId, Epoch, LogPos, NodeId, Placement, PoolName, Seq, SessionSpec, Token};
use rota_model::{ClassName, SessionId, SessionKey, SessionState};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::broadcast;

pub struct Ring {
    pub operations: Operations,
    pub rules: Rules,
    state: Mutex<State>,
    /// Documents that have changed.
    pub events: broadcast::Sender<Arc<Document>>,
}

pub struct State {
    pub store: Store,
    pub now: Stamp,
    pub bodies: BTreeMap<Digest, bytes::Bytes>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
pub struct Balance {
    pub cents: i64,
}
impl Singleton for Balance {
    const CLASS: &'static str = "Bal";
}

/// Adds to an account's balance.
#[derive(Serialize, Deserialize)]
pub struct Add {
    pub account: String,
    pub cents: i64,
    #[serde(default)]
    pub fails_late: bool,
}

impl Operation for Add {
    const NAME: &'static str = "add";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = transaction.name("Acc", &self.account)?;
        if let Some(balance) = transaction.repeated::<Balance>(&name)? {
            return transaction.answer_json(&balance);
        }
        let edited = transaction.current(&name)?;
        edited.ensure();
        let before = edited.one::<Balance>()?.map_or(0, |it| it.cents);
        let balance = Balance { cents: before + self.cents };
        if balance.cents < 0 {
            return Err(Exception::business("POOR", "the balance is too low"));
        }
        edited.put_one(&balance)?;
        transaction.remember(&name, &balance)?;
        transaction.answer_json(&balance)
    }

    fn after_work(&mut self, _done: &mut Done<'_>) -> Result<(), Exception> {
        match self.fails_late {
            true => Err(Exception::unexpected("LATE", "the printer is on fire")),
            false => Ok(()),
        }
    }
}

pub fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

impl Ring {
    pub fn new() -> Arc<Self> {
        let schema = Schema::new().class("Acc", |it| it.singleton::<Balance>());
        let rules = Rules::new(schema.with_configuration().with_sessions());
        let now = Stamp::parse(240_101_000_000_000).unwrap();
        let state = State { store: Store::default(), now, bodies: BTreeMap::new() };
        Arc::new(Self {
            operations: Operations::new().with::<Add>(),
            rules,
            state: Mutex::new(state),
            events: broadcast::Sender::new(64),
        })
    }

    /// The state, a moment later.
    pub fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        state.now = state.now.plus_ms(1_000);
        state
    }

    /// Changes the document of a session, and tells watches.
    pub fn session(&self, key: &SessionKey, work: impl FnOnce(&mut DocumentEdit)) {
        self.change(&session_name(key), work);
    }

    /// Changes a document, and tells watches.
    pub fn change(&self, name: &DocName, work: impl FnOnce(&mut DocumentEdit)) {
        let document = {
            let State { store, now, .. } = &mut *self.state();
            let space = Namespace::parse(name.space()).unwrap();
            let changed = store.change(&self.rules, &space, *now, |transaction| {
                work(transaction.current(name)?);
                Ok(())
            });
            changed.unwrap();
            store.peek(name).unwrap().clone()
        };
        // Nobody may be watching.
        drop(self.events.send(document));
    }

    /// A session that is in a state.
    pub fn set_session(&self, key: &SessionKey, state: SessionState) {
        self.session(key, |edited| {
            edited.ensure();
            let class = ClassName::parse("http").unwrap();
            let attributes = Arc::default();
            let spec =
                SessionSpec { class, pool: PoolName::default_pool(), attributes, life: None };
            edited.put_one(&spec).unwrap();
            edited.put_one(&standing(state)).unwrap();
        });
    }

    pub fn set_machine(&self, key: &SessionKey, state: &str, change: u64) {
        let machine = Machine { state: state.to_owned(), change };
        self.session(key, |edited| edited.put_one(&machine).unwrap());
    }

    /// Ends a session's document, and begins a new life at once.
    pub fn rebirth(&self, key: &SessionKey) {
        self.session(key, |edited| {
            edited.destroy();
            edited.create().unwrap();
            edited.put_one(&standing(SessionState::Pending)).unwrap();
        });
    }
}

fn standing(state: SessionState) -> Standing {
    let node = NodeId::parse("n1").unwrap();
    let token = Token(LogPos::new(Epoch(1), Seq(1)));
    let address = "10.0.0.1:80".to_owned();
    let placement = Some(Placement { node, boot: BootId(1), token, address });
    Standing {
        state,
        reason: None,
        detail: String::new(),
        exit: None,
        grace_ms: None,
        placement,
        attributes: None,
    }
}

pub fn session_name(key: &SessionKey) -> DocName {
    DocName::new(&key.namespace, SESSION_CLASS, key.id.as_str()).unwrap()
}

pub fn session_key(id: &str) -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap())
}

pub fn account(docid: &str) -> DocName {
    DocName::new(&Namespace::default_space(), "Acc", docid).unwrap()
}
