//! A document with its attachments, as of one version, in a folder.

use super::body::measure;
use super::show::Shown;
use super::{CallerArguments, absent, document_name};
use crate::destination::Destination;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::Client;
use rota_client::docstore::{Attachment, Digest, DocName, Document, Namespace, apply};
use rota_client::documents::document_export::Part;
use rota_client::documents::request::{BODIES_HELD_MAX, ExportDocument};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

/// The document, beside the bodies that it names.
const DOCUMENT: &str = "document.json";

/// `document export`.
#[derive(Args, Debug)]
pub struct ExportArguments {
    /// Full name of the document.
    #[arg(value_name = "NAMESPACE/CLASS/ID", value_parser = document_name)]
    name: DocName,
    /// Where to: document.json, and each attachment under its SHA-256. Made when it does not exist;
    /// attachments that are there from an earlier export are not fetched again.
    folder: PathBuf,
    #[command(flatten)]
    caller: CallerArguments,
    /// How long nothing may come before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

#[derive(Serialize)]
struct Exported {
    folder: String,
    version: u64,
    /// Attachments that came.
    bodies: u64,
    /// Bytes of these.
    bytes: u64,
    /// Attachments that were there.
    held: u64,
}

/// A body that is being written.
struct Writing {
    file: File,
    to: Destination,
}

impl Writing {
    /// Of a file under that name that is not whole, nothing is kept.
    async fn begin(folder: &Path, attachment: &Attachment) -> anyhow::Result<Self> {
        let name = folder.join(attachment.sha256().to_string());
        let to = Destination::own(&name, |_| true)?;
        Ok(Self { file: to.open().await?, to })
    }
}

/// The bodies that a folder has: a file that was cut or changed is fetched anew.
async fn held(folder: &Path) -> std::io::Result<BTreeSet<Digest>> {
    let mut held = BTreeSet::new();
    let mut files = match fs::read_dir(folder).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(held),
        files => files?,
    };
    while let Some(file) = files.next_entry().await? {
        let named = file.file_name().to_str().and_then(|it| it.parse::<Digest>().ok());
        let Some(sha256) = named else { continue };
        let (found, _) = measure(&mut File::open(file.path()).await?).await?;
        if found == sha256 {
            held.insert(sha256);
        }
    }
    Ok(held)
}

/// Writes a document and its attachments.
pub async fn export(client: &Client, it: &ExportArguments, out: &mut Out) -> anyhow::Result<()> {
    let told = || it.folder.display().to_string();
    let to = Destination::own(&it.folder.join(DOCUMENT), |content| is_of(content, &it.name))?;
    let held = held(&it.folder).await.with_context(told)?;
    let (name, caller) = (it.name.clone(), it.caller.caller()?);
    // Of more than can be named, some come again.
    let bodies = held.iter().copied().take(BODIES_HELD_MAX).collect();
    let space = Namespace::parse(name.space()).context("the document's namespace")?;
    let (items_only, stale_ok) = (false, false);
    let asked = ExportDocument { space, name, held: None, bodies, caller, items_only, stale_ok };
    let (document, bodies, bytes) = fetch(client, it, &asked).await?;
    let shown = serde_json::to_vec_pretty(&Shown::of(&document, true))?;
    // Not before there is something to write.
    fs::create_dir_all(&it.folder).await.with_context(told)?;
    let written = async {
        let mut file = to.open().await?;
        file.write_all(&shown).await?;
        file.flush().await?;
        // Last: it names only what is there.
        to.finish(file).await
    };
    let written = written.await;
    if written.is_err() {
        to.discard().await;
    }
    written?;
    let all: BTreeSet<Digest> = document.attachments().map(|(_, it)| it.sha256()).collect();
    let held = (all.len() as u64).saturating_sub(bodies);
    let version = document.version().as_u64();
    let exported = Exported { folder: told(), version, bodies, bytes, held };
    match out.format() {
        Format::Json => out.json(&exported)?,
        Format::Table => {
            let came = counted(bodies, "attachment");
            let text = format!("version {version}, {came} of {bytes} bytes, {held} there already");
            out.text(&format!("{}: {text}\n", exported.folder))?;
        }
    }
    Ok(())
}

/// Whether that is what an earlier export wrote of this document.
fn is_of(content: &[u8], name: &DocName) -> bool {
    let Ok(found) = serde_json::from_slice::<serde_json::Value>(content) else { return false };
    let is =
        |field: &str, wanted: &str| found.get(field).and_then(|it| it.as_str()) == Some(wanted);
    is("namespace", name.space()) && is("class", name.class()) && is("docid", name.docid())
}

/// The document, and how many bodies of how many bytes came into the folder.
async fn fetch(
    client: &Client,
    it: &ExportArguments,
    asked: &ExportDocument,
) -> anyhow::Result<(Arc<Document>, u64, u64)> {
    let mut export = client.documents().export(asked, it.patience).await?;
    let (mut document, mut writing, mut bytes) = (None, None, 0);
    let done = async {
        while let Some(part) = export.next().await? {
            match part {
                Part::Update(name, update) => {
                    let copy = apply(&name, None, &update).context("the update does not fit")?;
                    document = copy.filter(|it| !it.is_deleted());
                }
                Part::Body(attachment) => {
                    fs::create_dir_all(&it.folder).await?;
                    writing = Some(Writing::begin(&it.folder, &attachment).await?);
                    bytes += attachment.size();
                }
                Part::Bytes(piece) => match &mut writing {
                    Some(Writing { file, .. }) => file.write_all(&piece).await?,
                    None => bail!("there are bytes of no attachment"),
                },
                Part::End { .. } => {}
            }
            if export.is_body_whole()
                && let Some(Writing { mut file, to }) = writing.take()
            {
                file.flush().await?;
                to.finish(file).await?;
            }
        }
        Ok(())
    };
    let done = done.await;
    if let Some(Writing { to, .. }) = writing {
        to.discard().await;
    }
    done?;
    let document = document.ok_or_else(|| absent(format!("{} does not exist", it.name)))?;
    Ok((document, export.bodies(), bytes))
}
