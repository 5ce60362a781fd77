//! Documents, updates, requests for them, exceptions.

use super::Any;
use super::names::{namespace, request_id, stamp, text};
use super::requests::position;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_docstore::{
    Answer, Attachment, Body, Caller, Changes, ChangesParts, Code, Content, Credentials,
    Description, Details, Digest, DocName, Document, DocumentParts, Exception, Held, Item,
    ItemName, JsonText, Limits, Phase, Request, Suspended, SyncRequest, Update, Usage, Volumes,
    codes,
};
use rota_messages::api::{
    DocumentChange, DocumentEvent, ItemFilter, Reader, Service, WatchedDocuments,
};
use rota_model::{FieldError, Namespace, SlotId, Stamp};
use rota_proto::documents::answer::Head;
use rota_proto::documents::export::Part;
use rota_proto::documents::request::{
    Create, ExportDocument, GetBody, List, Operate, PAGE_SIZE_MAX, PutBody, Set, Switch, Sync,
};
use rota_proto::documents::watch::WatchDocuments;
use rota_proto::documents::{DocumentCursor, NamespaceState, document_export};
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn space() -> Any<Namespace> {
    prop_oneof![Just(Namespace::default_space()), namespace()].boxed()
}

fn docid() -> Any<String> {
    prop_oneof![4 => "[a-z{}]{1,8}", 1 => "\\PC{1,20}", 1 => Just("x".repeat(255))].boxed()
}

fn class() -> Any<String> {
    prop_oneof![4 => "[A-Z][a-z]{0,4}", 1 => Just("x".repeat(32))].boxed()
}

pub fn doc_name() -> Any<DocName> {
    (space(), class(), docid())
        .prop_map(|(space, class, docid)| DocName::new(&space, &class, &docid).unwrap())
        .boxed()
}

fn item_name() -> Any<ItemName> {
    // Class P is that of attachments.
    let class = prop_oneof!["[A-O]{1,2}", Just("P".to_owned())];
    let key = prop_oneof![Just(String::new()), "[a-z\n]{1,4}", Just("x".repeat(255))];
    (class, of(key)).prop_map(|(class, key)| ItemName::new(&class, key.as_deref()).unwrap()).boxed()
}

fn digest() -> Any<Digest> {
    any::<[u8; 32]>().prop_map(Digest).boxed()
}

pub fn attachment() -> Any<Attachment> {
    (prop_oneof![Just(""), Just("text/plain.g")], any::<u64>(), digest())
        .prop_map(|(mime, size, sha256)| Attachment::new(mime, size, sha256).unwrap())
        .boxed()
}

pub fn json() -> Any<JsonText> {
    let texts = vec!["{}", "[]", "0", "\"é\"", "{\"a\":null}", " [1, {\"b\":[true]}]\n"];
    select(texts).prop_map(|it| JsonText::parse(it).unwrap()).boxed()
}

fn content(class: &str) -> Any<Content> {
    if class == "P" {
        return attachment().prop_map(|it| Content::Attachment(Arc::new(it))).boxed();
    }
    prop_oneof![
        json().prop_map(Content::Json),
        vec(any::<u8>(), 0..20).prop_map(|it| Content::raw(it).unwrap()),
    ]
    .boxed()
}

/// Four moments in order.
fn moments() -> Any<[Stamp; 4]> {
    [stamp(), stamp(), stamp(), stamp()]
        .prop_map(|mut moments| {
            moments.sort();
            moments
        })
        .boxed()
}

/// Items by name, existing ones of `from` or later, destroyed ones of `gone` or later.
fn items(from: Stamp, gone: Stamp, version: Stamp) -> Any<Vec<Item>> {
    let one = item_name().prop_flat_map(move |name| {
        let ago = (any::<prop::sample::Index>(), any::<bool>());
        (Just(name.clone()), of(content(name.class())), ago)
    });
    vec(one, 0..6)
        .prop_map(move |made| {
            let by_name: BTreeMap<_, _> =
                made.into_iter().map(|(name, content, ago)| (name, (content, ago))).collect();
            let item = |(name, (content, (index, is_copy))): (ItemName, (_, (_, _)))| {
                let index: prop::sample::Index = index;
                let oldest = if Option::<Content>::is_some(&content) { from } else { gone };
                let at = [oldest, version][index.index(2)];
                match content {
                    Some(it) => {
                        let item_version = if is_copy { Stamp::MIN } else { at };
                        Item::existing(name, at, item_version, it).unwrap()
                    }
                    None => Item::destroyed(name, at),
                }
            };
            by_name.into_iter().map(item).collect()
        })
        .boxed()
}

pub fn document() -> Any<Document> {
    (doc_name(), moments(), prop::bool::weighted(0.1))
        .prop_flat_map(|(name, [ctime, dtime, version, _], is_deleted)| {
            let items =
                if is_deleted { Just(vec![]).boxed() } else { items(ctime, dtime, version) };
            items.prop_map(move |items| {
                let name = name.clone();
                let parts = DocumentParts { name, ctime, version, dtime, is_deleted, items };
                Document::from_parts(parts).unwrap()
            })
        })
        .boxed()
}

fn held() -> Any<Held> {
    moments()
        .prop_map(|[ctime, dtime, version, _]| Held::new(ctime, version, dtime).unwrap())
        .boxed()
}

fn changes() -> Any<Changes> {
    let moments = moments().prop_filter("two moments are the same", |[_, a, b, _]| a < b);
    (moments, any::<bool>())
        .prop_flat_map(|([ctime, since, version, _], is_case_2)| {
            let first = since.next();
            let unchanged = btree_map("[Q-Z]{1,3}", of("[a-z]{0,2}"), 0..4);
            (items(first, first, version), unchanged).prop_map(move |(items, unchanged)| {
                let name = |(class, key): (String, Option<String>)| {
                    ItemName::new(&class, key.as_deref()).unwrap()
                };
                let (dtime, unchanged) = match is_case_2 {
                    true => (version, Some(unchanged.into_iter().map(name).collect())),
                    false => (since, None),
                };
                let parts = ChangesParts { ctime, since, version, dtime, items, unchanged };
                Changes::from_parts(parts).unwrap()
            })
        })
        .boxed()
}

pub fn update() -> Any<Update> {
    let life = || moments().prop_map(|[ctime, version, ..]| (ctime, version));
    prop_oneof![
        life().prop_map(|(ctime, version)| Update::Unchanged { ctime, version }),
        document().prop_map(|it| Update::Full(Arc::new(it))),
        changes().prop_map(Update::Changes),
        life().prop_map(|(ctime, version)| Update::Deleted { ctime, version }),
        stamp().prop_map(|as_of| Update::Absent { as_of }),
        life().prop_map(|(ctime, version)| Update::SourceBehind { ctime, version }),
    ]
    .boxed()
}

fn syncs() -> Any<Vec<SyncRequest>> {
    let sync = (doc_name(), of(held())).prop_map(|(name, held)| SyncRequest { name, held });
    vec(sync, 0..4).boxed()
}

pub fn caller() -> Any<Caller> {
    let who = (text(), text(), text()).prop_map(|(account, key, admin)| Credentials {
        account,
        key,
        admin,
    });
    (of(1..u64::MAX), who).prop_map(|(build, who)| Caller { build, who }).boxed()
}

pub fn operate() -> Any<Operate> {
    let what = (space(), text(), of(json()), of(stamp()), of(request_id()));
    (what, caller(), syncs(), docid())
        .prop_map(
            |((space, operation, parameters, operation_time, request_id), caller, syncs, docid)| {
                let Caller { build, who } = caller;
                let request = Request {
                    space,
                    operation,
                    parameters,
                    operation_time,
                    request_id,
                    build,
                    who,
                    syncs,
                    task: None,
                };
                Operate { request, docid }
            },
        )
        .boxed()
}

pub fn sync() -> Any<Sync> {
    (space(), syncs(), any::<bool>(), caller())
        .prop_map(|(space, documents, stale_ok, caller)| Sync {
            space,
            documents,
            stale_ok,
            caller,
        })
        .boxed()
}

pub fn document_cursor() -> Any<DocumentCursor> {
    (any::<u32>(), of(doc_name()))
        .prop_map(|(slot, after)| DocumentCursor { slot: SlotId(slot), after })
        .boxed()
}

pub fn document_list() -> Any<List> {
    (space(), of(class()), 1..=PAGE_SIZE_MAX, document_cursor(), caller())
        .prop_map(|(space, class, limit, from, caller)| List { space, class, limit, from, caller })
        .boxed()
}

/// A watch, and where it goes on.
pub fn watch_of_documents() -> Any<WatchDocuments> {
    let item = of(class()).prop_map(|item| (String::new(), item));
    let text = ("[a-z=<> ]{1,20}", of(class()));
    let filter = prop_oneof![item, text].prop_map(|(text, item)| {
        // Without a text and an item there is no filter.
        (item.is_some() || !text.is_empty()).then_some(ItemFilter { text, item })
    });
    let within = (class(), of(docid()), filter)
        .prop_map(|(class, docid, filter)| (Some(class), docid, filter));
    let which = prop_oneof![Just((None, None, None)), within];
    let reader = (space(), caller()).prop_map(|(space, caller)| Reader {
        space,
        service: Service::Watch,
        caller,
    });
    (reader, space(), which, any::<bool>(), of(position()))
        .prop_map(|(reader, space, (class, docid, filter), names_only, position)| {
            let of = WatchedDocuments { space, class, docid, filter, names_only };
            WatchDocuments { reader, of, position }
        })
        .boxed()
}

pub fn event() -> Any<DocumentEvent> {
    let whole = document().prop_map(|it| DocumentChange::Is(Arc::new(it)));
    let other = select(vec![
        DocumentChange::Named,
        DocumentChange::TooLarge,
        DocumentChange::Ended,
        DocumentChange::Left,
    ]);
    (doc_name(), stamp(), stamp(), prop_oneof![whole, other])
        .prop_map(|(name, ctime, version, change)| DocumentEvent { name, ctime, version, change })
        .boxed()
}

pub fn put_body() -> Any<PutBody> {
    (space(), docid(), any::<u64>(), digest(), caller())
        .prop_map(|(space, docid, size, sha256, caller)| PutBody {
            space,
            docid,
            size,
            sha256,
            caller,
        })
        .boxed()
}

pub fn get_body() -> Any<GetBody> {
    (space(), docid(), digest(), any::<(u64, u64)>(), caller())
        .prop_map(|(space, docid, sha256, (offset, length), caller)| GetBody {
            space,
            docid,
            sha256,
            offset,
            length,
            caller,
        })
        .boxed()
}

pub fn export_document() -> Any<ExportDocument> {
    let which = prop_oneof![Just((false, false)), Just((true, false)), Just((true, true))];
    (namespace(), doc_name(), of(held()), btree_set(digest(), 0..4), caller(), which)
        .prop_map(|(space, name, held, bodies, caller, (items_only, stale_ok))| ExportDocument {
            space,
            name,
            held,
            bodies,
            caller,
            items_only,
            stale_ok,
        })
        .boxed()
}

/// An export of a document from its update to its end.
pub fn document_export() -> Any<Vec<document_export::Part>> {
    use document_export::Part;
    let body = vec(vec(any::<u8>(), 1..9), 0..3).prop_map(|pieces| {
        let size: usize = pieces.iter().map(Vec::len).sum();
        let attachment = Attachment::new("", size as u64, Digest([7; 32])).unwrap();
        let bytes = pieces.into_iter().map(|it| Part::Bytes(it.into()));
        [Part::Body(attachment)].into_iter().chain(bytes).collect::<Vec<_>>()
    });
    (doc_name(), update(), vec(body, 0..3))
        .prop_map(|(name, update, parts)| {
            let bodies = parts.len() as u64;
            let first = [Part::Update(name, update)].into_iter();
            first.chain(parts.into_iter().flatten()).chain([Part::End { bodies }]).collect()
        })
        .boxed()
}

pub fn answer_of_operation() -> Any<Answer> {
    let body = prop_oneof![
        Just(Body::Nothing),
        json().prop_map(Body::Json),
        vec(any::<u8>(), 0..20).prop_map(|it| Body::binary("image/png", it).unwrap()),
    ];
    (stamp(), body, vec((doc_name(), update()), 0..4))
        .prop_map(|(version, body, updates)| Answer { version, body, updates })
        .boxed()
}

pub fn head() -> Any<Head> {
    (doc_name(), stamp(), stamp(), any::<u64>(), any::<u64>())
        .prop_map(|(name, ctime, version, item_bytes, attachment_bytes)| {
            let volumes = Volumes { item_bytes, attachment_bytes };
            Head { name, ctime, version, volumes }
        })
        .boxed()
}

pub fn exception() -> Any<Exception> {
    let own = "[ANBXDCOS][A-Z-]{0,10}".prop_map(|it| Code::parse(&it).unwrap());
    let code = prop_oneof![select(codes::ALL.to_vec()), own];
    let field = ("[a-z.]{1,10}", ".{0,20}").prop_map(|(field, it)| FieldError::new(field, it));
    let rest = (".{0,30}", vec(field, 0..4), ".{0,20}", any::<u8>());
    (code, select(Phase::ALL.to_vec()), rest)
        .prop_map(|(code, phase, (message, fields, operation, attempts))| {
            let after_ms = None;
            Exception::from(Details { code, phase, message, fields, operation, attempts, after_ms })
        })
        .boxed()
}

fn description() -> Any<Description> {
    let limits = (of(any::<u64>()), of(any::<u64>()), of(any::<u64>())).prop_map(
        |(documents, item_bytes, attachment_bytes)| Limits {
            documents,
            item_bytes,
            attachment_bytes,
        },
    );
    let suspended = (any::<bool>(), proptest::collection::btree_set(any::<u8>(), 0..3))
        .prop_map(|(all, queues)| Suspended { all, queues });
    ("[a-z ]{0,9}", of("[a-z ]{0,9}"), limits, vec(namespace(), 0..3), suspended)
        .prop_map(|(description, off, limits, readers, suspended)| Description {
            description,
            off,
            limits,
            readers,
            suspended,
        })
        .boxed()
}

pub fn namespace_state() -> Any<NamespaceState> {
    let usage = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(documents, item_bytes, attachment_bytes)| Usage {
            documents,
            item_bytes,
            attachment_bytes,
        },
    );
    let usage = prop_oneof![usage.prop_map(Ok), "[a-z ]{0,9}".prop_map(Err)];
    (namespace(), description(), usage, of(stamp()))
        .prop_map(|(name, description, usage, version)| NamespaceState {
            name,
            description,
            usage,
            version,
        })
        .boxed()
}

pub fn create() -> Any<Create> {
    (namespace(), description())
        .prop_map(|(name, description)| Create {
            name,
            description: Description { off: None, suspended: Suspended::default(), ..description },
        })
        .boxed()
}

pub fn set() -> Any<Set> {
    let most = || of(of(any::<u64>()));
    // Who may read and who may not any more have no name in common.
    let readers = |prefix: &'static str| {
        let named = select(vec!["one", "two", "three"]);
        vec(named.prop_map(move |it| Namespace::parse(&format!("{prefix}{it}")).unwrap()), 0..3)
    };
    let described = "[a-z ]{0,9}".prop_map(Some);
    (namespace(), described, (most(), most(), most()), readers("a"), readers("b"))
        .prop_map(
            |(
                name,
                description,
                (documents, item_bytes, attachment_bytes),
                add_readers,
                remove_readers,
            )| Set {
                name,
                description,
                documents,
                item_bytes,
                attachment_bytes,
                add_readers,
                remove_readers,
            },
        )
        .boxed()
}

pub fn switch() -> Any<Switch> {
    (namespace(), of("[a-z ]{0,9}")).prop_map(|(name, off)| Switch { name, off }).boxed()
}

/// A whole export: every body in two pieces at most.
pub fn export() -> Any<Vec<Part>> {
    let alive = document().prop_filter("its life has ended", |it| !it.is_deleted());
    let one = (vec(vec(any::<u8>(), 0..9), 0..3), alive);
    (namespace_state(), vec(one, 0..4))
        .prop_map(|(state, documents)| {
            let mut parts = vec![Part::Header(state)];
            let (mut bodies, count) = (0, documents.len() as u64);
            for (contents, document) in documents {
                for content in contents {
                    bodies += 1;
                    let (size, sha256) = (content.len() as u64, Digest([7; 32]));
                    parts.push(Part::Body(Attachment::new("", size, sha256).unwrap()));
                    let pieces = content.chunks(5).map(|it| Part::Bytes(it.to_vec().into()));
                    parts.extend(pieces);
                }
                parts.push(Part::Document(document));
            }
            parts.push(Part::Footer { documents: count, bodies });
            parts
        })
        .boxed()
}
