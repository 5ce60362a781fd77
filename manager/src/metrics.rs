//! What is counted and measured, and its text for Prometheus.
//!
//! Counters and histograms have handles that are made once, so that a call pays for an addition
//! and not for a look-up. What the decisions know anyway (sessions by state, lag) is asked for and
//! written when somebody looks, so that nothing stale stays behind when a partition moves.

mod pools;
mod tasks;

use anyhow::{Context, Result};
use metrics::{Counter, Histogram, counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use prost::Message as _;
use rota_daemon::accept::Counts;
use rota_model::{ClassName, NodeLoad, Outcome, RefusalKind};
use rota_proto::v1;
use rota_protocol::{
    Answer, Note, Op, OpKind, OpResult, PartitionStats, SessionEnd, Stats, Transition,
};
use rota_ring::{NodeReg, View, slot_of_node};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often histograms are folded into their buckets; bounds what they hold meanwhile.
const UPKEEP_EVERY: Duration = Duration::from_secs(2);

/// The role of a manager in a partition that it owns and answers for.
const SERVING: &str = "serving";

const SECONDS_BUCKETS: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.007_5, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
const COUNT_BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

struct Calls {
    seconds: [Histogram; OpKind::ALL.len()],
    opened_created: Counter,
    opened_existed: Counter,
    closed_finished: Counter,
    closed_unfinished: Counter,
}

/// Handles of everything that is counted on the way of a call.
pub struct Metrics {
    calls: Calls,
    transitions: Vec<Counter>,
    /// Writes of documents in one commit.
    pub commit_writes: Histogram,
    /// Flushes of the driver in one commit.
    pub commit_batch: Histogram,
    /// Time of one commit, its sync included.
    pub commit_seconds: Histogram,
    /// Of that, the time until the disk had synced.
    pub commit_sync_seconds: Histogram,
    /// Inputs that the driver took together.
    pub turn_inputs: Histogram,
    /// Messages to peers that were dropped because too much waited.
    pub peer_dropped: Counter,
    /// Requests to peers that were dropped because their deadline had passed.
    pub peer_late: Counter,
    /// Calls to nodes that were dropped because too much waited.
    pub node_dropped: Counter,
    /// What is copied to peers.
    pub copied: Copied,
}

/// What owners send of the state of a partition to managers that should hold it: new copies, and
/// members of the ISR that a new owner brings in step. Entries of the log are not counted.
#[derive(Clone)]
pub struct Copied {
    documents: Counter,
    document_bytes: Counter,
    message_bytes: Counter,
}

impl Copied {
    fn new() -> Self {
        Self {
            documents: counter!("rota_copied_documents_total"),
            document_bytes: counter!("rota_copied_document_bytes_total"),
            message_bytes: counter!("rota_copied_message_bytes_total"),
        }
    }

    /// Counts nothing.
    #[cfg(test)]
    pub fn noop() -> Self {
        let [documents, document_bytes, message_bytes] = [(); 3].map(|()| Counter::noop());
        Self { documents, document_bytes, message_bytes }
    }

    /// Counts a message, if it is such a one.
    pub fn sent(&self, envelope: &v1::Envelope) {
        use v1::envelope::Message as Wire;
        let writes = if let Some(Wire::SnapshotChunk(it)) = &envelope.message {
            &it.docs
        } else if let Some(Wire::SyncData(it)) = &envelope.message {
            &it.writes
        } else {
            return;
        };
        let bytes: usize = writes.iter().flat_map(|it| &it.doc).map(|doc| doc.len()).sum();
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        self.documents.increment(number(writes.len()));
        self.document_bytes.increment(number(bytes));
        self.message_bytes.increment(number(envelope.encoded_len()));
    }
}

/// Renders what was counted.
#[derive(Clone)]
pub struct Exposition {
    handle: PrometheusHandle,
}

/// Installs the process's recorder. Call once, before any [`Metrics`] is made.
pub fn install() -> Result<Exposition> {
    let counts = ["rota_commit_writes", "rota_commit_batch", "rota_turn_inputs"];
    let mut builder =
        PrometheusBuilder::new().set_buckets(SECONDS_BUCKETS).context("buckets of seconds")?;
    for name in counts {
        builder = builder
            .set_buckets_for_metric(Matcher::Full(name.into()), COUNT_BUCKETS)
            .context("buckets of counts")?;
    }
    let handle = builder.install_recorder().context("the recorder of metrics")?;
    describe();
    Ok(Exposition { handle })
}

fn describe() {
    describe_counter!("rota_opens_total", "Opens answered here with a session, by outcome.");
    describe_counter!("rota_closes_total", "Closes answered here with a session, by outcome.");
    describe_counter!(
        "rota_refusals_total",
        "Calls refused here, by operation and kind; opens by class, those of classes that no node offers as \"other\"."
    );
    describe_counter!(
        "rota_session_ends_total",
        "Ends of sessions that this manager wrote as their owner, by class, the state before, the state \
         after and the reason."
    );
    describe_histogram!("rota_call_seconds", "From a call's arrival to its answer, by operation.");
    describe_counter!("rota_transitions_total", "Steps of the protocol, by kind.");
    describe_histogram!("rota_commit_writes", "Writes in one commit to disk.");
    describe_histogram!("rota_commit_batch", "Persist effects in one commit to disk.");
    describe_histogram!("rota_commit_seconds", "Time of one commit to disk, with its sync.");
    describe_histogram!("rota_commit_sync_seconds", "Time of the sync within one commit to disk.");
    describe_histogram!("rota_turn_inputs", "Inputs that the driver took together.");
    describe_counter!("rota_operations_total", "Operations asked for here, by name and result.");
    describe_counter!("rota_sync_updates_total", "Updates of copies sent from here, by kind.");
    describe_counter!("rota_copied_documents_total", "Documents in what was copied from here.");
    describe_counter!(
        "rota_copied_document_bytes_total",
        "Bytes of the documents that were copied from here."
    );
    describe_counter!(
        "rota_copied_message_bytes_total",
        "Bytes of messages that brought copies of partitions to other managers: new copies, and \
         what a new owner brings in step. What is sent again counts again; the log does not count."
    );
    describe_counter!("rota_bodies_fetched_total", "Bodies fetched from others, by result.");
    describe_counter!("rota_bodies_collected_total", "Bodies removed that nobody names any more.");
    describe_counter!(
        "rota_dropped_total",
        "Messages dropped, by way: because too much waited (peer, node), or because whoever waits \
         for its answer had given up before it was sent (peer_late)."
    );
}

impl Metrics {
    /// The handles. Without an installed recorder they count nothing.
    pub fn new() -> Self {
        let calls = Calls {
            seconds: OpKind::ALL.map(|it| histogram!("rota_call_seconds", "op" => it.as_str())),
            opened_created: counter!("rota_opens_total", "outcome" => "CREATED"),
            opened_existed: counter!("rota_opens_total", "outcome" => "EXISTED"),
            closed_finished: counter!("rota_closes_total", "outcome" => "FINISHED"),
            closed_unfinished: counter!("rota_closes_total", "outcome" => "UNFINISHED"),
        };
        for (kind, refusal) in OpKind::ALL
            .iter()
            .flat_map(|kind| RefusalKind::ALL.iter().map(move |refusal| (*kind, *refusal)))
        {
            let class = if kind == OpKind::Open { OTHER } else { "" };
            let _ = refusals(kind, class.to_owned(), refusal);
        }
        let step = |it: &Transition| counter!("rota_transitions_total", "step" => it.as_str());
        Self {
            calls,
            transitions: Transition::ALL.iter().map(step).collect(),
            commit_writes: histogram!("rota_commit_writes"),
            commit_batch: histogram!("rota_commit_batch"),
            commit_seconds: histogram!("rota_commit_seconds"),
            commit_sync_seconds: histogram!("rota_commit_sync_seconds"),
            turn_inputs: histogram!("rota_turn_inputs"),
            peer_dropped: counter!("rota_dropped_total", "way" => "peer"),
            peer_late: counter!("rota_dropped_total", "way" => "peer_late"),
            node_dropped: counter!("rota_dropped_total", "way" => "node"),
            copied: Copied::new(),
        }
    }

    /// Counts an answered call.
    pub fn answered(
        &self,
        kind: OpKind,
        class: Option<&ClassName>,
        took: Duration,
        result: &OpResult,
    ) {
        if let Some(seconds) = self.calls.seconds.get(kind as usize) {
            seconds.record(took);
        }
        let counted = match result {
            Err(refusal) => return refused(kind, class, refusal.kind),
            Ok(Answer::Opened { outcome: Outcome::Created, .. }) => &self.calls.opened_created,
            Ok(Answer::Opened { outcome: Outcome::Existed, .. }) => &self.calls.opened_existed,
            Ok(Answer::Closed { finished: true, .. }) => &self.calls.closed_finished,
            Ok(Answer::Closed { finished: false, .. }) => &self.calls.closed_unfinished,
            Ok(_) => return,
        };
        counted.increment(1);
    }

    /// Counts a step of the protocol, and the end of a session where it is one.
    pub fn step(&self, note: &Note) {
        if let Some(counter) = self.transitions.get(note.transition as usize) {
            counter.increment(1);
        }
        note.end.iter().for_each(|it| ended(it));
    }
}

/// Counts an end. Classes are those that nodes offer; each end costs a look-up beside its commit.
fn ended(end: &SessionEnd) {
    let reason = end.reason.map_or("", |it| it.as_str());
    let labels = [
        ("class", known_or_other(&end.class).to_owned()),
        ("from", end.from.as_str().to_owned()),
        ("state", end.state.as_str().to_owned()),
        ("reason", reason.to_owned()),
    ];
    counter!("rota_session_ends_total", &labels).increment(1);
}

/// Classes that nodes offer or have offered. Refused opens are counted by these, and all others together:
/// callers can think of any name.
static CLASSES: Mutex<BTreeSet<ClassName>> = Mutex::new(BTreeSet::new());

/// Most of them. Nodes that offer ever new ones must not fill the memory.
const CLASSES_MAX: usize = 1_000;

/// The class of opens of something that no node offers.
const OTHER: &str = "other";

/// Nodes offer these classes. What may be counted of them stands at 0 from now on.
pub fn know_classes<'a>(classes: impl Iterator<Item = &'a ClassName>) {
    let mut known = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    for class in classes {
        if known.len() < CLASSES_MAX && !known.contains(class) {
            RefusalKind::ALL.iter().for_each(|kind| {
                let _ = refusals(OpKind::Open, class.as_str().to_owned(), *kind);
            });
            known.insert(class.clone());
        }
    }
}

/// The class by which a call is counted; nothing where it names none.
pub fn class_of(op: &Op) -> Option<ClassName> {
    if let Op::Open(open) = op { Some(open.spec.class.clone()) } else { None }
}

fn known_or_other(class: &ClassName) -> &str {
    let known = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    if known.contains(class) { class.as_str() } else { OTHER }
}

fn refusals(kind: OpKind, class: String, refusal: RefusalKind) -> Counter {
    let op = kind.as_str();
    counter!("rota_refusals_total", "op" => op, "kind" => refusal.as_str(), "class" => class)
}

/// Counts a refusal, also one of which the decisions never hear. They are rare enough for a look-up.
pub fn refused(kind: OpKind, class: Option<&ClassName>, refusal: RefusalKind) {
    let class = match (kind, class) {
        (_, Some(class)) => known_or_other(class),
        (OpKind::Open, None) => OTHER,
        (_, None) => "",
    };
    refusals(kind, class.to_owned(), refusal).increment(1);
}

/// What is only known to the driver, at the moment of a look.
pub struct Look {
    /// The decisions' own numbers.
    pub stats: Stats,
    /// The View, once there is one.
    pub view: Option<Arc<View>>,
    /// Client calls and urgent messages that wait for the driver.
    pub mailbox: (usize, usize),
    /// Whether the config store answers.
    pub config_store_reachable: bool,
    /// Connections for gRPC.
    pub connections: Counts,
}

impl Look {
    /// Epoch of the View; 0 before there is one.
    pub fn epoch(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.epoch.0)
    }
}

impl Exposition {
    /// Folds histograms into their buckets, for as long as the process runs.
    pub async fn keep_up(self) {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            self.handle.run_upkeep();
        }
    }

    /// Everything, in Prometheus' text format. Without a look, since the driver does not answer, what
    /// was counted: just then somebody wants to know.
    pub fn render(&self, look: Option<&Look>) -> String {
        let mut text = self.handle.render();
        // Writing to a String cannot fail.
        let _ = write_answers(&mut text, look.is_some());
        let _ = look.map(|look| write_look(&mut text, look));
        text
    }
}

fn write_answers(text: &mut String, answers: bool) -> std::fmt::Result {
    let help = "1 when the driver answered; if 0, the numbers that only it knows are missing.";
    writeln!(text, "# HELP rota_driver_answers {help}")?;
    writeln!(text, "# TYPE rota_driver_answers gauge\nrota_driver_answers {}", u8::from(answers))
}

fn write_connections(text: &mut String, it: &Counts) -> std::fmt::Result {
    writeln!(text, "# HELP rota_connections Connections for gRPC, by kind of caller.")?;
    writeln!(text, "# TYPE rota_connections gauge")?;
    writeln!(text, "rota_connections{{kind=\"client\"}} {}", it.strangers)?;
    writeln!(text, "rota_connections{{kind=\"member\"}} {}", it.members)?;
    let help = "Connections for gRPC that this manager ended, by reason: silent, full or unread.";
    writeln!(text, "# HELP rota_connections_ended_total {help}")?;
    writeln!(text, "# TYPE rota_connections_ended_total counter")?;
    writeln!(text, "rota_connections_ended_total{{reason=\"silent\"}} {}", it.silent_total)?;
    writeln!(text, "rota_connections_ended_total{{reason=\"full\"}} {}", it.refused_total)?;
    writeln!(text, "rota_connections_ended_total{{reason=\"unread\"}} {}", it.unread_total)?;
    let help = "Bytes of answers to clients that are not sent yet, and shares of calls under way.";
    writeln!(text, "# HELP rota_answers_bytes {help}")?;
    writeln!(text, "# TYPE rota_answers_bytes gauge\nrota_answers_bytes {}", it.answers_bytes)
}

fn write_look(text: &mut String, look: &Look) -> std::fmt::Result {
    writeln!(text, "# HELP rota_view_epoch Epoch of the View that this manager knows.")?;
    writeln!(text, "# TYPE rota_view_epoch gauge\nrota_view_epoch {}", look.epoch())?;
    let reachable = u8::from(look.config_store_reachable);
    let help = "1 while the config store answers this manager, else 0.";
    writeln!(text, "# HELP rota_config_store_reachable {help}")?;
    writeln!(text, "# TYPE rota_config_store_reachable gauge")?;
    writeln!(text, "rota_config_store_reachable {reachable}")?;
    writeln!(text, "# HELP rota_mailbox_depth Inputs that wait for the driver, by lane.")?;
    writeln!(text, "# TYPE rota_mailbox_depth gauge")?;
    writeln!(text, "rota_mailbox_depth{{lane=\"calls\"}} {}", look.mailbox.0)?;
    writeln!(text, "rota_mailbox_depth{{lane=\"urgent\"}} {}", look.mailbox.1)?;
    writeln!(text, "# HELP rota_calls_waiting Calls that are not answered yet.")?;
    writeln!(text, "# TYPE rota_calls_waiting gauge")?;
    writeln!(text, "rota_calls_waiting {}", look.stats.requests_waiting)?;
    write_connections(text, &look.connections)?;
    writeln!(text, "# HELP rota_works Operations of applications that work, overdue ones apart.")?;
    writeln!(text, "# TYPE rota_works gauge")?;
    let (works, overdue) = (look.stats.works, look.stats.works_overdue);
    writeln!(text, "rota_works{{state=\"working\"}} {}", works.saturating_sub(overdue))?;
    writeln!(text, "rota_works{{state=\"overdue\"}} {overdue}")?;
    write_sessions(text, &look.stats.parts)?;
    writeln!(text, "# HELP rota_replication_lag_entries Entries that a copy is behind its owner.")?;
    writeln!(text, "# TYPE rota_replication_lag_entries gauge")?;
    for part in &look.stats.parts {
        for (copy, entries) in &part.lag {
            let labels = format!("part=\"{}\",copy=\"{copy}\"", part.part);
            writeln!(text, "rota_replication_lag_entries{{{labels}}} {entries}")?;
        }
    }
    write_indexes(text, look)?;
    write_nodes(text, look)?;
    pools::write(text, look)?;
    tasks::write(text, look)
}

/// By the owners of the partitions alone: copies have no index.
fn write_indexes(text: &mut String, look: &Look) -> std::fmt::Result {
    let held = look.stats.indexes;
    for (name, what, value) in [
        (
            "documents",
            "Documents in the indexes of partitions that this manager owns.",
            held.documents,
        ),
        ("values", "Values of fields in these indexes.", held.values),
        ("bytes", "About how many bytes of memory these indexes take.", held.bytes),
    ] {
        writeln!(text, "# HELP rota_index_{name} {what}")?;
        writeln!(text, "# TYPE rota_index_{name} gauge\nrota_index_{name} {value}")?;
    }
    Ok(())
}

/// Sessions are told by the owner of their partition alone, so that a sum counts each once.
fn write_sessions(text: &mut String, parts: &[PartitionStats]) -> std::fmt::Result {
    writeln!(
        text,
        "# HELP rota_sessions Sessions of partitions that this manager owns, tombstones included."
    )?;
    writeln!(text, "# TYPE rota_sessions gauge")?;
    for part in parts.iter().filter(|it| it.role == SERVING) {
        for (state, count) in &part.sessions {
            writeln!(text, "rota_sessions{{part=\"{}\",state=\"{state}\"}} {count}", part.part)?;
        }
    }
    let help = "Sessions in copies of partitions that others own, or that are not served yet.";
    writeln!(text, "# HELP rota_session_copies {help}")?;
    writeln!(text, "# TYPE rota_session_copies gauge")?;
    // What a former copy holds is no copy of anything any more.
    for part in parts.iter().filter(|it| it.role != SERVING && it.role != "former copy") {
        for (state, count) in &part.sessions {
            let (n, role) = (part.part, part.role);
            let labels = format!("part=\"{n}\",role=\"{role}\",state=\"{state}\"");
            writeln!(text, "rota_session_copies{{{labels}}} {count}")?;
        }
    }
    Ok(())
}

/// Name, help, and what is told of a node.
type NodeMetric = (&'static str, &'static str, fn(&NodeLoad) -> u32);

/// What is told of each node.
const NODE_METRICS: [NodeMetric; 6] = [
    ("rota_node_places", "Sessions that a node has places for.", |it| it.offered.places),
    ("rota_node_used", "Places of a node that are taken.", |it| it.used.places),
    (
        "rota_node_cpu_millis",
        "Processors of a node for sessions, in thousandths; 0: not counted.",
        |it| it.offered.cpu_millis,
    ),
    (
        "rota_node_used_cpu_millis",
        "Processors of a node that sessions take, in thousandths.",
        |it| it.used.cpu_millis,
    ),
    ("rota_node_memory_mib", "Memory of a node for sessions, in MiB; 0: not counted.", |load| {
        load.offered.memory_mib
    }),
    ("rota_node_used_memory_mib", "Memory of a node that sessions take, in MiB.", |load| {
        load.used.memory_mib
    }),
];

/// A node is told by the one manager that judges it, which serves the partition of its slot, for as long as
/// it is not gone.
fn write_nodes(text: &mut String, look: &Look) -> std::fmt::Result {
    let is_served = |part| look.stats.parts.iter().any(|it| it.part == part && it.role == SERVING);
    let is_told = |reg: &NodeReg| {
        let view = look.view.as_ref().filter(|_| !reg.state.is_gone());
        view.is_some_and(|view| is_served(view.home(slot_of_node(&reg.node, view.m))))
    };
    let nodes: Vec<_> = look.stats.nodes.iter().filter(|(reg, _)| is_told(reg)).collect();
    let name = |it: &NodeReg| it.node.as_str().replace('\\', "\\\\").replace('"', "\\\"");
    for (metric, help, amount) in NODE_METRICS {
        writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} gauge")?;
        for (node, load) in &nodes {
            writeln!(text, "{metric}{{node=\"{}\"}} {}", name(node), amount(load))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::LogPos;
    use rota_model::{
        BootId, ClusterName, ManagerId, ManagerNumber, NodeId, NodeState, PoolName, SessionState,
    };

    pub(super) fn part(number: u32, role: &'static str) -> PartitionStats {
        PartitionStats {
            part: ManagerNumber(number),
            role,
            last: LogPos::ZERO,
            committed: LogPos::ZERO,
            sessions: [(SessionState::Ready, 7)].into(),
            documents: 7,
            lag: vec![(ManagerNumber(400), 3)],
            digest: 0,
            on_nodes: std::collections::BTreeMap::new(),
            waiting: std::collections::BTreeMap::new(),
            tasks: std::collections::BTreeMap::new(),
            copy_lag_ms: 0,
            marks: Vec::new(),
        }
    }

    fn node(id: &str, state: NodeState) -> (NodeReg, NodeLoad) {
        let reg = NodeReg {
            node: NodeId::parse(id).unwrap(),
            boot: BootId(1),
            unproven: None,
            address: "127.0.0.1:1".to_owned(),
            pool: PoolName::parse("p").unwrap(),
            offers: rota_model::Resources::of_places(10),
            labels: std::collections::BTreeMap::new(),
            classes: Vec::new(),
            digests: std::collections::BTreeMap::new(),
            facts: std::collections::BTreeMap::new(),
            sandbox: None,
            renew_ms: 0,
            state,
            wish: rota_ring::NodeWish::default(),
            revision: 1,
        };
        (reg, NodeLoad::of_places(4, 10))
    }

    pub(super) fn look(stats: Stats) -> Look {
        let cluster = ClusterName::parse("c").unwrap();
        let numbers = [(100, "a"), (400, "b")]
            .map(|(number, id)| (ManagerNumber(number), ManagerId::parse(id).unwrap()));
        let view = View::found(cluster, 1024, 1, 10, &numbers).unwrap();
        let connections = Counts { strangers: 3, silent_total: 9, ..Counts::default() };
        let (view, mailbox) = (Some(Arc::new(view)), (1, 2));
        Look { stats, view, mailbox, config_store_reachable: true, connections }
    }

    #[test]
    fn a_sum_over_all_managers_counts_each_session_and_node_once_and_no_node_that_is_gone() {
        let nodes: Vec<_> = (1..=9).map(|it| node(&format!("n{it}"), NodeState::Ready)).collect();
        let mut pages = String::new();
        for [mine, other] in [[100, 400], [400, 100]] {
            let parts = vec![part(mine, "serving"), part(other, "copy")];
            let gone = [node("n10", NodeState::Lost), node("n11", NodeState::Removed)];
            let nodes = nodes.iter().cloned().chain(gone).collect();
            let stats = Stats { parts, nodes, ..Stats::default() };
            write_look(&mut pages, &look(stats)).unwrap();
        }
        let count = |name: &str| pages.lines().filter(|it| it.starts_with(name)).count();
        assert_eq!(["rota_node_used{", "rota_node_places{"].map(count), [9, 9]);
        assert_eq!(["rota_sessions{", "rota_session_copies{"].map(count), [2, 2]);
        assert!(!pages.contains("n10") && !pages.contains("n11"), "{pages}");
        let told = "rota_pool_nodes{pool=\"p\",state=\"READY\"} 9";
        assert_eq!(pages.lines().filter(|it| *it == told).count(), 1, "{pages}");
        assert_eq!(count("rota_pool_nodes{"), 1);
    }

    #[test]
    fn what_the_decisions_know_is_written_when_somebody_looks() {
        let look = look(Stats { parts: vec![part(100, "serving")], ..Stats::default() });
        let mut text = String::new();
        write_look(&mut text, &look).unwrap();
        for line in [
            "rota_view_epoch 1",
            "rota_mailbox_depth{lane=\"calls\"} 1",
            "rota_connections{kind=\"client\"} 3",
            "rota_connections_ended_total{reason=\"silent\"} 9",
            "rota_sessions{part=\"100\",state=\"READY\"} 7",
            "rota_replication_lag_entries{part=\"100\",copy=\"400\"} 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in {text}");
        }
        let about = |what: &str| {
            let lines = text.lines().filter_map(|it| it.strip_prefix(what)?.split(' ').next());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(about("# HELP "), about("# TYPE "), "each has its line of help");
    }
}
