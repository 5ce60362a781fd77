//! Who may do what where an application checks its callers.

use crate::table::asking::*;
use crate::table::*;
use rota_docstore::{Checker, Credentials, Letter, Request};
use rota_protocol::operate::{AdminKey, SPACES_DOCID};
use serde_json::{Value, json};
use std::sync::Arc;

/// Nobody without an account may do anything.
struct NoStrangers;

impl Checker for NoStrangers {
    fn check(&self, who: &Credentials, _: &str, _: &str) -> Result<(), String> {
        if who.account.is_empty() { Err("no account is named".to_owned()) } else { Ok(()) }
    }
}

fn by_administrator(operation: &str, parameters: &Value) -> Request {
    let mut request = Request::new(space("z"), operation).with(parameters).unwrap();
    request.who.admin = "secret".to_owned();
    request
}

#[test]
fn the_administrators_key_decides_alone_about_administration_whatever_an_application_checks() {
    let mut table = Table::laid();
    table.documents.admin_key = AdminKey::new("secret");
    table.checker = Some(Arc::new(NoStrangers));
    table.start_all();
    let page = json!({"path": "a.txt", "mime": "text/plain", "body": "YQ=="});
    for (operation, parameters, docid) in [
        ("namespace.put", json!({"name": "stall", "create": true}), SPACES_DOCID),
        ("namespace.set", json!({"name": "stall", "description": "Carts"}), SPACES_DOCID),
        ("namespace.switch", json!({"name": "stall", "off": "Back at noon"}), SPACES_DOCID),
        ("namespace.remove", json!({"name": "stall"}), SPACES_DOCID),
        ("web.put", page, "a.txt"),
        ("web.remove", json!({"path": "a.txt"}), "a.txt"),
    ] {
        let asked = by_administrator(operation, &parameters);
        operated(table.call(300, op(asked.clone(), docid))).unwrap();
        let mut without = asked;
        without.who = Credentials { account: "ann".to_owned(), ..Credentials::default() };
        let exception = operated(table.call(300, op(without, docid))).unwrap_err();
        assert_eq!(exception.letter(), Letter::S, "{operation} needs the key");
        assert!(exception.details().message.contains("administrator's key"), "{exception}");
    }
    // Of all else both decide, also for who has the key.
    let mut writing = write("c", 1);
    writing.who = Credentials { admin: "secret".to_owned(), ..Credentials::default() };
    let mut written = |asked: &Request| operated(table.call(300, op(asked.clone(), "c")));
    assert_eq!(written(&writing).unwrap_err().details().message, "no account is named");
    writing.who.account = "ann".to_owned();
    written(&writing).unwrap();
    writing.who.admin = "wrong".to_owned();
    assert_eq!(written(&writing).unwrap_err().letter(), Letter::S);
}

#[test]
fn without_an_administrators_key_the_application_decides_about_administration_too() {
    let mut table = Table::laid();
    table.checker = Some(Arc::new(NoStrangers));
    table.start_all();
    let put = json!({"name": "stall", "create": true});
    let mut asked = Request::new(space("z"), "namespace.put").with(&put).unwrap();
    let refused = operated(table.call(300, op(asked.clone(), SPACES_DOCID))).unwrap_err();
    assert_eq!(refused.details().message, "no account is named");
    asked.who.account = "ann".to_owned();
    operated(table.call(300, op(asked, SPACES_DOCID))).unwrap();
}
