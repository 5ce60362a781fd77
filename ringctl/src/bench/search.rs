//! Searches: how long the first page of one by an indexed field takes, at a single manager that holds all documents and
//! over a ring, and how many documents are read for it.

use super::load::bar;
use super::report::{ms, rounded};
use super::target::{CALL_WAIT, client, prefix};
use crate::dev::{Cluster, Ground, Settings};
use crate::output::{Format, Out, plain_table};
use anyhow::{Context, ensure};
use clap::Args;
use rota_client::docstore::Request;
use rota_client::documents::FoundPage;
use rota_client::documents::request::Operate;
use rota_client::{Client, v1};
use rota_model::Namespace;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The namespace of everything that is written.
const SPACE: &str = "bench";
const CLASS: &str = "Sought";
const ITEM: &str = "Line";
const FIELD: &str = "article";
/// Documents that one write makes: as many as one may.
const BATCH: u32 = 16;
/// Writes under way at once.
const CONCURRENCY: usize = 64;
/// Searches that are not measured: they open connections.
const FIRST: u32 = 3;

/// `bench search`.
#[derive(Args, Debug)]
pub struct SearchArguments {
    /// Documents, each with one item, of which one field is indexed.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(16..=10_000_000))]
    documents: u32,
    /// How many of them a search finds: all on its first page.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    matches: u32,
    /// Searches that are measured at each of both clusters. Their median is told.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    searches: u32,
    /// Managers of the ring. The single manager is a cluster of its own, which holds all documents as well.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
}

#[derive(Serialize, PartialEq, Debug)]
struct Figures {
    /// Of a search at a single manager.
    first_page_ms: f64,
    /// The same over the ring.
    ring_first_page_ms: f64,
    documents: u32,
    matches: u32,
    /// By all owners of the ring, for one page.
    documents_read: u64,
}

/// A file that goes with this value.
struct Fields(PathBuf);

impl Fields {
    fn declared() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("{}.toml", prefix()));
        let text = format!("[{CLASS}.{ITEM}]\n{FIELD} = \"string\"\n");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        // It is small, and lies where such files are cleared away.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `bench search`.
pub async fn run(it: &SearchArguments, out: &mut Out) -> anyhow::Result<()> {
    let fields = Fields::declared()?;
    let mut ground = Ground::found()?;
    let mut of = async |managers, replicas| {
        let settings = settings(managers, replicas, &fields.0);
        ground.with_cluster(&settings, async |cluster| measure(it, cluster).await).await
    };
    let (first_page, _) = of(1, 0).await?;
    let (ring_first_page, documents_read) =
        of(it.managers, it.replicas.min(it.managers - 1)).await?;
    let figures = Figures {
        first_page_ms: rounded(ms(first_page), 3),
        ring_first_page_ms: rounded(ms(ring_first_page), 3),
        documents: it.documents,
        matches: it.matches,
        documents_read,
    };
    match out.format() {
        Format::Json => out.json(&figures)?,
        Format::Table => {
            let columns =
                ["DOCUMENTS", "MATCHES", "FIRST PAGE MS", "RING FIRST PAGE MS", "DOCUMENTS READ"];
            let mut table = plain_table(columns);
            let times = [figures.first_page_ms, figures.ring_first_page_ms];
            let [one, ring] = times.map(|it| format!("{it:.2}"));
            let counts = [figures.documents, figures.matches].map(|it| it.to_string());
            let read = figures.documents_read.to_string();
            table.add_row(counts.into_iter().chain([one, ring, read]));
            out.table(&table)?;
        }
    }
    Ok(())
}

fn settings(managers: u32, replicas: u32, fields: &Path) -> Settings {
    let fields_file = Some(fields.to_owned());
    Settings { nodes: Some(0), fields_file, ..Settings::roomy(managers, replicas) }
}

/// The median time of a first page, and what was read for one.
async fn measure(it: &SearchArguments, cluster: &mut Cluster) -> anyhow::Result<(Duration, u64)> {
    let client = client(&cluster.document().endpoints(), 1, false)?;
    write(&client, it).await?;
    let (mut times, mut read) = (Vec::new(), 0);
    for number in 0..FIRST + it.searches {
        let began = Instant::now();
        let page = search(&client, it, number).await?;
        let took = began.elapsed();
        ensure!(
            page.hits.len() == it.matches as usize && page.next_page_token.is_empty(),
            "a search found {} documents of {}",
            page.hits.len(),
            it.matches
        );
        if number >= FIRST {
            times.push(took);
            read = page.documents_read.max(read);
        }
    }
    Ok((median(times), read))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

impl SearchArguments {
    /// How many values the field has, each in `matches` documents; what is over has a value of its own.
    fn values(&self) -> u32 {
        (self.documents / self.matches).max(1)
    }

    /// The value of a document. Those of one value lie in as many slots as they can.
    fn value(&self, number: u32) -> String {
        let is_over = number / self.values() >= self.matches;
        if is_over { "over".to_owned() } else { format!("a{}", number % self.values()) }
    }

    /// The write of a batch of documents, which share a slot.
    fn batch(&self, batch: u32) -> Value {
        let first = batch * BATCH;
        let numbers = first..self.documents.min(first + BATCH);
        let change = |number: u32| {
            let line = json!({FIELD: self.value(number), "count": number});
            let put = json!({"class": ITEM, "key": "1", "json": line});
            let docid = format!("{{{batch}}}{number}");
            json!({"class": CLASS, "docid": docid, "life": "ensure", "put": [put]})
        };
        json!({"changes": numbers.map(change).collect::<Vec<_>>()})
    }
}

/// Writes all documents, many at a time.
async fn write(client: &Client, it: &SearchArguments) -> anyhow::Result<()> {
    let batches = it.documents.div_ceil(BATCH);
    let progress = bar("writing", u64::from(batches));
    let (mut writes, mut next) = (JoinSet::new(), 0..batches);
    loop {
        while writes.len() < CONCURRENCY {
            let Some(batch) = next.next() else { break };
            let request = Request::new(Namespace::parse(SPACE)?, "document.write");
            let request = request.with(&it.batch(batch))?;
            let (client, operate) =
                (client.clone(), Operate { request, docid: format!("{{{batch}}}") });
            writes.spawn(
                async move { client.documents().operate(&operate, CALL_WAIT).await.map(drop) },
            );
        }
        let Some(written) = writes.join_next().await else { break };
        written?.context("a document cannot be written")?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}

async fn search(client: &Client, it: &SearchArguments, number: u32) -> anyhow::Result<FoundPage> {
    // Scattered over the values, so that no search finds what the one before has read.
    let value = number.wrapping_mul(2_654_435_761) % it.values();
    let request = v1::SearchRequest {
        namespace: SPACE.to_owned(),
        class: CLASS.to_owned(),
        item: ITEM.to_owned(),
        filter: format!("{FIELD} = a{value}"),
        items: true,
        page_size: it.matches,
        ..v1::SearchRequest::default()
    };
    Ok(client.documents().search(request, CALL_WAIT).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_value_stands_in_as_many_documents_as_a_search_finds() {
        let (documents, matches) = (1_003, 50);
        let it = SearchArguments { documents, matches, searches: 1, managers: 1, replicas: 0 };
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for batch in 0..documents.div_ceil(BATCH) {
            for change in it.batch(batch)["changes"].as_array().unwrap() {
                let value = change["put"][0]["json"][FIELD].as_str().unwrap();
                *counts.entry(value.to_owned()).or_default() += 1;
            }
        }
        assert_eq!(counts.remove("over"), Some(3));
        assert_eq!(counts.len(), 20);
        assert!(counts.values().all(|it| *it == matches), "{counts:?}");
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        let of = |ms: &[u64]| median(ms.iter().map(|it| Duration::from_millis(*it)).collect());
        assert_eq!(of(&[9, 1, 5]), Duration::from_millis(5));
    }
}
