//! Namespaces as they are shown.

use crate::output::{counted, plain_table};
use comfy_table::Table;
use rota_client::docstore::Stamp;
use rota_client::documents::NamespaceState;
use serde::Serialize;

/// How much a namespace may hold; without a number, as much as there is room for.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownLimits {
    pub documents: Option<u64>,
    pub item_bytes: Option<u64>,
    pub attachment_bytes: Option<u64>,
}

/// A namespace.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Shown {
    pub name: String,
    pub description: String,
    /// What its clients are told while it is off; none while it is on.
    pub off: Option<String>,
    /// How many it holds; none, as the next two, when not every owner could be asked.
    pub documents: Option<u64>,
    /// Bytes of documents.
    pub item_bytes: Option<u64>,
    /// Bytes of attachments.
    pub attachment_bytes: Option<u64>,
    pub limits: ShownLimits,
    pub readers: Vec<String>,
    /// Of its description; none when nobody described it.
    pub version: Option<u64>,
}

impl Shown {
    /// Of a namespace.
    pub fn of(state: &NamespaceState) -> Self {
        let it = &state.description;
        let usage = state.usage.as_ref().ok();
        Self {
            name: state.name.as_str().to_owned(),
            description: it.description.clone(),
            off: it.off.clone(),
            documents: usage.map(|it| it.documents),
            item_bytes: usage.map(|it| it.item_bytes),
            attachment_bytes: usage.map(|it| it.attachment_bytes),
            limits: ShownLimits {
                documents: it.limits.documents,
                item_bytes: it.limits.item_bytes,
                attachment_bytes: it.limits.attachment_bytes,
            },
            readers: it.readers.iter().map(|it| it.as_str().to_owned()).collect(),
            version: state.version.map(Stamp::as_u64),
        }
    }
}

/// `namespace list`.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownAll {
    pub namespaces: Vec<Shown>,
}

/// `namespace delete`.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Deleted {
    pub name: String,
    pub documents: u64,
    /// False: it was deleted before.
    pub was_there: bool,
}

/// What was deleted, for a person, and what stays.
pub fn deleted(it: &Deleted) -> String {
    let (name, documents) = (&it.name, counted(it.documents, "document"));
    let done = if it.was_there {
        format!("deleted {name} with {documents}")
    } else {
        format!("{name} was deleted before")
    };
    format!("{done}; records of its ended sessions stay until 10 minutes after each ended\n")
}

/// `namespace export`.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Exported {
    pub name: String,
    pub file: String,
    pub documents: u64,
    pub bodies: u64,
    pub bytes: u64,
}

/// `namespace import`.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct Imported {
    pub documents: u64,
    pub kept: u64,
    pub bodies: u64,
}

fn of_limit(holds: Option<u64>, limit: Option<u64>) -> String {
    let holds = holds.map_or_else(|| "-".to_owned(), |it| it.to_string());
    limit.map_or_else(|| holds.clone(), |limit| format!("{holds} of {limit}"))
}

fn state(it: &Shown) -> &'static str {
    if it.off.is_some() { "off" } else { "on" }
}

/// All of them, one a row.
pub fn many(all: &[Shown]) -> Table {
    let mut table = plain_table([
        "NAME",
        "STATE",
        "DOCUMENTS",
        "ITEM_BYTES",
        "ATTACHMENT_BYTES",
        "DESCRIPTION",
    ]);
    for it in all {
        table.add_row([
            it.name.clone(),
            state(it).to_owned(),
            of_limit(it.documents, it.limits.documents),
            of_limit(it.item_bytes, it.limits.item_bytes),
            of_limit(it.attachment_bytes, it.limits.attachment_bytes),
            it.description.clone(),
        ]);
    }
    table
}

/// One of them, one property a row.
pub fn one(it: &Shown) -> Table {
    let mut table = plain_table(["NAME", &it.name]);
    let rows = [
        ("state", state(it).to_owned()),
        ("message", it.off.clone().unwrap_or_default()),
        ("documents", of_limit(it.documents, it.limits.documents)),
        ("bytes of documents", of_limit(it.item_bytes, it.limits.item_bytes)),
        ("bytes of attachments", of_limit(it.attachment_bytes, it.limits.attachment_bytes)),
        ("readers", it.readers.join(", ")),
        ("description", it.description.clone()),
        (
            "version",
            it.version
                .map_or_else(|| "not created: on, without limits".to_owned(), |it| it.to_string()),
        ),
    ];
    for (property, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.add_row([property.to_owned(), value]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::{Description, Limits, Namespace, Usage};

    fn shop_with(usage: Result<Usage, String>) -> Shown {
        let limits = Limits { documents: Some(100), ..Limits::default() };
        let off = Some("moving".to_owned());
        Shown::of(&NamespaceState {
            name: Namespace::parse("shop").unwrap(),
            description: Description { limits, off, ..Description::default() },
            usage,
            version: None,
        })
    }

    fn shop() -> Shown {
        shop_with(Ok(Usage { documents: 3, item_bytes: 900, attachment_bytes: 0 }))
    }

    #[test]
    fn what_is_not_known_is_null_and_a_dash() {
        let shown = shop_with(Err("not every owner answers".to_owned()));
        let text = serde_json::to_string(&shown).unwrap();
        assert!(
            text.contains("\"documents\":null,\"item_bytes\":null,\"attachment_bytes\":null"),
            "{text}"
        );
        let text = one(&shown).to_string();
        assert!(text.contains("- of 100"), "{text}");
    }

    #[test]
    fn a_namespace_is_printed_with_exactly_these_fields_in_this_order() {
        let text = serde_json::to_string(&shop()).unwrap();
        assert_eq!(
            text,
            "{\"name\":\"shop\",\"description\":\"\",\"off\":\"moving\",\"documents\":3,\"item_bytes\":900,\
             \"attachment_bytes\":0,\"limits\":{\"documents\":100,\"item_bytes\":null,\"attachment_bytes\":null},\"readers\":[],\
             \"version\":null}"
        );
    }

    #[test]
    fn a_table_shows_what_is_held_of_what_may_be() {
        let text = many(&[shop()]).to_string();
        assert!(text.contains("3 of 100") && text.contains("off"), "{text}");
        let text = one(&shop()).to_string();
        assert!(text.contains("moving") && !text.contains("readers"), "{text}");
    }
}
