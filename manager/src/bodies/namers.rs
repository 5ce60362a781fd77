//! Whose documents name a body, or did: whoever asks for one says by which document he knows it.

use rota_docstore::{Digest, DocName};
use rota_proto::bodies::{Names, Naming};
use std::collections::{BTreeMap, VecDeque};

/// Namespace and docid.
type Place = (String, String);

/// The documents that are kept here, seen from the bodies that they name. Those that did stay for the
/// time of grace, or until the body is collected: its content may be asked for until then.
#[derive(Debug)]
pub(super) struct Namers {
    /// How often documents of a docid name it now; 0: since then none does.
    bodies: BTreeMap<Digest, BTreeMap<Place, Count>>,
    /// What fell to 0 and when, in this order.
    given_up: VecDeque<(u64, Digest, Place)>,
    grace_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: u32,
    /// When the last one gave it up.
    since_ms: u64,
}

impl Namers {
    /// Of no documents yet.
    pub fn new(grace_ms: u64) -> Self {
        Self { bodies: BTreeMap::new(), given_up: VecDeque::new(), grace_ms }
    }

    /// A document names these bodies more often than before, and those less often.
    pub fn change(&mut self, name: &DocName, gained: &[Digest], lost: &[Digest], now_ms: u64) {
        self.forget_old(now_ms);
        let place = || (name.space().to_owned(), name.docid().to_owned());
        for sha256 in gained {
            self.bodies.entry(*sha256).or_default().entry(place()).or_default().now += 1;
        }
        for sha256 in lost {
            let count = self.bodies.get_mut(sha256).and_then(|it| it.get_mut(&place()));
            let Some(count) = count.filter(|it| it.now > 0) else { continue };
            count.now -= 1;
            if count.now == 0 {
                count.since_ms = now_ms;
                self.given_up.push_back((now_ms, *sha256, place()));
            }
        }
    }

    /// Forgets who gave a body up longer ago than the time of grace.
    fn forget_old(&mut self, now_ms: u64) {
        let grace_ms = self.grace_ms;
        let is_old = |it: &mut (u64, Digest, Place)| it.0.saturating_add(grace_ms) <= now_ms;
        while let Some((since_ms, sha256, place)) = self.given_up.pop_front_if(is_old) {
            let Some(places) = self.bodies.get_mut(&sha256) else { continue };
            // It may have been named again since, and given up again.
            let is_it = |it: &Count| it.now == 0 && it.since_ms == since_ms;
            if places.get(&place).is_some_and(is_it) {
                places.remove(&place);
            }
            if places.is_empty() {
                self.bodies.remove(&sha256);
            }
        }
    }

    /// A body is not here any more, since nobody named it.
    pub fn forget(&mut self, sha256: &Digest) {
        let is_named = |it: &BTreeMap<Place, Count>| it.values().any(|count| count.now > 0);
        if self.bodies.get(sha256).is_some_and(|it| !is_named(it)) {
            self.bodies.remove(sha256);
        }
    }

    /// Whose documents name a body, or did.
    pub fn naming(&mut self, names: &Names, now_ms: u64) -> Naming {
        self.forget_old(now_ms);
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
        let ask = |namers: &mut Namers, sha256, at: &str, docid: &str| {
            let (space, docid) = (space(at), docid.to_owned());
            let Naming { asked, others } = namers.naming(&Names { sha256, space, docid }, 50);
            (asked, others)
        };
        let mut namers = Namers::new(100);
        assert_eq!(ask(&mut namers, one, "shop", "a"), (false, false));
        namers.change(&name("Album"), &[one, one, two], &[], 1);
        namers.change(&name("Page"), &[one], &[], 2);
        assert_eq!(ask(&mut namers, one, "shop", "a"), (true, false));
        assert_eq!(ask(&mut namers, one, "shop", "b"), (false, true));
        assert_eq!(ask(&mut namers, one, "other", "a"), (false, true));
        namers.change(&name("Album"), &[], &[one, one], 3);
        namers.forget(&one);
        assert_eq!(ask(&mut namers, one, "shop", "a"), (true, false), "the page names it");
        namers.change(&name("Page"), &[], &[one], 4);
        assert_eq!(ask(&mut namers, one, "shop", "a"), (true, false), "it is still here");
        namers.forget(&one);
        assert_eq!(ask(&mut namers, one, "other", "a"), (false, false));
        assert_eq!(ask(&mut namers, two, "shop", "a"), (true, false));
    }

    #[test]
    fn a_place_is_forgotten_when_it_gave_a_body_up_a_time_of_grace_ago_though_others_name_it() {
        let space = Namespace::parse("shop").unwrap();
        let name = |docid: &str| DocName::new(&space, "Album", docid).unwrap();
        let one = Digest([1; 32]);
        let is_known = |namers: &mut Namers, docid: &str, now_ms| {
            let names = Names { sha256: one, space: space.clone(), docid: docid.to_owned() };
            namers.naming(&names, now_ms).asked
        };
        let mut namers = Namers::new(100);
        namers.change(&name("a"), &[one], &[], 0);
        namers.change(&name("b"), &[one], &[], 0);
        namers.change(&name("a"), &[], &[one], 10);
        // It comes back, and goes again: the time begins anew.
        namers.change(&name("a"), &[one], &[], 20);
        namers.change(&name("a"), &[], &[one], 30);
        assert!(is_known(&mut namers, "a", 129));
        assert!(!is_known(&mut namers, "a", 130));
        assert!(is_known(&mut namers, "b", 1_000));
        assert_eq!(namers.bodies[&one].len(), 1);
        assert!(namers.given_up.is_empty());
    }
}
