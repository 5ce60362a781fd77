//! What operators settle: an event whose action failed is skipped, or tried at once. Both may be said again.

use rota_lifecycle::Managed;
use rota_messages::lives::{Event, UpdateOp};
use rota_model::{FieldError, Stamp};

/// Skips and retries what a change names. Gives what cannot be, with what could.
pub(crate) fn settle(managed: &mut Managed, op: &UpdateOp, now: Stamp) -> Vec<FieldError> {
    let mut mistakes = Vec::new();
    for (at, event) in op.skip.iter().enumerate() {
        if let Err(why) = skip(managed, event, now) {
            mistakes.push(FieldError::new(format!("skip[{at}]"), why));
        }
    }
    for (at, event) in op.retry.iter().enumerate() {
        if let Err(why) = retry(managed, event, now) {
            mistakes.push(FieldError::new(format!("retry[{at}]"), why));
        }
    }
    mistakes
}

fn skip(managed: &mut Managed, event: &Event, now: Stamp) -> Result<(), String> {
    let Event { life_cycle, word } = event;
    match managed.fired(life_cycle, word) {
        Some(fired) if fired.skipped => return Ok(()),
        Some(_) => return Err(format!("{life_cycle} {word} has fired: nothing is left to skip")),
        None => {}
    }
    if has_failed(managed, event) && managed.skip(life_cycle, word, now) {
        return Ok(());
    }
    Err(unsettled(managed, event))
}

fn retry(managed: &mut Managed, event: &Event, now: Stamp) -> Result<(), String> {
    let Event { life_cycle, word } = event;
    if managed.fired(life_cycle, word).is_some() || managed.retry(life_cycle, word) {
        return Ok(());
    }
    // It is tried already.
    if managed.may_run(life_cycle, word, now) {
        return Ok(());
    }
    Err(unsettled(managed, event))
}

fn has_failed(managed: &Managed, Event { life_cycle, word }: &Event) -> bool {
    managed.held(life_cycle, word).is_some_and(|it| it.failed.is_some())
}

/// Why an event is neither skipped nor retried, and which ones can be.
fn unsettled(managed: &Managed, Event { life_cycle, word }: &Event) -> String {
    let failed = managed.items().filter(|(_, it)| it.failed.is_some());
    let failed = failed.map(|(item, _)| format!("{} {}", item.life_cycle(), item.last()));
    let failed: Vec<String> = failed.collect();
    let could = match failed.as_slice() {
        [] => "no action of this session has failed".to_owned(),
        failed => format!("what failed is: {}", failed.join(", ")),
    };
    if managed.is_unfired(life_cycle, word) {
        let instead = "to have it not happen, remove its item";
        return format!("{life_cycle} {word} has not failed ({instead}); {could}");
    }
    let items = managed.items().filter(|(item, _)| item.life_cycle().as_str() == life_cycle);
    let words: Vec<String> = items.map(|(item, _)| item.last().to_string()).collect();
    let there = match words.as_slice() {
        [] => format!("there is no life cycle {life_cycle}"),
        words => format!("the words of {life_cycle} are: {}", words.join(", ")),
    };
    format!("{life_cycle} has no word {word:?} ({there}); {could}")
}
