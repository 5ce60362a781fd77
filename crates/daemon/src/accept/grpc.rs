//! The gate for a server of gRPC: connections that carry their caller, and a look at each call.

use super::answers::Need;
use super::connection::{Caller, Connection};
use super::sending::Sending;
use http::{Request, Response};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::transport::server::Connected;
use tower_layer::Layer;
use tower_service::Service;

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller()
    }
}

/// Looks at each call: those of members make a member of their connection, and others are refused on a
/// connection that has a place for members only. What others are answered counts until it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// How paths of calls begin that only members make.
    pub of_members: &'static [&'static str],
    /// What others are told where there is no place for them.
    pub refusal: fn() -> Status,
    /// What the answer to a call may need, by its path.
    pub need: fn(&str) -> Need,
    /// What a call is told when too many answers wait for their readers.
    pub unread: fn() -> Status,
}

impl<S> Layer<S> for Calls {
    type Service = LookedAt<S>;

    fn layer(&self, service: S) -> LookedAt<S> {
        LookedAt { service, calls: *self }
    }
}

/// A service whose calls are looked at.
#[derive(Clone, Debug)]
pub struct LookedAt<S> {
    service: S,
    calls: Calls,
}

impl<S, B, R> Service<Request<B>> for LookedAt<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    R: Default + 'static,
{
    type Response = Response<Sending<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        let Calls { of_members, refusal, need, unread } = self.calls;
        let is_members = of_members.iter().any(|it| path.starts_with(it));
        let caller = request.extensions().get::<Caller>();
        if caller.is_some_and(|it| !it.may_call(is_members)) {
            return Box::pin(async move { Ok(refusal().into_http()) });
        }
        let answers = caller.filter(|_| !is_members).map(Caller::answers);
        let Some(answers) = answers else {
            let answer = self.service.call(request);
            return Box::pin(async move { Ok(answer.await?.map(Sending::free)) });
        };
        let Need { bytes, lasts } = need(path);
        // The one that is ready takes the call; the other one is made ready for the next.
        let other = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, other);
        Box::pin(async move {
            let Some(share) = answers.share(bytes).await else { return Ok(unread().into_http()) };
            let answer = service.call(request).await?;
            Ok(answer.map(|body| Sending::counted(body, answers, share, lasts)))
        })
    }
}
