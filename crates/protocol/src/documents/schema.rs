//! The classes of documents that a manager knows, and what an application's own must keep to.

use crate::contents::tasks::with_tasks;
use rota_content::{CONTENT_CLASS, FOLLOWS_CLASS, with_content};
use rota_docstore::space::{SPACE_CLASS, WEB_CLASS};
use rota_docstore::{Exception, FieldError, Schema, codes};
use rota_messages::documents::{OUTPUT_CLASS, with_lives, with_outputs};
use rota_model::items::{
    LIFE_CLASS, NUMBER_CLASS, ORDERS_CLASS, OWN_CLASSES, POOL_CLASS, REQUEST_CLASS, SESSION_CLASS,
    SESSION_NUMBERS_CLASS,
};
use rota_tasks::{PARAM_CLASS, TASK_CLASS};
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
