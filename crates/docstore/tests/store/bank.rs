//! A small application: accounts with a balance and entries.

use rota_docstore::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
pub struct Balance {
    pub cents: i64,
    pub note: Option<String>,
}
impl Singleton for Balance {
    const CLASS: &'static str = "Bal";
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
pub struct Entry {
    pub cents: i64,
}
impl Keyed for Entry {
    const CLASS: &'static str = "Ent";
}

pub fn schema() -> Schema {
    Schema::new()
        .class("Acc", |it| it.singleton::<Balance>().keyed::<Entry>().raw_keyed("Raw"))
        .class("Sum", |it| it.singleton::<Balance>())
        .with_configuration()
}

pub fn rules() -> Rules {
    Rules::new(schema())
}

pub fn space() -> Namespace {
    Namespace::parse("bank").unwrap()
}

pub fn account(docid: &str) -> DocName {
    DocName::new(&space(), "Acc", docid).unwrap()
}

/// That many milliseconds after the first day of 2024 began.
pub fn at(ms: u64) -> Stamp {
    Stamp::parse(240_101_000_000_000).unwrap().plus_ms(ms)
}

/// Lets `work` work and commits at once.
pub fn edit(
    store: &mut Store,
    now: Stamp,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<(), Exception>,
) -> Result<Commit, Exception> {
    store.change(&rules(), &space(), now, work)
}

/// Creates or changes an account's balance.
pub fn set_balance(store: &mut Store, docid: &str, cents: i64, now: Stamp) -> Commit {
    let work = |transaction: &mut Transaction<'_>| {
        let edited = transaction.current(&account(docid))?;
        edited.ensure();
        edited.put_one(&Balance { cents, note: None })
    };
    edit(store, now, work).unwrap()
}

pub fn balance(store: &Store, docid: &str) -> Option<i64> {
    store.peek(&account(docid))?.one::<Balance>().unwrap().map(|it| it.cents)
}

#[derive(Serialize, Deserialize, Clone)]
pub struct Transfer {
    pub from: String,
    pub to: String,
    pub cents: i64,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Receipt {
    pub from_cents: i64,
    pub version: Option<Stamp>,
}

impl Operation for Transfer {
    const NAME: &'static str = "transfer";
    type Parameters = Self;

    fn new(parameters: Self) -> Result<Self, Exception> {
        if parameters.cents <= 0 {
            return Err(FieldError::new("cents", "must be more than 0").into());
        }
        Ok(parameters)
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let name = |docid: &str| DocName::new(space, "Acc", docid).map(Wanted::current);
        Ok(vec![name(&self.from)?, name(&self.to)?])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let from = transaction.name("Acc", &self.from)?;
        let to = transaction.name("Acc", &self.to)?;
        if let Some(receipt) = transaction.repeated::<Receipt>(&from)? {
            return transaction.answer_json(&receipt);
        }
        let edited = transaction.current(&from)?;
        edited.must_exist()?;
        let mut source = edited.one::<Balance>()?.unwrap_or(Balance { cents: 0, note: None });
        if source.cents < self.cents {
            return Err(Exception::business("POOR", "the balance is too low"));
        }
        source.cents -= self.cents;
        edited.put_one(&source)?;
        let edited = transaction.current(&to)?;
        edited.must_exist()?;
        let mut target = edited.one::<Balance>()?.unwrap_or(Balance { cents: 0, note: None });
        target.cents += self.cents;
        edited.put_one(&target)?;
        let receipt = Receipt { from_cents: source.cents, version: None };
        transaction.remember(&from, &receipt)?;
        transaction.answer_json(&receipt)
    }

    fn after_work(&mut self, done: &mut Done<'_>) -> Result<(), Exception> {
        let Body::Json(text) = done.body() else {
            return Err(Exception::bug("RESULT", "a transfer has a receipt"));
        };
        let receipt = text.read::<Receipt>()?;
        done.answer_json(&Receipt { version: Some(done.version()), ..receipt })
    }
}

/// A request to move money.
pub fn transfer(from: &str, to: &str, cents: i64) -> Request {
    let parameters = Transfer { from: from.to_owned(), to: to.to_owned(), cents };
    let request = Request::new(space(), "transfer").with(&parameters).unwrap();
    // Without a name, no repetition is known as one.
    Request { who: Credentials { account: "ann".into(), ..Credentials::default() }, ..request }
}

pub fn operations() -> Operations {
    Operations::new().with::<Transfer>()
}

pub fn receipt(answer: &Answer) -> Receipt {
    match &answer.body {
        Body::Json(text) => text.read().unwrap(),
        other @ (Body::Nothing | Body::Binary { .. }) => panic!("no receipt: {other:?}"),
    }
}

/// A store with two accounts, `a` with 100 and `b` with 0.
pub fn two_accounts() -> Store {
    let mut store = Store::default();
    set_balance(&mut store, "a", 100, at(0));
    set_balance(&mut store, "b", 0, at(0));
    store
}

/// The space for configuration.
pub fn z() -> Namespace {
    Namespace::parse("z").unwrap()
}

/// Describes a namespace there.
pub fn describe(store: &mut Store, space: &str, description: &Description, now: Stamp) {
    let rules = rules();
    let mut attempt = Attempt::new(z(), now);
    let name = DocName::new(&z(), rota_docstore::space::SPACE_CLASS, space).unwrap();
    let mut transaction = Transaction::new(&rules, store, None, &mut attempt);
    let edited = transaction.current(&name).unwrap();
    edited.ensure();
    edited.put_one(description).unwrap();
    store.commit(&rules, attempt, now).unwrap();
}
