//! Commits of content: one after the other, their bodies kept as long as a commit needs them, and what pools follow.

use crate::table::*;
use rota_content::{CONTENT_CLASS, Commit, FOLLOWS_CLASS, Follows, Head};
use rota_docstore::*;
use rota_protocol::api::OperateOp;
use rota_protocol::events::ContentEventKind as Kind;
use rota_protocol::operate::slot_of;
use rota_protocol::{DocumentAnswer, DocumentOp, Op};
use serde_json::{Value, json};
use std::sync::Arc;

fn z() -> Namespace {
    Namespace::parse("z").unwrap()
}

fn digest(number: u8) -> Digest {
    Digest([number; 32])
}

fn name(class: &str, docid: &str) -> DocName {
    DocName::new(&z(), class, docid).unwrap()
}

fn operate(
    table: &mut Table,
    docid: &str,
    operation: &str,
    parameters: &Value,
) -> Result<Answer, Exception> {
    let request = Request::new(z(), operation).with(parameters).unwrap();
    let op = OperateOp { request: Arc::new(request), docid: docid.to_owned() };
    match table.call(NUMBERS[0], Op::Documents(DocumentOp::Operate(op))) {
        Ok(rota_protocol::Answer::Documents(DocumentAnswer::Operated(it))) => it,
        other => panic!("not operated: {other:?}"),
    }
}

/// A commit with its list of files and one body, which every manager holds.
fn commit(
    table: &mut Table,
    hash: &str,
    parent: Option<&str>,
    tree: u8,
    body: u8,
    keep: u32,
) -> Result<Answer, Exception> {
    let more = parent.map_or(json!({}), |parent| json!({"parent": parent}));
    commit_with(table, hash, (tree, body, keep), &more)
}

/// The same with more fields.
fn commit_with(
    table: &mut Table,
    hash: &str,
    (tree, body, keep): (u8, u8, u32),
    more: &Value,
) -> Result<Answer, Exception> {
    for number in NUMBERS {
        let blob_store = &table.blob_stores[&number];
        blob_store.put(digest(tree));
        blob_store.put(digest(body));
    }
    let told = |it: u8| json!({"sha256": digest(it).to_string(), "bytes": 9});
    let mut commit =
        json!({"hash": hash, "at_ms": 1, "tree": told(tree), "files": 1, "bytes": 9, "changed": 1});
    commit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let parameters =
        json!({"repository": "main", "commit": commit, "bodies": [told(body)], "keep": keep});
    operate(table, "main", "content.commit", &parameters)
}

fn document(table: &Table, class: &str, docid: &str) -> Option<Arc<Document>> {
    let name = name(class, docid);
    let owner = table.view().owner_of(slot_of(&name, 1024)).0;
    let found = table.disks[&owner].docs.iter().find(|(key, _)| key.name == name);
    found.map(|(_, doc)| doc.document().clone()).filter(|it| !it.is_deleted())
}

fn commits(document: &Document) -> Vec<String> {
    let items = document.existing().filter(|(item, _)| item.class() == Commit::CLASS);
    items.filter_map(|(item, _)| item.key().map(str::to_owned)).collect()
}

fn bodies(document: &Document) -> Vec<u8> {
    let mut bodies: Vec<u8> = document.attachments().map(|(_, it)| it.sha256().0[0]).collect();
    bodies.sort_unstable();
    bodies
}

#[test]
fn commits_follow_one_another_and_old_ones_go_with_what_only_they_need() {
    let mut table = Table::serving();
    commit(&mut table, "aa", None, 1, 2, 2).unwrap();
    commit(&mut table, "bb", Some("aa"), 3, 2, 2).unwrap();
    let refused = commit(&mut table, "cc", Some("aa"), 5, 6, 2).unwrap_err();
    assert_eq!(refused.code().as_str(), "A-EXPECTED", "{refused}");
    assert!(refused.to_string().contains("publish again"), "{refused}");
    commit(&mut table, "cc", Some("bb"), 5, 6, 2).unwrap();
    let main = document(&table, CONTENT_CLASS, "main").unwrap();
    assert_eq!(commits(&main), ["bb", "cc"]);
    assert_eq!(bodies(&main), [2, 3, 5, 6], "the body 2 is of bb, too");
    commit(&mut table, "dd", Some("cc"), 7, 6, 2).unwrap();
    let main = document(&table, CONTENT_CLASS, "main").unwrap();
    assert_eq!(
        (commits(&main), bodies(&main)),
        (vec!["cc".to_owned(), "dd".to_owned()], vec![5, 6, 7])
    );
    let head = main.one::<Head>().unwrap().unwrap();
    assert_eq!((head.latest.as_str(), head.number), ("dd", 4));
    // Who asks again is told the same, and nothing changes.
    commit(&mut table, "dd", Some("cc"), 7, 6, 2).unwrap();
    assert_eq!(document(&table, CONTENT_CLASS, "main").unwrap().version(), main.version());
    let known = commit(&mut table, "cc", Some("dd"), 8, 9, 9).unwrap_err();
    assert_eq!(known.code().as_str(), "A-EXISTS", "{known}");
    operate(&mut table, "main", "content.remove", &json!({"repository": "main"})).unwrap();
    assert!(document(&table, CONTENT_CLASS, "main").is_none());
}

#[test]
fn a_commit_whose_bodies_are_not_stored_is_refused_and_so_is_one_with_wrong_fields() {
    let mut table = Table::serving();
    let tree = json!({"sha256": digest(1).to_string(), "bytes": 9});
    let commit =
        json!({"hash": "aa", "at_ms": 1, "tree": tree, "files": 0, "bytes": 0, "changed": 0});
    let with = |more: Value| {
        let mut parameters = json!({"repository": "main", "commit": commit, "bodies": []});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        parameters
    };
    let refused = operate(&mut table, "main", "content.commit", &with(json!({}))).unwrap_err();
    assert_eq!(refused.code().as_str(), "N-BODY", "{refused}");
    for (wrong, field) in [
        (json!({"keep": 0}), "keep"),
        (json!({"keep": 201}), "keep"),
        (json!({"repository": "a/b"}), "repository"),
    ] {
        let refused = operate(&mut table, "main", "content.commit", &with(wrong)).unwrap_err();
        assert_eq!(refused.details().fields[0].field, field, "{refused}");
    }
    assert!(document(&table, CONTENT_CLASS, "main").is_none());
}

#[test]
fn a_pool_follows_a_repository_or_none() {
    let mut table = Table::serving();
    let follow = |table: &mut Table, more: Value| {
        let mut parameters = json!({"pool": "default"});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        operate(table, "default", "content.follow", &parameters)
    };
    let followed = |table: &Table| {
        document(table, FOLLOWS_CLASS, "default").and_then(|it| it.one::<Follows>().unwrap())
    };
    follow(&mut table, json!({"repository": "main"})).unwrap();
    assert_eq!(followed(&table).unwrap().commit, None);
    let held = json!({"repository": "main", "commit": "aa", "canary_percent": 10});
    follow(&mut table, held).unwrap();
    let told = followed(&table).unwrap();
    assert_eq!((told.commit.unwrap().as_str(), told.canary_percent), ("aa", 10));
    for (wrong, field) in [
        (json!({"commit": "aa"}), "repository"),
        (json!({"repository": "main", "canary_percent": 10}), "canary_percent"),
    ] {
        let refused = follow(&mut table, wrong).unwrap_err();
        assert_eq!(refused.details().fields[0].field, field, "{refused}");
    }
    follow(&mut table, json!({})).unwrap();
    assert_eq!(followed(&table), None);
}

fn told(table: &Table) -> Vec<(Kind, &str)> {
    table.content_events.iter().map(|it| (it.kind, it.text.as_str())).collect()
}

#[test]
fn a_commit_a_rollback_and_what_pools_follow_are_told_once_and_with_their_versions() {
    let mut table = Table::serving();
    commit(&mut table, "aa", None, 1, 2, 9).unwrap();
    commit(&mut table, "aa", None, 1, 2, 9).unwrap();
    let more = json!({"author": "ann", "message": "two\nlines", "restores": "aa", "parent": "aa"});
    commit_with(&mut table, "bb", (3, 2, 9), &more).unwrap();
    let follow = |table: &mut Table, more: Value| {
        let mut parameters = json!({"pool": "default"});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        operate(table, "default", "content.follow", &parameters).unwrap();
    };
    follow(&mut table, json!({"repository": "main"}));
    follow(&mut table, json!({"repository": "main"}));
    follow(&mut table, json!({"repository": "main", "commit": "aa", "canary_percent": 10}));
    follow(&mut table, json!({}));
    operate(&mut table, "main", "content.remove", &json!({"repository": "main"})).unwrap();
    table.pass(1_000);
    assert_eq!(
        told(&table),
        [
            (Kind::Published, "main is at aa: 1 files, 1 differ"),
            (Kind::RolledBack, "main is at bb with the files of aa: 1 files, 1 differ; ann; two"),
            (Kind::Followed, "nodes of pool default follow main: its newest commit"),
            (
                Kind::Followed,
                "nodes of pool default follow main: commit aa, and 10 % of them the newest"
            ),
            (Kind::Unfollowed, "nodes of pool default follow nothing"),
            (Kind::Removed, "main is gone, with all its commits"),
        ]
    );
    let versions: Vec<Stamp> = table.content_events.iter().map(|it| it.version).collect();
    assert!(versions.iter().all(|it| *it > Stamp::MIN), "{versions:?}");
}
