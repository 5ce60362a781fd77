//! What the managers' answers prove of the partitions: one owner each, the wanted copies and no others,
//! and equal digests.

use super::finding::{Finding, Kind};
use crate::inspect::{Answers, newest_view, serves, stats_of};
use crate::output::counted;
use rota_client::v1;
use rota_model::ManagerNumber;
use rota_ring::{PartitionEntry, View};
use std::collections::BTreeMap;

/// A position in the log of a partition.
type Position = (u64, u64);

/// Digests that managers told, over all rounds: copies are compared at positions that they passed at
/// different moments.
#[derive(Debug, Default)]
pub struct Digests {
    /// By partition, then position, then manager.
    seen: BTreeMap<u32, BTreeMap<Position, BTreeMap<u32, u64>>>,
}

/// What a copy says of itself, if it counts: its manager goes by the same epoch of the partition, and the
/// copy is whole. One that is just being made or dropped holds something else, and rightly.
fn whole<'a>(
    answers: &'a Answers,
    manager: u32,
    part: &v1::Part,
) -> Option<&'a v1::PartitionStats> {
    let view = answers.get(&manager)?.as_ref().ok()?.view.as_ref()?;
    let same = view.parts.iter().any(|it| (it.number, it.pe) == (part.number, part.pe));
    let stats = stats_of(answers, manager, part.number).filter(|_| same);
    stats.filter(|it| holds_all(&it.role))
}

/// Whether that is the role of a copy with everything that was acknowledged.
fn holds_all(role: &str) -> bool {
    matches!(role, "copy" | "serving" | "wedged" | "syncing" | "scanning")
}

/// Most positions that are kept of a partition.
const POSITIONS_MAX: usize = 4_096;

impl Digests {
    /// Takes what each copy says of its own.
    pub fn take(&mut self, answers: &Answers) {
        let Some(view) = newest_view(answers) else { return };
        for part in &view.parts {
            let seen = self.seen.entry(part.number).or_default();
            // Under an earlier epoch there were other copies.
            seen.retain(|(pe, _), _| *pe == part.pe);
            for number in &part.isr {
                let Some(stats) = whole(answers, *number, part) else { continue };
                let marks = stats.marks.iter().map(|it| ((it.pe, it.seq), it.digest));
                let last = ((stats.committed_pe, stats.committed_seq), stats.digest);
                for (at, digest) in marks.chain([last]).filter(|it| it.0.0 == part.pe) {
                    seen.entry(at).or_default().insert(*number, digest);
                }
            }
            while seen.len() > POSITIONS_MAX {
                seen.pop_first();
            }
        }
    }

    fn check(&self, part: &v1::Part, answers: &Answers, found: &mut Vec<Finding>) {
        let (number, owner) = (part.number, part.owner);
        let is_wrong = |manager| {
            // Whoever is silent or lacks its copy is told as such.
            stats_of(answers, manager, number).is_none_or(|it| !holds_all(&it.role))
        };
        for copy in part.isr.iter().copied().filter(|it| *it != owner) {
            if is_wrong(owner) || is_wrong(copy) {
                continue;
            }
            let (own, its) = (whole(answers, owner, part), whole(answers, copy, part));
            let same = |it: &BTreeMap<u32, u64>| Some(it.get(&owner)? == it.get(&copy)?);
            let seen = self.seen.get(&number).into_iter().flatten();
            let compared: Vec<(&Position, bool)> =
                seen.filter_map(|(at, digests)| Some((at, same(digests)?))).collect();
            let at_rest = |it: &v1::PartitionStats| (it.committed_pe, it.committed_seq, it.digest);
            if let Some(((pe, seq), _)) = compared.iter().find(|it| !it.1) {
                let text = format!(
                    "partition {number}: the copy of manager {copy} differs from that of its owner \
                     {owner}"
                );
                tracing::debug!(number, copy, pe, seq, "digests differ");
                found.push(Finding::of_partition(Kind::DigestDiffers, number, Some(copy), text));
            } else if compared.is_empty() && (own.is_none() || own.map(at_rest) != its.map(at_rest))
            {
                let text = format!(
                    "partition {number}: no position was seen at which the copy of manager {copy} \
                     can be compared with that of its owner {owner}"
                );
                found.push(Finding::of_partition(Kind::DigestUnproved, number, Some(copy), text));
            }
        }
    }
}

/// Checks every partition of the newest View. `view`: the same, in the model.
pub fn check(view: &View, answers: &Answers, digests: &Digests) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(shown) = newest_view(answers) else { return found };
    for part in &shown.parts {
        owner(part, answers, &mut found);
        copies(view, part, answers, &mut found);
        digests.check(part, answers, &mut found);
    }
    found
}

fn owner(part: &v1::Part, answers: &Answers, found: &mut Vec<Finding>) {
    let number = part.number;
    if part.state == "recovering" {
        let why = PartitionEntry::try_from(part.clone()).ok().and_then(|it| it.account());
        let text = format!("partition {number}: {}", why.unwrap_or_default());
        found.push(Finding::of_partition(Kind::Recovering, number, Some(part.owner), text));
    }
    if let Some(stats) = stats_of(answers, part.owner, number).filter(|it| !serves(it)) {
        let text = format!("partition {number}: its owner {} is {}", part.owner, stats.role);
        found.push(Finding::of_partition(Kind::NoOwner, number, Some(part.owner), text));
    }
    for other in answers.keys().copied().filter(|it| *it != part.owner) {
        if stats_of(answers, other, number).is_some_and(serves) {
            let text = format!(
                "partition {number} is served by manager {other}, and its owner is {}",
                part.owner
            );
            found.push(Finding::of_partition(Kind::TwoOwners, number, Some(other), text));
        }
    }
}

fn copies(view: &View, part: &v1::Part, answers: &Answers, found: &mut Vec<Finding>) {
    let number = part.number;
    let wanted: Vec<u32> = view.wanted(ManagerNumber(number)).iter().map(|it| it.0).collect();
    for manager in &wanted {
        let role = stats_of(answers, *manager, number).map_or("unknown there", |it| &it.role);
        let holds = holds_all(role);
        let is_silent = !matches!(answers.get(manager), Some(Ok(_)));
        if !part.isr.contains(manager) || !(holds || is_silent) {
            let text = format!(
                "partition {number}: manager {manager} should hold a copy in sync, and is {role}"
            );
            found.push(Finding::of_partition(Kind::MissingCopy, number, Some(*manager), text));
        }
    }
    for manager in view.managers.keys().map(|it| it.0).filter(|it| !wanted.contains(it)) {
        let stats = stats_of(answers, manager, number);
        let role = stats.map_or("", |it| &it.role);
        let holds =
            part.isr.contains(&manager) || !matches!(role, "" | "idle" | "serving" | "wedged");
        // Who holds the last one is no surplus, whoever should hold it instead.
        let is_last = part.isr.contains(&manager) && !part.isr.iter().any(|it| wanted.contains(it));
        if is_last {
            let text = format!(
                "partition {number}: its only copy in sync is at manager {manager}, which must not be \
                 lost before others hold it; if it is down, start it"
            );
            found.push(Finding::of_partition(Kind::MissingCopy, number, Some(manager), text));
        } else if holds {
            let role = if role.is_empty() { "in sync" } else { role };
            let documents = counted(stats.map_or(0, |it| it.documents), "document");
            // One that is being dropped has fewer at each look, so it is found anew.
            let text = format!(
                "partition {number}: manager {manager} should hold nothing, and is {role} with {documents}"
            );
            found.push(Finding::of_partition(Kind::SurplusCopy, number, Some(manager), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two managers in sync in both partitions; each owns its own.
    fn answers() -> Answers {
        let entry = |number: u32| v1::ManagerEntry {
            number,
            id: format!("m{number}"),
            grpc: format!("127.0.0.1:{number}"),
            incarnation: 1,
            status: "ACTIVE".to_owned(),
            ..Default::default()
        };
        let part = |number, first_slot| v1::Part {
            number,
            first_slot,
            pe: 3,
            owner: number,
            isr: vec![number, 400 - number],
            state: "active".to_owned(),
            recovered: None,
            loss: None,
            stamps_above: None,
        };
        let view = v1::View {
            cluster: "c".to_owned(),
            epoch: 3,
            m: 1024,
            r: 1,
            managers_max: 9,
            managers: vec![entry(100), entry(300)],
            parts: vec![part(100, 301), part(300, 101)],
            transition: None,
        };
        let answer = |number: u32| {
            let stats = |part| v1::PartitionStats {
                number: part,
                role: if part == number { "serving" } else { "copy" }.to_owned(),
                committed_pe: 3,
                committed_seq: 7,
                digest: 5,
                ..Default::default()
            };
            let parts = vec![stats(100), stats(300)];
            Ok(v1::InspectResponse {
                number,
                view: Some(view.clone()),
                parts,
                ..Default::default()
            })
        };
        [(100, answer(100)), (300, answer(300))].into()
    }

    fn stats(answers: &mut Answers, manager: u32, part: usize) -> &mut v1::PartitionStats {
        &mut answers.get_mut(&manager).unwrap().as_mut().unwrap().parts[part]
    }

    fn change(answers: &mut Answers, change: impl Fn(&mut v1::View)) {
        let all = answers.values_mut().filter_map(|it| it.as_mut().ok());
        all.for_each(|it| change(it.view.as_mut().unwrap()));
    }

    fn found(answers: &Answers) -> Vec<Kind> {
        let mut digests = Digests::default();
        digests.take(answers);
        let view = View::try_from(newest_view(answers).unwrap().clone()).unwrap();
        check(&view, answers, &digests).into_iter().map(|it| it.kind).collect()
    }

    #[test]
    fn a_ring_in_which_everything_holds_is_found_so() {
        assert_eq!(found(&answers()), vec![]);
    }

    #[test]
    fn a_partition_with_no_owner_or_with_two_is_found() {
        let mut none = answers();
        stats(&mut none, 100, 0).role = "syncing".to_owned();
        assert_eq!(found(&none), [Kind::NoOwner]);
        let mut two = answers();
        stats(&mut two, 300, 0).role = "wedged".to_owned();
        assert_eq!(found(&two), [Kind::TwoOwners]);
    }

    #[test]
    fn missing_and_surplus_copies_are_found() {
        let mut missing = answers();
        change(&mut missing, |view| view.parts[0].isr.retain(|it| *it == 100));
        stats(&mut missing, 300, 0).role = "learning".to_owned();
        assert_eq!(found(&missing), [Kind::MissingCopy]);
        let mut surplus = answers();
        change(&mut surplus, |view| view.r = 0);
        assert_eq!(found(&surplus), [Kind::SurplusCopy, Kind::SurplusCopy]);
        change(&mut surplus, |view| view.parts.iter_mut().for_each(|it| it.isr.truncate(1)));
        for (manager, part) in [(100, 1), (300, 0)] {
            stats(&mut surplus, manager, part).role = "former copy".to_owned();
        }
        assert_eq!(found(&surplus), [Kind::SurplusCopy, Kind::SurplusCopy]);
    }

    #[test]
    fn a_surplus_copy_that_is_being_dropped_is_another_finding_at_each_look() {
        let mut surplus = answers();
        change(&mut surplus, |view| view.r = 0);
        change(&mut surplus, |view| view.parts.iter_mut().for_each(|it| it.isr.truncate(1)));
        stats(&mut surplus, 300, 0).role = "former copy".to_owned();
        let texts = [1_000, 488].map(|documents| {
            stats(&mut surplus, 300, 0).documents = documents;
            let view = View::try_from(newest_view(&surplus).unwrap().clone()).unwrap();
            check(&view, &surplus, &Digests::default()).remove(0).text
        });
        assert!(texts[1].ends_with("and is former copy with 488 documents"), "{}", texts[1]);
        assert_ne!(texts[0], texts[1]);
    }

    #[test]
    fn who_holds_the_last_copy_is_never_called_surplus() {
        let mut last = answers();
        change(&mut last, |view| {
            view.r = 0;
            (view.parts[0].owner, view.parts[0].isr) = (300, vec![300]);
        });
        stats(&mut last, 100, 0).role = "idle".to_owned();
        stats(&mut last, 300, 0).role = "serving".to_owned();
        assert_eq!(found(&last), [Kind::MissingCopy, Kind::MissingCopy, Kind::SurplusCopy]);
        let view = View::try_from(newest_view(&last).unwrap().clone()).unwrap();
        let all = check(&view, &last, &Digests::default());
        assert!(all[1].text.contains("only copy in sync is at manager 300"), "{}", all[1].text);
        assert!(all[2].text.starts_with("partition 300: manager 100"), "{}", all[2].text);
    }

    #[test]
    fn copies_are_compared_at_positions_that_both_have_passed() {
        let mut differ = answers();
        stats(&mut differ, 300, 0).digest = 6;
        assert_eq!(found(&differ), [Kind::DigestDiffers]);
        stats(&mut differ, 300, 0).committed_seq = 9;
        assert_eq!(found(&differ), [Kind::DigestUnproved], "they are not at the same position");
        for manager in [100, 300] {
            let mark = v1::DigestMark { pe: 3, seq: 5, digest: 1 };
            stats(&mut differ, manager, 0).marks = vec![mark];
        }
        assert_eq!(found(&differ), []);
        stats(&mut differ, 300, 0).marks[0].digest = 2;
        assert_eq!(found(&differ), [Kind::DigestDiffers]);
    }

    #[test]
    fn a_copy_that_is_being_made_or_dropped_is_compared_with_nothing() {
        let mut made = answers();
        stats(&mut made, 300, 0).digest = 6;
        assert_eq!(found(&made), [Kind::DigestDiffers]);
        for role in ["learning", "former copy", "idle"] {
            stats(&mut made, 300, 0).role = role.to_owned();
            assert_eq!(found(&made), [Kind::MissingCopy], "{role}");
        }
        // A manager that has not heard of the newest View yet calls its copy what it was before.
        let mut late = answers();
        stats(&mut late, 300, 0).digest = 6;
        let answer = late.get_mut(&300).unwrap().as_mut().unwrap();
        let view = answer.view.as_mut().unwrap();
        (view.epoch, view.parts[0].pe) = (2, 2);
        assert_eq!(found(&late), [Kind::DigestUnproved]);
    }

    #[test]
    fn of_who_is_silent_nothing_is_said() {
        let mut silent = answers();
        silent.insert(300, Err("refused".to_owned()));
        assert_eq!(found(&silent), vec![]);
    }
}
