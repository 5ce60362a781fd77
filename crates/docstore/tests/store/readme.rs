//! The example in README.md, and that of the lock document.

use rota_docstore::*;

#[path = "../../examples/lock_document.rs"]
mod lock_document;

/// What stands between the two marks, without its indentation and the lines that only tests need.
fn between(text: &str, begin: &str, end: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| line.trim() != begin).skip(1);
    let lines = lines.take_while(|line| line.trim() != end).map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty() && !line.starts_with("# ")).collect()
}

#[test]
fn the_example_in_the_readme_is_the_one_that_is_tested_here() {
    let readme = between(include_str!("../../README.md"), "```rust", "```");
    let here = between(include_str!("readme.rs"), "// README: begin", "// README: end");
    // The first lines import and declare: there is no function around them in the README.
    let steps = readme.iter().position(|it| it.starts_with("let rules")).unwrap();
    assert_eq!(readme[steps..], here);
    assert_eq!(here.len(), 12);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Page {
    title: String,
    author: Option<String>,
}

impl Singleton for Page {
    const CLASS: &'static str = "Pg";
}

#[test]
#[rustfmt::skip]
fn the_example_in_the_readme_works() -> Result<(), Box<dyn std::error::Error>> {
    // README: begin
    let rules = Rules::new(Schema::new().class("Wiki", |it| it.singleton::<Page>()));
    let (mut store, space) = (Store::default(), Namespace::default_space());
    let (name, now) = (DocName::new(&space, "Wiki", "home")?, Stamp::parse(260714223045697)?);
    let commit = store.change(&rules, &space, now, |transaction| {
        let edited = transaction.current(&name)?; // the newest state, ours to change
        edited.ensure();
        edited.put_one(&Page { title: "Home".into(), author: None })
    })?;
    assert_eq!(commit.version, now); // now make commit.writes durable, then answer
    let update = store.sync(&name, None, now)?; // what a cache with nothing needs
    let copy = apply(&name, None, &update)?.ok_or("it exists")?;
    assert_eq!(copy.one::<Page>()?.ok_or("it has a page")?.title, "Home");
    // README: end
    Ok(())
}

#[test]
fn the_lock_document_of_the_example_shows_the_sale_that_came_between() {
    let [refused, closed] = lock_document::day().unwrap();
    assert!(refused.starts_with("C-CONTENTION") && refused.contains("shop/Shop/lock"), "{refused}");
    assert_eq!(closed, "240229180001004: the day took 10005 cents");
}
