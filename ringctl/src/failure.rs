//! How a failure is told on stderr: what is wrong, whether something changed, what to do.

use crate::output::{Format, for_terminals};
use rota_client::CallError;
use rota_client::docstore::Stamp;
use rota_model::{Changed, RefusalKind, RequestId, Retry};
use serde::Serialize;
use std::io::Write;
use tonic::Code;

/// Options that do not fit together, or a value that only a closer look finds wrong: exit code 2,
/// like what the parser of the command line finds.
#[derive(Debug)]
pub struct UsageMistake(pub String);

impl std::fmt::Display for UsageMistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageMistake {}

/// It failed, and what was printed says how: exit code 1, without an error of its own.
#[derive(Debug)]
pub struct Reported(pub &'static str);

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Reported {}

/// Whether the command line was wrong.
pub fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<UsageMistake>().is_some()
}

/// The context of a call that may have changed something although it failed: how to find out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutcomeUnknown {
    /// An open or a close of this request id.
    Request(String),
    /// An event of a state machine.
    Event,
    /// An operation, perhaps with a time and a request id by which its repetition is known.
    Operation(Option<(Stamp, RequestId)>),
    /// An import that did not come to its end.
    Import,
    /// A manager was told to join.
    Join,
    /// A number was told to leave.
    Leave,
    /// A join or a leave was taken back.
    Cancel,
    /// Something was ordered about a node.
    NodeOrder,
    /// A session was changed.
    Update,
}

impl std::fmt::Display for OutcomeUnknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OutcomeUnknown::Request(id) => {
                write!(f, "outcome unknown; repeat it with --request-id {id} to find out")
            }
            OutcomeUnknown::Event => {
                f.write_str("outcome unknown; `session get` shows the machine's state")
            }
            OutcomeUnknown::Operation(Some((operation_time, id))) => write!(
                f,
                "outcome unknown; repeat it with --operation-time {operation_time} --request-id {id} to find out"
            ),
            OutcomeUnknown::Operation(None) => f.write_str(
                "outcome unknown; `document get` shows what it has changed, and with --operation-time it \
                 could be repeated safely",
            ),
            OutcomeUnknown::NodeOrder => f.write_str(
                "outcome unknown; repeating it is safe, and `ringctl inspect` shows nodes",
            ),
            OutcomeUnknown::Update => f.write_str(
                "outcome unknown; `session life` and `session get` show how it stands, and repeating it is safe",
            ),
            OutcomeUnknown::Leave => {
                f.write_str("outcome unknown; repeat it, or see what `ringctl inspect` shows")
            }
            OutcomeUnknown::Cancel => f.write_str(
                "outcome unknown; `ringctl inspect` shows whether something is still under way",
            ),
            OutcomeUnknown::Join => {
                f.write_str("outcome unknown; `ringctl inspect` shows whether the View has it")
            }
            OutcomeUnknown::Import => {
                f.write_str("what came before was taken over; repeating the import is safe")
            }
        }
    }
}

impl OutcomeUnknown {
    /// Adds itself to an error that leaves the outcome open, and to no other.
    pub fn unless_refused(self, error: CallError) -> anyhow::Error {
        match error.changed() {
            Changed::No => error.into(),
            // That one is known.
            Changed::Unknown if error.has_changed() => error.into(),
            // So is this: it was begun, and is over.
            Changed::Unknown if error.reason() == RefusalKind::StartFailed.as_str() => error.into(),
            Changed::Unknown => anyhow::Error::from(error).context(self),
        }
    }
}

/// The context of a call that was not for any manager of --endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// The node of a session.
    Node {
        /// Its id.
        node: String,
        /// The session's.
        session: String,
    },
    /// The manager that is to join.
    Target(String),
}

impl std::fmt::Display for Addressee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Addressee::Node { node, .. } => write!(f, "node {node} did not answer"),
            Addressee::Target(target) => write!(f, "--target {target} did not answer"),
        }
    }
}

impl Addressee {
    /// Adds itself to an error that says that nobody answered, and to no other.
    pub fn unless_answered(self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref::<CallError>() {
            Some(CallError::Broken { .. } | CallError::TimedOut { .. }) => error.context(self),
            Some(
                CallError::Refused { .. }
                | CallError::Raised { .. }
                | CallError::Incomplete { .. }
                | CallError::Unreadable { .. }
                | CallError::Source(_)
                | CallError::Address(_),
            )
            | None => error,
        }
    }
}

/// Writes the failure to stderr.
pub fn report(error: &anyhow::Error, format: Format) {
    let text = match format {
        Format::Table => for_terminals(&as_text(error)).into_owned(),
        Format::Json => format!("{}\n", as_json(error)),
    };
    // Nobody is left to tell when stderr itself is gone.
    let _told = std::io::stderr().write_all(text.as_bytes());
}

fn advice(call: &CallError) -> String {
    match call.retry() {
        // The request is remembered for a while, and each command is another one.
        Retry::Never if call.reason() == RefusalKind::StartFailed.as_str() => {
            "the same request id will be refused again; another, as each command without --request-id has \
             one, starts it anew"
                .to_owned()
        }
        Retry::Never => "the same request will be refused again".to_owned(),
        Retry::WhenChanged => "refused as things stand; repeat it once that has changed".to_owned(),
        Retry::Now => "repeat it".to_owned(),
        Retry::AfterMs(ms) => format!("repeat it after {ms} ms"),
        Retry::AtOwner(epoch) => format!("repeat it at the owner (View of epoch {epoch} or later)"),
    }
}

fn as_text(error: &anyhow::Error) -> String {
    let Some(call) = error.downcast_ref::<CallError>() else {
        return format!("error: {error:#}\n");
    };
    let mut text = format!("error: {}\n  reason: {}\n", with_options(call), call.reason());
    if let Some(unknown) = error.downcast_ref::<OutcomeUnknown>() {
        text.push_str(&format!("  {unknown}\n"));
    } else if call.has_changed() {
        text.push_str("  advice: it has happened and stays; do not repeat it\n");
    } else {
        text.push_str(&format!("  advice: {}\n", advice(call)));
    }
    // One mistake is the message already.
    for field in call.fields().iter().filter(|_| call.fields().len() > 1) {
        let what = option_of(&field.field).unwrap_or_else(|| format!("field {}", field.field));
        text.push_str(&format!("  {what}: {}\n", field.problem));
    }
    if let Some(hint) = hint(error.downcast_ref::<Addressee>(), call) {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    text
}

/// The option that says a field of a request, where it has another name: of a list with the place in it.
fn option_of(field: &str) -> Option<String> {
    let (name, place) = match field.split_once('[') {
        Some((name, place)) => (name, place.strip_suffix(']')?.parse::<usize>().ok()),
        None => (field, None),
    };
    let option = match name {
        "managed_state" | "managedState" | "add_state" => "--life",
        "life.managed_state" | "life.managedState" => "--life",
        // Its items are not in the order in which they were typed.
        "remove_state" => return Some("--no-life".to_owned()),
        "finish" => "--finish",
        "skip" => "--skip",
        "retry" => "--retry",
        "if_version" => "--if-version",
        "life.idle_ms" => "--idle",
        "life.max_life_ms" => "--max-life",
        "life.start_timeout_ms" => "--start-timeout",
        "life.close_grace_ms" => "--close-grace",
        "life.restarts" => "--restarts",
        _ => return None,
    };
    Some(match place {
        Some(at) => format!("{option} (item {})", at + 1),
        None => option.to_owned(),
    })
}

/// The text of a failure, with names of options where a field has another one.
fn with_options(call: &CallError) -> String {
    let mut text = call.to_string();
    for it in call.fields() {
        if let Some(option) = option_of(&it.field) {
            let problem = &it.problem;
            text = text.replace(&it.to_string(), &format!("{option} {problem}"));
        }
    }
    text
}

/// How managers refuse an order without the right key of an administrator.
const ADMIN_KEY_NEEDED: &str = "the administrator's key is ";

/// What to look at when nobody answered, or when a key is missing.
fn hint(addressee: Option<&Addressee>, call: &CallError) -> Option<String> {
    match addressee {
        Some(Addressee::Node { node, session }) => Some(format!(
            "node {node} runs the session; `ringctl inspect` shows how the node is. When it is gone, \
             the session is LOST after some 20 s, and `ringctl session open {session}` starts a new \
             life"
        )),
        Some(Addressee::Target(_)) => Some(
            "--target is where the manager serves gRPC that was started with --join; it says so when \
             it is ready"
                .to_owned(),
        ),
        None if matches!(call, CallError::Broken { code: Code::Unavailable, .. }) => Some(
            "--endpoint or ROTA_ENDPOINT says where managers are; `ringctl dev` starts some".to_owned(),
        ),
        // Another service of Rota, or of somebody else.
        None if matches!(call, CallError::Broken { .. }) => Some(
            "--endpoint and ROTA_ENDPOINT name where managers serve gRPC, as the column GRPC of `ringctl \
             inspect` shows it; this address is something else's, or broke off"
                .to_owned(),
        ),
        None if call.to_string().contains(ADMIN_KEY_NEEDED) => Some(
            "--admin-key-file, or ROTA_ADMIN_KEY with the key itself, gives the key that managers were \
             started with (their --admin-key-file)"
                .to_owned(),
        ),
        None => None,
    }
}

/// The error document, with its fields in this order.
#[derive(Serialize)]
struct Failed<'a> {
    /// What a manager or the client says, else USAGE or FAILED.
    reason: &'a str,
    message: String,
    #[serde(flatten)]
    call: Option<FailedCall<'a>>,
    /// What to look at, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Serialize)]
struct FailedCall<'a> {
    retry: &'static str,
    retry_after_ms: Option<u64>,
    changed: &'static str,
    fields: Vec<FailedField<'a>>,
}

#[derive(Serialize)]
struct FailedField<'a> {
    field: &'a str,
    problem: &'a str,
}

fn as_json(error: &anyhow::Error) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        error: Failed<'a>,
    }
    let call = error.downcast_ref::<CallError>();
    let own = if is_usage(error) { "USAGE" } else { "FAILED" };
    let failed = Failed {
        reason: call.map_or(own, CallError::reason),
        message: format!("{error:#}"),
        call: call.map(FailedCall::of),
        hint: call.and_then(|it| hint(error.downcast_ref::<Addressee>(), it)),
    };
    serde_json::to_string(&Document { error: failed }).expect("texts and numbers are JSON")
}

impl<'a> FailedCall<'a> {
    fn of(call: &'a CallError) -> Self {
        let (retry, retry_after_ms) = match call.retry() {
            Retry::Never => ("never", None),
            Retry::WhenChanged => ("when_changed", None),
            Retry::Now => ("now", None),
            Retry::AfterMs(ms) => ("after", Some(ms)),
            Retry::AtOwner(_) => ("at_owner", None),
        };
        let changed = match call.changed() {
            Changed::No => "no",
            Changed::Unknown if call.has_changed() => "yes",
            Changed::Unknown => "unknown",
        };
        let fields = call.fields().iter();
        let fields = fields.map(|it| FailedField { field: &it.field, problem: &it.problem });
        Self { retry, retry_after_ms, changed, fields: fields.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::{Exception, codes};
    use rota_model::{FieldError, Refusal, RefusalKind};

    fn refused(refusal: Refusal) -> anyhow::Error {
        let refusal = Box::new(refusal);
        CallError::Refused { refusal, endpoint: "a:1".to_owned(), attempts: 1 }.into()
    }

    #[test]
    fn a_refusal_is_told_with_reason_advice_and_fields() {
        let error = refused(Refusal::invalid(vec![FieldError::new("id", "must not be empty")]));
        assert_eq!(
            as_text(&error),
            "error: id must not be empty\n  reason: INVALID_ARGUMENT\n  \
             advice: the same request will be refused again\n"
        );
        let two = [FieldError::new("id", "is empty"), FieldError::new("class", "is long")];
        let text = as_text(&refused(Refusal::invalid(two.to_vec())));
        assert!(text.ends_with("  field id: is empty\n  field class: is long\n"), "{text}");
    }

    #[test]
    fn a_field_that_no_option_is_called_after_is_told_with_its_option() {
        let wrong = ["managed_state", "life.managedState[1]", "life.idle_ms", "if_version"];
        let wrong = wrong.map(|it| FieldError::new(it, "is wrong")).to_vec();
        let text = as_text(&refused(Refusal::invalid(wrong)));
        let lines: Vec<&str> = text.lines().collect();
        let told =
            "--life is wrong; --life (item 2) is wrong; --idle is wrong; --if-version is wrong";
        assert_eq!(lines[0], format!("error: {told}"));
        let fields = ["--life", "--life (item 2)", "--idle", "--if-version"];
        assert_eq!(lines[3..], fields.map(|it| format!("  {it}: is wrong")));
    }

    #[test]
    fn a_refusal_as_json_keeps_the_wait_that_was_advised() {
        let refusal = Refusal::new(RefusalKind::Provisioning, Retry::AfterMs(300), "no room yet");
        let told: serde_json::Value = serde_json::from_str(&as_json(&refused(refusal))).unwrap();
        assert_eq!(told["error"]["reason"], "PROVISIONING");
        assert_eq!(told["error"]["retry"], "after");
        assert_eq!(told["error"]["retry_after_ms"], 300);
    }

    #[test]
    fn a_failure_of_ringctl_itself_has_a_reason_as_json_too() {
        let reason = |error: anyhow::Error| {
            let told: serde_json::Value = serde_json::from_str(&as_json(&error)).unwrap();
            told["error"]["reason"].clone()
        };
        assert_eq!(reason(UsageMistake("--number: is missing".to_owned()).into()), "USAGE");
        assert_eq!(reason(anyhow::anyhow!("stdin is not JSON")), "FAILED");
    }

    #[test]
    fn a_refusal_that_depends_on_something_else_does_not_claim_to_be_for_ever() {
        let refusal = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, "no session");
        let error = refused(refusal);
        let text = as_text(&error);
        assert!(
            text.ends_with("advice: refused as things stand; repeat it once that has changed\n")
        );
        assert!(as_json(&error).contains("\"retry\":\"when_changed\""));
    }

    #[test]
    fn a_start_that_failed_leaves_nothing_to_find_out() {
        let text = "session default/q did not start: EXITED (exit code 4)";
        let refusal = Refusal::unknown_outcome(RefusalKind::StartFailed, Retry::Never, text);
        let refusal = Box::new(refusal);
        let refused = CallError::Refused { refusal, endpoint: "a:1".to_owned(), attempts: 1 };
        let told = as_text(&OutcomeUnknown::Request("r7".to_owned()).unless_refused(refused));
        assert!(told.contains(text) && !told.contains("unknown"), "{told}");
        assert!(!told.contains("repeat it with") && told.contains("starts it anew"), "{told}");
    }

    #[test]
    fn an_unknown_outcome_says_how_to_find_out() {
        let broken = CallError::Broken {
            code: Code::Unavailable,
            message: "refused".to_owned(),
            endpoint: "a:1".to_owned(),
            attempts: 2,
            changed: Changed::Unknown,
        };
        let error = OutcomeUnknown::Request("r7".to_owned()).unless_refused(broken.clone());
        let text = as_text(&error);
        assert!(
            text.starts_with("error: a:1: refused (Unavailable, after 2 attempts)\n"),
            "{text}"
        );
        assert!(text.contains("--request-id r7") && text.contains("hint: "), "{text}");
        assert!(as_json(&error).contains("--request-id r7"));
        let only_read = as_text(&broken.into());
        assert!(!only_read.contains("--request-id"), "{only_read}");
    }

    #[test]
    fn an_order_without_the_administrators_key_says_what_gives_it() {
        let exception =
            Box::new(Exception::new(codes::REFUSED, "the administrator's key is missing"));
        let (endpoint, changed) = ("a:1".to_owned(), Changed::No);
        let raised = CallError::Raised { exception, endpoint, attempts: 1, changed };
        let error = anyhow::Error::from(raised);
        assert!(as_text(&error).contains("  hint: --admin-key-file, or ROTA_ADMIN_KEY"));
        let document: serde_json::Value = serde_json::from_str(&as_json(&error)).unwrap();
        let hint = document["error"]["hint"].as_str();
        assert!(hint.is_some_and(|it| it.starts_with("--admin-key-file")), "{document}");
    }

    #[test]
    fn a_node_that_does_not_answer_is_not_taken_for_a_manager() {
        let broken = CallError::Broken {
            code: Code::Unavailable,
            message: "refused".to_owned(),
            endpoint: "a:1".to_owned(),
            attempts: 1,
            changed: Changed::Unknown,
        };
        let at = Addressee::Node { node: "n1".to_owned(), session: "s".to_owned() };
        let error = at.clone().unless_answered(OutcomeUnknown::Event.unless_refused(broken));
        let text = as_text(&error);
        assert!(text.contains("hint: node n1 runs the session"), "{text}");
        assert!(text.contains("outcome unknown") && !text.contains("ROTA_ENDPOINT"), "{text}");
        assert!(as_json(&error).contains("node n1 did not answer"), "{}", as_json(&error));
        let refusal = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, "no session");
        assert!(!as_text(&at.unless_answered(refused(refusal))).contains("hint"));
    }

    #[test]
    fn a_manager_that_is_to_join_and_does_not_answer_is_told_by_its_own_flag() {
        let silent = CallError::TimedOut {
            endpoint: "a:1".to_owned(),
            waited: std::time::Duration::from_secs(1),
            attempts: 1,
            changed: Changed::Unknown,
        };
        let target = Addressee::Target("a:1".to_owned());
        let error = target.unless_answered(OutcomeUnknown::Join.unless_refused(silent));
        let text = as_text(&error);
        assert!(text.contains("hint: --target is where") && !text.contains("--endpoint"), "{text}");
        assert!(text.contains("outcome unknown"), "{text}");
        assert!(as_json(&error).contains("--target a:1 did not answer"));
    }

    #[test]
    fn an_exception_is_told_with_its_code_and_whether_it_has_happened() {
        use rota_client::docstore::{Exception, FieldError, Phase};
        let raised = |raised: Exception| CallError::Raised {
            changed: if raised.phase() == Phase::Sending { Changed::Unknown } else { Changed::No },
            exception: Box::new(raised),
            endpoint: "a:1".to_owned(),
            attempts: 1,
        };
        let late = raised(Exception::unexpected("LATE", "it was lost").at(Phase::Sending));
        let error = OutcomeUnknown::Operation(None).unless_refused(late);
        let expected = "error: it was lost\n  reason: X-LATE\n  \
                        advice: it has happened and stays; do not repeat it\n";
        assert_eq!(as_text(&error), expected);
        assert!(as_json(&error).contains("\"changed\":\"yes\""));
        let wrong = raised(Exception::from(FieldError::new("docid", "must not be empty")));
        let text = as_text(&OutcomeUnknown::Operation(None).unless_refused(wrong));
        assert!(text.contains("reason: A-INVALID\n  advice: the same"), "{text}");
    }

    #[test]
    fn a_refusal_that_changed_nothing_leaves_nothing_to_find_out() {
        let refusal = Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, "no");
        let refusal = Box::new(refusal);
        let refused = CallError::Refused { refusal, endpoint: "a:1".to_owned(), attempts: 1 };
        let error = OutcomeUnknown::Event.unless_refused(refused);
        assert!(error.downcast_ref::<OutcomeUnknown>().is_none());
    }
}
