//! What clients ask about documents, and what they are told.

use super::*;
use rota_docstore::{
    Body, Cache, Credentials, DocName, Document, Exception, Held, Request, SyncRequest, Update,
};
use rota_protocol::api::{OperateOp, Reader, SyncOp};
use rota_protocol::operate::{CONFIGURATION, SPACES_DOCID, slot_of};
use rota_protocol::{DocumentAnswer, DocumentOp};
use serde_json::{Value, json};

/// Slots of the table's ring.
pub const M: u32 = 1024;

pub fn space(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

pub fn name(class: &str, docid: &str) -> DocName {
    DocName::new(&space("shop"), class, docid).unwrap()
}

pub fn owner_of(table: &Table, docid: &str) -> u32 {
    table.view().owner_of(slot_of(&name("Cart", docid), M)).0
}

/// An id of a document that this manager owns.
pub fn id_at(table: &Table, owner: u32, nth: usize) -> String {
    let ids = (0..).map(|it| format!("d{it}")).filter(|it| owner_of(table, it) == owner);
    ids.into_iter().nth(nth).unwrap()
}

pub fn other_than(n: u32) -> u32 {
    NUMBERS.into_iter().find(|it| *it != n).unwrap()
}

pub fn stamp(table: &Table) -> Stamp {
    Stamp::from_epoch_ms(table.now().wall_ms)
}

pub fn request(operation: &str, parameters: &Value) -> Request {
    let request = Request::new(space("shop"), operation).with(parameters).unwrap();
    // Without a name, no repetition is known as one.
    Request { who: Credentials { account: "ann".into(), ..Credentials::default() }, ..request }
}

pub fn op(request: Request, docid: &str) -> Op {
    let (request, docid) = (Arc::new(request), docid.to_owned());
    Op::Documents(DocumentOp::Operate(OperateOp { request, docid }))
}

pub fn write(docid: &str, n: u32) -> Request {
    let put = json!([{"class": "Ln", "key": "1", "json": {"n": n}}]);
    let change = json!({"class": "Cart", "docid": docid, "life": "ensure", "put": put});
    request("document.write", &json!({"changes": [change]}))
}

pub fn read(docid: &str) -> Request {
    request("document.read", &json!({"documents": [{"class": "Cart", "docid": docid}]}))
}

pub fn configure(operation: &str, parameters: &Value) -> Op {
    op(Request::new(space("z"), operation).with(parameters).unwrap(), SPACES_DOCID)
}

pub fn operated(result: OpResult) -> Result<rota_docstore::Answer, Exception> {
    match result {
        Ok(Answer::Documents(DocumentAnswer::Operated(it))) => it,
        other => panic!("not operated: {other:?}"),
    }
}

pub fn body(answer: &rota_docstore::Answer) -> Value {
    match &answer.body {
        Body::Json(text) => text.read().unwrap(),
        Body::Nothing | Body::Binary { .. } => Value::Null,
    }
}

pub fn sync(docids: &[&str], held: Option<Held>, stale_ok: bool) -> Op {
    let syncs = docids.iter().map(|it| SyncRequest { name: name("Cart", it), held });
    let syncs: Vec<_> = syncs.collect();
    let slot = slot_of(&syncs[0].name, M);
    let reader = Some(Arc::new(Reader::of(space("shop"))));
    Op::Documents(DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok }))
}

pub fn synced(result: OpResult) -> Vec<Update> {
    match result {
        Ok(Answer::Documents(DocumentAnswer::Synced(Ok(it)))) => {
            it.into_iter().map(|it| it.1).collect()
        }
        other => panic!("not synced: {other:?}"),
    }
}

/// What a cart says after it was brought up to date from a manager.
pub fn refreshed(table: &mut Table, cache: &mut Cache, docid: &str) -> Option<Arc<Document>> {
    let cart = name("Cart", docid);
    let as_of = stamp(table);
    let update = synced(table.call(600, sync(&[docid], cache.held(&cart), false))).remove(0);
    cache.apply(&cart, &update, as_of).unwrap();
    cache.peek(&cart).cloned()
}

pub fn cache() -> Cache {
    Cache::new(Arc::new(rota_protocol::operate::schema()), 1 << 20)
}

impl Table {
    /// Operators say that of the only pool, and every manager has heard of it.
    pub fn set_pool(&mut self, settings: &Value) {
        let parameters = json!({"name": "default", "allow_missing": true, "settings": settings});
        self.operate("pool.set", &parameters);
    }

    /// Has an operation of administrators carried out, and passes a second.
    pub fn operate(&mut self, name: &str, parameters: &Value) {
        let operation = Request::new(space(CONFIGURATION), name);
        let operation = operation.with(parameters).expect("a small document");
        let call = self.ask(300, op(operation, SPACES_DOCID));
        let answer = self.wait_for(call, 1_000);
        let Ok(Answer::Documents(DocumentAnswer::Operated(Ok(_)))) = answer else {
            panic!("{answer:?}")
        };
        self.pass(1_000);
    }

    /// Three managers of a pool without nodes, which may get nine of four places.
    pub fn growing() -> Self {
        let mut table = Table::laid();
        table.places = 4;
        for n in NUMBERS {
            table.start(n);
        }
        table.settle();
        table.pass(500);
        table.set_pool(&json!({"provisioner": "process", "max_nodes": 9, "places": 4}));
        table
    }
}
