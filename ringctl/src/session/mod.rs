//! Sessions: `ringctl session …`.

mod change;
mod close_many;
mod forget;
mod items;
mod keep_alive;
mod life;
mod logs;
mod open;
mod own;
mod show;
mod silence;
mod times;
mod update;

pub use show::{Shown, state_name};
pub use times::time;

use crate::connect;
use crate::events::{self, SessionEventsArguments};
use crate::failure::{Addressee, OutcomeUnknown, Reported, UsageMistake};
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, plain_table};
use crate::secret::AdminKey;
use anyhow::Context;
use clap::{Args, Subcommand};
use rota_client::{CallError, Client, v1};
use rota_model::{GRACE_MS_MAX, Refusal, RefusalKind, Retry, SessionState};
use show::{Closed, Listed, Moved};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The field of a session's id.
const DOCID: &str = "docid";

/// What is said of a close that goes on.
const UNFINISHED: &str = "the session is closing and has not ended";

/// What to do with sessions.
#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// Find the live session of an id, or start one.
    Open(open::OpenArguments),
    /// Read one session.
    #[command(visible_alias = "show")]
    Get(GetArguments),
    /// End a session, or many. Exit code 1 when it is closing and has not ended yet: its program uses its grace, or its
    /// node is silent. Both are told.
    Close(CloseArguments),
    /// Say that somebody uses a session, and tell for how long nobody had said so (`-`: that is not known). With --every
    /// it goes on until Ctrl-C, or until the session has ended (exit code 1).
    #[command(name = "keepalive")]
    KeepAlive(keep_alive::KeepAliveArguments),
    /// Change attributes and life cycles of a session that lives, all in one commit.
    Update(update::UpdateArguments),
    /// Show the life cycles of a session: what has happened, what waits, when the next event fires, and the history.
    Life(life::LifeArguments),
    /// List the sessions of the ring.
    List(ListArguments),
    /// Follow changes, one line each; ends on Ctrl-C or SIGTERM, with exit code 0.
    Watch(change::WatchArguments),
    /// Show what a session's program prints, and printed; also after its end: from its node, or what the ring keeps.
    Logs(logs::LogsArguments),
    /// Show what happened lately to a session: where it was placed, opened, changed and closed, and why.
    Events(SessionEventsArguments),
    /// Send an event to a session's state machine.
    Send(SendArguments),
}

/// Where an id is looked for, and how long.
#[derive(Args, Debug)]
pub struct CallArguments {
    /// Namespace of the id.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// How long the answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `session get`.
#[derive(Args, Debug)]
pub struct GetArguments {
    /// Id of the session.
    id: String,
    /// Accept an answer that the owner did not confirm with its copies.
    #[arg(long)]
    stale_ok: bool,
    #[command(flatten)]
    call: CallArguments,
}

/// `session close`.
#[derive(Args, Debug)]
pub struct CloseArguments {
    /// Id of the session.
    #[arg(required_unless_present = "conditions", conflicts_with = "conditions")]
    id: Option<String>,
    /// Close all of the namespace that live and fulfil this, as `session list --where` shows them. A task closes them,
    /// and this command follows it; Ctrl-C ends the command and not the task.
    #[arg(long = "where", value_name = "CONDITIONS", conflicts_with_all = ["life", "although_off"])]
    conditions: Option<String>,
    /// Show which sessions would be closed.
    #[arg(long, requires = "conditions")]
    dry_run: bool,
    /// Close them without asking.
    #[arg(long, requires = "conditions")]
    yes: bool,
    /// Close only this life (see `session get`); without it, whichever lives. In a program or an action of the session
    /// itself, that of ROTA_LIFE.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    life: u64,
    /// Also where the namespace is switched off: an operator's order.
    #[arg(long)]
    although_off: bool,
    #[command(flatten)]
    admin_key: AdminKey,
    /// Name of this request: repeating it repeats the answer (for 10 minutes).
    #[arg(long, default_value = "", hide_default_value = true)]
    request_id: String,
    /// How long its program may take to end before it is killed, up to 5m; default: the grace of its class.
    /// Said of a session that is closing already, it may only shorten the time.
    #[arg(long, value_name = "DURATION", value_parser = grace)]
    grace: Option<Duration>,
    /// Kill its program at once, without asking it to end.
    #[arg(long, conflicts_with = "grace")]
    force: bool,
    #[command(flatten)]
    call: CallArguments,
}

impl CloseArguments {
    /// The time that the program is given, in milliseconds; `None`: that of its class.
    fn grace_ms(&self) -> Option<u64> {
        let given = self.grace.map(|it| u64::try_from(it.as_millis()).unwrap_or(GRACE_MS_MAX));
        if self.force { Some(0) } else { given }
    }
}

/// A length of time that a program may be given.
fn grace(text: &str) -> Result<Duration, String> {
    let grace = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if grace > Duration::from_millis(GRACE_MS_MAX) {
        return Err("is longer than 5m, the longest grace".to_owned());
    }
    Ok(grace)
}

/// Which sessions are shown. Every condition must hold.
#[derive(Args, Debug, Default)]
pub struct FilterArguments {
    /// Only in one of these states; several with commas.
    #[arg(long = "state", value_delimiter = ',', value_parser = session_state)]
    states: Vec<SessionState>,
    /// Only on this node.
    #[arg(long, default_value = "", hide_default_value = true)]
    node: String,
    /// Only of this class.
    #[arg(long, default_value = "", hide_default_value = true)]
    class: String,
    /// Only in this namespace; without it, in every one.
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
    /// Only those of which all this holds: 'attr.user = "x" and state = READY and age > 10m'. Fields: age, attr.NAME,
    /// class, docid (the id), namespace, node, pool, reason, state.
    #[arg(
        long = "where",
        value_name = "CONDITIONS",
        default_value = "",
        hide_default_value = true
    )]
    conditions: String,
}

impl FilterArguments {
    fn to_wire(&self) -> v1::Filter {
        v1::Filter {
            states: self.states.iter().map(|it| show::state_to_wire(*it)).collect(),
            node_id: self.node.clone(),
            class: self.class.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

/// `session list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    #[command(flatten)]
    filter: FilterArguments,
    /// In the order of this field, as in `age` (the youngest first) or `-age` (the oldest first) [default: by namespace and
    /// id].
    #[arg(long, value_name = "[-]FIELD", allow_hyphen_values = true)]
    sort: Option<Order>,
    /// At most so many: the first ones in their order.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Sessions asked for at once, 1 to 1000; all pages are shown.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1000))]
    page_size: u32,
    /// Accept answers that owners did not confirm with their copies; without conditions and order only.
    #[arg(long)]
    stale_ok: bool,
    /// How long each page may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `session send`.
#[derive(Args, Debug)]
pub struct SendArguments {
    /// Id of the session.
    id: String,
    /// Name of an event of its class.
    event: String,
    /// Only to this life; without it, to whichever lives.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    life: u64,
    #[command(flatten)]
    call: CallArguments,
}

/// A field that sorts, and whether from the end to the beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// Its name.
    pub field: String,
    /// With a `-` before it.
    pub descending: bool,
}

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (field, descending) = match text.strip_prefix('-') {
            Some(field) => (field, true),
            None => (text, false),
        };
        if field.is_empty() || field.starts_with('-') {
            return Err("must be FIELD, or -FIELD from the end to the beginning".to_owned());
        }
        Ok(Self { field: field.to_owned(), descending })
    }
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

fn session_state(text: &str) -> Result<SessionState, String> {
    SessionState::parse(text).ok_or_else(|| {
        let all: Vec<&str> = SessionState::ALL.iter().map(|it| it.as_str()).collect();
        format!("is none of {}", all.join(", "))
    })
}

/// Runs a command on sessions.
pub async fn run(command: &SessionCommand, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoint, out.format())?;
    let work = Box::pin(carry_out(&client, command, out));
    // Some are silent while nothing happens.
    let may_be_silent = match command {
        SessionCommand::Watch(_) => true,
        SessionCommand::Logs(it) => it.follows(),
        SessionCommand::Events(it) => it.follows(),
        SessionCommand::Close(it) => it.conditions.is_some(),
        SessionCommand::KeepAlive(it) => it.goes_on(),
        SessionCommand::Open(_)
        | SessionCommand::Get(_)
        | SessionCommand::Update(_)
        | SessionCommand::Life(_)
        | SessionCommand::List(_)
        | SessionCommand::Send(_) => false,
    };
    if may_be_silent {
        return connect::told_when_gone(work).await;
    }
    connect::told(endpoint, work).await
}

async fn carry_out(client: &Client, command: &SessionCommand, out: &mut Out) -> anyhow::Result<()> {
    match command {
        SessionCommand::Open(arguments) => open::run(client, arguments, out).await,
        SessionCommand::Get(arguments) => get(client, arguments, out).await,
        SessionCommand::Close(arguments) => close(client, arguments, out).await,
        SessionCommand::KeepAlive(arguments) => keep_alive::run(client, arguments, out).await,
        SessionCommand::Update(arguments) => update::run(client, arguments, out).await,
        SessionCommand::Life(arguments) => life::run(client, arguments, out).await,
        SessionCommand::List(arguments) => list(client, arguments, out).await,
        SessionCommand::Watch(arguments) => change::watch(client, arguments, out).await,
        SessionCommand::Logs(arguments) => Box::pin(logs::run(client, arguments, out)).await,
        SessionCommand::Events(arguments) => events::of_session(client, arguments, out).await,
        SessionCommand::Send(arguments) => send(client, arguments, out).await,
    }
}

fn attributes_once(given: &[(String, String)]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut attributes = BTreeMap::new();
    for (name, value) in given {
        if attributes.insert(name.clone(), value.clone()).is_some() {
            anyhow::bail!(UsageMistake(format!("--attr {name} is given twice")));
        }
    }
    Ok(attributes)
}

/// The name that was given to the request, or a new one.
fn request_id(client: &Client, given: &str) -> String {
    if given.is_empty() { client.request_id() } else { given.to_owned() }
}

async fn read(
    client: &Client,
    id: &str,
    call: &CallArguments,
    stale_ok: bool,
) -> anyhow::Result<(v1::Session, bool)> {
    let (namespace, id) = (call.namespace.clone(), id.to_owned());
    let request = v1::GetRequest { namespace, id, stale_ok };
    let answer = client.get(request, call.timeout).await?;
    Ok((answer.session.context("the answer has no session")?, answer.stale))
}

async fn get(client: &Client, it: &GetArguments, out: &mut Out) -> anyhow::Result<()> {
    let (session, stale) = read(client, &it.id, &it.call, it.stale_ok).await?;
    let shown = Shown { stale: Some(stale), ..Shown::of(&session) };
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => out.table(&show::one(&shown))?,
    }
    Ok(())
}

async fn close(client: &Client, it: &CloseArguments, out: &mut Out) -> anyhow::Result<()> {
    if let Some(conditions) = &it.conditions {
        return Box::pin(close_many::run(client, it, conditions, out)).await;
    }
    // What requires --where is not looked at where something conflicts with that.
    if it.dry_run || it.yes {
        let told = "--dry-run and --yes go with --where, and not with one session";
        anyhow::bail!(UsageMistake(told.to_owned()));
    }
    let (namespace, id) = (it.call.namespace.clone(), it.id.clone().unwrap_or_default());
    let request = v1::CloseRequest {
        life: own::life_meant(it.life, &namespace, &id)?,
        namespace,
        id,
        request_id: request_id(client, &it.request_id),
        grace_ms: it.grace_ms(),
        ..Default::default()
    };
    let unknown = OutcomeUnknown::Request(request.request_id.clone());
    let answer = if it.although_off {
        let operator = client.namespaces().with_admin_key(&it.admin_key.get()?);
        let operator = operator.map_err(|mistake| UsageMistake(mistake.to_string()))?;
        operator.close(request, it.call.timeout).await
    } else {
        client.close(request, it.call.timeout).await
    };
    let answer = answer.map_err(|error| unknown.unless_refused(error))?;
    let session = answer.session.as_ref().context("the answer has no session")?;
    let closed = Closed { finished: answer.finished, session: Shown::of(session) };
    match out.format() {
        Format::Json => out.json(&closed)?,
        Format::Table => {
            let mut table = plain_table(["ID", "FINISHED", "STATE", "REASON", "DETAIL"]);
            let shown = closed.session;
            let finished = if closed.finished { "yes" } else { "no" };
            table.add_row([shown.id, finished.to_owned(), shown.state, shown.reason, shown.detail]);
            out.table(&table)?;
        }
    }
    if answer.finished {
        return Ok(());
    }
    if out.format() == Format::Table {
        eprintln!("{UNFINISHED}: {}", show::why_unfinished(session, it.grace_ms()));
    }
    Err(Reported(UNFINISHED).into())
}

impl ListArguments {
    /// What is asked for, and whether its answer is in the order that is shown.
    fn request(&self) -> (v1::ListRequest, bool) {
        let order = self.sort.clone().or_else(|| {
            // The first of all in the order of this command, so that the rest need not come.
            let by_id = Order { field: DOCID.to_owned(), descending: false };
            self.limit.map(|_| by_id)
        });
        let is_in_order = order.is_some() || !self.filter.conditions.is_empty();
        let (sort, descending) = order.map(|it| (it.field, it.descending)).unwrap_or_default();
        let request = v1::ListRequest {
            filter: Some(self.filter.to_wire()),
            page_size: self.limit.map_or(self.page_size, |it| self.page_size.min(it)),
            page_token: String::new(),
            stale_ok: self.stale_ok,
            r#where: self.filter.conditions.clone(),
            sort,
            descending,
        };
        (request, is_in_order)
    }
}

async fn list(client: &Client, it: &ListArguments, out: &mut Out) -> anyhow::Result<()> {
    let (request, is_in_order) = it.request();
    let limit = it.limit.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let all = client.list_first(request, limit, it.timeout).await?;
    let mut sessions: Vec<Shown> = all.sessions.iter().map(Shown::of).collect();
    if !is_in_order {
        sessions.sort_by(|one, two| (&one.namespace, &one.id).cmp(&(&two.namespace, &two.id)));
    }
    match out.format() {
        Format::Json => out.json(&Listed { sessions, stale: all.stale })?,
        Format::Table => out.table(&show::many(&sessions))?,
    }
    if all.stale && out.format() == Format::Table {
        eprintln!("stale: owners did not confirm this with their copies");
    }
    Ok(())
}

/// Why nothing can be sent to a session that has no address, in the words of a node that is asked.
fn no_address(session: &v1::Session) -> CallError {
    let (kind, retry) = match session.state() {
        v1::SessionState::Unspecified
        | v1::SessionState::Pending
        | v1::SessionState::Starting
        | v1::SessionState::Ready => (RefusalKind::InProgress, Retry::AfterMs(100)),
        v1::SessionState::Closing => (RefusalKind::Closing, Retry::WhenChanged),
        v1::SessionState::Closed | v1::SessionState::Failed | v1::SessionState::Lost => {
            (RefusalKind::NotFound, Retry::WhenChanged)
        }
    };
    let state = state_name(session.state);
    let text = format!("session {:?} is {state} and has no address to send to", session.id);
    let refusal = Box::new(Refusal::new(kind, retry, text));
    // It was not sent, so nobody else has said it.
    CallError::Refused { refusal, endpoint: String::new(), attempts: 0 }
}

/// Why nothing can be sent to a session that runs a program.
fn no_machine(session: &v1::Session) -> CallError {
    let (id, class, address) = (&session.id, &session.class, &session.address);
    let text = format!(
        "session {id:?} runs a program (class {class}), and events are for state machines; talk to \
         it at {address}"
    );
    let refusal = Refusal::new(RefusalKind::InvalidArgument, Retry::WhenChanged, text);
    CallError::Refused { refusal: Box::new(refusal), endpoint: String::new(), attempts: 0 }
}

async fn send(client: &Client, it: &SendArguments, out: &mut Out) -> anyhow::Result<()> {
    let began = Instant::now();
    let (session, _stale) = read(client, &it.id, &it.call, false).await?;
    if session.address.is_empty() {
        return Err(no_address(&session).into());
    }
    // Machines answer at their node's own address, programs at ports of theirs.
    if session.machine_state.is_empty() && session.address != session.node_address {
        return Err(no_machine(&session).into());
    }
    // One deadline for both calls.
    let left = it.call.timeout.saturating_sub(began.elapsed());
    let event = v1::SendRequest {
        namespace: it.call.namespace.clone(),
        id: it.id.clone(),
        event: it.event.clone(),
        life: it.life,
    };
    let moved = client.send_event(&session.address, event, left).await;
    let moved = moved.map_err(|error| {
        let node = Addressee::Node { node: session.node_id.clone(), session: it.id.clone() };
        node.unless_answered(OutcomeUnknown::Event.unless_refused(error))
    })?;
    let moved = Moved {
        id: it.id.clone(),
        from: moved.from,
        to: moved.to,
        changes: moved.changes,
        is_final: moved.r#final,
    };
    match out.format() {
        Format::Json => out.json(&moved)?,
        Format::Table => {
            let mut table = plain_table(["ID", "FROM", "TO", "CHANGES", "FINAL"]);
            let last = if moved.is_final { "yes" } else { "no" };
            let changes = moved.changes.to_string();
            table.add_row([moved.id, moved.from, moved.to, changes, last.to_owned()]);
            out.table(&table)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn an_attribute_keeps_everything_after_the_first_equals_sign() {
        assert_eq!(attribute("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(attribute("a").is_err());
        assert!(attribute("=b").is_err());
    }

    #[test]
    fn an_attribute_given_twice_is_refused_by_name() {
        let twice = [("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
        assert!(attributes_once(&twice).unwrap_err().to_string().contains("--attr a"));
    }

    #[test]
    fn states_are_taken_in_any_case_and_separated_by_commas() {
        let line = ["ringctl", "session", "list", "--state", "ready,Closed"];
        let cli = Cli::try_parse_from(line).unwrap();
        let crate::cli::Command::Session(SessionCommand::List(list)) = cli.command else {
            panic!("another command")
        };
        assert_eq!(list.filter.states, vec![SessionState::Ready, SessionState::Closed]);
        assert!(Cli::try_parse_from(["ringctl", "session", "list", "--state", "open"]).is_err());
    }

    fn listing(arguments: &[&str]) -> v1::ListRequest {
        let line = ["ringctl", "session", "list"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).unwrap();
        let crate::cli::Command::Session(SessionCommand::List(list)) = cli.command else {
            panic!("another command")
        };
        list.request().0
    }

    #[test]
    fn a_minus_before_a_field_turns_the_order_round() {
        let of = |request: &v1::ListRequest| (request.sort.clone(), request.descending);
        assert_eq!(of(&listing(&["--sort", "age"])), ("age".to_owned(), false));
        assert_eq!(of(&listing(&["--sort", "-age"])), ("age".to_owned(), true));
        assert!(Cli::try_parse_from(["ringctl", "session", "list", "--sort", "-"]).is_err());
        assert_eq!(of(&listing(&[])), (String::new(), false));
    }

    #[test]
    fn a_limit_asks_for_no_more_and_in_the_order_that_is_shown() {
        let few = listing(&["--limit", "50", "--where", "age > 1m"]);
        assert_eq!(
            (few.page_size, few.sort.as_str(), few.r#where.as_str()),
            (50, "docid", "age > 1m")
        );
        assert_eq!(listing(&["--limit", "5000"]).page_size, 500);
    }

    #[test]
    fn a_page_of_more_than_a_thousand_is_a_usage_mistake() {
        let line = ["ringctl", "session", "list", "--page-size", "1001"];
        assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2);
    }
}
