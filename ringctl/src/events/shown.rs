//! An event as it is shown.

use crate::output::plain_table;
use crate::session::time;
use comfy_table::Table;
use rota_client::v1;
use rota_model::Stamp;
use rota_proto::events::RemarkKind;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

/// What every manager tells.
const NODE_LOST: &str = "node_lost";

/// Events that are known when they come again.
const SEEN_MAX: usize = 10_000;

type Name = (u64, String, String, String, String);

/// All that was found.
#[derive(Serialize)]
pub struct All {
    /// Oldest first.
    pub events: Vec<Shown>,
    /// Which managers are silent, do not keep what came before, or were started anew.
    pub remarks: Vec<Shown>,
}

/// Events that were shown lately and may be told by several managers.
#[derive(Default)]
pub struct Seen {
    names: BTreeSet<Name>,
    order: VecDeque<Name>,
}

impl Seen {
    /// Whether an event comes for the first time.
    pub fn is_new(&mut self, event: &Shown) -> bool {
        if event.version == 0 && event.kind != NODE_LOST {
            return true;
        }
        let is_new = self.names.insert(event.name());
        if is_new {
            self.order.push_back(event.name());
        }
        if self.order.len() > SEEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
        is_new
    }
}

/// One event.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shown {
    /// When, as a stamp.
    pub at: u64,
    /// Who told it.
    pub manager: u32,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub life: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub position: String,
    /// The version that it led to.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Shown {
    /// An event of a manager.
    pub fn of(it: v1::Event) -> Self {
        let v1::Event { position, at, manager, kind, namespace, id, life, class, node, .. } = it;
        let v1::Event { reason, partition, text, version, .. } = it;
        Self {
            at,
            manager,
            kind,
            namespace,
            id,
            life,
            class,
            node,
            reason,
            partition,
            text,
            position,
            version,
        }
    }

    fn remark(manager: u32, kind: RemarkKind, text: String) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let it = v1::Event {
            at: Stamp::from_epoch_ms(now).as_u64(),
            manager,
            text,
            ..Default::default()
        };
        Self { kind: kind.as_str().to_owned(), ..Self::of(it) }
    }

    /// A manager does not answer: its events are missing.
    pub fn silent(manager: u32, why: &str) -> Self {
        Self::remark(manager, RemarkKind::Silent, format!("its events are missing: {why}"))
    }

    /// A manager does not keep what came before that event.
    pub fn missed(manager: u32, before: Option<&v1::Event>) -> Self {
        let text = "events before this are not kept, or the manager was started anew";
        let remark = Self::remark(manager, RemarkKind::Missed, text.to_owned());
        Self { at: before.map_or(remark.at, |it| it.at), ..remark }
    }

    /// A manager keeps only its newest events, and so many are gone.
    pub fn dropped(manager: u32, before: Option<&v1::Event>, dropped: u64) -> Self {
        let it = Self::missed(manager, before);
        let text =
            format!("events before this are not kept: it dropped {dropped} since it started");
        Self { text, ..it }
    }

    /// A manager was started anew at that time, and remembers nothing from before.
    pub fn forgotten(manager: u32, since: u64) -> Self {
        let text = format!("it remembers since {}, when it was started anew", time(since));
        Self { at: since, ..Self::remark(manager, RemarkKind::Forgotten, text) }
    }

    /// Whether this program says it, and no manager.
    pub fn is_remark(&self) -> bool {
        RemarkKind::parse(&self.kind).is_some()
    }

    /// Whether it is a remark that a manager is silent.
    pub fn is_silent(&self) -> bool {
        self.kind == RemarkKind::Silent.as_str()
    }

    /// Whether it is a remark that a manager was started anew.
    pub fn is_forgotten(&self) -> bool {
        self.kind == RemarkKind::Forgotten.as_str()
    }

    /// In which order events are shown.
    pub fn order(&self) -> (u64, u32, u64) {
        let seq = self.position.rsplit('-').next().and_then(|it| it.parse().ok());
        (self.at, self.manager, seq.unwrap_or(0))
    }

    /// By what it is known when the next owner of a partition tells it again.
    fn name(&self) -> Name {
        let of = |it: &String| it.clone();
        // Each manager tells that a node is lost when it hears of it; the sentence has its boot.
        (self.version, of(&self.kind), of(&self.namespace), of(&self.id), of(&self.text))
    }

    fn subject(&self) -> String {
        match self.partition {
            Some(part) => format!("partition {part}"),
            None if self.id.is_empty() => String::new(),
            None => format!("{}/{}", self.namespace, self.id),
        }
    }

    fn detail(&self) -> String {
        let parts = [&self.reason, &self.text];
        let parts: Vec<&str> =
            parts.into_iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        parts.join(": ")
    }

    /// A line for people.
    pub fn line(&self) -> String {
        let time = time(self.at);
        let mut line = format!("{time}  {:<5}  {:<16}", self.manager, self.kind);
        let more = [self.subject(), self.class.clone(), self.node.clone(), self.detail()];
        for part in more.iter().filter(|it| !it.is_empty()) {
            line.push_str("  ");
            line.push_str(part);
        }
        format!("{}\n", line.trim_end())
    }
}

/// Events as a table.
pub fn table(events: &[Shown]) -> Table {
    let mut table = plain_table(["TIME", "MANAGER", "EVENT", "SUBJECT", "CLASS", "NODE", "DETAIL"]);
    for it in events {
        let (kind, class, node) = (it.kind.clone(), it.class.clone(), it.node.clone());
        let manager = it.manager.to_string();
        table.add_row([time(it.at), manager, kind, it.subject(), class, node, it.detail()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, manager: u32, seq: u64) -> v1::Event {
        v1::Event {
            position: format!("0a1b2c3d-{seq}"),
            at,
            manager,
            kind: "session_closed".to_owned(),
            namespace: "default".to_owned(),
            id: "cart-7".to_owned(),
            life: 261_128_093_000_000,
            class: "room".to_owned(),
            node: "n1".to_owned(),
            reason: "EXITED".to_owned(),
            partition: None,
            text: "exit code 0".to_owned(),
            version: at,
        }
    }

    #[test]
    fn events_of_one_moment_keep_the_order_of_their_manager() {
        let mut all: Vec<Shown> = [(7, 2, 1), (7, 1, 10), (7, 1, 9), (6, 3, 5)]
            .map(|(at, manager, seq)| Shown::of(event(at, manager, seq)))
            .into();
        all.sort_by_key(Shown::order);
        let order: Vec<_> = all.iter().map(Shown::order).collect();
        assert_eq!(order, [(6, 3, 5), (7, 1, 9), (7, 1, 10), (7, 2, 1)]);
    }

    #[test]
    fn an_event_that_the_next_owner_tells_again_is_known() {
        let mut seen = Seen::default();
        assert!(seen.is_new(&Shown::of(event(7, 1, 10))));
        assert!(!seen.is_new(&Shown::of(event(7, 2, 1))), "another manager tells it");
        assert!(seen.is_new(&Shown::of(event(8, 2, 2))));
        let lost = |at, manager, boot: &str| v1::Event {
            id: String::new(),
            version: 0,
            kind: NODE_LOST.to_owned(),
            text: format!("node n1 boot {boot}"),
            ..event(at, manager, 12)
        };
        assert!(
            seen.is_new(&Shown::of(lost(7, 1, "5"))) && !seen.is_new(&Shown::of(lost(9, 2, "5")))
        );
        assert!(seen.is_new(&Shown::of(lost(9, 1, "6"))));
        let published = v1::Event { id: String::new(), ..event(7, 1, 11) };
        assert!(seen.is_new(&Shown::of(published.clone())) && !seen.is_new(&Shown::of(published)));
        let of_ring = v1::Event { id: String::new(), version: 0, ..event(7, 1, 11) };
        assert!(seen.is_new(&Shown::of(of_ring.clone())) && seen.is_new(&Shown::of(of_ring)));
        for at in 0..SEEN_MAX as u64 {
            seen.is_new(&Shown::of(event(100 + at, 1, 1)));
        }
        assert_eq!((seen.names.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
    }

    #[test]
    fn a_line_has_what_there_is_and_nothing_else() {
        let line = Shown::of(event(261_128_093_001_250, 300, 1)).line();
        let text = "2026-11-28T09:30:01.250Z  300    session_closed    default/cart-7  room  n1  EXITED: exit code 0\n";
        assert_eq!(line, text);
        let it =
            v1::Event { kind: "serving".to_owned(), partition: Some(600), ..Default::default() };
        assert!(Shown::of(it).line().ends_with("0      serving           partition 600\n"));
    }

    #[test]
    fn a_manager_that_was_started_anew_is_named_with_since_when_it_remembers() {
        let line = Shown::forgotten(300, 261_128_093_001_250).line();
        let text = "2026-11-28T09:30:01.250Z  300    events_forgotten  it remembers since 2026-11-28T09:30:01.250Z, when \
                    it was started anew\n";
        assert_eq!(line, text);
        let dropped = Shown::dropped(300, Some(&event(7, 300, 1)), 12);
        assert!(dropped.is_remark() && dropped.at == 7 && dropped.text.contains("dropped 12 "));
    }

    #[test]
    fn json_leaves_out_what_is_not_there() {
        let it = v1::Event {
            at: 261_128_093_001_250,
            manager: 1,
            kind: "taken_out".to_owned(),
            ..Default::default()
        };
        let text = serde_json::to_string(&Shown::of(it)).unwrap();
        assert_eq!(text, r#"{"at":261128093001250,"manager":1,"kind":"taken_out"}"#);
    }
}
