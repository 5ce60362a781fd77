//! `/v1/content/{repository}/updates`: the updates feed, a line of JSON for each record.

use super::call::{Call, segments};
use super::error::Failed;
use super::tree::{Answer, Tree};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::IntoResponse as _;
use rota_model::parse_label;
use rota_proto::v1;
use rota_proto::v1::content_server::Content as _;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio_stream::StreamExt as _;
use tonic::Status;

/// The first line: what the records are.
#[derive(Serialize)]
struct Begin {
    repository: String,
    commit: String,
    full: bool,
    files: u64,
    bytes: u64,
}

/// A file of a record.
#[derive(Serialize)]
struct File {
    sha256: String,
    bytes: u64,
    executable: bool,
    body: String,
    offset: u64,
}

/// Each other line.
#[derive(Serialize)]
struct Record {
    path: String,
    category: String,
    commit: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<File>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eager: Option<bool>,
}

impl From<v1::ContentRecord> for Record {
    fn from(it: v1::ContentRecord) -> Self {
        let eager = (it.category == "$category").then_some(it.eager);
        let file = it.file.map(|file| File {
            sha256: hex(&file.sha256),
            bytes: file.bytes,
            executable: file.executable,
            body: hex(&file.body),
            offset: file.offset,
        });
        let v1::ContentRecord { path, category, commit, status, .. } = it;
        Self { path, category, commit, status, file, eager }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn line(into: &mut Vec<u8>, it: &impl Serialize) {
    // The only error is of what is no JSON, which a line always is.
    if let Ok(text) = serde_json::to_vec(it) {
        into.extend_from_slice(&text);
        into.push(b'\n');
    }
}

/// The lines of one message. What fails on the way is a line, too: an Error.
fn lines(told: Result<v1::ContentUpdatesResponse, Status>) -> Bytes {
    let mut text = Vec::new();
    match told {
        Ok(told) => {
            if let Some(it) = told.begin {
                let v1::content_updates_response::Begin { repository, commit, full, files, bytes } =
                    it;
                line(&mut text, &Begin { repository, commit, full, files, bytes });
            }
            told.records.into_iter().for_each(|it| line(&mut text, &Record::from(it)));
        }
        Err(status) => line(&mut text, &Failed::from(status).json()),
    }
    text.into()
}

/// Who looks: the nodes of a pool, with these labels.
fn viewer(call: &mut Call) -> Option<v1::ContentViewer> {
    let (pool, text) = (call.given("pool"), call.given("labels"));
    let mut labels = BTreeMap::new();
    for label in text.iter().flat_map(|it| it.split(',')) {
        match parse_label(label) {
            Ok((name, value)) if labels.contains_key(name.as_str()) => {
                call.wrong("labels", format!("gives {name} twice, the second time as {value}"));
            }
            Ok((name, value)) => drop(labels.insert(name.to_string(), value.to_string())),
            Err(wrong) => call.wrong("labels", wrong.problem),
        }
    }
    if text.is_some() && pool.is_none() {
        call.wrong("labels", "is given without `pool`: nodes with labels are of a pool");
    }
    pool.map(|pool| v1::ContentViewer { pool, labels, ..Default::default() })
}

/// Tells everything that is active, or what changed since a commit.
pub async fn updates(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let repository = segments(&uri)?.into_iter().nth(1).unwrap_or_default();
    let viewer = viewer(&mut call);
    let request = v1::ContentUpdatesRequest {
        repository,
        since: call.given("since").unwrap_or_default(),
        viewer,
        category: call.given("category").unwrap_or_default(),
    };
    let place = tree.place().await?;
    let told = tree.content.updates(call.request(request)?).await?.into_inner();
    let body = told.map(move |message| {
        // The place is free when nobody reads any more.
        let _ = &place;
        Ok::<_, Infallible>(lines(message))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(body)).into_response())
}
