//! Which tasks an administrator means: for lists, and for orders to many tasks at once.

use crate::task::{Task, TaskState};
use rota_model::{Namespace, Stamp};
use std::collections::BTreeSet;

/// A selection. A task is selected if everything holds that is set; an empty selection takes all.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Filter {
    /// Of this namespace.
    pub ns: Option<Namespace>,
    /// With this operation.
    pub op_name: Option<String>,
    /// Whose `info` begins so.
    pub info_prefix: Option<String>,
    /// Running since this moment or a later one. What does not run is left out.
    pub started_from: Option<Stamp>,
    /// Running since a moment before this one. What does not run is left out.
    pub started_before: Option<Stamp>,
    /// Started again so often at least.
    pub retry_min: Option<u32>,
    /// In one of these states; empty: in any.
    pub states: BTreeSet<TaskState>,
    /// Periodic tasks only.
    pub periodic: bool,
}

impl Filter {
    /// Whether it selects this task.
    pub fn selects(&self, task: &Task) -> bool {
        let start = task.start_time;
        self.ns.as_ref().is_none_or(|it| *it == task.ns)
            && self.op_name.as_ref().is_none_or(|it| *it == task.op_name)
            && self.info_prefix.as_ref().is_none_or(|it| task.info.starts_with(it))
            && self.started_from.is_none_or(|from| start.is_some_and(|it| it >= from))
            && self.started_before.is_none_or(|end| start.is_some_and(|it| it < end))
            && self.retry_min.is_none_or(|it| task.retry >= it)
            && (self.states.is_empty() || self.states.contains(&task.state()))
            && (!self.periodic || task.cron.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Param;
    use rota_model::Cron;

    fn at(ms: u64) -> Stamp {
        Stamp::from_epoch_ms(1_795_000_000_000 + ms)
    }

    fn running() -> Task {
        Task {
            ns: Namespace::parse("shop").unwrap(),
            place: "p".into(),
            taskid: "t1".into(),
            op_name: "bill".into(),
            param: Param::Json(serde_json::json!({})),
            info: "bills/7".into(),
            retry: 2,
            start_at: Some(at(0)),
            start_time: Some(at(5)),
            qn: 0,
            exc: None,
            report: None,
            cron: Some(Cron::parse("H25").unwrap()),
            paused: false,
            progress: None,
        }
    }

    #[test]
    fn a_task_is_selected_if_everything_holds_that_is_set() {
        let all = Filter {
            ns: Some(Namespace::parse("shop").unwrap()),
            op_name: Some("bill".into()),
            info_prefix: Some("bills/".into()),
            started_from: Some(at(5)),
            started_before: Some(at(6)),
            retry_min: Some(2),
            states: [TaskState::Running].into(),
            periodic: true,
        };
        assert!(Filter::default().selects(&running()));
        assert!(all.selects(&running()));
        let others = [
            Task { ns: Namespace::parse("z").unwrap(), ..running() },
            Task { op_name: "pay".into(), ..running() },
            Task { info: "bill".into(), ..running() },
            Task { start_time: Some(at(4)), ..running() },
            Task { start_time: Some(at(6)), ..running() },
            Task { start_time: None, ..running() },
            Task { retry: 1, ..running() },
            Task { cron: None, ..running() },
        ];
        for other in others {
            assert!(!all.selects(&other), "{other:?}");
        }
        let parked = Task { start_at: None, start_time: None, ..running() };
        let by_state = Filter { states: [TaskState::Parked].into(), ..Filter::default() };
        assert!(by_state.selects(&parked) && !by_state.selects(&running()));
    }
}
