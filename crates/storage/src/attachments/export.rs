//! Attachments of a document at one version, as a stream.

use super::manifest::{self, Manifest};
use super::{AttachmentError, Attachments, Digest, Named};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};

/// What to export: the attachments of a document as of one version.
///
/// # Format 1
/// A tar archive (POSIX ustar, so that `tar tf` and `sha256sum` can look at it):
///
/// 1. `attachments.json`: `{"format":1,"version":171128094052123,"attachments":[{"key":"photo",
///    "sha256":"ba78…","size":3,"body":"sent"}]}`, in order of keys. `body` is `held` where the
///    receiver said that it has the body.
/// 2. Each body that is `sent`, once, under its SHA-256, in order of these.
///
/// The list comes first: a stream that ends early is noticed, and so is every changed byte of a
/// body. Memory holds the list and one piece of a body.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// The document's version.
    pub version: u64,
    /// Key and body of each attachment at that version.
    pub attachments: &'a [(String, Digest)],
    /// Bodies that the receiver has and that need not travel.
    pub receiver_has: &'a BTreeSet<Digest>,
}

/// What was exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Bodies that travelled.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Bodies that the receiver had.
    pub held: u64,
}

impl Attachments {
    /// Writes an export. Everything is checked before the first byte is written: a body that is not
    /// here is refused by name. None of the bodies is collected meanwhile.
    pub fn export(
        &self,
        export: &Export<'_>,
        into: impl Write,
    ) -> Result<Exported, AttachmentError> {
        let bodies: BTreeSet<Digest> = export.attachments.iter().map(|(_, sha)| *sha).collect();
        let _pinned = self.pin(bodies)?;
        let named = |(key, sha256): &(String, Digest)| {
            let size = self.size(sha256).ok_or_else(|| self.why_unreadable(*sha256))?;
            Ok(Named { key: key.clone(), sha256: *sha256, size })
        };
        let attachments: Result<_, AttachmentError> =
            export.attachments.iter().map(named).collect();
        let is_held = |sha256: &Digest| export.receiver_has.contains(sha256);
        let manifest = Manifest::new(export.version, attachments?, is_held)?;
        let text = manifest.to_bytes()?;
        let mut archive = tar::Builder::new(into);
        append(&mut archive, manifest::NAME, text.len() as u64, text.as_slice())?;
        for (sha256, size) in &manifest.sent {
            append(&mut archive, &sha256.to_string(), *size, self.read(sha256)?)?;
        }
        let finished = archive.into_inner().and_then(|mut into| into.flush());
        finished.map_err(AttachmentError::of_stream("write the export"))?;
        Ok(Exported {
            sent: manifest.sent.len() as u64,
            sent_bytes: manifest.sent.values().sum(),
            held: manifest.held.len() as u64,
        })
    }
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    size: u64,
    bytes: impl Read,
) -> Result<(), AttachmentError> {
    let mut header = tar::Header::new_ustar();
    let named = header.set_path(name);
    named.map_err(AttachmentError::of_stream("write the export"))?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    // No time, owner or group: the same export is the same bytes.
    header.set_mtime(0);
    header.set_cksum();
    let appended = archive.append(&header, Exactly { bytes, left: size });
    appended.map_err(AttachmentError::of_stream("write the export"))
}

/// A reader that must give so many bytes: the header has promised them.
struct Exactly<R> {
    bytes: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes.read(into)?;
        let left = self.left.checked_sub(length as u64);
        self.left = left.ok_or_else(|| io::Error::other("a body grew while it was read"))?;
        if length == 0 && !into.is_empty() && self.left > 0 {
            return Err(io::Error::other("a body shrank while it was read"));
        }
        Ok(length)
    }
}
