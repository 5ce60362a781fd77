//! A manager that knows accounts: operations of its own, on documents of a class of its own, for
//! callers that have the right key. It takes the options of `rota-manager`:
//!
//! ```text
//! mkdir bin && ln -s $PWD/target/release/examples/bank bin/rota-manager
//! ROTA_BIN_DIR=$PWD/bin ringctl dev
//! ROTA_KEY=nna ringctl document operate bank/ann deposit '{"cents": 5}' --account ann
//! ROTA_KEY=nna ringctl document operate bank/ann interest '{"permille": 20, "ms": 1500}' --account ann
//! ```
//!
//! A deposit takes microseconds, so it works in the stream of the manager's decisions ([`Place::Inline`]).
//! Interest takes as long as it is told: it works beside them ([`Place::Worker`], which is the default), and
//! sessions and other operations go on meanwhile. What may take long must end by itself: nothing stops it,
//! and its caller is told X-QUOTA after `--work-ms`. See [`Operation::work`].

use rota_docstore::{
    About, Checker, Credentials, DocName, Exception, FieldError, Operation, Place, Singleton,
    Transaction,
};
use rota_manager::Application;
use rota_protocol::operate;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// The only item of an account.
#[derive(Serialize, Deserialize, Clone, Copy, Default)]
struct Balance {
    cents: u64,
}

impl Singleton for Balance {
    const CLASS: &'static str = "Bal";
}

/// Puts money into the caller's own account, which begins with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deposit {
    cents: u64,
}

impl Operation for Deposit {
    const NAME: &'static str = "deposit";
    const PLACE: Place = Place::Inline;
    type Parameters = Self;

    fn about() -> About {
        About {
            summary: "Puts money into the caller's own account. Runs at bank/ACCOUNT.",
            parameters: r#"{"type": "object", "required": ["cents"], "additionalProperties": false,
                "properties": {"cents": {"type": "integer", "minimum": 1, "description": "How much."}}}"#,
            example: r#"{"cents": 5}"#,
        }
    }

    fn new(deposit: Self) -> Result<Self, Exception> {
        if deposit.cents == 0 {
            return Err(FieldError::new("cents", "must be more than 0").into());
        }
        Ok(deposit)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = own_account(transaction)?;
        if let Some(balance) = transaction.repeated::<Balance>(&name)? {
            return transaction.answer_json(&balance);
        }
        let edited = transaction.current(&name)?;
        edited.ensure();
        let Balance { cents } = edited.one::<Balance>()?.unwrap_or_default();
        let cents = cents.checked_add(self.cents);
        let cents = cents.ok_or_else(|| Exception::business("RICH", "there is no room for it"))?;
        let balance = Balance { cents };
        edited.put_one(&balance)?;
        transaction.remember(&name, &balance)?;
        transaction.answer_json(&balance)
    }
}

/// Puts interest into the caller's own account, once somebody has said how much: that takes a while.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Interest {
    permille: u64,
    /// For how long it works, in milliseconds.
    ms: u64,
}

impl Operation for Interest {
    const NAME: &'static str = "interest";
    type Parameters = Self;

    fn new(interest: Self) -> Result<Self, Exception> {
        Ok(interest)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = own_account(transaction)?;
        if let Some(balance) = transaction.repeated::<Balance>(&name)? {
            return transaction.answer_json(&balance);
        }
        // What it reads comes first: a worker that lacks a document begins anew.
        let edited = transaction.current(&name)?;
        edited.must_exist()?;
        let Balance { cents } = edited.one::<Balance>()?.unwrap_or_default();
        sleep(Duration::from_millis(self.ms));
        let more = cents.saturating_mul(self.permille) / 1_000;
        let balance = Balance { cents: cents.saturating_add(more) };
        transaction.current(&name)?.put_one(&balance)?;
        transaction.remember(&name, &balance)?;
        transaction.answer_json(&balance)
    }
}

fn own_account(transaction: &Transaction<'_>) -> Result<DocName, FieldError> {
    let account = transaction.request().map_or("", |it| it.who.account.as_str());
    transaction.name("Acc", account)
}

/// The key of an account is its name, backwards. Who names no account may only look.
struct Accounts;

impl Checker for Accounts {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        let is_right = || who.key.bytes().eq(who.account.bytes().rev());
        match operation {
            _ if space != "bank" => Ok(()),
            _ if !who.account.is_empty() && is_right() => Ok(()),
            "document.sync" | "document.list" | "document.watch" if who.account.is_empty() => {
                Ok(())
            }
            _ => Err(format!("the key of account {:?} is wrong", who.account)),
        }
    }
}

fn main() -> ExitCode {
    let schema = operate::schema().class("Acc", |it| it.singleton::<Balance>());
    let operations = operate::operations().with::<Deposit>().with::<Interest>();
    match Application::new(operations, schema) {
        Ok(application) => rota_manager::main(application.checked_by(Arc::new(Accounts))),
        Err(mistake) => {
            eprintln!("{mistake}");
            ExitCode::FAILURE
        }
    }
}
