//! Long polls: those of managers that follow the descriptions of namespaces, and those that watches are made of.

use crate::api::{DocumentCursor, DocumentOp, Op, Reader};
use rota_docstore::{DocName, Document, Usage};
use rota_model::{Epoch, LogPos, Namespace, PullOp, SlotId, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What partitions hold of namespaces with limits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CountedUsage {
    /// Of the View in which they were counted: another one gives partitions to other owners.
    pub epoch: Epoch,
    /// By namespace. One that is not there holds nothing.
    pub usages: BTreeMap<String, Usage>,
}

/// Wait for news of the descriptions of namespaces (a long poll).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FollowOp {
    /// The latest version that is known; [`Stamp::MIN`] asks for all.
    pub since: Stamp,
    /// Answer with no news after this time.
    pub wait_ms: u64,
    /// What the partitions hold that the asker owns; `None` when it knows of no limits.
    pub held: Option<CountedUsage>,
}

/// A filter of documents as a watch is given it. The owner knows which fields there are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ItemFilter {
    /// In the filter language of searches.
    pub text: String,
    /// The class of items that its conditions on fields are about; `None`: it has none.
    pub item: Option<String>,
}

/// Which documents a watch shows, and what of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WatchedDocuments {
    /// Of this namespace.
    pub space: Namespace,
    /// Of this class.
    pub class: Option<String>,
    /// The one of this id. Then there is a class.
    pub docid: Option<String>,
    /// Those that pass. Then there is a class.
    pub filter: Option<ItemFilter>,
    /// Names and versions only.
    pub names_only: bool,
}

impl WatchedDocuments {
    /// The document, if it is one.
    pub fn one(&self) -> Option<DocName> {
        let (class, docid) = self.class.as_deref().zip(self.docid.as_deref())?;
        DocName::new(&self.space, class, docid).ok()
    }

    /// Whether a document of that name is meant. What remembers operations is nobody's data.
    pub fn is_meant(&self, name: &DocName) -> bool {
        name.space() == self.space.as_str()
            && self.class.as_deref().is_none_or(|it| it == name.class())
            && self.docid.as_deref().is_none_or(|it| it == name.docid())
            && !name.is_memory()
    }

    /// About how many bytes it holds beside itself.
    pub(crate) fn bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, |it| it.text.len())
    }
}

/// Wait for changes of documents in one partition (a long poll of a watch).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WatchOp {
    /// Who reads.
    pub reader: Arc<Reader>,
    /// What is watched.
    pub of: Arc<WatchedDocuments>,
    /// A slot of the partition; of one document its own.
    pub slot: SlotId,
    /// Changes after this position; `None` asks for a snapshot first.
    pub from: Option<LogPos>,
    /// Continue a snapshot after this document.
    pub snapshot_after: Option<DocumentCursor>,
    /// In a snapshot: tell what has ended, and what does not pass the filter, too. Who was told of
    /// documents earlier must hear of that.
    pub tells_absent: bool,
    /// Most events in one answer.
    pub limit: u32,
    /// Answer with no events after this time, so that the caller sees progress.
    pub wait_ms: u64,
}

/// What a watch tells of a document.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DocumentEvent {
    /// Its name.
    pub name: DocName,
    /// Its life.
    pub ctime: Stamp,
    /// A version that is committed.
    pub version: Stamp,
    /// What is told of that version.
    pub change: DocumentChange,
}

/// How a document is at a version.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentChange {
    /// So.
    Is(Arc<Document>),
    /// Its contents are not told.
    Named,
    /// Its contents are more than a message takes. Owners tell all; the client's manager leaves them out.
    TooLarge,
    /// Its life has ended.
    Ended,
    /// It does not pass the filter, whether or not it did earlier.
    Left,
}

/// What long polls of watches have alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Poll {
    /// Changes after this position.
    pub from: Option<LogPos>,
    /// A later page of a snapshot.
    pub is_in_snapshot: bool,
    /// Most events in one answer.
    pub limit: u32,
    /// How long its owner may hold it.
    pub wait_ms: u64,
}

impl Op {
    /// As a long poll of a watch, if it is one.
    pub fn poll(&self) -> Option<Poll> {
        match self {
            Op::Pull(PullOp { from, snapshot_after, limit, wait_ms, .. }) => Some(Poll {
                from: *from,
                is_in_snapshot: snapshot_after.is_some(),
                limit: *limit,
                wait_ms: *wait_ms,
            }),
            Op::Documents(DocumentOp::Watch(op)) => Some(Poll {
                from: op.from,
                is_in_snapshot: op.snapshot_after.is_some(),
                limit: op.limit,
                wait_ms: op.wait_ms,
            }),
            Op::Documents(_)
            | Op::Open(_)
            | Op::Close(_)
            | Op::Get(_)
            | Op::KeepAlive(_)
            | Op::List(_)
            | Op::Report(_)
            | Op::Mend(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Lives(_) => None,
        }
    }

    /// A long poll of a watch found nothing up to here: it goes on after that. In the middle of a snapshot
    /// it stays where it is.
    pub fn looked_through(&mut self, upto: LogPos) {
        let from = match self {
            Op::Pull(PullOp { from, snapshot_after: None, .. })
            | Op::Documents(DocumentOp::Watch(WatchOp { from, snapshot_after: None, .. })) => from,
            Op::Pull(_)
            | Op::Documents(_)
            | Op::Open(_)
            | Op::Close(_)
            | Op::Get(_)
            | Op::KeepAlive(_)
            | Op::List(_)
            | Op::Report(_)
            | Op::Mend(_)
            | Op::Numbers(_)
            | Op::Tasks(_)
            | Op::Search(_)
            | Op::Lives(_) => return,
        };
        if let Some(from) = from {
            *from = upto.max(*from);
        }
    }
}
