//! UUIDs of resources that have names.

use crate::Kind;
use uuid::Uuid;

/// Rota's namespace: every UUID of [`uuid_of`] is one of version 5 within it. Another value would give every
/// resource another UUID, and so another number.
pub const NAMESPACE: Uuid = Uuid::from_u128(0x346d_d697_2d2a_4812_a4fe_ebff_90db_9c76);

/// The UUID of a resource that has a type, a namespace (or a text that names its parent) and an id. The same
/// three give the same UUID everywhere and always.
///
/// It is the UUID of version 5 of the text `kind:length:within` followed by the id, where the length is that
/// of `within` in bytes. So no two different triples have one text, whatever characters they hold.
///
/// ```
/// let session = rota_ids::Kind::parse("Session")?;
/// let uuid = rota_ids::uuid_of(&session, "default", "demo");
/// assert_eq!(uuid, rota_ids::Uuid::new_v5(&rota_ids::NAMESPACE, b"Session:7:defaultdemo"));
/// # Ok::<(), rota_model::FieldError>(())
/// ```
pub fn uuid_of(kind: &Kind, within: &str, id: &str) -> Uuid {
    let text = format!("{kind}:{}:{within}{id}", within.len());
    Uuid::new_v5(&NAMESPACE, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_uuid_of_a_resource_is_the_same_in_every_release() {
        let uuid = uuid_of(&Kind::parse("Session").unwrap(), "default", "demo");
        assert_eq!(uuid.to_string(), "09e07afd-3f68-53f5-ae0b-d799520db59a");
        assert_eq!(uuid.get_version_num(), 5);
    }

    #[test]
    fn parts_that_read_the_same_when_put_together_give_different_uuids() {
        let of =
            |kind: &str, within: &str, id: &str| uuid_of(&Kind::parse(kind).unwrap(), within, id);
        assert_ne!(of("Node", "ab", "c"), of("Node", "a", "bc"));
        assert_ne!(of("Node", "", "abc"), of("Node", "abc", ""));
        assert_ne!(of("Node", "1:a", "b"), of("Node", "1", ":ab"));
        assert_ne!(of("Node", "a", "b"), of("Pool", "a", "b"));
    }

    proptest! {
        #[test]
        fn different_triples_give_different_uuids(
            left in ("[a-b1-2]{1,2}", "[a-b1-2:]{0,3}", "[a-b1-2:]{0,3}"),
            right in ("[a-b1-2]{1,2}", "[a-b1-2:]{0,3}", "[a-b1-2:]{0,3}"),
        ) {
            let of = |triple: &(String, String, String)| {
                uuid_of(&Kind::parse(&triple.0).unwrap(), &triple.1, &triple.2)
            };
            prop_assert_eq!(left == right, of(&left) == of(&right));
        }
    }
}
