//! Program sessions that an earlier agent of this folder began. What runs of them goes on under its keeper, and what
//! ended meanwhile is told.
//!
//! ```text
//!  folder ── run.json ──▶ Terms ──▶ ports, user, groups are held again
//!         ── pids.json ─▶ keeper: runs ──▶ connect, and go on as with one that was started here
//!         ── news ──────▶         gone ──▶ tell the end that it wrote down; none: end what is left
//! ```

use super::keeper_link::KeeperLink;
use super::running::{Holds, Running, Session, Stage};
use super::terms::Terms;
use super::{Runtime, Task};
use crate::observe::Listed;
use rota_model::{SessionKey, SlotId, Stamp, Token};
use rota_node::NodeInput;
use std::time::Duration;
use tokio::sync::watch;

/// A program session that an earlier agent of this folder began, as its journal has it.
pub struct AdoptOrder {
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: Stamp,
    /// Its slot.
    pub slot: SlotId,
    /// It was told to be ready.
    pub ready: bool,
}

impl Runtime {
    /// Goes on with a session. What is known at once is put into `news`; the rest comes by mailbox. Its folder must
    /// have been spared: by [`crate::leftovers::end_all`], and when this runtime was made.
    pub fn adopt(&mut self, order: AdoptOrder, news: &mut Vec<NodeInput>) {
        let AdoptOrder { key, token, life, slot, ready } = order;
        let Some((folder, terms)) = Terms::find(&self.settings.sessions, &key, token) else {
            let detail = "the node's agent ended before it was started".to_owned();
            return news.push(NodeInput::StartFailed { key, token, detail });
        };
        if (terms.life, terms.slot) != (life, slot) {
            tracing::warn!(session = %key, %token, ?terms, "it runs by other terms than were written down");
        }
        self.folders.go_on(&key, token, &folder);
        let listed = Listed {
            life: terms.life,
            class: terms.class.clone(),
            limits: terms.held.limits(),
            folder: folder.clone(),
            keeper: None,
            groups: terms.held.groups().to_vec(),
            cpu: Duration::ZERO,
        };
        // At once: what starts next must not be given what this one has.
        let holds = Holds::again(&terms);
        let (stop, stopped) = watch::channel(None);
        let (request, task) = (terms.request.clone(), Task { stop, grace_ms: terms.grace_ms });
        let session = Session {
            settings: self.settings.clone(),
            entry: self.settings.listing.begin(key.clone(), token, listed),
            terms,
            folder,
            stop: stopped,
            mailbox: self.mailbox.clone(),
        };
        let stage = if ready { Stage::Ready } else { Stage::Asked };
        self.spawn((key, token), request.as_ref(), task, go_on(session, holds, stage));
    }
}

async fn go_on(session: Session, holds: Holds, stage: Stage) {
    let Session { settings, terms, folder, .. } = &session;
    let link = Box::pin(KeeperLink::again(folder, terms, settings)).await;
    if let Some(keeper) = link.pid() {
        tracing::info!(keeper, "a program of an earlier agent goes on");
    }
    Box::pin(Running::new(session, link, holds, stage).run()).await;
}
