//! All documents of a range of slots, page by page.

use super::{Shared, Unanswered};
use rota_docstore::{DocName, Document, SlotId};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Documents that one page holds: finding them takes less than 0.1 ms, for which operations wait.
const PAGE: usize = 256;

/// See [`super::DocumentStore::stream`].
#[derive(Debug)]
pub struct Stream<'a> {
    shared: &'a Shared,
    from: (SlotId, Option<DocName>),
    last: SlotId,
    page: std::vec::IntoIter<(SlotId, Arc<Document>)>,
    is_over: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(shared: &'a Shared, slots: RangeInclusive<SlotId>) -> Self {
        let (first, last) = slots.into_inner();
        let page = Vec::new().into_iter();
        Self { shared, from: (first, None), last, page, is_over: false }
    }

    fn read_page(&mut self) -> Result<(), Unanswered> {
        let books = self.shared.books();
        let (slot, after) = &self.from;
        let (page, position) = books.page((*slot, after.as_ref()), self.last, PAGE);
        drop(books);
        self.shared.await_disk(position, self.shared.deadline())?;
        match page.last() {
            Some((slot, document)) => self.from = (*slot, Some(document.name().clone())),
            None => self.is_over = true,
        }
        self.page = page.into_iter();
        Ok(())
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Arc<Document>, Unanswered>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((_, document)) = self.page.next() {
                return Some(Ok(document));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.read_page() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
    }
}
