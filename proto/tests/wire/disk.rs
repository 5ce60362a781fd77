//! Keys and values of the storage engine.

use crate::strategies as some;
use proptest::prelude::*;
use rota_messages::DocKey;
use rota_messages::documents::session_name;
use rota_model::{ManagerNumber, SessionKey, SlotId};
use rota_proto::disk;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn keys_come_back_and_order_by_slot(a in some::doc_key(), b in some::doc_key()) {
        let (bytes_a, bytes_b) = (disk::encode_key(&a), disk::encode_key(&b));
        if a.slot != b.slot {
            prop_assert_eq!(bytes_a.cmp(&bytes_b), a.cmp(&b));
        }
        prop_assert_eq!(disk::decode_key(&bytes_a), Ok(a));
    }

    #[test]
    fn keys_of_one_slot_order_as_their_names_do(
        slot in any::<u32>(),
        (a, b) in (some::key(), some::key()),
    ) {
        let key = |it: SessionKey| disk::encode_key(&DocKey::new(SlotId(slot), session_name(&it)));
        prop_assert_eq!(key(a.clone()).cmp(&key(b.clone())), a.cmp(&b));
        prop_assert!(key(a) > disk::first_key_of(SlotId(slot)).to_vec());
        if slot < u32::MAX {
            prop_assert!(key(b) < disk::first_key_of(SlotId(slot + 1)).to_vec());
        }
    }

    #[test]
    fn documents_come_back_and_only_under_their_key(
        ((key, doc), other) in (some::keyed_doc(), some::doc_key()),
    ) {
        let bytes = doc.to_bytes();
        let back = disk::decode_doc(&disk::encode_key(&key), &bytes);
        prop_assert_eq!(back, Ok((key.clone(), (*doc).clone())));
        let is_there = disk::decode_doc(&disk::encode_key(&other), &bytes).is_ok();
        prop_assert_eq!(is_there, other.name == key.name);
    }

    #[test]
    fn what_a_manager_knows_of_itself_comes_back(
        (meta, identity) in (some::part_meta(), some::identity()),
        part in any::<u32>(),
    ) {
        prop_assert_eq!(disk::decode_part_meta(&disk::encode_part_meta(meta)), Ok(meta));
        let back = disk::decode_identity(&disk::encode_identity(&identity));
        prop_assert_eq!(back, Ok(identity));
        let part = ManagerNumber(part);
        prop_assert_eq!(disk::decode_part_key(&disk::encode_part_key(part)), Ok(part));
    }

    #[test]
    fn random_bytes_never_panic_a_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(key) = disk::decode_key(&bytes) {
            prop_assert_eq!(disk::encode_key(&key), bytes.clone());
        }
        let _ = rota_messages::Doc::from_bytes(&bytes);
        let _ = disk::decode_part_meta(&bytes);
        let _ = disk::decode_identity(&bytes);
        prop_assert_eq!(disk::decode_part_key(&bytes).is_ok(), bytes.len() == 4);
    }

    #[test]
    fn damaged_documents_never_panic_a_decoder(
        doc in some::doc(),
        (index, byte) in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let mut bytes = doc.to_bytes();
        let at = index.index(bytes.len());
        bytes[at] ^= byte;
        let whole = rota_messages::Doc::from_bytes(&bytes);
        // What was taken for a session's document reads as one for ever.
        drop(whole.map(|it| it.session().cloned()));
        let _ = rota_messages::Doc::from_bytes(&bytes[..at]);
    }
}

#[test]
fn a_key_that_is_too_short_or_names_no_document_is_refused() {
    for wrong in
        [&[0, 0, 0, 1][..], &[0, 0], &[0, 0, 0, 1, b'x'], &[0, 0, 0, 1, 0, 0, 0], &[255; 9]]
    {
        assert_eq!(disk::decode_key(wrong).unwrap_err().field, "key", "{wrong:?}");
    }
}
