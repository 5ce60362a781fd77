//! Writers: clients that work with documents. They add their names by operations, with and without
//! a time of their own, repeat what they do not know the end of, read, keep copies in step, and
//! switch a namespace off and on.

use crate::calls::CallFor;
use crate::copying::choose;
use crate::counters::Fault;
use crate::event::{Event, Phase, WALL_START_MS};
use crate::ground::Ground;
use crate::invariant::Violation;
use crate::network::Place;
use crate::rng::SeededRng;
use crate::setup::CLIENT_DEADLINE_MS_MAX;
use crate::writing::{
    Added, Adding, Deferred, Deferring, EXEC, GROUPS, SPACE, SWITCHED, SeenDocument, Told, Written,
};
use crate::writing::{attachment_of, names};
use rota_docstore::{
    Body, DocName, Document, Held, Request, SyncRequest, Tolerance, Update, apply,
};
use rota_model::{Changed, Namespace, RequestId, Stamp};
use rota_protocol::api::{OperateOp, Reader, SyncOp};
use rota_protocol::operate::{SPACES_DOCID, slot_of};
use rota_protocol::{Answer, DocumentAnswer, DocumentOp, Op, OpResult};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writers of every cluster.
pub const WRITERS: usize = 3;

/// By how much a writer's clock is behind: owners' clocks step, and refuse what is in the future.
const BEHIND_MS: u64 = 60_000;

/// How long a writer tries one thing.
const PATIENCE_US: u64 = 4_000_000;

/// What a writer wants.
#[derive(Clone, Debug)]
enum Wish {
    /// An operation; of an addition, its index in the book.
    Run(OperateOp, Option<usize>),
    /// A task, with its index in the book.
    Defer(OperateOp, usize),
    /// Something with what is copied, with its index in the book.
    Copy(OperateOp, usize),
    /// Updates of copies.
    Sync(Vec<DocName>, bool),
}

/// A writer.
#[derive(Clone, Debug)]
pub struct WriterHost {
    /// Which one it is.
    index: usize,
    rng: SeededRng,
    /// Counts its wishes; calls of earlier ones are over.
    wishes: usize,
    current: Option<(Wish, u64)>,
    /// Which wish was which addition in the book.
    additions: BTreeMap<usize, usize>,
    /// Which wish was which task in the book.
    deferrals: BTreeMap<usize, usize>,
    /// Which wish was which act in the book of copies.
    acts: BTreeMap<usize, usize>,
    /// Additions with a time of their own, to be repeated.
    repeatable: Vec<(OperateOp, usize)>,
    /// Its copies, and what it last asked with.
    copies: BTreeMap<DocName, Arc<Document>>,
    held: BTreeMap<DocName, Held>,
}

fn space(name: &str) -> Namespace {
    Namespace::parse(name).expect("a short name")
}

fn operation_of<T: serde::Serialize>(space_name: &str, operation: &str, parameters: &T) -> Request {
    let request = Request::new(space(space_name), operation);
    request.with(parameters).expect("parameters are short")
}

impl WriterHost {
    /// A writer with nothing under way.
    pub fn new(index: usize, rng: SeededRng) -> Self {
        Self {
            index,
            rng,
            wishes: 0,
            current: None,
            additions: BTreeMap::new(),
            deferrals: BTreeMap::new(),
            acts: BTreeMap::new(),
            repeatable: Vec::new(),
            copies: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Whether something is under way.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// A writer does its next thing.
    pub fn on_next(&mut self, ground: &mut Ground) {
        if ground.phase == Phase::Quiet || self.is_busy() {
            return;
        }
        let dice = self.rng.within(0, 99);
        let wish = match dice {
            0..=34 => self.addition(ground),
            35..=44 => self.deferral(ground),
            45..=54 => self.repetition(ground),
            55..=69 => self.reading(),
            70..=81 => {
                let stale_ok = self.rng.permille(200);
                Wish::Sync(names(), stale_ok)
            }
            82..=90 => self.copying(ground),
            _ => self.switching(),
        };
        let until_us = ground.now_us() + PATIENCE_US;
        self.wishes += 1;
        self.current = Some((wish, until_us));
        let wishes = self.wishes;
        match &self.current {
            Some((Wish::Run(_, Some(at)), _)) => drop(self.additions.insert(wishes, *at)),
            Some((Wish::Defer(_, at), _)) => drop(self.deferrals.insert(wishes, *at)),
            Some((Wish::Copy(_, at), _)) => drop(self.acts.insert(wishes, *at)),
            Some((Wish::Run(_, None) | Wish::Sync(..), _)) | None => {}
        }
        self.try_wish(ground);
    }

    /// A source counts, or a holder joins or parts.
    fn copying(&mut self, ground: &mut Ground) -> Wish {
        let now_us = ground.now_us();
        let (op, copied) = choose(&mut self.rng, now_us);
        ground.checker.ledger.copies.copied.push(copied);
        Wish::Copy(op, ground.checker.ledger.copies.copied.len() - 1)
    }

    /// A task: an addition that is made later, or a program.
    fn deferral(&mut self, ground: &mut Ground) -> Wish {
        let at = ground.checker.ledger.tasks.deferred.len();
        let who = format!("t{at}");
        let rng = &mut self.rng;
        let docids: Vec<String> = rng.pick(&GROUPS).iter().map(|it| (*it).to_owned()).collect();
        let operation = *rng.pick(&["sim.late", "sim.late_work", "sim.late_work", EXEC]);
        let (is_poison, fails) = (rng.permille(40), rng.permille(200));
        let docid = docids[0].clone();
        let deferring = Deferring {
            who: who.clone(),
            docids: docids.clone(),
            operation: operation.to_owned(),
            is_poison,
            fails,
        };
        let is_outside = operation == EXEC;
        ground.checker.ledger.tasks.deferred.push(Deferred {
            who,
            docids,
            is_outside,
            is_told: false,
        });
        let request = Arc::new(operation_of(SPACE, "sim.defer", &deferring));
        Wish::Defer(OperateOp { request, docid }, at)
    }

    /// An addition again, which must get the same answer.
    fn repetition(&mut self, ground: &mut Ground) -> Wish {
        let recent = self.repeatable.len().saturating_sub(6);
        let recent = self.repeatable.get(recent..).filter(|it| !it.is_empty());
        let Some((op, at)) = recent.map(|it| self.rng.pick(it).clone()) else {
            return self.addition(ground);
        };
        ground.counters.fault(Fault::RequestRepeated);
        Wish::Run(op, Some(at))
    }

    fn addition(&mut self, ground: &mut Ground) -> Wish {
        let who = format!("w{}", ground.checker.ledger.written.len());
        let rng = &mut self.rng;
        let group = *rng.pick(&GROUPS);
        let mut docids: Vec<String> = group.iter().map(|it| (*it).to_owned()).collect();
        if rng.permille(500) {
            docids.truncate(1);
        }
        let looks = if rng.permille(200) { names() } else { Vec::new() };
        let looks = looks.iter().map(|it| it.docid().to_owned());
        let looks = looks.filter(|it| !docids.contains(it)).collect();
        let fails = rng.permille(60);
        let has_operation_time = rng.permille(600);
        let docid = docids[0].clone();
        let attaches = rng.permille(400);
        let adding = Adding { who: who.clone(), docids: docids.clone(), looks, attaches, fails };
        // Two of three work beside the decisions.
        let name = if ground.checker.ledger.written.len().is_multiple_of(3) {
            "sim.add"
        } else {
            "sim.work"
        };
        let mut request = operation_of(SPACE, name, &adding);
        if has_operation_time {
            let now_ms = WALL_START_MS + ground.now_us() / 1000;
            request.operation_time = Some(Stamp::from_epoch_ms(now_ms.saturating_sub(BEHIND_MS)));
            request.request_id = RequestId::parse(&who).ok();
        }
        let at = ground.checker.ledger.written.len();
        ground.checker.ledger.written.push(Written {
            who,
            docids,
            has_operation_time,
            told: Vec::new(),
        });
        let op = OperateOp { request: Arc::new(request), docid };
        if has_operation_time {
            self.repeatable.push((op.clone(), at));
        }
        Wish::Run(op, Some(at))
    }

    fn reading(&mut self) -> Wish {
        let rng = &mut self.rng;
        let here = *rng.pick(&["b", "c"]);
        let tolerance = Tolerance::seconds(2).0 / 1000;
        let document = |docid: &str, tolerance_s| serde_json::json!({"class": "Log", "docid": docid, "tolerance_s": tolerance_s});
        let documents = [document(here, 0), document("{a}1", tolerance)];
        let request =
            operation_of(SPACE, "document.read", &serde_json::json!({"documents": documents}));
        Wish::Run(OperateOp { request: Arc::new(request), docid: here.to_owned() }, None)
    }

    /// Switches a namespace off or on, or works in it.
    fn switching(&mut self) -> Wish {
        let dice = self.rng.within(0, 9);
        let request = match dice {
            0..=1 => {
                let put = serde_json::json!({"name": SWITCHED, "create": true});
                operation_of("z", "namespace.put", &put)
            }
            2..=3 => {
                let off = serde_json::json!({"name": SWITCHED, "off": "closed"});
                operation_of("z", "namespace.switch", &off)
            }
            4 => operation_of("z", "namespace.switch", &serde_json::json!({"name": SWITCHED})),
            _ => {
                let touch = serde_json::json!({"class": "Log", "docid": "s"});
                let request = Arc::new(operation_of(SWITCHED, "document.touch", &touch));
                return Wish::Run(OperateOp { request, docid: "s".to_owned() }, None);
            }
        };
        let docid = SPACES_DOCID.to_owned();
        Wish::Run(OperateOp { request: Arc::new(request), docid }, None)
    }

    fn try_wish(&mut self, ground: &mut Ground) {
        let now_us = ground.now_us();
        let m = ground.setup.m;
        let Some((wish, _)) = self.current.clone() else { return };
        let number = self.rng.pick(&ground.machines.numbers).0;
        let deadline_ms = self.rng.within(200, CLIENT_DEADLINE_MS_MAX);
        let doubled = self.rng.permille(60);
        if let Wish::Run(_, Some(at)) = &wish
            && let Some(written) = ground.checker.ledger.written.get(*at)
        {
            let attachment = attachment_of(&written.who);
            ground.put_body(&attachment);
        }
        let ops = match wish {
            Wish::Run(op, _) => {
                let doubled = doubled && op.request.is_repeatable();
                let op = Op::Documents(DocumentOp::Operate(op));
                if doubled {
                    ground.counters.fault(Fault::RequestDoubled);
                    vec![op.clone(), op]
                } else {
                    vec![op]
                }
            }
            Wish::Defer(op, _) | Wish::Copy(op, _) => vec![Op::Documents(DocumentOp::Operate(op))],
            Wish::Sync(names, stale_ok) => {
                // Of one slot: the entry manager asks one owner.
                let first = self.rng.pick(&names).clone();
                let slot = slot_of(&first, m);
                let names = names.iter().filter(|it| slot_of(it, m) == slot);
                let held = |it: &DocName| self.copies.get(it).map(|it| Held::of(it));
                let syncs: Vec<_> =
                    names.map(|it| SyncRequest { name: it.clone(), held: held(it) }).collect();
                self.held =
                    syncs.iter().filter_map(|it| Some((it.name.clone(), it.held?))).collect();
                let reader = Some(Arc::new(Reader::of(space(SPACE))));
                vec![Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }))]
            }
        };
        for op in ops {
            let what = CallFor::Write(self.index, self.wishes, now_us);
            ground.call(number, what, Place::Client(self.index), deadline_ms, op);
        }
    }

    /// A writer waits no longer for a call: it asks again, or gives up.
    pub fn write_again(&mut self, ground: &mut Ground, wishes: usize, pause_ms: u64) {
        let now_us = ground.now_us();
        let Some((wish, until_us)) = &self.current else { return };
        if self.wishes != wishes {
            return;
        }
        // What no repetition is known of may have happened, and must not be asked for again.
        let is_once = match wish {
            Wish::Run(op, Some(_)) => !op.request.is_repeatable(),
            Wish::Defer(..) | Wish::Copy(..) => true,
            Wish::Run(_, None) | Wish::Sync(..) => false,
        };
        if (is_once && pause_ms == 0) || now_us >= *until_us {
            return self.rest(ground);
        }
        if pause_ms > 0 {
            let call = ground.name();
            ground.calls.insert(call, CallFor::Write(self.index, wishes, u64::MAX));
            ground.queue.after(pause_ms * 1000, Event::ClientTimeout(call));
            return;
        }
        self.try_wish(ground);
    }

    fn rest(&mut self, ground: &mut Ground) {
        self.current = None;
        let pause_us = self.rng.skewed(2_000, 300_000);
        ground.queue.after(pause_us, Event::WriterNext(self.index));
    }

    /// An answer reaches a writer.
    pub fn on_written(
        &mut self,
        ground: &mut Ground,
        wishes: usize,
        sent_us: u64,
        result: &OpResult,
    ) {
        let came_us = ground.now_us();
        // Also one that came after the writer went on to something else.
        if let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(answer)))) = result
            && let Some(at) = self.additions.get(&wishes).copied()
        {
            note_addition(ground, at, (sent_us, came_us), answer);
        }
        if let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_)))) = result
            && let Some(at) = self.deferrals.get(&wishes)
            && let Some(deferred) = ground.checker.ledger.tasks.deferred.get_mut(*at)
        {
            deferred.is_told = true;
        }
        if let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_)))) = result
            && let Some(at) = self.acts.get(&wishes)
            && let Some(copied) = ground.checker.ledger.copies.copied.get_mut(*at)
        {
            copied.came_us = Some(came_us);
        }
        if self.wishes != wishes {
            return;
        }
        let Some((wish, _)) = self.current.clone() else { return };
        if let Err(refusal) = result {
            let known = refusal.changed == Changed::No;
            return self.write_again(ground, wishes, u64::from(known) * 40);
        }
        if let Ok(Answer::Documents(DocumentAnswer::Synced(Ok(updates)))) = result
            && let Wish::Sync(_, stale_ok) = &wish
        {
            self.note_updates(ground, sent_us, *stale_ok, updates);
        }
        self.rest(ground);
    }

    fn note_updates(
        &mut self,
        ground: &mut Ground,
        sent_us: u64,
        stale_ok: bool,
        updates: &[(DocName, Update)],
    ) {
        let came_us = ground.now_us();
        for (name, update) in updates {
            let copy = self.copies.get(name).cloned();
            // Another try of the same wish may have moved it on.
            if copy.as_deref().map(Held::of).as_ref() != self.held.get(name) {
                continue;
            }
            let applied = match apply(name, copy.as_ref(), update) {
                Ok(applied) => applied,
                Err(_) if stale_ok => continue,
                // What it has a copy of is gone.
                Err(_) if ground.checker.ledger.is_lost(name.docid(), ground.setup.m) => {
                    self.copies.remove(name);
                    self.held.remove(name);
                    continue;
                }
                Err(error) => {
                    let text = format!("a copy of {name} cannot take {update:?}: {error}");
                    return ground.checker.judge(came_us, Err(Violation::new("documents", text)));
                }
            };
            match &applied {
                Some(document) => self.copies.insert(name.clone(), document.clone()),
                None => self.copies.remove(name),
            };
            if !stale_ok {
                let seen = SeenDocument::new(name, (sent_us, came_us), applied.as_deref());
                ground.checker.ledger.seen.push(seen);
            }
        }
    }
}

/// What an addition came to, for the book.
fn note_addition(
    ground: &mut Ground,
    at: usize,
    (sent_us, came_us): (u64, u64),
    answer: &rota_docstore::Answer,
) {
    let added = match &answer.body {
        Body::Json(text) => text.read::<Added>().ok(),
        Body::Nothing | Body::Binary { .. } => None,
    };
    let (Some(added), Some(written)) = (added, ground.checker.ledger.written.get_mut(at)) else {
        return;
    };
    written.told.push(Told { sent_us, came_us, answer: (answer.version, added) });
}
