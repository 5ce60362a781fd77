//! A healed cluster converges: every partition is owned, served and copied as often as the ring
//! wants, all copies are equal, nobody else holds anything of it, nobody is joining, no request waits,
//! no id is in progress, and what runs on the nodes is what the records say.

use super::{Verdict, Violation};
use crate::ledger::Instance;
use rota_model::{Epoch, LogPos, ManagerNumber, NodeId, SessionState};
use rota_protocol::{Disk, PartitionStats, Stats};
use rota_ring::View;
use std::collections::{BTreeMap, BTreeSet};

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Moment<'a> {
    /// What the config store holds.
    pub view: &'a View,
    /// What every running manager says of itself.
    pub managers: BTreeMap<ManagerNumber, Stats>,
    /// What stands on their disks.
    pub disks: BTreeMap<ManagerNumber, &'a Disk>,
    /// What runs.
    pub instances: &'a [Instance],
    /// Nodes that should be empty.
    pub drained: Vec<NodeId>,
}

/// Checks one moment.
///
/// # Errors
/// What is missing.
pub fn check(moment: &Moment<'_>) -> Verdict {
    match missing(moment) {
        None => Ok(()),
        Some(text) => Err(Violation::new("converged", text)),
    }
}

fn missing(moment: &Moment<'_>) -> Option<String> {
    for (number, stats) in &moment.managers {
        if stats.requests_waiting > 0 {
            return Some(format!("M{number} holds {} requests", stats.requests_waiting));
        }
    }
    if let Some(under_way) = moment.view.transition {
        return Some(format!("{under_way} has not ended"));
    }
    moment
        .view
        .parts
        .keys()
        .find_map(|number| part_missing(moment, *number))
        .or_else(|| orphan(moment))
        .or_else(|| left_on_drained(moment))
        .or_else(|| news_missing(moment))
}

fn stats_of(
    moment: &Moment<'_>,
    manager: ManagerNumber,
    part: ManagerNumber,
) -> Option<PartitionStats> {
    let stats = moment.managers.get(&manager)?;
    stats.parts.iter().find(|it| it.part == part).cloned()
}

fn part_missing(moment: &Moment<'_>, number: ManagerNumber) -> Option<String> {
    let part = moment.view.parts.get(&number)?;
    let wanted: BTreeSet<_> = moment.view.wanted(number).into_iter().collect();
    let isr: BTreeSet<_> = part.isr.iter().map(|it| it.number).collect();
    if wanted != isr {
        return Some(format!("partition {number} is copied by {isr:?}, wanted are {wanted:?}"));
    }
    let Some(at_owner) = stats_of(moment, part.owner, number) else {
        return Some(format!("M{} does not know that it owns partition {number}", part.owner));
    };
    if at_owner.role != "serving" {
        return Some(format!("partition {number} is {} at M{}", at_owner.role, part.owner));
    }
    let busy = [SessionState::Pending, SessionState::Starting, SessionState::Closing];
    if busy.iter().any(|it| at_owner.sessions.get(it).is_some_and(|count| *count > 0)) {
        return Some(format!("partition {number} has ids in progress: {:?}", at_owner.sessions));
    }
    let surplus = moment.disks.keys().filter(|it| !isr.contains(it));
    let surplus = surplus.copied().find(|it| !docs_of(moment, *it, number).is_empty());
    if let Some(surplus) = surplus {
        return Some(format!("M{surplus} still holds documents of partition {number}"));
    }
    for member in isr {
        let Some(copy) = stats_of(moment, member, number) else {
            return Some(format!("M{member} does not know that it copies partition {number}"));
        };
        let same = (copy.last, copy.committed, copy.digest)
            == (at_owner.last, at_owner.committed, at_owner.digest);
        if !same {
            return Some(format!("copies of partition {number} differ: {copy:?}; {at_owner:?}"));
        }
        if let Some(at) = marks_differ(&copy, &at_owner, part.pe) {
            return Some(format!(
                "copies of partition {number} differed at {at}: {copy:?}; {at_owner:?}"
            ));
        }
        let docs = |manager| docs_of(moment, manager, number);
        if docs(member) != docs(part.owner) {
            let owner = part.owner;
            return Some(format!("disks of M{member} and M{owner} differ in partition {number}"));
        }
    }
    None
}

/// A position of this epoch at which two copies say that they had other contents.
fn marks_differ(one: &PartitionStats, other: &PartitionStats, pe: Epoch) -> Option<LogPos> {
    let mut marks = one.marks.iter().filter(|(at, _)| at.pe == pe);
    let differs =
        |(at, digest): &&(LogPos, u64)| other.marks.iter().any(|it| it.0 == *at && it.1 != *digest);
    marks.find(differs).map(|it| it.0)
}

fn docs_of<'a>(
    moment: &'a Moment<'_>,
    manager: ManagerNumber,
    part: ManagerNumber,
) -> Vec<(&'a rota_protocol::DocKey, &'a rota_protocol::Doc)> {
    let Some(disk) = moment.disks.get(&manager) else { return Vec::new() };
    let of_part = disk.docs.iter().filter(|it| moment.view.home(it.0.slot) == part);
    of_part.map(|(key, doc)| (key, &**doc)).collect()
}

/// Something that runs although no record says so.
fn orphan(moment: &Moment<'_>) -> Option<String> {
    let mut recorded = BTreeSet::new();
    for (number, part) in &moment.view.parts {
        for (_, doc) in docs_of(moment, part.owner, *number) {
            if let Some(record) = doc.session().filter(|it| !it.state.is_ended()) {
                recorded.insert((record.key.clone(), record.token()));
            }
        }
    }
    let running = moment.instances.iter().filter(|it| it.to.is_none());
    let mut unknown = running.filter(|it| !recorded.contains(&(it.key.clone(), Some(it.token))));
    unknown.next().map(|it| format!("no record says that this runs: {it:?}"))
}

/// Something that is left on a drained node: it runs there, or an owner says that it is to.
fn left_on_drained(moment: &Moment<'_>) -> Option<String> {
    let mut running = moment.instances.iter().filter(|it| it.to.is_none());
    if let Some(it) = running.find(|it| moment.drained.contains(&it.node)) {
        return Some(format!("{} is drained, and this runs there: {it:?}", it.node));
    }
    moment.view.parts.iter().find_map(|(number, part)| {
        let at_owner = stats_of(moment, part.owner, *number)?;
        let node = moment.drained.iter().find(|it| at_owner.on_nodes.contains_key(*it))?;
        Some(format!("{node} is drained, and partition {number} has sessions there"))
    })
}

/// A session that is said to be live and does not run, or whose machine stands elsewhere.
fn news_missing(moment: &Moment<'_>) -> Option<String> {
    for (number, part) in &moment.view.parts {
        for (_, doc) in docs_of(moment, part.owner, *number) {
            let Some(record) = doc.session().filter(|it| it.is_live()) else { continue };
            let running = moment.instances.iter().filter(|it| it.to.is_none());
            let mut running = running.filter(|it| Some(it.token) == record.token());
            let key = &record.key;
            let Some(instance) = running.find(|it| it.key == *key) else {
                return Some(format!("{key} is said to be live, and nothing of it runs"));
            };
            if record.machine_change != instance.change {
                let (known, now) = (record.machine_change, instance.change);
                return Some(format!("the record of {key} knows change {known} of {now}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{instance, record, token, view};
    use rota_model::{Seq, SessionRecord, SlotId, Stamp};
    use rota_protocol::{DiskWrite, Doc, Write};

    fn stats(digest: u64) -> Stats {
        let part = |part| PartitionStats {
            part: ManagerNumber(part),
            role: "serving",
            last: LogPos::ZERO,
            committed: LogPos::ZERO,
            sessions: BTreeMap::new(),
            documents: 0,
            lag: Vec::new(),
            digest,
            on_nodes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tasks: BTreeMap::new(),
            copy_lag_ms: 0,
            marks: Vec::new(),
        };
        Stats { parts: vec![part(10), part(20)], ..Stats::default() }
    }

    fn active() -> View {
        let mut view = view();
        for entry in view.managers.values_mut() {
            entry.status = rota_model::ManagerStatus::Active;
        }
        view
    }

    fn disk_with(record: SessionRecord) -> Disk {
        let Write { key, doc } = Write::of(SlotId(5), Doc::session_after(None, record));
        let mut disk = Disk::default();
        disk.apply(&DiskWrite::Doc { key, doc });
        disk
    }

    fn disk(life: Stamp) -> Disk {
        let record = record("y", life, SessionState::Ready);
        disk_with(record)
    }

    #[test]
    fn copies_that_differ_are_found() {
        let view = active();
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let mut moment = Moment {
            view: &view,
            managers: BTreeMap::from([(a, stats(1)), (b, stats(1))]),
            disks: BTreeMap::new(),
            instances: &[],
            drained: Vec::new(),
        };
        assert_eq!(check(&moment), Ok(()));
        let (one, two) = (disk(Stamp::MIN), disk(Stamp::MAX));
        moment.disks = BTreeMap::from([(a, &one), (b, &two)]);
        assert!(check(&moment).unwrap_err().text.contains("disks"));
        moment.disks = BTreeMap::from([(a, &one), (b, &one)]);
        let mut earlier = stats(1);
        let at = LogPos::new(view.parts[&a].pe, Seq(4));
        earlier.parts.iter_mut().for_each(|it| it.marks = vec![(at, 8)]);
        moment.managers.insert(a, earlier.clone());
        earlier.parts.iter_mut().for_each(|it| it.marks = vec![(at, 9)]);
        moment.managers.insert(b, earlier);
        assert!(check(&moment).unwrap_err().text.contains("differed at"));
        moment.managers.insert(b, stats(2));
        assert!(check(&moment).unwrap_err().text.contains("copies"));
    }

    #[test]
    fn a_surplus_copy_and_a_join_that_does_not_end_are_found() {
        let mut view = active();
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let one = disk(Stamp::MIN);
        view.r = 0;
        for (n, part) in &mut view.parts {
            part.isr.retain(|it| it.number == *n);
        }
        let instances = [instance("y", "n0", token(7, 7), 1, None)];
        let managers = BTreeMap::from([(a, stats(1)), (b, stats(1))]);
        let holder = view.home(SlotId(5));
        let other = if holder == a { b } else { a };
        let disks = BTreeMap::from([(holder, &one), (other, &one)]);
        let drained = Vec::new();
        let moment = Moment { view: &view, managers, disks, instances: &instances, drained };
        assert!(check(&moment).unwrap_err().text.contains("still holds documents"));
        let mut joining = view.clone();
        joining.transition =
            Some(rota_ring::RingTransition::Join { number: b, since: rota_model::Epoch(1) });
        let moment = Moment { view: &joining, ..moment };
        assert!(check(&moment).unwrap_err().text.contains("the join of number 20"));
    }

    #[test]
    fn a_missing_copy_and_a_waiting_request_are_found() {
        let (a, b) = (ManagerNumber(10), ManagerNumber(20));
        let verdict = |view: &View, second| {
            check(&Moment {
                view,
                managers: BTreeMap::from([(a, stats(1)), (b, second)]),
                disks: BTreeMap::new(),
                instances: &[],
                drained: Vec::new(),
            })
        };
        let mut view = active();
        let waiting = Stats { requests_waiting: 1, ..stats(1) };
        assert!(verdict(&view, waiting).unwrap_err().text.contains("requests"));
        view.parts.get_mut(&a).unwrap().isr.retain(|it| it.number == a);
        assert!(verdict(&view, stats(1)).unwrap_err().text.contains("wanted"));
    }

    #[test]
    fn a_record_that_missed_the_last_news_or_the_end_is_found() {
        let view = active();
        let mut known = record("y", Stamp::MIN, SessionState::Ready);
        let mut running = instance("y", "n0", token(7, 7), 1, None);
        known.placement.as_mut().unwrap().token = token(7, 7);
        running.change = 2;
        let disk = disk_with(known);
        let mut moment = Moment {
            view: &view,
            managers: BTreeMap::from([
                (ManagerNumber(10), stats(1)),
                (ManagerNumber(20), stats(1)),
            ]),
            disks: BTreeMap::from([(ManagerNumber(10), &disk), (ManagerNumber(20), &disk)]),
            instances: &[running],
            drained: Vec::new(),
        };
        assert!(check(&moment).unwrap_err().text.contains("change"));
        moment.instances = &[];
        assert!(check(&moment).unwrap_err().text.contains("nothing of it runs"));
    }

    #[test]
    fn an_orphan_is_found() {
        let view = active();
        let running = [instance("y", "n0", token(7, 7), 1, None)];
        let moment = Moment {
            view: &view,
            managers: BTreeMap::from([
                (ManagerNumber(10), stats(1)),
                (ManagerNumber(20), stats(1)),
            ]),
            disks: BTreeMap::new(),
            instances: &running,
            drained: Vec::new(),
        };
        assert!(check(&moment).unwrap_err().text.contains("no record"));
    }

    #[test]
    fn what_is_left_on_a_drained_node_is_found() {
        let view = active();
        let mut known = record("y", Stamp::MIN, SessionState::Ready);
        let running = [instance("y", "n0", token(7, 7), 1, None)];
        known.placement.as_mut().unwrap().token = token(7, 7);
        let disk = disk_with(known);
        let mut there = stats(1);
        there.parts.iter_mut().for_each(|it| it.on_nodes = [(running[0].node.clone(), 1)].into());
        let managers = [(ManagerNumber(10), there.clone()), (ManagerNumber(20), there)];
        let mut moment = Moment {
            view: &view,
            managers: managers.into(),
            disks: BTreeMap::from([(ManagerNumber(10), &disk), (ManagerNumber(20), &disk)]),
            instances: &running,
            drained: Vec::new(),
        };
        assert_eq!(check(&moment), Ok(()));
        moment.drained = vec![running[0].node.clone()];
        assert!(check(&moment).unwrap_err().text.contains("runs there"));
        moment.instances = &[];
        moment.disks = BTreeMap::new();
        assert!(check(&moment).unwrap_err().text.contains("has sessions there"));
    }
}
