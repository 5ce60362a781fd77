//! The file of an export.
//!
//! ```text
//! "rota namespace export 2" LF · (length u32 · checksum u64 · record)*
//! ```
//! Numbers are big-endian; a record is a `rota.v1.NamespaceRecord`, its checksum xxh3. What is cut
//! short or changed is found while it is read, and told with the record's number. Format 1, where each
//! document is one record, is read, too.

use anyhow::{Context, bail, ensure};
use prost::Message;
use rota_client::documents::export::{Order, Part};
use rota_client::v1::NamespaceRecord;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 24] = b"rota namespace export 2\n";
/// What is read as well.
const OLDER: &[u8; 24] = b"rota namespace export 1\n";
/// How exports of every format begin.
const KIND: &[u8] = b"rota namespace export ";
/// Larger than any record: in format 1, a document of 8 MiB with the names of its items.
const RECORD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Writes an export.
pub struct Writer<W> {
    to: W,
    bytes: u64,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Begins one.
    pub async fn begin(mut to: W) -> anyhow::Result<Self> {
        to.write_all(MAGIC).await?;
        Ok(Self { to, bytes: MAGIC.len() as u64 })
    }

    /// Adds a record.
    pub async fn put(&mut self, record: &NamespaceRecord) -> anyhow::Result<()> {
        let record = record.encode_to_vec();
        let length = u32::try_from(record.len()).context("a record is too long")?;
        self.to.write_all(&length.to_be_bytes()).await?;
        self.to.write_all(&xxh3_64(&record).to_be_bytes()).await?;
        self.to.write_all(&record).await?;
        self.bytes += 12 + u64::from(length);
        Ok(())
    }

    /// Gives everything out, and says how many bytes it was.
    pub async fn finish(mut self) -> anyhow::Result<(W, u64)> {
        self.to.flush().await?;
        Ok((self.to, self.bytes))
    }
}

/// Reads an export, and checks it on the way.
pub struct Reader<R> {
    from: R,
    order: Order,
    records: u64,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Begins; refuses what is no export.
    pub async fn begin(mut from: R) -> anyhow::Result<Self> {
        let mut magic = [0; MAGIC.len()];
        let read = from.read_exact(&mut magic).await;
        let is_export = read.is_ok() && magic.starts_with(KIND);
        ensure!(is_export, "this is no export of a namespace");
        let format = String::from_utf8_lossy(&magic[KIND.len()..]).trim().to_owned();
        ensure!(
            [MAGIC, OLDER].contains(&&magic),
            "this export has format {format}; this build reads formats 1 and 2: import it with the \
             build that wrote it"
        );
        Ok(Self { from, order: Order::new(), records: 0 })
    }

    /// The next record, and the part that is whole with it, if any; `None` after the last, if nothing is
    /// missing.
    pub async fn next(&mut self) -> anyhow::Result<Option<(NamespaceRecord, Option<Part>)>> {
        let read = self.read().await;
        read.with_context(|| format!("record {} of the export", self.records))
    }

    async fn read(&mut self) -> anyhow::Result<Option<(NamespaceRecord, Option<Part>)>> {
        let mut first = [0; 1];
        if self.from.read(&mut first).await? == 0 {
            ensure!(self.order.is_complete(), "is missing: the export is cut short");
            return Ok(None);
        }
        self.records += 1;
        let mut head = [first[0]; 12];
        self.exactly(&mut head[1..]).await?;
        let (length, checksum) = head.split_first_chunk::<4>().expect("12 bytes have 4");
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > RECORD_BYTES_MAX {
            bail!("is damaged: it would have {length} bytes, and the limit is {RECORD_BYTES_MAX}");
        }
        let mut bytes = vec![0; length];
        self.exactly(&mut bytes).await?;
        ensure!(checksum == xxh3_64(&bytes).to_be_bytes(), "is damaged: its checksum is wrong");
        let record = NamespaceRecord::decode(&*bytes).context("is damaged")?;
        let part = self.order.take(record.clone())?;
        Ok(Some((record, part)))
    }

    async fn exactly(&mut self, bytes: &mut [u8]) -> anyhow::Result<()> {
        self.from.read_exact(bytes).await.context("is cut short")?;
        Ok(())
    }

    /// Documents and bodies so far.
    pub fn so_far(&self) -> (u64, u64) {
        (self.order.documents(), self.order.bodies())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::{
        Attachment, Description, Digest, DocName, Document, DocumentParts, Namespace, Stamp, Usage,
    };
    use rota_client::documents::NamespaceState;

    fn parts() -> Vec<Part> {
        let space = Namespace::parse("shop").unwrap();
        let document = Document::from_parts(DocumentParts {
            name: DocName::new(&space, "Acc", "a").unwrap(),
            ctime: Stamp::MIN,
            version: Stamp::MIN,
            dtime: Stamp::MIN,
            is_deleted: false,
            items: Vec::new(),
        });
        let (description, usage) = (Description::default(), Ok(Usage::default()));
        vec![
            Part::Header(NamespaceState { name: space, description, usage, version: None }),
            Part::Body(Attachment::new("", 3, Digest([1; 32])).unwrap()),
            Part::Bytes(vec![1, 2, 3].into()),
            Part::Document(document.unwrap()),
            Part::Footer { documents: 1, bodies: 1 },
        ]
    }

    async fn written() -> Vec<u8> {
        let mut writer = Writer::begin(Vec::new()).await.unwrap();
        for part in parts() {
            writer.put(&(&part).into()).await.unwrap();
        }
        let (bytes, count) = writer.finish().await.unwrap();
        assert_eq!(bytes.len() as u64, count);
        bytes
    }

    async fn read(bytes: &[u8]) -> anyhow::Result<Vec<Part>> {
        let mut reader = Reader::begin(bytes).await?;
        let mut parts = Vec::new();
        while let Some((_, part)) = reader.next().await? {
            parts.extend(part);
        }
        Ok(parts)
    }

    #[tokio::test]
    async fn an_export_comes_back_from_its_file() {
        assert_eq!(read(&written().await).await.unwrap(), parts());
    }

    #[tokio::test]
    async fn a_file_that_is_cut_or_changed_anywhere_is_refused_with_the_record() {
        let whole = written().await;
        for at in 0..whole.len() {
            assert!(read(&whole[..at]).await.is_err(), "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(read(&changed).await.is_err(), "changed at {at}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(read(&longer).await.is_err());
        let error = read(&whole[..whole.len() - 1]).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "record 5 of the export: is cut short: early eof");
    }
}
