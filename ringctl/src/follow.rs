//! Follows a join or a leave: looks at the ring again and again until it is over.

use crate::failure::UsageMistake;
use crate::output::Format;
use anyhow::{Context, bail};
use rota_client::{Client, v1};
use rota_model::{Epoch, ManagerNumber};
use rota_ring::View;
use std::time::{Duration, Instant};

/// How long one look at the ring may take; the next one asks the next manager.
pub const LOOK_WAIT: Duration = Duration::from_secs(2);

/// Between two looks at the ring, for people.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a View says of something that takes several steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It goes on; a sentence for people.
    On(String),
    /// It is done; a sentence for people.
    Done(String),
    /// It came to nothing; why, and what to do.
    Over(String),
}

/// Somebody who follows.
pub struct Follower {
    /// What is followed: the join, the leave.
    pub what: &'static str,
    /// Views before this epoch say nothing.
    pub since: u64,
    /// When to give up.
    pub until: Instant,
    /// Between two looks.
    pub every: Duration,
    /// Who must say that it serves all that it owns before it is done.
    pub serving: Option<ManagerNumber>,
    /// Progress is shown to people only.
    pub format: Format,
}

/// The address of one manager.
pub fn one_address(flag: &str, text: &str) -> Result<String, UsageMistake> {
    match rota_client::parse_endpoints(text).as_deref() {
        Ok([one]) => Ok(one.clone()),
        Ok(_) | Err(_) => Err(UsageMistake(format!(
            "{flag}: {text:?} is not the address of one manager; it is given as host:port, as in \
             127.0.0.1:7400"
        ))),
    }
}

/// The addresses of managers, comma-separated, of those that have one.
pub fn endpoints_of<'a>(addresses: impl Iterator<Item = &'a str>) -> String {
    addresses.filter(|it| !it.is_empty()).collect::<Vec<_>>().join(",")
}

impl Follower {
    /// Looks at the ring, first by way of these managers and then of all that it has, until it is done.
    /// Gives the View that says so.
    pub async fn follow(
        &self,
        endpoints: &str,
        progress: impl Fn(&View) -> Progress,
    ) -> anyhow::Result<View> {
        let (mut client, mut endpoints) = (Client::connect(endpoints)?, endpoints.to_owned());
        let mut known: Option<String> = None;
        loop {
            if Instant::now() >= self.until {
                let last = known.unwrap_or_else(|| "no manager shows the ring".to_owned());
                let what = self.what;
                bail!(
                    "{last}; the time of --timeout is over, and {what} goes on without being watched"
                );
            }
            if let Some(view) = look(&client).await?.filter(|view| view.epoch.0 >= self.since) {
                let all = endpoints_of(view.managers.values().map(|it| it.grpc.as_str()));
                if all != endpoints {
                    client = Client::connect(&all).context("the addresses in the View")?;
                    endpoints = all;
                }
                let (text, is_done) = match progress(&view) {
                    Progress::On(text) => (text, false),
                    Progress::Done(text) => match self.serves_not(&client, &view).await {
                        Some(why) => (why, false),
                        None => (text, true),
                    },
                    Progress::Over(text) => bail!(text),
                };
                if self.format == Format::Table && known.as_ref() != Some(&text) {
                    eprintln!("{text}");
                }
                if is_done {
                    return Ok(view);
                }
                known = Some(text);
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Why it is not done yet although the View says so: who is to serve says something else.
    async fn serves_not(&self, client: &Client, view: &View) -> Option<String> {
        let number = self.serving?;
        let address = view.managers.get(&number).map(|it| it.grpc.as_str()).unwrap_or_default();
        match client.inspect_at(address, LOOK_WAIT).await {
            Ok(answer) => missing(&answer, number, view.epoch),
            Err(_) => Some(format!("number {number} does not answer at {address}")),
        }
    }
}

/// What a manager lacks by its own word to serve all that it owns, by a View as new as the one that is known.
fn missing(answer: &v1::InspectResponse, number: ManagerNumber, epoch: Epoch) -> Option<String> {
    let view = answer.view.as_ref();
    let Some(view) = view.filter(|it| it.epoch >= epoch.0) else {
        let known = view.map_or(0, |it| it.epoch);
        return Some(format!("number {number} knows the View of epoch {known} only, not {epoch}"));
    };
    let mut owned = view.parts.iter().filter(|it| it.owner == number.0).map(|it| it.number);
    if !owned.clone().any(|it| it == number.0) {
        return Some(format!("number {number} does not own its arc any more"));
    }
    let role = |part| {
        let part = answer.parts.iter().find(|it| it.number == part);
        part.map_or("idle", |it| it.role.as_str())
    };
    let waits = owned.find(|it| role(*it) != "serving")?;
    Some(format!("number {number} does not serve partition {waits} yet: {}", role(waits)))
}

/// Some manager's View; `None` when none answers just now.
async fn look(client: &Client) -> anyhow::Result<Option<View>> {
    let Ok(answer) = client.inspect(LOOK_WAIT).await else { return Ok(None) };
    let view = answer.view.map(View::try_from).transpose();
    view.context("a manager's View cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_all_that_it_owns_says_so_itself_by_a_view_that_is_new_enough() {
        let part = |number, owner| v1::Part { number, owner, ..Default::default() };
        let parts = vec![part(100, 100), part(200, 200), part(300, 100)];
        let view = Some(v1::View { epoch: 7, parts, ..Default::default() });
        let role = |number, role: &str| v1::PartitionStats {
            number,
            role: role.into(),
            ..Default::default()
        };
        let answer = |roles: [&str; 2]| v1::InspectResponse {
            view: view.clone(),
            parts: vec![role(100, roles[0]), role(200, "copy"), role(300, roles[1])],
            ..Default::default()
        };
        let missing =
            |roles, number, epoch| missing(&answer(roles), ManagerNumber(number), Epoch(epoch));
        assert_eq!(missing(["serving", "serving"], 100, 7), None);
        let why = |roles, number, epoch| missing(roles, number, epoch).unwrap();
        assert!(why(["serving", "serving"], 100, 8).contains("knows the View of epoch 7 only"));
        assert!(why(["serving", "scanning"], 100, 7).contains("partition 300 yet: scanning"));
        assert!(why(["serving", "serving"], 400, 7).contains("does not own its arc any more"));
    }

    #[test]
    fn one_manager_is_meant_and_not_a_list() {
        assert_eq!(one_address("--target", "a:1").unwrap(), "a:1");
        for wrong in ["", "a", "a:1,b:2"] {
            assert!(one_address("--target", wrong).unwrap_err().0.starts_with("--target"));
        }
    }
}
