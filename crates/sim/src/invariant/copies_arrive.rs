//! Deferred copies: at the end everybody who holds a source has its newest count, if it counted since; and who parted holds
//! nothing.

use super::{Verdict, Violation};
use crate::copying::{Act, Copied, Held};
use crate::ledger::Ledger;

/// Checks the whole history, of documents that were not lost.
pub fn check(ledger: &Ledger, m: u32) -> Verdict {
    for shown in &ledger.copies.held {
        if ledger.is_lost(&shown.docid, m) {
            continue;
        }
        for source in crate::copying::SOURCES {
            // The copying that failed too often was given up.
            let is_given_up = ledger.tasks.given_up.contains(&format!("copy {source}"));
            if shown.docid == source || ledger.is_lost(source, m) || is_given_up {
                continue;
            }
            check_one(ledger, shown, source)?;
        }
    }
    Ok(())
}

fn check_one(ledger: &Ledger, shown: &Held, source: &str) -> Verdict {
    if crate::copying::SOURCES.contains(&shown.docid.as_str()) {
        return Ok(());
    }
    let of = |act: Act| {
        let of_act =
            ledger.copies.copied.iter().filter(move |it| it.act == act && it.source == source);
        of_act.filter(move |it| act == Act::Count || it.holder == shown.docid)
    };
    let is_before = |one: &Copied, two: &Copied| one.came_us.is_some_and(|came| came < two.sent_us);
    let count = shown.counts.get(source);
    if let Some(part) = of(Act::Part).rfind(|it| it.came_us.is_some())
        && of(Act::Join).all(|join| is_before(join, part))
        && let Some(count) = count
    {
        let text = format!("{} parted from {source}, and holds {count} of it", shown.docid);
        return Err(Violation::new("copied", text));
    }
    let Some(join) = of(Act::Join).rfind(|it| it.came_us.is_some()) else {
        return Ok(());
    };
    if !of(Act::Part).all(|part| is_before(part, join)) {
        return Ok(());
    }
    let counted = of(Act::Count).filter(|it| it.came_us.is_some());
    if !counted.clone().any(|it| join.came_us.is_some_and(|came| came < it.sent_us)) {
        return Ok(());
    }
    let newest = ledger.copies.held.iter().filter(|it| it.docid == source);
    let newest = newest.filter_map(|it| it.counts.get(source)).max();
    if count != newest {
        let text = format!(
            "{} holds {count:?} of {source}, which counted up to {newest:?} since it joined",
            shown.docid
        );
        return Err(Violation::new("copied", text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::CopyBook;

    fn did(act: Act, sent_us: u64) -> Copied {
        let holder = if act == Act::Count { "" } else { "h1" };
        let (source, holder) = ("s1".to_owned(), holder.to_owned());
        Copied { act, source, holder, sent_us, came_us: Some(sent_us + 1) }
    }

    fn ledger(copied: Vec<Copied>, held: &[(&str, u64)]) -> Ledger {
        let of = |(docid, count): &(&str, u64)| Held {
            docid: (*docid).to_owned(),
            counts: [("s1".to_owned(), *count)].into(),
        };
        let copies = CopyBook { copied, held: held.iter().map(of).collect() };
        Ledger { copies, ..Ledger::default() }
    }

    #[test]
    fn an_old_copy_and_one_that_came_back_are_found() {
        let joined = vec![did(Act::Join, 1), did(Act::Count, 5)];
        assert_eq!(check(&ledger(joined.clone(), &[("s1", 4), ("h1", 4)]), 8), Ok(()));
        let old = check(&ledger(joined, &[("s1", 4), ("h1", 3)]), 8).unwrap_err();
        assert!(old.text.contains("counted up to"), "{}", old.text);
        // What counted before it joined may be missing.
        let later = vec![did(Act::Count, 1), did(Act::Join, 5)];
        assert_eq!(check(&ledger(later, &[("s1", 4), ("h1", 0)]), 8), Ok(()));
        let parted = vec![did(Act::Join, 1), did(Act::Part, 5)];
        let back = check(&ledger(parted, &[("s1", 4), ("h1", 4)]), 8).unwrap_err();
        assert!(back.text.contains("parted from"), "{}", back.text);
    }
}
