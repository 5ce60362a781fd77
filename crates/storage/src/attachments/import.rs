//! Reading an export.

use super::manifest::{self, Manifest};
use super::{AttachmentError, Attachments, Digest, Named, Stored};
use std::io::Read;

/// What was imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Version of the document.
    pub version: u64,
    /// Its attachments, in order of keys. The bodies of all of them are here.
    pub attachments: Vec<Named>,
    /// Bodies that came and are new here.
    pub stored: u64,
    /// Bytes of those.
    pub stored_bytes: u64,
    /// Bodies that came and were here before.
    pub known: u64,
}

impl Attachments {
    /// Reads an export to its end and stores its bodies, each checked against its digest. They
    /// have the time of grace to be named by an item. After an error some of the bodies may be
    /// here, each of them whole; the time of grace ends them.
    pub fn import(&self, from: impl Read, now_ms: u64) -> Result<Imported, AttachmentError> {
        let mut archive = tar::Archive::new(from);
        // Raw: extensions of the format, which may be of any length, are not obeyed.
        let entries =
            archive.entries().map_err(AttachmentError::of_stream("read the export"))?.raw(true);
        let mut entries =
            entries.map(|entry| entry.map_err(AttachmentError::of_stream("read the export")));
        let first = entries.next().transpose()?;
        let first = first.ok_or_else(|| {
            AttachmentError::bad_export(manifest::NAME, "the export ends before it")
        })?;
        let Manifest { version, attachments, mut sent, held } = read_manifest(first)?;
        if let Some(missing) = held.iter().find(|sha256| !self.contains(sha256)) {
            let what = "the export leaves it out, and it is not here";
            return Err(AttachmentError::bad_export(format!("body {missing}"), what));
        }
        // Until the end: those that were here before must be here then, too.
        let _pinned = self.pin(held)?;
        let mut imported = Imported { version, attachments, stored: 0, stored_bytes: 0, known: 0 };
        for entry in entries {
            let entry = entry?;
            let name = entry_name(&entry);
            let awaited = name.parse::<Digest>().ok().and_then(|it| Some((it, sent.remove(&it)?)));
            let Some((sha256, size)) = awaited.filter(|_| is_file(&entry)) else {
                return Err(AttachmentError::bad_export(name, "it is none of the bodies to come"));
            };
            let found = entry.size();
            if found != size {
                return Err(AttachmentError::WrongSize { sha256, expected: size, found });
            }
            match self.put(sha256, size, entry, now_ms).map_err(ended_early(sha256))? {
                Stored::New => {
                    imported.stored += 1;
                    imported.stored_bytes += size;
                }
                Stored::Known => imported.known += 1,
            }
        }
        if let Some(missing) = sent.keys().next() {
            let what = "the export ends before it";
            return Err(AttachmentError::bad_export(format!("body {missing}"), what));
        }
        Ok(imported)
    }
}

/// Fewer bytes than a header promised mean that the stream ended.
fn ended_early(sha256: Digest) -> impl FnOnce(AttachmentError) -> AttachmentError {
    move |error| {
        if matches!(error, AttachmentError::WrongSize { .. }) {
            return AttachmentError::bad_export(
                format!("body {sha256}"),
                "the export ends inside it",
            );
        }
        error
    }
}

fn entry_name<R: Read>(entry: &tar::Entry<'_, R>) -> String {
    String::from_utf8_lossy(&entry.path_bytes()).escape_debug().to_string()
}

fn is_file<R: Read>(entry: &tar::Entry<'_, R>) -> bool {
    entry.header().entry_type() == tar::EntryType::Regular
}

fn read_manifest<R: Read>(entry: tar::Entry<'_, R>) -> Result<Manifest, AttachmentError> {
    let name = entry_name(&entry);
    if name != manifest::NAME || !is_file(&entry) {
        let what = format!("it stands where {} must be", manifest::NAME);
        return Err(AttachmentError::bad_export(name, what));
    }
    let found = entry.size();
    manifest::check_length(found)?;
    let mut bytes = Vec::new();
    let read = entry.take(found).read_to_end(&mut bytes);
    read.map_err(AttachmentError::of_stream("read the export"))?;
    if bytes.len() as u64 != found {
        return Err(AttachmentError::bad_export(name, "the export ends inside it"));
    }
    Manifest::parse(&bytes)
}
