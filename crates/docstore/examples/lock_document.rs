//! A group of documents, read as of one moment: the lock document.
//!
//! A shop has many tills, more than one operation may ask for with tolerance 0. Each sale changes
//! one till and touches the shop's own document. The closing of the day asks for that one with
//! tolerance 0 and adds up the tills: when a sale comes between, the closing is not valid and is
//! made again.
//!
//! Whoever drives attempts itself, as here, may read as many tills as it likes beside the one that closes the
//! day. A named [`rota_docstore::Operation`] has one transaction and 32 documents: there the sales keep the sums of
//! groups of tills in few documents, and the closing reads those.

use rota_docstore::{
    Attempt, Commit, DocName, Exception, Keyed, Namespace, Rules, Schema, Singleton, Stamp, Store,
    Tolerance, Transaction, codes,
};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// What a till has taken.
#[derive(Serialize, Deserialize, Default)]
struct Taken {
    cents: u64,
}

impl Singleton for Taken {
    const CLASS: &'static str = "Tk";
}

/// The sum of a day.
#[derive(Serialize, Deserialize)]
struct Day {
    cents: u64,
}

impl Keyed for Day {
    const CLASS: &'static str = "Day";
}

struct Shop {
    rules: Rules,
    store: Store,
    space: Namespace,
    tills: Vec<DocName>,
    lock: DocName,
}

impl Shop {
    fn new() -> Result<Self, Box<dyn Error>> {
        let schema = Schema::new()
            .class("Till", |it| it.singleton::<Taken>())
            .class("Shop", |it| it.keyed::<Day>());
        let space = Namespace::parse("shop")?;
        let till = |number: u32| DocName::new(&space, "Till", &number.to_string());
        let tills = (0..100).map(till).collect::<Result<_, _>>()?;
        let lock = DocName::new(&space, "Shop", "lock")?;
        Ok(Self { rules: Rules::new(schema), store: Store::default(), space, tills, lock })
    }

    fn sell(&mut self, till: usize, cents: u64, now: Stamp) -> Result<Commit, Exception> {
        let (till, lock) = (&self.tills[till], &self.lock);
        self.store.change(&self.rules, &self.space, now, |transaction| {
            let group = transaction.current(lock)?;
            group.ensure();
            group.touch();
            let edited = transaction.current(till)?;
            edited.ensure();
            let taken = edited.one::<Taken>()?.unwrap_or_default();
            edited.put_one(&Taken { cents: taken.cents + cents })
        })
    }

    /// Adds up all tills; not valid yet.
    fn close_day(&self, now: Stamp) -> Result<Attempt, Exception> {
        let mut cents = 0;
        let mut attempt = Attempt::new(self.space.clone(), now);
        let mut transaction = Transaction::new(&self.rules, &self.store, None, &mut attempt);
        transaction.current(&self.lock)?;
        // An operation may have 32 documents open; the others are read by further attempts, whose
        // only purpose is to read. The lock document stands for all of them.
        for group in self.tills.chunks(32) {
            let mut reading = Attempt::new(self.space.clone(), now);
            let mut transaction = Transaction::new(&self.rules, &self.store, None, &mut reading);
            for till in group {
                let edited = transaction.recent(till, Tolerance::seconds(60))?;
                cents += edited.one::<Taken>()?.map_or(0, |it| it.cents);
            }
        }
        transaction.current(&self.lock)?.put("today", &Day { cents })?;
        Ok(attempt)
    }
}

/// A closing that a sale came into, and the one that was made again: what is told of both.
pub fn day() -> Result<[String; 2], Box<dyn Error>> {
    let mut shop = Shop::new()?;
    let mut now = Stamp::parse(240_229_180_000_000)?;
    for till in 0..100 {
        shop.sell(till, 100, now)?;
    }
    now = now.plus_ms(1_000);
    let early = shop.close_day(now)?;
    shop.sell(7, 5, now.plus_ms(1))?;
    let refused = match shop.store.commit(&shop.rules, early, now.plus_ms(2)) {
        Err(exception) if *exception.code() == codes::CONTENTION => exception.to_string(),
        other => return Err(format!("a sale was overlooked: {other:?}").into()),
    };
    let again = shop.close_day(now.plus_ms(3))?;
    let commit = shop.store.commit(&shop.rules, again, now.plus_ms(4))?;
    let lock = shop.store.peek(&shop.lock).ok_or("the shop exists")?;
    let day = lock.keyed::<Day>("today")?.ok_or("the day is closed")?;
    Ok([refused, format!("{}: the day took {} cents", commit.version, day.cents)])
}

#[allow(dead_code, reason = "the test of this day has no use for it")]
fn main() -> Result<(), Box<dyn Error>> {
    for line in day()? {
        println!("{line}");
    }
    Ok(())
}
