//! Whoever uses a cluster: clients, watchers, and who describes the pool.
//!
//! They stand on the [`Ground`] alone: they draw from its random numbers, write to its queue,
//! and reach managers and nodes by what they send. Nothing here sees a manager or a node.

mod admin_host;
mod client_host;
mod document_watcher;
mod last_lists;
pub mod last_readings;
mod pages;
pub mod take_backs;
mod watcher;
mod writer_host;

pub use self::admin_host::AdminHost;
pub use self::client_host::ClientHost;
pub use self::document_watcher::DocumentWatcher;
pub use self::last_lists::LastLists;
use self::last_readings::{on_copies, on_documents};
use self::pages::note_page;
use self::take_backs::{TakeBacks, on_taken_back};
pub use self::watcher::{Watcher, filter_of};
use self::writer_host::WRITERS;
pub use self::writer_host::WriterHost;
use crate::calls::CallFor;
use crate::event::Event;
use crate::ground::Ground;
use crate::packet::Packet;
use rota_model::Filter;
use rota_protocol::{Answer, OpResult};

/// The users of a cluster.
pub struct Users {
    /// Clients that work with sessions.
    pub clients: Vec<ClientHost>,
    /// What clients take back of life cycles.
    pub take_backs: TakeBacks,
    /// Clients that work with documents.
    pub writers: Vec<WriterHost>,
    /// Whoever describes the pool.
    pub admin: AdminHost,
    /// The watcher of sessions.
    pub watcher: Watcher,
    /// The watcher of documents.
    pub document_watcher: DocumentWatcher,
    /// What the observer lists at the end.
    pub last_lists: LastLists,
}

impl Users {
    /// Those of a seed's cluster, before they do anything.
    pub fn new(seed: u64) -> Self {
        Self {
            clients: Vec::new(),
            take_backs: TakeBacks::default(),
            writers: Vec::new(),
            admin: AdminHost::new(seed),
            watcher: Watcher::default(),
            document_watcher: DocumentWatcher::default(),
            last_lists: LastLists::default(),
        }
    }

    /// They come, and are about to begin.
    pub fn begin(&mut self, ground: &mut Ground) {
        for index in 0..ground.setup.clients {
            self.clients.push(ClientHost::new(index, ground.rng.fork()));
            let delay_us = ground.rng.within(300_000, 600_000);
            ground.queue.after(delay_us, Event::ClientNext(index));
        }
        for index in 0..WRITERS {
            self.writers.push(WriterHost::new(index, ground.rng.fork()));
            let delay_us = ground.rng.within(300_000, 600_000);
            ground.queue.after(delay_us, Event::WriterNext(index));
        }
    }

    /// They work again, on a healed cluster.
    pub fn go_on(&self, ground: &mut Ground) {
        for index in 0..self.clients.len() {
            ground.queue.after(1_000, Event::ClientNext(index));
        }
        for index in 0..self.writers.len() {
            ground.queue.after(1_000, Event::WriterNext(index));
        }
    }

    /// Whether a request of a client is under way.
    pub fn clients_are_busy(&self) -> bool {
        self.clients.iter().any(ClientHost::is_busy)
    }

    /// Whether a client or a writer has something under way.
    pub fn are_busy(&self) -> bool {
        self.clients_are_busy() || self.writers.iter().any(WriterHost::is_busy)
    }

    /// A client does its next thing.
    pub fn on_client_next(&mut self, ground: &mut Ground, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.on_next(ground);
        }
    }

    /// A reply reaches a user.
    pub fn gets(&mut self, ground: &mut Ground, packet: Packet) {
        let Packet::Reply { call, result } = packet else { return };
        match ground.calls.remove(&call) {
            Some(CallFor::Try(index, asked, attempt)) => {
                self.on_answer(ground, (index, asked, attempt), result);
            }
            Some(CallFor::Page(index, sent_us, filter)) => {
                note_page(ground, sent_us, &result, &filter);
                if let Some(client) = self.clients.get_mut(index) {
                    client.rest(ground);
                }
            }
            Some(CallFor::LastPage(number, sent_us)) => {
                note_page(ground, sent_us, &result, &Filter::default());
                self.last_lists.on_page(ground, number, result);
            }
            Some(CallFor::Pull(part)) => self.watcher.on_pulled(ground, part, Some(result)),
            Some(CallFor::Documents(part)) => {
                self.document_watcher.on_told(ground, part, Some(result));
            }
            Some(CallFor::Write(index, asked, sent_us)) => {
                if let Some(writer) = self.writers.get_mut(index) {
                    writer.on_written(ground, asked, sent_us, &result);
                }
            }
            Some(CallFor::LastSync(sent_us)) => on_documents(ground, sent_us, Some(&result)),
            Some(CallFor::LastCopies) => on_copies(ground, Some(&result)),
            Some(CallFor::Describe) => self.admin.on_described(ground, Some(&result)),
            Some(CallFor::TakeBack(it)) => on_taken_back(ground, it, Some(&result)),
            Some(CallFor::Mend) | None => {}
        }
    }

    /// A user waits no longer for a call: it asks again, or gives up.
    pub fn on_timeout(&mut self, ground: &mut Ground, call: u64) {
        match ground.calls.remove(&call) {
            Some(CallFor::Try(index, asked, _)) => {
                if let Some(client) = self.clients.get_mut(index) {
                    client.on_timeout(ground, asked);
                }
            }
            Some(CallFor::Page(index, _, _)) => {
                if let Some(client) = self.clients.get_mut(index) {
                    client.rest(ground);
                }
            }
            Some(CallFor::LastPage(number, _)) => self.last_lists.ask_page(ground, number),
            Some(CallFor::Pull(part)) => self.watcher.on_pulled(ground, part, None),
            Some(CallFor::Documents(part)) => self.document_watcher.on_told(ground, part, None),
            Some(CallFor::Write(index, asked, _)) => {
                if let Some(writer) = self.writers.get_mut(index) {
                    writer.write_again(ground, asked, 0);
                }
            }
            Some(CallFor::LastSync(sent_us)) => on_documents(ground, sent_us, None),
            Some(CallFor::LastCopies) => on_copies(ground, None),
            Some(CallFor::Describe) => self.admin.on_described(ground, None),
            Some(CallFor::TakeBack(it)) => on_taken_back(ground, it, None),
            Some(CallFor::Mend) | None => {}
        }
    }

    /// A try of a request was answered. Of a session that runs, the client may take something back.
    fn on_answer(
        &mut self,
        ground: &mut Ground,
        (index, asked, attempt): (usize, usize, usize),
        result: OpResult,
    ) {
        if let Ok(Answer::Opened { session, .. } | Answer::Got { session, .. }) = &result {
            self.take_backs.plan(ground, index, &session.record);
        }
        if let Some(client) = self.clients.get_mut(index) {
            client.on_answer(ground, asked, attempt, result);
        }
    }

    /// A writer does its next thing.
    pub fn on_writer_next(&mut self, ground: &mut Ground, index: usize) {
        if let Some(writer) = self.writers.get_mut(index) {
            writer.on_next(ground);
        }
    }

    /// How many long polls wait at managers on purpose.
    pub fn polls(&self) -> usize {
        self.watcher.parts.len() + self.document_watcher.parts.len()
    }
}
