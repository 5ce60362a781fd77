//! Exports and imports.

use super::file::{Reader, Writer};
use super::show::{Exported, Imported};
use super::{namespace, spinner};
use crate::destination::Destination;
use crate::failure::OutcomeUnknown;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, STANDARD, counted, standard};
use crate::source;
use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use rota_client::docstore::Namespace;
use rota_client::documents::{Namespaces, RecordSource};
use rota_client::{CallError, v1};
use std::io::SeekFrom;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncSeekExt, AsyncWrite, BufReader, BufWriter};

/// `namespace export`.
#[derive(Args, Debug)]
pub struct ExportArguments {
    /// The namespace.
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// Where to: a file, which is there only when it is whole, a pipe, or - for stdout.
    file: PathBuf,
    /// Replace the file if there is one.
    #[arg(long)]
    force: bool,
    /// How long nothing may come before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

/// `namespace import`.
#[derive(Args, Debug)]
pub struct ImportArguments {
    /// What was exported: a file or a pipe, which is checked before anything is sent, or - for stdin,
    /// which is sent as it comes.
    file: PathBuf,
    /// Take it over into this namespace; without it, into the one that was exported.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    into: Option<Namespace>,
    /// How long nothing may go on before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

fn so_far(documents: u64, bodies: u64) -> String {
    format!("{}, {}", counted(documents, "document"), counted(bodies, "attachment"))
}

/// Writes an export.
pub async fn export(
    namespaces: &Namespaces,
    it: &ExportArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let progress = spinner();
    let exported = if it.file == Path::new(STANDARD) {
        let to = BufWriter::new(standard(std::io::stdout().as_fd())?);
        copy(namespaces, it, to, &progress).await.map(|(_, exported)| exported)
    } else {
        into_file(namespaces, it, &progress).await
    };
    progress.finish_and_clear();
    let exported = exported?;
    let documents = counted(exported.documents, "document");
    let bodies = counted(exported.bodies, "attachment");
    let told = format!("{documents}, {bodies}, {} bytes", exported.bytes);
    match out.format() {
        // Standard output has the export.
        _ if it.file == Path::new(STANDARD) => eprintln!("exported {}: {told}", exported.name),
        Format::Json => out.json(&exported)?,
        Format::Table => out.text(&format!("{}: {told}\n", exported.file))?,
    }
    Ok(())
}

async fn into_file(
    namespaces: &Namespaces,
    it: &ExportArguments,
    progress: &ProgressBar,
) -> anyhow::Result<Exported> {
    let to = Destination::at(&it.file, it.force)?;
    let written = async {
        let file = BufWriter::new(to.open().await?);
        let (buffered, exported) = copy(namespaces, it, file, progress).await?;
        to.finish(buffered.into_inner()).await?;
        Ok(exported)
    };
    let written = written.await;
    if written.is_err() {
        to.discard().await;
    }
    written
}

async fn copy<W: AsyncWrite + Unpin>(
    namespaces: &Namespaces,
    it: &ExportArguments,
    to: W,
    progress: &ProgressBar,
) -> anyhow::Result<(W, Exported)> {
    let mut export = namespaces.export(&it.name, it.patience).await?;
    let mut writer = Writer::begin(to).await?;
    while let Some((record, _)) = export.next().await? {
        writer.put(&record).await?;
        let (documents, bodies) = export.so_far();
        progress.set_message(so_far(documents, bodies));
    }
    let ((to, bytes), (documents, bodies)) = (writer.finish().await?, export.so_far());
    let (name, file) = (it.name.as_str().to_owned(), it.file.display().to_string());
    Ok((to, Exported { name, file, documents, bodies, bytes }))
}

/// Records of a file on their way to a manager.
struct Records<'a, R> {
    reader: Reader<R>,
    progress: &'a ProgressBar,
}

impl<R: AsyncRead + Unpin + Send> RecordSource for Records<'_, R> {
    async fn next(&mut self) -> Result<Option<v1::NamespaceRecord>, CallError> {
        let read = self.reader.next().await;
        let next = read.map_err(|it| CallError::Source(format!("{it:#}")))?;
        let (documents, bodies) = self.reader.so_far();
        self.progress.set_message(so_far(documents, bodies));
        Ok(next.map(|(record, _)| record))
    }
}

/// Sends what was exported.
pub async fn import(
    namespaces: &Namespaces,
    it: &ImportArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    let progress = spinner();
    let imported = if it.file == Path::new(STANDARD) {
        let from = standard(std::io::stdin().as_fd())?;
        send(namespaces, it, BufReader::new(from), &progress).await
    } else {
        let told = || it.file.display().to_string();
        let mut file = source::to_read_again(&it.file).await?;
        check(&mut file).await.with_context(told)?;
        file.seek(SeekFrom::Start(0)).await.with_context(told)?;
        send(namespaces, it, BufReader::new(file), &progress).await
    };
    progress.finish_and_clear();
    let imported = imported?;
    match out.format() {
        Format::Json => out.json(&imported)?,
        Format::Table => {
            let documents = counted(imported.documents, "document");
            let bodies = counted(imported.bodies, "attachment");
            out.text(&format!("imported {documents} and {bodies}, kept {}\n", imported.kept))?;
        }
    }
    Ok(())
}

/// Reads all of a file, so that a damaged one is found before anything is sent.
async fn check(file: &mut File) -> anyhow::Result<()> {
    let mut reader = Reader::begin(BufReader::new(file)).await?;
    while reader.next().await?.is_some() {}
    Ok(())
}

async fn send<R: AsyncRead + Unpin + Send>(
    namespaces: &Namespaces,
    it: &ImportArguments,
    from: R,
    progress: &ProgressBar,
) -> anyhow::Result<Imported> {
    let mut records = Records { reader: Reader::begin(from).await?, progress };
    let done = namespaces.import(it.into.as_ref(), &mut records, it.patience).await;
    let done = done.map_err(|error| anyhow::Error::from(error).context(OutcomeUnknown::Import))?;
    Ok(Imported { documents: done.documents, kept: done.kept, bodies: done.bodies })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::Client;

    fn nobody() -> Namespaces {
        Client::connect("127.0.0.1:1").unwrap().namespaces()
    }

    #[tokio::test]
    async fn a_damaged_file_is_told_before_anybody_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.export");
        std::fs::write(&file, "something else").unwrap();
        let arguments = ImportArguments { file, into: None, patience: Duration::from_secs(1) };
        let (mut out, _written) = Out::captured(Format::Table);
        let error = import(&nobody(), &arguments, &mut out).await.unwrap_err();
        assert!(format!("{error:#}").contains("shop.export: this is no export"), "{error:#}");
    }

    #[tokio::test]
    async fn an_export_that_fails_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (name, file) = (Namespace::parse("shop").unwrap(), folder.path().join("shop.export"));
        let arguments =
            ExportArguments { name, file, force: false, patience: Duration::from_millis(50) };
        let (mut out, written) = Out::captured(Format::Table);
        assert!(export(&nobody(), &arguments, &mut out).await.is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(written.text(), "");
    }
}
