//! Tasks that send a request.

use super::{NOT_STARTED, SAID_BYTES, TIMEOUT, Target, UNREACHABLE, headers, text_of};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Certificate, Client, Method, Response};
use rota_protocol::outside::HttpCall;
use rota_protocol::{TaskJob, TaskOutcome};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a connection may take. Longer, and a server that is gone holds a worker; shorter, and a far one fails.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection stays for the next task.
const IDLE: Duration = Duration::from_secs(30);

/// A client for each target.
pub struct HttpClients(BTreeMap<String, Client>);

impl HttpClients {
    /// Clients of these targets.
    pub fn new(targets: &BTreeMap<String, Target>) -> anyhow::Result<Self> {
        let clients = targets.iter().map(|(name, it)| Ok((name.clone(), Self::client(it)?)));
        Ok(Self(clients.collect::<anyhow::Result<_>>()?))
    }

    /// A client of one target: it goes nowhere else.
    pub fn client(target: &Target) -> reqwest::Result<Client> {
        let client = Client::builder()
            .use_rustls_tls()
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        let client = match target.ca() {
            Some(ca) => client.add_root_certificate(Certificate::from_pem(ca)?),
            None => client,
        };
        client.build()
    }

    /// The client of a target.
    pub fn of(&self, target: &str) -> Option<&Client> {
        self.0.get(target)
    }
}

/// Sends the request of a task, and judges by the status.
pub async fn call(client: &Client, target: &Target, call: &HttpCall, job: &TaskJob) -> TaskOutcome {
    let not_started = |why: String| Err((NOT_STARTED.to_owned(), why));
    let Some(url) = target.below(&call.path) else {
        return not_started(format!("the path {:?} leads out of the target", call.path));
    };
    let Ok(method) = Method::from_bytes(call.method.as_bytes()) else {
        return not_started(format!("{:?} is no method", call.method));
    };
    let mut request = client.request(method, url);
    if !call.body.is_null() {
        request = request.header(CONTENT_TYPE, "application/json").body(call.body.to_string());
    }
    for (name, value) in &call.headers {
        request = request.header(name, value);
    }
    for (name, value) in headers::of_task(job) {
        request = request.header(name, value);
    }
    if let Some(key) = headers::authorization(target) {
        request = request.header(AUTHORIZATION, key);
    }
    match request.send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => {
            let code = format!("HTTP-{}", answer.status().as_u16());
            Err((code, text_of(&beginning(answer).await)))
        }
        Err(error) if error.is_builder() => not_started(told(error)),
        Err(error) if error.is_timeout() && !error.is_connect() => {
            Err((TIMEOUT.to_owned(), told(error)))
        }
        Err(error) => Err((UNREACHABLE.to_owned(), told(error))),
    }
}

/// The whole chain of causes. The URL stands in the task.
fn told(error: reqwest::Error) -> String {
    format!("{:#}", anyhow::Error::from(error.without_url()))
}

/// The first bytes of the body.
async fn beginning(mut answer: Response) -> Vec<u8> {
    let mut said = Vec::new();
    while said.len() < SAID_BYTES
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        said.extend_from_slice(&chunk[..chunk.len().min(SAID_BYTES - said.len())]);
    }
    said
}
