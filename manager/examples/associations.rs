//! Associations and working groups: the example of deferred copies. An association has a status and members. A group holds
//! copies of some members of some associations, and of the status of these.
//!
//! ```text
//! mkdir bin && ln -s $PWD/target/release/examples/associations bin/rota-manager
//! ROTA_BIN_DIR=$PWD/bin ringctl dev
//! ringctl document operate default/A1 asso.status '{"id": "A1", "title": "Chess", "active": true}'
//! ringctl document operate default/A1 asso.member '{"id": "A1", "number": "N7", "name": "Ann", "active": true}'
//! ringctl document operate default/G1 group.join '{"id": "G1", "association": "A1", "number": "N7"}'
//! ringctl document operate default/A1 asso.member '{"id": "A1", "number": "N7", "name": "Ann", "active": false}'
//! ringctl document get default/Group/G1
//! ```
//!
//! A join reads the association, which lies elsewhere, and may be some seconds old. It passes the version of what it read
//! ([`rota_docstore::DocumentEdit::put_copy`]), so that a newer state overwrites it.

use rota_docstore::{
    About, Content, Exception, ItemName, Operation, Place, Tolerance, Transaction,
};
use rota_manager::Application;
use rota_protocol::operate;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// The class of associations.
const ASSOCIATION: &str = "Asso";
/// The class of groups.
const GROUP: &str = "Group";
/// The status: a singleton of an association; of a group the key is the association's id.
const STATUS: &str = "Sta";
/// Members, by number; of a group the key is the number, a dot and the association's id.
const MEMBER: &str = "Adh";
/// What separates the two.
const SEPARATOR: char = '.';

/// How old the association may be that a join reads.
const READ_S: u32 = 2;

/// `asso.status`, at the association.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    title: String,
    active: bool,
}

/// `asso.member`, at the association.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    #[serde(skip_serializing)]
    number: String,
    name: String,
    active: bool,
}

/// `group.join` and `group.leave`, at the group: a member of an association.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    association: String,
    number: String,
}

impl Part {
    /// The key under which a group holds the member.
    fn key(&self) -> String {
        format!("{}{SEPARATOR}{}", self.number, self.association)
    }
}

/// What callers are told of these two.
fn about_part(summary: &'static str) -> About {
    About {
        summary,
        parameters: r#"{"type": "object", "required": ["id", "association", "number"],
            "properties": {"id": {"type": "string"}, "association": {"type": "string"}, "number": {"type": "string"}}}"#,
        example: r#"{"id": "G1", "association": "A1", "number": "N7"}"#,
    }
}

/// Each operation is told the id of its document, and runs there.
#[derive(Deserialize)]
struct At<T> {
    id: String,
    #[serde(flatten)]
    rest: T,
}

fn put<T: Serialize>(
    transaction: &mut Transaction<'_>,
    id: &str,
    item: &ItemName,
    value: &T,
) -> Result<(), Exception> {
    let name = transaction.name(ASSOCIATION, id)?;
    let edited = transaction.current(&name)?;
    edited.ensure();
    edited.put_content(item, Content::json_of(value)?)
}

struct SetStatus(At<Status>);

impl Operation for SetStatus {
    const NAME: &'static str = "asso.status";
    const PLACE: Place = Place::Inline;
    type Parameters = At<Status>;

    fn about() -> About {
        About {
            summary: "Sets the status of an association. Runs at its id.",
            parameters: r#"{"type": "object", "required": ["id", "title", "active"],
                "properties": {"id": {"type": "string"}, "title": {"type": "string"}, "active": {"type": "boolean"}}}"#,
            example: r#"{"id": "A1", "title": "Chess", "active": true}"#,
        }
    }

    fn new(status: At<Status>) -> Result<Self, Exception> {
        Ok(Self(status))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let At { id, rest } = &self.0;
        put(transaction, id, &ItemName::singleton(STATUS)?, rest)
    }
}

struct SetMember(At<Member>);

impl Operation for SetMember {
    const NAME: &'static str = "asso.member";
    const PLACE: Place = Place::Inline;
    type Parameters = At<Member>;

    fn about() -> About {
        About {
            summary: "Sets a member of an association. Runs at the association's id.",
            parameters: r#"{"type": "object", "required": ["id", "number", "name", "active"],
                "properties": {"id": {"type": "string"}, "number": {"type": "string"},
                    "name": {"type": "string"}, "active": {"type": "boolean"}}}"#,
            example: r#"{"id": "A1", "number": "N7", "name": "Ann", "active": true}"#,
        }
    }

    fn new(member: At<Member>) -> Result<Self, Exception> {
        Ok(Self(member))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let At { id, rest } = &self.0;
        put(transaction, id, &ItemName::keyed(MEMBER, &rest.number)?, rest)
    }
}

struct JoinGroup(At<Part>);

impl Operation for JoinGroup {
    const NAME: &'static str = "group.join";
    const PLACE: Place = Place::Inline;
    type Parameters = At<Part>;

    fn about() -> About {
        about_part("Lets a member of an association take part in a group. Runs at the group's id.")
    }

    fn new(join: At<Part>) -> Result<Self, Exception> {
        Ok(Self(join))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let At { id, rest } = &self.0;
        let Part { association, number } = rest;
        let name = transaction.name(ASSOCIATION, association)?;
        let source = transaction.recent(&name, Tolerance::seconds(READ_S))?;
        let read = |class: &str, key: Option<&str>| {
            let found = source.content(class, key).cloned();
            found.zip(source.item_version(class, key))
        };
        let unknown = || {
            let problem = format!("{number:?} is no member of {association}");
            Exception::business("MEMBER", &problem)
        };
        let (member, status) =
            (read(MEMBER, Some(number)).ok_or_else(unknown)?, read(STATUS, None));
        let copies = [(MEMBER, rest.key(), Some(member)), (STATUS, association.clone(), status)];
        let group = transaction.name(GROUP, id)?;
        let edited = transaction.current(&group)?;
        edited.ensure();
        for (class, key, copy) in copies {
            if let Some((content, version)) = copy {
                edited.put_copy(&ItemName::keyed(class, &key)?, content, version)?;
            }
        }
        Ok(())
    }
}

struct LeaveGroup(At<Part>);

impl Operation for LeaveGroup {
    const NAME: &'static str = "group.leave";
    const PLACE: Place = Place::Inline;
    type Parameters = At<Part>;

    fn about() -> About {
        about_part("Takes a member of an association out of a group. Runs at the group's id.")
    }

    fn new(leave: At<Part>) -> Result<Self, Exception> {
        Ok(Self(leave))
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let At { id, rest } = &self.0;
        let group = transaction.name(GROUP, id)?;
        let edited = transaction.current(&group)?;
        edited.remove(MEMBER, Some(&rest.key()))?;
        let Part { association, .. } = rest;
        let end = format!("{SEPARATOR}{association}");
        let is_last = !edited.keys(MEMBER).any(|key| key.ends_with(&end));
        if is_last {
            edited.remove(STATUS, Some(association))?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let schema = operate::schema().class(GROUP, |it| it.any()).class(ASSOCIATION, |items| {
        items.any().copied(STATUS, &[GROUP], SEPARATOR).copied(MEMBER, &[GROUP], SEPARATOR)
    });
    let operations = operate::operations().with::<SetStatus>().with::<SetMember>();
    let operations = operations.with::<JoinGroup>().with::<LeaveGroup>();
    match Application::new(operations, schema) {
        Ok(application) => rota_manager::main(application),
        Err(mistake) => {
            eprintln!("{mistake}");
            ExitCode::FAILURE
        }
    }
}
