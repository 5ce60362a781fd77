//! The body of an answer, on its way: in pieces, each of which counts until it is sent.

use super::answers::{Answers, Share};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// How many bytes go on at once: a slow reader is seen to move by these.
const PIECE_BYTES: usize = 64 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub struct Sending<R> {
    body: R,
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    answers: Arc<Answers>,
    name: u64,
    /// Of what has not come yet.
    share: Share,
    /// Whether it keeps its first share to the end.
    lasts: bool,
    /// What came, and did not go on, with its share.
    rest: Option<(Bytes, Share)>,
}

impl<R> Sending<R> {
    /// A body that counts for nobody.
    pub(super) fn free(body: R) -> Self {
        Self { body, counted: None }
    }

    /// A body for which a share was taken.
    pub(super) fn counted(body: R, answers: Arc<Answers>, share: Share, lasts: bool) -> Self {
        let name = answers.next();
        Self { body, counted: Some(Counted { answers, name, share, lasts, rest: None }) }
    }
}

impl<R: Default> Default for Sending<R> {
    fn default() -> Self {
        Self::free(R::default())
    }
}

impl Counted {
    /// Data came.
    fn came(&mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let mut share = if self.lasts { self.share.split(0) } else { self.share.split(usize::MAX) };
        share.become_bytes(bytes.len());
        self.answers.came(self.name, bytes.len());
        self.rest = Some((bytes, share));
        self.piece().unwrap_or_default()
    }

    /// The next piece of what came.
    fn piece(&mut self) -> Option<Bytes> {
        let (mut rest, mut of_rest) = self.rest.take()?;
        let bytes = rest.split_to(rest.len().min(PIECE_BYTES));
        let share = of_rest.split(bytes.len());
        if !rest.is_empty() {
            self.rest = Some((rest, of_rest));
        }
        let (answers, answer) = (self.answers.clone(), self.name);
        Some(Bytes::from_owner(Piece { bytes, answers, answer, _share: share }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some((rest, _)) = &self.rest {
            self.answers.went(self.name, rest.len());
        }
    }
}

/// Bytes that count until nobody has them any more.
struct Piece {
    bytes: Bytes,
    answers: Arc<Answers>,
    answer: u64,
    _share: Share,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.answers.went(self.answer, self.bytes.len());
    }
}

impl<R: Body<Data = Bytes> + Unpin> Body for Sending<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let Self { body, counted } = self.get_mut();
        if let Some(piece) = counted.as_mut().and_then(Counted::piece) {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = ready!(Pin::new(body).poll_frame(context));
        let Some(counted) = counted else { return Poll::Ready(frame) };
        Poll::Ready(frame.map(|it| it.map(|frame| frame.map_data(|bytes| counted.came(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        let has_rest = self.counted.as_ref().is_some_and(|it| it.rest.is_some());
        !has_rest && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Asked before the first frame only.
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::{Budget, ONE_BYTES};
    use super::*;
    use http_body_util::{BodyExt, Full, StreamBody};
    use tokio_stream::iter;

    async fn sending<R>(answers: &Arc<Answers>, body: R, lasts: bool) -> Sending<R> {
        let share = answers.share(1_000).await.expect("there is room");
        Sending::counted(body, answers.clone(), share, lasts)
    }

    #[tokio::test]
    async fn an_answer_counts_as_what_it_is_until_its_last_piece_is_gone() {
        let all = Budget::new(ONE_BYTES);
        let answers = Answers::new(all.clone());
        let mut body = sending(&answers, Full::new(Bytes::from(vec![7; 150_000])), false).await;
        assert_eq!((all.taken(), answers.are_unsent()), (1_000, false));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            assert_eq!(all.taken(), 150_000);
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        let lengths: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [65_536, 65_536, 18_928]);
        assert!(body.is_end_stream());
        drop(pieces.pop());
        assert_eq!(all.taken(), 131_072);
        // A part of a piece is still the piece.
        let part = pieces.remove(0).slice(..10);
        drop((pieces, body));
        assert_eq!((all.taken(), answers.are_unsent()), (65_536, true));
        drop(part);
        assert_eq!((all.taken(), answers.are_unsent()), (0, false));
    }

    #[tokio::test]
    async fn what_its_reader_gave_up_counts_no_more() {
        let all = Budget::new(ONE_BYTES);
        let answers = Answers::new(all.clone());
        let mut body = sending(&answers, Full::new(Bytes::from(vec![7; 150_000])), false).await;
        let first = body.frame().await;
        drop(body);
        assert_eq!(all.taken(), 65_536);
        drop(first);
        assert_eq!((all.taken(), answers.are_unsent()), (0, false));
    }

    #[tokio::test]
    async fn a_stream_keeps_its_share_if_it_has_messages_ready_and_gives_it_up_with_the_first_if_not()
     {
        for (lasts, between, held) in [(true, 1_000, 1_010), (false, 0, 10)] {
            let all = Budget::new(ONE_BYTES);
            let answers = Answers::new(all.clone());
            let data = |it: &'static [u8]| Ok::<_, std::io::Error>(Frame::data(Bytes::from(it)));
            let trailers = Ok(Frame::trailers(http::HeaderMap::new()));
            let stream = iter([data(b"0123456789"), data(b"0123456789"), trailers]);
            let mut body = sending(&answers, StreamBody::new(stream), lasts).await;
            for _ in 0..2 {
                let frame = body.frame().await;
                assert_eq!(all.taken(), held, "{lasts}");
                drop(frame);
                assert_eq!(all.taken(), between, "{lasts}");
            }
            assert!(body.frame().await.unwrap().unwrap().is_trailers());
            drop(body);
            assert_eq!(all.taken(), 0);
        }
    }
}
