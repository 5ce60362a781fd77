//! Whose documents name a body, or did: whoever asks for one says by which document he knows it.

use rota_docstore::{Digest, DocName};
use rota_proto::bodies::{Names, Naming};
use std::collections::BTreeMap;

/// Namespace and docid.
type Place = (String, String);

/// The documents that are kept here, seen from the bodies that they name. Those that did stay, without
/// a count, until the body is collected: its content may be asked for until then.
#[derive(Debug, Default)]
pub(super) struct Namers {
    /// How often documents of a docid name it now.
    bodies: BTreeMap<Digest, BTreeMap<Place, u32>>,
}

impl Namers {
    /// A document names these bodies more often than before, and those less often.
    pub fn change(&mut self, name: &DocName, gained: &[Digest], given_up: &[Digest]) {
        let place = || (name.space().to_owned(), name.docid().to_owned());
        for sha256 in gained {
            *self.bodies.entry(*sha256).or_default().entry(place()).or_default() += 1;
        }
        for sha256 in given_up {
            let count = self.bodies.get_mut(sha256).and_then(|it| it.get_mut(&place()));
            if let Some(count) = count {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// A body is not here any more, since nobody named it.
    pub fn forget(&mut self, sha256: &Digest) {
        let is_named = |it: &BTreeMap<Place, u32>| it.values().any(|count| *count > 0);
        if self.bodies.get(sha256).is_some_and(|it| !is_named(it)) {
            self.bodies.remove(sha256);
        }
    }

    /// Whose documents name a body, or did.
    pub fn naming(&self, names: &Names) -> Naming {
        let Some(places) = self.bodies.get(&names.sha256) else { return Naming::default() };
        let is_asked = |it: &&Place| it.0 == names.space.as_str() && it.1 == names.docid;
        let asked = places.keys().any(|it| is_asked(&it));
        Naming { asked, others: places.len() > usize::from(asked) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::Namespace;

    #[test]
    fn a_place_that_named_a_body_is_known_until_the_body_is_gone_and_others_are_told_apart() {
        let space = |it: &str| Namespace::parse(it).unwrap();
        let name = |class: &str| DocName::new(&space("shop"), class, "a").unwrap();
        let (one, two) = (Digest([1; 32]), Digest([2; 32]));
        let ask = |namers: &Namers, sha256, at: &str, docid: &str| {
            let (space, docid) = (space(at), docid.to_owned());
            let Naming { asked, others } = namers.naming(&Names { sha256, space, docid });
            (asked, others)
        };
        let mut namers = Namers::default();
        assert_eq!(ask(&namers, one, "shop", "a"), (false, false));
        namers.change(&name("Album"), &[one, one, two], &[]);
        namers.change(&name("Page"), &[one], &[]);
        assert_eq!(ask(&namers, one, "shop", "a"), (true, false));
        assert_eq!(ask(&namers, one, "shop", "b"), (false, true));
        assert_eq!(ask(&namers, one, "other", "a"), (false, true));
        namers.change(&name("Album"), &[], &[one, one]);
        namers.forget(&one);
        assert_eq!(ask(&namers, one, "shop", "a"), (true, false), "the page names it");
        namers.change(&name("Page"), &[], &[one]);
        assert_eq!(ask(&namers, one, "shop", "a"), (true, false), "it is still here");
        namers.forget(&one);
        assert_eq!(ask(&namers, one, "other", "a"), (false, false));
        assert_eq!(ask(&namers, two, "shop", "a"), (true, false));
    }
}
