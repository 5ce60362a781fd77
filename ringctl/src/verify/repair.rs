//! What `verify` found is put right by the owners of the sessions: `ringctl verify --repair`.
//!
//! ```text
//!   first look ──▶ findings ──▶ Mend at each owner: what would be done, then done ──▶ second look ──▶ Report
//! ```
//! Nothing is done here. An owner judges each finding by its own record and what the node says at that moment
//! (`Operator.Mend`). What is no session's finding is only named, with what an operator can do.

use super::finding::{Finding, Kind};
use super::{Report, TOLD_MAX, told};
use crate::output::counted;
use rota_client::{CallError, Client, v1};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Most findings that are mended at a time. More at once only make nodes and owners wait for each other.
const AT_ONCE: usize = 16;

/// One finding, and what became of it.
#[derive(Clone, Serialize, PartialEq, Debug)]
pub struct Repair {
    #[serde(flatten)]
    finding: Finding,
    /// What its owner decided: end_instance, write_end, find_again, under_way, nothing or out_of_reach. Missing when
    /// no owner decides about it, or none answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    /// What was done; of a dry run, what would be; or what an operator can do.
    told: String,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Whether the second look proves that it is gone. Missing: there was none, or it proves nothing of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<bool>,
}

/// The JSON document of `ringctl verify --repair`.
#[derive(Serialize, PartialEq, Debug)]
pub struct Repaired {
    /// Nothing was changed.
    dry_run: bool,
    repairs: Vec<Repair>,
    /// The last look: the second one, unless nothing was changed.
    #[serde(flatten)]
    report: Report,
}

/// Who mends.
#[derive(Clone)]
pub struct Mender {
    pub client: Client,
    pub dry_run: bool,
    /// When the last of it is to be over.
    pub until: Instant,
}

impl Mender {
    /// Has each finding mended, and tells in the same order what came of it.
    pub async fn mend_all(&self, findings: &[Finding]) -> Vec<Repair> {
        let mut repairs: Vec<Repair> = findings.iter().cloned().map(advised).collect();
        let all = (0..repairs.len()).collect();
        for (at, plan) in self.ask_all(&repairs, all, true).await {
            repairs[at].take(plan);
        }
        if self.dry_run {
            return repairs;
        }
        // What is found again makes a session of whatever runs in its partition: that comes last.
        for comes_last in [false, true] {
            let is_due = |it: &Repair| it.error.is_none() && it.is_found_again() == comes_last;
            let due = (0..repairs.len()).filter(|at| is_due(&repairs[*at])).collect();
            for (at, done) in self.ask_all(&repairs, due, false).await {
                repairs[at].take(done);
            }
        }
        repairs
    }

    /// Asks the owners of some of them, a few at a time.
    async fn ask_all(
        &self,
        repairs: &[Repair],
        which: Vec<usize>,
        dry_run: bool,
    ) -> Vec<(usize, Result<v1::MendResponse, String>)> {
        let request = |at: usize| Some((at, request(&repairs[at].finding)?));
        let requests: Vec<_> = which.into_iter().filter_map(request).collect();
        let mut answers = Vec::with_capacity(requests.len());
        for some in requests.chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for (at, request) in some.iter().cloned() {
                let (mender, request) = (self.clone(), v1::MendRequest { dry_run, ..request });
                asked.spawn(async move { (at, mender.ask(request).await) });
            }
            answers.extend(asked.join_all().await);
        }
        answers
    }

    async fn ask(&self, request: v1::MendRequest) -> Result<v1::MendResponse, String> {
        let wait = self.until.saturating_duration_since(Instant::now());
        if wait < Duration::from_millis(1) {
            return Err("nobody was asked any more: --timeout is over".to_owned());
        }
        self.client.mend(request, wait).await.map_err(|error: CallError| error.to_string())
    }
}

/// What is asked of the owner of a finding's session.
fn request(finding: &Finding) -> Option<v1::MendRequest> {
    let (namespace, id) = finding.session()?;
    let node = finding.node.clone()?;
    Some(v1::MendRequest { namespace, id, node, dry_run: false })
}

/// What is said of a finding before anybody was asked about it.
fn advised(finding: Finding) -> Repair {
    let told = match request(&finding) {
        Some(_) => String::new(),
        None => advice(finding.kind).to_owned(),
    };
    Repair { finding, step: None, told, error: None, gone: None }
}

impl Repair {
    fn is_found_again(&self) -> bool {
        self.step.as_deref() == Some("find_again")
    }

    /// Takes what its owner answered.
    fn take(&mut self, answer: Result<v1::MendResponse, String>) {
        match answer {
            // It runs as its record says by now: that is what was found.
            Ok(it) if it.step == "nothing" && self.is_found_again() => {
                self.told = format!("its partition was found again: {}", it.text);
            }
            Ok(it) => (self.step, self.told) = (Some(it.step), it.text),
            Err(error) => self.error = Some(error),
        }
    }
}

/// What an operator can do about what no owner of a session mends.
fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::NoOwner => {
            "managers mend that by themselves: the next copy takes over when the owner is missed, as long as the \
             config store is there. Start the managers that are away"
        }
        Kind::TwoOwners => {
            "the one with the older epoch steps down when it reads the View. Look why it does not reach the config \
             store, or stop it"
        }
        Kind::Recovering => {
            "it is being found again from what runs, and ends by itself. Nodes that do not answer are waited for \
             until they are LOST"
        }
        Kind::MissingCopy => {
            "owners make it by themselves as soon as a manager is there for it. Start the managers that are away"
        }
        Kind::SurplusCopy => "its manager drops it by itself. If it stays, restart that manager",
        Kind::DigestDiffers => {
            "no look says which copy is right; clients are shown that of the owner. Take the other manager out with \
             `ringctl leave`, let it join again with an empty folder, and report this"
        }
        Kind::DigestUnproved => {
            "look again: no position was seen at which the copies could be compared"
        }
        Kind::NotRunning | Kind::RunsTwice | Kind::UnknownRuns => {
            "it does not say which node it is about: look again"
        }
    }
}

impl Repaired {
    /// Of a dry run, or when nothing was found: one look.
    pub fn of_one_look(repairs: Vec<Repair>, report: Report, dry_run: bool) -> Self {
        Self { dry_run, repairs, report }
    }

    /// After a second look.
    pub fn after(repairs: Vec<Repair>, report: Report) -> Self {
        let judged = |repair: Repair| Repair { gone: gone(&repair.finding, &report), ..repair };
        let repairs = repairs.into_iter().map(judged).collect();
        Self { dry_run: false, repairs, report }
    }

    /// Whether everything was proved at last.
    pub fn is_ok(&self) -> bool {
        self.report.ok
    }

    /// For people.
    pub fn told(&self) -> String {
        let mut text = String::new();
        for repair in self.repairs.iter().take(TOLD_MAX) {
            text.push_str(&line(repair, self.dry_run));
        }
        if self.repairs.len() > TOLD_MAX {
            let more = self.repairs.len() - TOLD_MAX;
            text.push_str(&format!("{more} more, see -o json\n"));
        }
        let count = counted(self.repairs.len() as u64, "finding");
        let summary = match (self.repairs.is_empty(), self.dry_run) {
            (true, _) if self.report.ok => "nothing to mend\n".to_owned(),
            (true, _) => "nothing was found that owners could mend\n".to_owned(),
            (false, true) => format!("nothing was changed: {count}\n"),
            (false, false) => {
                let gone = self.repairs.iter().filter(|it| it.gone == Some(true)).count();
                format!("{gone} of {count} gone, by a second look\n")
            }
        };
        text.push_str(&summary);
        text.push_str(&told(&self.report));
        text
    }
}

fn line(repair: &Repair, dry_run: bool) -> String {
    let Repair { finding, step, told, error, gone } = repair;
    let changes = matches!(step.as_deref(), Some("end_instance" | "write_end" | "find_again"))
        && error.is_none();
    let what = match (changes, gone) {
        (true, _) if dry_run => "would mend",
        (_, Some(true)) if changes => "mended",
        (_, Some(true)) => "gone",
        (true, None) => "done, not proved",
        (_, Some(false)) => "still there",
        (false, None) => "not mended",
    };
    let told = match error {
        Some(error) if told.is_empty() => error.clone(),
        Some(error) => format!("{told}; {error}"),
        None => told.clone(),
    };
    format!("{what}: {}; {told}\n", finding.text)
}

/// Whether a look proves that a finding is gone.
fn gone(finding: &Finding, report: &Report) -> Option<bool> {
    let is_same = |other: &&Finding| {
        let place = |it: &Finding| (it.kind, it.partition, it.manager, it.node.clone());
        place(other) == place(finding)
            && other.session() == finding.session()
            && other.token == finding.token
    };
    if report.violations.iter().any(|it| is_same(&it)) {
        return Some(false);
    }
    let concerns = |other: &&Finding| match finding.session() {
        Some(session) => other.session() == Some(session),
        None => other.partition == finding.partition,
    };
    let node = finding.node.as_deref();
    let is_silent = report.unanswered.iter().any(|it| it.kind == "node" && Some(&*it.name) == node);
    let is_unproved =
        report.unproved.iter().any(|it| concerns(&it)) || report.sessions_unproved > 0;
    let is_uncounted = finding.partition.is_some_and(|it| report.uncounted.contains(&it));
    (!is_silent && !is_unproved && !is_uncounted).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    fn finding(kind: Kind, id: &str) -> Finding {
        Finding {
            partition: Some(7),
            node: Some("n1".to_owned()),
            namespace: Some("default".to_owned()),
            id: Some(id.to_owned()),
            token: Some("3:1".to_owned()),
            ..Finding::new(kind, format!("session default/{id} is wrong"))
        }
    }

    fn repair(id: &str, step: &str) -> Repair {
        let mut repair = advised(finding(Kind::UnknownRuns, id));
        let (step, text) = (step.to_owned(), "as told".to_owned());
        repair.take(Ok(v1::MendResponse { step, text, token: None }));
        repair
    }

    #[test]
    fn a_finding_is_gone_when_a_second_look_proves_it() {
        let wrong = finding(Kind::UnknownRuns, "a");
        assert_eq!(gone(&wrong, &report()), Some(true));
        let with = |violations| Report { violations, ..report() };
        assert_eq!(gone(&wrong, &with(vec![wrong.clone()])), Some(false));
        let reworded = Finding { text: "differently".to_owned(), ..wrong.clone() };
        assert_eq!(gone(&wrong, &with(vec![reworded])), Some(false));
        assert_eq!(gone(&wrong, &with(vec![finding(Kind::UnknownRuns, "b")])), Some(true));
        assert_eq!(gone(&wrong, &Report { unproved: vec![wrong.clone()], ..report() }), None);
        assert_eq!(gone(&wrong, &Report { uncounted: [7].into(), ..report() }), None);
        let (kind, name) = ("node", "n1".to_owned());
        let silent = super::super::Silent { kind, name, state: String::new(), why: String::new() };
        assert_eq!(gone(&wrong, &Report { unanswered: vec![silent], ..report() }), None);
    }

    #[test]
    fn each_finding_has_a_line_that_says_what_became_of_it() {
        let repairs = vec![repair("a", "end_instance"), repair("b", "under_way")];
        let dry = Repaired::of_one_look(repairs.clone(), report(), true).told();
        assert!(dry.contains("would mend: session default/a is wrong; as told\n"), "{dry}");
        assert!(dry.contains("not mended: session default/b is wrong; as told\n"), "{dry}");
        assert!(dry.contains("\nnothing was changed: 2 findings\n"), "{dry}");
        let still =
            Report { ok: false, violations: vec![finding(Kind::UnknownRuns, "b")], ..report() };
        let after = Repaired::after(repairs, still);
        assert!(!after.is_ok());
        let told = after.told();
        assert!(told.contains("mended: session default/a"), "{told}");
        assert!(told.contains("still there: session default/b"), "{told}");
        assert!(told.contains("1 of 2 findings gone, by a second look\n"), "{told}");
        assert!(told.contains("not everything holds"), "{told}");
    }

    #[test]
    fn what_was_not_done_is_told_with_why() {
        let why = "node n1 did not say in time";
        let mut repair = advised(finding(Kind::NotRunning, "a"));
        repair.take(Err(why.to_owned()));
        let told = line(&repair, false);
        assert_eq!(told, format!("not mended: session default/a is wrong; {why}\n"));
    }

    #[test]
    fn what_was_found_again_is_told_as_such() {
        let mut repair = repair("a", "find_again");
        let (step, text) = ("nothing".to_owned(), "it runs".to_owned());
        repair.take(Ok(v1::MendResponse { step, text, token: None }));
        assert_eq!(repair.told, "its partition was found again: it runs");
        assert!(repair.is_found_again());
    }

    #[test]
    fn nothing_to_mend_is_said_and_holds() {
        let none = Repaired::of_one_look(Vec::new(), report(), false);
        assert!(none.is_ok() && none.told().starts_with("nothing to mend\neverything holds"));
        let json = serde_json::to_value(&none).unwrap();
        assert_eq!((&json["repairs"], &json["ok"]), (&serde_json::json!([]), &true.into()));
    }

    #[test]
    fn what_is_no_sessions_finding_comes_with_advice() {
        let of_ring = Finding::of_partition(Kind::DigestDiffers, 7, Some(2), "differs".to_owned());
        let repair = advised(of_ring);
        assert_eq!((request(&repair.finding), repair.step), (None, None));
        assert!(repair.told.starts_with("no look says which copy is right"));
        let request = request(&finding(Kind::NotRunning, "a")).unwrap();
        assert_eq!((&*request.id, &*request.node), ("a", "n1"));
    }
}
