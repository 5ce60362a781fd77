//! Whether another life follows one that ends, as its class says.

use crate::log::env::Env;
use rota_model::{Exit, Lifetime, Reason, SessionRecord, SessionSpec, SessionState, Stamp};
use std::sync::Arc;

/// What comes after a life that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// Another life, if its class says so.
    AsItsClassSays,
    /// Nothing: whether a client closed the session is not known.
    Nothing,
}

/// Whether another life follows this one, if it ends with its node.
pub(crate) fn reopens(env: &Env, record: &SessionRecord) -> bool {
    // Who waits for a life that never answered begins the next one, or is told.
    let goes_on = goes_on(record);
    let at = record.placement.as_ref().map(|it| &it.node);
    let SessionSpec { pool, class, .. } = &record.spec;
    let facts = at.and_then(|it| env.nodes.facts_there(it, pool, class));
    goes_on && facts.is_some_and(|it| it.reopens)
}

/// Whether somebody besides the one who opened it counts on this life.
fn goes_on(record: &SessionRecord) -> bool {
    record.state == SessionState::Ready || record.reason.is_some_and(|it| it.waits_as().is_some())
}

/// What becomes of a life whose node says that it ended, though no manager closed it. A node that no manager could
/// reach, and that stopped it for that, is lost to its clients like any other. A bad end may be followed by another
/// life.
pub(crate) fn end_unasked(
    env: &Env,
    record: &mut SessionRecord,
    reason: Reason,
    exit: Option<Exit>,
    detail: &str,
) {
    let state = record.state.ended_unasked(reason, exit.as_ref());
    let restart = (state == SessionState::Failed).then(|| restart(env, record, reason)).flatten();
    let restarts = record.lifetime.as_ref().map_or(0, |it| it.restarts);
    record.detail = match (&restart, restarts) {
        (None, 1) if state == SessionState::Failed => format!("{detail}; it was restarted once"),
        (None, 2..) if state == SessionState::Failed => {
            format!("{detail}; it was restarted {restarts} times in a row")
        }
        _ => detail.to_owned(),
    };
    (record.state, record.reason) = match &restart {
        _ if reason == Reason::LeaseNotRenewed && reopens(env, record) => {
            (SessionState::Lost, Some(Reason::Reopening))
        }
        Some(_) => (SessionState::Failed, Some(Reason::Restarting)),
        None => (state, Some(reason)),
    };
    if let Some(lifetime) = restart {
        record.lifetime = Some(Arc::new(lifetime));
    }
    record.exit = exit;
}

/// What holds for a life that ended badly, if another one follows.
fn restart(env: &Env, record: &SessionRecord, reason: Reason) -> Option<Lifetime> {
    let is_own = matches!(
        reason,
        Reason::Exited | Reason::Internal | Reason::StartTimeout | Reason::Unhealthy
    );
    let ran = record.placement.is_some() && goes_on(record);
    let lifetime = record.lifetime.as_deref().filter(|_| is_own && ran)?.clone();
    let rule = lifetime.restart?;
    let now = Stamp::from_epoch_ms(env.now.wall_ms).max(record.version);
    let lived_ms = now.to_epoch_ms().saturating_sub(record.life.to_epoch_ms());
    let is_steady = record.state == SessionState::Ready && lived_ms >= rule.steady_ms;
    let restarts = if is_steady { 0 } else { lifetime.restarts };
    let restart_at = Some(now.plus_ms(rule.delay_after(restarts)));
    let ended_as = Some(reason);
    (restarts < rule.times).then_some(Lifetime { restarts, restart_at, ended_as, ..lifetime })
}

/// Whether a session that waits to be opened again would be so as that. Who asks for no life takes the one it had.
pub(crate) fn waits_for(lost: &SessionRecord, spec: &SessionSpec) -> bool {
    let SessionSpec { class, pool, attributes, life } = &lost.spec;
    let is_same = (class, pool, attributes) == (&spec.class, &spec.pool, &spec.attributes);
    lost.is_reopened() && is_same && (spec.life.is_none() || spec.life == *life)
}

/// If it waits to be opened again, it does no more.
pub(crate) fn stays_lost(record: &mut SessionRecord) {
    if record.is_reopened() {
        let is_lost = record.state == SessionState::Lost;
        let ended_as = record.lifetime.as_ref().and_then(|it| it.ended_as);
        let ended_as = ended_as.unwrap_or(Reason::Exited);
        record.reason = Some(if is_lost { Reason::NodeLost } else { ended_as });
        if let Some(lifetime) = record.lifetime.take() {
            record.lifetime = Some(Arc::new(Lifetime { restart_at: None, ..(*lifetime).clone() }));
        }
    }
}
