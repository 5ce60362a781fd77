//! Which tasks are meant.

use super::at::{At, at, now};
use crate::namespace::namespace;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rota_client::docstore::Namespace;
use rota_client::tasks::{Filter, TaskState};

/// All states of tasks.
const STATES: [TaskState; 5] =
    [TaskState::Waiting, TaskState::Running, TaskState::Lost, TaskState::Parked, TaskState::Paused];

/// The filter; what is given must all hold.
#[derive(Args, Debug, Default)]
pub struct FilterArguments {
    /// Tasks of this namespace.
    #[arg(long, value_parser = namespace)]
    namespace: Option<Namespace>,
    /// Tasks with this operation.
    #[arg(long)]
    operation: Option<String>,
    /// Tasks whose info begins so.
    #[arg(long, value_name = "PREFIX")]
    info: Option<String>,
    /// Tasks in one of these states; several with commas between them.
    #[arg(long = "state", value_name = "STATE,...", value_delimiter = ',', ignore_case = true,
          value_parser = PossibleValuesParser::new(STATES.map(TaskState::as_str)).map(|it| state(&it)))]
    states: Vec<TaskState>,
    /// Tasks that were started again so often at least.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    retry_min: Option<u32>,
    /// Tasks that run since this moment or a later one. -10m is ten minutes ago.
    #[arg(long, value_name = "TIME", value_parser = at, allow_hyphen_values = true)]
    started_after: Option<At>,
    /// Tasks that run since a moment before this one.
    #[arg(long, value_name = "TIME", value_parser = at, allow_hyphen_values = true)]
    started_before: Option<At>,
    /// Periodic tasks.
    #[arg(long)]
    periodic: bool,
}

fn state(text: &str) -> TaskState {
    let found = STATES.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(text));
    found.expect("the parser takes names of states only")
}

impl FilterArguments {
    /// The filter.
    pub fn filter(&self) -> Filter {
        let stamp = |it: At| it.stamp(now());
        Filter {
            ns: self.namespace.clone(),
            op_name: self.operation.clone(),
            info_prefix: self.info.clone(),
            started_from: self.started_after.map(stamp),
            started_before: self.started_before.map(stamp),
            retry_min: self.retry_min,
            states: self.states.iter().copied().collect(),
            periodic: self.periodic,
        }
    }

    /// Whether one of its flags is given.
    pub fn is_given(&self) -> bool {
        self.filter() != Filter::default()
    }
}
