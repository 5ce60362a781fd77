//! Measures searches on one thread: `cargo run --release -p rota-search --example search_pace`.
//!
//! Times are those of the processor. `--documents N` sets how many documents there are (default 300,000).

use rota_docstore::{Content, DocName, Document, DocumentParts, FieldType, Item, ItemName, Schema};
use rota_model::{Namespace, SlotId, Stamp};
use rota_search::{Filter, Index, Limits, Query, Search, Shapes, Sort, Wanted, merge};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

/// As many owners as a ring of three managers with a few partitions has.
const OWNERS: u32 = 8;

type Documents = BTreeMap<DocName, Arc<Document>>;

fn seconds_used() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What this process has in memory, in bytes. Where that cannot be read: 0.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

fn document(space: &Namespace, number: u32, now: Stamp) -> Result<Document, Box<dyn Error>> {
    let user = number.wrapping_mul(2_654_435_761) % 3_000;
    let json = format!(
        r#"{{"user":"user-{user:05}","rank":{},"note":"a note of a session, as long as many are"}}"#,
        number.wrapping_mul(40_503) % 100_000,
    );
    let content = Content::json(&json)?;
    let items = vec![Item::existing(ItemName::singleton("Head")?, now, now, content)?];
    let name = DocName::new(space, "S", &format!("session-{number:08}"))?;
    let parts =
        DocumentParts { name, ctime: now, version: now, dtime: now, is_deleted: false, items };
    Ok(Document::from_parts(parts)?)
}

struct Bench {
    documents: Documents,
    whole: Index,
    owners: Vec<Index>,
    now: Stamp,
}

impl Bench {
    fn measure(&self, text: &str, sort: Option<&str>) -> Result<(), Box<dyn Error>> {
        let shapes = self.whole.shapes();
        let fields = shapes.fields("S", Some("Head"))?;
        let query = Query {
            class: "S".into(),
            item: Some("Head".into()),
            space: None,
            filter: Filter::parse(text, &fields)?,
            sort: sort.map(|field| Sort { field: field.into(), descending: false }),
            wanted: Wanted::Items,
            special: None,
        };
        let search = Search::new(query, shapes)?;
        let limits = Limits::new(50)?;
        let read = |name: &DocName| self.documents.get(name).cloned();
        let page = |index: &Index| {
            index
                .page(&search, None, self.now, limits, &read)
                .expect("no special search is asked for")
        };
        let all = || {
            let parts = self
                .owners
                .iter()
                .zip(0..)
                .map(|(index, slot)| (SlotId(slot)..=SlotId(slot), page(index)));
            merge(&search, SlotId(0)..=SlotId(OWNERS - 1), parts.collect(), limits)
        };
        let start = seconds_used();
        let first = page(&self.whole);
        let first_us = (seconds_used() - start) * 1e6;
        let start = seconds_used();
        (0..20).for_each(|_| drop(black_box(page(&self.whole))));
        let each_us = (seconds_used() - start) * 1e6 / 20.0;
        let start = seconds_used();
        let ring = all()?;
        let ring_us = (seconds_used() - start) * 1e6;
        println!(
            "{text:<42} {:>3} hits {:>6} read {first_us:>8.0} us first {each_us:>8.0} us each; ring {:>6} read {ring_us:>8.0} us",
            first.hits.len(),
            first.documents_read,
            ring.documents_read,
        );
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u32 = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => 300_000,
        (Some("--documents"), Some(number)) => number.parse()?,
        (Some(other), _) => {
            return Err(format!("unknown argument {other}; try --documents N").into());
        }
    };
    let schema = Schema::new().class("S", |class| {
        class.any().field("Head", "user", FieldType::String).field("Head", "rank", FieldType::Int)
    });
    let shapes = Arc::new(Shapes::of(&schema));
    let (now, space) = (Stamp::parse(261_127_193_000_000)?, Namespace::default_space());
    let mut documents = Documents::new();
    for number in 0..count {
        let document = document(&space, number, now)?;
        documents.insert(document.name().clone(), Arc::new(document));
    }
    let (before, start) = (resident(), seconds_used());
    let mut whole = Index::new(Arc::clone(&shapes));
    documents.values().for_each(|it| whole.change(None, Some(it)));
    let each_us = (seconds_used() - start) * 1e6 / f64::from(count.max(1));
    let (size, grown) = (whole.size(), resident().saturating_sub(before));
    println!("{count} documents indexed, {each_us:.2} us each: {} entries", size.entries);
    println!("estimated {} bytes, the process grew by {grown}", size.bytes());
    let mut owners = vec![Index::new(shapes); OWNERS as usize];
    for (number, document) in documents.values().enumerate() {
        owners[number % OWNERS as usize].change(None, Some(document));
    }
    let bench = Bench { documents, whole, owners, now };
    bench.measure("user = user-00042", None)?;
    bench.measure("rank < 50000", None)?;
    bench.measure("user starts user-01 and rank < 100", None)?;
    bench.measure("rank >= 99990", Some("user"))?;
    bench.measure("docid starts session-0012", None)?;
    bench.measure("rank < 50000", Some("user"))?;
    Ok(())
}
