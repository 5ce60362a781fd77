//! Long polls of watches of documents.

use crate::table::asking::*;
use crate::table::*;
use proptest::prelude::*;
use rota_docstore::{Caller, Checker, Credentials, Exception, FieldType, Update};
use rota_model::{LogPos, Pulled, RefusalKind, Seq, SlotId, Stamp};
use rota_protocol::api::{
    DocumentChange, DocumentEvent, ItemFilter, Reader, Service, WatchOp, WatchedDocuments,
};
use rota_protocol::operate::slot_of;
use rota_protocol::{Answer, DocumentAnswer, DocumentCursor, DocumentOp, Op, OpResult, Sizes};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

type Watched = Pulled<DocumentEvent, DocumentCursor>;

const OWNER: u32 = NUMBERS[0];

fn all() -> WatchedDocuments {
    let (class, docid, filter) = (None, None, None);
    WatchedDocuments { space: space("shop"), class, docid, filter, names_only: false }
}

fn carts() -> WatchedDocuments {
    WatchedDocuments { class: Some("Cart".into()), ..all() }
}

fn filtered(text: &str, item: Option<&str>) -> WatchedDocuments {
    let filter = ItemFilter { text: text.into(), item: item.map(Into::into) };
    WatchedDocuments { filter: Some(filter), ..carts() }
}

fn polled(of: &WatchedDocuments, from: Option<LogPos>) -> WatchOp {
    let reader = Reader { service: Service::Watch, ..Reader::of(space("shop")) };
    let slot = of.one().map_or(SlotId(OWNER), |it| slot_of(&it, M));
    WatchOp {
        reader: Arc::new(reader),
        of: Arc::new(of.clone()),
        slot,
        from,
        snapshot_after: None,
        tells_absent: from.is_some(),
        limit: 9,
        wait_ms: 5_000,
    }
}

fn asked(op: WatchOp) -> Op {
    Op::Documents(DocumentOp::Watch(op))
}

fn answered(result: OpResult) -> Result<Watched, Exception> {
    let Ok(Answer::Documents(DocumentAnswer::Watched(pulled))) = result else {
        panic!("nothing was pulled: {result:?}")
    };
    pulled
}

/// An answer that comes at once, through a manager that is not the owner.
fn pull(table: &mut Table, of: &WatchedDocuments, from: Option<LogPos>) -> Watched {
    answered(table.call(600, asked(polled(of, from)))).unwrap()
}

/// What events say, in their order.
fn told(pulled: &Watched) -> Vec<(&str, &'static str)> {
    let say = |change: &DocumentChange| match change {
        DocumentChange::Is(_) => "is",
        DocumentChange::Named => "named",
        DocumentChange::TooLarge => "too large",
        DocumentChange::Ended => "ended",
        DocumentChange::Left => "left",
    };
    pulled.events.iter().map(|it| (it.name.docid(), say(&it.change))).collect()
}

fn put(table: &mut Table, docid: &str, n: u32) -> Stamp {
    operated(table.call(1000, op(write(docid, n), docid))).unwrap().version
}

fn end(table: &mut Table, docid: &str) -> Stamp {
    let change = json!({"class": "Cart", "docid": docid, "life": "destroy"});
    let request = request("document.write", &json!({"changes": [change]}));
    operated(table.call(1000, op(request, docid))).unwrap().version
}

fn other_class(table: &mut Table, docid: &str) {
    let change = json!({"class": "Bag", "docid": docid, "life": "ensure"});
    let request = request("document.write", &json!({"changes": [change]}));
    operated(table.call(1000, op(request, docid))).unwrap();
}

#[test]
fn a_watch_shows_what_is_there_and_then_each_change_and_the_end() {
    let mut table = Table::serving();
    let (a, b) = (id_at(&table, OWNER, 0), id_at(&table, OWNER, 1));
    put(&mut table, &a, 1);
    let first = pull(&mut table, &carts(), None);
    assert!(first.snapshot && first.snapshot_next.is_none());
    assert_eq!(told(&first), [(&*a, "is")]);
    let waiting = table.ask(600, asked(polled(&carts(), Some(first.upto))));
    assert!(!table.replies.contains_key(&waiting));
    let version = put(&mut table, &b, 2);
    let news = answered(table.wait_for(waiting, 20)).unwrap();
    assert!(!news.snapshot);
    assert_eq!(told(&news), [(&*b, "is")]);
    let DocumentChange::Is(document) = &news.events[0].change else { panic!("{news:?}") };
    assert_eq!((document.version(), news.events[0].version), (version, version));
    let version = end(&mut table, &b);
    let ended = pull(&mut table, &carts(), Some(news.upto));
    assert_eq!(told(&ended), [(&*b, "ended")]);
    assert_eq!(ended.events[0].version, version);
    // Who comes with nothing is not told of what is gone, unless it asks for just that.
    assert_eq!(told(&pull(&mut table, &carts(), None)), [(&*a, "is")]);
    let one = WatchedDocuments { docid: Some(b.clone()), ..carts() };
    assert_eq!(told(&pull(&mut table, &one, None)), [(&*b, "ended")]);
}

#[test]
fn a_watch_of_one_document_or_one_class_passes_over_all_others() {
    let mut table = Table::serving();
    let (a, b) = (id_at(&table, OWNER, 0), id_at(&table, OWNER, 1));
    let one = WatchedDocuments { docid: Some(a.clone()), ..carts() };
    let named = WatchedDocuments { names_only: true, ..all() };
    let [upto, class_upto, all_upto] =
        [&one, &carts(), &named].map(|of| pull(&mut table, of, None).upto);
    put(&mut table, &a, 1);
    put(&mut table, &b, 1);
    other_class(&mut table, &a);
    assert_eq!(told(&pull(&mut table, &one, Some(upto))), [(&*a, "is")]);
    let class = pull(&mut table, &carts(), Some(class_upto));
    assert_eq!(told(&class), [(&*a, "is"), (&*b, "is")]);
    let everything = pull(&mut table, &named, Some(all_upto));
    // What operations remember is nobody's data.
    assert_eq!(told(&everything), [(&*a, "named"), (&*b, "named"), (&*a, "named")]);
}

#[test]
fn with_a_filter_what_does_not_pass_after_a_change_is_told_as_having_left() {
    let mut table = Table::laid();
    let schema = rota_protocol::operate::schema();
    let schema = schema.class("Cart", |it| it.any().field("Ln", "n", FieldType::Long));
    table.offer = Some((rota_protocol::operate::operations(), schema));
    table.start_all();
    let (a, b) = (id_at(&table, OWNER, 0), id_at(&table, OWNER, 1));
    let of = filtered("n > 1", Some("Ln"));
    put(&mut table, &a, 2);
    put(&mut table, &b, 1);
    let first = pull(&mut table, &of, None);
    assert_eq!(told(&first), [(&*a, "is")]);
    put(&mut table, &a, 1);
    put(&mut table, &b, 3);
    other_class(&mut table, &a);
    let news = pull(&mut table, &of, Some(first.upto));
    assert_eq!(told(&news), [(&*a, "left"), (&*b, "is")]);
    end(&mut table, &b);
    assert_eq!(told(&pull(&mut table, &of, Some(news.upto))), [(&*b, "ended")]);
    let by_id = filtered(&format!("docid = {a}"), None);
    assert_eq!(told(&pull(&mut table, &by_id, None)), [(&*a, "is")]);
}

#[test]
fn a_filter_that_does_not_fit_is_refused_by_its_field() {
    let mut table = Table::serving();
    let mut wrong = |of: WatchedDocuments| {
        let refused = answered(table.call(600, asked(polled(&of, None)))).unwrap_err();
        let field = refused.details().fields[0].clone();
        (refused.code().as_str().to_owned(), field.field, field.problem)
    };
    let (code, field, problem) = wrong(filtered("docid = ", None));
    assert_eq!((&*code, &*field), ("A-INVALID", "filter"));
    assert!(problem.contains("column"), "{problem}");
    let (_, _, problem) = wrong(filtered("n = 1", None));
    assert!(problem.contains("docid"), "{problem}");
    assert_eq!(wrong(filtered("n = 1", Some("Ln"))).1, "class");
}

/// A table whose owners keep four entries.
fn with_a_small_window() -> Table {
    let mut table = Table::laid();
    table.sizes = Sizes { window_entries: 4, close_entries: 4, ..Sizes::default() };
    table.start_all();
    table
}

#[test]
fn a_position_out_of_the_window_gets_a_snapshot_that_tells_what_is_gone() {
    let mut table = with_a_small_window();
    let [a, b, c] = [0, 1, 2].map(|nth| id_at(&table, OWNER, nth));
    let of = filtered(&format!("docid starts {}", &a[..1]), None);
    let elsewhere = filtered(&format!("docid = {c}"), None);
    put(&mut table, &a, 1);
    put(&mut table, &b, 1);
    let [first, other] = [&of, &elsewhere].map(|it| pull(&mut table, it, None));
    end(&mut table, &a);
    for n in 2..9 {
        put(&mut table, &b, n);
    }
    let again = pull(&mut table, &of, Some(first.upto));
    assert!(again.snapshot && again.upto > first.upto, "{again:?}");
    let mut all = told(&again);
    all.sort_unstable();
    let mut expected = [(&*a, "ended"), (&*b, "is")];
    expected.sort_unstable();
    assert_eq!(all, expected);
    let left = pull(&mut table, &elsewhere, Some(other.upto));
    let mut all = told(&left);
    all.sort_unstable();
    let mut expected = [(&*a, "ended"), (&*b, "left")];
    expected.sort_unstable();
    assert_eq!(all, expected);
}

#[test]
fn a_position_beyond_what_its_epoch_committed_gets_a_snapshot_and_an_idle_poll_ends_in_time() {
    let mut table = Table::serving();
    let first = pull(&mut table, &all(), None);
    let beyond = LogPos::new(first.upto.pe, Seq(first.upto.seq.0 + 1));
    assert!(pull(&mut table, &all(), Some(beyond)).snapshot);
    let waiting = table.ask(600, asked(polled(&all(), Some(first.upto))));
    assert!(!table.replies.contains_key(&waiting));
    let over = answered(table.wait_for(waiting, 6_000)).unwrap();
    assert!(!over.snapshot && over.events.is_empty());
}

#[test]
fn a_poll_of_one_document_that_keeps_up_is_not_too_old_whatever_others_do() {
    let mut table = with_a_small_window();
    let (a, b) = (id_at(&table, OWNER, 0), id_at(&table, OWNER, 1));
    let one = WatchedDocuments { docid: Some(a.clone()), ..carts() };
    let first = pull(&mut table, &one, None);
    let waiting = table.ask(300, asked(polled(&one, Some(first.upto))));
    for n in 0..9 {
        put(&mut table, &b, n);
    }
    assert!(!table.replies.contains_key(&waiting));
    put(&mut table, &a, 1);
    let news = answered(table.wait_for(waiting, 20)).unwrap();
    assert!(!news.snapshot, "{news:?}");
    assert_eq!(told(&news), [(&*a, "is")]);
}

#[test]
fn a_poll_whose_owner_dies_is_answered_by_the_next_one() {
    let mut table = Table::serving();
    let owner = table.view().owner_of(SlotId(OWNER)).0;
    let through = other_than(owner);
    let a = id_at(&table, owner, 0);
    let first = answered(table.call(through, asked(polled(&carts(), None)))).unwrap();
    let waiting = table.ask(through, asked(polled(&carts(), Some(first.upto))));
    table.kill(owner);
    table.pass(2_000);
    operated(table.call(through, op(write(&a, 1), &a))).unwrap();
    let news = answered(table.wait_for(waiting, 20)).unwrap();
    assert!(!news.snapshot, "{news:?}");
    assert_eq!(told(&news), [(&*a, "is")]);
}

#[test]
fn pages_of_a_snapshot_show_each_document_once() {
    let mut table = Table::laid();
    table.sizes = Sizes { page_looked_at: 3, ..Sizes::default() };
    table.start_all();
    let ids: Vec<String> = (0..20).map(|nth| id_at(&table, OWNER, nth)).collect();
    for id in &ids {
        put(&mut table, id, 1);
        other_class(&mut table, id);
    }
    let (mut op, mut seen) = (polled(&carts(), None), Vec::new());
    op.limit = 2;
    let upto = loop {
        let page = answered(table.call(600, asked(op.clone()))).unwrap();
        assert!(page.snapshot && page.events.len() <= 2);
        seen.extend(page.events.iter().map(|it| it.name.docid().to_owned()));
        if page.snapshot_next.is_none() {
            break page.upto;
        }
        (op.from, op.snapshot_after) = (Some(page.upto), page.snapshot_next);
    };
    let mut expected = ids.clone();
    expected.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, expected);
    let next = WatchOp { wait_ms: 0, ..polled(&carts(), Some(upto)) };
    assert!(!answered(table.call(600, asked(next))).unwrap().snapshot);
}

#[test]
fn a_watch_reads_another_namespace_as_long_as_that_one_allows_it() {
    let mut table = Table::serving();
    let reader = Arc::new(Reader { service: Service::Watch, ..Reader::of(space("web")) });
    let from_web = |from| WatchOp { reader: reader.clone(), ..polled(&carts(), from) };
    let refused = answered(table.call(600, asked(from_web(None)))).unwrap_err();
    assert_eq!(refused.code().as_str(), "S-SPACE");
    let put_space = json!({"name": "shop", "create": true, "readers": ["web"]});
    operated(table.call(600, configure("namespace.put", &put_space))).unwrap();
    table.pass(100);
    let first = answered(table.call(600, asked(from_web(None)))).unwrap();
    let waiting = table.ask(600, asked(from_web(Some(first.upto))));
    let off = json!({"name": "shop", "off": "Back at noon"});
    operated(table.call(1000, configure("namespace.switch", &off))).unwrap();
    table.pass(100);
    let refused = answered(table.wait_for(waiting, 6_000)).unwrap_err();
    assert_eq!(refused.code().as_str(), "O-OFF");
    let own = table.call(600, asked(polled(&carts(), None))).unwrap_err();
    assert_eq!(own.kind, RefusalKind::NamespaceOff);
}

#[test]
fn a_watch_ends_when_its_namespace_is_switched_off_while_it_waits() {
    let mut table = Table::serving();
    let put_space = json!({"name": "shop", "create": true});
    operated(table.call(600, configure("namespace.put", &put_space))).unwrap();
    let first = pull(&mut table, &carts(), None);
    let waiting = table.ask(600, asked(polled(&carts(), Some(first.upto))));
    let off = json!({"name": "shop", "off": "Back at noon"});
    operated(table.call(1000, configure("namespace.switch", &off))).unwrap();
    let refusal = table.wait_for(waiting, 1_000).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NamespaceOff);
}

/// Accounts that may watch.
struct Watchers;

impl Checker for Watchers {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        let may = operation != "document.watch" || (&*who.account, space) == ("ann", "shop");
        if may { Ok(()) } else { Err(format!("{} must not watch {space}", who.account)) }
    }
}

#[test]
fn an_application_decides_who_may_watch() {
    let mut table = Table::laid();
    table.checker = Some(Arc::new(Watchers));
    table.start_all();
    let mut by = |account: &str| {
        let who = Credentials { account: account.into(), ..Credentials::default() };
        let caller = Caller { who, ..Caller::default() };
        let reader = Reader { space: space("shop"), service: Service::Watch, caller };
        let op = WatchOp { reader: Arc::new(reader), ..polled(&carts(), None) };
        answered(table.call(600, asked(op)))
    };
    assert!(by("ann").unwrap().snapshot);
    let refused = by("bob").unwrap_err();
    assert_eq!(refused.code().as_str(), "S-REFUSED");
    assert_eq!(refused.details().message, "bob must not watch shop");
}

/// What happens at one step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    End(usize),
    Pull,
    OwnerChanges,
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..4_usize;
    prop_oneof![
        6 => which().prop_map(Step::Put),
        2 => which().prop_map(Step::End),
        4 => Just(Step::Pull),
        1 => Just(Step::OwnerChanges),
    ]
}

/// A watch that keeps what it was told: version, and whether it lives.
struct Mirror {
    op: WatchOp,
    known: BTreeMap<String, (Stamp, bool)>,
}

impl Mirror {
    /// One answer, as a manager that joins partitions takes it. Says whether there was nothing more.
    fn pull(&mut self, table: &mut Table, through: u32) -> bool {
        let op = WatchOp { wait_ms: 0, ..self.op.clone() };
        let call = table.ask(through, asked(op));
        let pulled = answered(table.wait_for(call, 5_000)).unwrap();
        for event in &pulled.events {
            let news = (event.version, !matches!(event.change, DocumentChange::Ended));
            let known = self.known.entry(event.name.docid().to_owned()).or_insert(news);
            *known = news.max(*known);
        }
        self.op.tells_absent |= pulled.snapshot_next.is_none();
        self.op.from = Some(pulled.upto);
        self.op.snapshot_after = pulled.snapshot_next;
        pulled.events.is_empty() && !pulled.snapshot
    }
}

/// The newest version of a document, and whether it lives; `None`: there was none.
fn newest(table: &mut Table, through: u32, docid: &str) -> Option<(Stamp, bool)> {
    let call = table.ask(through, sync(&[docid], None, false));
    match synced(table.wait_for(call, 5_000)).remove(0) {
        Update::Full(document) => Some((document.version(), true)),
        Update::Deleted { version, .. } => Some((version, false)),
        Update::Absent { .. } => None,
        other @ (Update::Unchanged { .. } | Update::Changes(_) | Update::SourceBehind { .. }) => {
            panic!("{other:?}")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn a_watch_that_goes_on_knows_the_newest_version_of_all_whatever_happened(
        steps in proptest::collection::vec(step(), 1..40),
        limit in 1..4_u32,
    ) {
        let mut table = with_a_small_window();
        let mut owner = table.view().owner_of(SlotId(OWNER)).0;
        let ids = [0, 1, 2, 3].map(|nth| id_at(&table, owner, nth));
        let op = WatchOp { limit, ..polled(&carts(), None) };
        let mut mirror = Mirror { op, known: BTreeMap::new() };
        let mut has_died = false;
        for (n, step) in (1..).zip(steps) {
            let through = if has_died { owner } else { other_than(owner) };
            match step {
                Step::Put(at) => {
                    let call = table.ask(through, op_at(write(&ids[at], n), &ids[at]));
                    operated(table.wait_for(call, 5_000)).unwrap();
                }
                Step::End(at) => {
                    let change = json!({"class": "Cart", "docid": ids[at], "life": "destroy"});
                    let request = request("document.write", &json!({"changes": [change]}));
                    let call = table.ask(through, op_at(request, &ids[at]));
                    // What does not live cannot end.
                    drop(operated(table.wait_for(call, 5_000)));
                }
                Step::Pull => drop(mirror.pull(&mut table, through)),
                Step::OwnerChanges if has_died => {}
                Step::OwnerChanges => {
                    has_died = true;
                    table.kill(owner);
                    table.pass(3_000);
                    owner = table.view().owner_of(SlotId(OWNER)).0;
                }
            }
        }
        let mut pulls = 0;
        while !mirror.pull(&mut table, owner) {
            pulls += 1;
            prop_assert!(pulls < 200, "it never catches up");
        }
        for id in &ids {
            let (newest, known) = (newest(&mut table, owner, id), mirror.known.get(id).copied());
            // An end before the first snapshot is news to nobody.
            let is_unheard = known.is_none() && newest.is_some_and(|it| !it.1);
            prop_assert!(known == newest || is_unheard, "{id} is {newest:?}, and {known:?} is known");
        }
    }
}

fn op_at(request: rota_docstore::Request, id: &str) -> Op {
    op(request, id)
}
