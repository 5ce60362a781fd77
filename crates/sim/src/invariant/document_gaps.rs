//! A watch of documents has no gaps: who followed a partition from its snapshot on knows, when nothing moves
//! any more, the newest version of every document, and whether it lives.

use super::{Verdict, Violation};
use rota_docstore::{DocName, Document};
use rota_model::{Pulled, Stamp};
use rota_protocol::DocumentCursor;
use rota_protocol::api::{DocumentChange, DocumentEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a watcher of one partition knows: version, and whether the document lives.
#[derive(Clone, Debug, Default)]
pub struct WatchedDocs {
    known: BTreeMap<DocName, (Stamp, bool)>,
    /// What the snapshot that is being told has not told yet. Where all disks were lost or went back, it tells
    /// older versions.
    untold: BTreeSet<DocName>,
    in_snapshot: bool,
}

impl WatchedDocs {
    /// An answer to a poll. Only what is told counts: a later snapshot tells of ends, too.
    pub fn on_pulled(&mut self, pulled: &Pulled<DocumentEvent, DocumentCursor>) {
        if pulled.snapshot && !self.in_snapshot {
            self.untold = self.known.keys().cloned().collect();
        }
        self.in_snapshot = pulled.snapshot && pulled.snapshot_next.is_some();
        for event in &pulled.events {
            let lives = match &event.change {
                DocumentChange::Is(_) | DocumentChange::Named | DocumentChange::TooLarge => true,
                DocumentChange::Ended | DocumentChange::Left => false,
            };
            let news = (event.version, lives);
            let known = self.known.entry(event.name.clone()).or_insert(news);
            if pulled.snapshot && self.untold.remove(&event.name) {
                *known = news;
            }
            // At least once: an older change may come again.
            *known = news.max(*known);
        }
    }

    /// Checks against the documents of that partition, ended ones included.
    ///
    /// # Errors
    /// A document whose newest version the watcher was never told.
    pub fn check(&self, documents: &[Arc<Document>]) -> Verdict {
        for document in documents {
            let known = self.known.get(document.name()).copied();
            let newest = (document.version(), !document.is_deleted());
            // What had ended when the first snapshot was made is news to nobody.
            let is_unheard = known.is_none() && document.is_deleted();
            if known != Some(newest) && !is_unheard {
                let text = format!(
                    "{} is at {newest:?} (version, lives); the watcher knows {known:?}",
                    document.name()
                );
                return Err(Violation::new("document watch", text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::DocumentParts;
    use rota_model::{LogPos, ManagerNumber, Namespace};

    fn document(docid: &str, version: Stamp, is_deleted: bool) -> Arc<Document> {
        let name = DocName::new(&Namespace::default_space(), "C", docid).unwrap();
        let (ctime, dtime, items) = (Stamp::MIN, version, Vec::new());
        let parts = DocumentParts { name, ctime, version, dtime, is_deleted, items };
        Arc::new(Document::from_parts(parts).unwrap())
    }

    #[test]
    fn a_version_or_an_end_that_a_watcher_missed_is_found() {
        let [one, two] = [1, 2].map(|ms| Stamp::MIN.plus_ms(ms));
        let mut watched = WatchedDocs::default();
        let event = |document: &Arc<Document>, change| DocumentEvent {
            name: document.name().clone(),
            ctime: document.ctime(),
            version: document.version(),
            change,
        };
        let pulled = |event: DocumentEvent, snapshot| Pulled {
            part: ManagerNumber(10),
            events: vec![event],
            snapshot,
            upto: LogPos::ZERO,
            snapshot_next: None,
        };
        let pull = |watched: &mut WatchedDocs, event| watched.on_pulled(&pulled(event, false));
        let (old, new, ended) =
            (document("a", one, false), document("a", two, false), document("a", two, true));
        pull(&mut watched, event(&old, DocumentChange::Named));
        assert_eq!(watched.check(std::slice::from_ref(&old)), Ok(()));
        assert_eq!(watched.check(std::slice::from_ref(&new)).unwrap_err().rule, "document watch");
        assert_eq!(watched.check(std::slice::from_ref(&ended)).unwrap_err().rule, "document watch");
        pull(&mut watched, event(&new, DocumentChange::Named));
        pull(&mut watched, event(&old, DocumentChange::Named));
        assert_eq!(watched.check(std::slice::from_ref(&new)), Ok(()));
        watched.on_pulled(&pulled(event(&old, DocumentChange::Named), true));
        assert_eq!(watched.check(&[old]), Ok(()), "all disks went back");
        assert!(watched.check(&[new]).is_err());
        let never = document("b", one, true);
        assert_eq!(watched.check(&[never]), Ok(()), "it ended before anybody watched");
    }
}
