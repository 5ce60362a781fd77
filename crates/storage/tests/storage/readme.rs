//! The example in README.md.

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

#[test]
fn the_example_in_the_readme_works() -> Result<(), Box<dyn std::error::Error>> {
    use rota_model::{ClusterName, ManagerId, ManagerNumber};
    use rota_storage::attachments::{AttachmentSettings, Attachments, digest_of};
    use rota_storage::{Engine as _, KvWrite, Label, RealDisk, Settings};
    let temporary = tempfile::tempdir()?;
    let (folder, now_ms) = (temporary.path(), 0);
    // README: begin
    let (cluster, manager) = (ClusterName::parse("demo")?, ManagerId::parse("m1")?);
    let label = Label { cluster, manager, number: ManagerNumber(0) };
    let mut engine = rota_storage::open(&folder.join("records"), &label, &Settings::default())?;
    engine.commit(&[KvWrite::put("invoice 7", "total 12"), KvWrite::delete("invoice 6")])?;
    assert_eq!(engine.get(b"invoice 7")?.as_deref(), Some(&b"total 12"[..]));
    let (disk, path) = (std::sync::Arc::new(RealDisk), folder.join("attachments"));
    let store = Attachments::open(disk, &path, &label, AttachmentSettings::default(), now_ms)?;
    store.put(digest_of(b"a page"), 6, &b"a page"[..], now_ms)?;
    store.refer(&[digest_of(b"a page")])?;
    assert_eq!(store.volumes().referenced_bytes, 6);
    // README: end
    Ok(())
}
