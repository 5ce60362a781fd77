//! The example in README.md.

use rota_docstore::{DocName, Namespace, Operations, Rules, Schema, Singleton, apply};
use rota_storage::documents::{DocumentStore, Setup};
use serde::{Deserialize, Serialize};

/// What stands between the two marks, without its indentation.
fn between(text: &str, begin: &str, end: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| line.trim() != begin).skip(1);
    lines.take_while(|line| line.trim() != end).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn the_example_in_the_readme_is_the_one_that_is_tested_here() {
    let readme = between(include_str!("../../README.md"), "```rust", "```");
    assert_eq!(readme, between(include_str!("readme.rs"), "// README: begin", "// README: end"));
    assert_eq!(readme.len(), 10);
}

#[derive(Serialize, Deserialize)]
struct Page {
    title: String,
}

impl Singleton for Page {
    const CLASS: &'static str = "Pg";
}

#[test]
fn the_example_in_the_readme_works() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let (folder, label, space) = (temporary.path(), crate::label(), Namespace::default_space());
    let schema = Schema::new().class("Wiki", |it| it.singleton::<Page>());
    // README: begin
    let setup = Setup::new(Rules::new(schema), Operations::new());
    let store = DocumentStore::open(folder, &label, setup)?;
    let home = DocName::new(&space, "Wiki", "home")?;
    let name = home.clone();
    let answer = store.change(&space, move |transaction| {
        transaction.current(&name)?.ensure(); // the newest state, ours to change
        transaction.current(&name)?.put_one(&Page { title: "Home".to_owned() })
    })?; // it is on the disk
    let update = store.update_for(&home, None)?; // what a cache with nothing needs
    assert_eq!(apply(&home, None, &update)?.ok_or("it exists")?.version(), answer.version);
    // README: end
    Ok(())
}
