//! Tasks: how many are started each second when all are due at once, how late they are when they are due one after the
//! other, and whether each had its effect once.
//!
//! Each task writes a document of its own. A document that is not there tells that its task is lost; one that was
//! written after its creation tells that its task had its effect twice. Its first version tells when.

use super::load::{as_f64, bar};
use super::report::rounded;
use super::target::{CALL_WAIT, client, prefix};
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use crate::task::at::now;
use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use rota_client::docstore::{Request, Stamp};
use rota_client::documents::request::Operate;
use rota_client::{Client, v1};
use rota_model::{Namespace, RequestId};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The namespace of everything that is written.
const SPACE: &str = "bench";
/// The class of what tasks write.
const CLASS: &str = "Run";
/// Tasks that one write registers: as many as one may.
const BATCH: u32 = 4;
/// Writes under way while tasks are registered.
const CONCURRENCY: usize = 64;
/// Tasks that are registered each second even on a slow machine.
const REGISTERED_PER_S: u32 = 500;
/// Without news for so long, nothing more is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest lateness that is told apart, in milliseconds.
const LATE_MS_MAX: u64 = 3_600_000;
const HOUR_MS: u64 = 3_600_000;

/// `bench tasks`.
#[derive(Args, Debug)]
pub struct TasksArguments {
    /// Tasks that are due at once: they tell how many are started each second.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(4..=1_000_000))]
    tasks: u32,
    /// Tasks that are due one after the other: they tell how late they are.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    paced: u32,
    /// Time between two of them, in milliseconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pace_ms: u32,
    /// Tasks that wait for a far start all the while.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    waiting: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Figures {
    tasks: u32,
    paced: u32,
    waiting: u32,
    /// Of those that were due at once.
    started_per_s: f64,
    /// Of those that were due one after the other.
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    lost: u64,
    doubled: u64,
}

/// `bench tasks`.
pub async fn run(it: &TasksArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings {
        nodes: Some(0),
        ..Settings::roomy(it.managers, it.replicas.min(it.managers - 1))
    };
    let figures = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    match out.format() {
        Format::Json => out.json(&figures)?,
        Format::Table => {
            let mut table = plain_table([
                "TASKS",
                "WAITING",
                "STARTED PER S",
                "LATE P50 MS",
                "LATE P99 MS",
                "LATE MAX MS",
                "LOST",
                "DOUBLED",
            ]);
            let late = [figures.late_p50_ms, figures.late_p99_ms, figures.late_max_ms];
            let [p50, p99, max] = late.map(|it| format!("{it:.0}"));
            let (all, per_s) = (figures.tasks + figures.paced, figures.started_per_s);
            let counts = [all.to_string(), figures.waiting.to_string(), format!("{per_s:.0}")];
            let wrong = [figures.lost, figures.doubled].map(|it| it.to_string());
            table.add_row(counts.into_iter().chain([p50, p99, max]).chain(wrong));
            out.table(&table)?;
        }
    }
    Ok(())
}

/// Tasks of one kind: their name, how many, and when the one of each number starts.
struct Series {
    name: String,
    count: u32,
    from: Stamp,
    every_ms: u64,
}

impl Series {
    fn start_of(&self, number: u32) -> Stamp {
        self.from.plus_ms(u64::from(number) * self.every_ms)
    }

    /// The part in braces of a batch.
    fn place(&self, batch: u32) -> String {
        format!("{}-{batch}", self.name)
    }

    /// The document that a task writes. It lies in the slot of its batch.
    fn document(&self, number: u32) -> String {
        format!("{{{}}}{number}", self.place(number / BATCH))
    }

    fn task(&self, number: u32) -> Value {
        let put = json!({"class": "N", "key": "", "json": number});
        let change = json!({
            "class": CLASS, "docid": self.document(number), "life": "ensure", "put": [put],
        });
        json!({
            "operation": "document.write",
            "place": self.place(number / BATCH),
            "param": {"changes": [change]},
            "start_at": self.start_of(number).as_u64(),
        })
    }

    /// The write that registers a batch.
    fn batch(&self, batch: u32) -> Value {
        let first = batch * BATCH;
        let numbers = first..self.count.min(first + BATCH);
        let tasks: Vec<Value> = numbers.map(|it| self.task(it)).collect();
        let docid = format!("{{{}}}", self.place(batch));
        json!({"changes": [{"class": "Batch", "docid": docid, "life": "ensure"}], "tasks": tasks})
    }

    /// Registers all of them, many at a time.
    async fn register(&self, client: &Client) -> anyhow::Result<()> {
        let batches = self.count.div_ceil(BATCH);
        let progress = bar("registering", u64::from(batches));
        let (mut writes, mut next) = (JoinSet::new(), 0..batches);
        loop {
            while writes.len() < CONCURRENCY {
                let Some(batch) = next.next() else { break };
                let (client, docid) = (client.clone(), format!("{{{}}}", self.place(batch)));
                let request = Request {
                    // Managers judge it by their own clocks.
                    operation_time: Some(now().minus_ms(1_000)),
                    request_id: Some(RequestId::parse(&client.request_id())?),
                    ..Request::new(Namespace::parse(SPACE)?, "document.write")
                        .with(&self.batch(batch))?
                };
                writes.spawn(async move {
                    let operate = Operate { request, docid };
                    client.documents().operate(&operate, CALL_WAIT).await.map(drop)
                });
            }
            let Some(written) = writes.join_next().await else { break };
            written?.context("a task cannot be registered")?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(())
    }
}

/// When the first of so many tasks may be due that are registered from now on.
fn lead_ms(count: u32) -> u64 {
    3_000 + u64::from(count) * 1_000 / u64::from(REGISTERED_PER_S)
}

async fn measure(it: &TasksArguments, cluster: &mut Cluster) -> anyhow::Result<Figures> {
    let client = client(&cluster.document().endpoints(), 1, false)?;
    let name = prefix();
    let series = |kind: &str, count, from, every_ms| Series {
        name: format!("{name}-{kind}"),
        count,
        from,
        every_ms,
    };
    if it.waiting > 0 {
        let far = now().plus_ms(24 * HOUR_MS);
        series("waiting", it.waiting, far, 1).register(&client).await?;
    }
    let due = now().plus_ms(lead_ms(it.tasks));
    let burst = series("burst", it.tasks, due, 0);
    burst.register(&client).await?;
    in_time(&burst)?;
    finished(&client, u64::from(it.waiting), due).await?;
    let (due, every_ms) = (now().plus_ms(lead_ms(it.paced)), u64::from(it.pace_ms));
    let paced = series("paced", it.paced, due, every_ms);
    paced.register(&client).await?;
    in_time(&paced)?;
    finished(&client, u64::from(it.waiting), paced.start_of(it.paced)).await?;
    let written = listed(&client).await?;
    Ok(Figures { waiting: it.waiting, ..figures(&burst, &paced, &written)? })
}

fn in_time(series: &Series) -> anyhow::Result<()> {
    let late = now() >= series.from;
    anyhow::ensure!(!late, "the machine is too slow: tasks were due before all were registered");
    Ok(())
}

/// What is known of a document that a task wrote: creation, and last version.
type Written = BTreeMap<String, (Stamp, Stamp)>;

/// Waits until no more than so many tasks are left, or nothing ends any more. `due`: when the last one starts.
async fn finished(client: &Client, left: u64, due: Stamp) -> anyhow::Result<()> {
    let (mut fewest, mut since) = (u64::MAX, Instant::now());
    loop {
        // Counts cost the managers little: a list of documents would slow down what is measured.
        let backlog = client.tasks().backlog(CALL_WAIT).await?;
        let here: u64 = backlog.counts.iter().map(|it| it.waiting + it.running).sum();
        if here < fewest || now() < due {
            (fewest, since) = (here, Instant::now());
        }
        if here <= left || since.elapsed() > PATIENCE {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn listed(client: &Client) -> anyhow::Result<Written> {
    let mut request = v1::ListDocumentsRequest {
        namespace: SPACE.to_owned(),
        class: CLASS.to_owned(),
        page_size: 1_000,
        ..Default::default()
    };
    let mut written = Written::new();
    loop {
        let page = client.documents().list(request.clone(), CALL_WAIT).await?;
        let heads = page.documents.iter();
        written.extend(heads.map(|it| (it.name.docid().to_owned(), (it.ctime, it.version))));
        if page.next_page_token.is_empty() {
            return Ok(written);
        }
        request.page_token = page.next_page_token;
    }
}

fn figures(burst: &Series, paced: &Series, written: &Written) -> anyhow::Result<Figures> {
    let mut late = Histogram::<u64>::new_with_bounds(1, LATE_MS_MAX, 3)?;
    let (mut lost, mut doubled, mut last) = (0, 0, burst.from);
    let mut first_of = |series: &Series, number| {
        let Some((ctime, version)) = written.get(&series.document(number)) else {
            lost += 1;
            return None;
        };
        doubled += u64::from(version != ctime);
        Some(*ctime)
    };
    for number in 0..burst.count {
        last = last.max(first_of(burst, number).unwrap_or(last));
    }
    let seconds = as_f64(last.ms_since(burst.from).unwrap_or(0).max(1)) / 1_000.0;
    for number in 0..paced.count {
        if let Some(at) = first_of(paced, number) {
            late.saturating_record(at.ms_since(paced.start_of(number)).unwrap_or(0).max(1));
        }
    }
    let count = (0..burst.count).filter(|it| written.contains_key(&burst.document(*it))).count();
    let at = |part: f64| as_f64(late.value_at_quantile(part));
    Ok(Figures {
        tasks: burst.count,
        paced: paced.count,
        waiting: 0,
        started_per_s: rounded(as_f64(u64::try_from(count)?) / seconds, 1),
        late_p50_ms: at(0.5),
        late_p99_ms: at(0.99),
        late_max_ms: at(1.0),
        lost,
        doubled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, count: u32, every_ms: u64) -> Series {
        let from = Stamp::parse(261_128_000_000_000).unwrap();
        Series { name: name.to_owned(), count, from, every_ms }
    }

    #[test]
    fn each_task_writes_a_document_of_its_own_beside_its_batch() {
        let series = series("a", 6, 10);
        assert_eq!(series.document(5), "{a-1}5");
        let batch = series.batch(1);
        let tasks = batch["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 2);
        assert_eq!(tasks[1]["start_at"], 261_128_000_000_050_u64);
        assert_eq!(tasks[1]["place"], "a-1");
    }

    #[test]
    fn what_is_missing_is_lost_and_what_was_written_again_is_doubled() {
        let (burst, paced) = (series("a", 4, 0), series("b", 4, 100));
        let mut written = Written::new();
        for number in 0..4 {
            let at = burst.from.plus_ms(500 * u64::from(number + 1));
            written.insert(burst.document(number), (at, at));
            let at = paced.start_of(number).plus_ms(7);
            written.insert(paced.document(number), (at, at.plus_ms(u64::from(number == 2))));
        }
        let whole = figures(&burst, &paced, &written).unwrap();
        assert_eq!((whole.started_per_s, whole.late_p99_ms), (2.0, 7.0));
        assert_eq!((whole.lost, whole.doubled), (0, 1));
        written.remove(&paced.document(1));
        assert_eq!(figures(&burst, &paced, &written).unwrap().lost, 1);
    }
}
