//! A manager that knows accounts: an operation of its own, on documents of a class of its own, for
//! callers that have the right key. It takes the options of `rota-manager`:
//!
//! ```text
//! mkdir bin && ln -s $PWD/target/release/examples/bank bin/rota-manager
//! ROTA_BIN_DIR=$PWD/bin ringctl dev
//! ringctl document operate bank/ann deposit '{"cents": 5}' --account ann --key nna
//! ```

use rota_docstore::{Checker, Credentials, Desk, Exception, FieldError, Operation, Singleton};
use rota_manager::Application;
use rota_protocol::operate::registry;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::sync::Arc;

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
    type Parameters = Self;

    fn new(deposit: Self) -> Result<Self, Exception> {
        if deposit.cents == 0 {
            return Err(FieldError::new("cents", "must be more than 0").into());
        }
        Ok(deposit)
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Result<(), Exception> {
        let account = desk.request().map_or("", |it| it.who.account.as_str());
        let name = desk.name("Acc", account)?;
        if let Some(balance) = desk.repeated::<Balance>(&name)? {
            return desk.answer_json(&balance);
        }
        let draft = desk.current(&name)?;
        draft.ensure();
        let Balance { cents } = draft.one::<Balance>()?.unwrap_or_default();
        let cents = cents.checked_add(self.cents);
        let cents = cents.ok_or_else(|| Exception::business("RICH", "there is no room for it"))?;
        let balance = Balance { cents };
        draft.put_one(&balance)?;
        desk.remember(&name, &balance)?;
        desk.answer_json(&balance)
    }
}

/// The key of an account is its name, backwards. Who names no account may only look.
struct Accounts;

impl Checker for Accounts {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        let is_right = || who.key.bytes().eq(who.account.bytes().rev());
        match operation {
            _ if space != "bank" => Ok(()),
            _ if !who.account.is_empty() && is_right() => Ok(()),
            "document.sync" | "document.list" if who.account.is_empty() => Ok(()),
            _ => Err(format!("the key of account {:?} is wrong", who.account)),
        }
    }
}

fn main() -> ExitCode {
    let schema = registry::schema().class("Acc", |it| it.singleton::<Balance>());
    match Application::new(registry::operations().with::<Deposit>(), schema) {
        Ok(application) => rota_manager::main(application.checked_by(Arc::new(Accounts))),
        Err(mistake) => {
            eprintln!("{mistake}");
            ExitCode::FAILURE
        }
    }
}
