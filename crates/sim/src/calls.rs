//! Calls to managers that are under way: what each belongs to, and what its answer says.

use rota_lifecycle::LifeItem;
use rota_model::{Filter, ManagerNumber, SessionKey, Stamp};
use rota_protocol::{Answer, OpResult};

/// What a call under way belongs to.
#[derive(Clone, Debug)]
pub enum CallFor {
    /// A try of a request: client, index in the book, index of the try.
    Try(usize, usize, usize),
    /// A page of a list: client, when sent, what it was to show.
    Page(usize, u64, Box<Filter>),
    /// A page of the last list, by the observer.
    LastPage(ManagerNumber, u64),
    /// A watcher's pull from a partition.
    Pull(ManagerNumber),
    /// A poll of the watcher of documents.
    Documents(ManagerNumber),
    /// A try of a writer's: writer, index in its book, when it was sent.
    Write(usize, usize, u64),
    /// The last reading of documents, by the observer: when it was sent.
    LastSync(u64),
    /// The last reading of what is copied.
    LastCopies,
    /// A description of the pool.
    Describe,
    /// A look at what a node has.
    Mend,
    /// A client takes an item of a life cycle back.
    TakeBack(Box<TakeBack>),
}

/// An item that a client takes back.
#[derive(Clone, Debug)]
pub struct TakeBack {
    /// Which client.
    pub client: usize,
    /// Which session.
    pub key: SessionKey,
    /// Of that life only.
    pub life: Stamp,
    /// What.
    pub item: LifeItem,
    /// How often it is still asked for.
    pub tries: u32,
}

/// What an answer says, in one word, for counting.
pub fn what_of(result: &OpResult) -> &'static str {
    match result {
        Ok(Answer::Opened { outcome, .. }) => outcome.as_str(),
        Ok(Answer::Closed { finished: true, .. }) => "CLOSED",
        Ok(Answer::Closed { finished: false, .. }) => "CLOSED_UNFINISHED",
        Ok(Answer::Got { .. }) => "GOT",
        Ok(Answer::Listed(_)) => "LISTED",
        Ok(Answer::Pulled(_)) => "PULLED",
        Ok(Answer::KeptAlive { .. }) => "KEPT_ALIVE",
        Ok(Answer::Reported) => "REPORTED",
        Ok(Answer::Mended(mended)) => mended.step.as_str(),
        Ok(Answer::Numbers(_)) => "NUMBERS",
        Ok(Answer::Tasks(_)) => "TASKS",
        Ok(Answer::Lives(_)) => "LIFE",
        Ok(Answer::Found(Ok(_))) => "FOUND",
        Ok(Answer::Found(Err(_))) => "NOT_FOUND",
        Ok(Answer::Documents(_)) => "DOCUMENTS",
        Err(refusal) => refusal.kind.as_str(),
    }
}
