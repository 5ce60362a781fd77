//! What happened here lately, as a stream.

use super::{Shared, status};
use crate::events::Page;
use rota_model::{Refusal, RefusalKind, Retry};
use rota_proto::events::{EventsAsk, events};
use rota_proto::v1;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Pages that wait for their reader.
const AHEAD: usize = 2;
/// How long a reader may take for a page before it counts as gone.
const READER_PATIENCE: Duration = Duration::from_secs(60);
/// Advice to who finds no place.
const FULL_RETRY_MS: u64 = 1_000;

/// Events, in pages.
pub type Events = Pin<Box<dyn Stream<Item = Result<v1::EventsResponse, Status>> + Send>>;

/// Tells what happened here lately, and goes on if that is asked for.
///
/// # Errors
/// What is asked for is wrong, or too many watch.
pub fn tell(shared: &Arc<Shared>, request: v1::EventsRequest) -> Result<Events, Status> {
    let ask = events(request).map_err(status)?;
    let place = shared.events.places.clone().try_acquire_owned().map_err(|_| {
        let text = "this manager tells as many readers what happens as it may; ask again later";
        status(Refusal::new(RefusalKind::Overloaded, Retry::AfterMs(FULL_RETRY_MS), text))
    })?;
    let (pages, stream) = mpsc::channel(AHEAD);
    let shared = shared.clone();
    tokio::spawn(async move {
        let _place = place;
        tokio::select! {
            () = tell_all(&shared, &ask, &pages) => {}
            () = shared.stopping.cancelled() => {
                let text = "this manager is stopping";
                let refused = Refusal::new(RefusalKind::NotServing, Retry::Now, text);
                // A reader that is slow finds out anyway.
                let _ = pages.try_send(Err(status(refused)));
            }
            () = pages.closed() => {}
        }
    });
    Ok(Box::pin(ReceiverStream::new(stream)))
}

async fn tell_all(
    shared: &Shared,
    ask: &EventsAsk,
    pages: &mpsc::Sender<Result<v1::EventsResponse, Status>>,
) {
    let mut newest = shared.events.newest();
    let (mut after, mut missed) = shared.events.start(ask);
    let mut is_caught_up = false;
    loop {
        newest.mark_unchanged();
        let page = shared.events.page(ask, after);
        let Page { events, missed: fell_out, upto, is_last, dropped } = page;
        (after, missed) = (upto, missed || fell_out);
        let caught_up = is_last && !is_caught_up;
        is_caught_up |= is_last;
        if !events.is_empty() || caught_up || missed {
            let events = events.iter().map(|it| v1::Event::clone(it)).collect();
            let missed = std::mem::take(&mut missed);
            let position = shared.events.position(upto);
            let since = shared.events.since().as_u64();
            let told = v1::EventsResponse { events, missed, caught_up, position, since, dropped };
            let page = Ok(told);
            let taken = tokio::time::timeout(READER_PATIENCE, pages.send(page)).await;
            if !matches!(taken, Ok(Ok(()))) {
                return;
            }
        }
        if is_last && (!ask.follow || newest.changed().await.is_err()) {
            return;
        }
    }
}
