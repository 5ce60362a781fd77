//! Documents: every addition that was answered is there for ever, once, at its place; repetitions get
//! the same answer; what is shown never goes back; what was destroyed is in no copy.

use super::{Verdict, Violation};
use crate::writing::{SeenDocument, Written};
use std::collections::BTreeMap;

fn broken(text: String) -> Verdict {
    Err(Violation::new("documents", text))
}

/// Checks the whole history.
pub fn check(written: &[Written], seen: &[SeenDocument]) -> Verdict {
    written.iter().try_for_each(check_answers)?;
    for shown in seen {
        check_places(shown)?;
        check_complete(written, shown)?;
    }
    check_forward(seen)
}

/// All answers to one addition are the same.
fn check_answers(written: &Written) -> Verdict {
    let Some((first, others)) = written.told.split_first() else { return Ok(()) };
    for other in others {
        if other.answer != first.answer {
            let (who, one, two) = (&written.who, &first.answer, &other.answer);
            return broken(format!("{who} was answered {one:?}, and later {two:?}"));
        }
    }
    Ok(())
}

/// Nobody is there twice, and places follow each other in order of versions.
fn check_places(shown: &SeenDocument) -> Verdict {
    let name = &shown.name;
    if let Some(who) = &shown.log.twice {
        return broken(format!("{who} was added twice to {name}"));
    }
    let mut places: Vec<_> = shown.log.added.iter().map(|(who, it)| (it.0, it.1, who)).collect();
    places.sort_unstable();
    let mut last = None;
    for (expected, (place, version, who)) in (1..).zip(places) {
        if place != expected {
            return broken(format!("{who} is number {place} of {name}, not {expected}"));
        }
        if last.is_some_and(|(last, _)| version <= last) {
            return broken(format!("{who} is number {place} of {name} at {version}, not later"));
        }
        last = Some((version, who));
    }
    // Each addition destroys the item of the one before.
    let (who, found) = (last.map(|it| it.1), &shown.log.last);
    if !found.iter().eq(who) {
        return broken(format!("{who:?} is the last one of {name}, which shows {found:?}"));
    }
    Ok(())
}

/// What was answered before a document was asked for is in it, as it was answered.
fn check_complete(written: &[Written], shown: &SeenDocument) -> Verdict {
    for addition in written {
        let told = addition.told.iter().find(|it| it.came_us < shown.sent_us);
        let at = addition.docids.iter().position(|it| it == shown.name.docid());
        let (Some(told), Some(at)) = (told, at) else { continue };
        let (version, added) = &told.answer;
        let expected = added.at.get(at).map(|place| (*place, *version));
        let found = shown.log.added.get(&addition.who).copied();
        if found != expected {
            let (who, name) = (&addition.who, &shown.name);
            let text = format!("{who} was answered {expected:?} in {name}, which shows {found:?}");
            return broken(text);
        }
    }
    Ok(())
}

/// What was shown to somebody is not newer than what is shown to whoever asks after that.
fn check_forward(seen: &[SeenDocument]) -> Verdict {
    let mut by_name: BTreeMap<_, Vec<&SeenDocument>> = BTreeMap::new();
    for shown in seen {
        by_name.entry(&shown.name).or_default().push(shown);
    }
    for (name, mut shown) in by_name {
        shown.sort_by_key(|it| it.sent_us);
        let mut came: Vec<_> = shown.iter().map(|it| (it.came_us, it.version)).collect();
        came.sort_unstable();
        let (mut newest, mut at) = (None, 0);
        for later in shown {
            while let Some((_, version)) = came.get(at).filter(|it| it.0 < later.sent_us) {
                newest = newest.max(*version);
                at += 1;
            }
            if later.version < newest {
                let version = later.version;
                return broken(format!("{name} is shown at {version:?} after {newest:?}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writing::{Added, Log, SPACE, Told, name};
    use rota_model::Stamp;

    fn at(ms: u64) -> Stamp {
        Stamp::MIN.plus_ms(ms)
    }

    fn written(who: &str, told: &[(u64, u64, u64)]) -> Written {
        let told = told.iter().map(|(came_us, place, ms)| Told {
            sent_us: came_us - 5,
            came_us: *came_us,
            answer: (at(*ms), Added { at: vec![*place] }),
        });
        let (who, docids) = (who.to_owned(), vec!["b".to_owned()]);
        Written { who, docids, has_operation_time: true, told: told.collect() }
    }

    fn shown(sent_us: u64, added: &[(&str, u64, u64)]) -> SeenDocument {
        let mut log = Log::default();
        for (who, place, ms) in added {
            log.added.insert((*who).to_owned(), (*place, at(*ms)));
        }
        let last = added.iter().max_by_key(|it| (it.1, it.2, it.0));
        log.last = last.map(|it| it.0.to_owned()).into_iter().collect();
        let version = added.iter().map(|it| at(it.2)).max();
        SeenDocument { name: name(SPACE, "b"), sent_us, came_us: sent_us + 5, version, log }
    }

    #[test]
    fn a_history_in_order_is_no_violation() {
        let written = [written("x", &[(10, 1, 1), (90, 1, 1)]), written("y", &[(30, 2, 2)])];
        let seen = [shown(20, &[("x", 1, 1)]), shown(40, &[("x", 1, 1), ("y", 2, 2)])];
        assert_eq!(check(&written, &seen), Ok(()));
    }

    #[test]
    fn what_is_lost_doubled_or_told_differently_is_found() {
        let lost = check(&[written("x", &[(10, 1, 1)])], &[shown(20, &[])]).unwrap_err();
        assert!(lost.text.contains("which shows None"), "{lost:?}");
        let other = check(&[written("x", &[(10, 1, 1), (20, 2, 2)])], &[]).unwrap_err();
        assert!(other.text.contains("and later"), "{other:?}");
        let same_place = shown(20, &[("x", 1, 1), ("y", 1, 2)]);
        assert!(check(&[], &[same_place]).is_err());
        let same_moment = shown(20, &[("x", 1, 1), ("y", 2, 1)]);
        assert!(check(&[], &[same_moment]).is_err());
        let mut twice = shown(20, &[]);
        twice.log.twice = Some("x".to_owned());
        assert!(check(&[], &[twice]).unwrap_err().text.contains("twice"));
        let mut kept = shown(20, &[("x", 1, 1), ("y", 2, 2)]);
        kept.log.last.push("z".to_owned());
        assert!(check(&[], &[kept]).unwrap_err().text.contains("the last one"));
        let back = [shown(20, &[("x", 1, 1), ("y", 2, 2)]), shown(40, &[("x", 1, 1)])];
        assert!(check(&[], &back).unwrap_err().text.contains("after"));
    }
}
