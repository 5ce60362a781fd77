//! What programs printed last, as the ring keeps it: told where no node can.

use super::owners::sync;
use super::{Shared, no_view, status};
use crate::bodies::Pieces;
use crate::clock::now;
use prost::bytes::{Bytes, BytesMut};
use rota_docstore::{SyncRequest, apply};
use rota_model::{NodeId, Refusal, RefusalKind, Retry, Stamp};
use rota_proto::programs::{LogsAsk, OutputName, PIECE_BYTES_MAX};
use rota_proto::v1;
use rota_proto::v1::logs_response::{Begin, End, Part, Piece};
use rota_protocol::kept_outputs::{KeptOutput, OutputEnd, kept_outputs, output_name};
use rota_protocol::operate::slot_of;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::Status;

/// Readers of what the ring keeps. Each has two bodies of at most 1 MiB.
const READERS_MAX: usize = 16;
/// Advice to who finds no place.
const LATER_MS: u64 = 500;

/// Places of readers.
pub fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(READERS_MAX))
}

/// What is told of one life, and the place of its reader.
pub struct Told {
    /// All of it, in order.
    pub messages: Vec<v1::LogsResponse>,
    /// Free again when nobody reads any more.
    pub place: OwnedSemaphorePermit,
}

/// What the ring keeps of a session, and of that life of it if one is meant.
///
/// # Errors
/// It cannot be read just now.
pub async fn tell(
    (shared, places): (&Shared, &Arc<Semaphore>),
    (ask, life): (&LogsAsk, Option<Stamp>),
    deadline: Instant,
) -> Result<Option<Told>, Status> {
    let Some((life, kept)) = find(shared, (ask, life), deadline).await? else { return Ok(None) };
    let place = timeout_at(deadline, places.clone().acquire_owned()).await;
    let place = place.ok().and_then(Result::ok).ok_or_else(|| {
        let text = format!("{READERS_MAX} readers are told what the ring keeps, the limit");
        status(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(LATER_MS), text))
    })?;
    let mut begin = Begin {
        node: kept.node.to_string(),
        life: life.into(),
        kept_by_ring: true,
        ..Begin::default()
    };
    let mut messages = Vec::new();
    for output in OutputName::ALL {
        let end = match output {
            OutputName::Stdout => kept.stdout.as_ref(),
            OutputName::Stderr => kept.stderr.as_ref(),
        };
        let Some(end) = end else { continue };
        let bytes = whole(shared, ask, end, deadline).await?;
        let skip = skipped(ask, output, end.from, &bytes);
        let from = end.from + skip as u64;
        match output {
            OutputName::Stdout => begin.stdout_from = from,
            OutputName::Stderr => begin.stderr_from = from,
        }
        if ask.wants(output) {
            messages.extend(pieces(output, from, &bytes.slice(skip..)));
        }
    }
    let message = |part| v1::LogsResponse { part: Some(part) };
    let parts = messages.into_iter().chain([Part::End(End { running: false })]);
    let messages = [Part::Begin(begin)].into_iter().chain(parts).map(message).collect();
    Ok(Some(Told { messages, place }))
}

/// The life that is meant, or else the newest one.
async fn find(
    shared: &Shared,
    (ask, life): (&LogsAsk, Option<Stamp>),
    deadline: Instant,
) -> Result<Option<(Stamp, KeptOutput)>, Status> {
    let name = output_name(&ask.key);
    let syncs = vec![SyncRequest { name: name.clone(), held: None }];
    let updates = sync(shared, None, syncs, true, deadline).await?;
    let Some((_, update)) = updates.into_iter().next() else { return Ok(None) };
    let document = apply(&name, None, &update).ok().flatten().filter(|it| !it.is_deleted());
    let Some(document) = document else { return Ok(None) };
    let kept = kept_outputs(&document).map_err(|error| {
        let text = format!("what the ring keeps of session {} cannot be read: {error}", ask.key);
        status(Refusal::new(RefusalKind::Internal, Retry::Never, text))
    })?;
    let now = now();
    let is_meant = |output: &(Stamp, KeptOutput)| {
        let is_node = ask.node.as_ref().is_none_or(|node: &NodeId| *node == output.1.node);
        output.1.until >= now && is_node && ask.life.or(life).is_none_or(|life| life == output.0)
    };
    Ok(kept.into_iter().rfind(is_meant))
}

async fn whole(
    shared: &Shared,
    ask: &LogsAsk,
    end: &OutputEnd,
    deadline: Instant,
) -> Result<Bytes, Status> {
    if let Some(text) = &end.text {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let Some(sha256) = end.body() else { return Ok(Bytes::new()) };
    let m = shared.seen.borrow().view.as_ref().map(|it| it.m);
    let m = m.ok_or_else(|| status(no_view()))?;
    let read = async {
        let slot = slot_of(&output_name(&ask.key), m);
        let mut pieces: Pieces = shared.bodies.read(slot, sha256, 0).await?;
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() as u64 > end.bytes {
                let text = "what the ring keeps of an output is longer than it should be";
                return Err(status(Refusal::new(RefusalKind::Internal, Retry::Never, text)));
            }
        }
        Ok(bytes.freeze())
    };
    timeout_at(deadline, read).await.unwrap_or_else(|_| {
        let text = "what the ring keeps of an output could not be read in time";
        Err(status(Refusal::new(RefusalKind::DeadlineExceeded, Retry::Now, text)))
    })
}

/// How many of the bytes, which begin at `from`, are not asked for.
fn skipped(ask: &LogsAsk, output: OutputName, from: u64, bytes: &[u8]) -> usize {
    let most = bytes.len();
    if let Some(wanted) = ask.from(output) {
        return usize::try_from(wanted.saturating_sub(from)).unwrap_or(most).min(most);
    }
    let Some(lines) = ask.tail else { return 0 };
    if lines == 0 {
        return most;
    }
    // The last line may lack its end.
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let ends = whole.iter().enumerate().rev().filter(|it| *it.1 == b'\n');
    ends.map(|it| it.0 + 1).nth(lines as usize - 1).unwrap_or(0)
}

fn pieces(output: OutputName, from: u64, bytes: &Bytes) -> Vec<Part> {
    let piece = |at: usize| {
        let bytes = bytes.slice(at..bytes.len().min(at + PIECE_BYTES_MAX));
        let output = v1::Output::from(output).into();
        Part::Piece(Piece { output, offset: from + at as u64, bytes })
    };
    (0..bytes.len()).step_by(PIECE_BYTES_MAX).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(tail: Option<u32>, from: Option<u64>) -> LogsAsk {
        let request =
            v1::LogsRequest { id: "s".into(), tail, stdout_from: from, ..Default::default() };
        rota_proto::programs::logs(&request).unwrap()
    }

    #[test]
    fn the_last_lines_or_what_follows_a_place_are_told() {
        let text = b"one\ntwo\nthree\n";
        let rest = |ask: LogsAsk, text: &[u8]| {
            let skip = skipped(&ask, OutputName::Stdout, 100, text);
            String::from_utf8(text[skip..].to_vec()).unwrap()
        };
        assert_eq!(rest(ask(None, None), text), "one\ntwo\nthree\n");
        assert_eq!(rest(ask(Some(2), None), text), "two\nthree\n");
        assert_eq!(rest(ask(Some(9), None), text), "one\ntwo\nthree\n");
        assert_eq!(rest(ask(Some(1), None), b"one\ntwo"), "two");
        assert_eq!(rest(ask(Some(0), None), text), "");
        assert_eq!(rest(ask(None, Some(108)), text), "three\n");
        assert_eq!(rest(ask(None, Some(7)), text), "one\ntwo\nthree\n");
        assert_eq!(rest(ask(None, Some(1_000)), text), "");
    }

    #[test]
    fn a_long_output_comes_in_pieces_that_follow_each_other() {
        let bytes = Bytes::from(vec![b'x'; 2 * PIECE_BYTES_MAX + 5]);
        let mut next = 7;
        for part in pieces(OutputName::Stderr, 7, &bytes) {
            let Part::Piece(piece) = part else { panic!("only pieces") };
            assert_eq!((piece.offset, piece.output()), (next, v1::Output::Stderr));
            next += piece.bytes.len() as u64;
        }
        assert_eq!(next, 7 + bytes.len() as u64);
        assert!(pieces(OutputName::Stdout, 0, &Bytes::new()).is_empty());
    }
}
