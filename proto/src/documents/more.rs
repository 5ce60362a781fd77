//! Documents and changes that are too large for one record: cut into several, and put together again.

use super::{MESSAGE_BYTES_MAX, UPDATES_BYTES_MAX};
use crate::v1;
use crate::v1::document_update::Update;
use prost::Message;

/// What a part takes beside its own bytes: tag and length.
const AROUND_BYTES: usize = 8;

/// What a record has beside items and names: names and stamps of the document, tags and lengths.
const HEAD_BYTES: usize = 4 * 1024;

/// What has items that may be more than fit into a record.
pub(super) trait Long {
    /// Its items, and the names of items that stay; `None`: it has none of them.
    fn lists(&mut self) -> (Option<&mut Vec<v1::DocumentItem>>, Option<&mut Vec<v1::ItemName>>);
}

impl Long for v1::Document {
    fn lists(&mut self) -> (Option<&mut Vec<v1::DocumentItem>>, Option<&mut Vec<v1::ItemName>>) {
        (Some(&mut self.items), None)
    }
}

impl Long for v1::DocumentUpdate {
    fn lists(&mut self) -> (Option<&mut Vec<v1::DocumentItem>>, Option<&mut Vec<v1::ItemName>>) {
        match &mut self.update {
            Some(Update::Full(document)) => document.lists(),
            Some(Update::Changes(changes)) => {
                (Some(&mut changes.items), changes.unchanged.as_mut().map(|it| &mut it.names))
            }
            Some(
                Update::Unchanged(_)
                | Update::Deleted(_)
                | Update::AbsentAsOf(_)
                | Update::SourceBehind(_)
                | Update::TooLarge(_),
            )
            | None => (None, None),
        }
    }
}

/// Takes what fits off the beginning, and gives the rest in pieces that fit, in order.
struct Cutter {
    room: usize,
    rest: Vec<v1::DocumentMore>,
}

impl Cutter {
    fn cut<T: Message>(&mut self, list: &mut Vec<T>, of: fn(&mut v1::DocumentMore) -> &mut Vec<T>) {
        for part in std::mem::take(list) {
            let bytes = part.encoded_len() + AROUND_BYTES;
            if bytes > self.room {
                self.room = UPDATES_BYTES_MAX - HEAD_BYTES;
                self.rest.push(v1::DocumentMore::default());
            }
            self.room = self.room.saturating_sub(bytes);
            match self.rest.last_mut() {
                None => list.push(part),
                Some(more) => of(more).push(part),
            }
        }
    }
}

/// Cuts off what does not fit into one record: what is left fits, and so does each of what is given.
pub(super) fn cut<T: Long + Message>(long: &mut T) -> Vec<v1::DocumentMore> {
    if long.encoded_len() <= UPDATES_BYTES_MAX {
        return Vec::new();
    }
    let mut cutter = Cutter { room: UPDATES_BYTES_MAX - HEAD_BYTES, rest: Vec::new() };
    let (items, unchanged) = long.lists();
    if let Some(items) = items {
        cutter.cut(items, |it| &mut it.items);
    }
    if let Some(unchanged) = unchanged {
        cutter.cut(unchanged, |it| &mut it.unchanged);
    }
    cutter.rest
}

/// What has begun, until its last record has come.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Growing<T> {
    begun: T,
    missing: u32,
    bytes: usize,
}

impl<T: Long + Message> Growing<T> {
    /// The first record has come; so many follow.
    pub(super) fn new(begun: T, missing: u32) -> Self {
        let bytes = begun.encoded_len();
        Self { begun, missing, bytes }
    }

    /// Records that are to come.
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    /// Takes one more record; the error says what is wrong with it. What was begun is whole when none is missing.
    pub(super) fn take(&mut self, more: v1::DocumentMore) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(more.encoded_len());
        if self.bytes > MESSAGE_BYTES_MAX {
            return Err(format!("makes a document of more than {MESSAGE_BYTES_MAX} bytes"));
        }
        self.missing = self.missing.saturating_sub(1);
        let v1::DocumentMore { items, unchanged } = more;
        let (has_items, has_names) = (!items.is_empty(), !unchanged.is_empty());
        let (begun_items, begun_names) = self.begun.lists();
        match begun_items {
            Some(begun) => begun.extend(items),
            None if has_items => return Err("has items of nothing".to_owned()),
            None => {}
        }
        match begun_names {
            Some(begun) => begun.extend(unchanged),
            None if has_names => return Err("has names of items that nothing changes".to_owned()),
            None => {}
        }
        Ok(())
    }

    /// What has come.
    pub(super) fn whole(self) -> T {
        self.begun
    }
}
