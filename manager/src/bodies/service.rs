//! What other managers ask of this one about bodies.

use super::{Bodies, Pieces, announced, status_of};
use rota_proto::bodies::{keep, keep_piece, names, names_response, send, sent_piece, sent_size};
use rota_proto::v1;
use std::pin::Pin;
use std::time::Duration;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// How long the first message may take.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// A body on its way to another manager.
pub type Sending = Pin<Box<dyn Stream<Item = Result<v1::SendBodyResponse, Status>> + Send>>;

/// Keeps a body that another manager sends.
pub async fn keep_body(
    bodies: &Bodies,
    request: Request<Streaming<v1::KeepBodyRequest>>,
) -> Result<Response<v1::KeepBodyResponse>, Status> {
    let mut messages = request.into_inner();
    let first = announced(&mut messages, BEGIN_PATIENCE).await?;
    let body = keep(&bodies.shared.cluster, first)?;
    let pieces = messages.map(|it| Ok(keep_piece(it?)?));
    let pieces: Pieces = Box::pin(pieces);
    let known = bodies.keep(body, pieces).await?;
    Ok(Response::new(v1::KeepBodyResponse { known }))
}

/// Sends a body to another manager.
pub async fn send_body(
    bodies: &Bodies,
    request: Request<v1::SendBodyRequest>,
) -> Result<Response<Sending>, Status> {
    let wanted = send(&bodies.shared.cluster, request.get_ref())?;
    let opened = bodies.local(wanted.sha256, wanted.offset).await;
    let (size, pieces) = opened.map_err(|it| status_of(&it))?;
    let first = tokio_stream::once(Ok(sent_size(size)));
    let stream = first.chain(pieces.map(|it| it.map(sent_piece)));
    Ok(Response::new(Box::pin(stream)))
}

/// Says whose documents name a body.
pub fn names_body(
    bodies: &Bodies,
    request: Request<v1::NamesBodyRequest>,
) -> Result<Response<v1::NamesBodyResponse>, Status> {
    let asked = names(&bodies.shared.cluster, request.into_inner())?;
    let naming = bodies.namers().naming(&asked, bodies.now_ms());
    Ok(Response::new(names_response(naming)))
}
