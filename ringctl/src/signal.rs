//! Tells managers which of their peers look gone: `ringctl signal`.
//!
//! A Consul agent runs it as the handler of a watch (`deploy/consul`). The handler gets the whole
//! state of the service on stdin, not what changed, so it may run twice or late: each run names
//! the very incarnation that looks gone, and a manager that knows better does nothing.

use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, plain_table};
use crate::restore::{RestoreArguments, Restored, Restorer};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{Client, v1};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// How much longer one that looks gone may take to answer than the others.
const GONE_WAIT: Duration = Duration::from_millis(200);

/// Most bytes on stdin: a hundred managers are about 200 KB.
const STDIN_BYTES_MAX: u64 = 16 << 20;

const NOT_A_WATCH: &str = "stdin is not what Consul gives to the handler of a watch of type \"service\" \
    (a JSON list of instances with their checks)";

/// `signal`.
#[derive(Args, Debug)]
pub struct SignalArguments {
    /// Read on stdin what Consul gives to the handler of a watch on the managers' service; tell
    /// every manager which of the others are critical.
    #[arg(long, required = true)]
    from_consul: bool,
    /// How long a manager may take to answer. One that looks gone has 200 ms more than the others take.
    #[arg(long, default_value = "2s", value_parser = length_of_time)]
    timeout: Duration,
    #[command(flatten)]
    restore: RestoreArguments,
}

/// One instance of the service, as Consul shows it.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    service: Registered,
    #[serde(default)]
    checks: Option<Vec<Check>>,
}

#[derive(Deserialize, Debug)]
struct Registered {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Meta", default)]
    meta: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct Check {
    status: String,
}

/// A manager, as it registered itself.
#[derive(Serialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Manager {
    /// Its name.
    pub id: String,
    /// Its number.
    pub number: u32,
    /// Its run.
    pub incarnation: u64,
    /// Where it serves, or served.
    #[serde(skip)]
    pub grpc: String,
}

/// What one cluster's managers look like.
#[derive(PartialEq, Eq, Debug, Default)]
struct Sight {
    gone: BTreeSet<Manager>,
    others: BTreeSet<Manager>,
}

impl Sight {
    /// What a manager is told: who looks gone, but for itself, of which it knows better.
    fn told_to(&self, cluster: &str, manager: &Manager) -> Option<v1::SignalRequest> {
        let gone = self.gone.iter().filter(|it| *it != manager);
        let gone = gone.map(|it| v1::MemberId { number: it.number, incarnation: it.incarnation });
        let gone: Vec<_> = gone.collect();
        (!gone.is_empty()).then(|| v1::SignalRequest { cluster: cluster.to_owned(), gone })
    }
}

/// What stdin says.
#[derive(PartialEq, Eq, Debug, Default)]
struct Input {
    /// By cluster.
    sights: BTreeMap<String, Sight>,
    /// What is wrong with instances that are no managers.
    strays: Vec<String>,
}

/// What came of it.
#[derive(Serialize, Debug, Default)]
struct SignalReport {
    /// Who looks gone.
    gone: Vec<Manager>,
    /// Whom it was told.
    told: Vec<Answer>,
    /// Who passes its checks and could not be told.
    failed: Vec<Failure>,
    /// Instances of which nothing is known, and why.
    strays: Vec<String>,
    /// What became of lost managers, where a restore command is configured.
    restores: Vec<Restored>,
}

#[derive(Serialize, Debug)]
struct Answer {
    grpc: String,
    /// How many of them run by its View, so that it suspects them.
    suspected: u32,
}

#[derive(Serialize, Debug)]
struct Failure {
    grpc: String,
    error: String,
}

/// Reads stdin and tells the managers; then restores who is lost.
pub async fn run(it: &SignalArguments, out: &mut Out) -> anyhow::Result<()> {
    let mut text = Vec::new();
    std::io::stdin().take(STDIN_BYTES_MAX + 1).read_to_end(&mut text).context("stdin")?;
    let Input { sights, strays } = input(&text)?;
    let mut all = SignalReport { strays, ..SignalReport::default() };
    for (cluster, sight) in &sights {
        tell(cluster, sight, it.timeout, &mut all).await;
    }
    // The document on stdout has them all.
    let is_read = out.format() == Format::Table;
    for it in all.strays.iter().filter(|_| is_read) {
        eprintln!("not looked at: {it}");
    }
    for it in all.failed.iter().filter(|_| is_read) {
        eprintln!("not told: {}: {}", it.grpc, it.error);
    }
    // What is wrong with its options silences no signal.
    let mut restorer = Restorer::new(&it.restore);
    if let Ok(Some(restorer)) = &mut restorer {
        for (cluster, sight) in &sights {
            let others: Vec<String> = sight.others.iter().map(|it| it.grpc.clone()).collect();
            let restored = restorer.restore(cluster, sight.gone.iter(), &others).await;
            restored.iter().filter(|_| is_read).for_each(|it| eprintln!("{}", it.text()));
            all.restores.extend(restored);
        }
    }
    show(&all, out)?;
    if !all.gone.is_empty() && all.told.is_empty() {
        bail!("{} managers look gone, and no manager could be told", all.gone.len());
    }
    restorer?;
    match all.restores.iter().find(|it| it.has_failed()) {
        Some(failed) => bail!(failed.text()),
        None => Ok(()),
    }
}

/// What stdin says. An instance that is no manager's is left out; where there is nothing else, that is a
/// mistake.
fn input(text: &[u8]) -> anyhow::Result<Input> {
    if text.len() as u64 > STDIN_BYTES_MAX {
        bail!("stdin has more than {STDIN_BYTES_MAX} bytes");
    }
    // Consul writes null for a service that nobody has registered.
    let entries: Option<Vec<serde_json::Value>> =
        serde_json::from_slice(text).context(NOT_A_WATCH)?;
    let mut input = Input::default();
    for entry in entries.unwrap_or_default() {
        let entry = serde_json::from_value::<Entry>(entry).context(NOT_A_WATCH);
        match entry.and_then(|it| Ok((manager(&it)?, it))) {
            Ok(((cluster, manager), entry)) => {
                let sight = input.sights.entry(cluster).or_default();
                let mut checks = entry.checks.iter().flatten();
                if checks.any(|it| it.status == "critical") {
                    sight.gone.insert(manager);
                } else {
                    sight.others.insert(manager);
                }
            }
            Err(error) => input.strays.push(format!("{error:#}")),
        }
    }
    match input.strays.first() {
        Some(first) if input.sights.is_empty() => bail!(first.clone()),
        Some(_) | None => Ok(input),
    }
}

fn manager(entry: &Entry) -> anyhow::Result<(String, Manager)> {
    let meta = |name: &str| {
        let value = entry.service.meta.as_ref().and_then(|it| it.get(name));
        value.cloned().with_context(|| {
            format!(
                "service instance {:?} has no metadata {name:?}: is the watch on the service of \
                 the managers?",
                entry.service.id
            )
        })
    };
    let wrong = |name: &str| format!("metadata {name:?} of {:?} is no number", entry.service.id);
    let manager = Manager {
        id: meta("id")?,
        number: meta("number")?.parse().with_context(|| wrong("number"))?,
        incarnation: meta("incarnation")?.parse().with_context(|| wrong("incarnation"))?,
        grpc: meta("grpc")?,
    };
    Ok((meta("cluster")?, manager))
}

async fn tell(cluster: &str, sight: &Sight, wait: Duration, all: &mut SignalReport) {
    if sight.gone.is_empty() {
        return;
    }
    let mut asked = JoinSet::new();
    for manager in sight.gone.iter().chain(&sight.others) {
        let Some(request) = sight.told_to(cluster, manager) else { continue };
        let manager = manager.clone();
        asked.spawn(async move {
            let answer = signal_at(&manager.grpc, request, wait).await;
            (manager, answer)
        });
    }
    // Who looks gone may hang: the next signal does not wait for that, unless there is nobody else.
    let (mut others, mut until) = (sight.others.len(), Instant::now() + wait + GONE_WAIT);
    while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
        let Ok((manager, answer)) = answer else { continue };
        let is_other = sight.others.contains(&manager);
        match answer {
            Ok(answer) => all.told.push(answer),
            Err(failure) if is_other => all.failed.push(failure),
            // That one which looks gone does not answer is no news.
            Err(_) => {}
        }
        others -= usize::from(is_other);
        if is_other && others == 0 {
            until = Instant::now() + GONE_WAIT;
        }
    }
    all.gone.extend(sight.gone.iter().cloned());
}

async fn signal_at(
    grpc: &str,
    request: v1::SignalRequest,
    wait: Duration,
) -> Result<Answer, Failure> {
    let failed = |error: String| Failure { grpc: grpc.to_owned(), error };
    let client = Client::connect(grpc).map_err(|it| failed(it.to_string()))?;
    let answer = client.signal_at(grpc, request, wait).await;
    let answer = answer.map_err(|it| failed(it.to_string()))?;
    Ok(Answer { grpc: grpc.to_owned(), suspected: answer.suspected })
}

fn show(all: &SignalReport, out: &mut Out) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.json(all)?);
    }
    if all.gone.is_empty() {
        return Ok(out.text("nobody looks gone\n")?);
    }
    let mut table = plain_table(["GONE", "NUMBER", "INCARNATION"]);
    for it in &all.gone {
        table.add_row([it.id.clone(), it.number.to_string(), it.incarnation.to_string()]);
    }
    out.table(&table)?;
    out.text(&format!("told {} managers\n", all.told.len()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cluster: &str, number: &str, status: &str) -> String {
        format!(
            r#"{{"Node":{{"Node":"x"}},"Service":{{"ID":"rota-manager-m{number}","Meta":{{
            "cluster":"{cluster}","number":"{number}","incarnation":"3","id":"m{number}",
            "grpc":"h:{number}"}}}},"Checks":[{{"Status":"passing"}},{{"Status":"{status}"}}]}}"#
        )
    }

    #[test]
    fn every_manager_is_told_of_all_that_look_gone_but_for_itself() {
        let all = [("7", "critical"), ("8", "critical"), ("9", "passing")];
        let all = all.map(|(number, status)| entry("a", number, status)).join(",");
        let sight = input(format!("[{all}]").as_bytes()).unwrap().sights.remove("a").unwrap();
        let told = |manager: &Manager| {
            let gone = sight.told_to("a", manager).map(|it| it.gone).unwrap_or_default();
            (manager.number, gone.into_iter().map(|it| it.number).collect::<Vec<_>>())
        };
        let told: Vec<_> = sight.gone.iter().chain(&sight.others).map(told).collect();
        assert_eq!(told, [(7, vec![8]), (8, vec![7]), (9, vec![7, 8])]);
        let alone = input(format!("[{}]", entry("a", "7", "critical")).as_bytes()).unwrap();
        let sight = &alone.sights["a"];
        assert_eq!(sight.told_to("a", sight.gone.first().unwrap()), None);
    }

    fn numbers(managers: &BTreeSet<Manager>) -> Vec<u32> {
        managers.iter().map(|it| it.number).collect()
    }

    #[test]
    fn who_is_critical_is_gone_and_the_others_are_told_cluster_by_cluster() {
        let text = format!(
            "[{},{},{},{}]",
            entry("a", "7", "critical"),
            entry("a", "8", "passing"),
            entry("a", "9", "warning"),
            entry("b", "7", "passing"),
        );
        let all = input(text.as_bytes()).unwrap().sights;
        assert_eq!((numbers(&all["a"].gone), numbers(&all["a"].others)), (vec![7], vec![8, 9]));
        assert_eq!((numbers(&all["b"].gone), numbers(&all["b"].others)), (vec![], vec![7]));
        for nobody in ["[]", "null"] {
            assert_eq!(input(nobody.as_bytes()).unwrap(), Input::default());
        }
    }

    #[test]
    fn an_instance_that_is_no_managers_does_not_silence_what_is_known_of_the_others() {
        let stray = r#"{"Service":{"ID":"web-1","Meta":null},"Checks":[]}"#;
        let broken = entry("a", "8", "critical").replace("\"8\"", "\"eight\"");
        let good = [entry("a", "7", "critical"), entry("a", "9", "passing")];
        let text = format!("[{stray},{},{broken},17,{}]", good[0], good[1]);
        let input = input(text.as_bytes()).unwrap();
        let sight = &input.sights["a"];
        assert_eq!((numbers(&sight.gone), numbers(&sight.others)), (vec![7], vec![9]));
        assert_eq!(input.strays.len(), 3, "{:?}", input.strays);
        assert!(input.strays[0].contains("\"web-1\" has no metadata"), "{:?}", input.strays);
    }

    #[test]
    fn rubbish_is_refused_with_what_is_wrong() {
        let not_ours = r#"[{"Service":{"ID":"web-1","Meta":null},"Checks":[]}]"#;
        let no_number = entry("a", "7", "passing").replace("\"7\"", "\"seven\"");
        for (text, words) in [
            ("", "watch of type \"service\""),
            ("hello", "watch of type \"service\""),
            ("{\"a\":1}", "watch of type \"service\""),
            ("[1]", "watch of type \"service\""),
            (not_ours, "\"web-1\" has no metadata"),
            (&format!("[{no_number}]"), "is no number"),
        ] {
            let error = format!("{:#}", input(text.as_bytes()).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
