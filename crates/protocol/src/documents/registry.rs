//! What a manager offers of documents without an application's own code: classes, operations, and
//! the check of who asks.

use crate::contents::tasks::with_tasks;
use crate::documents::administer::{
    NamespacePut, NamespaceRemove, NamespaceSet, NamespaceSwitch, WebPut, WebRemove,
};
use crate::documents::content::{ContentCommit, ContentFollow, ContentRemove};
use crate::documents::output::{SessionForgetOutput, SessionOutput};
use crate::documents::pools::{PoolCreate, PoolRemove, PoolSet};
use crate::documents::read::{DocumentRead, DocumentTouch};
use crate::documents::tasks::manage::{
    TaskAdvance, TaskCreate, TaskDelete, TaskPause, TaskPostpone, TaskResume, TaskRetry,
};
use crate::documents::tasks::runs::{TaskEnd, TaskFail, TaskProgress, TaskStart};
use crate::documents::tasks::suspend::{QueueResume, QueueSuspend};
use crate::documents::write::DocumentWrite;
use crate::ports::slots::CONFIGURATION;
use crate::settings::documents::AdminKey;
use rota_content::{CONTENT_CLASS, FOLLOWS_CLASS, with_content};
use rota_docstore::space::{SPACE_CLASS, WEB_CLASS};
use rota_docstore::{
    Checker, Credentials, Exception, FieldError, Operation, Operations, Schema, codes,
};
use rota_messages::api::Service;
use rota_messages::documents::{OUTPUT_CLASS, with_lives, with_outputs};
use rota_model::items::{
    LIFE_CLASS, NUMBER_CLASS, ORDERS_CLASS, OWN_CLASSES, POOL_CLASS, REQUEST_CLASS, SESSION_CLASS,
    SESSION_NUMBERS_CLASS,
};
use rota_tasks::{CLOSE, EXEC, GRPC, HTTP, PARAM_CLASS, TASK_CLASS};
use std::collections::BTreeSet;

/// All classes of documents: those with a meaning of their own, and beside them every other one.
pub fn schema() -> Schema {
    // Managers write sessions, orders of pools and stable numbers; operations may read them.
    let own = Schema::new().with_configuration().with_sessions();
    let own = with_lives(own)
        .read_only(SESSION_CLASS)
        .read_only(LIFE_CLASS)
        .read_only(REQUEST_CLASS)
        .read_only(ORDERS_CLASS)
        .read_only(NUMBER_CLASS)
        .read_only(SESSION_NUMBERS_CLASS);
    with_tasks(with_content(with_outputs(own))).open()
}

/// The operations that every manager knows.
pub fn operations() -> Operations {
    Operations::new()
        .with::<DocumentWrite>()
        .with::<DocumentRead>()
        .with::<DocumentTouch>()
        .with::<NamespacePut>()
        .with::<NamespaceSet>()
        .with::<NamespaceSwitch>()
        .with::<NamespaceRemove>()
        .with::<PoolCreate>()
        .with::<PoolSet>()
        .with::<PoolRemove>()
        .with::<ContentCommit>()
        .with::<ContentFollow>()
        .with::<ContentRemove>()
        .with::<SessionOutput>()
        .with::<SessionForgetOutput>()
        .with::<WebPut>()
        .with::<WebRemove>()
        .with::<TaskCreate>()
        .with::<TaskDelete>()
        .with::<TaskAdvance>()
        .with::<TaskPostpone>()
        .with::<TaskRetry>()
        .with::<TaskPause>()
        .with::<TaskResume>()
        .with::<QueueSuspend>()
        .with::<QueueResume>()
        .with_hidden::<TaskStart>()
        .with_hidden::<TaskEnd>()
        .with_hidden::<TaskFail>()
        .with_hidden::<TaskProgress>()
}

/// Refuses classes with which managers cannot work: field `schema`. Operations must not change sessions,
/// orders of pools and stable numbers, which managers keep in another way; and there must be the documents that describe
/// namespaces and pools, and those of the web. [`schema`] has all of them.
pub fn check_schema(schema: &Schema) -> Result<(), FieldError> {
    let wrong = |class: &str, must: &str| {
        Err(FieldError::new("schema", format!("must {must} documents of class {class:?}")))
    };
    for class in OWN_CLASSES {
        if !schema.is_declared(class) || !schema.is_read_only(class) {
            return wrong(class, "declare, as read only,");
        }
    }
    let mut targets = BTreeSet::new();
    for (class, item) in schema.copy_targets() {
        if !targets.insert((class, item)) {
            let problem =
                format!("copies {item:?} to {class:?} from two classes, and may from one");
            return Err(FieldError::new("schema", problem));
        }
        if schema.copies(class, item).is_some() || schema.is_read_only(class) {
            let problem = format!(
                "copies {item:?} to {class:?}, which must be written, and not be copied on"
            );
            return Err(FieldError::new("schema", problem));
        }
    }
    let written = [SPACE_CLASS, POOL_CLASS, WEB_CLASS, CONTENT_CLASS, FOLLOWS_CLASS, OUTPUT_CLASS];
    for class in written.into_iter().chain([TASK_CLASS, PARAM_CLASS]) {
        if !schema.is_declared(class) || schema.is_read_only(class) {
            return wrong(class, "declare");
        }
    }
    Ok(())
}

/// Refuses to write documents of a class that has a meaning of its own.
pub(crate) fn check_free(schema: &Schema, class: &str) -> Result<(), Exception> {
    if !schema.is_declared(class) {
        return Ok(());
    }
    let problem = format!("{class:?} has a meaning of its own: this operation must not write it");
    Err(Exception::of_field(codes::CLASS, FieldError::new("class", problem)))
}

/// Whether it is an operation of administrators.
pub(crate) fn administers(operation: &str) -> bool {
    let is_work = [EXEC, HTTP, GRPC, CLOSE].contains(&operation);
    is_work
        || ["namespace.", "pool.", "web.", "content.", "task.", "queue."]
            .iter()
            .any(|it| operation.starts_with(it))
}

/// Operations of administrators need their key, and so does whatever may write in the namespace for
/// configuration, an application's own operations included; and who gives one must give the right one.
impl Checker for AdminKey {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        let writes = space == CONFIGURATION && !only_reads(operation);
        let is_administration = administers(operation) || writes;
        if is_administration || !who.admin.is_empty() { self.check(&who.admin) } else { Ok(()) }
    }
}

/// Of what an application registers nobody knows that.
fn only_reads(operation: &str) -> bool {
    let is_read = |it: &Service| match it {
        Service::Sync
        | Service::List
        | Service::Export
        | Service::GetBody
        | Service::Search
        | Service::Watch => true,
        Service::PutBody => false,
    };
    let mut reads = Service::ALL.into_iter().filter(is_read).map(Service::as_str);
    operation == DocumentRead::NAME || reads.any(|it| it == operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_in(space: &str, key: &str, given: &str, operation: &str) -> Result<(), String> {
        let who = Credentials { admin: given.to_owned(), ..Credentials::default() };
        Checker::check(&AdminKey::new(key), &who, space, operation)
    }

    fn check(key: &str, given: &str, operation: &str) -> Result<(), String> {
        check_in("shop", key, given, operation)
    }

    #[test]
    fn a_schema_that_lets_operations_change_sessions_or_lacks_what_managers_keep_is_refused() {
        assert_eq!(check_schema(&schema()), Ok(()));
        assert_eq!(check_schema(&schema().class("Acc", |it| it)), Ok(()));
        let refused = |schema: Schema| check_schema(&schema).unwrap_err().to_string();
        let sessions = with_lives(Schema::new().with_configuration().with_sessions());
        let must = "schema must declare, as read only, documents of class";
        assert_eq!(refused(sessions.clone()), format!("{must} \"session\""));
        let sessions = sessions.read_only(SESSION_CLASS);
        assert_eq!(refused(sessions.clone()), format!("{must} \"life\""));
        let sessions = sessions.read_only(LIFE_CLASS);
        assert_eq!(refused(sessions.clone()), format!("{must} \"request\""));
        let sessions = sessions.read_only(REQUEST_CLASS);
        assert_eq!(refused(sessions), format!("{must} \"orders\""));
        let spaces = schema().read_only(SPACE_CLASS);
        assert_eq!(refused(spaces), "schema must declare documents of class \"Space\"");
    }

    #[test]
    fn administration_needs_the_key_if_there_is_one() {
        assert_eq!(check("", "", "namespace.put"), Ok(()));
        assert_eq!(check("secret", "secret", "namespace.put"), Ok(()));
        let missing = Err("the administrator's key is missing".to_owned());
        assert_eq!(check("secret", "", "web.put"), missing);
        assert_eq!(check("secret", "", "document.write"), Ok(()));
    }

    #[test]
    fn whatever_writes_into_the_namespace_for_configuration_needs_the_key() {
        let missing = Err("the administrator's key is missing".to_owned());
        for operation in ["document.write", "document.touch", "body.put", "bank.transfer"] {
            assert_eq!(check_in("z", "secret", "", operation), missing, "{operation}");
            assert_eq!(check_in("z", "secret", "secret", operation), Ok(()), "{operation}");
            assert_eq!(check_in("z", "", "", operation), Ok(()), "{operation}");
        }
        for operation in ["document.read", "document.sync", "document.list", "body.get"] {
            assert_eq!(check_in("z", "secret", "", operation), Ok(()), "{operation}");
        }
    }

    #[test]
    fn a_wrong_key_is_refused_whatever_the_operation() {
        let wrong = Err("the administrator's key is wrong".to_owned());
        for given in ["Secret", "secre", "secrets", "x"] {
            assert_eq!(check("secret", given, "document.read"), wrong, "{given}");
        }
        assert_eq!(format!("{:?}", AdminKey::new("secret")), "AdminKey(set)");
    }
}
