//! Whether what clients were told can have been so, and whether what ran was allowed to: the checks of
//! the simulator on what real processes did.

use super::book::{Recorded, Shown, Told, Wish};
use super::executions::{Execution, key_of};
use rota_model::Stamp;
use rota_sim::history::{Bounds, History, Observation, Seen};
use rota_sim::invariant::one_instance;
use rota_sim::ledger::{EndCause, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// How long an ended session is kept at least, where nothing else is said.
const TOMBSTONE_US: u64 = 600_000_000;

/// Checks a run: every id's history is linearizable, each life was created by one open and has one
/// address, no two executions of an id overlap, and nothing ended that nobody closed.
///
/// # Errors
/// What cannot be.
pub fn judge(calls: &[Recorded], executions: &[Execution]) -> Result<(), String> {
    let instances: Vec<Instance> = executions.iter().map(|it| it.instance.clone()).collect();
    one_instance::check(&instances).map_err(|it| it.text)?;
    let mut by_id: BTreeMap<&str, Vec<&Recorded>> = BTreeMap::new();
    for call in calls {
        by_id.entry(&call.id).or_default().push(call);
    }
    let mut by_key: BTreeMap<_, Vec<&Execution>> = BTreeMap::new();
    for it in executions {
        by_key.entry(&it.instance.key).or_default().push(it);
    }
    for (id, calls) in by_id {
        let of_id = by_key.get(&key_of(id)).map_or(&[][..], Vec::as_slice);
        of_one(&calls, of_id).map_err(|text| format!("{id}: {text}"))?;
    }
    let by_itself =
        |it: &&Execution| it.instance.to.is_some_and(|(_, why)| why != EndCause::Destroyed);
    match executions.iter().find(by_itself) {
        Some(it) => Err(format!("it ended, and nobody closed it: {:?}", it.instance)),
        None => Ok(()),
    }
}

fn of_one(calls: &[&Recorded], executions: &[&Execution]) -> Result<(), String> {
    one_address_each(calls)?;
    overtaken_by_some(calls)?;
    let observations: Vec<Observation> = calls.iter().filter_map(|it| observation(it)).collect();
    let seen: BTreeSet<Stamp> = observations.iter().filter_map(|it| it.seen.life()).collect();
    let mut lives = BTreeMap::new();
    for life in seen {
        lives.insert(life, bounds(life, calls, executions)?);
    }
    History { observations, lives }.check(TOMBSTONE_US)
}

fn shown(call: &Recorded) -> Option<&Shown> {
    match &call.end {
        Some((_, Told::Shown(shown))) => Some(shown),
        Some((_, Told::Absent | Told::Overtaken | Told::Unchanged(_) | Told::Unknown(_)))
        | None => None,
    }
}

fn stamp(life: u64) -> Stamp {
    Stamp::try_from(life).expect("a life is a stamp")
}

/// What a call saw. Opens and closes that succeed tell what they brought about, or found.
fn observation(call: &Recorded) -> Option<Observation> {
    let (came_us, told) = call.end.as_ref()?;
    let seen = match told {
        Told::Overtaken | Told::Unchanged(_) | Told::Unknown(_) => return None,
        Told::Absent => Seen::Absent,
        Told::Shown(shown) => Seen::of(stamp(shown.life), shown.state),
    };
    Some(Observation { sent_us: call.sent_us, came_us: *came_us, seen })
}

/// A life stays where it began to run.
fn one_address_each(calls: &[&Recorded]) -> Result<(), String> {
    let mut addresses: BTreeMap<u64, &str> = BTreeMap::new();
    for shown in calls.iter().filter_map(|it| shown(it)).filter(|it| !it.address.is_empty()) {
        let first = addresses.entry(shown.life).or_insert(&shown.address);
        if *first != shown.address {
            return Err(format!("life {} is at {first} and at {}", shown.life, shown.address));
        }
    }
    Ok(())
}

/// An open that says that a close overtook it names no life. There must have been one.
fn overtaken_by_some(calls: &[&Recorded]) -> Result<(), String> {
    let overlaps = |close: &Recorded, open: &Recorded, came_us: u64| {
        let is_close = matches!(close.wish, Wish::Close(_)) && close.sent_us < came_us;
        let ended = close.end.as_ref().is_none_or(|(ended_us, _)| *ended_us > open.sent_us);
        is_close && (ended || may_have_happened(close))
    };
    for open in calls {
        let Some((came_us, Told::Overtaken)) = open.end else { continue };
        if !calls.iter().any(|close| overlaps(close, open, came_us)) {
            return Err(format!("no close could overtake {open:?}"));
        }
    }
    Ok(())
}

/// Whether it may have done what it wanted at any time since, although nobody was told so.
fn may_have_happened(call: &Recorded) -> bool {
    match &call.end {
        None | Some((_, Told::Overtaken | Told::Unknown(_))) => true,
        Some((_, Told::Shown(_) | Told::Absent | Told::Unchanged(_))) => false,
    }
}

fn bounds(life: Stamp, calls: &[&Recorded], executions: &[&Execution]) -> Result<Bounds, String> {
    let is_its = |it: &Shown| stamp(it.life) == life;
    let creates = |it: &&&Recorded| shown(it).is_some_and(|it| it.created && is_its(it));
    let creators: Vec<u64> = calls.iter().filter(creates).map(|it| it.sent_us).collect();
    if creators.len() > 1 {
        return Err(format!("life {life} was created by {} opens", creators.len()));
    }
    let unknown = calls.iter().filter(|it| it.wish == Wish::Open && may_have_happened(it));
    let opening_us = creators.first().copied().or_else(|| unknown.map(|it| it.sent_us).min());
    let ran: Vec<&&Execution> = executions.iter().filter(|it| it.life == life).collect();
    let closes = calls.iter().filter(|it| match it.wish {
        Wish::Close(named) => {
            named.is_none_or(|named| stamp(named) == life)
                && (may_have_happened(it) || shown(it).is_some_and(is_its))
        }
        Wish::Open | Wish::Get => false,
    });
    Ok(Bounds {
        // Nobody asked for it, or it never ran: no moment fits.
        opening_us: opening_us.unwrap_or(u64::MAX),
        live_us: ran.iter().map(|it| it.instance.from_us).min().unwrap_or(u64::MAX),
        ended_us: closes.map(|it| it.sent_us).min(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::SessionState::{self, Closed, Ready};
    use rota_model::{BootId, Epoch, LogPos, NodeId, Seq, Token};

    const LIFE: u64 = 261_121_152_849_820;

    fn call(wish: Wish, sent_us: u64, came_us: u64, told: Told) -> Recorded {
        Recorded { client: 0, id: "a".to_owned(), wish, sent_us, end: Some((came_us, told)) }
    }

    fn told(state: SessionState, created: bool) -> Told {
        let address = if state == Ready { "here:1" } else { "" };
        Told::Shown(Shown { life: LIFE, state, address: address.to_owned(), created })
    }

    fn ran(seq: u64, from_us: u64, to_us: Option<u64>) -> Execution {
        let instance = Instance {
            key: key_of("a"),
            node: NodeId::parse("n1").unwrap(),
            boot: BootId(1),
            token: Token(LogPos::new(Epoch(1), Seq(seq))),
            address: String::new(),
            from_us,
            change: 0,
            to: to_us.map(|it| (it, EndCause::Destroyed)),
        };
        Execution { instance, life: stamp(LIFE) }
    }

    fn error(calls: &[Recorded], executions: &[Execution]) -> String {
        judge(calls, executions).unwrap_err()
    }

    #[test]
    fn a_session_that_is_opened_read_and_closed_is_fine() {
        let calls = [
            call(Wish::Open, 0, 20, told(Ready, true)),
            call(Wish::Get, 30, 40, told(Ready, false)),
            call(Wish::Close(None), 50, 60, told(Closed, false)),
            call(Wish::Get, 70, 80, told(Closed, false)),
        ];
        assert_eq!(judge(&calls, &[ran(1, 10, Some(55))]), Ok(()));
    }

    #[test]
    fn an_acknowledged_session_that_is_missing_or_ends_unasked_is_found() {
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let runs = [ran(1, 10, None)];
        for after in [Told::Absent, told(Closed, false)] {
            let text = error(&[open.clone(), call(Wish::Get, 30, 40, after)], &runs);
            assert!(text.contains("no moment fits"), "{text}");
        }
    }

    #[test]
    fn a_close_of_unknown_outcome_may_happen_at_any_time_and_one_that_changed_nothing_never() {
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let late = call(Wish::Get, 900, 950, told(Closed, false));
        let why = || "TIMED_OUT".to_owned();
        let unknown = call(Wish::Close(None), 30, 40, Told::Unknown(why()));
        let runs = [ran(1, 10, Some(800))];
        assert_eq!(judge(&[open.clone(), unknown, late.clone()], &runs), Ok(()));
        let unchanged = call(Wish::Close(None), 30, 40, Told::Unchanged(why()));
        assert!(error(&[open, unchanged, late], &runs).contains("no moment fits"));
    }

    #[test]
    fn a_life_that_nobody_or_two_created_or_that_never_ran_is_found() {
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let runs = [ran(1, 10, None)];
        let text = error(&[open.clone(), open.clone()], &runs);
        assert!(text.contains("created by 2 opens"), "{text}");
        assert!(error(&[call(Wish::Get, 0, 20, told(Ready, false))], &runs).contains("no moment"));
        assert!(error(&[open], &[]).contains("no moment fits"));
    }

    #[test]
    fn two_executions_at_once_and_one_that_ends_by_itself_are_found() {
        let text = error(&[], &[ran(1, 10, Some(30)), ran(2, 20, None)]);
        assert!(text.contains("two instances at once"), "{text}");
        let mut ended = ran(1, 10, None);
        ended.instance.to = Some((40, EndCause::Lease));
        assert!(error(&[], &[ended]).contains("nobody closed it"));
    }

    #[test]
    fn an_open_that_is_said_to_be_overtaken_needs_a_close_that_did_it() {
        let open = call(Wish::Open, 10, 20, Told::Overtaken);
        let early = call(Wish::Close(None), 0, 5, Told::Absent);
        let text = error(&[open.clone(), early.clone()], &[]);
        assert!(text.contains("no close could overtake"), "{text}");
        let meanwhile = call(Wish::Close(None), 15, 25, told(Closed, false));
        assert_eq!(judge(&[open.clone(), early, meanwhile], &[]), Ok(()));
        let unknown = call(Wish::Close(None), 0, 5, Told::Unknown("TIMED_OUT".to_owned()));
        assert_eq!(judge(&[open, unknown], &[]), Ok(()));
    }

    #[test]
    fn a_life_at_two_addresses_is_found() {
        let mut moved = call(Wish::Get, 30, 40, told(Ready, false));
        if let Some((_, Told::Shown(shown))) = &mut moved.end {
            "there:2".clone_into(&mut shown.address);
        }
        let calls = [call(Wish::Open, 0, 20, told(Ready, true)), moved];
        let text = error(&calls, &[ran(1, 10, None)]);
        assert!(text.contains("here:1 and at there:2"), "{text}");
    }
}
