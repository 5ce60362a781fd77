//! The JSON form of a new task.

use rota_docstore::{Exception, JsonText, NewTask};
use serde::Deserialize;
use serde_json::Value;

/// A new task, as callers write it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskForm {
    operation: String,
    pub place: String,
    param: Option<Value>,
    #[serde(default)]
    info: String,
    start_at: Option<u64>,
    cron: Option<String>,
}

impl TaskForm {
    pub fn new_task(&self) -> Result<NewTask, Exception> {
        let parameters = self.param.as_ref().map(JsonText::of).transpose()?;
        Ok(NewTask {
            operation: self.operation.clone(),
            place: self.place.clone(),
            parameters,
            info: self.info.clone(),
            start_at: self.start_at,
            cron: self.cron.clone(),
        })
    }
}
