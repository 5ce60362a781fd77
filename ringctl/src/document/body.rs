//! Bodies of attachments: from files, and into files.

use super::{CallerArguments, place, usage};
use crate::cli::length_of_time;
use crate::output::{Format, Out, STANDARD, plain_table, standard};
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
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// `document put-body`.
#[derive(Args, Debug)]
pub struct PutArguments {
    /// Namespace and id of the document that will name it.
    #[arg(value_name = "NAMESPACE/ID", value_parser = place)]
    place: (Namespace, String),
    /// The file.
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
    /// Where to: a file that does not exist yet, which is there only when it is whole, or - for
    /// stdout.
    file: PathBuf,
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
    text.parse().map_err(|error: rota_model::FieldError| error.problem)
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
    let told = || it.file.display().to_string();
    let mut file = File::open(&it.file).await.with_context(told)?;
    let (sha256, size) = measure(&mut file).await.with_context(told)?;
    let (space, docid) = it.place.clone();
    let put = PutBody { space, docid, size, sha256, caller: it.caller.caller() };
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
    let (sha256, caller) = (it.sha256, it.caller.caller());
    let mut reader = client
        .documents()
        .get_body(GetBody { space, docid, sha256, offset: 0, caller }, it.patience);
    if it.file == Path::new(STANDARD) {
        let mut to = standard(std::io::stdout().as_fd())?;
        copy(&mut reader, &mut to).await?;
        to.flush().await?;
        // Standard output has the body.
        eprintln!("{} bytes", reader.offset());
        return Ok(());
    }
    if fs::try_exists(&it.file).await? {
        return Err(usage(format!("{} exists", it.file.display())));
    }
    let mut beside = it.file.clone().into_os_string();
    beside.push(".new");
    let fetched = async {
        let mut file = File::create(&beside).await?;
        copy(&mut reader, &mut file).await?;
        file.sync_all().await?;
        fs::rename(&beside, &it.file).await?;
        anyhow::Ok(reader.offset())
    };
    let fetched = fetched.await;
    if fetched.is_err() {
        // What is half written is of no use; that it cannot be removed, the next one will tell.
        let _gone = fs::remove_file(&beside).await;
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
