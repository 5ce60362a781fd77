//! Namespaces, for operators.

use super::call::{Keyed, admin_key, namespaces, with_key};
use super::unreadable;
use super::upload::{Source, Stopped, silent, upload};
use crate::call;
use crate::error::CallError;
use crate::resume::{BEGIN_WAIT, Resume, ended};
use crate::session::Client;
use rota_model::{Changed, FieldError, Namespace};
use rota_proto::documents::NamespaceState;
use rota_proto::documents::export::{Order, Part};
use rota_proto::documents::request::{Create, Set, Switch};
use rota_proto::v1;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Status, Streaming};

/// A client of the namespaces of one cluster: a view of a [`Client`].
#[derive(Clone, Debug)]
pub struct Namespaces {
    client: Client,
    /// Marked as sensitive: it is not printed.
    admin_key: Option<AsciiMetadataValue>,
}

/// What an import did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Documents that were taken over.
    pub documents: u64,
    /// Documents that were there in the same or a newer version, and stayed.
    pub kept: u64,
    /// Bodies that came.
    pub bodies: u64,
}

/// Where the records of an import come from.
pub trait RecordSource: Send {
    /// The next record; `None` at the end. An error ends the import, and is what its caller gets;
    /// make it with [`CallError::Source`].
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<v1::NamespaceRecord>, CallError>> + Send;
}

struct Records<'a, R> {
    into: String,
    source: &'a mut R,
}

impl<R: RecordSource> Source for Records<'_, R> {
    type Piece = v1::ImportNamespaceRequest;

    async fn next(&mut self) -> Result<Option<Self::Piece>, CallError> {
        let record = self.source.next().await?;
        let into = std::mem::take(&mut self.into);
        Ok(record.map(|it| v1::ImportNamespaceRequest { into, record: Some(it) }))
    }
}

impl Namespaces {
    pub(super) fn new(client: Client) -> Self {
        Self { client, admin_key: None }
    }

    /// The same with the administrator's key; an empty one is none. Field `admin_key`: it has
    /// visible ASCII characters only.
    pub fn with_admin_key(self, key: &str) -> Result<Self, FieldError> {
        Ok(Self { admin_key: admin_key(key)?, ..self })
    }

    fn keyed<C>(&self, call: C) -> Keyed<C> {
        Keyed { call, key: self.admin_key.clone() }
    }

    async fn one<C>(&self, call: C, wait: Duration) -> Result<NamespaceState, CallError>
    where
        C: crate::attempt::Call<Answer = v1::NamespaceInfo>,
    {
        let answered = self.client.call(self.keyed(call), wait).await?;
        NamespaceState::try_from(answered.answer).map_err(|it| unreadable(&it, &answered.endpoint))
    }

    /// Creates a namespace. One that exists with the very same description is given again.
    pub async fn create(
        &self,
        create: &Create,
        wait: Duration,
    ) -> Result<NamespaceState, CallError> {
        self.one(v1::CreateNamespaceRequest::from(create), wait).await
    }

    /// One namespace.
    pub async fn get(&self, name: &Namespace, wait: Duration) -> Result<NamespaceState, CallError> {
        self.one(v1::GetNamespaceRequest { name: name.as_str().into() }, wait).await
    }

    /// Closes a session, also where its namespace is switched off: an operator's order. An empty
    /// `request_id` is filled in.
    pub async fn close(
        &self,
        request: v1::CloseRequest,
        wait: Duration,
    ) -> Result<v1::CloseResponse, CallError> {
        let mut request = v1::CloseRequest { although_off: true, ..request };
        if request.request_id.is_empty() {
            request.request_id = self.client.request_id();
        }
        let answered = self.client.call(self.keyed(request), wait).await?;
        if answered.answer.session.is_none() {
            let endpoint = answered.endpoint.to_string();
            return Err(CallError::Incomplete { missing: "session", endpoint });
        }
        Ok(answered.answer)
    }

    /// Changes what is given of a namespace's description.
    pub async fn set(&self, set: &Set, wait: Duration) -> Result<NamespaceState, CallError> {
        self.one(v1::SetNamespaceRequest::from(set), wait).await
    }

    /// Switches a namespace off, with a message for its clients, or on.
    pub async fn switch(
        &self,
        switch: &Switch,
        wait: Duration,
    ) -> Result<NamespaceState, CallError> {
        self.one(v1::SwitchNamespaceRequest::from(switch), wait).await
    }

    /// All namespaces, by name. Those that do not fit into one answer are asked for after it, each within `wait`.
    pub async fn list(&self, wait: Duration) -> Result<Vec<NamespaceState>, CallError> {
        let (mut states, mut after) = (Vec::<NamespaceState>::new(), String::new());
        loop {
            let request = v1::ListNamespacesRequest { after };
            let answered = self.client.call(self.keyed(request), wait).await?;
            let v1::ListNamespacesResponse { namespaces, more } = answered.answer;
            let goes_on = more && !namespaces.is_empty();
            let states_here = namespaces.into_iter().map(NamespaceState::try_from);
            let states_here: Result<Vec<_>, _> = states_here.collect();
            states.extend(states_here.map_err(|it| unreadable(&it, &answered.endpoint))?);
            match states.last() {
                Some(last) if goes_on => after = last.name.as_str().to_owned(),
                Some(_) | None => return Ok(states),
            }
        }
    }

    /// Deletes a namespace that is switched off: its documents, then its description. Tells
    /// `progress` how many documents are deleted so far, and gives their number. After a break it
    /// goes on elsewhere. `patience`: the longest time without news.
    pub async fn delete(
        &self,
        name: &Namespace,
        patience: Duration,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, CallError> {
        let request = v1::DeleteNamespaceRequest { name: name.as_str().into() };
        let mut resume = Resume::changing(&self.client, patience);
        // Before the last break, and since.
        let (mut before, mut since) = (0, 0);
        loop {
            resume.awake(&self.client).await;
            let endpoint = resume.entry(&self.client);
            let borrowed = self.client.endpoints.connect_to(&endpoint)?;
            let mut service = namespaces(borrowed.channel.clone());
            let request = with_key(request.clone(), self.admin_key.as_ref());
            let begun = timeout(BEGIN_WAIT, service.delete_namespace(request)).await;
            let failure = match begun {
                Err(_elapsed) => silent(),
                Ok(Err(status)) => call::failure(&status),
                Ok(Ok(response)) => {
                    let mut stream = response.into_inner();
                    loop {
                        match timeout(patience, stream.message()).await {
                            Ok(Ok(Some(news))) => {
                                resume.went_on();
                                since = news.deleted;
                                progress(before + since);
                                if news.done {
                                    return Ok(before + since);
                                }
                            }
                            Ok(Ok(None)) => break ended(),
                            Ok(Err(status)) => break call::failure(&status),
                            Err(_elapsed) => break silent(),
                        }
                    }
                }
            };
            resume.recover(&self.client, failure, &endpoint).await?;
            (before, since) = (before + since, 0);
        }
    }

    /// Begins an export. `patience`: the longest time without a record.
    pub async fn export(&self, name: &Namespace, patience: Duration) -> Result<Export, CallError> {
        let request = v1::ExportNamespaceRequest { name: name.as_str().into() };
        let mut resume = Resume::reading(&self.client, patience);
        loop {
            resume.awake(&self.client).await;
            let endpoint = resume.entry(&self.client);
            let borrowed = self.client.endpoints.connect_to(&endpoint)?;
            let mut service = namespaces(borrowed.channel.clone());
            let request = with_key(request.clone(), self.admin_key.as_ref());
            let begun = timeout(BEGIN_WAIT, service.export_namespace(request)).await;
            let failure = match begun {
                Ok(Ok(response)) => {
                    let (stream, order) = (response.into_inner(), Order::new());
                    return Ok(Export { stream, order, endpoint, patience });
                }
                Ok(Err(status)) => call::failure(&status),
                Err(_elapsed) => call::failure(&Status::unavailable("no stream began in time")),
            };
            resume.recover(&self.client, failure, &endpoint).await?;
        }
    }

    /// Takes over an export into a namespace: the one that was exported unless `into` says
    /// another. It is sent once: what came before a break stays, and repeating it is safe.
    /// `patience`: the longest time without progress.
    pub async fn import<R: RecordSource>(
        &self,
        into: Option<&Namespace>,
        source: &mut R,
        patience: Duration,
    ) -> Result<Imported, CallError> {
        // Finds a manager that answers: the records cannot be sent a second time.
        let find = self.keyed(v1::ListNamespacesRequest::default());
        let endpoint = self.client.call(find, patience).await?.endpoint;
        let borrowed = self.client.endpoints.connect_to(&endpoint)?;
        let into = into.map_or_else(String::new, |it| it.as_str().into());
        let mut records = Records { into, source };
        let mut service = namespaces(borrowed.channel.clone());
        let key = self.admin_key.as_ref();
        let sent = upload(&mut records, patience, |it| service.import_namespace(with_key(it, key)));
        match sent.await {
            Ok(v1::ImportNamespaceResponse { documents, kept, bodies }) => {
                Ok(Imported { documents, kept, bodies })
            }
            Err(Stopped::Local(error)) => Err(error),
            Err(Stopped::Failed(failure)) => {
                let changed = failure.changed();
                Err(call::error(failure, &endpoint, 1, changed))
            }
        }
    }
}

/// An export that is being read. It cannot go on after a break: begin again.
#[derive(Debug)]
pub struct Export {
    stream: Streaming<v1::NamespaceRecord>,
    order: Order,
    endpoint: Arc<str>,
    patience: Duration,
}

impl Export {
    /// The next record, and the part that is whole with it, if any; `None` after the footer, and never
    /// before it.
    pub async fn next(&mut self) -> Result<Option<(v1::NamespaceRecord, Option<Part>)>, CallError> {
        let failure = match timeout(self.patience, self.stream.message()).await {
            Ok(Ok(Some(record))) => {
                let part = self.order.take(record.clone());
                let part = part.map_err(|it| unreadable(&it, &self.endpoint))?;
                return Ok(Some((record, part)));
            }
            Ok(Ok(None)) if self.order.is_complete() => return Ok(None),
            Ok(Ok(None)) => ended(),
            Ok(Err(status)) => call::failure(&status),
            Err(_elapsed) => silent(),
        };
        Err(call::error(failure, &self.endpoint, 1, Changed::No))
    }

    /// Documents and bodies so far.
    pub fn so_far(&self) -> (u64, u64) {
        (self.order.documents(), self.order.bodies())
    }
}
