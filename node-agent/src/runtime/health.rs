//! Whether a session that is READY is still well. The agent looks, and not the keeper: it knows by what (the terms of the
//! session, which a later agent has, too), and without an agent nobody could be told. Failed looks in a row are counted
//! anew by each agent.

use super::answering::target;
use super::care::{Care, Check};
use super::program_settings::ProgramSettings;
use super::terms::Terms;
use crate::actions::{Gate, beside, run};
use crate::keeper::once::{OnceEnd, OnceOrder};
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rota_model::Exit;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

/// One session that is looked after.
pub struct Patient {
    /// What all programs share.
    pub settings: Arc<ProgramSettings>,
    /// By what it runs.
    pub terms: Terms,
    /// The session's folder.
    pub folder: PathBuf,
    /// Through here its looks go.
    pub gate: Gate,
}

impl Patient {
    /// Looks again and again; gives the last failure once there were too many in a row. `None`: it is being ended, or
    /// nobody is to look.
    pub async fn until_unwell(self) -> Option<String> {
        let care = self.terms.care.clone()?;
        let begin = tokio::time::Instant::now() + Duration::from_millis(care.after_ms);
        let mut times = interval_at(begin, Duration::from_millis(care.every_ms.max(1)));
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failures, mut is_told) = (0, false);
        loop {
            tokio::select! {
                _ = times.tick() => {}
                () = self.gate.ending() => return None,
            }
            let looked = tokio::select! {
                looked = self.look(&care) => looked,
                // A program that looks is killed by the gate, and waited for.
                () = self.ending_without(&care) => return None,
            };
            if self.gate.is_shut() {
                return None;
            }
            let why = match looked {
                Look::Well => {
                    (failures, is_told) = (0, false);
                    continue;
                }
                Look::Unmade(why) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(session = %self.terms.key, why, "this node cannot look whether it is well");
                    }
                    continue;
                }
                Look::Unwell(why) => why,
            };
            is_told = false;
            failures += 1;
            tracing::info!(session = %self.terms.key, failures, why, "a look found it unwell");
            if failures >= care.failures {
                return Some(format!("{failures} looks in a row failed, the last one so: {why}"));
            }
        }
    }

    /// A look without a process of its own is dropped at once.
    async fn ending_without(&self, care: &Care) {
        match care.check {
            Check::Program(_) => std::future::pending().await,
            Check::Port | Check::Http(_) => self.gate.ending().await,
        }
    }

    async fn look(&self, care: &Care) -> Look {
        // Not part of its time: that is the session's.
        let _permit = self.settings.actions.looks().acquire().await;
        let _own = self.settings.in_use.own_look(&self.terms);
        let limit = Duration::from_millis(care.timeout_ms);
        let looks = async {
            match (&care.check, self.address()) {
                (Check::Program(argv), _) => self.look_by_program(care, argv).await,
                (Check::Port | Check::Http(_), Err(why)) => Look::Unmade(why),
                (Check::Port, Ok(address)) => connect(address).await,
                (Check::Http(path), Ok(address)) => get(address, path).await,
            }
        };
        match care.check {
            // Its program is killed at its time, and waited for.
            Check::Program(_) => looks.await,
            Check::Port | Check::Http(_) => timeout(limit, looks).await.unwrap_or_else(|_| {
                Look::Unwell(format!("no answer within {} ms", care.timeout_ms))
            }),
        }
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let port = self.terms.port.ok_or("the session has no port")?;
        Ok(SocketAddr::from((target(self.settings.ip), port)))
    }

    async fn look_by_program(&self, care: &Care, argv: &[String]) -> Look {
        let beside = match beside(&self.settings, &self.folder, &self.terms, "look") {
            Ok(beside) => beside,
            Err(why) => return Look::Unmade(why),
        };
        let (argv, timeout_ms) = (argv.to_vec(), care.timeout_ms);
        let order = OnceOrder { argv, timeout_ms, ..beside };
        let end = run(&order, &self.settings, &self.gate).await;
        by_program(end, &order.argv[0], timeout_ms)
    }
}

/// What a look at a session found.
#[derive(PartialEq, Eq, Debug)]
enum Look {
    Well,
    /// Why it is not well.
    Unwell(String),
    /// Why the node could not look. That says nothing of the session.
    Unmade(String),
}

/// What a program found that looks. `None`: its minder was killed.
fn by_program(end: Option<OnceEnd>, program: &str, limit_ms: u64) -> Look {
    let said = |report: String| if report.is_empty() { report } else { format!(": {report}") };
    match end {
        Some(OnceEnd::Ended { exit: Exit::Code(0), .. }) => Look::Well,
        Some(OnceEnd::Ended { exit, report, .. }) => {
            Look::Unwell(format!("{program} ended with {exit}{}", said(report)))
        }
        Some(OnceEnd::TimedOut(report)) => {
            Look::Unwell(format!("{program} did not end within {limit_ms} ms{}", said(report)))
        }
        Some(OnceEnd::TooMuch(report)) => {
            Look::Unwell(format!("it printed too much{}", said(report)))
        }
        Some(OnceEnd::NotStarted(why)) => Look::Unmade(why),
        Some(OnceEnd::Cancelled) => Look::Unmade("it is being ended".to_owned()),
        None => Look::Unmade(format!("{program} was killed with its minder")),
    }
}

async fn connect(address: SocketAddr) -> Look {
    match TcpStream::connect(address).await {
        Ok(_) => Look::Well,
        Err(error) if is_of_node(&error) => Look::Unmade(error.to_string()),
        Err(error) => Look::Unwell(format!("its port takes no connection: {error}")),
    }
}

/// Whether an error says that this node has no room for one more connection.
fn is_of_node(error: &(dyn std::error::Error + 'static)) -> bool {
    use rustix::io::Errno;
    let full = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    let causes = std::iter::successors(Some(error), |it| it.source());
    let mut codes = causes.filter_map(|it| it.downcast_ref::<std::io::Error>()?.raw_os_error());
    codes.any(|code| full.iter().any(|it| it.raw_os_error() == code))
}

/// No redirect is followed, and no proxy asked. The connection ends with the answer.
async fn get(address: SocketAddr, path: &str) -> Look {
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.pool_max_idle_per_host(0).build_http::<Empty<Bytes>>();
    let url = format!("http://{address}{path}");
    let url: http::Uri = match url.parse() {
        Ok(url) => url,
        Err(error) => return Look::Unmade(format!("{path} is no path: {error}")),
    };
    let status = match client.get(url).await {
        Ok(answer) => answer.status(),
        Err(error) if is_of_node(&error) => return Look::Unmade(shown(&error)),
        Err(error) => return Look::Unwell(shown(&error)),
    };
    match status.is_success() || status.is_redirection() {
        true => Look::Well,
        false => Look::Unwell(format!("GET {path} was answered with {status}")),
    }
}

/// The error and what caused it: the first one alone says little.
fn shown(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |it| it.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_look_that_the_node_cannot_make_says_nothing_of_the_session() {
        let of = |end| by_program(end, "look", 9);
        let ended = |exit| Some(OnceEnd::Ended { exit, output: None, report: "cold".to_owned() });
        assert_eq!(of(ended(Exit::Code(0))), Look::Well);
        assert_eq!(
            of(ended(Exit::Code(1))),
            Look::Unwell("look ended with exit code 1: cold".into())
        );
        assert!(matches!(of(Some(OnceEnd::TimedOut(String::new()))), Look::Unwell(_)));
        assert_eq!(of(Some(OnceEnd::NotStarted("no pid".into()))), Look::Unmade("no pid".into()));
        assert!(matches!(of(None), Look::Unmade(_)));
        let too_many = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
        assert_eq!((is_of_node(&too_many), is_of_node(&refused)), (true, false));
    }
}
