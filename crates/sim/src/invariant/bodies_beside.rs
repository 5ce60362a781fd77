//! A manager writes a document to its disk only when the bodies that it names are there: so what
//! the whole ISR has acknowledged has its bodies at the whole ISR.

use super::{Verdict, Violation};
use crate::blob_store::BlobStore;
use rota_model::ManagerNumber;
use rota_protocol::DiskWrite;

/// A manager writes this.
///
/// # Errors
/// It names a body that is not on the disk.
pub fn check(number: ManagerNumber, writes: &[DiskWrite], blob_store: &BlobStore) -> Verdict {
    for write in writes {
        let DiskWrite::Doc { doc: Some(doc), .. } = write else { continue };
        if let Some(missing) = doc.bodies().find(|it| !blob_store.has(it)) {
            let text = format!("M{number} writes {} without body {missing}", doc.name());
            return Err(Violation::new("bodies", text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writing::attachment_of;
    use crate::writing::name;
    use rota_docstore::{Content, DocumentEdit, ItemName, Schema, Stamp};
    use rota_model::SlotId;
    use rota_protocol::{Doc, DocKey};
    use std::sync::Arc;

    #[test]
    fn a_document_without_its_body_is_found() {
        let (name, attachment) = (name("docs", "b"), attachment_of("w1"));
        let mut edited = DocumentEdit::new(name.clone(), None, Arc::new(Schema::new().open()));
        edited.ensure();
        let item = ItemName::keyed("P", "w1").unwrap();
        edited.put_content(&item, Content::Attachment(attachment.clone().into())).unwrap();
        let now = Stamp::from_epoch_ms(1_800_000_000_000);
        let document = edited.settle_at(now, now, Stamp::MIN).unwrap();
        let doc = Some(Arc::new(Doc::new(Arc::new(document)).unwrap()));
        let write = [DiskWrite::Doc { key: DocKey::new(SlotId(1), name), doc }];
        let blob_store = BlobStore::default();
        assert_eq!(check(ManagerNumber(1), &write, &blob_store).unwrap_err().rule, "bodies");
        blob_store.put(attachment.sha256());
        assert_eq!(check(ManagerNumber(1), &write, &blob_store), Ok(()));
    }
}
