//! The output of one program, to one reader.

use super::listing::Listing;
use crate::output_files::Kept;
use rota_model::{Refusal, RefusalKind, Retry, SessionKey, Stamp};
use rota_proto::programs::{LogsAsk, OutputName, PIECE_BYTES_MAX};
use rota_proto::refusal::status;
use rota_proto::v1;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

/// Between two looks at files to which nothing was written.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a reader may take for a piece.
const READER_PATIENCE: Duration = Duration::from_secs(60);

/// What goes to a reader.
pub type Items = mpsc::Sender<Result<v1::LogsResponse, Status>>;

/// One of the outputs.
struct Flow {
    output: OutputName,
    path: PathBuf,
    /// The next byte.
    at: u64,
    /// Where it ends for whoever does not follow.
    until: Option<u64>,
    /// Where it ended as it was seen last.
    end: u64,
}

impl Flow {
    /// Of a piece that begins there, what is still wanted; the next one follows it.
    fn take(&mut self, offset: u64, mut bytes: Vec<u8>) -> Vec<u8> {
        let room = self.until.map(|it| it.saturating_sub(offset));
        let room = room.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
        bytes.truncate(room);
        self.at = offset + bytes.len() as u64;
        bytes
    }

    /// Whether all was read of files that end there.
    fn is_whole(&self, end: u64) -> bool {
        self.until.map_or(end >= self.end, |until| self.at >= until)
    }
}

/// What is read.
pub struct Reading {
    key: SessionKey,
    listing: Listing,
    folder: PathBuf,
    follow: bool,
    flows: Vec<Flow>,
}

/// Where an output ends, and its next piece with where that begins.
type Next = (u64, Option<(u64, Vec<u8>)>);

/// What one look found.
struct Found {
    /// Whether the session's folder was there after it.
    folder: bool,
    flows: Vec<Next>,
}

impl Reading {
    /// What is asked of a session's folder, and how it begins. Blocks.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn begin(
        ask: &LogsAsk,
        (folder, life): (PathBuf, Stamp),
        (listing, node): (Listing, &str),
    ) -> io::Result<(Self, v1::logs_response::Begin)> {
        let mut begin = v1::logs_response::Begin {
            node: node.to_owned(),
            life: life.into(),
            running: listing.runs(&folder),
            ..Default::default()
        };
        let mut flows = Vec::new();
        for output in OutputName::ALL {
            let path = folder.join(format!("{}.log", output.as_str()));
            let kept = Kept::look(&path)?;
            let at = match (ask.from(output), ask.tail) {
                (Some(from), _) => from,
                (None, Some(lines)) => kept.tail(u64::from(lines))?,
                (None, None) => kept.begin(),
            };
            match output {
                OutputName::Stdout => begin.stdout_from = at,
                OutputName::Stderr => begin.stderr_from = at,
            }
            let end = kept.end();
            let until = (!ask.follow).then_some(end);
            let flow = Flow { output, path, at, until, end };
            flows.extend(Some(flow).filter(|_| ask.wants(output)));
        }
        let key = ask.key.clone();
        Ok((Self { key, listing, folder, follow: ask.follow, flows }, begin))
    }

    /// Sends it, until it ends or nobody reads.
    pub async fn run(self, items: Items) {
        let (patience, key) = (READER_PATIENCE.as_secs(), self.key.clone());
        let ended = tokio::select! {
            ended = self.send(&items) => ended,
            () = items.closed() => return,
        };
        let last = match ended {
            Ok(running) => {
                let end = v1::logs_response::End { running };
                Ok(v1::LogsResponse { part: Some(v1::logs_response::Part::End(end)) })
            }
            Err(Broken::TooSlow) => {
                let text = format!("nothing of the output was read for {patience} s");
                let kind = RefusalKind::DeadlineExceeded;
                Err(status(&Refusal::new(kind, Retry::WhenChanged, text)))
            }
            Err(Broken::Removed) => {
                let text = format!("the folder of session {key} was removed meanwhile");
                Err(status(&Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text)))
            }
            Err(Broken::Unreadable(why)) => Err(unreadable(&why)),
        };
        // Whoever has left misses nothing.
        let _ = timeout(READER_PATIENCE, items.send(last)).await;
    }

    /// Gives whether the program runs on.
    async fn send(mut self, items: &Items) -> Result<bool, Broken> {
        loop {
            // Before the look: what was printed before its end is there then.
            let running = self.listing.runs(&self.folder);
            let wanted = self.flows.iter().map(|it| (it.path.clone(), it.at)).collect();
            let folder = self.folder.clone();
            let found = tokio::task::spawn_blocking(move || look(&folder, wanted)).await;
            let found = found.map_err(io::Error::other).and_then(|it| it);
            let found = found.map_err(Broken::Unreadable)?;
            let (mut idle, mut whole) = (true, true);
            for (flow, (end, piece)) in self.flows.iter_mut().zip(found.flows) {
                let bytes = piece.map(|(offset, bytes)| (offset, flow.take(offset, bytes)));
                whole &= flow.is_whole(end);
                flow.end = flow.end.max(end);
                let Some((offset, bytes)) = bytes.filter(|it| !it.1.is_empty()) else { continue };
                idle = false;
                let output = v1::Output::from(flow.output).into();
                let piece = v1::logs_response::Piece { output, offset, bytes: bytes.into() };
                let part = Some(v1::logs_response::Part::Piece(piece));
                let sent =
                    timeout(READER_PATIENCE, items.send(Ok(v1::LogsResponse { part }))).await;
                sent.map_err(|_| Broken::TooSlow)?.map_err(|_| Broken::TooSlow)?;
            }
            // Whoever follows cannot know whether all was read of what is gone.
            if idle && self.follow && !found.folder {
                return Err(Broken::Removed);
            }
            if idle && !(self.follow && running) {
                return if whole { Ok(running) } else { Err(Broken::Removed) };
            }
            if idle {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// Why a reading ended before its end.
enum Broken {
    TooSlow,
    Removed,
    Unreadable(io::Error),
}

/// The next piece of each; blocks.
fn look(folder: &Path, wanted: Vec<(PathBuf, u64)>) -> io::Result<Found> {
    let mut flows = Vec::new();
    for (path, at) in wanted {
        let kept = Kept::look(&path)?;
        flows.push((kept.end(), kept.read(at, PIECE_BYTES_MAX)?));
    }
    Ok(Found { folder: folder.is_dir(), flows })
}

/// What is told of files that cannot be read.
pub fn unreadable(why: &io::Error) -> Status {
    let text = format!("the node cannot read what the program printed: {why}");
    status(&Refusal::new(RefusalKind::Internal, Retry::WhenChanged, text))
}

/// What is told where nothing is kept.
pub fn nothing_kept(node: &str, ask: &LogsAsk, folders_kept_max: usize, sessions: &Path) -> Status {
    let life = ask.life.map(|it| format!("life {it} of ")).unwrap_or_default();
    let text = format!(
        "node {node} keeps no output of {life}session {}: none of its programs started there, or its folder is gone \
         since (a node keeps those of the last {folders_kept_max} programs that ended, --folders-kept-max, in {})",
        ask.key,
        sessions.display()
    );
    status(&Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::listing::Listed;
    use rota_model::{ClassName, Epoch, LogPos, Namespace, Seq, SessionId, SessionKey, Token};
    use rota_node::class::Limits;
    use std::fs::{self, File};
    use std::io::Write;

    fn ask(tail: Option<u32>, follow: bool) -> LogsAsk {
        let request = v1::LogsRequest { id: "s".into(), tail, follow, ..Default::default() };
        rota_proto::programs::logs(&request).unwrap()
    }

    struct Reader(mpsc::Receiver<Result<v1::LogsResponse, Status>>);

    impl Reader {
        fn of(ask: &LogsAsk, folder: &Path, listing: &Listing) -> Self {
            let found = (folder.to_owned(), Stamp::MIN);
            let (reading, _begin) = Reading::begin(ask, found, (listing.clone(), "n1")).unwrap();
            let (items, received) = mpsc::channel(1);
            tokio::spawn(reading.run(items));
            Self(received)
        }

        /// Until it is refused. How.
        async fn refused(&mut self) -> Status {
            loop {
                let next = timeout(Duration::from_secs(20), self.0.recv()).await;
                match next.expect("something in time").expect("more") {
                    Ok(v1::LogsResponse { part: Some(v1::logs_response::Part::Piece(_)) }) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(status) => return status,
                }
            }
        }

        /// Text of stdout and stderr until so much was read, or the end; and the end's word.
        async fn until(&mut self, length: usize) -> (String, String, Option<bool>) {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let text = |it: &[u8]| String::from_utf8(it.to_vec()).unwrap();
            while out.len() + err.len() < length {
                let next = timeout(Duration::from_secs(20), self.0.recv()).await;
                match next.expect("something in time").expect("more").unwrap().part.unwrap() {
                    v1::logs_response::Part::Piece(it) => match it.output() {
                        v1::Output::Stderr => err.extend(it.bytes),
                        v1::Output::Stdout | v1::Output::Unspecified => out.extend(it.bytes),
                    },
                    v1::logs_response::Part::End(it) => {
                        return (text(&out), text(&err), Some(it.running));
                    }
                    v1::logs_response::Part::Begin(_) => panic!("it begins once"),
                }
            }
            (text(&out), text(&err), None)
        }
    }

    fn listed(folder: &Path) -> Listed {
        Listed {
            root: None,
            life: Stamp::MIN,
            class: ClassName::parse("c").unwrap(),
            limits: Limits::default(),
            folder: folder.to_owned(),
            keeper: None,
            groups: Vec::new(),
            cpu: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn all_that_is_kept_is_sent_or_the_last_lines_of_each_output() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(PIECE_BYTES_MAX * 2);
        fs::write(folder.path().join("stdout.log"), format!("{long}\none\ntwo\n")).unwrap();
        fs::write(folder.path().join("stderr.log"), "bad\nworse").unwrap();
        let listing = Listing::default();
        let mut all = Reader::of(&ask(None, false), folder.path(), &listing);
        let expected = (format!("{long}\none\ntwo\n"), "bad\nworse".to_owned(), Some(false));
        assert_eq!(all.until(usize::MAX).await, expected);
        let mut last = Reader::of(&ask(Some(1), false), folder.path(), &listing);
        let expected = ("two\n".to_owned(), "worse".to_owned(), Some(false));
        assert_eq!(last.until(usize::MAX).await, expected);
        let only = LogsAsk { only: Some(OutputName::Stderr), ..ask(None, true) };
        let mut only = Reader::of(&only, folder.path(), &listing);
        let expected = (String::new(), "bad\nworse".to_owned(), Some(false));
        assert_eq!(only.until(usize::MAX).await, expected);
        let from = LogsAsk { stdout_from: Some(long.len() as u64 + 5), ..ask(Some(0), false) };
        let mut from = Reader::of(&from, folder.path(), &listing);
        assert_eq!(from.until(usize::MAX).await.0, "two\n");
    }

    #[tokio::test]
    async fn whoever_follows_hears_everything_until_the_program_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = File::create(folder.path().join("stdout.log")).unwrap();
        let listing = Listing::default();
        let key = SessionKey::new(Namespace::default_space(), SessionId::parse("s").unwrap());
        let token = Token(LogPos::new(Epoch(1), Seq(1)));
        let entry = listing.begin(key, token, listed(folder.path()));
        out.write_all(b"one\n").unwrap();
        let mut now = Reader::of(&ask(None, false), folder.path(), &listing);
        let mut follower = Reader::of(&ask(None, true), folder.path(), &listing);
        assert_eq!(now.until(usize::MAX).await.2, Some(true), "it runs on");
        assert_eq!(follower.until(4).await.0, "one\n");
        out.write_all(b"two\n").unwrap();
        assert_eq!(follower.until(4).await.0, "two\n");
        out.write_all(b"three\n").unwrap();
        drop(entry);
        let expected = ("three\n".to_owned(), String::new(), Some(false));
        assert_eq!(follower.until(usize::MAX).await, expected);
    }

    #[tokio::test]
    async fn logs_of_a_folder_that_is_removed_meanwhile_do_not_end_as_if_they_were_whole() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("s");
        let listing = Listing::default();
        let key = SessionKey::new(Namespace::default_space(), SessionId::parse("s").unwrap());
        for follow in [false, true] {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("stdout.log"), "x".repeat(PIECE_BYTES_MAX * 9)).unwrap();
            let mut reader = Reader::of(&ask(None, follow), &folder, &listing);
            assert_eq!(reader.until(1).await.0.len(), PIECE_BYTES_MAX);
            fs::remove_dir_all(&folder).unwrap();
            let refused = reader.refused().await;
            assert_eq!(refused.code(), tonic::Code::NotFound, "{refused}");
            let text = format!("the folder of session {key} was removed meanwhile");
            assert!(refused.message().contains(&text), "{refused}");
        }
        // It runs on without its folder: there is nothing to wait for.
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("stdout.log"), "one\n").unwrap();
        let token = Token(LogPos::new(Epoch(1), Seq(1)));
        let _entry = listing.begin(key, token, listed(&folder));
        let mut follower = Reader::of(&ask(None, true), &folder, &listing);
        assert_eq!(follower.until(4).await.0, "one\n");
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(follower.refused().await.code(), tonic::Code::NotFound);
    }
}
