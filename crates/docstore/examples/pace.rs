//! Measures the store alone, on one thread: `cargo run --release -p rota-docstore --example pace`.
//!
//! Times are those of the processor, so that other programs on the machine disturb less.
//! `open` is what the opening of a session would cost here: two changes of one small document.
//! `--documents N` sets how many documents there are (default 300,000).

use rota_docstore::{
    Cache, Content, DocName, Exception, Held, ItemName, Keyed, Namespace, Operation, Operations,
    Request, Rules, Schema, Singleton, Stamp, Store, Transaction, Update, Wanted, apply,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

#[derive(Serialize, Deserialize, Clone)]
struct Head {
    class: String,
    state: String,
    node: Option<String>,
    address: Option<String>,
}

impl Singleton for Head {
    const CLASS: &'static str = "Hd";
}

#[derive(Serialize, Deserialize)]
struct Asked {
    outcome: String,
}

impl Keyed for Asked {
    const CLASS: &'static str = "Rq";
}

#[derive(Deserialize)]
struct Rename {
    id: String,
    class: String,
}

impl Operation for Rename {
    const NAME: &'static str = "rename";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        Ok(parameters)
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        Ok(vec![Wanted::current(DocName::new(space, "S", &self.id)?)])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = transaction.name("S", &self.id)?;
        let edited = transaction.current(&name)?;
        edited.must_exist()?;
        let Some(mut head) = edited.one::<Head>()? else {
            return Err(Exception::bug("HEAD", "a session has a head"));
        };
        head.class.clone_from(&self.class);
        edited.put_one(&head)?;
        transaction.answer_json(&head)
    }
}

/// Seconds of processor time that this process has used.
fn seconds_used() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Prints microseconds of processor time per round, the best of three.
fn measure(what: &str, rounds: u32, mut work: impl FnMut(u32)) {
    let mut best = f64::MAX;
    for pass in 0..3 {
        let start = seconds_used();
        (0..rounds).for_each(|it| work(pass * rounds + it));
        best = best.min((seconds_used() - start) * 1e6 / f64::from(rounds));
    }
    println!("{what:<34} {best:>9.3} us {:>12.0}/s", 1e6 / best);
}

fn documents() -> Result<u32, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(300_000),
        (Some("--documents"), Some(number)) => Ok(number.parse()?),
        (Some(other), _) => Err(format!("unknown argument {other}; try --documents N").into()),
    }
}

struct Bench {
    rules: Rules,
    store: Store,
    space: Namespace,
    now: Stamp,
    blob: ItemName,
}

impl Bench {
    fn name(&self, number: u32) -> Result<DocName, Exception> {
        Ok(DocName::new(&self.space, "S", &format!("session-{number:08}"))?)
    }

    /// The two changes of an open: it is written down, and then it runs.
    fn open(&mut self, number: u32) -> Result<(), Exception> {
        let name = self.name(number)?;
        let (rules, space, now) = (&self.rules, &self.space, self.now);
        let mut head = Head {
            class: "http".into(),
            state: "PENDING".into(),
            node: Some("node-17".into()),
            address: None,
        };
        self.store.change(rules, space, now, |transaction| {
            let edited = transaction.current(&name)?;
            edited.destroy();
            edited.create()?;
            edited.put_one(&head)?;
            edited.put_content(&self.blob, Content::raw(vec![7; 400])?)?;
            edited.put("request-1", &Asked { outcome: "CREATED".into() })
        })?;
        (head.state, head.address) = ("READY".into(), Some("10.1.2.3:45678".into()));
        self.store
            .change(rules, space, now, |transaction| transaction.current(&name)?.put_one(&head))?;
        Ok(())
    }

    /// The same as raw content only: how a manager with its own encoding writes.
    fn open_raw(&mut self, number: u32) -> Result<(), Exception> {
        let name = self.name(number)?;
        for byte in [1, 2] {
            self.store.change(&self.rules, &self.space, self.now, |transaction| {
                let edited = transaction.current(&name)?;
                edited.ensure();
                edited.put_content(&self.blob, Content::raw(vec![byte; 600])?)
            })?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = documents()?;
    let schema =
        Schema::new().class("S", |it| it.singleton::<Head>().keyed::<Asked>().raw_singleton("Raw"));
    let mut bench = Bench {
        rules: Rules::new(schema),
        store: Store::default(),
        space: Namespace::default_space(),
        now: Stamp::parse(260_101_000_000_000)?,
        blob: ItemName::singleton("Raw")?,
    };
    let start = seconds_used();
    for number in 0..count {
        bench.open(number)?;
    }
    let seconds = seconds_used() - start;
    let bytes: u64 = bench.store.iter().map(|it| it.memory_bytes()).sum();
    let each = bytes / u64::from(count.max(1));
    println!("{count} documents opened in {seconds:.2} s, about {each} bytes each in memory");

    // An odd stride visits documents in no order that a cache of the processor would like.
    let any = |it: u32| it.wrapping_mul(7_919) % count;
    measure("open (2 changes, 3 items)", 100_000, |it| bench.open(any(it)).expect("it opens"));
    measure("open (2 changes, 1 raw item)", 100_000, |round| {
        bench.open_raw(any(round)).expect("it opens");
    });
    let operations = Operations::new().with::<Rename>();
    measure("named operation with JSON", 100_000, |round| {
        let id = format!("session-{:08}", any(round));
        let parameters = serde_json::json!({ "id": id, "class": format!("c{round}") });
        let request = Request::new(bench.space.clone(), "rename").with(&parameters);
        let request = request.expect("parameters are JSON");
        let answer = bench.store.perform(&operations, &bench.rules, request, bench.now);
        black_box(answer.expect("it is renamed"));
    });
    measure_syncs(&mut bench, any)
}

fn measure_syncs(bench: &mut Bench, any: impl Fn(u32) -> u32) -> Result<(), Box<dyn Error>> {
    let names: Vec<DocName> =
        (0..100_000).map(|it| bench.name(any(it))).collect::<Result<_, _>>()?;
    let pick = |it: u32| &names[it as usize % names.len()];
    let held: Vec<Option<Held>> =
        names.iter().map(|it| bench.store.peek(it).map(|it| Held::of(it))).collect();
    measure("sync of an unchanged document", 100_000, |round| {
        let held = held[round as usize % held.len()].as_ref();
        let update = bench.store.sync(pick(round), held, bench.now).expect("it is known");
        assert!(matches!(black_box(update), Update::Unchanged { .. }));
    });
    let copies: Vec<_> = names.iter().map(|it| bench.store.peek(it).cloned()).collect();
    for number in 0..100_000 {
        let (name, content) = (pick(number), Content::raw(number.to_le_bytes())?);
        bench.store.change(&bench.rules, &bench.space, bench.now, |transaction| {
            transaction.current(name)?.put_content(&bench.blob, content)
        })?;
    }
    measure("sync and apply of one change", 100_000, |round| {
        let copy = copies[round as usize % copies.len()].as_ref();
        let held = copy.map(|it| Held::of(it));
        let update = bench.store.sync(pick(round), held.as_ref(), bench.now).expect("it is known");
        black_box(apply(pick(round), copy, &update).expect("it fits"));
    });
    let mut cache = Cache::new(Arc::clone(&bench.rules.schema), 20_000_000);
    measure("cache of a tenth: sync and put", 100_000, |round| {
        let held = cache.held(pick(round));
        let update = bench.store.sync(pick(round), held.as_ref(), bench.now).expect("it is known");
        cache.apply(pick(round), &update, bench.now).expect("it fits");
    });
    println!("the cache has {} documents in {} bytes", cache.len(), cache.bytes());
    Ok(())
}
