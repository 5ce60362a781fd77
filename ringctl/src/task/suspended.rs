//! Which tasks are suspended: it stands in the descriptions of namespaces. What nobody can read is not told.

use super::Manager;
use super::queues::CONFIGURATION;
use super::show::Shown;
use crate::failure::UsageMistake;
use crate::output::for_terminals;
use rota_client::docstore::{Namespace, Suspended, codes};
use rota_client::documents::NamespaceState;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a command waits at most for what only explains its answer.
const LOOK_WAIT: Duration = Duration::from_secs(2);
/// Remarks that are told one by one.
const REMARKS_MAX: usize = 3;
/// Namespaces that a refusal names.
const NAMES_MAX: usize = 20;

/// What is suspended of one namespace, or of all.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownSuspended {
    /// None: of all.
    pub namespace: Option<String>,
    /// Whether every queue is suspended.
    pub all_queues: bool,
    pub queues: BTreeSet<u8>,
}

/// Where a task waits: its namespace and its queue.
pub type Waits = (String, u8);

/// Everything that is suspended.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct AllSuspended {
    of_all: Suspended,
    of_one: BTreeMap<String, Suspended>,
}

/// Why a task does not start. What is left out means all.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cause {
    namespace: Option<String>,
    queue: Option<u8>,
}

impl ShownSuspended {
    /// Of what an order or a description says.
    pub fn of(namespace: Option<String>, Suspended { all, queues }: Suspended) -> Self {
        Self { namespace, all_queues: all, queues }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, flag) = match self.queue {
            Some(queue) => (format!("queue {queue} is suspended"), format!(" --queue {queue}")),
            None => ("every queue is suspended".to_owned(), String::new()),
        };
        match &self.namespace {
            Some(name) => {
                let order = format!("ringctl task unsuspend{flag} --namespace {name}");
                write!(f, "{what} for namespace {name}: {order}")
            }
            None => {
                let flag = if flag.is_empty() { " --all" } else { &flag };
                write!(f, "{what} for all namespaces: ringctl task unsuspend{flag}")
            }
        }
    }
}

impl AllSuspended {
    fn of(states: Vec<NamespaceState>) -> Self {
        let mut all = Self::default();
        for NamespaceState { name, description, .. } in states {
            let suspended = description.suspended;
            if name.as_str() == CONFIGURATION {
                all.of_all = suspended;
            } else if !suspended.is_nothing() {
                all.of_one.insert(name.as_str().to_owned(), suspended);
            }
        }
        all
    }

    /// The queues that are suspended one by one.
    pub fn queues(&self) -> BTreeSet<u8> {
        let all = std::iter::once(&self.of_all).chain(self.of_one.values());
        all.flat_map(|suspended| suspended.queues.iter().copied()).collect()
    }

    /// The namespaces for which a queue is suspended, with commas between; `all` for all.
    pub fn namespaces(&self, queue: u8) -> String {
        self.names(|suspended| suspended.stops(queue))
    }

    /// Those for which every queue is suspended, if any.
    pub fn with_every_queue(&self) -> Option<String> {
        let is_any = self.of_all.all || self.of_one.values().any(|suspended| suspended.all);
        is_any.then(|| self.names(|suspended| suspended.all))
    }

    fn names(&self, is_wanted: impl Fn(&Suspended) -> bool) -> String {
        if is_wanted(&self.of_all) {
            return "all".to_owned();
        }
        let stopped = self.of_one.iter().filter(|(_, suspended)| is_wanted(suspended));
        let names: Vec<&str> = stopped.map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(",") }
    }

    /// One for each namespace of which something is suspended; what holds for all comes first.
    pub fn shown(&self) -> Vec<ShownSuspended> {
        let of_all = Some((None, &self.of_all)).filter(|(_, it)| !it.is_nothing());
        let of_one = self.of_one.iter().map(|(name, it)| (Some(name.clone()), it));
        let all = of_all.into_iter().chain(of_one);
        all.map(|(namespace, it)| ShownSuspended::of(namespace, it.clone())).collect()
    }

    fn causes(&self, waits: &BTreeSet<Waits>) -> BTreeSet<Cause> {
        let mut causes = BTreeSet::new();
        let mut note = |name: Option<&String>, suspended: &Suspended, queue: u8| {
            if suspended.stops(queue) {
                let queue = Some(queue).filter(|_| !suspended.all);
                causes.insert(Cause { namespace: name.cloned(), queue });
            }
        };
        for (name, queue) in waits {
            note(None, &self.of_all, *queue);
            if let Some(suspended) = self.of_one.get(name) {
                note(Some(name), suspended, *queue);
            }
        }
        causes
    }

    /// Why tasks that wait there do not start, and what lets them go on.
    fn remarks(&self, waits: &BTreeSet<Waits>) -> Vec<String> {
        let causes = self.causes(waits);
        let mut remarks: Vec<String> =
            causes.iter().take(REMARKS_MAX).map(ToString::to_string).collect();
        if causes.len() > REMARKS_MAX {
            let more = causes.len() - REMARKS_MAX;
            remarks.push(format!("and {more} more are suspended: ringctl task backlog"));
        }
        remarks
    }
}

/// What is suspended; `None` if nobody can say so soon.
pub async fn read(manager: &Manager<'_>, wait: Duration) -> Option<AllSuspended> {
    let states = manager.client.namespaces().list(wait.min(LOOK_WAIT)).await;
    states.ok().map(AllSuspended::of)
}

/// Where those of these tasks wait that wait.
pub fn waits<'a>(tasks: impl IntoIterator<Item = &'a Shown>) -> BTreeSet<Waits> {
    let waiting = tasks.into_iter().filter(|it| it.next_run.is_some());
    waiting.map(|it| (it.namespace.clone(), it.queue)).collect()
}

/// Says on stderr what of this is suspended.
pub async fn remark(manager: &Manager<'_>, waits: &BTreeSet<Waits>, wait: Duration) {
    if waits.is_empty() {
        return;
    }
    let Some(suspended) = read(manager, wait).await else { return };
    for remark in suspended.remarks(waits) {
        eprintln!("{}", for_terminals(&remark));
    }
}

/// The refusal of a namespace. `states`: those that are described, if that is known; `default` is always there.
fn no_namespace(name: &Namespace, states: Option<&[NamespaceState]>) -> String {
    let Some(states) = states else { return format!("there is no namespace {name}") };
    let default = Namespace::default_space();
    let known = states.iter().map(|state| state.name.as_str()).chain([default.as_str()]);
    let known: BTreeSet<&str> = known.filter(|name| *name != CONFIGURATION).collect();
    let listed: Vec<&str> = known.iter().copied().take(NAMES_MAX).collect();
    let more = if known.len() > listed.len() { ", and more" } else { "" };
    format!("there is no namespace {name}; there are {}{more}", listed.join(", "))
}

/// Refuses a namespace that there is not. One of which nobody can say that is taken.
pub async fn check_namespace(
    manager: &Manager<'_>,
    name: &Namespace,
    wait: Duration,
) -> anyhow::Result<()> {
    let (namespaces, wait) = (manager.client.namespaces(), wait.min(LOOK_WAIT));
    match namespaces.get(name, wait).await {
        Err(error) if error.reason() == codes::NAMESPACE.as_str() => {}
        Ok(_) | Err(_) => return Ok(()),
    }
    let states = namespaces.list(wait).await.ok();
    anyhow::bail!(UsageMistake(no_namespace(name, states.as_deref())))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use rota_client::docstore::{Description, Usage};

    fn state(name: &str, all: bool, queues: &[u8]) -> NamespaceState {
        let suspended = Suspended { all, queues: queues.iter().copied().collect() };
        let description = Description { suspended, ..Description::default() };
        let name = Namespace::parse(name).unwrap();
        NamespaceState { name, description, usage: Ok(Usage::default()), version: None }
    }

    /// Queue 0 for all, 1 and 2 for `shop`, every one for `mill`.
    pub fn some() -> AllSuspended {
        let states = [("mill", true, &[][..]), ("shop", false, &[1, 2]), ("yard", false, &[])];
        let states = states.map(|(name, all, queues)| state(name, all, queues));
        AllSuspended::of([&states[..], &[state("z", false, &[0])]].concat())
    }

    #[test]
    fn a_queue_is_told_with_the_namespaces_for_which_it_is_suspended() {
        let all = some();
        assert_eq!([0, 1, 7].map(|it| all.namespaces(it)), ["all", "mill,shop", "mill"]);
        assert_eq!(all.queues(), [0, 1, 2].into());
        assert_eq!(AllSuspended::default().namespaces(0), "-");
        assert_eq!(all.with_every_queue().as_deref(), Some("mill"));
        assert_eq!(AllSuspended::default().with_every_queue(), None);
        let shown = serde_json::to_value(all.shown()).unwrap();
        let expected = serde_json::json!([
            {"namespace": null, "all_queues": false, "queues": [0]},
            {"namespace": "mill", "all_queues": true, "queues": []},
            {"namespace": "shop", "all_queues": false, "queues": [1, 2]},
        ]);
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_task_in_a_suspended_queue_is_told_with_what_lets_it_go_on() {
        let told = |waits: &[(&str, u8)]| {
            let waits = waits.iter().map(|(name, queue)| ((*name).to_owned(), *queue));
            some().remarks(&waits.collect())
        };
        let of_all = "queue 0 is suspended for all namespaces: ringctl task unsuspend --queue 0";
        assert_eq!(told(&[("shop", 0), ("yard", 0), ("yard", 1)]), [of_all]);
        let one = "queue 1 is suspended for namespace shop: \
                   ringctl task unsuspend --queue 1 --namespace shop";
        assert_eq!(told(&[("shop", 1)]), [one]);
        let whole = "every queue is suspended for namespace mill: \
                     ringctl task unsuspend --namespace mill";
        assert_eq!(told(&[("mill", 1), ("mill", 2)]), [whole]);
        let many = told(&[("mill", 0), ("shop", 0), ("shop", 1), ("shop", 2)]);
        assert_eq!(many.len(), REMARKS_MAX + 1);
        assert_eq!(many[REMARKS_MAX], "and 1 more are suspended: ringctl task backlog");
        let everything = Cause { namespace: None, queue: None }.to_string();
        let order = "every queue is suspended for all namespaces: ringctl task unsuspend --all";
        assert_eq!(everything, order);
    }

    #[test]
    fn a_namespace_that_there_is_not_is_told_with_those_that_there_are() {
        let name = Namespace::parse("nosuch").unwrap();
        let states = ["shop", "yard", "z"].map(|name| state(name, false, &[]));
        let told = no_namespace(&name, Some(&states));
        assert_eq!(told, "there is no namespace nosuch; there are default, shop, yard");
        assert_eq!(no_namespace(&name, None), "there is no namespace nosuch");
        let many: Vec<_> = (0..30).map(|it| state(&format!("n{it:02}"), false, &[])).collect();
        assert!(no_namespace(&name, Some(&many)).ends_with("n17, n18, and more"));
    }
}
