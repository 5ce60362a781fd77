//! The document of a session that keeps itself in step, with what is in it.

use super::copy::DocumentCopy;
use super::file::CopyFileError;
use super::{CacheError, CachedDocument, CachedSessionOptions};
use crate::session::Client;
use rota_docstore::DocName;
use rota_model::items::{Machine, SESSION_CLASS, Standing};
use rota_model::{FieldError, SessionKey, SessionSpec, SessionState};
use std::ops::Deref;
use std::time::Duration;

/// What is known of a session: a copy of its document, read as what managers write there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionCopy(DocumentCopy);

impl Deref for SessionCopy {
    type Target = DocumentCopy;
    fn deref(&self) -> &DocumentCopy {
        &self.0
    }
}

impl SessionCopy {
    /// What it runs.
    pub fn spec(&self) -> Result<Option<SessionSpec>, FieldError> {
        self.one()
    }

    /// How it stands, why, and where.
    pub fn standing(&self) -> Result<Option<Standing>, FieldError> {
        self.one()
    }

    /// Its state.
    pub fn state(&self) -> Result<Option<SessionState>, FieldError> {
        Ok(self.standing()?.map(|it| it.state))
    }

    /// Where it answers, `host:port`: only while it is READY.
    pub fn address(&self) -> Result<Option<String>, FieldError> {
        let ready = self.standing()?.filter(|it| it.state == SessionState::Ready);
        let address = ready.and_then(|it| it.placement).map(|it| it.address);
        Ok(address.filter(|it| !it.is_empty()))
    }

    /// The state of its machine, as its node last reported; `None` for programs.
    pub fn machine_state(&self) -> Result<Option<String>, FieldError> {
        Ok(self.one::<Machine>()?.map(|it| it.state))
    }
}

/// A [`CachedDocument`] of a session.
#[derive(Debug)]
pub struct CachedSession(CachedDocument);

impl CachedSession {
    /// As [`CachedDocument::open`]: the session may come into being later.
    pub async fn open(
        client: &Client,
        key: &SessionKey,
        options: CachedSessionOptions,
    ) -> Result<Self, CopyFileError> {
        CachedDocument::open(client, &document_of(key), options).await.map(Self)
    }

    /// What is known now.
    pub fn copy(&self) -> SessionCopy {
        SessionCopy(self.0.copy())
    }

    /// As [`CachedDocument::trouble`].
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    /// The copy after a synchronisation that began after this call.
    pub async fn refresh(&mut self, wait: Duration) -> Result<SessionCopy, CacheError> {
        self.0.refresh(wait).await.map(SessionCopy)
    }

    /// The copy as soon as it fulfils a condition: at once if it does.
    pub async fn wait_until(
        &mut self,
        wait: Duration,
        mut holds: impl FnMut(&SessionCopy) -> bool + Send,
    ) -> Result<SessionCopy, CacheError> {
        let holds = move |it: &DocumentCopy| holds(&SessionCopy(it.clone()));
        self.0.wait_until(wait, holds).await.map(SessionCopy)
    }

    /// The copy as soon as it differs from `seen`: at once if it does.
    pub async fn changed_from(
        &mut self,
        seen: &SessionCopy,
        wait: Duration,
    ) -> Result<SessionCopy, CacheError> {
        self.0.changed_from(&seen.0, wait).await.map(SessionCopy)
    }

    /// Ends it, and gives the last copy: after this nothing is asked for, and nothing written.
    pub async fn close(self) -> SessionCopy {
        SessionCopy(self.0.close().await)
    }
}

/// Name of a session's document.
pub(super) fn document_of(key: &SessionKey) -> DocName {
    DocName::new(&key.namespace, SESSION_CLASS, key.id.as_str())
        .expect("ids of sessions follow the rules of ids of documents")
}
