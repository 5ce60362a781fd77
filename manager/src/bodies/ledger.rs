//! Which documents on this disk name which bodies: what nobody names is collected after its time of
//! grace.

use super::{Asked, Bodies};
use rota_docstore::{Digest, beyond};
use rota_model::SlotId;
use rota_protocol::{DiskWrite, Doc, DocKey};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The documents that name bodies, in step with what is written to disk.
#[derive(Debug)]
pub struct Ledger {
    bodies: Bodies,
    /// Of each such document the body of each attachment, in order.
    named: BTreeMap<DocKey, Vec<Digest>>,
    /// What each write gave up: released when it is durable.
    given_up: VecDeque<(u64, Vec<Digest>)>,
}

fn bodies_of(doc: Option<&Arc<Doc>>) -> Vec<Digest> {
    let mut bodies: Vec<Digest> = doc.into_iter().flat_map(|it| it.bodies()).collect();
    bodies.sort_unstable();
    bodies
}

impl Ledger {
    /// With the documents that are on the disk at the start, and the bodies that they name and that
    /// are not here any more, each with the slot of a document.
    pub fn new(
        bodies: Bodies,
        docs: &BTreeMap<DocKey, Arc<Doc>>,
    ) -> (Self, BTreeMap<Digest, SlotId>) {
        let named = docs.iter().map(|(key, doc)| (key.clone(), bodies_of(Some(doc))));
        let named: BTreeMap<_, _> = named.filter(|(_, bodies)| !bodies.is_empty()).collect();
        let mut counts = BTreeMap::<Digest, u64>::new();
        for sha256 in named.values().flatten() {
            *counts.entry(*sha256).or_default() += 1;
        }
        let now_ms = bodies.now_ms();
        let missing = bodies.shared.attachments.set_references(&counts, now_ms);
        let mut namers = bodies.namers();
        for (key, named) in &named {
            namers.change(&key.name, named, &[], now_ms);
        }
        drop(namers);
        let ledger = Self { bodies, named, given_up: VecDeque::new() };
        if !missing.is_empty() {
            let count = missing.len();
            tracing::error!(count, "bodies of attachments are missing here and are fetched");
        }
        let mut absent = BTreeMap::new();
        for (key, bodies) in &ledger.named {
            let missing = bodies.iter().filter(|it| missing.binary_search(it).is_ok());
            absent.extend(missing.map(|it| (*it, key.slot)));
        }
        (ledger, absent)
    }

    fn mend(&self, key: &DocKey, bodies: Vec<Digest>) {
        if bodies.is_empty() {
            return;
        }
        let asked = Asked { slot: key.slot, bodies, lasting: true };
        if self.bodies.shared.asked.try_send(asked).is_err() {
            tracing::error!(document = %key.name, "a missing body is fetched at the next start");
        }
    }

    /// These writes go to disk. The bodies that they name are here: the decisions saw to it.
    pub fn on_persist(&mut self, lsn: u64, writes: &[DiskWrite]) {
        let (mut given_up, now_ms) = (Vec::new(), self.bodies.now_ms());
        for write in writes {
            let DiskWrite::Doc { key, doc } = write else { continue };
            let after = bodies_of(doc.as_ref());
            let before = if after.is_empty() {
                self.named.remove(key)
            } else {
                self.named.insert(key.clone(), after.clone())
            };
            let before = before.unwrap_or_default();
            let (after, before) = (after.iter().copied(), before.iter().copied());
            let (gained, lost) = (beyond(after.clone(), before.clone()), beyond(before, after));
            if gained.len() + lost.len() > 0 {
                self.bodies.namers().change(&key.name, &gained, &lost, now_ms);
            }
            given_up.extend(lost);
            if !gained.is_empty() {
                let attachments = &self.bodies.shared.attachments;
                let missing = attachments.refer_all(&gained, now_ms);
                // A file that was found damaged this very moment.
                self.mend(key, missing);
            }
        }
        if !given_up.is_empty() {
            self.given_up.push_back((lsn, given_up));
        }
    }

    /// Everything up to this number is on disk.
    pub fn on_durable(&mut self, lsn: u64) {
        while let Some((_, bodies)) = self.given_up.pop_front_if(|(due, _)| *due <= lsn) {
            let released = self.bodies.shared.attachments.release(&bodies, self.bodies.now_ms());
            if let Err(error) = released {
                tracing::error!(%error, "the references of bodies do not add up");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::{
        Attachment, Content, DocName, DocumentEdit, ItemName, Namespace, Schema, Stamp,
    };
    use rota_model::{ClusterName, ManagerNumber, SlotId};
    use rota_storage::attachments::digest_of;

    fn name() -> DocName {
        DocName::new(&Namespace::default_space(), "Album", "a").unwrap()
    }

    /// The document with these attachments.
    fn write(bodies: &[&[u8]]) -> DiskWrite {
        let mut edited = DocumentEdit::new(name(), None, Arc::new(Schema::new().open()));
        edited.ensure();
        for (key, body) in bodies.iter().enumerate() {
            let attachment = Attachment::new("a/b", body.len() as u64, digest_of(body)).unwrap();
            let item = ItemName::keyed("P", &key.to_string()).unwrap();
            edited.put_content(&item, Content::Attachment(attachment.into())).unwrap();
        }
        let now = Stamp::from_epoch_ms(1_800_000_000_000);
        let document = edited.settle_at(now, now, Stamp::MIN).unwrap();
        let doc = Some(Arc::new(Doc::new(Arc::new(document)).unwrap()));
        DiskWrite::Doc { key: DocKey::new(SlotId(3), name()), doc }
    }

    #[test]
    fn bodies_are_counted_as_often_as_documents_name_them_and_released_when_that_is_durable() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ClusterName::parse("c").unwrap();
        let (bodies, _fetcher) =
            crate::bodies::of_test(folder.path(), &cluster, ManagerNumber(100));
        let attachments = bodies.shared.attachments.clone();
        for body in [b"one", b"two"] {
            attachments.put(digest_of(body), 3, &body[..], 1).unwrap();
        }
        let counts = || [b"one", b"two"].map(|body| attachments.references(&digest_of(body)));
        let (mut ledger, _) = Ledger::new(bodies.clone(), &BTreeMap::new());
        ledger.on_persist(1, &[write(&[b"one", b"one", b"two"])]);
        assert_eq!(counts(), [2, 1]);
        ledger.on_persist(2, &[write(&[b"two", b"two", b"two"])]);
        assert_eq!(counts(), [2, 3], "the old content is not given up before that is durable");
        ledger.on_durable(1);
        assert_eq!(counts(), [2, 3]);
        ledger.on_durable(2);
        assert_eq!(counts(), [0, 3]);
        let DiskWrite::Doc { key, .. } = write(&[]) else { unreachable!("it writes a document") };
        ledger.on_persist(3, &[DiskWrite::Doc { key, doc: None }]);
        ledger.on_durable(7);
        assert_eq!(counts(), [0, 0]);
    }
}
