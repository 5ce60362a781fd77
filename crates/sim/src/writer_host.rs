//! Writers: clients that work with documents. They add their names by operations, with and without
//! a time of their own, repeat what they do not know the end of, read, keep copies in step, and
//! switch a namespace off and on.

use crate::calls::CallFor;
use crate::copying::choose;
use crate::counters::Fault;
use crate::event::{Event, Phase, WALL_START_MS};
use crate::invariant::Violation;
use crate::network::Place;
use crate::rng::SeededRng;
use crate::setup::CLIENT_DEADLINE_MS_MAX;
use crate::world::World;
use crate::writing::{
    Added, Adding, Deferred, Deferring, EXEC, GROUPS, Log, SPACE, SWITCHED, SeenDocument, Told,
    Written,
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

impl WriterHost {
    /// A writer with nothing under way.
    pub fn new(rng: SeededRng) -> Self {
        Self {
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
}

fn space(name: &str) -> Namespace {
    Namespace::parse(name).expect("a short name")
}

fn operation_of<T: serde::Serialize>(space_name: &str, operation: &str, parameters: &T) -> Request {
    let request = Request::new(space(space_name), operation);
    request.with(parameters).expect("parameters are short")
}

impl World {
    /// A writer does its next thing.
    pub fn on_writer_next(&mut self, index: usize) {
        let busy = self.writers.get(index).is_none_or(WriterHost::is_busy);
        if self.ground.phase == Phase::Quiet || busy {
            return;
        }
        let dice = self.writers[index].rng.within(0, 99);
        let wish = match dice {
            0..=34 => self.addition(index),
            35..=44 => self.deferral(index),
            45..=54 => self.repetition(index),
            55..=69 => self.reading(index),
            70..=81 => {
                let stale_ok = self.writers[index].rng.permille(200);
                Wish::Sync(names(), stale_ok)
            }
            82..=90 => self.copying(index),
            _ => self.switching(index),
        };
        let until_us = self.ground.now_us() + PATIENCE_US;
        let writer = &mut self.writers[index];
        writer.wishes += 1;
        writer.current = Some((wish, until_us));
        let wishes = writer.wishes;
        match &writer.current {
            Some((Wish::Run(_, Some(at)), _)) => drop(writer.additions.insert(wishes, *at)),
            Some((Wish::Defer(_, at), _)) => drop(writer.deferrals.insert(wishes, *at)),
            Some((Wish::Copy(_, at), _)) => drop(writer.acts.insert(wishes, *at)),
            Some((Wish::Run(_, None) | Wish::Sync(..), _)) | None => {}
        }
        self.try_wish(index, wishes);
    }

    /// A source counts, or a holder joins or parts.
    fn copying(&mut self, index: usize) -> Wish {
        let now_us = self.ground.now_us();
        let (op, copied) = choose(&mut self.writers[index].rng, now_us);
        self.ground.checker.ledger.copied.push(copied);
        Wish::Copy(op, self.ground.checker.ledger.copied.len() - 1)
    }

    /// A task: an addition that is made later, or a program.
    fn deferral(&mut self, index: usize) -> Wish {
        let at = self.ground.checker.ledger.deferred.len();
        let who = format!("t{at}");
        let rng = &mut self.writers[index].rng;
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
        self.ground.checker.ledger.deferred.push(Deferred {
            who,
            docids,
            is_outside,
            is_told: false,
        });
        let request = Arc::new(operation_of(SPACE, "sim.defer", &deferring));
        Wish::Defer(OperateOp { request, docid }, at)
    }

    /// An addition again, which must get the same answer.
    fn repetition(&mut self, index: usize) -> Wish {
        let writer = &mut self.writers[index];
        let recent = writer.repeatable.len().saturating_sub(6);
        let recent = writer.repeatable.get(recent..).filter(|it| !it.is_empty());
        let Some((op, at)) = recent.map(|it| writer.rng.pick(it).clone()) else {
            return self.addition(index);
        };
        self.ground.counters.fault(Fault::RequestRepeated);
        Wish::Run(op, Some(at))
    }

    fn addition(&mut self, index: usize) -> Wish {
        let who = format!("w{}", self.ground.checker.ledger.written.len());
        let rng = &mut self.writers[index].rng;
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
        let name = if self.ground.checker.ledger.written.len().is_multiple_of(3) {
            "sim.add"
        } else {
            "sim.work"
        };
        let mut request = operation_of(SPACE, name, &adding);
        if has_operation_time {
            let now_ms = WALL_START_MS + self.ground.now_us() / 1000;
            request.operation_time = Some(Stamp::from_epoch_ms(now_ms.saturating_sub(BEHIND_MS)));
            request.request_id = RequestId::parse(&who).ok();
        }
        let at = self.ground.checker.ledger.written.len();
        self.ground.checker.ledger.written.push(Written {
            who,
            docids,
            has_operation_time,
            told: Vec::new(),
        });
        let op = OperateOp { request: Arc::new(request), docid };
        if has_operation_time {
            self.writers[index].repeatable.push((op.clone(), at));
        }
        Wish::Run(op, Some(at))
    }

    fn reading(&mut self, index: usize) -> Wish {
        let rng = &mut self.writers[index].rng;
        let here = *rng.pick(&["b", "c"]);
        let tolerance = Tolerance::seconds(2).0 / 1000;
        let document = |docid: &str, tolerance_s| serde_json::json!({"class": "Log", "docid": docid, "tolerance_s": tolerance_s});
        let documents = [document(here, 0), document("{a}1", tolerance)];
        let request =
            operation_of(SPACE, "document.read", &serde_json::json!({"documents": documents}));
        Wish::Run(OperateOp { request: Arc::new(request), docid: here.to_owned() }, None)
    }

    /// Switches a namespace off or on, or works in it.
    fn switching(&mut self, index: usize) -> Wish {
        let dice = self.writers[index].rng.within(0, 9);
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

    fn try_wish(&mut self, index: usize, wishes: usize) {
        let now_us = self.ground.now_us();
        let m = self.ground.setup.m;
        let Some(writer) = self.writers.get_mut(index) else { return };
        let Some((wish, _)) = writer.current.clone() else { return };
        let number = writer.rng.pick(&self.ground.setup.numbers).0;
        let deadline_ms = writer.rng.within(200, CLIENT_DEADLINE_MS_MAX);
        let doubled = writer.rng.permille(60);
        if let Wish::Run(_, Some(at)) = &wish
            && let Some(written) = self.ground.checker.ledger.written.get(*at)
        {
            let attachment = attachment_of(&written.who);
            self.put_body(&attachment);
        }
        let Some(writer) = self.writers.get_mut(index) else { return };
        let ops = match wish {
            Wish::Run(op, _) => {
                let doubled = doubled && op.request.is_repeatable();
                let op = Op::Documents(DocumentOp::Operate(op));
                if doubled {
                    self.ground.counters.fault(Fault::RequestDoubled);
                    vec![op.clone(), op]
                } else {
                    vec![op]
                }
            }
            Wish::Defer(op, _) | Wish::Copy(op, _) => vec![Op::Documents(DocumentOp::Operate(op))],
            Wish::Sync(names, stale_ok) => {
                // Of one slot: the entry manager asks one owner.
                let first = writer.rng.pick(&names).clone();
                let slot = slot_of(&first, m);
                let names = names.iter().filter(|it| slot_of(it, m) == slot);
                let held = |it: &DocName| writer.copies.get(it).map(|it| Held::of(it));
                let syncs: Vec<_> =
                    names.map(|it| SyncRequest { name: it.clone(), held: held(it) }).collect();
                writer.held =
                    syncs.iter().filter_map(|it| Some((it.name.clone(), it.held?))).collect();
                let reader = Some(Arc::new(Reader::of(space(SPACE))));
                vec![Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }))]
            }
        };
        for op in ops {
            let what = CallFor::Write(index, wishes, now_us);
            self.ground.call(number, what, Place::Client(index), deadline_ms, op);
        }
    }

    /// A writer waits no longer for a call: it asks again, or gives up.
    pub fn write_again(&mut self, index: usize, wishes: usize, pause_ms: u64) {
        let now_us = self.ground.now_us();
        let Some(writer) = self.writers.get_mut(index) else { return };
        let Some((wish, until_us)) = &writer.current else { return };
        if writer.wishes != wishes {
            return;
        }
        // What no repetition is known of may have happened, and must not be asked for again.
        let is_once = match wish {
            Wish::Run(op, Some(_)) => !op.request.is_repeatable(),
            Wish::Defer(..) | Wish::Copy(..) => true,
            Wish::Run(_, None) | Wish::Sync(..) => false,
        };
        if (is_once && pause_ms == 0) || now_us >= *until_us {
            return self.rest_writer(index);
        }
        if pause_ms > 0 {
            let call = self.ground.name();
            self.ground.calls.insert(call, CallFor::Write(index, wishes, u64::MAX));
            self.ground.queue.after(pause_ms * 1000, Event::ClientTimeout(call));
            return;
        }
        self.try_wish(index, wishes);
    }

    fn rest_writer(&mut self, index: usize) {
        let Some(writer) = self.writers.get_mut(index) else { return };
        writer.current = None;
        let pause_us = writer.rng.skewed(2_000, 300_000);
        self.ground.queue.after(pause_us, Event::WriterNext(index));
    }

    /// An answer reaches a writer.
    pub fn on_written(&mut self, index: usize, wishes: usize, sent_us: u64, result: &OpResult) {
        let came_us = self.ground.now_us();
        let Some(writer) = self.writers.get(index) else { return };
        // Also one that came after the writer went on to something else.
        if let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(answer)))) = result
            && let Some(at) = writer.additions.get(&wishes).copied()
        {
            self.note_addition(at, sent_us, came_us, answer);
        }
        if let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_)))) = result
            && let Some(at) = self.writers.get(index).and_then(|it| it.deferrals.get(&wishes))
            && let Some(deferred) = self.ground.checker.ledger.deferred.get_mut(*at)
        {
            deferred.is_told = true;
        }
        if let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_)))) = result
            && let Some(at) = self.writers.get(index).and_then(|it| it.acts.get(&wishes))
            && let Some(copied) = self.ground.checker.ledger.copied.get_mut(*at)
        {
            copied.came_us = Some(came_us);
        }
        let Some(writer) = self.writers.get(index) else { return };
        if writer.wishes != wishes {
            return;
        }
        let Some((wish, _)) = writer.current.clone() else { return };
        if let Err(refusal) = result {
            let known = refusal.changed == Changed::No;
            return self.write_again(index, wishes, u64::from(known) * 40);
        }
        if let Ok(Answer::Documents(DocumentAnswer::Synced(Ok(updates)))) = result
            && let Wish::Sync(_, stale_ok) = &wish
        {
            self.note_updates(index, sent_us, *stale_ok, updates);
        }
        self.rest_writer(index);
    }

    fn note_addition(
        &mut self,
        at: usize,
        sent_us: u64,
        came_us: u64,
        answer: &rota_docstore::Answer,
    ) {
        let added = match &answer.body {
            Body::Json(text) => text.read::<Added>().ok(),
            Body::Nothing | Body::Binary { .. } => None,
        };
        let (Some(added), Some(written)) = (added, self.ground.checker.ledger.written.get_mut(at))
        else {
            return;
        };
        written.told.push(Told { sent_us, came_us, answer: (answer.version, added) });
    }

    fn note_updates(
        &mut self,
        index: usize,
        sent_us: u64,
        stale_ok: bool,
        updates: &[(DocName, Update)],
    ) {
        let came_us = self.ground.now_us();
        for (name, update) in updates {
            let writer = &mut self.writers[index];
            let copy = writer.copies.get(name).cloned();
            // Another try of the same wish may have moved it on.
            if copy.as_deref().map(Held::of).as_ref() != writer.held.get(name) {
                continue;
            }
            let applied = match apply(name, copy.as_ref(), update) {
                Ok(applied) => applied,
                Err(_) if stale_ok => continue,
                // What it has a copy of is gone.
                Err(_) if self.ground.checker.ledger.is_lost(name.docid(), self.ground.setup.m) => {
                    writer.copies.remove(name);
                    writer.held.remove(name);
                    continue;
                }
                Err(error) => {
                    let text = format!("a copy of {name} cannot take {update:?}: {error}");
                    return self
                        .ground
                        .checker
                        .judge(came_us, Err(Violation::new("documents", text)));
                }
            };
            match &applied {
                Some(document) => writer.copies.insert(name.clone(), document.clone()),
                None => writer.copies.remove(name),
            };
            if !stale_ok {
                let (version, log) =
                    (applied.as_ref().map(|it| it.version()), Log::of(applied.as_deref()));
                let name = name.clone();
                self.ground.checker.ledger.seen.push(SeenDocument {
                    name,
                    sent_us,
                    came_us,
                    version,
                    log,
                });
            }
        }
    }
}
