//! The file of a cached document.
//!
//! ```text
//! "rota session copy" LF · format u8 · through u64 (0: none) · name u16 + text · document u32 + bytes
//!                                                              (0 bytes: none) · checksum u64
//! ```
//! Numbers are big-endian; the checksum is xxh3 over everything before it. A new state is written
//! beside the file, made durable, and renamed over it: after a crash there is the old state or the
//! new one. A file that is damaged, of another format or of another document is refused, never
//! guessed from; since the managers have everything, it may be deleted at any time.

use super::copy::DocumentCopy;
use rota_docstore::{DocName, Document, Stamp};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A copy of any document begins so, not only one of a session.
const MAGIC: &[u8] = b"rota session copy\n";
const FORMAT: u8 = 1;
/// Rights of the file: what stands in a document is its user's alone.
const PRIVATE: u32 = 0o600;
/// More than any document has: a larger file is none of ours.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CopyFileError {
    /// Reading or writing failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is something else.
    #[error("{}: is no copy of a document; name another file", .path.display())]
    NotACopy {
        /// The file.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error(
        "{}: has format {found}, and this version reads {FORMAT} only; delete it, and the copy is \
         fetched anew", .path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u8,
    },
    /// It was cut short or changed.
    #[error("{}: is damaged; delete it, and the copy is fetched anew", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another document.
    #[error("{}: is the copy of {found}, not of {wanted}; name another file", .path.display())]
    OtherDocument {
        /// The file.
        path: PathBuf,
        /// Whose copy it is.
        found: DocName,
        /// Whose copy was wanted.
        wanted: DocName,
    },
}

/// Reads the copy; nothing is known when there is no file.
pub(super) fn load(path: &Path, name: &DocName) -> Result<DocumentCopy, CopyFileError> {
    let failed = |error| CopyFileError::Io { path: path.to_owned(), error };
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(DocumentCopy::new(name.clone()));
        }
        Err(error) => return Err(failed(error)),
    };
    let path = || path.to_owned();
    if length > FILE_BYTES_MAX {
        return Err(CopyFileError::NotACopy { path: path() });
    }
    let bytes = fs::read(path()).map_err(failed)?;
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(CopyFileError::NotACopy { path: path() });
    };
    let damaged = || CopyFileError::Damaged { path: path() };
    let (format, _) = rest.split_first().ok_or_else(damaged)?;
    if *format != FORMAT {
        return Err(CopyFileError::Format { path: path(), found: *format });
    }
    let copy = decode(&bytes).ok_or_else(damaged)?;
    if copy.name() != name {
        let (found, wanted) = (copy.name().clone(), name.clone());
        return Err(CopyFileError::OtherDocument { path: path(), found, wanted });
    }
    Ok(copy)
}

fn decode(bytes: &[u8]) -> Option<DocumentCopy> {
    let (covered, checksum) = bytes.split_last_chunk::<8>()?;
    if u64::from_be_bytes(*checksum) != xxh3_64(covered) {
        return None;
    }
    let rest = covered.strip_prefix(MAGIC)?.strip_prefix(&[FORMAT])?;
    let (through, rest) = rest.split_first_chunk::<8>()?;
    let through = match u64::from_be_bytes(*through) {
        0 => None,
        number => Some(Stamp::parse(number).ok()?),
    };
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let name = DocName::from_text(std::str::from_utf8(name).ok()?).ok()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    if usize::try_from(u32::from_be_bytes(*length)) != Ok(rest.len()) {
        return None;
    }
    let document = match rest {
        [] => None,
        bytes => Some(Document::from_bytes(bytes).ok()?),
    };
    if document.as_ref().is_some_and(|it| *it.name() != name) {
        return None;
    }
    Some(DocumentCopy::restored(name, document.map(Arc::new), through))
}

fn encode(copy: &DocumentCopy) -> Vec<u8> {
    let name = copy.name().as_text().as_bytes();
    let document = copy.document().map(|it| it.to_bytes()).unwrap_or_default();
    let name_length = u16::try_from(name.len()).expect("names of documents are short");
    let length = u32::try_from(document.len()).expect("documents have a few MiB");
    let through = copy.through().map_or(0, Stamp::as_u64);
    let mut bytes = [
        MAGIC,
        &[FORMAT],
        &through.to_be_bytes(),
        &name_length.to_be_bytes(),
        name,
        &length.to_be_bytes(),
        &document,
    ]
    .concat();
    bytes.extend_from_slice(&xxh3_64(&bytes).to_be_bytes());
    bytes
}

/// Replaces the file.
pub(super) fn save(path: &Path, copy: &DocumentCopy) -> Result<(), CopyFileError> {
    let write = || {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(PRIVATE);
        let mut file = options.open(&beside)?;
        file.write_all(&encode(copy))?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| CopyFileError::Io { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::super::session::document_of;
    use super::*;
    use rota_docstore::{Content, DocumentParts, Item, ItemName, Update};
    use rota_model::{Namespace, SessionId, SessionKey};

    fn name(id: &str) -> DocName {
        document_of(&SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap()))
    }

    fn copy() -> DocumentCopy {
        let at = Stamp::MIN.plus_ms(7);
        let content = Content::json("{\"a\":1}").unwrap();
        let item = Item::existing(ItemName::singleton("spec").unwrap(), at, at, content).unwrap();
        let parts = DocumentParts {
            name: name("a"),
            ctime: at,
            version: at,
            dtime: at,
            is_deleted: false,
            items: vec![item],
        };
        let document = Arc::new(Document::from_parts(parts).unwrap());
        DocumentCopy::new(name("a")).after(&Update::Full(document)).unwrap()
    }

    #[test]
    fn what_was_saved_is_loaded_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        assert_eq!(load(&path, &name("a")).unwrap(), DocumentCopy::new(name("a")));
        save(&path, &copy()).unwrap();
        assert_eq!(load(&path, &name("a")).unwrap(), copy());
        let as_of = Stamp::MIN.plus_ms(9);
        let gone = copy().after(&Update::Absent { as_of }).unwrap();
        save(&path, &gone).unwrap();
        assert_eq!(load(&path, &name("a")).unwrap(), gone);
        assert_eq!(gone.through(), Some(as_of));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_refused_whichever_byte_changed_and_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let whole = encode(&copy());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            fs::write(&path, &bytes).unwrap();
            assert!(load(&path, &name("a")).is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(load(&path, &name("a")).is_err(), "cut at {at}");
        }
        fs::write(&path, &whole[..40]).unwrap();
        let told = load(&path, &name("a")).unwrap_err().to_string();
        assert!(told.ends_with("is damaged; delete it, and the copy is fetched anew"), "{told}");
    }

    #[test]
    fn a_file_of_another_document_or_another_kind_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        save(&path, &copy()).unwrap();
        let told = load(&path, &name("b")).unwrap_err().to_string();
        let expected = "is the copy of default/session/a, not of default/session/b";
        assert!(told.contains(expected), "{told}");
        fs::write(&path, "my letters").unwrap();
        let told = load(&path, &name("a")).unwrap_err().to_string();
        assert!(told.contains("is no copy of a document; name another file"), "{told}");
        let mut other = encode(&copy());
        other[MAGIC.len()] = 9;
        fs::write(&path, other).unwrap();
        let told = load(&path, &name("a")).unwrap_err().to_string();
        assert!(told.contains("has format 9"), "{told}");
        let missing = folder.path().join("no folder").join("copy");
        assert!(matches!(save(&missing, &copy()), Err(CopyFileError::Io { .. })));
    }
}
