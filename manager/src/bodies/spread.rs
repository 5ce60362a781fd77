//! Taking a body in, and handing it to the other copies while it comes.

use super::pieces::{Pieces, Remote, blocking, next_piece};
use super::places::Place;
use super::{Bodies, Peer, STALL, refused, status_of, undecided};
use bytes::Bytes;
use rota_docstore::{Digest, Exception, FieldError};
use rota_model::{ManagerNumber, RefusalKind, SlotId};
use rota_proto::bodies::{Keep, keep_piece_request, keep_request};
use rota_proto::{documents, v1};
use rota_storage::attachments::{AttachmentError, Attachments, Incoming, Stored};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

/// Pieces that wait for another manager: with one, receiving and sending would take turns.
const AHEAD: usize = 4;

/// How long a sender may take for a piece.
const SENDER_PATIENCE: Duration = Duration::from_secs(30);

/// A body on its way to another manager.
struct Handing {
    peer: Peer,
    /// `None`: it wants no more, or is too slow.
    pieces: Option<mpsc::Sender<v1::KeepBodyRequest>>,
    answer: JoinHandle<Result<bool, Status>>,
}

impl Handing {
    fn begin(bodies: &Bodies, peer: Peer, keep: Keep) -> Self {
        let (pieces, stream) = mpsc::channel(AHEAD);
        let begin = keep_request(&bodies.shared.cluster, keep);
        pieces.try_send(begin).expect("a new channel has room");
        let (shared, to) = (bodies.shared.clone(), peer.clone());
        let answer = tokio::spawn(async move {
            let mut client = shared.channels.client(&to).await?;
            let answer = client.keep_body(ReceiverStream::new(stream)).await;
            if answer.as_ref().is_err_and(|it| it.code() == Code::Unavailable) {
                shared.channels.forget(&to);
            }
            Ok(answer?.into_inner().known)
        });
        Self { peer, pieces: Some(pieces), answer }
    }

    async fn pass(&mut self, bytes: &Bytes) {
        let Some(pieces) = &self.pieces else { return };
        let sent = timeout(STALL, pieces.send(keep_piece_request(bytes.clone()))).await;
        if !matches!(sent, Ok(Ok(()))) {
            // Of a body that is not whole the other side keeps nothing.
            self.pieces = None;
        }
    }

    /// Whether it was there already.
    async fn end(mut self, patience: Duration) -> Result<bool, Status> {
        self.pieces = None;
        let text = match timeout(patience, self.answer).await {
            Ok(Ok(Err(status))) if status.details().is_empty() => status.message().to_owned(),
            Ok(Ok(answer)) => return answer,
            Ok(Err(failed)) => failed.to_string(),
            Err(_elapsed) => format!("no answer within {} s", patience.as_secs()),
        };
        let text = format!("manager {} did not take a body: {text}", self.peer.number);
        Err(undecided(RefusalKind::NotServing, text))
    }
}

/// Where a body is written here.
enum Here {
    /// It is here already, or belongs elsewhere.
    Not,
    Into(Box<Intake>),
}

/// A body that is written here, in its place.
struct Intake {
    incoming: Incoming,
    // After it, so that nobody gets the place before its file is gone.
    place: Place,
}

impl Here {
    /// What its sender brings next; `None` also when nobody wants more.
    async fn next(
        &self,
        pieces: &mut Pieces,
        handings: &[Handing],
    ) -> Result<Option<Bytes>, Status> {
        let next = next_piece(pieces, SENDER_PATIENCE);
        match self {
            Here::Into(intake) => intake.place.wait_for(next).await,
            Here::Not => tokio::select! {
                biased;
                () = unwanted(handings) => Ok(None),
                next = next => next,
            },
        }
    }

    async fn next_of(&self, remote: &mut Remote) -> Result<Option<Bytes>, Status> {
        match self {
            Here::Into(intake) => intake.place.wait_for(remote.next()).await,
            Here::Not => remote.next().await,
        }
    }

    async fn write(self, bytes: &Bytes) -> Result<Self, Status> {
        let Here::Into(mut intake) = self else { return Ok(self) };
        let bytes = bytes.clone();
        let written = blocking(move || intake.incoming.write(&bytes).map(|()| intake)).await?;
        written.map(Here::Into).map_err(|it| status_of(&it))
    }

    async fn finish(self, now_ms: u64) -> Result<Stored, Status> {
        let Here::Into(intake) = self else { return Ok(Stored::Known) };
        let Intake { incoming, place } = *intake;
        let finished = blocking(move || (incoming.finish(now_ms), place)).await?;
        finished.0.map_err(|it| status_of(&it))
    }
}

impl Bodies {
    /// Takes a body in for documents of a slot: durable at its owner when this is answered, and at
    /// every other copy that takes it in time; the others fetch it when they need it. True when it
    /// was there already.
    pub async fn put(
        &self,
        slot: SlotId,
        sha256: Digest,
        size: u64,
        pieces: Pieces,
    ) -> Result<bool, Status> {
        let limit = self.shared.put_bytes_max;
        if size > limit {
            let what = "the size of an attachment in bytes";
            return Err(status_of(&AttachmentError::TooLarge { what, found: size, limit }));
        }
        let view = self.view()?;
        let keep = Keep { sha256, size, slot: Some(slot) };
        if self.is_copy(&view, slot) {
            return self.keep(keep, pieces).await;
        }
        // This manager has no use for it: it only passes the bytes on.
        let Some(owner) = self.copies(&view, slot).into_iter().next() else {
            return Err(refused(RefusalKind::NotServing, "the slot's owner is not there"));
        };
        let owner = vec![Handing::begin(self, owner, keep)];
        let (mut handings, _) = spread(Here::Not, owner, pieces).await?;
        let handing = handings.pop().expect("it was one");
        // Its own wait for its copies comes before its answer.
        handing.end(STALL * 2).await
    }

    /// Keeps a body here, and hands it to the other copies if a slot is given.
    pub async fn keep(&self, keep: Keep, pieces: Pieces) -> Result<bool, Status> {
        let Keep { sha256, size, slot } = keep;
        let view = self.view()?;
        let others = slot.map_or_else(Vec::new, |slot| self.copies(&view, slot));
        let owner = slot.map(|slot| view.part_of(slot).1.owner);
        let attachments = &self.shared.attachments;
        let (here, pieces) = match attachments.renew(&sha256, self.now_ms()) {
            Some(known) if known != size => return Err(wrong_size(sha256, known, size)),
            Some(_) => {
                if others.is_empty() {
                    return Ok(true);
                }
                let read = self.local(sha256, 0).await.map_err(|it| status_of(&it))?;
                (Here::Not, read.1)
            }
            None => (self.begin(move |it| it.begin(sha256, size)).await?, pieces),
        };
        let only_here = Keep { slot: None, ..keep };
        let handings = others.into_iter().map(|it| Handing::begin(self, it, only_here)).collect();
        let (handings, here) = spread(here, handings, pieces).await?;
        let known = here.finish(self.now_ms()).await? == Stored::Known;
        ended(handings, owner).await?;
        Ok(known)
    }

    /// Hands a body that is here to the copies of a slot's partition.
    pub async fn hand_over(&self, slot: SlotId, sha256: Digest) -> Result<(), Status> {
        let view = self.view()?;
        let others = self.copies(&view, slot);
        if others.is_empty() {
            return Ok(());
        }
        let (size, pieces) = self.local(sha256, 0).await.map_err(|it| status_of(&it))?;
        let keep = Keep { sha256, size, slot: None };
        let handings = others.into_iter().map(|it| Handing::begin(self, it, keep)).collect();
        let (handings, _) = spread(Here::Not, handings, pieces).await?;
        ended(handings, Some(view.part_of(slot).1.owner)).await
    }

    /// Begins to write a body here.
    async fn begin(
        &self,
        begin: impl FnOnce(&Attachments) -> Result<Incoming, AttachmentError> + Send + 'static,
    ) -> Result<Here, Status> {
        let place = self.shared.places.take().await?;
        let attachments = self.shared.attachments.clone();
        let begun = blocking(move || begin(&attachments).map(|it| (it, place))).await?;
        let (incoming, place) = begun.map_err(|it| status_of(&it))?;
        Ok(Here::Into(Box::new(Intake { incoming, place })))
    }

    /// Writes a body of another manager here: documents name it.
    pub(super) async fn take(&self, mut remote: Remote, sha256: Digest) -> Result<Stored, Status> {
        let size = remote.size;
        let mut here = self.begin(move |it| it.begin_wanted(sha256, size)).await?;
        while let Some(bytes) = here.next_of(&mut remote).await? {
            here = here.write(&bytes).await?;
        }
        here.finish(self.now_ms()).await
    }
}

/// Writes the pieces here and passes them on, until the end, or until nobody wants more.
async fn spread(
    mut here: Here,
    mut handings: Vec<Handing>,
    mut pieces: Pieces,
) -> Result<(Vec<Handing>, Here), Status> {
    while let Some(bytes) = here.next(&mut pieces, &handings).await? {
        for handing in &mut handings {
            handing.pass(&bytes).await;
        }
        here = here.write(&bytes).await?;
    }
    Ok((handings, here))
}

/// Ends when nobody wants more of a body: it is known, or could not be taken.
async fn unwanted(handings: &[Handing]) {
    for pieces in handings.iter().filter_map(|it| it.pieces.as_ref()) {
        pieces.closed().await;
    }
}

/// Waits for the others. Only the owner must have it: operations are refused without.
async fn ended(handings: Vec<Handing>, owner: Option<ManagerNumber>) -> Result<(), Status> {
    let mut failed = None;
    for handing in handings {
        let number = handing.peer.number;
        match handing.end(STALL).await {
            Ok(_known) => {}
            Err(status) if owner == Some(number) => failed = Some(status),
            Err(status) => {
                let error = status.message();
                tracing::info!(peer = %number, error, "a copy did not take a body; it may fetch it");
            }
        }
    }
    failed.map_or(Ok(()), |status| {
        if documents::exception(&status).is_some() {
            // It would not take it later either.
            return Err(status);
        }
        let text = format!("the owner did not take the body: {}", status.message());
        Err(refused(RefusalKind::NotServing, text))
    })
}

fn wrong_size(sha256: Digest, known: u64, size: u64) -> Status {
    let error = AttachmentError::WrongSize { sha256, expected: size, found: known };
    documents::status(&Exception::from(FieldError::new("size", error.to_string())))
}
