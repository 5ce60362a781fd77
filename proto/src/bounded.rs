//! Services whose requests have a limit. gRPC refuses a larger message, and one that cannot be
//! decoded, before any of our code sees it, with a bare status; here that becomes the refusal that
//! every other mistake gets, or the exception where a service tells mistakes as such.

use crate::documents;
use crate::refusal::status;
use crate::v1::{documents_server, namespaces_server, pools_server};
use rota_model::{FieldError, Refusal};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// A generated service that takes messages of at most so many bytes. The generated service must
/// have been told the same limit (`max_decoding_message_size`).
#[derive(Clone, Debug)]
pub struct Bounded<S> {
    service: S,
    bytes_max: usize,
}

impl<S> Bounded<S> {
    /// The service, whose largest request has `bytes_max` bytes.
    pub fn new(service: S, bytes_max: usize) -> Self {
        Self { service, bytes_max }
    }
}

impl<S: NamedService> NamedService for Bounded<S> {
    const NAME: &'static str = S::NAME;
}

type Answers = BoxFuture<http::Response<Body>, Infallible>;

impl<S> Service<http::Request<Body>> for Bounded<S>
where
    S: Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = Infallible,
            Future = Answers,
        >,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoundedAnswer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> BoundedAnswer {
        let uri = request.uri().clone();
        BoundedAnswer { answer: self.service.call(request), uri, bytes_max: self.bytes_max }
    }
}

/// The answer of a [`Bounded`] service. A type of its own, so that a call needs no second box.
pub struct BoundedAnswer {
    answer: Answers,
    uri: http::Uri,
    bytes_max: usize,
}

impl std::fmt::Debug for BoundedAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundedAnswer").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Future for BoundedAnswer {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.answer.as_mut().poll(context);
        polled.map_ok(|response| {
            // A status that came before any message stands beside the response as a value.
            let bare = response.extensions().get::<Status>().filter(|it| it.details().is_empty());
            let problem = bare.and_then(|it| problem(it, self.bytes_max));
            match problem {
                Some(problem) => refused(self.uri.path(), problem).into_http(),
                None => response,
            }
        })
    }
}

/// How the text of gRPC's status begins when a message cannot be decoded.
const UNDECODABLE: &str = "failed to decode Protobuf message: ";

/// What is wrong with a message of which a status without our details is gRPC's own. None of our kinds
/// has the first code; the second has other causes too.
fn problem(status: &Status, bytes_max: usize) -> Option<String> {
    match status.code() {
        Code::OutOfRange => {
            Some(format!("is larger than {bytes_max} bytes, the limit of this message"))
        }
        Code::Internal => {
            let why = status.message().strip_prefix(UNDECODABLE)?;
            Some(format!("cannot be decoded: {why}"))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => None,
    }
}

/// Services that tell mistakes as exceptions.
const RAISING: [&str; 3] =
    [documents_server::SERVICE_NAME, namespaces_server::SERVICE_NAME, pools_server::SERVICE_NAME];

/// The refusal of a request to `/package.Service/Method`. The method's message is named after it.
fn refused(path: &str, problem: String) -> Status {
    let (service, method) = path.rsplit_once('/').unwrap_or(("", path));
    let field = FieldError::new(format!("{method}Request"), problem);
    if RAISING.contains(&service.trim_start_matches('/')) {
        return documents::status(&documents::exception::invalid(vec![field]));
    }
    status(&Refusal::from(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::refusal;
    use crate::v1;
    use crate::v1::machines_server::{Machines, MachinesServer};
    use http_body_util::Full;
    use rota_docstore::{Phase, codes};
    use rota_model::{Changed, RefusalKind, Retry};
    use std::task::Waker;
    use tonic::{Request, Response};

    struct Answering;

    #[tonic::async_trait]
    impl Machines for Answering {
        async fn send(
            &self,
            _request: Request<v1::SendRequest>,
        ) -> Result<Response<v1::SendResponse>, Status> {
            Ok(Response::new(v1::SendResponse::default()))
        }
    }

    /// What the service says to a frame with a message of that many bytes, all of one letter.
    fn said_to(bytes: usize, letter: u8) -> Option<Status> {
        const LIMIT: usize = 100;
        let machines = MachinesServer::new(Answering).max_decoding_message_size(LIMIT);
        let mut service = Bounded::new(machines, LIMIT);
        let mut frame = vec![0];
        frame.extend(u32::try_from(bytes).unwrap().to_be_bytes());
        // One field of the message: its id.
        let content = bytes - 2;
        frame.extend([0x12, u8::try_from(content).unwrap()]);
        frame.extend(vec![letter; content]);
        let request = http::Request::builder()
            .method("POST")
            .uri("http://node/rota.v1.Machines/Send")
            .header("content-type", "application/grpc")
            .body(Body::new(Full::from(frame)))
            .unwrap();
        let mut answer = service.call(request);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = Pin::new(&mut answer).poll(&mut context) else {
            panic!("nothing of this waits")
        };
        Status::from_header_map(response.headers())
    }

    #[test]
    fn a_message_over_the_limit_is_refused_by_name_and_one_of_the_limit_is_taken() {
        assert!(said_to(100, b'x').is_none(), "the status of an answer follows its message");
        let refusal = refusal(&said_to(101, b'x').unwrap());
        assert_eq!((refusal.kind, refusal.retry), (RefusalKind::InvalidArgument, Retry::Never));
        assert_eq!(refusal.changed, Changed::No);
        let problem = "is larger than 100 bytes, the limit of this message";
        assert_eq!(refusal.fields, [FieldError::new("SendRequest", problem)]);
    }

    #[test]
    fn services_that_tell_mistakes_as_exceptions_do_so_here_too() {
        for (path, name) in [
            ("/rota.v1.Documents/Operate", "OperateRequest"),
            ("/rota.v1.Namespaces/SetNamespace", "SetNamespaceRequest"),
            ("/rota.v1.Pools/SetPool", "SetPoolRequest"),
        ] {
            let status = refused(path, "is larger than 100 bytes".to_owned());
            let exception = documents::exception(&status).expect("it carries one");
            assert_eq!(*exception.code(), codes::INVALID);
            assert_eq!((exception.phase(), exception.retry()), (Phase::Before, Retry::Never));
            let field = FieldError::new(name, "is larger than 100 bytes");
            assert_eq!(exception.details().fields, [field]);
            assert_eq!(status.code(), Code::InvalidArgument);
        }
        let status = refused("/rota.v1.Sessions/Open", "is larger than 100 bytes".to_owned());
        assert_eq!(documents::exception(&status), None);
    }

    #[test]
    fn a_message_that_cannot_be_decoded_is_refused_by_name() {
        let refusal = refusal(&said_to(20, 0xff).unwrap());
        assert_eq!((refusal.kind, refusal.changed), (RefusalKind::InvalidArgument, Changed::No));
        let [field] = refusal.fields.as_slice() else { panic!("{refusal:?}") };
        assert_eq!(field.field, "SendRequest");
        let problem = &field.problem;
        assert!(
            problem.starts_with("cannot be decoded: ") && problem.contains("UTF-8"),
            "{problem}"
        );
    }
}
