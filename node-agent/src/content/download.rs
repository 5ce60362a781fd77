//! Brings files into the cache: neighbours in one body come in one stream.

use super::cache::{Cache, Coming};
use super::status::ContentStatus;
use anyhow::Context;
use bytes::Bytes;
use rota_client::Client;
use rota_client::documents::request::GetBody;
use rota_content::File;
use rota_content::refresh::{CacheName, Needed};
use rota_docstore::{Caller, Digest};
use rota_model::{Namespace, RepositoryName};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Streams at once.
const AT_ONCE: usize = 4;
/// Bytes between two files that come along rather than to begin another stream.
const GAP_BYTES: u64 = 64 * 1024;
/// Pieces that wait for the disk.
const AHEAD: usize = 4;
/// How long nothing may come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two lines of the log of a long download.
const TOLD_EVERY: Duration = Duration::from_secs(2);
/// The namespace for configuration.
pub const CONFIGURATION: &str = "z";

/// A part of a body, with the files in it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Span {
    body: Digest,
    offset: u64,
    length: u64,
    /// In the order of their places.
    files: Vec<(SmolStr, File)>,
    /// Bytes of the first file that came earlier: the part begins behind them.
    came: u64,
}

/// The parts of bodies that hold these files, but for what came earlier; of equal files one is enough. Empty files are
/// in none.
fn spans(mut files: Vec<(SmolStr, File)>, partial: &BTreeMap<CacheName, u64>) -> Vec<Span> {
    let mut met = BTreeSet::new();
    files.retain(|(_, it)| met.insert(CacheName::of(it)));
    files.sort_by_key(|(_, it)| (it.body, it.offset, it.bytes));
    let mut spans: Vec<Span> = Vec::new();
    for (path, file) in files.into_iter().filter(|(_, it)| it.bytes > 0) {
        let end = file.offset + file.bytes;
        let came = came_of(&file, partial);
        match spans.last_mut() {
            Some(span)
                if came == 0
                    && span.body == file.body
                    && file.offset >= span.offset + span.length
                    && file.offset - (span.offset + span.length) <= GAP_BYTES =>
            {
                span.length = end - span.offset;
                span.files.push((path, file));
            }
            Some(_) | None => {
                let (body, offset, length) = (file.body, file.offset + came, file.bytes - came);
                spans.push(Span { body, offset, length, files: vec![(path, file)], came });
            }
        }
    }
    spans
}

/// What came earlier of a file. One of which everything came without an end was cut off there, and comes again.
fn came_of(file: &File, partial: &BTreeMap<CacheName, u64>) -> u64 {
    partial.get(&CacheName::of(file)).copied().filter(|it| *it < file.bytes).unwrap_or(0)
}

/// Bytes that are to come for these files.
///
/// # Errors
/// The cache cannot be read.
pub fn bytes_to_come(cache: &Cache, filesets: &[Needed]) -> anyhow::Result<u64> {
    let partial = cache.partial()?;
    let files: BTreeMap<CacheName, &File> =
        filesets.iter().flat_map(|it| &it.files).map(|(_, it)| (CacheName::of(it), it)).collect();
    Ok(files.values().map(|it| it.bytes - came_of(it, &partial)).sum())
}

/// Puts the bytes of a span into its files.
struct Filler {
    cache: Cache,
    files: VecDeque<(SmolStr, File)>,
    /// Where the next byte lies in the body.
    at: u64,
    /// Bytes of the first file that came earlier.
    came: u64,
    coming: Option<(SmolStr, File, Coming)>,
    status: ContentStatus,
}

impl Filler {
    fn new(cache: Cache, span: &Span, status: ContentStatus) -> Self {
        let (files, at, came) = (span.files.clone().into(), span.offset, span.came);
        Self { cache, files, at, came, coming: None, status }
    }

    fn take(&mut self, mut bytes: Bytes) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let (path, file, mut coming) = match self.coming.take() {
                Some(coming) => coming,
                None => {
                    let Some((path, file)) = self.files.pop_front() else { return Ok(()) };
                    let came = std::mem::take(&mut self.came);
                    let begun = self.cache.begin(&file, came).with_context(|| path.to_string())?;
                    (path, file, begun)
                }
            };
            // What lies between two files.
            let next = file.offset + coming.bytes();
            let gap = usize::try_from(next.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let skipped = bytes.split_to(gap.min(bytes.len()));
            self.at += skipped.len() as u64;
            let left = (file.offset + file.bytes).saturating_sub(self.at);
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let part = bytes.split_to(left.min(bytes.len()));
            self.at += part.len() as u64;
            coming.write(&part)?;
            self.status.came(0, part.len() as u64);
            if self.at == file.offset + file.bytes {
                coming.end().with_context(|| path.to_string())?;
                self.status.came(1, 0);
            } else {
                self.coming = Some((path, file, coming));
            }
        }
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        let missing =
            self.coming.map(|it| it.0).or_else(|| self.files.front().map(|it| it.0.clone()));
        missing.map_or(Ok(()), |path| anyhow::bail!("{path}: its body ended before it was whole"))
    }
}

/// Where files come from.
#[derive(Clone)]
pub struct Source {
    /// Managers.
    pub client: Client,
    /// Which repository.
    pub repository: RepositoryName,
}

async fn fetch(
    source: Source,
    cache: Cache,
    span: Span,
    status: ContentStatus,
) -> anyhow::Result<()> {
    let (out, mut pieces) = mpsc::channel::<Bytes>(AHEAD);
    let mut filler = Filler::new(cache, &span, status);
    let writing = tokio::task::spawn_blocking(move || {
        while let Some(piece) = pieces.blocking_recv() {
            filler.take(piece)?;
        }
        filler.end()
    });
    let get = GetBody {
        space: Namespace::parse(CONFIGURATION).expect("z is a name"),
        docid: source.repository.as_str().to_owned(),
        sha256: span.body,
        offset: span.offset,
        length: span.length,
        caller: Caller::default(),
    };
    let mut reader = source.client.documents().get_body(get, PATIENCE);
    let read = async {
        while let Some(piece) = reader.next().await? {
            if out.send(piece).await.is_err() {
                // Why it takes no more is what the writer says.
                break;
            }
        }
        anyhow::Ok(())
    };
    let read = read.await;
    drop(out);
    // A stream that broke leaves a file half written; the break is the reason.
    let written = writing.await.context("writing files of content")?;
    read.with_context(|| format!("reading {} files of content", span.files.len()))?;
    written
}

/// Downloads the files of a fileset that the cache does not have.
///
/// # Errors
/// One of them cannot be had. What came stays.
pub async fn download(
    source: &Source,
    cache: &Cache,
    fileset: &Needed,
    status: &ContentStatus,
) -> anyhow::Result<()> {
    if fileset.files.is_empty() {
        return Ok(());
    }
    let empty: Vec<File> =
        fileset.files.iter().filter(|(_, it)| it.bytes == 0).map(|it| it.1).collect();
    let of = cache.clone();
    let made = tokio::task::spawn_blocking(move || {
        empty.iter().try_for_each(|it| of.begin(it, 0)?.end())?;
        of.partial()
    });
    let partial = made.await.context("writing files of content")??;
    let spans = spans(fileset.files.clone(), &partial);
    let came_earlier: u64 = spans.iter().map(|it| it.came).sum();
    let of_spans = || spans.iter().flat_map(|it| &it.files);
    let bytes = of_spans().map(|(_, it)| it.bytes).sum::<u64>() - came_earlier;
    let files = of_spans().count() as u64;
    status.begins(files, bytes);
    let (mut waiting, mut under_way) = (spans.into_iter(), JoinSet::new());
    let mut told = Instant::now();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(span) = waiting.next()
        {
            under_way.spawn(fetch(source.clone(), cache.clone(), span, status.clone()));
        }
        match timeout_at(told + TOLD_EVERY, under_way.join_next()).await {
            Ok(None) => break,
            Ok(Some(done)) => done.context("a download")??,
            Err(_) => {}
        }
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            let (files_came, bytes_came) = status.progress();
            tracing::info!(
                fileset = %fileset.name, files_came, files, bytes_came, bytes, "content is downloaded"
            );
        }
    }
    tracing::info!(fileset = %fileset.name, files, bytes, came_earlier, "a fileset of content has come");
    let cache = cache.clone();
    tokio::task::spawn_blocking(move || cache.sync()).await.context("syncing files of content")?
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::wanted;
    use super::*;
    use rota_content::{FilesetName, Hash};

    fn file(text: &str, body: u8, offset: u64) -> (SmolStr, File) {
        let file = File { body: Digest([body; 32]), offset, ..wanted(text, false) };
        (SmolStr::new(text), file)
    }

    #[test]
    fn neighbours_come_together_and_equal_files_once() {
        let found = spans(
            vec![
                file("cc", 1, 3),
                file("aaa", 1, 0),
                file("cc", 2, 7),
                file("far", 1, GAP_BYTES * 3),
                file("", 1, 0),
            ],
            &BTreeMap::new(),
        );
        let shown: Vec<(u8, u64, u64, Vec<&str>)> = found
            .iter()
            .map(|span| {
                let paths = span.files.iter().map(|it| it.0.as_str()).collect();
                (span.body.0[0], span.offset, span.length, paths)
            })
            .collect();
        let far = GAP_BYTES * 3;
        assert_eq!(shown, [(1, 0, 5, vec!["aaa", "cc"]), (1, far, 3, vec!["far"])]);
    }

    #[test]
    fn bytes_go_to_their_files_however_they_are_cut() {
        for size in [1, 2, 3, 100] {
            let folder = tempfile::tempdir().unwrap();
            let cache = Cache::open(folder.path()).unwrap();
            let status = ContentStatus::default();
            let files = vec![file("abc", 1, 1), file("de", 1, 6)];
            let span = spans(files.clone(), &BTreeMap::new()).remove(0);
            assert_eq!((span.offset, span.length), (1, 7));
            let mut filler = Filler::new(cache.clone(), &span, status.clone());
            for piece in b"abc--de".chunks(size) {
                filler.take(Bytes::copy_from_slice(piece)).unwrap();
            }
            filler.end().unwrap();
            assert!(files.iter().all(|(_, it)| cache.has(&CacheName::of(it), it)), "{size}");
            assert_eq!(status.progress(), (2, 5), "what lies between them does not count");
            let mut short = Filler::new(cache, &span, status);
            short.take(Bytes::from_static(b"abc--d")).unwrap();
            assert!(short.end().unwrap_err().to_string().contains("de"));
        }
    }

    #[test]
    fn what_came_earlier_of_a_file_does_not_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let files = vec![file("abc", 1, 0), file("defgh", 1, 3), file("ij", 1, 8)];
        cache.begin(&files[1].1, 0).unwrap().write(b"de").unwrap();
        let partial = cache.partial().unwrap();
        let found = spans(files.clone(), &partial);
        let places: Vec<_> = found.iter().map(|it| (it.offset, it.length, it.came)).collect();
        assert_eq!(places, [(0, 3, 0), (5, 5, 2)]);
        let name = FilesetName::default_name();
        let needed = Needed { name, commit: Hash::parse("aa").unwrap(), files: files.clone() };
        assert_eq!(bytes_to_come(&cache, &[needed.clone(), needed]).unwrap(), 8);
        for (span, bytes) in found.iter().zip([&b"abc"[..], b"fghij"]) {
            let mut filler = Filler::new(cache.clone(), span, ContentStatus::default());
            filler.take(Bytes::from_static(bytes)).unwrap();
            filler.end().unwrap();
        }
        assert!(files.iter().all(|(_, it)| cache.has(&CacheName::of(it), it)));
        // What was cut off behind the last byte has no digest yet.
        assert_eq!(came_of(&files[0].1, &BTreeMap::from([(CacheName::of(&files[0].1), 3)])), 0);
    }
}
