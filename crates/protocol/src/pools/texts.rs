//! Which text of each class counts in a pool, while nodes may have several. It is kept in the pool's document: every
//! manager hears of it, also when no node is there.

use crate::log::at::At;
use crate::pools::state::Pools;
use crate::ports::slots::slot_of_spaces;
use rota_messages::documents::{Texts, pool_name, read_pool};
use rota_messages::{Doc, DocKey, Write};
use rota_model::{ClassName, ClassText, PoolName, Stamp};
use rota_ring::NodeReg;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most classes of a pool whose texts are kept.
const TEXTS_MAX: usize = 1_000;

/// Of each class the text that most nodes have. Of equally many the one that is kept counts, and else the lowest.
fn texts_of<'a>(nodes: impl Iterator<Item = &'a NodeReg>, kept: &Texts) -> Texts {
    let mut counts = BTreeMap::<&ClassName, BTreeMap<_, (u32, &NodeReg)>>::new();
    for reg in nodes {
        for (class, digest) in &reg.digests {
            counts.entry(class).or_default().entry(*digest).or_insert((0, reg)).0 += 1;
        }
    }
    let mut texts = Texts::new();
    for (class, of) in counts {
        let is_kept = |digest| kept.get(class).is_some_and(|it| it.digest == digest);
        let most = of
            .into_iter()
            .max_by_key(|(digest, (count, _))| (*count, is_kept(*digest), Reverse(*digest)));
        if let Some((digest, (_, reg))) = most {
            let facts = reg.facts.get(class).cloned().unwrap_or_default();
            texts.insert(class.clone(), ClassText { digest, facts });
        }
    }
    texts
}

/// What changes of the texts that are kept: new ones, and classes that no node of the pool has any more. As
/// many are kept as there is room for.
fn changes(kept: &Texts, mut now: Texts) -> (Texts, Vec<ClassName>) {
    let gone: Vec<ClassName> = kept.keys().filter(|it| !now.contains_key(*it)).cloned().collect();
    let mut room = TEXTS_MAX.saturating_sub(kept.len() - gone.len());
    now.retain(|class, text| match kept.get(class) {
        Some(before) => before != text,
        None => {
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        }
    });
    (now, gone)
}

impl Pools {
    /// At the owner of all descriptions: writes down which texts count, when nodes came, went or changed. A
    /// pool without nodes keeps what it had.
    pub fn keep_texts(&mut self, led: &mut At<'_>) {
        let (index, m) = (led.env.nodes.index, led.env.view().m);
        let slot = slot_of_spaces(m);
        if self.texts_index == index || led.env.view().home(slot) != led.log.number {
            return;
        }
        let alive = led.env.nodes.reg.values().filter(|it| !it.state.is_gone());
        let pools: BTreeSet<PoolName> = alive.map(|it| it.pool.clone()).collect();
        for pool in pools {
            let before = led.log.replica.get(&DocKey::new(slot, pool_name(&pool))).cloned();
            // One that does not read is an operator's to mend.
            let known = before.as_ref().map_or(Ok(None), |it| read_pool(it.document()));
            let Ok(known) = known.map(Option::unwrap_or_default) else { continue };
            let now = texts_of(led.env.nodes.of_pool(&pool), &known.texts);
            let (new, gone) = changes(&known.texts, now);
            if !(new.is_empty() && gone.is_empty()) {
                let doc = Doc::texts_after(before.as_deref(), &pool, (&new, &gone), above(led));
                led.write(vec![Write::of(slot, doc)], None);
            }
        }
        self.texts_index = index;
    }
}

/// A version above all that was told of this partition: who follows asks for what is newer.
fn above(led: &At<'_>) -> Stamp {
    let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
    let told = led.log.replica.high_water.max(led.env.stamps.forgotten).max(led.stamps_above());
    now.max(told.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{ClassDigest, ClassFacts};

    fn texts(of: &[(&str, u64)]) -> Texts {
        let text = |digest| ClassText { digest: ClassDigest(digest), facts: ClassFacts::default() };
        of.iter().map(|(name, digest)| (ClassName::parse(name).unwrap(), text(*digest))).collect()
    }

    #[test]
    fn what_changes_is_written_what_no_node_has_goes_and_what_has_no_room_waits() {
        let kept = texts(&[("a", 1), ("b", 2), ("c", 3)]);
        let (new, gone) = changes(&kept, texts(&[("a", 1), ("b", 9), ("d", 4)]));
        assert_eq!(new, texts(&[("b", 9), ("d", 4)]));
        assert_eq!(gone, [ClassName::parse("c").unwrap()]);
        assert_eq!(changes(&kept, kept.clone()), (Texts::new(), Vec::new()));
        let many: Vec<String> = (0..=TEXTS_MAX).map(|it| format!("{it:04}")).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|it| (it.as_str(), 1)).collect();
        let (new, gone) = changes(&Texts::new(), texts(&many));
        assert_eq!((new.len(), gone.len()), (TEXTS_MAX, 0));
    }
}
