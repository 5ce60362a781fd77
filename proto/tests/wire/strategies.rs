//! Arbitrary values of the model, edge values included.

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_model::node_msg::*;
use rota_model::*;
use rota_proto::{Position, SendEvent, Session, Watch};
use rota_protocol::{
    Doc, DocKey, DocName, Entry, Envelope, Identity, Message, PartMeta, PartStats, PoolRecord,
    Stats, Write,
};
use rota_ring::view::VIEW_FORMAT;
use rota_ring::{IsrMember, ManagerEntry, NodeReg, Part, PartState, View};
use std::sync::Arc;

pub type Any<T> = BoxedStrategy<T>;

/// A checked name: short, with any printable characters, or as long as it may be.
fn name<T: std::fmt::Debug + 'static>(parse: fn(&str) -> Result<T, FieldError>) -> Any<T> {
    let text = prop_oneof![
        6 => "[a-z0-9.-]{1,8}",
        // Few letters, so that one name is often the beginning of another.
        4 => "[ab !é]{1,4}",
        2 => "\\PC{1,20}",
        1 => Just("x".repeat(NAME_BYTES_MAX)),
    ];
    text.prop_map(move |it| parse(&it).expect("the strategies make valid names"))
        .boxed()
}

pub fn key() -> Any<SessionKey> {
    let namespace = prop_oneof![Just(Namespace::default_space()), name(Namespace::parse)];
    (namespace, name(SessionId::parse))
        .prop_map(|(namespace, id)| SessionKey::new(namespace, id))
        .boxed()
}

pub fn request_id() -> Any<RequestId> {
    name(RequestId::parse)
}

fn number() -> Any<ManagerNumber> {
    any::<u32>().prop_map(ManagerNumber).boxed()
}

fn slot() -> Any<SlotId> {
    prop_oneof![0..4_u32, any::<u32>()].prop_map(SlotId).boxed()
}

fn epoch() -> Any<Epoch> {
    any::<u64>().prop_map(Epoch).boxed()
}

pub fn at() -> Any<LogPos> {
    (epoch(), any::<u64>())
        .prop_map(|(pe, seq)| LogPos::new(pe, Seq(seq)))
        .boxed()
}

fn token() -> Any<Token> {
    at().prop_map(Token).boxed()
}

pub fn stamp() -> Any<Stamp> {
    let ms = Stamp::MIN.to_epoch_ms()..=Stamp::MAX.to_epoch_ms();
    prop_oneof![9 => ms.prop_map(Stamp::from_epoch_ms), 1 => select(vec![Stamp::MIN, Stamp::MAX])]
        .boxed()
}

fn state() -> Any<SessionState> {
    select(SessionState::ALL).boxed()
}

fn reason() -> Any<Reason> {
    select(Reason::ALL).boxed()
}

fn exit() -> Any<Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal),
        ".{0,8}".prop_map(Exit::FinalState),
    ]
    .boxed()
}

fn text() -> Any<String> {
    prop_oneof![Just(String::new()), ".{0,20}"].boxed()
}

fn address() -> Any<String> {
    prop_oneof![Just(String::new()), "127\\.0\\.0\\.1:[1-9][0-9]{0,3}"].boxed()
}

fn attributes() -> Any<Attributes> {
    btree_map("[a-z]{1,6}", ".{0,12}", 0..4).boxed()
}

fn spec() -> Any<SessionSpec> {
    let pool = prop_oneof![Just(PoolName::default_pool()), name(PoolName::parse)];
    (name(ClassName::parse), pool, attributes())
        .prop_map(|(class, pool, attributes)| {
            let attributes = Arc::new(attributes);
            SessionSpec {
                class,
                pool,
                attributes,
            }
        })
        .boxed()
}

fn boot() -> Any<BootId> {
    any::<u64>().prop_map(BootId).boxed()
}

fn placement() -> Any<Placement> {
    (name(NodeId::parse), boot(), token(), address())
        .prop_map(|(node, boot, token, address)| Placement {
            node,
            boot,
            token,
            address,
        })
        .boxed()
}

fn request_entry() -> Any<RequestEntry> {
    let outcome = select(vec![Outcome::Created, Outcome::Existed]);
    let opened =
        (outcome, stamp(), stamp(), placement()).prop_map(|(outcome, life, version, placement)| {
            RequestFate::Opened {
                outcome,
                life,
                version,
                placement,
            }
        });
    let fate = prop_oneof![
        Just(RequestFate::Opening),
        opened,
        stamp().prop_map(|life| RequestFate::Closed { life }),
    ];
    (request_id(), stamp(), fate)
        .prop_map(|(id, at, fate)| RequestEntry { id, at, fate })
        .boxed()
}

pub fn record() -> Any<SessionRecord> {
    let what = (key(), spec(), stamp(), stamp(), state());
    let how = (of(reason()), text(), of(exit()), of(placement()), text());
    (what, how, vec(request_entry(), 0..4))
        .prop_map(|((key, spec, life, version, state), how, requests)| {
            let (reason, detail, exit, placement, machine_state) = how;
            SessionRecord {
                key,
                spec,
                life,
                version,
                state,
                reason,
                detail,
                exit,
                placement,
                machine_state,
                requests,
            }
        })
        .boxed()
}

pub fn doc() -> Any<Doc> {
    let pool = (
        name(PoolName::parse),
        any::<u64>(),
        vec(name(NodeId::parse), 0..3),
        any::<u64>(),
    )
        .prop_map(|(pool, decisions, ordered, lapses_wall_ms)| {
            Doc::Pool(PoolRecord {
                pool,
                decisions,
                ordered,
                lapses_wall_ms,
            })
        });
    prop_oneof![4 => record().prop_map(Doc::Session), 1 => pool].boxed()
}

pub fn doc_key() -> Any<DocKey> {
    let name = prop_oneof![
        4 => key().prop_map(DocName::Session),
        1 => name(PoolName::parse).prop_map(DocName::Pool),
    ];
    (slot(), name)
        .prop_map(|(slot, name)| DocKey { slot, name })
        .boxed()
}

fn write() -> Any<Write> {
    (doc_key(), of(doc().prop_map(Arc::new)))
        .prop_map(|(key, doc)| Write { key, doc })
        .boxed()
}

fn entry() -> Any<Entry> {
    (at(), vec(write(), 0..3), of(request_id()))
        .prop_map(|(at, writes, request)| Entry {
            at,
            writes: Arc::new(writes),
            request,
        })
        .boxed()
}

pub fn open_op() -> Any<OpenOp> {
    (key(), spec(), request_id(), any::<bool>())
        .prop_map(|(key, spec, request, remember)| OpenOp {
            key,
            spec,
            request,
            remember,
        })
        .boxed()
}

pub fn close_op() -> Any<CloseOp> {
    (key(), of(stamp()), request_id())
        .prop_map(|(key, life, request)| CloseOp { key, life, request })
        .boxed()
}

pub fn get_op() -> Any<GetOp> {
    (key(), any::<bool>())
        .prop_map(|(key, stale_ok)| GetOp { key, stale_ok })
        .boxed()
}

/// Filters as a client can write them: without a key.
pub fn client_filter() -> Any<Filter> {
    let class = of(name(ClassName::parse));
    (
        vec(state(), 0..3),
        of(name(NodeId::parse)),
        class,
        of(name(Namespace::parse)),
    )
        .prop_map(|(states, node, class, namespace)| Filter {
            states,
            node,
            class,
            namespace,
            key: None,
        })
        .boxed()
}

fn filter() -> Any<Filter> {
    (client_filter(), of(key()))
        .prop_map(|(it, key)| Filter { key, ..it })
        .boxed()
}

pub fn cursor() -> Any<ListCursor> {
    (slot(), of(key()))
        .prop_map(|(slot, after)| ListCursor { slot, after })
        .boxed()
}

fn limit() -> Any<u32> {
    (1..=PAGE_SIZE_MAX).boxed()
}

pub fn client_list() -> Any<ListOp> {
    (cursor(), limit(), client_filter(), any::<bool>())
        .prop_map(|(from, limit, filter, stale_ok)| ListOp {
            from,
            limit,
            filter,
            stale_ok,
        })
        .boxed()
}

fn pull_op() -> Any<PullOp> {
    (
        slot(),
        of(at()),
        of(cursor()),
        limit(),
        any::<u64>(),
        filter(),
    )
        .prop_map(
            |(slot, from, snapshot_after, limit, wait_ms, filter)| PullOp {
                slot,
                from,
                snapshot_after,
                limit,
                wait_ms,
                filter,
            },
        )
        .boxed()
}

pub fn report() -> Any<ReportItem> {
    let ended =
        (reason(), of(exit()), text()).prop_map(|(reason, exit, detail)| ReportEvent::Ended {
            reason,
            exit,
            detail,
        });
    let event = prop_oneof![
        address().prop_map(|address| ReportEvent::Ready { address }),
        ended,
        (text(), any::<u64>())
            .prop_map(|(state, change)| ReportEvent::MachineState { state, change }),
    ];
    (key(), name(NodeId::parse), boot(), token(), event)
        .prop_map(|(key, node, boot, token, event)| ReportItem {
            key,
            node,
            boot,
            token,
            event,
        })
        .boxed()
}

fn op() -> Any<Op> {
    let list = (client_list(), filter()).prop_map(|(op, filter)| ListOp { filter, ..op });
    prop_oneof![
        open_op().prop_map(Op::Open),
        close_op().prop_map(Op::Close),
        get_op().prop_map(Op::Get),
        list.prop_map(Op::List),
        pull_op().prop_map(Op::Pull),
        report().prop_map(Op::Report),
    ]
    .boxed()
}

pub fn view_of_session() -> Any<SessionView> {
    (record().prop_map(Arc::new), number(), epoch())
        .prop_map(|(record, owner, epoch)| SessionView {
            record,
            owner,
            epoch,
        })
        .boxed()
}

pub fn refusal() -> Any<Refusal> {
    let retry = prop_oneof![
        Just(Retry::Never),
        Just(Retry::Now),
        any::<u64>().prop_map(Retry::AfterMs),
        epoch().prop_map(Retry::AtOwner),
    ];
    let field = ("[a-z.]{1,10}", ".{0,20}").prop_map(|(field, it)| FieldError::new(field, it));
    let changed = select(vec![Changed::No, Changed::Unknown]);
    (
        select(RefusalKind::ALL),
        ".{0,30}",
        vec(field, 0..4),
        retry,
        changed,
    )
        .prop_map(|(kind, message, fields, retry, changed)| Refusal {
            kind,
            message,
            fields,
            retry,
            changed,
        })
        .boxed()
}

fn answer() -> Any<Answer> {
    let outcome = select(vec![Outcome::Created, Outcome::Existed]);
    let page = (vec(view_of_session(), 0..3), of(cursor()))
        .prop_map(|(sessions, next)| Page { sessions, next });
    let pulled = (
        number(),
        vec(view_of_session(), 0..3),
        any::<bool>(),
        at(),
        of(cursor()),
    )
        .prop_map(|(part, events, snapshot, upto, snapshot_next)| Pulled {
            part,
            events,
            snapshot,
            upto,
            snapshot_next,
        });
    prop_oneof![
        (outcome, view_of_session())
            .prop_map(|(outcome, session)| Answer::Opened { outcome, session }),
        (any::<bool>(), view_of_session())
            .prop_map(|(finished, session)| Answer::Closed { finished, session }),
        (view_of_session(), any::<bool>())
            .prop_map(|(session, stale)| Answer::Got { session, stale }),
        page.prop_map(Answer::Listed),
        pulled.prop_map(Answer::Pulled),
        Just(Answer::Reported),
    ]
    .boxed()
}

fn part_epochs() -> Any<Vec<(ManagerNumber, Epoch)>> {
    vec((number(), epoch()), 0..4).boxed()
}

fn copying() -> Any<Message> {
    let report = (number(), epoch(), at(), at(), vec(doc_key(), 0..3)).prop_map(
        |(part, pe, last, committed, touched)| Message::SyncReport {
            part,
            pe,
            last,
            committed,
            touched,
        },
    );
    let data = (number(), epoch(), at(), vec(write(), 0..3)).prop_map(|(part, pe, at, writes)| {
        Message::SyncData {
            part,
            pe,
            at,
            writes: Arc::new(writes),
        }
    });
    let docs = vec((doc_key(), doc().prop_map(Arc::new)), 0..3);
    let where_to = (number(), epoch(), any::<u64>(), any::<u64>());
    let chunk = (where_to, at(), at(), of(doc_key()), of(doc_key()), docs).prop_map(
        |((part, pe, learn, chunk), start, upto, after, through, docs)| Message::SnapshotChunk {
            part,
            pe,
            learn,
            chunk,
            start,
            upto,
            after,
            through,
            docs,
        },
    );
    let ack =
        (number(), epoch(), any::<u64>(), any::<u64>()).prop_map(|(part, pe, learn, chunk)| {
            Message::SnapshotAck {
                part,
                pe,
                learn,
                chunk,
            }
        });
    prop_oneof![report, data, chunk, ack].boxed()
}

fn message() -> Any<Message> {
    let request =
        (any::<u64>(), any::<u64>(), op()).prop_map(|(rid, deadline_ms, op)| Message::Request {
            rid,
            deadline_ms,
            op: Box::new(op),
        });
    let result = prop_oneof![4 => answer().prop_map(Ok), 1 => refusal().prop_map(Err)];
    let answer = (any::<u64>(), result).prop_map(|(rid, result)| Message::Answer {
        rid,
        result: Box::new(result),
    });
    let prepare = (number(), epoch(), at(), at(), vec(entry(), 0..3)).prop_map(
        |(part, pe, committed, after, entries)| Message::Prepare {
            part,
            pe,
            committed,
            after,
            entries,
        },
    );
    let place = || (number(), epoch(), any::<u64>().prop_map(Seq));
    prop_oneof![
        3 => request,
        3 => answer,
        3 => prepare,
        1 => place().prop_map(|(part, pe, seq)| Message::Ack { part, pe, seq }),
        1 => place().prop_map(|(part, pe, seq)| Message::Missing { part, pe, seq }),
        1 => (number(), epoch()).prop_map(|(part, pe)| Message::SyncAsk { part, pe }),
        3 => copying(),
        1 => (any::<u64>(), part_epochs())
            .prop_map(|(round, parts)| Message::Confirm { round, parts }),
        1 => (any::<u64>(), part_epochs())
            .prop_map(|(round, parts)| Message::Confirmed { round, parts }),
        1 => vec((number(), at()), 0..4).prop_map(|committed| Message::Heartbeat { committed }),
        1 => (name(PoolName::parse), any::<u32>())
            .prop_map(|(pool, waiting)| Message::NodeWanted { pool, waiting }),
    ]
    .boxed()
}

fn member() -> Any<MemberId> {
    (number(), any::<u64>().prop_map(Incarnation))
        .prop_map(|(number, incarnation)| MemberId {
            number,
            incarnation,
        })
        .boxed()
}

pub fn envelope() -> Any<Envelope> {
    (member(), member(), epoch(), message())
        .prop_map(|(from, to, epoch, message)| Envelope {
            from,
            to,
            epoch,
            message,
        })
        .boxed()
}

fn slot_range() -> Any<SlotRange> {
    (slot(), slot())
        .prop_map(|(first, last)| SlotRange { first, last })
        .boxed()
}

pub fn to_node() -> Any<ToNode> {
    let head = || {
        (any::<u64>(), boot(), epoch(), slot_range()).prop_map(|(call, boot, pe, range)| NodeCall {
            call,
            boot,
            pe,
            range,
        })
    };
    let create = (
        head(),
        key(),
        slot(),
        token(),
        any::<u64>(),
        spec(),
        of(request_id()),
    )
        .prop_map(
            |(head, key, slot, token, deadline_ms, spec, request)| ToNode::Create {
                head,
                key,
                slot,
                token,
                deadline_ms,
                spec,
                request,
            },
        );
    let destroy = (head(), key(), slot(), token(), of(request_id())).prop_map(
        |(head, key, slot, token, request)| ToNode::Destroy {
            head,
            key,
            slot,
            token,
            request,
        },
    );
    let scan = (head(), of(key()), any::<u32>()).prop_map(|(head, after, limit)| ToNode::Scan {
        head,
        after,
        limit,
    });
    prop_oneof![create, destroy, scan].boxed()
}

fn dead() -> Any<DeadToken> {
    prop_oneof![
        text().prop_map(|detail| DeadToken::NeverStarted { detail }),
        (reason(), of(exit()), text()).prop_map(|(reason, exit, detail)| DeadToken::Ended {
            reason,
            exit,
            detail
        }),
    ]
    .boxed()
}

fn load() -> Any<NodeLoad> {
    (any::<u32>(), any::<u32>())
        .prop_map(|(used, places)| NodeLoad { used, places })
        .boxed()
}

pub fn from_node() -> Any<FromNode> {
    let fate = prop_oneof![
        (address(), any::<bool>()).prop_map(|(address, ready)| ScanFate::Live { address, ready }),
        dead().prop_map(ScanFate::Dead),
    ];
    let item = (key(), token(), fate).prop_map(|(key, token, fate)| ScanItem { key, token, fate });
    let answer = prop_oneof![
        (address(), any::<bool>())
            .prop_map(|(address, ready)| NodeAnswer::Running { address, ready }),
        dead().prop_map(NodeAnswer::Dead),
        Just(NodeAnswer::Full),
        token().prop_map(|token| NodeAnswer::OtherLive { token }),
        of(exit()).prop_map(|exit| NodeAnswer::Destroyed { exit }),
        (vec(item, 0..3), any::<bool>())
            .prop_map(|(items, more)| NodeAnswer::Scanned { items, more }),
        epoch().prop_map(|fence| NodeAnswer::Fenced { fence }),
        Just(NodeAnswer::WrongBoot),
    ];
    (any::<u64>(), name(NodeId::parse), boot(), load(), answer)
        .prop_map(|(call, node, boot, load, answer)| FromNode {
            call,
            node,
            boot,
            load,
            answer,
        })
        .boxed()
}

pub fn register() -> Any<Register> {
    let state = select(vec![NodeState::Ready, NodeState::Removed]);
    let classes = vec(name(ClassName::parse), 0..3);
    let who = (name(NodeId::parse), boot(), "[a-z.]{1,9}:[1-9][0-9]{0,3}");
    (who, name(PoolName::parse), any::<u32>(), classes, state)
        .prop_map(
            |((node, boot, address), pool, places, classes, state)| Register {
                node,
                boot,
                address,
                pool,
                places,
                classes,
                state,
            },
        )
        .boxed()
}

fn managers() -> Any<Vec<(ManagerNumber, String)>> {
    vec((number(), address()), 0..4).boxed()
}

pub fn registered() -> Any<Registered> {
    (
        epoch(),
        any::<u32>(),
        vec((slot_range(), epoch()), 0..4),
        managers(),
    )
        .prop_map(|(epoch, m, fences, managers)| Registered {
            epoch,
            m,
            fences,
            managers,
        })
        .boxed()
}

pub fn renew() -> Any<Renew> {
    (name(NodeId::parse), boot(), load(), any::<u64>())
        .prop_map(|(node, boot, load, live_digest)| Renew {
            node,
            boot,
            load,
            live_digest,
        })
        .boxed()
}

pub fn renewed() -> Any<Renewed> {
    prop_oneof![
        (epoch(), managers()).prop_map(|(epoch, managers)| Renewed::Granted { epoch, managers }),
        (number(), epoch(), managers()).prop_map(|(judge, epoch, managers)| Renewed::NotJudge {
            judge,
            epoch,
            managers
        }),
        Just(Renewed::Lost),
        Just(Renewed::NotServing),
    ]
    .boxed()
}

pub fn session() -> Any<Session> {
    (view_of_session(), address())
        .prop_map(|(view, node_address)| {
            let wire = rota_proto::session::session(view, node_address);
            Session::try_from(wire).expect("what managers show can be read")
        })
        .boxed()
}

pub fn position() -> Any<Position> {
    btree_map(number(), at(), 0..6)
        .prop_map(|parts| Position { parts })
        .boxed()
}

pub fn watch() -> Any<Watch> {
    (filter(), of(position()))
        .prop_map(|(filter, position)| Watch { filter, position })
        .boxed()
}

pub fn send() -> Any<SendEvent> {
    (key(), "[a-z]{1,8}", of(stamp()))
        .prop_map(|(key, event, life)| SendEvent { key, event, life })
        .boxed()
}

pub fn part_meta() -> Any<PartMeta> {
    (epoch(), at(), any::<bool>())
        .prop_map(|(pe, last, whole)| PartMeta { pe, last, whole })
        .boxed()
}

pub fn identity() -> Any<Identity> {
    let claimed = || {
        of((
            any::<u64>().prop_map(Incarnation),
            any::<u64>().prop_map(Nonce),
        ))
    };
    (claimed(), claimed())
        .prop_map(|(taken, intended)| Identity { taken, intended })
        .boxed()
}

/// Views that keep every rule of a View, with zeroes where the wire has nothing.
pub fn ring_view() -> Any<View> {
    let manager = (name(ManagerId::parse), address(), address(), any::<u64>()).prop_flat_map(
        |(id, grpc, http, incarnation)| {
            select(ManagerStatus::ALL).prop_map(move |status| ManagerEntry {
                id: id.clone(),
                grpc: grpc.clone(),
                http: http.clone(),
                incarnation: Incarnation(incarnation),
                nonce: Nonce(0),
                status,
            })
        },
    );
    let managers = btree_map((0..1024_u32).prop_map(ManagerNumber), manager, 1..6);
    let pes = vec((0..100_u64, any::<bool>()), 6);
    (managers, pes, name(ClusterName::parse), 0..4_u32)
        .prop_map(|(managers, pes, cluster, r)| {
            let numbers: Vec<ManagerNumber> = managers.keys().copied().collect();
            let part = |(index, (pe, active)): (usize, &(u64, bool))| {
                let copies = numbers.iter().cycle().skip(index);
                let isr = copies.take(numbers.len().min(r as usize + 1));
                let isr: Vec<_> = isr
                    .map(|it| IsrMember {
                        number: *it,
                        since: Epoch(0),
                    })
                    .collect();
                let state = if *active {
                    PartState::Active
                } else {
                    PartState::Recovering
                };
                let owner = isr[0].number;
                Part {
                    pe: Epoch(*pe),
                    owner,
                    isr,
                    base_pe: Epoch(0),
                    state,
                }
            };
            let parts = pes.iter().enumerate().map(part);
            View {
                format: VIEW_FORMAT,
                cluster,
                epoch: Epoch(100),
                m: 1024,
                r,
                managers_max: 100,
                parts: numbers.iter().copied().zip(parts).collect(),
                managers,
            }
        })
        .boxed()
}

pub fn stats() -> Any<Stats> {
    let sessions = btree_map(state(), any::<u64>(), 0..4);
    let lag =
        btree_map(number(), any::<u64>(), 0..3).prop_map(|it| it.into_iter().collect::<Vec<_>>());
    let role = select(&rota_proto::operator::ROLES[..]);
    let part = (number(), role, at(), at(), sessions, lag, any::<u64>()).prop_map(
        |(part, role, last, committed, sessions, lag, digest)| PartStats {
            part,
            role,
            last,
            committed,
            sessions,
            lag,
            digest,
        },
    );
    let node = (register(), select(NodeState::ALL), any::<u32>()).prop_map(|(it, state, used)| {
        let load = NodeLoad {
            used,
            places: it.places,
        };
        let Register {
            node,
            boot,
            address,
            pool,
            places,
            classes,
            state: _,
        } = it;
        (
            NodeReg {
                node,
                boot,
                address,
                pool,
                places,
                classes,
                state,
                revision: 0,
            },
            load,
        )
    });
    (vec(part, 0..3), vec(node, 0..3), any::<u32>())
        .prop_map(|(parts, nodes, waiting)| Stats {
            parts,
            nodes,
            requests_waiting: waiting as usize,
        })
        .boxed()
}
