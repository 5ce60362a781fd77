//! The program's own changes, where somebody decides who may change what.

use super::*;
use rota_docstore::{Checker, Credentials, codes};

/// Lets one account do everything.
#[derive(Debug)]
struct Only(&'static str);

impl Checker for Only {
    fn check(&self, who: &Credentials, _space: &str, operation: &str) -> Result<(), String> {
        if who.account == self.0 {
            return Ok(());
        }
        Err(format!("{:?} may not do {operation}", who.account))
    }
}

fn store(folder: &Path, account: &str) -> DocumentStore {
    let mut rules = rules();
    rules.checker = Arc::new(Only("keeper"));
    let own = Credentials { account: account.to_owned(), ..Credentials::default() };
    let setup = Setup { own, rules, ..setup() };
    open_with(Arc::new(RealDisk), folder, setup).expect("opens")
}

#[test]
fn the_programs_own_changes_and_imports_ask_as_the_account_that_it_names() {
    let folders = [0; 3].map(|_| tempfile::tempdir().expect("a folder"));
    let write = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account("a"))?;
        edited.ensure();
        edited.put_one(&Count { count: 7, note: None })
    };
    let from = store(folders[0].path(), "keeper");
    from.change(&space(), write).expect("the keeper may");
    let mut bytes = Vec::new();
    let (document, _) = from
        .export(&account("a"), &std::collections::BTreeSet::new(), &mut bytes)
        .expect("exports");
    let to = store(folders[1].path(), "keeper");
    to.import(&document, bytes.as_slice()).expect("the keeper may");
    assert_eq!(count(&to, "a"), 7);
    let nobody = store(folders[2].path(), "");
    for refused in [nobody.change(&space(), write), nobody.import(&document, bytes.as_slice())] {
        let unanswered = refused.expect_err("nobody may not");
        assert_eq!(unanswered.exception().expect("an exception").code(), &codes::REFUSED);
    }
}
