//! `ringctl session update`.

use super::items::absolute;
use super::life::ShownLife;
use super::own::life_meant;
use super::{CallArguments, attribute, attributes_once};
use crate::failure::{OutcomeUnknown, UsageMistake};
use crate::output::{Out, for_terminals};
use clap::Args;
use rota_client::{Client, v1};
use std::collections::BTreeSet;
use std::time::Instant;

/// `session update`.
#[derive(Args, Debug)]
pub struct UpdateArguments {
    /// Id of the session.
    id: String,
    /// An attribute to set; may be given several times.
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// An attribute to remove; may be given several times.
    #[arg(long = "no-attr", value_name = "NAME")]
    no_attributes: Vec<String>,
    /// A life-cycle item to add, as in 'reminder note@+2h'; may be given several times.
    #[arg(long = "life", alias = "life-item", value_name = "ITEM")]
    items: Vec<String>,
    /// A life-cycle item to remove, as its whole text, or a life cycle, to remove all of its items; may be given
    /// several times.
    #[arg(long = "no-life", value_name = "ITEM|LIFE_CYCLE")]
    no_items: Vec<String>,
    /// A life cycle that moves to the history, whatever is left of it; may be given several times.
    #[arg(long, value_name = "LIFE_CYCLE")]
    finish: Vec<String>,
    /// Change only this version of the session (see `session get`).
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Change only this life; without it, whichever lives. In a program or an action of the session itself, that of
    /// ROTA_LIFE.
    #[arg(long, value_name = "LIFE")]
    if_life: Option<u64>,
    #[command(flatten)]
    call: CallArguments,
}

impl UpdateArguments {
    fn is_empty(&self) -> bool {
        self.attributes.is_empty()
            && self.no_attributes.is_empty()
            && self.items.is_empty()
            && self.no_items.is_empty()
            && self.finish.is_empty()
    }

    /// What is asked for, but for life cycles whose items are all to be removed.
    fn request(&self) -> anyhow::Result<v1::UpdateRequest> {
        let (namespace, id) = (&self.call.namespace, &self.id);
        let life = life_meant(self.if_life.unwrap_or_default(), namespace, id)?;
        let whole = self.no_items.iter().filter(|it| it.contains(' '));
        Ok(v1::UpdateRequest {
            namespace: namespace.clone(),
            id: id.clone(),
            life,
            if_version: self.if_version.unwrap_or_default(),
            attributes: attributes_once(&self.attributes)?,
            remove_attributes: self.no_attributes.clone(),
            add_state: self.items.clone(),
            remove_state: whole.cloned().collect(),
            finish: self.finish.clone(),
            ..Default::default()
        })
    }

    /// Life cycles whose items are all to be removed.
    fn no_life_cycles(&self) -> BTreeSet<&str> {
        let names = self.no_items.iter().map(String::as_str);
        names.filter(|it| !it.contains(' ')).collect()
    }
}

/// The items of these life cycles, and the life cycles that have none.
fn items_of<'a>(life: &v1::Life, named: &BTreeSet<&'a str>) -> (Vec<String>, Vec<&'a str>) {
    let items = life.items.iter().filter(|it| named.contains(it.life_cycle.as_str()));
    let items: Vec<String> = items.map(|it| it.text.clone()).collect();
    let has = |name: &str| life.items.iter().any(|it| it.life_cycle == name);
    (items, named.iter().copied().filter(|it| !has(it)).collect())
}

fn life_cycle_of(item: &str) -> &str {
    item.split(' ').next().unwrap_or_default()
}

/// What a person is told who named a life cycle that a session has not.
fn none_of(id: &str, name: &str, life: &v1::Life) -> String {
    let known: BTreeSet<&str> = life.items.iter().map(|it| it.life_cycle.as_str()).collect();
    let known = match known.is_empty() {
        true => "no life cycle of it is open".to_owned(),
        false => format!("open are {}", Vec::from_iter(known).join(", ")),
    };
    format!("warning: session {id:?} has no item of life cycle {name:?}; {known}")
}

/// Whether an item of a session has that text, now or in the history: to remove it twice is no mistake.
fn is_item(life: &v1::Life, text: &str) -> bool {
    life.items.iter().chain(&life.history).any(|it| it.text == text)
}

/// What a person is told who named an item that a session has not.
fn no_item(id: &str, text: &str, life: &v1::Life) -> String {
    let of_it = life.items.iter().filter(|it| it.life_cycle == life_cycle_of(text));
    let known: Vec<String> = of_it.map(|it| format!("{:?}", it.text)).collect();
    match known.is_empty() {
        true => none_of(id, life_cycle_of(text), life),
        false => format!(
            "warning: session {id:?} has no item {text:?}; of that life cycle it has {}",
            known.join(", ")
        ),
    }
}

/// Changes a session, and shows how its life cycles stand after that.
pub async fn run(client: &Client, it: &UpdateArguments, out: &mut Out) -> anyhow::Result<()> {
    if it.is_empty() {
        let told =
            "nothing is to be changed: --attr, --no-attr, --life, --no-life or --finish says what";
        anyhow::bail!(UsageMistake(told.to_owned()));
    }
    let began = Instant::now();
    let mut request = it.request()?;
    request.add_state = absolute(&request.add_state)?;
    let removed = it.no_life_cycles();
    let whole = request.remove_state.clone();
    let finished: BTreeSet<&str> = it.finish.iter().map(String::as_str).collect();
    if !removed.is_empty() || !whole.is_empty() || !finished.is_empty() {
        let (namespace, id) = (request.namespace.clone(), request.id.clone());
        let life = client.life(v1::GetLifeRequest { namespace, id }, it.call.timeout).await?;
        let (items, absent) = items_of(&life, &removed);
        request.remove_state.extend(items);
        let added = |name: &str| request.add_state.iter().any(|it| life_cycle_of(it) == name);
        let past = |name: &str| life.history.iter().any(|it| it.life_cycle == name);
        // What is in the history may have been finished by the same command.
        let unknown = items_of(&life, &finished).1.into_iter();
        let unknown = unknown.filter(|name| !added(name) && !past(name));
        for name in absent.into_iter().chain(unknown) {
            eprintln!("{}", for_terminals(&none_of(&it.id, name, &life)));
        }
        for text in whole.iter().filter(|text| !is_item(&life, text)) {
            eprintln!("{}", for_terminals(&no_item(&it.id, text, &life)));
        }
    }
    // One deadline for both calls.
    let left = it.call.timeout.saturating_sub(began.elapsed());
    let answer = client.update(request, left).await;
    let life = answer.map_err(|error| OutcomeUnknown::Update.unless_refused(error))?;
    ShownLife::of(&it.call.namespace, &life).tell(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_cycle_without_words_stands_for_all_of_its_items() {
        let item = |text: &str| v1::LifeItem {
            text: text.to_owned(),
            life_cycle: text.split(' ').next().unwrap().to_owned(),
            ..Default::default()
        };
        let items = vec![item("a b"), item("c d"), item("a e")];
        let life = v1::Life { items, ..Default::default() };
        let (removed, absent) = items_of(&life, &BTreeSet::from(["a", "x"]));
        assert_eq!(removed, ["a b", "a e"]);
        assert_eq!(absent, ["x"]);
        let told = none_of("s", "x", &life);
        assert_eq!(told, "warning: session \"s\" has no item of life cycle \"x\"; open are a, c");
        assert!(none_of("s", "x", &v1::Life::default()).ends_with("no life cycle of it is open"));
        assert!(is_item(&life, "a e") && !is_item(&life, "a"));
        let told = no_item("s", "a x", &life);
        assert!(told.ends_with("has no item \"a x\"; of that life cycle it has \"a b\", \"a e\""));
        assert!(no_item("s", "y x", &life).contains("no item of life cycle \"y\""));
    }
}
