//! The operations that a manager offers without an application's own code, and the check of who asks.

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
use rota_docstore::{Checker, Credentials, Operation, Operations};
use rota_messages::api::Service;
use rota_tasks::{CLOSE, EXEC, GRPC, HTTP};

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
    let is_read = |service: &Service| match service {
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
