//! Documents that another store has: what its refusals mean here.

use super::*;
use rota_docstore::{Effect, Held, Phase, Tolerance, Update, codes};
use rota_model::Retry;
use rota_storage::Unanswered;
use rota_storage::documents::Source;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Accounts are here; raw documents lie elsewhere.
struct AccountsOnly;

impl Territory for AccountsOnly {
    fn slot_of(&self, name: &DocName) -> SlotId {
        SlotId(u32::from(name.class() == "Raw"))
    }
    fn holds(&self, slot: SlotId) -> bool {
        slot == SlotId(0)
    }
}

fn beside(folder: &Path, source: Arc<dyn Source>) -> DocumentStore {
    let rules = Rules { territory: Arc::new(AccountsOnly), ..rules() };
    let setup = Setup { rules, source: Some(source), ..setup() };
    open_with(Arc::new(RealDisk), folder, setup).expect("opens")
}

fn far() -> DocName {
    DocName::new(&space(), "Raw", "0-far").expect("a good name")
}

/// Says whether the raw document exists; knows of it before it works, if `early`.
#[derive(Clone)]
struct Look {
    early: bool,
}

impl Operation for Look {
    const NAME: &'static str = "look";
    type Parameters = ();

    fn new((): ()) -> Result<Self, Exception> {
        Err(Exception::bug("NAME", "it is run by value only"))
    }

    fn documents(&self, _: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let wanted = Wanted::recent(far(), Tolerance::seconds(60));
        Ok(if self.early { vec![wanted] } else { Vec::new() })
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let exists = transaction.recent(&far(), Tolerance::seconds(60))?.exists();
        transaction.answer_json(&u64::from(exists))
    }
}

/// Fails a number of times before it asks the store.
struct Failing {
    store: DocumentStore,
    exception: Exception,
    left: AtomicU64,
    asked: AtomicU64,
}

impl Source for Failing {
    fn update(&self, name: &DocName, held: Option<&Held>) -> Result<Update, Exception> {
        self.asked.fetch_add(1, SeqCst);
        let fails = self.left.fetch_update(SeqCst, SeqCst, |it| it.checked_sub(1)).is_ok();
        if fails { Err(self.exception.clone()) } else { self.store.update(name, held) }
    }
}

fn looked(exception: Exception, times: u64, early: bool) -> (Result<Answer, Unanswered>, u64) {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (store, left) = (open(folders[0].path()), AtomicU64::new(times));
    let source = Arc::new(Failing { store, exception, left, asked: AtomicU64::new(0) });
    let store = beside(folders[1].path(), Arc::clone(&source) as Arc<dyn Source>);
    let result = store.run_this(Request::new(space(), "look"), Look { early });
    (result, source.asked.load(SeqCst))
}

#[test]
fn a_source_that_fails_unexpectedly_is_asked_again_and_at_most_three_times() {
    let gone = || Exception::unexpected("GONE", "it does not answer").at(Phase::Synchronisation);
    for early in [false, true] {
        let (answer, asked) = looked(gone(), 2, early);
        assert_eq!((number(&answer.expect("the third time")), asked), (0, 3));
        let (answer, asked) = looked(gone(), 3, early);
        let error = answer.expect_err("it fails three times");
        let details = error.exception().expect("an exception").details();
        assert_eq!((&*details.operation, details.attempts, asked), ("look", 3, 3));
    }
    let denied = Exception::unauthorised("KEY", "the key is wrong");
    let (answer, asked) = looked(denied, 1, false);
    let error = answer.expect_err("it is no use to ask again");
    assert_eq!(error.exception().expect("an exception").details().attempts, 1);
    assert_eq!(asked, 1);
}

#[test]
fn a_namespace_that_is_off_at_the_source_ends_the_operation_as_one_that_changed_nothing() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let source = Arc::new(open(folders[0].path()));
    let store = beside(folders[1].path(), Arc::clone(&source) as Arc<dyn Source>);
    let z = Namespace::parse("z").expect("a name");
    let off = |transaction: &mut Transaction<'_>| {
        let name = transaction.name("Space", "bank")?;
        let edited = transaction.current(&name)?;
        edited.ensure();
        let off = Some("Back at noon".to_owned());
        edited.put_one(&rota_docstore::Description { off, ..Default::default() })
    };
    source.change(&z, off).expect("it is switched off");
    // A plain read of it.
    let error = source.update_for(&far(), None).expect_err("it is off");
    let exception = error.exception().expect("an exception");
    assert_eq!((exception.code(), exception.phase()), (&codes::OFF, Phase::Before));
    assert_eq!(exception.phase().effect(), Effect::Nothing);
    assert_ne!(exception.retry(), Retry::Never);
    for (early, phase) in [(true, Phase::Before), (false, Phase::Work)] {
        let error = store.run_this(Request::new(space(), "look"), Look { early });
        let error = error.expect_err("it is off");
        let exception = error.exception().expect("an exception");
        assert_eq!((exception.code(), exception.phase()), (&codes::OFF, phase));
        assert_eq!(exception.phase().effect(), Effect::Nothing);
        let details = exception.details();
        assert_eq!((&*details.operation, details.attempts), ("look", 1));
    }
}
