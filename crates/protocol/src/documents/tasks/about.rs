//! What callers are told of the operations on tasks.

use rota_docstore::About;

/// An operation that names a task alone.
macro_rules! which {
    ($name:ident, $summary:literal) => {
        pub(crate) const $name: About = About {
            summary: $summary,
            parameters: r#"{
  "type": "object", "required": ["docid"], "additionalProperties": false,
  "properties": {"docid": {"type": "string", "description": "Id of the task's document."}}}"#,
            example: r#"{"docid": "{cart-7}4f1c2d3e4a5b6c7d"}"#,
        };
    };
}

/// An operation that names a task and a time.
macro_rules! which_and_when {
    ($name:ident, $summary:literal) => {
        pub(crate) const $name: About = About {
            summary: $summary,
            parameters: r#"{
  "type": "object", "required": ["docid", "at"], "additionalProperties": false,
  "properties": {
    "docid": {"type": "string", "description": "Id of the task's document."},
    "at": {"type": "integer", "description": "Its new start, a stamp: YYMMDDhhmmssmmm, UTC."}}}"#,
            example: r#"{"docid": "{cart-7}4f1c2d3e4a5b6c7d", "at": 991231235959000}"#,
        };
    };
}

pub(crate) const TASK_CREATE: About = About {
    summary: "Registers a task: an operation that runs later. Runs at the id {PLACE}.",
    parameters: r#"{
  "type": "object", "required": ["operation", "place"], "additionalProperties": false,
  "properties": {
    "operation": {"type": "string", "description": "The operation to run; or exec, http, grpc."},
    "place": {"type": "string", "description": "Part in braces of ids of documents that it works on, or such an id without braces: it says the slot."},
    "param": {"description": "Parameters of the operation."},
    "info": {"type": "string", "description": "Text by which administrators find it."},
    "start_at": {"type": "integer", "description": "Not before this stamp: YYMMDDhhmmssmmm, UTC. Left out: at once, or at the next run of cron."},
    "cron": {"type": "string", "description": "It runs again after each success, as H25, D0425, W30425, M100425, Y11100425."}}}"#,
    example: r#"{"operation": "document.touch", "place": "cart-7", "param": {"class": "Cart", "docid": "cart-7"},
  "info": "carts/7", "start_at": 991231235959000, "cron": "D0425"}"#,
};

which!(TASK_DELETE, "Deletes a task. A run that is under way changes nothing any more.");
which!(
    TASK_RETRY,
    "Runs a task now, also one that was given up. Refused while it runs or is paused."
);
which!(TASK_PAUSE, "Holds a periodic task back. A run that is under way comes to its end.");
which!(TASK_RESUME, "Lets a periodic task go on with its next run. Runs that passed are left out.");
which_and_when!(TASK_ADVANCE, "Starts a task earlier. Refused while it runs.");
which_and_when!(
    TASK_POSTPONE,
    "Starts a task later. Refused while it runs, and of one that was given up."
);

/// An operation on a whole queue.
macro_rules! queue {
    ($name:ident, $summary:literal) => {
        pub(crate) const $name: About = About {
            summary: $summary,
            parameters: r#"{
  "type": "object", "additionalProperties": false,
  "properties": {
    "namespace": {"type": "string", "description": "Tasks of this namespace. Left out: of all."},
    "queue": {"type": "integer", "description": "Tasks of this queue. Left out: of all."}}}"#,
            example: r#"{"namespace": "shop", "queue": 1}"#,
        };
    };
}

queue!(
    QUEUE_SUSPEND,
    "Starts no task of a queue or namespace until it is resumed. What runs goes on. Runs at the id spaces, in z."
);
queue!(QUEUE_RESUME, "Lets a queue or namespace go on. Runs at the id spaces, in z.");
