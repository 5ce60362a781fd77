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
                    Progress::Done(text) => (text, true),
                    Progress::Over(text) => bail!(text),
                };
                if is_done && let Some(number) = self.serving_not_yet(&client, &view).await {
                    // The next look at the ring may say more.
                    known = Some(format!("number {number} does not serve all that it owns"));
                } else {
                    if self.format == Format::Table && known.as_ref() != Some(&text) {
                        eprintln!("{text}");
                    }
                    if is_done {
                        return Ok(view);
                    }
                    known = Some(text);
                }
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Who does not serve all that it owns yet, though the View has it so.
    async fn serving_not_yet(&self, client: &Client, view: &View) -> Option<ManagerNumber> {
        let number = self.serving?;
        let address = view.managers.get(&number).map(|it| it.grpc.as_str()).unwrap_or_default();
        let answer = client.inspect_at(address, LOOK_WAIT).await;
        let serves = answer.is_ok_and(|it| serves_all(&it, number, view.epoch));
        (!serves).then_some(number)
    }
}

/// Whether a manager says that it serves all that it owns, by a View as new as the one that is known.
fn serves_all(answer: &v1::InspectResponse, number: ManagerNumber, epoch: Epoch) -> bool {
    let Some(view) = answer.view.as_ref().filter(|it| it.epoch >= epoch.0) else { return false };
    let mut owned = view.parts.iter().filter(|it| it.owner == number.0);
    let serves = |part| answer.parts.iter().any(|it| it.number == part && it.role == "serving");
    owned.all(|it| serves(it.number))
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
    fn who_owns_a_partition_serves_when_it_says_so_by_a_view_that_is_new_enough() {
        let part = |number, owner| v1::Part { number, owner, ..Default::default() };
        let parts = vec![part(100, 100), part(200, 200), part(300, 100)];
        let view = Some(v1::View { epoch: 7, parts, ..Default::default() });
        let role =
            |number, role: &str| v1::PartStats { number, role: role.into(), ..Default::default() };
        let answer = |roles: [&str; 2]| v1::InspectResponse {
            view: view.clone(),
            parts: vec![role(100, roles[0]), role(200, "copy"), role(300, roles[1])],
            ..Default::default()
        };
        let number = ManagerNumber(100);
        assert!(serves_all(&answer(["serving", "serving"]), number, Epoch(7)));
        assert!(!serves_all(&answer(["serving", "serving"]), number, Epoch(8)));
        assert!(!serves_all(&answer(["serving", "scanning"]), number, Epoch(7)));
        assert!(!serves_all(&v1::InspectResponse::default(), number, Epoch(0)));
    }

    #[test]
    fn one_manager_is_meant_and_not_a_list() {
        assert_eq!(one_address("--target", "a:1").unwrap(), "a:1");
        for wrong in ["", "a", "a:1,b:2"] {
            assert!(one_address("--target", wrong).unwrap_err().0.starts_with("--target"));
        }
    }
}
