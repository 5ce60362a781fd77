//! The gate for a server of gRPC: connections that carry their caller, and a look at each call.

use super::connection::{Caller, Connection};
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
/// connection that has a place for members only.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// How paths of calls begin that only members make.
    pub of_members: &'static [&'static str],
    /// What others are told where there is no place for them.
    pub refusal: fn() -> Status,
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
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    R: Default + Unpin + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answer<S::Future, Response<R>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        let is_members = self.calls.of_members.iter().any(|it| path.starts_with(it));
        let caller = request.extensions().get::<Caller>();
        if caller.is_none_or(|it| it.may_call(is_members)) {
            return Answer::Service(Box::pin(self.service.call(request)));
        }
        Answer::Refused(Some((self.calls.refusal)().into_http()))
    }
}

/// The answer of a service, or a refusal.
#[derive(Debug)]
pub enum Answer<F, A> {
    /// What the service answers.
    Service(Pin<Box<F>>),
    /// The refusal, until it is given.
    Refused(Option<A>),
}

impl<F, A, E> Future for Answer<F, A>
where
    F: Future<Output = Result<A, E>>,
    A: Unpin,
{
    type Output = Result<A, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Service(answer) => answer.as_mut().poll(context),
            Self::Refused(refusal) => match refusal.take() {
                Some(refusal) => Poll::Ready(Ok(refusal)),
                None => Poll::Pending,
            },
        }
    }
}
