//! Deferred copies: items that are copied to documents of other classes after a commit.
//!
//! A document `A1` has items `Member`, of which each is copied to every document that holds one, as a working group does
//! with some members of some associations. There the key is the one of the item, a separator, and the id of the document
//! that it comes from: `N7.A1`. A singleton has the id alone, `A1`.
//!
//! A copy changes an item that is there. It makes none, and takes none away: the operations of the other class do.

use crate::attempt::Transaction;
use crate::copy_rule::CopyRule;
use crate::exception::Exception;
use crate::name::{DocName, ItemName};
use crate::schema::{ClassSchema, Schema};
use rota_model::FieldError;

impl ClassSchema {
    /// Items of that class are copied to documents of other classes, which hold them under the same class. Keys of these
    /// items have no separator in them: else two items would have one copy. Panics when that is declared twice, or
    /// nothing is copied to.
    pub fn copied(
        &mut self,
        item: &'static str,
        to: &[&'static str],
        separator: char,
    ) -> &mut Self {
        assert!(!to.is_empty(), "items {item} are copied to no class");
        let rule = CopyRule { to: to.to_vec(), separator };
        let known = self.copies.insert(item, rule);
        assert!(known.is_none(), "copies of {item} are declared twice");
        self
    }
}

impl Schema {
    /// How items are copied, if they are.
    pub fn copies(&self, class: &str, item: &str) -> Option<&CopyRule> {
        self.declared(class)?.copies.get(item)
    }

    /// Whether documents of that class have items that are copied.
    pub fn is_copied(&self, class: &str) -> bool {
        self.declared(class).is_some_and(|it| !it.copies.is_empty())
    }

    /// Classes of documents that hold copies, each with the class of the items. In no order; some twice.
    pub fn copy_targets(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let rules = self.classes().filter_map(|it| self.declared(it)).flat_map(|it| &it.copies);
        rules.flat_map(|(item, rule)| rule.to.iter().map(|class| (*class, *item)))
    }

    /// Refuses the key of a copied item with the separator in it, or with which the key of its copies would be too long:
    /// field `key`.
    pub(crate) fn check_copied(&self, of: &DocName, item: &ItemName) -> Result<(), FieldError> {
        let Some(rule) = self.copies(of.class(), item.class()) else { return Ok(()) };
        let key = rule.key(item, of.docid());
        if let Err(wrong) = ItemName::keyed(item.class(), &key) {
            let problem = format!("is copied as {key:?}, which cannot be: {}", wrong.problem);
            return Err(FieldError::new("key", problem));
        }
        match item.key().filter(|it| it.contains(rule.separator)) {
            None => Ok(()),
            Some(key) => {
                let problem = format!(
                    "is {key:?}, and must not have {:?} in it: this separates keys of copies",
                    rule.separator
                );
                Err(FieldError::new("key", problem))
            }
        }
    }
}

impl Transaction<'_> {
    /// Leaves the copying of what was written for later: it is registered in this very commit.
    pub(crate) fn leave_copying(&mut self) -> Result<(), Exception> {
        let changed = self.copied_documents();
        if changed.is_empty() {
            return Ok(());
        }
        let keeper = self.keeper()?;
        changed.iter().try_for_each(|name| keeper.copy(self, name))
    }

    fn copied_documents(&self) -> Vec<DocName> {
        let schema = &self.rules().schema;
        let is_copied = |class: &str, item: &ItemName| schema.copies(class, item.class()).is_some();
        let edits = self.edits().iter().filter(|it| schema.is_copied(it.name().class()));
        let changed =
            edits.filter(|it| it.written().any(|item| is_copied(it.name().class(), item)));
        changed.map(|it| it.name().clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let schema = Schema::new().class("Group", crate::schema::ClassSchema::any);
        schema.class("Asso", |class| {
            class.any().copied("Member", &["Group"], '.').copied("Sta", &["Group"], '.')
        })
    }

    #[test]
    fn others_hold_an_item_under_its_key_and_the_id_of_its_document() {
        let schema = schema();
        let rule = schema.copies("Asso", "Member").expect("it is declared");
        let member = ItemName::keyed("Member", "N7").expect("it is a name");
        assert_eq!(rule.key(&member, "A1"), "N7.A1");
        let singleton = ItemName::singleton("Sta").expect("it is a name");
        assert_eq!(rule.key(&singleton, "A1"), "A1");
        assert!(schema.is_copied("Asso") && !schema.is_copied("Group"));
        let mut targets: Vec<_> = schema.copy_targets().collect();
        targets.sort_unstable();
        assert_eq!(targets, [("Group", "Member"), ("Group", "Sta")]);
    }

    #[test]
    fn a_key_with_the_separator_and_one_that_copies_cannot_have_are_refused() {
        let schema = schema();
        let key = |text: &str| ItemName::keyed("Member", text).expect("it is a name");
        let space = rota_model::Namespace::default_space();
        let name = |class: &str, docid: &str| DocName::new(&space, class, docid).expect("a name");
        let (asso, group) = (name("Asso", "A1"), name("Group", "G1"));
        assert_eq!(schema.check_copied(&asso, &key("N7")), Ok(()));
        let wrong = schema.check_copied(&asso, &key("N.7")).expect_err("it is ambiguous");
        assert_eq!(wrong.field, "key");
        assert_eq!(schema.check_copied(&group, &key("N.7")), Ok(()));
        let long = name("Asso", &"a".repeat(200));
        let wrong = schema.check_copied(&long, &key(&"n".repeat(100))).expect_err("it is too long");
        assert!(wrong.problem.contains("cannot be"), "{wrong}");
    }
}
