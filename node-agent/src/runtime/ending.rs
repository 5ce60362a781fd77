//! How a program session came to its end, and what the node's decisions are told of it.

use super::last_words::last_words;
use super::running::Session;
use crate::keeper::order::Cause;
use rota_model::{Exit, Reason};
use rota_node::NodeInput;
use rota_node::class::ReadyWhen;
use rustix::process::Signal;
use std::net::SocketAddr;

/// Most addresses in a report on which a program listened.
const OPENED_SHOWN_MAX: usize = 8;

/// What there is to say of an end that no keeper told.
const KEEPER_KILLED: &str = "its keeper was killed, and it was killed too";

/// What ends a program that does not end when it is asked to.
const KILL: i32 = Signal::KILL.as_raw();

/// How it came to its end.
pub enum End {
    /// It was never started.
    Never(String),
    /// The keeper told its end.
    Told(Exit, Cause),
    /// The keeper was killed, and the program with it.
    KeeperDied(Option<Exit>),
}

/// How a program went on until its end.
pub struct Course {
    /// Somebody asked for its end.
    pub asked: bool,
    /// The time that it was given for that; 0: none.
    pub grace_ms: Option<u64>,
    /// It was not ready in time.
    pub timed_out: bool,
    /// It was ready.
    pub was_ready: bool,
    /// The port that it was given.
    pub port: Option<u16>,
    /// Who else has that.
    pub stranger: Option<String>,
    /// Where it listened when its time to start was over.
    pub opened: Vec<SocketAddr>,
    /// Which limit of its class it came up against.
    pub limit: Option<String>,
    /// Why it was found unwell, and ended for that.
    pub unwell: Option<String>,
}

impl Course {
    fn limit(&self) -> String {
        self.limit.as_ref().map(|it| format!("; {it}")).unwrap_or_default()
    }
}

impl Session {
    /// What the decisions are told of that end.
    pub fn news_of(&self, end: End, course: &Course) -> NodeInput {
        let (key, token) = (self.terms.key.clone(), self.terms.token);
        let (exit, cause) = match end {
            End::Never(detail) => {
                tracing::info!(%detail, "not started");
                return NodeInput::StartFailed { key, token, detail };
            }
            End::Told(exit, cause) => (Some(exit), Some(cause)),
            End::KeeperDied(exit) => (exit, None),
        };
        let shown = exit.as_ref().map_or("unknown".to_owned(), ToString::to_string);
        if course.asked {
            let detail = self.asked_to_end(exit.as_ref(), cause, course);
            tracing::info!(exit = shown, detail, "ended, as it was asked to");
            return NodeInput::Stopped { key, token, exit, detail };
        }
        let (reason, detail) = self.ended_unasked(exit.as_ref(), cause, course);
        // Whoever looks after a node looks for what did not end well.
        if course.was_ready && exit == Some(Exit::Code(0)) {
            tracing::info!(exit = shown, detail, "ended");
        } else {
            tracing::warn!(exit = shown, %reason, detail, "ended");
        }
        NodeInput::Ended { key, token, reason, exit, detail }
    }

    /// What there is to say of an end that was asked for: nothing, if it was in good order.
    fn asked_to_end(&self, exit: Option<&Exit>, cause: Option<Cause>, course: &Course) -> String {
        let stop = self.terms.stop.signal;
        let how = match (exit, course.grace_ms) {
            (None | Some(Exit::Code(0) | Exit::FinalState(_)), _) => return String::new(),
            _ if cause.is_none() => KEEPER_KILLED.to_owned(),
            (Some(Exit::Signal(signal)), _) if *signal == stop => return String::new(),
            // What a shell tells of a signal.
            (Some(Exit::Code(code)), _) if code - 128 == stop => return String::new(),
            (Some(Exit::Signal(KILL)), Some(0) | None) => return String::new(),
            (Some(Exit::Signal(KILL)), Some(grace_ms)) => {
                format!("it did not end when it was asked to (grace {grace_ms} ms), and was killed")
            }
            (Some(exit), _) => format!("asked to end, it ended with {exit}"),
        };
        format!("{how}{}", last_words(&self.folder))
    }

    fn ended_unasked(
        &self,
        exit: Option<&Exit>,
        cause: Option<Cause>,
        course: &Course,
    ) -> (Reason, String) {
        let words = || last_words(&self.folder);
        match cause {
            Some(Cause::Own | Cause::Stop) if course.unwell.is_some() => {
                let why = course.unwell.as_deref().unwrap_or_default();
                (Reason::Unhealthy, format!("{why}{}", words()))
            }
            None => (Reason::Internal, format!("{KEEPER_KILLED}{}", words())),
            Some(Cause::Lease) => {
                let detail = "no manager renewed the node's lease in time";
                (Reason::LeaseNotRenewed, detail.to_owned())
            }
            Some(Cause::Own | Cause::Stop) if course.timed_out => {
                (Reason::StartTimeout, format!("{}{}", self.too_slow(course), words()))
            }
            Some(Cause::Own | Cause::Stop) if !course.was_ready => {
                let taken = course.stranger.as_deref();
                let taken = taken.map(|it| format!("; {it} has its port")).unwrap_or_default();
                (
                    Reason::Exited,
                    format!("it ended before it was ready{taken}{}{}", course.limit(), words()),
                )
            }
            Some(Cause::Own | Cause::Stop) if exit == Some(&Exit::Code(0)) => {
                (Reason::Exited, String::new())
            }
            Some(Cause::Own | Cause::Stop) => (
                Reason::Exited,
                format!("it ended by itself after it was ready{}{}", course.limit(), words()),
            ),
        }
    }

    fn too_slow(&self, course: &Course) -> String {
        let port = course.port.map(|port| format!(" {port}")).unwrap_or_default();
        let awaited = match (&self.terms.ready, &course.stranger) {
            (ReadyWhen::Port, None) => format!("its port{port} did not answer"),
            (ReadyWhen::Port, Some(stranger)) => {
                format!("{stranger} listens on its port{port}, and no process of the session did")
            }
            (ReadyWhen::Line(text), _) => format!("it printed no line with {text:?}"),
        };
        let limit = self.terms.start_timeout_ms;
        let shown = course.opened.iter().take(OPENED_SHOWN_MAX).map(ToString::to_string);
        let shown: Vec<String> = shown.collect();
        let listens = match (course.opened.len().saturating_sub(shown.len()), shown.join(", ")) {
            (_, none) if none.is_empty() => "no port".to_owned(),
            (0, all) => all,
            (more, some) => format!("{some} and {more} more"),
        };
        format!("{awaited} within start_timeout ({limit} ms); it listened on {listens}")
    }
}
