//! What one hot name costs: opens of one session, and operations on one document, each with a name of its
//! own that is remembered. What is written for the last must not depend on how many were before.

use super::load::as_f64;
use super::report::rounded;
use super::target::{CALL_WAIT, client, open_request, prefix};
use super::usage;
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out, plain_table};
use crate::task::at::now;
use anyhow::Context;
use clap::Args;
use rota_client::Client;
use rota_client::docstore::Request;
use rota_client::documents::request::Operate;
use rota_model::Namespace;
use serde::Serialize;
use std::time::Instant;

/// Parts of the requests of which the first and the last are compared.
const PARTS: u32 = 10;

/// `bench hot`.
#[derive(Args, Debug)]
pub struct HotArguments {
    /// Requests that are remembered of the session, and of the document.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=500_000))]
    requests: u32,
    /// Class of the session.
    #[arg(long, default_value = "builtin")]
    class: String,
}

/// One kind of call, one after the other: its first tenth, and its last.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
struct Series {
    /// Bytes that all managers wrote, to disks and each other, for each call.
    bytes_first: f64,
    bytes_last: f64,
    /// The last divided by the first.
    ratio: f64,
    per_s_first: f64,
    per_s_last: f64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Hot {
    requests: u32,
    /// Opens of one session.
    #[serde(flatten)]
    opens: Series,
    /// Operations with an operation time on one document.
    document: Series,
}

/// A part of a series: calls, bytes, seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Part {
    calls: u32,
    bytes: u64,
    seconds: f64,
}

impl Series {
    fn of(first: Part, last: Part) -> Self {
        let bytes = |it: Part| as_f64(it.bytes) / f64::from(it.calls);
        let per_s = |it: Part| rounded(f64::from(it.calls) / it.seconds, 1);
        Self {
            bytes_first: rounded(bytes(first), 1),
            bytes_last: rounded(bytes(last), 1),
            ratio: rounded(bytes(last) / bytes(first), 3),
            per_s_first: per_s(first),
            per_s_last: per_s(last),
        }
    }
}

/// `bench hot`.
pub async fn run(it: &HotArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings::roomy(3, 2);
    let hot = with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&hot)?);
    }
    let mut table =
        plain_table(["CALL", "FIRST BYTES", "LAST BYTES", "RATIO", "FIRST PER S", "LAST PER S"]);
    for (name, it) in [("open", hot.opens), ("operation", hot.document)] {
        let bytes = [it.bytes_first, it.bytes_last].map(|it| format!("{it:.0}"));
        let rates = [it.per_s_first, it.per_s_last].map(|it| format!("{it:.0}"));
        let ([first, last], [rate, late]) = (bytes, rates);
        table.add_row([name.to_owned(), first, last, format!("{:.2}", it.ratio), rate, late]);
    }
    Ok(out.table(&table)?)
}

async fn measure(it: &HotArguments, cluster: &mut Cluster) -> anyhow::Result<Hot> {
    let client = client(&cluster.document().endpoints(), 1, false)?;
    let name = prefix();
    let open = async |_| {
        client.open(open_request(name.clone(), &it.class), CALL_WAIT).await?;
        anyhow::Ok(())
    };
    // The first one starts it.
    open(0).await?;
    let opens = series(cluster, it.requests, open).await?;
    let operate = async |number| operate(&client, &name, number).await;
    operate(u32::MAX).await?;
    let document = series(cluster, it.requests, operate).await?;
    Ok(Hot { requests: it.requests, opens, document })
}

/// Writes a few bytes into a document.
async fn operate(client: &Client, docid: &str, number: u32) -> anyhow::Result<()> {
    let put = serde_json::json!({"class": "N", "key": "", "json": number});
    let change =
        serde_json::json!({"class": "Hot", "docid": docid, "life": "ensure", "put": [put]});
    let parameters = serde_json::json!({"changes": [change]});
    // Managers judge it by their own clocks.
    let operation_time = now().minus_ms(1_000);
    let request = Request {
        operation_time: Some(operation_time),
        ..Request::new(Namespace::default_space(), "document.write").with(&parameters)?
    };
    let operate = Operate { request, docid: docid.to_owned() };
    client.documents().operate(&operate, CALL_WAIT).await?;
    Ok(())
}

async fn series(
    cluster: &Cluster,
    requests: u32,
    call: impl AsyncFn(u32) -> anyhow::Result<()>,
) -> anyhow::Result<Series> {
    let calls = requests / PARTS;
    let first = part(cluster, 0, calls, &call).await?;
    for number in calls..requests - calls {
        call(number).await?;
    }
    let last = part(cluster, requests - calls, calls, &call).await?;
    Ok(Series::of(first, last))
}

async fn part(
    cluster: &Cluster,
    from: u32,
    calls: u32,
    call: &impl AsyncFn(u32) -> anyhow::Result<()>,
) -> anyhow::Result<Part> {
    let (before, began) = (written(cluster)?, Instant::now());
    for number in from..from + calls {
        call(number).await?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let bytes = written(cluster)?.saturating_sub(before);
    Ok(Part { calls, bytes, seconds })
}

/// Bytes that all managers wrote so far.
fn written(cluster: &Cluster) -> anyhow::Result<u64> {
    let document = cluster.document();
    let of = |pid: u32| usage::written(pid).context("a manager has gone");
    document.managers.iter().map(|it| of(it.pid)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_compared_with_the_first_by_call() {
        let first = Part { calls: 10, bytes: 1_000, seconds: 2.0 };
        let last = Part { calls: 10, bytes: 1_500, seconds: 4.0 };
        let series = Series::of(first, last);
        assert_eq!((series.bytes_first, series.bytes_last), (100.0, 150.0));
        assert_eq!((series.ratio, series.per_s_first, series.per_s_last), (1.5, 5.0, 2.5));
    }

    #[test]
    fn the_figures_of_the_opens_stand_at_the_top() {
        let value = serde_json::to_value(Hot::default()).unwrap();
        for field in ["bytes_first", "bytes_last", "ratio", "document"] {
            assert!(value.get(field).is_some(), "{field}");
        }
    }
}
