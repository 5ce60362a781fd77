//! What items, edits and events do to the life cycles of a session.

use super::*;
use crate::{Due, Edit};

fn at(seconds: u64) -> Stamp {
    Stamp::MIN.plus_ms(1_000 * seconds)
}

fn item(text: &str) -> LifeItem {
    text.parse().unwrap()
}

fn items(texts: &[&str]) -> Vec<LifeItem> {
    texts.iter().map(|text| item(text)).collect()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// A session that began with these items. Times of the items are seconds: `a@5`.
fn managed(texts: &[&str]) -> Managed {
    let mut managed = Managed::new(at(0));
    add(&mut managed, texts).unwrap();
    managed.settle(at(0));
    managed
}

fn timed(text: &str) -> String {
    let word = |word: &str| match word.split_once('@') {
        Some((event, seconds)) => format!("{event}@{}", at(seconds.parse().unwrap())),
        None => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn timed_items(texts: &[&str]) -> Vec<LifeItem> {
    texts.iter().map(|text| item(&timed(text))).collect()
}

fn add(managed: &mut Managed, texts: &[&str]) -> Result<(), Vec<String>> {
    edit(managed, Edit::adding(timed_items(texts)))
}

fn edit(managed: &mut Managed, edit: Edit) -> Result<(), Vec<String>> {
    let told =
        |errors: Vec<rota_model::FieldError>| errors.iter().map(ToString::to_string).collect();
    managed.edit(&edit, at(1)).map_err(told)
}

fn removing(texts: &[&str], adds: &[&str]) -> Edit {
    Edit { remove: timed_items(texts), ..Edit::adding(timed_items(adds)) }
}

/// Life cycle and event of each.
fn names(due: &[Due]) -> Vec<String> {
    due.iter().map(|it| format!("{} {}", it.life_cycle, it.event)).collect()
}

fn due(managed: &Managed, seconds: u64) -> Vec<String> {
    names(&managed.due(at(seconds)))
}

fn fire(managed: &mut Managed, text: &str) -> bool {
    let text = timed(text);
    let (life_cycle, word) = text.split_once(' ').unwrap();
    managed.fire(life_cycle, word, at(9))
}

fn held(managed: &Managed) -> Vec<String> {
    managed.items().map(|(item, _)| item.to_string()).collect()
}

fn past(managed: &Managed) -> Vec<String> {
    managed.history().iter().map(|it| it.item.to_string()).collect()
}

fn all_marks(_: &str, _: &str) -> bool {
    true
}

#[test]
fn an_event_is_due_from_its_time_on_and_fires_once() {
    let mut managed = managed(&["r note@5 more@7", "b note@3"]);
    assert_eq!(managed.next_at(), Some(at(3)));
    assert_eq!(due(&managed, 2), Vec::<String>::new());
    assert_eq!(due(&managed, 7), ["b note", "r more"]);
    assert!(fire(&mut managed, "b note@3"));
    assert!(!fire(&mut managed, "b note@3"), "it has fired");
    assert!(!fire(&mut managed, "r note@5"), "only the last word fires");
    assert!(!fire(&mut managed, "r more@8"), "the word has another time");
    assert_eq!(due(&managed, 9), ["r more"]);
    assert_eq!(managed.next_at(), Some(at(7)));
}

#[test]
fn what_is_due_stands_in_order_of_time_then_life_cycle_then_word() {
    let managed = managed(&["z a@5", "b y@5", "b x@5", "c d@4", "w gone?x"]);
    assert_eq!(due(&managed, 9), ["w gone?x", "c d", "b x", "b y", "z a"]);
    assert_eq!(managed.due(at(9))[0].since, Stamp::MIN);
    assert_eq!(managed.due(at(9))[1].word, timed("d@4").split(' ').next().unwrap());
}

#[test]
fn a_mark_has_nothing_to_fire_and_its_life_cycle_stays() {
    let mut managed = managed(&["key made", "key done@1"]);
    assert!(fire(&mut managed, "key done@1"));
    assert!(!managed.fire("key", "made", at(9)));
    managed.settle(at(9));
    assert_eq!(managed.next_at(), None);
    assert_eq!(managed.items().len(), 2);
}

#[test]
fn a_wait_is_due_when_its_life_cycle_is_absent_after_the_commit() {
    let mut managed = managed(&["w key?made"]);
    assert_eq!(managed.next_at(), Some(Stamp::MIN));
    assert_eq!(due(&managed, 0), ["w key?made"]);
    let mut together = Managed::new(at(0));
    add(&mut together, &["w key?made", "key made@5"]).unwrap();
    together.settle(at(1));
    assert_eq!(due(&together, 1), Vec::<String>::new());
    // The commit decided: what comes later does not take it back.
    add(&mut managed, &["key made@5"]).unwrap();
    assert_eq!(due(&managed, 1), ["w key?made"]);
}

#[test]
fn a_wait_is_due_when_its_event_fired_or_stands_as_a_mark_or_ahead_of_the_last_word() {
    for reached in ["key made", "key made later@9", "key made@3 later@9", "key made x?y"] {
        assert!(
            due(&managed(&["w key?made", reached, "key z@8"]), 0).contains(&"w key?made".into())
        );
    }
    for open in ["key made@3", "key later@9 mad@3", "key made?made"] {
        assert!(!due(&managed(&["w key?made", open, "key z@8"]), 0).contains(&"w key?made".into()));
    }
    let mut managed = managed(&["w key?made", "key made@3", "key z@8"]);
    assert!(fire(&mut managed, "key made@3"));
    assert_eq!(due(&managed, 0), ["w key?made"]);
}

#[test]
fn a_wait_that_is_added_after_its_event_fired_is_due_at_once() {
    let mut managed = managed(&["key made@3", "key z@8"]);
    assert!(fire(&mut managed, "key made@3"));
    managed.settle(at(3));
    add(&mut managed, &["w key?made"]).unwrap();
    managed.settle(at(4));
    assert_eq!(due(&managed, 4), ["w key?made"]);
}

#[test]
fn a_wait_does_not_miss_an_event_whose_item_goes_in_the_same_commit() {
    let mut managed = managed(&["w key?made", "key made@3"]);
    assert!(fire(&mut managed, "key made@3"));
    edit(&mut managed, removing(&["key made@3"], &["key next@9"])).unwrap();
    managed.settle(at(3));
    assert_eq!(due(&managed, 3), ["w key?made"]);
    assert_eq!(past(&managed), [timed("key made@3")]);
}

#[test]
fn a_removed_item_is_gone_and_its_names_are_free() {
    let mut managed = managed(&["key made@3"]);
    edit(&mut managed, removing(&["key made@3", "key never@1"], &[])).unwrap();
    assert!(managed.is_empty());
    assert!(!fire(&mut managed, "key made@3"));
    add(&mut managed, &["key made@4"]).unwrap();
    assert_eq!(due(&managed, 4), ["key made"]);
}

#[test]
fn an_item_that_is_there_already_changes_nothing() {
    let mut managed = managed(&["key made@3"]);
    assert!(fire(&mut managed, "key made@3"));
    let before = managed.clone();
    add(&mut managed, &["key made@3", "key made@3"]).unwrap();
    assert_eq!(managed, before);
}

#[test]
fn a_name_that_is_used_in_its_life_cycle_is_refused_with_what_it_clashes_with() {
    let mut managed = managed(&["key made x@3", "other made"]);
    let before = managed.clone();
    let text = timed("key made@4");
    let told = format!(
        "managedState \"{text}\": made is used in the life cycle key by \"{}\"; give it another name",
        timed("key made x@3")
    );
    let clashes = add(&mut managed, &["key made@4", "key x", "fine y"]).unwrap_err();
    assert_eq!(clashes.len(), 2);
    assert!(clashes.contains(&told), "{clashes:?}");
    assert_eq!(managed, before, "it is refused whole");
    assert_eq!(add(&mut managed, &["new a", "new b a@3"]).unwrap_err().len(), 1);
    assert!(add(&mut managed, &["key x?made", "third made"]).is_ok());
    assert_eq!(add(&mut managed, &["key x?made y@3"]).unwrap_err().len(), 1);
}

#[test]
fn a_name_that_fired_stays_used_when_its_item_is_removed_and_until_history_goes() {
    let mut managed = managed(&["key made@3", "key z@9"]);
    assert!(fire(&mut managed, "key made@3"));
    edit(&mut managed, removing(&["key made@3"], &[])).unwrap();
    let told = add(&mut managed, &["key made@5"]).unwrap_err();
    assert!(told[0].ends_with(", which is history; give it another name"), "{told:?}");
    managed.purge(at(1));
    assert!(add(&mut managed, &["key made@5"]).is_err(), "it moved at this very time");
    managed.purge(at(2));
    assert!(add(&mut managed, &["key made@5"]).is_ok());
}

#[test]
fn an_item_that_goes_on_from_a_fired_event_takes_its_place() {
    let mut managed = managed(&["key made@3"]);
    assert!(fire(&mut managed, "key made@3"));
    edit(&mut managed, removing(&["key made@3"], &["key made@3 retire@8"])).unwrap();
    managed.settle(at(3));
    assert_eq!(held(&managed), [timed("key made@3 retire@8")]);
    assert_eq!(past(&managed), Vec::<String>::new());
    assert_eq!(due(&managed, 9), ["key retire"]);
}

#[test]
fn a_replacement_keeps_what_stays_as_it_is() {
    let mut managed = managed(&["key made@3", "a b@1", "c d@1"]);
    assert!(fire(&mut managed, "key made@3"));
    assert!(fire(&mut managed, "c d@1"));
    let replace = Some(timed_items(&["key made@3", "key z@5", "a b@2"]));
    edit(&mut managed, Edit { replace, ..Edit::default() }).unwrap();
    assert_eq!(held(&managed), ["a b@2", "key made@3", "key z@5"].map(timed));
    assert_eq!(due(&managed, 9), ["a b", "key z"]);
    assert_eq!(past(&managed), [timed("c d@1")]);
}

#[test]
fn a_life_cycle_is_finished_when_the_last_word_of_each_item_fired() {
    let mut managed = managed(&["key a@1", "key b@2", "other c@3"]);
    assert!(fire(&mut managed, "key a@1"));
    managed.settle(at(4));
    assert_eq!(managed.items().len(), 3);
    assert!(fire(&mut managed, "key b@2"));
    managed.settle(at(5));
    assert_eq!(held(&managed), [timed("other c@3")]);
    let moved: Vec<_> = managed.history().iter().map(|it| (it.fired.is_some(), it.moved)).collect();
    assert_eq!(moved, [(true, at(5)); 2]);
}

#[test]
fn an_action_that_extends_its_life_cycle_keeps_it_going() {
    let mut managed = managed(&["key a@1"]);
    assert!(fire(&mut managed, "key a@1"));
    add(&mut managed, &["key b@2"]).unwrap();
    managed.settle(at(1));
    assert_eq!(managed.items().len(), 2);
    assert_eq!(due(&managed, 2), ["key b"]);
}

#[test]
fn an_order_finishes_a_life_cycle_whatever_is_left() {
    let mut managed = managed(&["key a@1", "key b", "other c@3"]);
    let finish = vec![name("key"), name("never")];
    edit(&mut managed, Edit { finish, ..Edit::adding(timed_items(&["key x@2"])) }).unwrap();
    assert_eq!(held(&managed), [timed("other c@3")]);
    assert_eq!(past(&managed), ["key b", "key a@1", "key x@2"].map(timed));
    assert!(managed.history().iter().all(|it| it.fired.is_none()));
}

#[test]
fn marks_fire_waits_of_waits_to_the_end() {
    let mut managed = managed(&["a x@1", "b a?x", "c b?y", "d c?z", "e d?z"]);
    let is_mark = |life_cycle: &str, _: &str| life_cycle != "d";
    assert_eq!(names(&managed.fire_marks(at(0), &is_mark)), Vec::<String>::new());
    assert_eq!(names(&managed.fire_marks(at(1), &is_mark)), ["a x", "b a?x", "c b?y"]);
    assert_eq!(due(&managed, 1), ["d c?z"]);
    assert_eq!(held(&managed), ["d c?z", "e d?z"]);
    assert_eq!(names(&managed.fire_marks(at(1), &all_marks)), ["d c?z", "e d?z"]);
    assert!(managed.items().len() == 0 && managed.history().len() == 5);
}

#[test]
fn a_failure_holds_an_event_until_a_retry_or_a_skip() {
    let mut managed = managed(&["key a@1", "key z@9"]);
    let text = timed("a@1");
    let failure = Failure::new(3, "1", &"ü".repeat(600), at(4));
    assert!((REPORT_BYTES_MAX - 3..=REPORT_BYTES_MAX).contains(&failure.report.len()));
    let trace = format!("what it is about{}why", " at a line".repeat(200));
    let report = Failure::new(1, "1", &trace, at(4)).report;
    assert_eq!(report.len(), REPORT_BYTES_MAX);
    assert!(report.starts_with("what it is about") && report.ends_with("why"), "{report}");
    assert!(managed.fail("key", &text, failure.clone()));
    assert_eq!((due(&managed, 5), managed.next_at()), (vec![], Some(at(9))));
    assert!(managed.retry("key", &text));
    assert!(!managed.retry("key", &text), "no failure stands");
    assert_eq!(due(&managed, 5), ["key a"]);
    assert!(managed.fail("key", &text, failure.clone()));
    assert!(managed.skip("key", &text, at(6)));
    let fired = managed.items().next().unwrap().1.fired;
    assert_eq!(fired, Some(Fired { at: at(6), skipped: true }));
    assert!(!managed.fail("key", &text, failure), "it has fired");
    assert!(!managed.skip("key", "gone", at(6)));
}

#[test]
fn an_event_may_succeed_after_it_failed() {
    let mut managed = managed(&["key a@1", "key z@9"]);
    assert!(managed.fail("key", &timed("a@1"), Failure::new(1, "1", "", at(4))));
    assert!(fire(&mut managed, "key a@1"));
    assert_eq!(managed.items().next().unwrap().1.failed, None);
}

#[test]
fn the_last_stamp_lags_behind_what_is_left_to_fire() {
    let mut managed = managed(&["key a@1", "key b@2", "key c@3", "key d", "key e?f"]);
    assert_eq!(managed.last(&name("key")), None);
    assert!(fire(&mut managed, "key c@3"));
    assert_eq!(managed.last(&name("key")), None);
    assert!(fire(&mut managed, "key a@1"));
    assert_eq!(managed.last(&name("key")), Some(at(1)));
    assert!(fire(&mut managed, "key b@2"));
    assert_eq!(managed.last(&name("key")), Some(at(3)));
    assert_eq!(managed.last(&name("other")), None);
    let mut same = self::managed(&["key a@1", "key b@1"]);
    assert!(fire(&mut same, "key a@1"));
    assert_eq!(same.last(&name("key")), None, "an event of the same time is left");
}

#[test]
fn life_cycles_that_wait_for_each_other_are_found() {
    let cycles = |texts: &[&str]| managed(texts).cycles();
    assert_eq!(cycles(&["a b?x", "b a?y"]), [["a", "b"]]);
    assert_eq!(cycles(&["a a?x"]), [["a"]]);
    assert_eq!(
        cycles(&["a b?x", "b c?x", "c a?x", "d a?x", "e e?x"]),
        [vec!["a", "b", "c"], vec!["e"]]
    );
    let none: [&[&str]; 6] = [
        &["a b?x", "b a?y", "b x@9"],
        &["a b?x", "b a?y", "a y"],
        &["a a?x", "a x@9"],
        &["a b?x", "b gone?y"],
        // Somebody adds what these wait for.
        &["a b?x", "b y"],
        // The first one finishes by itself, so the second one does, too.
        &["a x@9", "b a?y", "c b?z"],
    ];
    for texts in none {
        assert_eq!(cycles(texts), Vec::<Vec<String>>::new(), "{texts:?}");
    }
}

#[test]
fn the_end_of_the_session_moves_everything_and_nothing_is_added_any_more() {
    let mut managed = managed(&["key a@1", "w key?a"]);
    assert!(managed.fail("key", &timed("a@1"), Failure::new(3, "X", "", at(1))));
    managed.end(at(2));
    assert!(managed.has_ended() && managed.items().len() == 0 && managed.history().len() == 2);
    let why = managed.history().iter().map(|it| it.failed.as_ref().map_or(0, |it| it.attempts));
    assert_eq!(why.collect::<Vec<_>>(), [3, 0], "why nothing came of it is known still");
    assert_eq!((due(&managed, 9), managed.next_at()), (vec![], None));
    assert!(!fire(&mut managed, "key a@1"));
    let told = add(&mut managed, &["key b@1"]).unwrap_err();
    assert_eq!(told, ["managedState the session has ended, so nothing happens in it any more"]);
    assert!(edit(&mut managed, removing(&["key a@1"], &[])).is_ok());
    assert!(managed.begin(at(0), timed_items(&["key b@1"]), at(3)).is_err(), "a late repetition");
}

#[test]
fn another_chain_of_lives_begins_with_all_names_unused() {
    let mut managed = managed(&["key a@1"]);
    managed.begin(at(5), timed_items(&["key a@1", "key b@7"]), at(6)).unwrap();
    assert_eq!((managed.origin(), managed.has_ended()), (at(5), false));
    assert_eq!(past(&managed), [timed("key a@1")]);
    assert_eq!(managed.history()[0].origin, at(0));
    assert_eq!(due(&managed, 7), ["key a", "key b"]);
    let before = managed.clone();
    managed.begin(at(5), timed_items(&["key a@1"]), at(8)).unwrap();
    assert_eq!(managed, before, "a repetition changes nothing");
    assert!(managed.begin(at(9), timed_items(&["x a", "x a b@1"]), at(9)).is_err());
    assert_eq!(managed, before, "it is refused whole");
}

#[test]
fn an_earlier_chain_of_lives_that_comes_back_does_nothing_twice() {
    let given = ["key a@1", "key b@7", "late x@9"];
    let mut managed = managed(&given);
    assert!(fire(&mut managed, "key a@1"));
    // Its place takes another item of the name.
    edit(&mut managed, removing(&["late x@9"], &["late x@8"])).unwrap();
    managed.begin(at(5), timed_items(&["key a@6"]), at(6)).unwrap();
    managed.begin(at(0), timed_items(&[&given[..], &["new y@9"]].concat()), at(8)).unwrap();
    assert_eq!((managed.origin(), managed.has_ended()), (at(0), false));
    assert_eq!(held(&managed), [timed("new y@9")]);
    assert_eq!(managed.history().last().map(|it| (it.origin, it.moved)), Some((at(5), at(8))));
}

#[test]
fn items_and_history_have_bounds() {
    let many: Vec<LifeItem> = (0..ITEMS_MAX).map(|it| item(&format!("l{it} m"))).collect();
    let mut managed = Managed::new(at(0));
    edit(&mut managed, Edit::adding(many)).unwrap();
    let told = add(&mut managed, &["one more"]).unwrap_err();
    assert_eq!(told, ["managedState would have 65 items; the limit is 64"]);
    let long = |number: usize| {
        let marks: Vec<String> = (0..100).map(|mark| format!("m{mark:08}")).collect();
        item(&format!("l{number} {}", marks.join(" ")))
    };
    let replace = Some((0..20).map(long).collect());
    let told = edit(&mut managed, Edit { replace, ..Edit::default() }).unwrap_err();
    assert_eq!(told, ["managedState would have 20050 bytes of items; the limit is 16384"]);
    for round in 0..6 {
        let names: Vec<LifeItem> = (0..50).map(|it| item(&format!("l{round} m{it}"))).collect();
        let replace = Some(names);
        edit(&mut managed, Edit { replace, ..Edit::default() }).unwrap();
        let finish = vec![name(&format!("l{round}"))];
        edit(&mut managed, Edit { finish, ..Edit::default() }).unwrap();
    }
    assert_eq!(managed.history().len(), HISTORY_MAX);
    assert_eq!(managed.history()[0].item, item("l0 m49"), "the oldest went");
}

#[test]
fn history_is_purged_by_age() {
    let mut managed = managed(&["a x@1", "b y@9"]);
    assert_eq!(managed.purge_at(500), None);
    assert!(fire(&mut managed, "a x@1"));
    managed.settle(at(4));
    let purge_at = managed.purge_at(500).unwrap();
    managed.purge(purge_at.minus_ms(501));
    assert_eq!(managed.history().len(), 1);
    managed.purge(purge_at.minus_ms(500));
    assert_eq!(managed.history().len(), 0);
}

#[test]
fn it_comes_back_from_compact_json_and_unknown_fields_are_refused() {
    let mut managed = managed(&["key a@1", "key b@2", "w key?a", "x y@1"]);
    assert!(fire(&mut managed, "key a@1"));
    assert!(fire(&mut managed, "x y@1"));
    assert!(managed.fail("key", &timed("b@2"), Failure::new(1, "exit 3", "no", at(4))));
    managed.settle(at(4));
    let json = serde_json::to_string(&managed).unwrap();
    let expected = "{\"origin\":101000000000,\"items\":{\
        \"key a@000101000001000\":{\"fired\":{\"at\":101000009000}},\
        \"key b@000101000002000\":{\"failed\":{\"attempts\":1,\"code\":\"exit 3\",\"report\":\"no\",\
        \"at\":101000004000}},\"w key?a\":{\"ready\":true}},\"history\":[{\"item\":\
        \"x y@000101000001000\",\"fired\":{\"at\":101000009000},\"moved\":101000004000,\
        \"origin\":101000000000}]}";
    assert_eq!(json, expected);
    assert_eq!(managed.bytes(), json.len());
    assert_eq!(serde_json::from_str::<Managed>(&json).unwrap(), managed);
    let shuffled = "{\"origin\":101000000000,\"items\":{\"b m\":{},\"a m\":{}}}";
    let shuffled: Managed = serde_json::from_str(shuffled).unwrap();
    assert_eq!(held(&shuffled), ["a m", "b m"]);
    let wrong = json.replacen("history", "past", 1);
    assert!(serde_json::from_str::<Managed>(&wrong).unwrap_err().to_string().contains("past"));
    let wrong = json.replacen("key a@", "key  a@", 1);
    let told = serde_json::from_str::<Managed>(&wrong).unwrap_err().to_string();
    assert!(told.contains("managedState column 5"), "{told}");
}

#[test]
fn every_wrong_line_is_told_with_its_place() {
    let lines = ["key a", "key", "key b@+1h", "idle a"].map(str::to_owned);
    let told = Edit::parse_entries(&lines, at(0)).unwrap_err();
    let fields: Vec<&str> = told.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["managedState[1]", "managedState[3]"]);
    let read = Edit::parse_entries(&lines[2..3], at(0)).unwrap();
    assert_eq!(read, items(&["key b@2000-01-01T01:00:00.000Z"]));
}
