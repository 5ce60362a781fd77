//! Bodies of attachments: from files, and into files.

use super::{CallerArguments, place};
use crate::destination::Destination;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, STANDARD, plain_table, standard};
use crate::source;
use anyhow::Context;
use clap::Args;
use rota_client::Client;
use rota_client::docstore::{Digest, Namespace};
use rota_client::documents::BodyReader;
use rota_client::documents::request::{GetBody, PutBody};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// `document put-body`.
#[derive(Args, Debug)]
pub struct PutArguments {
    /// Namespace and id of the document that will name it.
    #[arg(value_name = "NAMESPACE/ID", value_parser = place)]
    place: (Namespace, String),
    /// The file, or - for standard input. What comes through a pipe is kept in a file below TMPDIR until
    /// it is stored.
    file: PathBuf,
    #[command(flatten)]
    caller: CallerArguments,
    /// How long nothing may go on before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

/// `document get-body`.
#[derive(Args, Debug)]
pub struct GetArguments {
    /// Namespace and id of a document that names it.
    #[arg(value_name = "NAMESPACE/ID", value_parser = place)]
    place: (Namespace, String),
    /// Its SHA-256, as `document get` shows it.
    #[arg(value_parser = digest)]
    sha256: Digest,
    /// Where to: a file, which is there only when it is whole, a pipe, or - for stdout.
    file: PathBuf,
    /// Replace the file if there is one.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    caller: CallerArguments,
    /// How long nothing may come before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

#[derive(Serialize)]
struct Stored {
    sha256: String,
    size: u64,
    /// It was there already.
    known: bool,
}

#[derive(Serialize)]
struct Written {
    file: String,
    size: u64,
}

fn digest(text: &str) -> Result<Digest, String> {
    // Some programs print it in capitals.
    text.to_ascii_lowercase().parse().map_err(|error: rota_model::FieldError| error.problem)
}

/// The digest and the length of a file, from where it stands.
pub async fn measure(file: &mut File) -> std::io::Result<(Digest, u64)> {
    let (mut digesting, mut size, mut piece) = (Sha256::new(), 0, vec![0; 64 * 1024]);
    loop {
        let count = file.read(&mut piece).await?;
        if count == 0 {
            return Ok((Digest(digesting.finalize().into()), size));
        }
        digesting.update(&piece[..count]);
        size += count as u64;
    }
}

/// Stores a file.
pub async fn put(client: &Client, it: &PutArguments, out: &mut Out) -> anyhow::Result<()> {
    let mut file = source::to_read_again(&it.file).await?;
    let (sha256, size) = measure(&mut file).await.with_context(|| it.file.display().to_string())?;
    let (space, docid) = it.place.clone();
    let put = PutBody { space, docid, size, sha256, caller: it.caller.caller()? };
    let known = client.documents().put_body(&put, &mut file, it.patience).await?;
    let stored = Stored { sha256: sha256.to_string(), size, known };
    match out.format() {
        Format::Json => out.json(&stored)?,
        Format::Table => {
            let mut table = plain_table(["SHA256", "SIZE", "KNOWN"]);
            let known = if stored.known { "yes" } else { "no" };
            table.add_row([stored.sha256, stored.size.to_string(), known.to_owned()]);
            out.table(&table)?;
        }
    }
    Ok(())
}

/// Writes a body into a file, or to standard output.
pub async fn get(client: &Client, it: &GetArguments, out: &mut Out) -> anyhow::Result<()> {
    let (space, docid) = it.place.clone();
    let (sha256, caller) = (it.sha256, it.caller.caller()?);
    let mut reader = client
        .documents()
        .get_body(GetBody { space, docid, sha256, offset: 0, length: 0, caller }, it.patience);
    if it.file == Path::new(STANDARD) {
        let mut to = standard(std::io::stdout().as_fd())?;
        copy(&mut reader, &mut to).await?;
        to.flush().await?;
        // Standard output has the body.
        eprintln!("{} bytes", reader.offset());
        return Ok(());
    }
    let to = Destination::at(&it.file, it.force)?;
    let fetched = async {
        let mut file = to.open().await?;
        copy(&mut reader, &mut file).await?;
        file.flush().await?;
        to.finish(file).await?;
        anyhow::Ok(reader.offset())
    };
    let fetched = fetched.await;
    if fetched.is_err() {
        to.discard().await;
    }
    let written = Written { file: it.file.display().to_string(), size: fetched? };
    match out.format() {
        Format::Json => out.json(&written)?,
        Format::Table => out.text(&format!("{}: {} bytes\n", written.file, written.size))?,
    }
    Ok(())
}

async fn copy(reader: &mut BodyReader, to: &mut (impl AsyncWrite + Unpin)) -> anyhow::Result<()> {
    while let Some(piece) = reader.next().await? {
        to.write_all(&piece).await?;
    }
    Ok(())
}
