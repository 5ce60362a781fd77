//! Tasks that call a method of gRPC. The message goes along as it is: nothing here knows its type.

use super::{NOT_STARTED, Target, UNREACHABLE, headers};
use bytes::{Buf, BufMut, Bytes};
use rota_protocol::outside::GrpcCall;
use rota_protocol::{TaskJob, TaskOutcome};
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataKey, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

/// How long a connection may take, as for requests of HTTP.
const CONNECT: Duration = Duration::from_secs(10);

/// Messages as bytes. An answer is read to its end and thrown away: only the status counts.
#[derive(Clone, Copy, Default)]
struct AsItIs;

impl Codec for AsItIs {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self
    }
}

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for AsItIs {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        from.advance(from.remaining());
        Ok(Some(()))
    }
}

/// Calls the method of a task, and judges by the status.
pub async fn call(target: &Target, call: GrpcCall, job: &TaskJob, quota: Duration) -> TaskOutcome {
    let not_started = |why: String| (NOT_STARTED.to_owned(), why);
    let Some(url) = target.below(&format!("/{}", call.method)) else {
        return Err(not_started(format!("the method {:?} is none", call.method)));
    };
    let path = PathAndQuery::try_from(url.path()).map_err(|it| not_started(it.to_string()))?;
    let mut request = Request::new(Bytes::from(call.message));
    metadata(request.metadata_mut(), target, job).map_err(not_started)?;
    request.set_timeout(quota);
    let channel = match endpoint(target).map_err(not_started)?.connect().await {
        Ok(channel) => channel,
        Err(error) => {
            let why = format!("{:#}", anyhow::Error::from(error));
            return Err((UNREACHABLE.to_owned(), why));
        }
    };
    match unary(channel, request, path).await {
        Ok(()) => Ok(()),
        Err(status) => Err((format!("GRPC-{}", name(status.code())), status.message().to_owned())),
    }
}

async fn unary(
    channel: Channel,
    request: Request<Bytes>,
    path: PathAndQuery,
) -> Result<(), Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|it| Status::unavailable(it.to_string()))?;
    client.unary(request, path, AsItIs).await.map(drop)
}

fn metadata(into: &mut MetadataMap, target: &Target, job: &TaskJob) -> Result<(), String> {
    let key = headers::authorization(target).map(|it| ("authorization", it));
    for (name, value) in headers::of_task(job).into_iter().chain(key) {
        let wrong = || format!("header {name} does not read");
        let value = value.parse().map_err(|_| wrong())?;
        into.insert(AsciiMetadataKey::from_static(name), value);
    }
    Ok(())
}

fn endpoint(target: &Target) -> Result<Endpoint, String> {
    let told = |it: tonic::transport::Error| format!("{:#}", anyhow::Error::from(it));
    let endpoint = Endpoint::from_shared(target.url().to_string()).map_err(told)?;
    let endpoint = endpoint.connect_timeout(CONNECT);
    if target.url().scheme() != "https" {
        return Ok(endpoint);
    }
    let tls = ClientTlsConfig::new().with_enabled_roots();
    let tls = match target.ca() {
        Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
        None => tls,
    };
    endpoint.tls_config(tls).map_err(told)
}

/// Its name in the rules of gRPC, as `NOT_FOUND`.
fn name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_that_grpc_gives_them() {
        for (code, told) in [
            (Code::Ok, "OK"),
            (Code::NotFound, "NOT_FOUND"),
            (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
            (Code::Unavailable, "UNAVAILABLE"),
        ] {
            assert_eq!(name(code), told);
        }
    }
}
