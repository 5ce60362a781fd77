//! Namespaces of a test's manager: descriptions are documents of its store.

use crate::manager::{Manager, Replies, raised};
use crate::ring::{State, digest};
use rota_client::v1;
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::{Description, DocName, Documents as _, Exception, Namespace, codes};
use rota_proto::WireError;
use rota_proto::documents::export::{Order, Part};
use rota_proto::documents::{ADMIN_KEY_METADATA, NamespaceState, request};
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};
use v1::namespaces_server::Namespaces;

fn z() -> Namespace {
    Namespace::parse("z").unwrap()
}

fn description_of(name: &Namespace) -> DocName {
    DocName::new(&z(), SPACE_CLASS, name.as_str()).unwrap()
}

fn unreadable(error: WireError) -> Status {
    error.into()
}

impl Manager {
    fn space(&self, name: &Namespace) -> Result<NamespaceState, Status> {
        let state = self.ring.state();
        let missing = || raised(Exception::new(codes::NAMESPACE, format!("{name} does not exist")));
        let description = state.store.spaces().get(name.as_str()).ok_or_else(missing)?;
        let version = state.store.peek(&description_of(name)).map(|it| it.version());
        let (description, usage) = (description.clone(), Ok(state.store.usage(name.as_str())));
        Ok(NamespaceState { name: name.clone(), description, usage, version })
    }

    fn check_key<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let needed = *self.script.admin_key.lock().unwrap();
        let given = request.metadata().get(ADMIN_KEY_METADATA);
        if needed.is_some() && given.map(|it| it.to_str().unwrap()) != needed {
            return Err(raised(Exception::new(codes::REFUSED, "the administrator's key is wrong")));
        }
        Ok(())
    }

    fn describe(
        &self,
        name: &Namespace,
        change: impl FnOnce(&mut Description) -> Result<(), Exception>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        {
            let State { store, now, .. } = &mut *self.ring.state();
            let changed = store.change(&self.ring.rules, &z(), *now, |transaction| {
                let edited = transaction.current(&description_of(name))?;
                edited.ensure();
                let mut description = edited.one::<Description>()?.unwrap_or_default();
                change(&mut description)?;
                edited.put_one(&description)
            });
            changed.map_err(raised)?;
        }
        Ok(Response::new((&self.space(name)?).into()))
    }
}

#[tonic::async_trait]
impl Namespaces for Manager {
    async fn create_namespace(
        &self,
        wire: Request<v1::CreateNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        self.check_key(&wire)?;
        self.next()?;
        let create = request::create(wire.into_inner()).map_err(raised)?;
        if let Ok(there) = self.space(&create.name) {
            if there.description != create.description {
                let exception = Exception::new(codes::EXISTS, "it is described otherwise");
                return Err(raised(exception));
            }
            return Ok(Response::new((&there).into()));
        }
        self.describe(&create.name, |description| {
            *description = create.description;
            Ok(())
        })
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        self.next()?;
        let after = request.into_inner().after;
        let mut names: Vec<String> =
            self.ring.state().store.spaces().iter().map(|(name, _)| name.to_owned()).collect();
        names.retain(|it| *it > after);
        names.sort_unstable();
        // As if two did not fit into one answer.
        let more = names.len() > 1;
        names.truncate(1);
        let info = |it: &String| Ok((&self.space(&Namespace::parse(it).unwrap())?).into());
        let namespaces = names.iter().map(info).collect::<Result<_, Status>>()?;
        Ok(Response::new(v1::ListNamespacesResponse { namespaces, more }))
    }

    async fn get_namespace(
        &self,
        wire: Request<v1::GetNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        self.next()?;
        let name = request::name(&wire.into_inner().name).map_err(raised)?;
        Ok(Response::new((&self.space(&name)?).into()))
    }

    async fn set_namespace(
        &self,
        wire: Request<v1::SetNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        self.check_key(&wire)?;
        self.next()?;
        let set = request::set(wire.into_inner()).map_err(raised)?;
        self.space(&set.name)?;
        self.describe(&set.name, |description| {
            description.description = set.description.unwrap_or_default();
            Ok(())
        })
    }

    async fn switch_namespace(
        &self,
        wire: Request<v1::SwitchNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceInfo>, Status> {
        self.check_key(&wire)?;
        self.next()?;
        let switch = request::switch(wire.into_inner()).map_err(raised)?;
        self.space(&switch.name)?;
        self.describe(&switch.name, |description| {
            description.off = switch.off;
            Ok(())
        })
    }

    type DeleteNamespaceStream = Replies<v1::DeleteNamespaceResponse>;

    /// Deletes two documents, and breaks off if there are more.
    async fn delete_namespace(
        &self,
        wire: Request<v1::DeleteNamespaceRequest>,
    ) -> Result<Response<Self::DeleteNamespaceStream>, Status> {
        self.check_key(&wire)?;
        self.next()?;
        let name = request::name(&wire.into_inner().name).map_err(raised)?;
        if self.space(&name)?.description.off.is_none() {
            return Err(raised(Exception::business("ON", "it is switched on")));
        }
        let State { store, .. } = &mut *self.ring.state();
        let documents: Vec<_> = store.in_space(&name).map(|it| it.name().clone()).collect();
        let mut news = Vec::new();
        for (document, deleted) in documents.iter().zip(1..=2) {
            store.set(document, None);
            news.push(Ok(v1::DeleteNamespaceResponse { deleted, done: false }));
        }
        if documents.len() > 2 {
            news.push(Err(Status::unavailable("going down")));
        } else {
            store.set(&description_of(&name), None);
            let deleted = documents.len() as u64;
            news.push(Ok(v1::DeleteNamespaceResponse { deleted, done: true }));
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(news))))
    }

    type ExportNamespaceStream = Replies<v1::NamespaceRecord>;

    async fn export_namespace(
        &self,
        wire: Request<v1::ExportNamespaceRequest>,
    ) -> Result<Response<Self::ExportNamespaceStream>, Status> {
        self.check_key(&wire)?;
        self.next()?;
        let name = request::name(&wire.into_inner().name).map_err(raised)?;
        let mut parts = vec![Part::Header(self.space(&name)?)];
        let state = self.ring.state();
        let (mut documents, mut bodies) = (0, 0);
        for document in state.store.in_space(&name).filter(|it| !it.is_deleted()) {
            for (_, attachment) in document.attachments() {
                bodies += 1;
                parts.push(Part::Body(attachment.clone()));
                let body = &state.bodies[&attachment.sha256()];
                parts.extend(body.chunks(1_000).map(|it| Part::Bytes(body.slice_ref(it))));
            }
            documents += 1;
            parts.push(Part::Document((**document).clone()));
        }
        parts.push(Part::Footer { documents, bodies });
        let breaks_after = self.script.breaks_after.lock().unwrap().take();
        let count = breaks_after.unwrap_or(parts.len());
        let records = parts.iter().take(count).flat_map(Part::records).map(Ok);
        let records: Vec<_> = records.collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(records))))
    }

    async fn import_namespace(
        &self,
        wire: Request<Streaming<v1::ImportNamespaceRequest>>,
    ) -> Result<Response<v1::ImportNamespaceResponse>, Status> {
        self.check_key(&wire)?;
        self.next()?;
        let (mut records, mut order) = (wire.into_inner(), Order::new());
        let (mut into, mut kept, mut body) = (String::new(), 0, Vec::new());
        while let Some(v1::ImportNamespaceRequest { into: given, record }) =
            records.message().await?
        {
            if !order.is_complete() && !given.is_empty() {
                into = given;
            }
            let part = order.take(record.unwrap_or_default()).map_err(unreadable)?;
            let Some(part) = part else { continue };
            match part {
                Part::Header(state) => {
                    let name = if into.is_empty() { state.name.as_str() } else { &into };
                    into = name.to_owned();
                    let name = Namespace::parse(&into).unwrap();
                    if self.space(&name).is_err() {
                        self.describe(&name, |description| {
                            *description = Description { off: None, ..state.description };
                            Ok(())
                        })?;
                    }
                }
                Part::Body(_) => body.clear(),
                Part::Bytes(bytes) => {
                    body.extend_from_slice(&bytes);
                    if order.is_body_whole() {
                        let bytes = bytes::Bytes::from(body.clone());
                        self.ring.state().bodies.insert(digest(&bytes), bytes);
                    }
                }
                Part::Document(document) => {
                    let space = Namespace::parse(&into).unwrap();
                    let mut parts = document.into_parts();
                    let (class, docid) = (parts.name.class(), parts.name.docid());
                    parts.name = DocName::new(&space, class, docid).unwrap();
                    let document = rota_docstore::Document::from_parts(parts).unwrap();
                    let State { store, .. } = &mut *self.ring.state();
                    let there = store.peek(document.name()).map(|it| it.version());
                    if there >= Some(document.version()) {
                        kept += 1;
                    } else {
                        let name = document.name().clone();
                        store.set(&name, Some(Arc::new(document)));
                    }
                }
                Part::Footer { .. } => {}
            }
        }
        if !order.is_complete() {
            return Err(unreadable(WireError::new("NamespaceRecord.record", "is missing")));
        }
        let (documents, bodies) = (order.documents() - kept, order.bodies());
        Ok(Response::new(v1::ImportNamespaceResponse { documents, kept, bodies }))
    }
}
