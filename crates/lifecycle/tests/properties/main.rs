//! What holds for any items, in any order of events.

mod naive;

use naive::{DueLine, Line, Naive};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rota_lifecycle::{Due, Edit, Failure, ITEM_BYTES_MAX, LifeItem, Managed, Name, Patch};
use rota_model::Stamp;

/// A moment near the beginning of the century, in milliseconds.
fn at(ms: u64) -> Stamp {
    Stamp::MIN.plus_ms(ms)
}

fn item(text: &str) -> LifeItem {
    text.parse().expect("lines here are items")
}

fn items(texts: &[String]) -> Vec<LifeItem> {
    texts.iter().map(|it| item(it)).collect()
}

/// A word of few names, so that they meet.
fn word() -> impl Strategy<Value = String> {
    let event = || select(vec!["x", "y", "z"]);
    prop_oneof![
        1 => event().prop_map(str::to_owned),
        3 => (event(), 1_u64..8).prop_map(|(event, ms)| format!("{event}@{}", at(ms))),
        3 => (select(vec!["a", "b", "c"]), event()).prop_map(|(of, event)| format!("{of}?{event}")),
    ]
}

/// A line of few life cycles. A word whose name is there already is left out.
fn line() -> impl Strategy<Value = String> {
    (select(vec!["a", "b", "c"]), vec(word(), 1..4)).prop_map(|(of, words)| {
        let longer = |text: String, word: String| {
            let longer = format!("{text} {word}");
            if LifeItem::parse(&longer).is_ok() { longer } else { text }
        };
        words.into_iter().fold(of.to_owned(), longer)
    })
}

fn lines(most: usize) -> impl Strategy<Value = Vec<String>> {
    vec(line(), 0..most)
}

fn name() -> &'static str {
    "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}"
}

/// Times in every form that is stored.
fn time() -> impl Strategy<Value = String> {
    let ms = Stamp::MIN.to_epoch_ms()..Stamp::MAX.to_epoch_ms();
    let date = (2001_u32..2099, 1_u32..13, 1_u32..29, 0_u32..24, 0_u32..60, 0_u32..60);
    let end = select(vec!["Z", ".5Z", ".123456789+23:59", "-00:30", "+02:00"]);
    prop_oneof![
        ms.prop_map(|ms| Stamp::from_epoch_ms(ms).to_string()),
        (date, end).prop_map(|((year, month, day, hour, minute, second), end)| {
            format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{end}")
        }),
    ]
}

fn any_line() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        name().prop_map(|it: String| it),
        (name(), time()).prop_map(|(event, time)| format!("{event}@{time}")),
        (name(), name()).prop_map(|(of, event)| format!("{of}?{event}")),
    ];
    (name(), vec(word, 1..6)).prop_map(|(of, words)| format!("{of} {}", words.join(" ")))
}

/// A step of a story. Numbers choose among the lines that were ever named.
#[derive(Clone, Debug)]
enum Step {
    Edit {
        add: Vec<String>,
        remove: Vec<usize>,
        finish: Option<&'static str>,
    },
    Replace(Vec<String>),
    Fire(usize),
    Skip(usize),
    Fail(usize),
    Retry(usize),
    /// Marks of these life cycles fire.
    Marks(&'static str),
    Begin(u64, Vec<String>),
    End,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let finish = proptest::option::weighted(0.1, select(vec!["a", "b", "c"]));
    let edit = (lines(4), vec(0_usize..99, 0..3), finish);
    prop_oneof![
        8 => edit.prop_map(|(add, remove, finish)| Step::Edit { add, remove, finish }),
        1 => lines(5).prop_map(Step::Replace),
        6 => (0_usize..99).prop_map(Step::Fire),
        1 => (0_usize..99).prop_map(Step::Skip),
        2 => (0_usize..99).prop_map(Step::Fail),
        2 => (0_usize..99).prop_map(Step::Retry),
        5 => select(vec!["", "a", "bc", "abc"]).prop_map(Step::Marks),
        1 => (0_u64..3, lines(3)).prop_map(|(origin, items)| Step::Begin(origin, items)),
        1 => Just(Step::End),
        4 => Just(Step::Wait),
    ]
}

/// The engine and the naive rules, side by side.
struct Pair {
    managed: Managed,
    naive: Naive,
    now: u64,
    named: Vec<String>,
}

fn plain(due: &[Due]) -> Vec<DueLine> {
    let plain = due.iter().map(|due| {
        let since = if due.since == Stamp::MIN { 0 } else { due.since.as_u64() };
        (since, due.life_cycle.to_string(), due.word.to_string())
    });
    plain.collect()
}

impl Pair {
    fn new() -> Self {
        let naive = Naive::default();
        Self { managed: Managed::new(at(0)), naive, now: 0, named: Vec::new() }
    }

    fn now(&self) -> Stamp {
        at(self.now)
    }

    /// A line that was named.
    fn pick(&self, number: usize) -> String {
        let picked = self.named.get(number % self.named.len().max(1));
        picked.cloned().unwrap_or_else(|| "a x".to_owned())
    }

    /// Life cycle and last word of a line that was named.
    fn pick_last(&self, number: usize) -> (String, String) {
        let item = item(&self.pick(number));
        (item.life_cycle().to_string(), item.last().to_string())
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        let now = self.now();
        match step {
            Step::Edit { add, remove, finish } => {
                let remove: Vec<String> = remove.into_iter().map(|it| self.pick(it)).collect();
                let finishes = finish.iter().map(|it| Name::parse(it).expect("a name")).collect();
                let edit = Edit {
                    add: items(&add),
                    remove: items(&remove),
                    finish: finishes,
                    replace: None,
                };
                let taken = self.managed.edit(&edit, now).is_ok();
                prop_assert_eq!(taken, self.naive.edit(&add, &remove, None, finish));
                self.named.extend(add);
            }
            Step::Replace(lines) => {
                let edit = Edit { replace: Some(items(&lines)), ..Edit::default() };
                let taken = self.managed.edit(&edit, now).is_ok();
                prop_assert_eq!(taken, self.naive.edit(&[], &[], Some(&lines), None));
                self.named.extend(lines);
            }
            Step::Fire(number) => {
                let (of, word) = self.pick_last(number);
                let fired = self.managed.fire(&of, &word, now);
                prop_assert_eq!(fired, self.naive.fire(&format!("{of} {word}")));
            }
            Step::Skip(number) => {
                let (of, word) = self.pick_last(number);
                let skipped = self.managed.skip(&of, &word, now);
                prop_assert_eq!(skipped, self.naive.fire(&format!("{of} {word}")));
            }
            Step::Fail(number) => {
                let (of, word) = self.pick_last(number);
                let failed = self.managed.fail(&of, &word, Failure::new(1, "1", "", now));
                prop_assert_eq!(failed, self.naive.fail(&format!("{of} {word}")));
            }
            Step::Retry(number) => {
                let (of, word) = self.pick_last(number);
                let retried = self.managed.retry(&of, &word);
                prop_assert_eq!(retried, self.naive.retry(&format!("{of} {word}")));
            }
            Step::Marks(marks) => {
                let fired = self.managed.fire_marks(now, &|of, _| marks.contains(of));
                prop_assert_eq!(plain(&fired), self.naive.fire_marks(now.as_u64(), marks));
            }
            Step::Begin(origin, lines) => {
                let taken = self.managed.begin(at(origin), items(&lines), now).is_ok();
                prop_assert_eq!(taken, self.naive.begin(origin, &lines));
                self.named.extend(lines);
            }
            Step::End => {
                self.managed.end(now);
                self.naive.end();
            }
            Step::Wait => self.now += 1,
        }
        self.agree()
    }

    fn agree(&self) -> Result<(), TestCaseError> {
        let lines = self.managed.items().map(|(item, held)| Line {
            text: item.to_string(),
            fired: held.fired.is_some(),
            failed: held.failed.is_some(),
            ready: held.ready,
        });
        let (mut lines, mut expected) = (lines.collect::<Vec<_>>(), self.naive.lines.clone());
        lines.sort();
        expected.sort();
        prop_assert_eq!(lines, expected);
        let past = self.managed.history().iter().map(|past| {
            (
                past.origin.ms_since(Stamp::MIN).expect("no stamp is less"),
                past.item.to_string(),
                past.fired.is_some(),
            )
        });
        let (mut past, mut expected) = (past.collect::<Vec<_>>(), self.naive.history.clone());
        past.sort();
        expected.sort();
        prop_assert_eq!(past, expected);
        let now = self.now();
        prop_assert_eq!(plain(&self.managed.due(now)), self.naive.due(now.as_u64()));
        let json = serde_json::to_string(&self.managed).expect("it has a form in JSON");
        let read: Managed = serde_json::from_str(&json).expect("what was written is read");
        prop_assert_eq!(&read, &self.managed);
        next_agrees(&self.managed)
    }
}

/// `next_at` is the first moment at which something is due.
fn next_agrees(managed: &Managed) -> Result<(), TestCaseError> {
    let next = managed.next_at();
    for now in (0..10).map(at).chain([Stamp::MAX]) {
        prop_assert_eq!(!managed.due(now).is_empty(), next.is_some_and(|next| next <= now));
    }
    Ok(())
}

/// A session with those of the lines that do not clash.
fn managed(lines: &[String]) -> Managed {
    let mut managed = Managed::new(at(0));
    for line in lines {
        // A refusal changes nothing.
        let before = managed.clone();
        if managed.edit(&Edit::adding(vec![item(line)]), at(0)).is_err() {
            assert_eq!(managed, before);
        }
    }
    managed.settle(at(0));
    managed
}

/// Holds for what is parsed of any text.
fn parses_or_tells(text: &str) -> Result<(), TestCaseError> {
    match LifeItem::parse(text) {
        Ok(item) => prop_assert_eq!(item.to_string(), text),
        Err(error) => prop_assert!(error.to_string().len() < 2 * ITEM_BYTES_MAX, "{}", error),
    }
    if let Ok(item) = LifeItem::parse_entry(text, at(7)) {
        let stored = item.to_string();
        prop_assert_eq!(LifeItem::parse(&stored), Ok(item));
        prop_assert!(stored == text || text.contains("@+"), "{}", text);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_item_prints_as_the_text_that_it_was_read_from(text in any_line()) {
        prop_assume!(text.len() <= ITEM_BYTES_MAX);
        let read = LifeItem::parse(&text);
        // Names are drawn, and may meet.
        let is_twice = read.as_ref().is_err_and(|it| it.problem.contains("does not have yet"));
        prop_assume!(!is_twice);
        prop_assert_eq!(read.unwrap().to_string(), text);
    }

    #[test]
    fn any_text_is_an_item_or_an_error(text in any::<String>(), near in "[ab.@?+ 0-9:TZdhms-]{0,90}") {
        parses_or_tells(&text)?;
        parses_or_tells(&near)?;
        parses_or_tells(&format!("a {near}"))?;
        parses_or_tells(&format!("a x@+{near}"))?;
    }

    #[test]
    fn an_item_with_one_wrong_character_is_an_item_or_an_error(
        text in any_line(),
        place in any::<prop::sample::Index>(),
        wrong in any::<char>(),
    ) {
        let mut letters: Vec<char> = text.chars().collect();
        let place = place.index(letters.len());
        letters[place] = wrong;
        parses_or_tells(&letters.into_iter().collect::<String>())?;
    }

    #[test]
    fn any_text_is_a_patch_or_errors(text in any::<String>(), near in "[{}\\[\\]\",:a-c ntrue]{0,60}") {
        for text in [&text, &near] {
            if let Err(errors) = Patch::parse(text, at(0)) {
                prop_assert!(!errors.is_empty());
            }
        }
    }

    #[test]
    fn any_order_of_additions_and_removals_in_one_edit_ends_alike(
        before in lines(8),
        shuffled in (lines(6), lines(3)).prop_flat_map(|(add, remove)| {
            let more = (Just(add.clone()).prop_shuffle(), Just(remove.clone()).prop_shuffle());
            (Just((add, remove)), more)
        }),
        finish in proptest::option::of(select(vec!["a", "b"])),
        fired in vec(0_usize..8, 0..4),
    ) {
        let mut start = managed(&before);
        for number in fired {
            let Some((item, _)) = start.items().nth(number) else { continue };
            let (of, word) = (item.life_cycle().to_string(), item.last().to_string());
            start.fire(&of, &word, at(1));
        }
        let ((add, mut remove), (add_too, mut remove_too)) = shuffled;
        remove.extend(before.iter().take(2).cloned());
        remove_too.splice(0..0, before.iter().take(2).rev().cloned());
        let finish: Vec<Name> = finish.iter().map(|it| Name::parse(it).unwrap()).collect();
        let outcome = |add: &[String], remove: &[String]| {
            let mut end = start.clone();
            let edit = Edit { add: items(add), remove: items(remove), finish: finish.clone(), replace: None };
            let taken = end.edit(&edit, at(1));
            end.settle(at(1));
            (taken, end)
        };
        prop_assert_eq!(outcome(&add, &remove), outcome(&add_too, &remove_too));
    }

    #[test]
    fn additions_of_one_commit_may_come_apart(before in lines(6), add in lines(6), cut in 0_usize..6) {
        let (start, mut whole) = (managed(&before), managed(&before));
        let mut fits = |line: &String| whole.edit(&Edit::adding(vec![item(line)]), at(1)).is_ok();
        let add: Vec<String> = add.into_iter().filter(|line| fits(line)).collect();
        let mut together = start.clone();
        prop_assert_eq!(together.edit(&Edit::adding(items(&add)), at(1)), Ok(()));
        prop_assert_eq!(&together, &whole);
        let (first, second) = add.split_at(cut.min(add.len()));
        for (one, other) in [(first, second), (second, first)] {
            let mut parts = start.clone();
            prop_assert_eq!(parts.edit(&Edit::adding(items(one)), at(1)), Ok(()));
            prop_assert_eq!(parts.edit(&Edit::adding(items(other)), at(1)), Ok(()));
            prop_assert_eq!(&parts, &whole);
        }
    }

    #[test]
    fn marks_fire_each_at_most_once_and_leave_none_that_is_due(
        lines in lines(20),
        marks in select(vec!["a", "ab", "abc"]),
        now in 0_u64..9,
    ) {
        let mut managed = managed(&lines);
        let is_mark = |of: &str, _: &str| marks.contains(of);
        let fired = managed.fire_marks(at(now), &is_mark);
        let mut once: Vec<_> = fired.iter().map(|it| (&it.life_cycle, &it.event)).collect();
        once.sort();
        once.dedup();
        prop_assert_eq!(once.len(), fired.len());
        let left = managed.due(at(now));
        prop_assert!(left.iter().all(|it| !marks.contains(it.life_cycle.as_str())), "{:?}", left);
        prop_assert_eq!(managed.fire_marks(at(now), &is_mark), vec![]);
    }

    #[test]
    fn next_at_is_the_first_moment_at_which_something_is_due(lines in lines(12)) {
        next_agrees(&managed(&lines))?;
    }

    #[test]
    fn life_cycles_of_a_cycle_stay_when_all_else_fires(lines in lines(12)) {
        let mut managed = managed(&lines);
        let cycles = managed.cycles();
        managed.fire_marks(Stamp::MAX, &|_, _| true);
        for name in cycles.iter().flatten() {
            let stays = managed.items().any(|(item, held)| {
                item.life_cycle().as_str() == name && held.fired.is_none()
            });
            prop_assert!(stays, "{} of {:?} is gone", name, cycles);
        }
        prop_assert_eq!(managed.cycles(), cycles);
    }

    #[test]
    fn every_story_goes_as_the_naive_rules_say(steps in vec(step(), 1..40)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.take(step)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_text_of_a_mebibyte_is_told_at_once(piece in any::<String>(), of in "[a-z]{0,3}") {
        let piece = format!("{piece}@");
        let mut text = format!("{of} {}", piece.repeat((1 << 20) / piece.len()));
        parses_or_tells(&text)?;
        text.insert(0, '{');
        prop_assert!(Patch::parse(&text, at(0)).is_err());
    }
}
