//! A repository as managers keep it: its document, the lists of files of its commits, and what changes it.

use super::{Common, configuration};
use crate::task::at::now;
use anyhow::{Context, bail};
use rota_client::docstore::{
    Body, Caller, Credentials, Digest, DocName, Document, Request, SyncRequest, apply,
};
use rota_client::documents::request::{GetBody, Operate, PutBody, Sync};
use rota_client::{CallError, Client, v1};
use rota_content::{CONTENT_CLASS, Commit, FOLLOWS_CLASS, Follows, Hash, Head, Tree, TreeBody};
use rota_model::{PoolName, Refusal, RefusalKind, RepositoryName, RequestId, Retry};
use rota_proto::content::tree_of;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncSeek};

/// A repository, or the place where one may be.
pub struct Repository {
    client: Client,
    name: RepositoryName,
    admin: String,
    patience: Duration,
    /// The newest commit; none where there is no repository.
    pub head: Option<Head>,
    /// The commits that are kept.
    pub commits: BTreeMap<Hash, Commit>,
}

impl Repository {
    /// The place of one, which is not looked at.
    pub fn unread(client: &Client, name: &RepositoryName, common: &Common) -> anyhow::Result<Self> {
        Ok(Self {
            client: client.clone(),
            name: name.clone(),
            admin: common.admin_key.get()?,
            patience: common.patience,
            head: None,
            commits: BTreeMap::new(),
        })
    }

    /// Reads it.
    pub async fn read(
        client: &Client,
        name: &RepositoryName,
        common: &Common,
    ) -> anyhow::Result<Self> {
        let mut it = Self::unread(client, name, common)?;
        let own = DocName::new(&configuration(), CONTENT_CLASS, it.name.as_str())?;
        if let Some(document) = it.document(&own).await? {
            it.head = document.one::<Head>()?;
            for (item, _) in document.existing() {
                if let (<Commit as rota_client::docstore::Keyed>::CLASS, Some(key)) =
                    (item.class(), item.key())
                    && let Some(commit) = document.keyed::<Commit>(key)?
                {
                    it.commits.insert(commit.hash.clone(), commit);
                }
            }
        }
        Ok(it)
    }

    /// One that must be there.
    pub async fn existing(
        client: &Client,
        name: &RepositoryName,
        common: &Common,
    ) -> anyhow::Result<Self> {
        let it = Self::read(client, name, common).await?;
        if it.head.is_some() {
            return Ok(it);
        }
        let known = it.all_of(CONTENT_CLASS).await?;
        let known: Vec<&str> =
            known.iter().map(DocName::docid).filter(|it| *it != name.as_str()).collect();
        let known = match known.is_empty() {
            true => "there is none yet".to_owned(),
            false => format!("there are {}", known.join(", ")),
        };
        let text =
            format!("there is no content {name} (ringctl content publish makes it); {known}");
        let refusal = Box::new(Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text));
        // No manager said it so.
        Err(CallError::Refused { refusal, endpoint: String::new(), attempts: 0 }.into())
    }

    async fn document(&self, name: &DocName) -> anyhow::Result<Option<Arc<Document>>> {
        let documents = vec![SyncRequest { name: name.clone(), held: None }];
        let sync =
            Sync { space: configuration(), documents, stale_ok: false, caller: self.caller() };
        let updates = self.client.documents().sync(&sync, self.patience).await?;
        let (_, update) = updates.first().context("the answer has no update")?;
        let document = apply(name, None, update).context("the update does not fit")?;
        Ok(document.filter(|it| !it.is_deleted()))
    }

    fn caller(&self) -> Caller {
        let admin = self.admin.clone();
        Caller { build: None, who: Credentials { admin, ..Credentials::default() } }
    }

    /// A commit: the named one, or the newest.
    pub fn commit(&self, hash: Option<&Hash>) -> anyhow::Result<&Commit> {
        let latest = self.head.as_ref().map(|it| &it.latest);
        let hash = hash.or(latest).context("there is no commit yet")?;
        let mut alike =
            self.commits.values().filter(|it| it.hash.as_str().starts_with(hash.as_str()));
        if let (Some(only), None) = (alike.next(), alike.next()) {
            return Ok(only);
        }
        self.commits.get(hash).with_context(|| {
            let known: Vec<&str> = self.newest_first().iter().map(|it| it.hash.as_str()).collect();
            format!("{} keeps no commit {hash}; it has {}", self.name, known.join(", "))
        })
    }

    /// The names of all documents of a class, whichever repository they are of.
    pub async fn all_of(&self, class: &str) -> anyhow::Result<Vec<DocName>> {
        let mut request = v1::ListDocumentsRequest {
            namespace: configuration().as_str().into(),
            class: class.to_owned(),
            page_size: 500,
            admin: self.admin.clone(),
            ..Default::default()
        };
        let mut names = Vec::new();
        loop {
            let page = self.client.documents().list(request.clone(), self.patience).await?;
            names.extend(page.documents.into_iter().map(|it| it.name));
            if page.next_page_token.is_empty() {
                return Ok(names);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// What each pool follows.
    pub async fn followers(&self) -> anyhow::Result<BTreeMap<PoolName, Follows>> {
        let mut followers = BTreeMap::new();
        for name in self.all_of(FOLLOWS_CLASS).await? {
            if let Some(document) = self.document(&name).await?
                && let Some(follows) = document.one::<Follows>()?
            {
                followers.insert(PoolName::parse(name.docid())?, follows);
            }
        }
        Ok(followers)
    }

    /// The commits of this repository that pools hold.
    pub async fn held(&self) -> anyhow::Result<Vec<Hash>> {
        let followers = self.followers().await?;
        let own = followers.into_values().filter(|it| it.repository == self.name);
        Ok(own.filter_map(|it| it.commit).collect())
    }

    /// The commits, the newest first.
    pub fn newest_first(&self) -> Vec<&Commit> {
        let mut all: Vec<&Commit> = self.commits.values().collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.number));
        all
    }

    /// The files of a commit.
    pub async fn tree(&self, commit: &Commit) -> anyhow::Result<Tree> {
        let bytes = self.bytes(commit.tree.sha256, 0, 0).await?;
        if Digest(Sha256::digest(&bytes).into()) != commit.tree.sha256 {
            bail!("the files of commit {} have another digest", commit.hash);
        }
        tree_of(&bytes).with_context(|| format!("the files of commit {}", commit.hash))
    }

    /// Bytes of a body; length 0: all from the offset on.
    pub async fn bytes(&self, body: Digest, offset: u64, length: u64) -> anyhow::Result<Vec<u8>> {
        let mut reader = self.reader(body, offset, length);
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The same, piece by piece.
    pub fn reader(
        &self,
        sha256: Digest,
        offset: u64,
        length: u64,
    ) -> rota_client::documents::BodyReader {
        let (space, docid, caller) =
            (configuration(), self.name.as_str().to_owned(), self.caller());
        let get = GetBody { space, docid, sha256, offset, length, caller };
        self.client.documents().get_body(get, self.patience)
    }

    /// Stores a body. True when it was there.
    pub async fn put<R>(&self, body: &TreeBody, source: &mut R) -> anyhow::Result<bool>
    where
        R: AsyncRead + AsyncSeek + Unpin + Send,
    {
        let put = PutBody {
            space: configuration(),
            docid: self.name.as_str().to_owned(),
            size: body.bytes,
            sha256: body.sha256,
            caller: self.caller(),
        };
        Ok(self.client.documents().put_body(&put, source, self.patience).await?)
    }

    /// Runs an operation, which is safe to repeat.
    pub async fn operate(
        &self,
        docid: &str,
        operation: &str,
        parameters: &Value,
    ) -> anyhow::Result<Value> {
        let request_id = RequestId::parse(&self.client.request_id())?;
        let mut request = Request::new(configuration(), operation).with(parameters)?;
        request.operation_time = Some(now());
        request.request_id = Some(request_id);
        request.who = self.caller().who;
        let operate = Operate { request, docid: docid.to_owned() };
        let answer = self.client.documents().operate(&operate, self.patience).await?;
        match answer.body {
            Body::Json(text) => Ok(serde_json::from_str(text.as_str())?),
            Body::Nothing | Body::Binary { .. } => Ok(Value::Null),
        }
    }

    /// Its name.
    pub fn name(&self) -> &RepositoryName {
        &self.name
    }
}
