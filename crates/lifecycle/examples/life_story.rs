//! The story of a key and its certificate: two life cycles that wait for each other's events.
//!
//! `cargo run --release -p rota-lifecycle --example life_story`

use rota_lifecycle::{Due, Edit, Failure, LifeItem, Managed, Patch};
use rota_model::{FieldError, Stamp};

/// Entered when the session opens.
const ENTERED: [&str; 4] = [
    "key create@+2s",
    "cert key?create",
    // Fires when the certificate is signed, which the action of `cert key?create` sets up.
    "key cert?signed",
    "note hello@+1s",
];

/// The session, a clock that only counts, and actions that always do the same.
struct World {
    now: Stamp,
    managed: Managed,
    attempts: u32,
}

fn is_mark(life_cycle: &str, _event: &str) -> bool {
    life_cycle == "note"
}

fn told(errors: Vec<FieldError>) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl World {
    fn tell(&self, text: &str) {
        let clock = self.now.as_u64() / 1_000;
        println!("{:06} {:06}  {text}", clock / 1_000_000, clock % 1_000_000);
    }

    /// What an action prints, or why it fails.
    fn act(&mut self, due: &Due) -> Result<String, String> {
        match (due.life_cycle.as_str(), due.event.as_str()) {
            ("cert", "key?create") => Ok(r#"{"managedState": {"cert signed@+3s": true},
                "attributes": {"request": "sent"}}"#
                .to_owned()),
            ("key", "cert?signed") if self.attempts == 0 => {
                self.attempts += 1;
                Err("the disk is full".to_owned())
            }
            _ => Ok(String::new()),
        }
    }

    /// One commit: what the action came to, what it changes, then marks and the history.
    fn commit(&mut self, due: &Due) {
        let (life_cycle, word) = (due.life_cycle.as_str(), due.word.as_str());
        match self.act(due) {
            Ok(printed) => {
                let patch = Patch::parse(&printed, self.now).map_err(told);
                let patch = patch.expect("the actions of this story print patches");
                self.managed.fire(life_cycle, word, self.now);
                let taken = self.managed.edit(&patch.edit, self.now).map_err(told);
                taken.expect("the patches of this story fit");
                self.tell(&format!(
                    "{life_cycle} {word}: done, {} items added",
                    patch.edit.add.len()
                ));
            }
            Err(report) => {
                let failure = Failure::new(self.attempts, "1", &report, self.now);
                self.managed.fail(life_cycle, word, failure);
                self.tell(&format!("{life_cycle} {word}: failed, {report}"));
            }
        }
        self.end_commit();
    }

    fn end_commit(&mut self) {
        let known = self.managed.history().len();
        for fired in self.managed.fire_marks(self.now, &is_mark) {
            self.tell(&format!("{} {}: a mark", fired.life_cycle, fired.word));
        }
        for past in &self.managed.history()[known..] {
            self.tell(&format!("history: {}", past.item));
        }
    }
}

fn main() {
    let now = Stamp::parse(261_128_093_000_000).expect("a time of day");
    let mut world = World { now, managed: Managed::new(now), attempts: 0 };
    let lines = ENTERED.map(str::to_owned);
    let items = Edit::parse_entries(&lines, now).map_err(told).expect("the items are right");
    items.iter().for_each(|item: &LifeItem| world.tell(&format!("added: {item}")));
    world.managed.edit(&Edit::adding(items), now).map_err(told).expect("no names clash");
    world.end_commit();
    loop {
        // One action at a time.
        let due = world.managed.due(world.now);
        let next = world.managed.next_at();
        match (due.iter().find(|it| !is_mark(it.life_cycle.as_str(), &it.event)), next) {
            (Some(due), _) => world.commit(due),
            (None, Some(next)) => {
                world.now = next;
                world.end_commit();
            }
            (None, None) => break,
        }
        let retried: Vec<_> = world
            .managed
            .items()
            .filter(|(_, held)| held.failed.is_some())
            .map(|(item, _)| (item.life_cycle().to_string(), item.last().to_string()))
            .collect();
        for (life_cycle, word) in retried {
            world.now = world.now.plus_ms(10_000);
            world.managed.retry(&life_cycle, &word);
            world.tell(&format!("{life_cycle} {word}: tried again"));
        }
    }
    let mut stuck = Managed::new(world.now);
    let items = ["left right?go", "right left?go"].map(|it| it.parse().expect("an item"));
    stuck.edit(&Edit::adding(items.into()), world.now).map_err(told).expect("no names clash");
    world.tell(&format!("these would wait for each other: {:?}", stuck.cycles()));
}
