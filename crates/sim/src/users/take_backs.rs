//! Items of life cycles that clients take back before they fire, or about then.

use crate::calls::{CallFor, TakeBack};
use crate::event::Event;
use crate::ground::Ground;
use crate::network::Place;
use crate::setup::ACTS;
use rota_lifecycle::{Edit, LifeItem};
use rota_model::{Retry, SessionRecord, SessionState};
use rota_protocol::{LivesOp, Op, OpResult, UpdateOp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// What clients take back.
#[derive(Clone, Debug, Default)]
pub struct TakeBacks {
    /// Sessions and lives of which an item was taken back, or is to be.
    of: BTreeSet<String>,
}

impl TakeBacks {
    /// A client was told of a session that runs: of some, it takes an event back before it fires, or about then.
    pub fn plan(&mut self, ground: &mut Ground, client: usize, record: &SessionRecord) {
        let name = format!("{} {}", record.key, u64::from(record.life));
        let hash = xxh3_64(name.as_bytes());
        let is_meant = ground.setup.takes_back() && record.state == SessionState::Ready;
        if !is_meant || !hash.is_multiple_of(2) || !self.of.insert(name) {
            return;
        }
        let items = record.spec.life.iter().flat_map(|it| &it.managed_state);
        let acts = items.filter_map(|it| LifeItem::parse(it).ok());
        let acts: Vec<LifeItem> = acts.filter(|it| it.life_cycle().as_str() == ACTS).collect();
        let at = usize::try_from(hash / 2).unwrap_or(0).checked_rem(acts.len());
        let Some(item) = at.and_then(|at| acts.get(at)).cloned() else { return };
        let (key, life) = (record.key.clone(), record.life);
        let it = Box::new(TakeBack { client, key, life, item, tries: 8 });
        ground.queue.after(hash / 4 % 2_000_000, Event::TakeBack(it));
    }
}

/// It asks some manager for that.
pub fn on_take_back(ground: &mut Ground, it: Box<TakeBack>) {
    let count = ground.machines.numbers.len();
    let at = usize::try_from(ground.now_us() / 7).unwrap_or(0).checked_rem(count);
    let Some((number, _)) = at.and_then(|at| ground.machines.numbers.get(at)).cloned() else {
        return;
    };
    let edit = Edit { remove: vec![it.item.clone()], ..Edit::default() };
    let op = UpdateOp {
        key: it.key.clone(),
        life: Some(it.life),
        if_version: None,
        attributes: BTreeMap::new(),
        edit: Arc::new(edit),
        skip: Vec::new(),
        retry: Vec::new(),
        ran: None,
    };
    let (from, op) = (Place::Client(it.client), Op::Lives(LivesOp::Update(Box::new(op))));
    ground.call(number, CallFor::TakeBack(it), from, 800, op);
}

/// It was answered, or nobody answers: some ask again.
pub fn on_taken_back(ground: &mut Ground, mut it: Box<TakeBack>, result: Option<&OpResult>) {
    let goes_on = result.is_none_or(|result| {
        result.as_ref().is_err_and(|it| !matches!(it.retry, Retry::Never | Retry::WhenChanged))
    });
    it.tries = it.tries.saturating_sub(1);
    if goes_on && it.tries > 0 {
        ground.queue.after(150_000, Event::TakeBack(it));
    }
}
