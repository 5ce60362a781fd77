//! Whether what clients were told can have been so, and whether what ran was allowed to: the checks of
//! the simulator on what real processes did.

use super::book::{Recorded, Shown, Told, Wish};
use super::executions::{Execution, key_of};
use super::outage::Outage;
use rota_client::v1::Reason;
use rota_model::Stamp;
use rota_sim::history::{Bounds, History, Observation, Seen};
use rota_sim::invariant::one_instance;
use rota_sim::ledger::{EndCause, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// How long an ended session is kept at least, where nothing else is said.
const TOMBSTONE_US: u64 = 600_000_000;
/// How many calls of an id an error shows at most, the last ones.
const ASKED: usize = 200;

/// Checks a run: every id's history is linearizable, each life was created by one open and has one
/// address, no two executions of an id overlap, and nothing ended that nobody closed; or its node was lost
/// in an outage, and whoever saw the end was told so.
///
/// # Errors
/// What cannot be.
pub fn judge(
    calls: &[Recorded],
    executions: &[Execution],
    outages: &[Outage],
) -> Result<(), String> {
    let mut executions = executions.to_vec();
    executions.iter_mut().for_each(|it| outages.iter().for_each(|outage| outage.correct(it)));
    let instances: Vec<Instance> = executions.iter().map(|it| it.instance.clone()).collect();
    one_instance::check(&instances).map_err(|it| it.text)?;
    let mut by_id: BTreeMap<&str, Vec<&Recorded>> = BTreeMap::new();
    for call in calls {
        by_id.entry(&call.id).or_default().push(call);
    }
    let mut by_key: BTreeMap<_, Vec<&Execution>> = BTreeMap::new();
    for it in &executions {
        by_key.entry(&it.instance.key).or_default().push(it);
    }
    for (id, calls) in by_id {
        let of_id = by_key.get(&key_of(id)).map_or(&[][..], Vec::as_slice);
        of_one(&calls, of_id, outages)
            .map_err(|text| format!("{id}: {text}; it was asked for so: {}", asked(&calls)))?;
    }
    let by_itself = |run: &&Execution| {
        run.instance.to.is_some_and(|(_, why)| why != EndCause::Destroyed)
            && !outages.iter().any(|outage| outage.explains(run))
            && !was_closed_before_it_started(run, calls)
    };
    match executions.iter().find(by_itself) {
        Some(it) => Err(format!("it ended, and nobody closed it: {:?}", it.instance)),
        None => Ok(()),
    }
}

/// The calls of an id in their order, a line each, for whoever has only the test's output.
fn asked(calls: &[&Recorded]) -> String {
    let last = calls.len().saturating_sub(ASKED);
    calls[last..].iter().map(|it| format!("\n  {it:?}")).collect()
}

fn of_one(
    calls: &[&Recorded],
    executions: &[&Execution],
    outages: &[Outage],
) -> Result<(), String> {
    one_address_each(calls)?;
    overtaken_by_some(calls)?;
    let observations: Vec<Observation> = calls.iter().filter_map(|it| observation(it)).collect();
    let seen: BTreeSet<Stamp> = observations.iter().filter_map(|it| it.seen.life()).collect();
    let mut lives = BTreeMap::new();
    for life in seen {
        lives.insert(life, bounds(life, calls, executions, outages)?);
    }
    History { observations, lives }.check(TOMBSTONE_US)?;
    lost_with_their_nodes(calls, executions, outages)
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

/// Whether an open may have begun that life, which was lost with its node before it was told, and then the
/// one that it tells.
fn may_have_lost(open: &Recorded, life: Stamp, ran: &[&&Execution], outages: &[Outage]) -> bool {
    let Some((came_us, Told::Shown(shown))) = &open.end else { return false };
    let lost = |outage: &Outage| {
        let meanwhile = outage.from_us < *came_us && open.sent_us < outage.until_us;
        meanwhile && (ran.is_empty() || ran.iter().any(|run| outage.befell(run)))
    };
    shown.created && stamp(shown.life) > life && outages.iter().any(lost)
}

/// Whether an open may have begun that life, which a close ended before it was told, and then found or began
/// the one that it tells, or was refused: a refusal that says that nothing changed promises that no life of
/// the open is left, not that there was none.
fn may_have_been_overtaken(open: &Recorded, life: Stamp, calls: &[&Recorded]) -> bool {
    let came_us = match &open.end {
        Some((came_us, Told::Shown(shown))) if stamp(shown.life) > life => *came_us,
        Some((came_us, Told::Unchanged(_))) => *came_us,
        Some((_, Told::Shown(_) | Told::Absent | Told::Overtaken | Told::Unknown(_))) | None => {
            return false;
        }
    };
    closes(life, calls).any(|close| close.sent_us < came_us)
}

/// Whether an open may have begun that life, which no node took, and then the one that it tells.
fn may_have_begun_anew(
    open: &Recorded,
    life: Stamp,
    ran: &[&&Execution],
    calls: &[&Recorded],
) -> bool {
    let Some((_, Told::Shown(told))) = &open.end else { return false };
    let no_capacity = Reason::NoCapacity.as_str_name();
    let is_untaken = |session: &Shown| match Seen::of(life, session.state) {
        Seen::Opening(_) => true,
        Seen::Absent | Seen::Begun(_) | Seen::Live(_) | Seen::Ended(_) => {
            session.reason == no_capacity
        }
    };
    let mut of_life = calls.iter().filter_map(|it| shown(it)).filter(|it| stamp(it.life) == life);
    stamp(told.life) > life && ran.is_empty() && of_life.all(is_untaken)
}

/// Whether it ended with its node, or since nobody renewed that one's lease.
fn is_lost(shown: &Shown) -> bool {
    let lost = [Reason::NodeLost, Reason::LeaseNotRenewed, Reason::Reopening];
    lost.iter().any(|it| shown.reason == it.as_str_name())
}

/// Whoever is told that a session's node was lost, or that its lease ran out, had it on a node that was, and either it ran there until
/// then or the news of its close was lost with the node; and what ended for another reason was closed by
/// somebody.
fn lost_with_their_nodes(
    calls: &[&Recorded],
    executions: &[&Execution],
    outages: &[Outage],
) -> Result<(), String> {
    for (call, came_us, shown) in calls.iter().filter_map(|it| ended(it)) {
        let life = stamp(shown.life);
        let is_lost = is_lost(shown);
        let ran: Vec<&&Execution> = executions.iter().filter(|it| it.life == life).collect();
        let closed = closes(life, calls).any(|it| it.sent_us < came_us);
        let told = |it: &Outage, run: &Execution| it.befell(run) || (closed && it.followed(run));
        let befell = |it: &Outage| ran.is_empty() || ran.iter().any(|run| told(it, run));
        let excuses = |it: &Outage| !it.is_adopted && it.from_us < came_us && befell(it);
        if is_lost && !outages.iter().any(excuses) {
            return Err(format!("no node was lost, and it is said so: {call:?}"));
        }
        if !is_lost && !ran.is_empty() && !closed {
            return Err(format!("nobody closed it, and no node was lost: {call:?}"));
        }
    }
    Ok(())
}

/// A call that was shown a life that had ended, and when it was.
fn ended<'a>(call: &'a &Recorded) -> Option<(&'a Recorded, u64, &'a Shown)> {
    let (came_us, _) = call.end.as_ref()?;
    let shown = shown(call).filter(|it| it.state.is_ended())?;
    Some((call, *came_us, shown))
}

/// The closes that may have ended a life.
fn closes<'a>(life: Stamp, calls: &'a [&Recorded]) -> impl Iterator<Item = &'a &'a Recorded> {
    calls.iter().filter(move |call| match call.wish {
        Wish::Close(named) => {
            named.is_none_or(|named| stamp(named) == life)
                && (may_have_happened(call) || shown(call).is_some_and(|it| stamp(it.life) == life))
        }
        Wish::Open | Wish::Get => false,
    })
}

/// A program that was closed while its node was about to start it.
fn was_closed_before_it_started(it: &Execution, calls: &[Recorded]) -> bool {
    let Some((to_us, EndCause::StartTimeout)) = it.instance.to else { return false };
    let of_id: Vec<&Recorded> =
        calls.iter().filter(|call| key_of(&call.id) == it.instance.key).collect();
    closes(it.life, &of_id).any(|close| close.sent_us < to_us)
}

/// Whether it may have done what it wanted at any time since, although nobody was told so.
fn may_have_happened(call: &Recorded) -> bool {
    match &call.end {
        None | Some((_, Told::Overtaken | Told::Unknown(_))) => true,
        Some((_, Told::Shown(_) | Told::Absent | Told::Unchanged(_))) => false,
    }
}

fn bounds(
    life: Stamp,
    calls: &[&Recorded],
    executions: &[&Execution],
    outages: &[Outage],
) -> Result<Bounds, String> {
    let is_its = |it: &Shown| stamp(it.life) == life;
    let creates = |it: &&&Recorded| shown(it).is_some_and(|it| it.created && is_its(it));
    let creators: Vec<u64> = calls.iter().filter(creates).map(|it| it.sent_us).collect();
    if creators.len() > 1 {
        return Err(format!("life {life} was created by {} opens", creators.len()));
    }
    let ran: Vec<&&Execution> = executions.iter().filter(|it| it.life == life).collect();
    let no_capacity = Reason::NoCapacity.as_str_name();
    let unplaced = ran.is_empty()
        && (calls
            .iter()
            .filter_map(|it| shown(it))
            .any(|it| is_its(it) && it.reason == no_capacity)
            || calls.iter().any(|it| may_have_begun_anew(it, life, &ran, calls)));
    let unknown = calls.iter().filter(|call| {
        let begun = may_have_happened(call)
            || may_have_lost(call, life, &ran, outages)
            || may_have_been_overtaken(call, life, calls)
            || may_have_begun_anew(call, life, &ran, calls)
            || (unplaced && matches!(call.end, Some((_, Told::Unchanged(_)))));
        call.wish == Wish::Open && begun
    });
    let opening_us = creators.first().copied().or_else(|| unknown.map(|it| it.sent_us).min());
    let lost = outages.iter().filter(|outage| ran.iter().any(|it| outage.befell(it)));
    let closed = closes(life, calls).map(|it| it.sent_us);
    Ok(Bounds {
        // Nobody asked for it, or it never ran: no moment fits.
        opening_us: opening_us.unwrap_or(u64::MAX),
        live_us: ran.iter().map(|it| it.instance.from_us).min().unwrap_or(u64::MAX),
        ended_us: closed.chain(lost.map(|it| it.from_us)).min(),
        unplaced,
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
        let reason = if state == Closed { Reason::ClosedByClient } else { Reason::Unspecified };
        shown_as(state, reason, address, created)
    }

    fn shown_as(state: SessionState, reason: Reason, address: &str, created: bool) -> Told {
        let (reason, address) = (reason.as_str_name().to_owned(), address.to_owned());
        Told::Shown(Shown { life: LIFE, state, reason, address, created })
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

    fn judged(calls: &[Recorded], executions: &[Execution]) -> Result<(), String> {
        judge(calls, executions, &[])
    }

    fn error(calls: &[Recorded], executions: &[Execution]) -> String {
        judged(calls, executions).unwrap_err()
    }

    #[test]
    fn a_session_that_is_opened_read_and_closed_is_fine() {
        let calls = [
            call(Wish::Open, 0, 20, told(Ready, true)),
            call(Wish::Get, 30, 40, told(Ready, false)),
            call(Wish::Close(None), 50, 60, told(Closed, false)),
            call(Wish::Get, 70, 80, told(Closed, false)),
        ];
        assert_eq!(judged(&calls, &[ran(1, 10, Some(55))]), Ok(()));
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

    fn outage(still_us: u64, is_empty: bool) -> Outage {
        let (node, is_adopted) = ("n1".to_owned(), false);
        Outage { node, from_us: 25, still_us, is_empty, until_us: 200, is_adopted }
    }

    fn ended_as(seq: u64, from_us: u64, to_us: u64, why: EndCause) -> Execution {
        let mut it = ran(seq, from_us, None);
        it.instance.to = Some((to_us, why));
        it
    }

    #[test]
    fn nothing_is_lost_with_an_agent_whose_next_one_goes_on() {
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let lost = shown_as(SessionState::Lost, Reason::NodeLost, "", false);
        let calls = [open, call(Wish::Get, 100, 110, lost)];
        let runs = [ended_as(1, 10, 40, EndCause::BootDied)];
        let killed = outage(30, false);
        assert_eq!(judge(&calls, &runs, std::slice::from_ref(&killed)), Ok(()));
        let adopted = [Outage { is_adopted: true, ..killed }];
        assert!(judge(&calls, &runs, &adopted).is_err());
    }

    #[test]
    fn what_is_lost_with_its_node_ends_in_an_outage_of_that_node_and_never_otherwise() {
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let lost = shown_as(SessionState::Lost, Reason::NodeLost, "", false);
        let read = call(Wish::Get, 50, 60, lost);
        let calls = [open.clone(), read.clone()];
        let runs = [ended_as(1, 10, 90, EndCause::Lease)];
        let of = |outages: &[Outage]| judge(&calls, &runs, outages);
        assert_eq!(of(&[outage(30, false)]), Ok(()));
        let elsewhere = Outage { node: "n2".to_owned(), ..outage(30, false) };
        let later = Outage { from_us: 70, ..outage(75, false) };
        let over = Outage { until_us: 80, ..outage(30, false) };
        for other in [vec![], vec![elsewhere], vec![later]] {
            assert!(of(&other).unwrap_err().contains("no moment fits"));
        }
        assert!(of(&[over]).unwrap_err().contains("nobody closed it"));
        let by_itself = [ended_as(1, 10, 90, EndCause::Own)];
        let text = judge(&calls, &by_itself, &[outage(30, false)]).unwrap_err();
        assert!(text.contains("nobody closed it"), "{text}");
        for state in [Closed, SessionState::Failed] {
            let other = shown_as(state, Reason::Exited, "", false);
            let calls = [open.clone(), call(Wish::Get, 50, 60, other)];
            let text = judge(&calls, &runs, &[outage(30, false)]).unwrap_err();
            assert!(text.contains("and no node was lost"), "{text}");
        }
    }

    #[test]
    fn a_start_that_an_agent_did_not_get_to_order_is_over_when_nothing_of_its_node_runs() {
        let calls = [call(Wish::Open, 0, 120, told(Ready, true))];
        let first =
            Execution { life: stamp(LIFE - 1), ..ended_as(1, 20, 110, EndCause::StartTimeout) };
        let runs = [first, ran(2, 80, None)];
        assert_eq!(judge(&calls, &runs, &[outage(30, true)]), Ok(()));
        for other in [vec![], vec![outage(30, false)], vec![outage(90, true)]] {
            let text = judge(&calls, &runs, &other).unwrap_err();
            assert!(text.contains("two instances at once"), "{text}");
        }
    }

    #[test]
    fn the_news_of_a_close_may_be_lost_with_the_node_and_only_then() {
        let close = shown_as(Closed, Reason::NodeLost, "", false);
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let runs = [ran(1, 10, Some(23))];
        let closed = [open.clone(), call(Wish::Close(None), 21, 60, close.clone())];
        assert_eq!(judge(&closed, &runs, &[outage(30, false)]), Ok(()));
        assert!(error(&closed, &runs).contains("no node was lost"));
        let read = [open, call(Wish::Get, 21, 60, close)];
        let text = judge(&read, &runs, &[outage(30, false)]).unwrap_err();
        assert!(text.contains("no moment fits"), "{text}");
    }

    #[test]
    fn an_open_may_begin_a_life_that_is_lost_with_its_node_before_the_one_that_it_tells() {
        let first = |state, reason| {
            let mut told = shown_as(state, reason, "", false);
            if let Told::Shown(shown) = &mut told {
                shown.life = LIFE - 1;
            }
            told
        };
        let lost = first(SessionState::Lost, Reason::NodeLost);
        let open = call(Wish::Open, 10, 100, told(Ready, true));
        let runs = [ran(1, 60, None)];
        for seen in [first(SessionState::Pending, Reason::Unspecified), lost.clone()] {
            let calls = [call(Wish::Get, 40, 50, seen), open.clone()];
            assert_eq!(judge(&calls, &runs, &[outage(30, false)]), Ok(()));
        }
        let calls = [call(Wish::Get, 40, 50, lost.clone()), open.clone()];
        assert!(error(&calls, &runs).contains("no moment fits"));
        let later = Outage { from_us: 120, ..outage(130, false) };
        assert!(judge(&calls, &runs, &[later]).unwrap_err().contains("no moment fits"));
        let early = [call(Wish::Get, 1, 5, lost), open];
        let outages = [Outage { from_us: 0, ..outage(2, false) }];
        assert!(judge(&early, &runs, &outages).unwrap_err().contains("no moment fits"));
    }

    #[test]
    fn an_open_may_have_begun_a_life_that_no_node_took_before_the_one_that_it_tells() {
        let first = |state, reason| {
            let mut told = shown_as(state, reason, "", false);
            if let Told::Shown(shown) = &mut told {
                shown.life = LIFE - 1;
            }
            told
        };
        let open = call(Wish::Open, 10, 100, told(Ready, true));
        let runs = [ran(1, 60, None)];
        let untaken = first(SessionState::Failed, Reason::NoCapacity);
        for seen in [first(SessionState::Pending, Reason::Unspecified), untaken.clone()] {
            let calls = [call(Wish::Get, 40, 50, seen), open.clone()];
            assert_eq!(judged(&calls, &runs), Ok(()));
        }
        // Another end of a life is told to the open that began it, and no open begins a life before it is sent.
        let failed = first(SessionState::Failed, Reason::StartTimeout);
        let calls = [call(Wish::Get, 40, 50, failed), open.clone()];
        assert!(error(&calls, &runs).contains("no moment fits"));
        let early = [call(Wish::Get, 1, 5, untaken), open];
        assert!(error(&early, &runs).contains("no moment fits"));
    }

    #[test]
    fn an_open_that_is_refused_may_have_begun_a_life_that_a_close_ended() {
        let refused =
            |came_us| call(Wish::Open, 10, came_us, Told::Unchanged("CLOSING".to_owned()));
        let close = call(Wish::Close(None), 40, 60, told(Closed, false));
        let read = call(Wish::Get, 25, 35, told(Ready, false));
        let runs = [ran(1, 20, Some(55))];
        let of = |calls: &[Recorded]| judged(calls, &runs);
        assert_eq!(of(&[refused(50), read.clone(), close.clone()]), Ok(()));
        for calls in [
            [refused(38), read.clone(), close],
            [refused(50), read.clone(), call(Wish::Get, 40, 60, told(Closed, false))],
        ] {
            assert!(of(&calls).unwrap_err().contains("no moment fits"));
        }
    }

    #[test]
    fn an_agent_that_stood_still_may_log_late_that_it_is_empty_and_one_that_did_not_may_not() {
        let again = ran(2, 60, None);
        let late = ended_as(1, 10, 90, EndCause::Lease);
        let of = |outage: Outage| judge(&[], &[late.clone(), again.clone()], &[outage]);
        assert_eq!(of(outage(50, true)), Ok(()));
        assert!(of(outage(50, false)).unwrap_err().contains("two instances at once"));
        assert!(of(outage(70, true)).unwrap_err().contains("two instances at once"));
        let closed = ended_as(1, 10, 90, EndCause::Destroyed);
        let of = |outage: Outage| judge(&[], &[closed.clone(), again.clone()], &[outage]);
        assert_eq!(of(outage(50, true)), Ok(()));
        let over = Outage { until_us: 80, ..outage(50, true) };
        for other in [outage(50, false), outage(70, true), over] {
            assert!(of(other).unwrap_err().contains("two instances at once"));
        }
        // It never said that it was over.
        let runs = [ran(1, 10, None), again.clone()];
        let text = judge(&[], &runs, &[outage(50, true)]).unwrap_err();
        assert!(text.contains("two instances at once"), "{text}");
    }

    #[test]
    fn a_close_of_unknown_outcome_may_happen_at_any_time_and_one_that_changed_nothing_never() {
        let open = call(Wish::Open, 0, 20, told(Ready, true));
        let late = call(Wish::Get, 900, 950, told(Closed, false));
        let why = || "TIMED_OUT".to_owned();
        let unknown = call(Wish::Close(None), 30, 40, Told::Unknown(why()));
        let runs = [ran(1, 10, Some(800))];
        assert_eq!(judged(&[open.clone(), unknown, late.clone()], &runs), Ok(()));
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
    fn a_program_that_is_not_started_was_closed_before() {
        let runs = [ended_as(1, 10, 30, EndCause::StartTimeout)];
        let open = call(Wish::Open, 5, 45, Told::Overtaken);
        let close = |at_us| [open.clone(), call(Wish::Close(None), at_us, 50, told(Closed, false))];
        assert_eq!(judged(&close(20), &runs), Ok(()));
        assert!(error(&close(40), &runs).contains("nobody closed it"));
        assert!(error(&close(20), &[ended_as(1, 10, 30, EndCause::Own)]).contains("nobody closed"));
    }

    #[test]
    fn an_open_that_is_said_to_be_overtaken_needs_a_close_that_did_it() {
        let open = call(Wish::Open, 10, 20, Told::Overtaken);
        let early = call(Wish::Close(None), 0, 5, Told::Absent);
        let text = error(&[open.clone(), early.clone()], &[]);
        assert!(text.contains("no close could overtake"), "{text}");
        let meanwhile = call(Wish::Close(None), 15, 25, told(Closed, false));
        assert_eq!(judged(&[open.clone(), early, meanwhile], &[]), Ok(()));
        let unknown = call(Wish::Close(None), 0, 5, Told::Unknown("TIMED_OUT".to_owned()));
        assert_eq!(judged(&[open, unknown], &[]), Ok(()));
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
