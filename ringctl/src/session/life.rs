//! `ringctl session life`: how the life cycles of a session stand.

use super::items::cycle_warning;
use super::times::{length, time};
use super::{CallArguments, Shown};
use crate::failure::OutcomeUnknown;
use crate::output::{Format, Out, counted, for_terminals, plain_table};
use crate::task::at::now;
use clap::Args;
use comfy_table::Table;
use rota_client::docstore::Stamp;
use rota_client::{Client, v1};
use serde::Serialize;
use std::collections::BTreeMap;

/// `session life`.
#[derive(Args, Debug)]
pub struct LifeArguments {
    /// Id of the session; it may have ended.
    id: String,
    /// Try an event at once whose action failed: its life cycle, and the last word of its item as shown.
    #[arg(long, num_args = 2, value_names = ["LIFE_CYCLE", "WORD"])]
    retry: Vec<String>,
    /// Count an event as fired whose action failed.
    #[arg(long, num_args = 2, value_names = ["LIFE_CYCLE", "WORD"])]
    skip: Vec<String>,
    #[command(flatten)]
    call: CallArguments,
}

/// A life-cycle item. Times are stamps; what says nothing is left out.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct ShownItem {
    life_cycle: String,
    text: String,
    /// When its last word fired.
    #[serde(skip_serializing_if = "Option::is_none")]
    fired_at: Option<u64>,
    /// An operator skipped it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    /// When it fires.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<u64>,
    /// What it waits for, as LIFE_CYCLE?EVENT.
    #[serde(skip_serializing_if = "String::is_empty")]
    waits_for: String,
    /// Its action is under way.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    running: bool,
    /// What became of its action.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<ShownFailure>,
    /// When it moved to the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_at: Option<u64>,
    /// It moved to the history, and its last word could fire and never did.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    left: bool,
}

/// An action that failed.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct ShownFailure {
    /// How often.
    failures: u32,
    /// Of the last failure.
    code: String,
    /// What the last failure said.
    report: String,
    /// The id of the task that tries it again, in the namespace of the session.
    #[serde(skip_serializing_if = "String::is_empty")]
    task: String,
    /// PARKED: it is not tried again by itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    task_state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<u64>,
}

/// How the life cycles of a session stand.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub struct ShownLife {
    /// Of the session, also where that is forgotten.
    #[serde(skip)]
    namespace: String,
    /// None: it is forgotten, and its history is not.
    session: Option<Shown>,
    items: Vec<ShownItem>,
    /// What has finished, oldest first.
    history: Vec<ShownItem>,
    /// Life cycles that wait for each other, and none of which can fire by itself.
    cycles: Vec<String>,
    /// When the next event fires; none is timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<u64>,
    /// The last stamp of each life cycle that has one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    last_fired: BTreeMap<String, u64>,
}

/// A stamp on the wire, where 0 is none.
fn some(stamp: u64) -> Option<u64> {
    (stamp > 0).then_some(stamp)
}

/// What is told of an item of the history that could fire, and never did.
const LEFT: &str = "LEFT";

/// What is told of an item whose action is under way.
const RUNS: &str = "its action runs";

fn last_word(text: &str) -> &str {
    text.rsplit(' ').next().unwrap_or_default()
}

/// Whether a word is more than a mark.
fn can_fire(word: &str) -> bool {
    word.contains(['@', '?'])
}

impl ShownItem {
    fn of(it: &v1::LifeItem) -> Self {
        let failed = ShownFailure {
            failures: it.failures,
            code: it.code.clone(),
            report: it.report.clone(),
            task: it.task.clone(),
            task_state: it.task_state.clone(),
            retry_at: some(it.retry_at),
        };
        Self {
            life_cycle: it.life_cycle.clone(),
            text: it.text.clone(),
            fired_at: some(it.fired_at),
            skipped: it.skipped,
            due_at: some(it.due_at),
            waits_for: it.waits_for.clone(),
            running: it.running,
            failed: (it.failures > 0).then_some(failed),
            moved_at: some(it.moved_at),
            left: it.moved_at > 0 && it.fired_at == 0 && can_fire(last_word(&it.text)),
        }
    }

    /// Its words; what has happened has this mark: the words ahead of the last one, and that as well once it fired or
    /// where it has nothing to fire.
    fn words(&self, mark: &str) -> String {
        let mut words: Vec<&str> = self.text.split(' ').skip(1).collect();
        let last = words.pop().unwrap_or_default();
        let mut shown: Vec<String> = words.iter().map(|it| format!("{mark}{it}")).collect();
        let has_happened = self.fired_at.is_some() || !can_fire(last);
        shown.push(if has_happened { format!("{mark}{last}") } else { last.to_owned() });
        shown.join(" ")
    }

    /// When it fires, or did.
    fn fires(&self, now: Stamp) -> String {
        if self.running {
            return RUNS.to_owned();
        }
        match (self.fired_at, self.due_at) {
            (Some(at), _) => {
                let how = if self.skipped { "skipped" } else { "fired" };
                format!("{how} {}", moment(at, now))
            }
            (None, Some(at)) => moment(at, now),
            (None, None) if self.left => LEFT.to_owned(),
            (None, None) => "-".to_owned(),
        }
    }

    /// How its action failed. `namespace`: that of the session.
    fn failure(&self, namespace: &str, now: Stamp) -> String {
        let Some(it) = &self.failed else { return "-".to_owned() };
        let times = counted(it.failures.into(), "time");
        let report = it.report.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text = format!("{times}, {}", it.code);
        if !report.is_empty() {
            text.push_str(&format!(": {report}"));
        }
        if !it.task.is_empty() {
            text.push_str(&format!("; task {namespace}/{} {}", it.task, it.task_state));
        }
        if let Some(at) = it.retry_at {
            text.push_str(&format!(", again {}", moment(at, now)));
        }
        text
    }
}

/// When the next event fires, or since when it is due.
fn next_event(at: u64, now: Stamp) -> String {
    let late = Stamp::parse(at).ok().and_then(|at| now.ms_since(at)).filter(|ms| *ms > 0);
    match late {
        Some(ms) => format!("the next event has been due for {} ({})\n", length(ms), time(at)),
        None => format!("the next event fires {}\n", moment(at, now)),
    }
}

/// A moment from now on or ago, and as it stands in items.
fn moment(at: u64, now: Stamp) -> String {
    let absolute = time(at);
    let Ok(at) = Stamp::parse(at) else { return absolute };
    let relative = match at.ms_since(now) {
        Some(ms) => format!("in {}", length(ms)),
        None => format!("{} ago", length(now.ms_since(at).unwrap_or_default())),
    };
    format!("{relative} ({absolute})")
}

impl ShownLife {
    /// Of an answer about a session of this namespace.
    pub fn of(namespace: &str, life: &v1::Life) -> Self {
        Self {
            namespace: namespace.to_owned(),
            session: life.session.as_ref().map(Shown::of),
            items: life.items.iter().map(ShownItem::of).collect(),
            history: life.history.iter().map(ShownItem::of).collect(),
            cycles: life.cycles.clone(),
            next_at: some(life.next_at),
            last_fired: life.last_fired.clone(),
        }
    }

    fn items_table(&self, mark: &str, now: Stamp) -> Table {
        let mut table = plain_table(["LIFE CYCLE", "WORDS", "WAITS FOR", "FIRES", "FAILED"]);
        for it in &self.items {
            let waits = if it.waits_for.is_empty() { "-".to_owned() } else { it.waits_for.clone() };
            let (words, fires, failed) =
                (it.words(mark), it.fires(now), it.failure(&self.namespace, now));
            table.add_row([it.life_cycle.clone(), words, waits, fires, failed]);
        }
        table
    }

    fn history_table(&self, mark: &str, now: Stamp) -> Table {
        let mut table = plain_table(["FINISHED", "WORDS", "FIRED", "MOVED", "FAILED"]);
        for it in &self.history {
            let moved = it.moved_at.map_or_else(|| "-".to_owned(), |at| moment(at, now));
            let (words, fires, failed) =
                (it.words(mark), it.fires(now), it.failure(&self.namespace, now));
            table.add_row([it.life_cycle.clone(), words, fires, moved, failed]);
        }
        table
    }

    /// Prints it. Warnings go to stderr.
    pub fn tell(&self, out: &mut Out) -> anyhow::Result<()> {
        let warnings = self.cycles.iter().map(|it| cycle_warning(it));
        warnings.for_each(|it| eprintln!("{}", for_terminals(&it)));
        if out.format() == Format::Json {
            return Ok(out.json(self)?);
        }
        let now = now();
        let mark = if out.style().unicode { "✓" } else { "*" };
        match &self.session {
            Some(it) => {
                let (id, state, life, version) = (&it.id, &it.state, it.life, it.version);
                out.text(&format!("session {id}: {state}, life {life}, version {version}\n"))?;
            }
            None => out.text("the session is forgotten, and its history is not\n")?,
        }
        if self.items.is_empty() {
            out.text("no life cycle is open\n")?;
        } else {
            out.table(&self.items_table(mark, now))?;
        }
        if let Some(at) = self.next_at {
            out.text(&next_event(at, now))?;
        }
        for (life_cycle, at) in &self.last_fired {
            out.text(&format!("{life_cycle}: all is done up to {}\n", moment(*at, now)))?;
        }
        if !self.history.is_empty() {
            out.table(&self.history_table(mark, now))?;
        }
        Ok(())
    }
}

/// Events as pairs of words of the command line.
fn events(words: &[String]) -> Vec<v1::LifeEvent> {
    let pairs = words.chunks_exact(2);
    let event = |pair: &[String]| {
        let [life_cycle, word] = pair else { return None };
        Some(v1::LifeEvent { life_cycle: life_cycle.clone(), word: word.clone() })
    };
    pairs.filter_map(event).collect()
}

/// Which events were to be retried, and had fired before. Whatever else cannot be retried is refused.
fn retried_in_vain(life: &v1::Life, retry: &[v1::LifeEvent]) -> Vec<String> {
    let has_fired = |event: &&v1::LifeEvent| {
        let is_it = |item: &&v1::LifeItem| {
            item.life_cycle == event.life_cycle && last_word(&item.text) == event.word
        };
        let current = life.items.iter().find(is_it);
        current.or_else(|| life.history.iter().rfind(is_it)).is_some_and(|it| it.fired_at > 0)
    };
    let fired = retry.iter().filter(has_fired);
    let name = |it: &v1::LifeEvent| format!("{} {}", it.life_cycle, it.word);
    fired.map(|it| format!("not retried: {} has fired already", name(it))).collect()
}

/// Shows the life cycles of a session, after the events that are named were retried or skipped.
pub async fn run(client: &Client, it: &LifeArguments, out: &mut Out) -> anyhow::Result<()> {
    let (namespace, id) = (it.call.namespace.clone(), it.id.clone());
    let (retry, skip) = (events(&it.retry), events(&it.skip));
    let life = if retry.is_empty() && skip.is_empty() {
        client.life(v1::GetLifeRequest { namespace, id }, it.call.timeout).await?
    } else {
        let asked = retry.clone();
        let request = v1::UpdateRequest { namespace, id, retry, skip, ..Default::default() };
        let answer = client.update(request, it.call.timeout).await;
        let life = answer.map_err(|error| OutcomeUnknown::Update.unless_refused(error))?;
        retried_in_vain(&life, &asked).iter().for_each(|it| eprintln!("{}", for_terminals(it)));
        life
    };
    ShownLife::of(&it.call.namespace, &life).tell(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::session::SessionCommand;
    use clap::Parser;

    fn at(ms: u64) -> u64 {
        Stamp::parse(261_128_000_000_000).unwrap().plus_ms(ms).as_u64()
    }

    fn life() -> v1::Life {
        let item = |life_cycle: &str, words: &str| v1::LifeItem {
            text: format!("{life_cycle} {words}"),
            life_cycle: life_cycle.to_owned(),
            ..Default::default()
        };
        let failed = v1::LifeItem {
            failures: 2,
            code: "EXIT".to_owned(),
            report: "exit code 3\nno ink".to_owned(),
            task: "{a}1".to_owned(),
            task_state: "WAITING".to_owned(),
            retry_at: at(30_000),
            ..item("letter", "print@T")
        };
        let items = vec![
            v1::LifeItem { due_at: at(92_000), ..item("key", "made retire@T") },
            v1::LifeItem { waits_for: "key?retire".to_owned(), ..item("note", "key?retire") },
            failed,
            item("sign", "signed"),
            v1::LifeItem { due_at: at(1_000), running: true, ..item("bill", "paid@T") },
        ];
        let past = v1::LifeItem {
            fired_at: at(0),
            skipped: true,
            moved_at: at(1_000),
            ..item("old", "gone@T")
        };
        let left = |words: &str| v1::LifeItem { moved_at: at(1_000), ..item("late", words) };
        let never = v1::LifeItem { failures: 3, code: "EXIT-3".to_owned(), ..left("never@T") };
        let history = vec![past, never, left("on")];
        let last_fired = [("key".to_owned(), at(0))].into();
        v1::Life { items, history, next_at: at(92_000), last_fired, ..Default::default() }
    }

    #[test]
    fn events_that_had_fired_are_told_as_retried_in_vain() {
        let item = |text: &str, fired_at| v1::LifeItem {
            text: text.to_owned(),
            life_cycle: "bill".to_owned(),
            fired_at,
            ..Default::default()
        };
        let life = v1::Life {
            items: vec![item("bill due@1", 0), item("bill c@3", 7)],
            history: vec![item("bill past@1", 7), item("bill due@1", 7)],
            ..Default::default()
        };
        let words = ["due@1", "c@3", "past@1", "typo"].iter();
        let named =
            events(&words.flat_map(|it| ["bill", it]).map(str::to_owned).collect::<Vec<_>>());
        let told = retried_in_vain(&life, &named);
        assert_eq!(
            told,
            ["c@3", "past@1"].map(|it| format!("not retried: bill {it} has fired already"))
        );
    }

    #[test]
    fn what_has_happened_is_marked_and_what_comes_is_told_with_its_time() {
        let now = Stamp::parse(at(2_000)).unwrap();
        let shown = ShownLife::of("shop", &life());
        let table = shown.items_table("*", now).to_string();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].contains("*made retire@T"), "{table}");
        assert!(rows[1].contains("in 1m 30s (2026-11-28T00:01:32.000Z)"), "{table}");
        assert!(rows[2].contains("key?retire") && !rows[2].contains('*'), "{table}");
        let failed = "2 times, EXIT: exit code 3 no ink; task shop/{a}1 WAITING, again in 28s";
        assert!(rows[3].contains(failed), "{table}");
        assert!(rows[4].contains("*signed"), "{table}");
        assert!(rows[5].contains("its action runs"), "{table}");
        let history = shown.history_table("*", now).to_string();
        assert!(history.contains("*gone@T"), "{history}");
        assert!(history.contains("skipped 2s ago (2026-11-28T00:00:00.000Z)"), "{history}");
        assert!(history.contains("1s ago (2026-11-28T00:00:01.000Z)"), "{history}");
        let rows: Vec<&str> = history.lines().collect();
        assert!(rows[2].contains("never@T  LEFT"), "{history}");
        assert!(rows[2].contains("3 times, EXIT-3"), "{history}");
        assert!(rows[3].contains("*on") && !rows[3].contains("LEFT"), "{history}");
    }

    #[test]
    fn a_next_event_whose_time_has_come_is_told_as_due() {
        let told = |ms| next_event(at(10_000), Stamp::parse(at(ms)).unwrap());
        let fires = "the next event fires in 3s (2026-11-28T00:00:10.000Z)\n";
        let due = "the next event has been due for 3s (2026-11-28T00:00:10.000Z)\n";
        assert_eq!([told(7_000), told(13_000)], [fires, due]);
    }

    #[test]
    fn a_document_leaves_out_what_says_nothing() {
        let told = serde_json::to_value(ShownLife::of("shop", &life())).unwrap();
        let plain = serde_json::json!({"life_cycle": "sign", "text": "sign signed"});
        assert_eq!(told["items"][3], plain);
        assert_eq!(told["items"][2]["failed"]["failures"], 2);
        assert_eq!(told["items"][2]["failed"]["task"], "{a}1");
        assert_eq!(told["next_at"], at(92_000));
        assert_eq!(told["last_fired"], serde_json::json!({"key": at(0)}));
        assert_eq!(told["history"][1]["left"], true);
        assert_eq!(told["history"][2].get("left"), None);
    }

    #[test]
    fn an_event_is_named_by_two_words_and_several_may_be() {
        let line = "ringctl session life a --retry b c --retry d e?f --skip g h";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Session(SessionCommand::Life(it)) = cli.command else {
            panic!("another command")
        };
        let of = |words: &[String]| {
            let named =
                events(words).into_iter().map(|it| format!("{} {}", it.life_cycle, it.word));
            named.collect::<Vec<_>>()
        };
        assert_eq!(of(&it.retry), ["b c", "d e?f"]);
        assert_eq!(of(&it.skip), ["g h"]);
        assert!(Cli::try_parse_from("ringctl session life a --skip g".split(' ')).is_err());
    }
}
