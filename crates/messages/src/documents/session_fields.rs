//! The fields by which sessions are searched and filtered.

use super::session::decode;
use rota_docstore::Document;
use rota_model::{Reason, SessionRecord, SessionState};
use rota_search::{Fields, Kind, Shapes, Value, Values};
use smol_str::{SmolStr, format_smolstr};
use std::sync::LazyLock;

/// The class of items under whose name the fields of a session stand.
pub const SESSION_FIELDS: &str = "session";

const STATE: &str = "state";
const REASON: &str = "reason";
const CLASS: &str = "class";
const POOL: &str = "pool";
const NODE: &str = "node";
const NAMESPACE: &str = "namespace";
const AGE: &str = "age";
/// How the names of attributes begin.
pub const ATTRIBUTE: &str = "attr.";

static STATES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| SessionState::ALL.iter().map(|it| it.as_str()).collect());
static REASONS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| Reason::ALL.iter().map(|it| it.as_str()).collect());

/// What a filter of sessions may name, beside `docid`, which is a session's id.
pub fn session_fields() -> Fields {
    Fields::new()
        .with(STATE, Kind::Word(&STATES))
        .with(REASON, Kind::Word(&REASONS))
        .with(CLASS, Kind::Text)
        .with(POOL, Kind::Text)
        .with(NODE, Kind::Text)
        .with(NAMESPACE, Kind::Text)
        .with(AGE, Kind::Age)
        .with_family(ATTRIBUTE, Kind::Text)
}

/// Adds the fields of sessions to what is indexed.
#[must_use]
pub fn with_session_fields(shapes: Shapes) -> Shapes {
    let class = rota_model::items::SESSION_CLASS;
    shapes.with_derived(class, SESSION_FIELDS, session_fields(), |document: &Document| {
        let record = decode(document).expect("documents of sessions were checked when they came");
        values(&record)
    })
}

fn values(record: &SessionRecord) -> Vec<(SmolStr, Value)> {
    let mut values: Vec<(SmolStr, Value)> = vec![
        (STATE.into(), Value::text(record.state.as_str())),
        (CLASS.into(), Value::text(record.spec.class.as_str())),
        (POOL.into(), Value::text(record.spec.pool.as_str())),
        (NAMESPACE.into(), Value::text(record.key.namespace.as_str())),
        (AGE.into(), Value::Time(record.life)),
    ];
    let reason = record.reason.map(|it| (REASON.into(), Value::text(it.as_str())));
    let node = record.placement.as_ref().map(|it| (NODE.into(), Value::text(it.node.as_str())));
    values.extend(reason.into_iter().chain(node));
    let attributes = record.spec.attributes.iter();
    values.extend(
        attributes.map(|(name, value)| (format_smolstr!("{ATTRIBUTE}{name}"), Value::text(value))),
    );
    values
}

/// A session, as filters ask about it.
#[derive(Clone, Copy, Debug)]
pub struct SessionValues<'a>(pub &'a SessionRecord);

impl Values for SessionValues<'_> {
    fn values(&self, field: &str, each: &mut dyn FnMut(&Value)) {
        if field == rota_search::DOCID {
            return each(&Value::text(self.0.key.id.as_str()));
        }
        values(self.0).iter().filter(|it| it.0 == field).for_each(|it| each(&it.1));
    }
}
