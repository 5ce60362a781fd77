//! What an application is told of a task that calls it. By that it knows a repetition.

use super::Target;
use rota_protocol::TaskJob;

/// Names and values of headers, all in visible ASCII.
pub fn of_task(job: &TaskJob) -> [(&'static str, String); 4] {
    // Ids may hold any letter.
    let id = percent_encoding::utf8_percent_encode(&job.docid, percent_encoding::CONTROLS);
    [
        ("x-rota-task", id.to_string()),
        ("x-rota-task-namespace", job.ns.as_str().to_owned()),
        ("x-rota-task-retry", job.run.retry.to_string()),
        ("x-rota-task-start-time", job.run.start_time.to_string()),
    ]
}

/// The key of a target, as a header.
pub fn authorization(target: &Target) -> Option<String> {
    target.key().map(|it| format!("Bearer {it}"))
}
