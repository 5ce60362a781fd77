//! Any history, any caches, any order: all end equal to the source.

use crate::bank::*;
use proptest::prelude::*;
use rota_docstore::*;
use std::sync::Arc;

const CACHES: usize = 4;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// One operation puts and destroys entries.
    Change(Vec<(u8, Option<i64>)>),
    /// The document's life ends.
    Destroy,
    /// It ends and begins in one operation.
    Reborn(u8),
    /// The source forgets what was destroyed more than that many milliseconds ago.
    Purge(u64),
    /// The source forgets everything about an ended life.
    ForgetEnded,
    /// A cache asks the source.
    Follow(usize),
    /// A cache asks another cache.
    FollowCache(usize, usize),
    /// A cache forgets what was destroyed before that many milliseconds ago.
    PurgeCache(usize, u64),
    /// A cache asks the source; the answer arrives only at the end, out of order.
    Delay(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = (0..6_u8, proptest::option::weighted(0.6, 0..3_i64));
    let cache = 0..CACHES;
    let step = prop_oneof![
        8 => proptest::collection::vec(entry, 1..4).prop_map(Step::Change),
        1 => Just(Step::Destroy),
        1 => (0..6_u8).prop_map(Step::Reborn),
        2 => (0..40_u64).prop_map(Step::Purge),
        1 => Just(Step::ForgetEnded),
        5 => cache.clone().prop_map(Step::Follow),
        4 => (cache.clone(), cache.clone()).prop_map(|(to, from)| Step::FollowCache(to, from)),
        2 => (cache.clone(), 0..40_u64).prop_map(|(it, ms)| Step::PurgeCache(it, ms)),
        2 => cache.prop_map(Step::Delay),
    ];
    proptest::collection::vec(step, 1..60)
}

struct World {
    store: Store,
    copies: Vec<Option<Arc<Document>>>,
    delayed: Vec<(usize, Update)>,
    now: u64,
}

impl World {
    fn name() -> DocName {
        account("a")
    }

    fn source(&self) -> Option<&Arc<Document>> {
        self.store.peek(&Self::name())
    }

    fn edit(
        &mut self,
        work: impl FnOnce(&mut rota_docstore::DocumentEdit) -> Result<(), Exception>,
    ) {
        let now = at(self.now);
        edit(&mut self.store, now, |transaction| work(transaction.current(&Self::name())?))
            .unwrap();
    }

    fn ask(&self, cache: usize) -> Update {
        let held = self.copies[cache].as_deref().map(Held::of);
        self.store.sync(&Self::name(), held.as_ref(), at(self.now)).unwrap()
    }

    /// Applies an update as it comes off a wire: every part is checked again.
    fn apply(&mut self, cache: usize, update: &Update) -> Result<(), ApplyError> {
        let update = match update.clone() {
            Update::Full(document) => {
                let parts = Document::clone(&document).into_parts();
                Update::Full(Arc::new(Document::from_parts(parts).unwrap()))
            }
            Update::Changes(changes) => {
                Update::Changes(Changes::from_parts(changes.into_parts()).unwrap())
            }
            other @ (Update::Unchanged { .. }
            | Update::Deleted { .. }
            | Update::Absent { .. }
            | Update::SourceBehind { .. }) => other,
        };
        let before = self.copies[cache].clone();
        let after = apply(&Self::name(), before.as_ref(), &update)?;
        if let Some(after) = &after {
            let parts = Document::clone(after).into_parts();
            assert_eq!(Document::from_parts(parts).as_ref(), Ok(&**after), "a valid document");
            assert_eq!(Document::from_bytes(&after.to_bytes()).as_ref(), Ok(&**after));
            if let Some(before) = &before {
                let order = |it: &Document| (it.ctime(), it.version());
                assert!(order(before) <= order(after), "never lowered");
            }
        }
        self.copies[cache] = after;
        Ok(())
    }

    fn follow(&mut self, cache: usize) {
        let update = self.ask(cache);
        self.apply(cache, &update).unwrap();
        assert_same(self.copies[cache].as_ref(), self.source());
    }

    fn step(&mut self, step: &Step) {
        self.now += 3;
        match step {
            Step::Change(entries) => self.edit(|edited| {
                edited.ensure();
                for (key, cents) in entries {
                    let key = key.to_string();
                    match cents {
                        Some(cents) => edited.put(&key, &Entry { cents: *cents })?,
                        None => drop(edited.remove("Ent", Some(&key))?),
                    }
                }
                Ok(())
            }),
            Step::Destroy => self.edit(|edited| {
                edited.destroy();
                Ok(())
            }),
            Step::Reborn(key) => self.edit(|edited| {
                edited.destroy();
                edited.create()?;
                edited.put(&key.to_string(), &Entry { cents: 1 })
            }),
            Step::Purge(ms) => {
                let mut rules = rules();
                (rules.destroyed_ms, rules.deleted_ms) = (*ms, u64::MAX);
                self.store.purge(&rules, at(self.now), None, 10);
            }
            Step::ForgetEnded => {
                let mut rules = rules();
                (rules.destroyed_ms, rules.deleted_ms) = (u64::MAX, 0);
                self.store.purge(&rules, at(self.now), None, 10);
            }
            Step::Follow(cache) => self.follow(*cache),
            Step::FollowCache(to, from) => self.follow_cache(*to, *from),
            Step::PurgeCache(cache, ms) => {
                let dtime = at(self.now).minus_ms(*ms);
                let copy = &mut self.copies[*cache];
                if let Some(less) = copy.as_ref().and_then(|it| it.forget_before(dtime)) {
                    *copy = Some(Arc::new(less));
                }
            }
            Step::Delay(cache) => self.delayed.push((*cache, self.ask(*cache))),
        }
    }

    fn follow_cache(&mut self, to: usize, from: usize) {
        let Some(source) = self.copies[from].clone() else {
            return;
        };
        let held = self.copies[to].as_deref().map(Held::of);
        let update = update_for(Some(&source), held.as_ref(), source.version());
        let before = self.copies[to].clone();
        match self.apply(to, &update) {
            Ok(()) => assert_same(self.copies[to].as_ref(), Some(&source)),
            Err(error) => {
                assert!(matches!(error, ApplyError::SourceBehind { .. }), "{error}");
                assert_eq!(self.copies[to], before);
            }
        }
    }
}

fn assert_same(copy: Option<&Arc<Document>>, source: Option<&Arc<Document>>) {
    match (copy, source) {
        (None, None) => {}
        (Some(copy), Some(source)) => {
            assert!(copy.says_the_same(source), "{copy:?}\nis not {source:?}");
            // Both know the same destroyed items from where both know all.
            let from = copy.dtime().max(source.dtime());
            let known = |document: &Document| -> Vec<(ItemName, Stamp)> {
                let all =
                    document.items().iter().filter(|it| it.is_destroyed() && it.version() >= from);
                all.map(|it| (it.name().clone(), it.version())).collect()
            };
            assert_eq!(known(copy), known(source));
        }
        (copy, source) => panic!("{copy:?}\nis not {source:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn any_caches_synced_in_any_order_end_equal_to_the_source(steps in steps()) {
        let copies = vec![None; CACHES];
        let mut world = World { store: Store::default(), copies, delayed: Vec::new(), now: 0 };
        for step in &steps {
            world.step(step);
        }
        // Late answers are taken or refused, but never harm.
        for (cache, update) in std::mem::take(&mut world.delayed).into_iter().rev() {
            drop(world.apply(cache, &update));
        }
        world.now += 1;
        for cache in 0..CACHES {
            world.follow(cache);
            prop_assert_eq!(world.copies[cache].is_some(), world.source().is_some());
        }
    }
}
