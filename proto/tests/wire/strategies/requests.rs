//! Requests, answers and refusals.

use super::names::*;
use super::records::{record, spec};
use super::{Any, documents};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_docstore::Usage;
use rota_lifecycle::{Edit, LifeItem, Managed, Name};
use rota_messages::api::{
    ClearOp, CountedUsage, DocumentEvent, FollowOp, ImportOp, OperateOp, PageOp, Reader, Service,
    SyncOp, WatchOp,
};
use rota_messages::lives::{Event, FireOp, Life, LivesAnswer, LivesOp, Retrying, UpdateOp};
use rota_messages::{Answer, DocumentAnswer, DocumentCursor, DocumentOp, DocumentPage, Op};
use rota_model::node_msg::{ReportEvent, ReportItem};
use rota_model::*;
use rota_proto::{Position, SendEvent, Watch, v1};
use std::sync::Arc;

pub fn open_op() -> Any<OpenOp> {
    (key(), spec(), request_id(), any::<(bool, bool)>())
        .prop_map(|(key, spec, request, (remember, pool_named))| {
            // A pool that is not named is the usual one.
            let pool = if pool_named { spec.pool.clone() } else { PoolName::default_pool() };
            let spec = SessionSpec { pool, ..spec };
            OpenOp { key, spec, pool_named, request, remember }
        })
        .boxed()
}

pub fn close_op() -> Any<CloseOp> {
    (key(), of(stamp()), request_id(), of(0..=GRACE_MS_MAX), any::<bool>())
        .prop_map(|(key, life, request, grace_ms, by_operator)| CloseOp {
            key,
            life,
            request,
            grace_ms,
            by_operator,
        })
        .boxed()
}

pub fn get_op() -> Any<GetOp> {
    (key(), any::<bool>()).prop_map(|(key, stale_ok)| GetOp { key, stale_ok }).boxed()
}

pub fn keep_alive_op() -> Any<KeepAliveOp> {
    (key(), of(stamp())).prop_map(|(key, life)| KeepAliveOp { key, life }).boxed()
}

pub fn mend_op() -> Any<MendOp> {
    (key(), name(NodeId::parse), any::<bool>())
        .prop_map(|(key, node, dry_run)| MendOp { key, node, dry_run })
        .boxed()
}

/// Filters as a client can write them: without a key.
pub fn client_filter() -> Any<Filter> {
    let class = of(name(ClassName::parse));
    (vec(state(), 0..3), of(name(NodeId::parse)), class, of(namespace()))
        .prop_map(|(states, node, class, namespace)| Filter {
            states,
            node,
            class,
            namespace,
            key: None,
        })
        .boxed()
}

pub fn filter() -> Any<Filter> {
    (client_filter(), of(key())).prop_map(|(it, key)| Filter { key, ..it }).boxed()
}

pub fn cursor() -> Any<ListCursor> {
    (slot(), of(key())).prop_map(|(slot, after)| ListCursor { slot, after }).boxed()
}

pub fn limit() -> Any<u32> {
    (1..=PAGE_SIZE_MAX).boxed()
}

pub fn client_list() -> Any<ListOp> {
    (cursor(), limit(), client_filter(), any::<bool>())
        .prop_map(|(from, limit, filter, stale_ok)| ListOp { from, limit, filter, stale_ok })
        .boxed()
}

pub fn pull_op() -> Any<PullOp> {
    (slot(), of(at()), of(cursor()), limit(), any::<u64>(), filter())
        .prop_map(|(slot, from, snapshot_after, limit, wait_ms, filter)| PullOp {
            slot,
            from,
            snapshot_after,
            limit,
            wait_ms,
            filter,
        })
        .boxed()
}

pub fn report() -> Any<ReportItem> {
    let ended = (reason(), of(exit()), text())
        .prop_map(|(reason, exit, detail)| ReportEvent::Ended { reason, exit, detail });
    let event = prop_oneof![
        (address(), ".{0,20}").prop_map(|(address, remark)| ReportEvent::Ready { address, remark }),
        ended,
        (text(), any::<u64>())
            .prop_map(|(state, change)| ReportEvent::MachineState { state, change }),
    ];
    (key(), name(NodeId::parse), boot(), token(), event)
        .prop_map(|(key, node, boot, token, event)| ReportItem { key, node, boot, token, event })
        .boxed()
}

fn event() -> Any<Event> {
    ("x[a-z]{1,4}", "[a-z]{1,5}").prop_map(|(life_cycle, word)| Event { life_cycle, word }).boxed()
}

fn items() -> Any<Vec<LifeItem>> {
    let item = "x[a-z]{1,4} [a-z]{1,5}".prop_map(|it| LifeItem::parse(&it).expect("it is an item"));
    vec(item, 0..3).boxed()
}

fn lives_op() -> Any<LivesOp> {
    let finish = vec("x[a-z]{1,4}".prop_map(|it| Name::parse(&it).expect("a name")), 0..2);
    let edit = (items(), items(), finish);
    let edit = edit.prop_map(|(add, remove, finish)| Edit { add, remove, finish, replace: None });
    let attributes = btree_map("[a-z]{1,6}", of(".{0,12}"), 0..4);
    let events = (vec(event(), 0..2), vec(event(), 0..2));
    let update = (key(), of(stamp()), of(stamp()), attributes, edit, events).prop_map(
        |(key, life, if_version, attributes, edit, (skip, retry))| {
            let edit = Arc::new(edit);
            UpdateOp { key, life, if_version, attributes, edit, skip, retry, ran: None }
        },
    );
    let fire = (key(), stamp(), event())
        .prop_map(|(key, origin, event)| LivesOp::Fire(Box::new(FireOp { key, origin, event })));
    prop_oneof![
        update.prop_map(|it| LivesOp::Update(Box::new(it))),
        key().prop_map(LivesOp::Show),
        fire,
    ]
    .boxed()
}

fn lives_answer() -> Any<LivesAnswer> {
    let managed =
        (stamp(), stamp(), items(), any::<bool>()).prop_map(|(origin, now, add, ends)| {
            let mut managed = Managed::new(origin);
            // Items of one name are refused, and then nothing is managed.
            drop(managed.edit(&Edit::adding(add), now));
            managed.settle(now);
            if ends {
                managed.end(now);
            }
            Arc::new(managed)
        });
    let retrying = (event(), "[a-z]{1,6}", select(vec!["WAITING", "PARKED"]), of(stamp()));
    let retrying = retrying.prop_map(|(event, task, state, at)| Retrying {
        event,
        task,
        state: state.to_owned(),
        at: at.filter(|it| it.as_u64() > 0),
    });
    let life = (of(view_of_session()), managed, vec(retrying, 0..3), of(event())).prop_map(
        |(session, managed, retrying, running)| Life { session, managed, retrying, running },
    );
    let fired = prop_oneof![Just(Ok(())), ("[A-Z]{0,6}", ".{0,20}").prop_map(Err)];
    prop_oneof![
        life.prop_map(|it| LivesAnswer::Life(Box::new(it))),
        fired.prop_map(LivesAnswer::Fired),
    ]
    .boxed()
}

pub fn op() -> Any<Op> {
    let list = (client_list(), filter()).prop_map(|(op, filter)| ListOp { filter, ..op });
    prop_oneof![
        open_op().prop_map(Op::Open),
        close_op().prop_map(Op::Close),
        keep_alive_op().prop_map(Op::KeepAlive),
        lives_op().prop_map(Op::Lives),
        get_op().prop_map(Op::Get),
        list.prop_map(Op::List),
        pull_op().prop_map(Op::Pull),
        report().prop_map(Op::Report),
        mend_op().prop_map(Op::Mend),
        document_op().prop_map(Op::Documents),
    ]
    .boxed()
}

fn reader() -> Any<Reader> {
    (documents::space(), select(Service::ALL.to_vec()), documents::caller())
        .prop_map(|(space, service, caller)| Reader { space, service, caller })
        .boxed()
}

fn document_op() -> Any<DocumentOp> {
    let operate = documents::operate().prop_map(|operate| {
        DocumentOp::Operate(OperateOp { request: Arc::new(operate.request), docid: operate.docid })
    });
    let slot = || any::<u32>().prop_map(SlotId);
    let sync = (of(reader()), slot(), documents::sync()).prop_map(|(reader, slot, sync)| {
        let reader = reader.map(Arc::new);
        let (syncs, stale_ok) = (sync.documents, sync.stale_ok);
        DocumentOp::Sync(SyncOp { reader, slot, syncs, stale_ok })
    });
    let page = (documents::document_list(), any::<bool>()).prop_map(|(list, by_operator)| {
        let (from, limit, space, class) = (list.from, list.limit, list.space, list.class);
        DocumentOp::Page(PageOp { from, limit, space, class, by_operator })
    });
    let clear = (documents::document_cursor(), documents::space())
        .prop_map(|(from, space)| DocumentOp::Clear(ClearOp { from, space }));
    let import = documents::document()
        .prop_map(|it| DocumentOp::Import(ImportOp { document: Arc::new(it) }));
    let follow =
        (any::<u64>(), any::<u64>(), of(counted_usage())).prop_map(|(ms, wait_ms, held)| {
            DocumentOp::Follow(FollowOp { since: Stamp::from_epoch_ms(ms), wait_ms, held })
        });
    prop_oneof![operate, sync, page, clear, import, follow, watch_op()].boxed()
}

fn watch_op() -> Any<DocumentOp> {
    let place = (any::<u32>(), of(at()), of(documents::document_cursor()));
    let how = (any::<bool>(), any::<u32>(), any::<u64>());
    (documents::watch_of_documents(), place, how)
        .prop_map(|(watch, (slot, from, snapshot_after), (tells_absent, limit, wait_ms))| {
            DocumentOp::Watch(WatchOp {
                reader: Arc::new(watch.reader),
                of: Arc::new(watch.of),
                slot: SlotId(slot),
                from,
                snapshot_after,
                tells_absent,
                limit,
                wait_ms,
            })
        })
        .boxed()
}

fn usage() -> Any<Usage> {
    any::<[u64; 3]>()
        .prop_map(|[documents, item_bytes, attachment_bytes]| Usage {
            documents,
            item_bytes,
            attachment_bytes,
        })
        .boxed()
}

fn counted_usage() -> Any<CountedUsage> {
    let space = documents::space().prop_map(|it| it.as_str().to_owned());
    (any::<u64>(), btree_map(space, usage(), 0..3))
        .prop_map(|(epoch, usages)| CountedUsage { epoch: Epoch(epoch), usages })
        .boxed()
}

fn document_answer() -> Any<DocumentAnswer> {
    let cursor = || of(documents::document_cursor());
    let operated = documents::answer_of_operation().prop_map(Ok);
    let synced = documents::answer_of_operation().prop_map(|it| Ok(it.updates));
    let page = (vec(documents::head(), 0..4), cursor(), usage())
        .prop_map(|(documents, next, usage)| DocumentPage { documents, next, usage });
    prop_oneof![
        prop_oneof![operated, documents::exception().prop_map(Err)]
            .prop_map(DocumentAnswer::Operated),
        prop_oneof![synced, documents::exception().prop_map(Err)].prop_map(DocumentAnswer::Synced),
        page.prop_map(DocumentAnswer::Page),
        (any::<u64>(), cursor())
            .prop_map(|(deleted, next)| DocumentAnswer::Cleared { deleted, next }),
        prop_oneof![any::<bool>().prop_map(Ok), documents::exception().prop_map(Err)]
            .prop_map(DocumentAnswer::Imported),
        (vec(documents::document().prop_map(Arc::new), 0..4), of(counted_usage()))
            .prop_map(|(documents, held)| DocumentAnswer::Followed { documents, held }),
        prop_oneof![watched().prop_map(Ok), documents::exception().prop_map(Err)]
            .prop_map(DocumentAnswer::Watched),
    ]
    .boxed()
}

fn watched() -> Any<Pulled<DocumentEvent, DocumentCursor>> {
    let told = (number(), vec(documents::event(), 0..4), any::<bool>());
    (told, at(), of(documents::document_cursor()))
        .prop_map(|((part, events, snapshot), upto, snapshot_next)| Pulled {
            part,
            events,
            snapshot,
            upto,
            snapshot_next,
        })
        .boxed()
}

pub fn view_of_session() -> Any<SessionView> {
    // What is remembered of requests does not travel.
    let record = record().prop_map(|record| SessionRecord {
        spec: SessionSpec { life: None, ..record.spec },
        grace_ms: None,
        requests: Vec::new(),
        ..record
    });
    (record.prop_map(Arc::new), number(), epoch(), of(contact()), 0..3_u32)
        .prop_map(|(record, owner, epoch, node, failed_actions)| SessionView {
            record,
            owner,
            epoch,
            node,
            failed_actions,
        })
        .boxed()
}

fn contact() -> Any<NodeContact> {
    (select(NodeState::ALL), of(any::<u64>()))
        .prop_map(|(state, unheard_ms)| NodeContact { state, unheard_ms })
        .boxed()
}

pub fn refusal() -> Any<Refusal> {
    let retry = prop_oneof![
        Just(Retry::Never),
        Just(Retry::WhenChanged),
        Just(Retry::Now),
        any::<u64>().prop_map(Retry::AfterMs),
        epoch().prop_map(Retry::AtOwner),
    ];
    let field = ("[a-z.]{1,10}", ".{0,20}").prop_map(|(field, it)| FieldError::new(field, it));
    let changed = select(vec![Changed::No, Changed::Unknown]);
    (select(RefusalKind::ALL), ".{0,30}", vec(field, 0..4), retry, changed)
        .prop_map(|(kind, message, fields, retry, changed)| Refusal {
            kind,
            message,
            fields,
            retry,
            changed,
        })
        .boxed()
}

pub fn answer() -> Any<Answer> {
    let outcome = select(vec![Outcome::Created, Outcome::Existed]);
    let page = (vec(view_of_session(), 0..3), of(cursor()), any::<bool>())
        .prop_map(|(sessions, next, stale)| Page { sessions, next, stale });
    let pulled = (number(), vec(view_of_session(), 0..3), any::<bool>(), at(), of(cursor()))
        .prop_map(|(part, events, snapshot, upto, snapshot_next)| Pulled {
            part,
            events,
            snapshot,
            upto,
            snapshot_next,
        });
    prop_oneof![
        (outcome, view_of_session(), any::<bool>()).prop_map(|(outcome, session, ended_since)| {
            Answer::Opened { outcome, session, ended_since }
        }),
        (any::<bool>(), view_of_session())
            .prop_map(|(finished, session)| Answer::Closed { finished, session }),
        (view_of_session(), any::<bool>())
            .prop_map(|(session, stale)| Answer::Got { session, stale }),
        page.prop_map(Answer::Listed),
        pulled.prop_map(Answer::Pulled),
        (view_of_session(), of(0..=GRACE_MS_MAX))
            .prop_map(|(session, idle_ms)| Answer::KeptAlive { session, idle_ms }),
        Just(Answer::Reported),
        (select(MendStep::ALL.to_vec()), of(token()), ".{0,20}")
            .prop_map(|(step, token, text)| Answer::Mended(Mended { step, token, text })),
        document_answer().prop_map(Answer::Documents),
        lives_answer().prop_map(Answer::Lives),
    ]
    .boxed()
}

/// As managers show it.
pub fn session() -> Any<v1::Session> {
    let view = (view_of_session(), address());
    view.prop_map(|(view, node_address)| rota_proto::session::session(view, node_address)).boxed()
}

pub fn position() -> Any<Position> {
    let parts = btree_map(number(), at(), 0..6);
    (any::<u64>(), parts).prop_map(|(cluster, parts)| Position { cluster, parts }).boxed()
}

pub fn watch() -> Any<Watch> {
    (filter(), selected(), of(position()))
        .prop_map(|(filter, selected, position)| Watch { filter, selected, position })
        .boxed()
}

fn selected() -> Any<rota_search::Filter> {
    let fields = rota_messages::documents::session_fields();
    let texts = ["", "attr.user = \"x y\"", "state = READY and age > 10m"];
    let filters = texts.map(|it| rota_search::Filter::parse(it, &fields).expect("it parses"));
    proptest::sample::select(filters.to_vec()).boxed()
}

pub fn send() -> Any<SendEvent> {
    (key(), "[a-z]{1,8}", of(stamp()))
        .prop_map(|(key, event, life)| SendEvent { key, event, life })
        .boxed()
}
