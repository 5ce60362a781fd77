//! Whether a session that is READY is still well. The agent looks, and not the keeper: it knows by what (the terms of the
//! session, which a later agent has, too), and without an agent nobody could be told. Failed looks in a row are counted
//! anew by each agent.

use super::ProgramSettings;
use super::answering::target;
use super::terms::Terms;
use crate::actions::{Gate, beside, run};
use crate::keeper::once::{OnceEnd, OnceOrder};
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rota_model::Exit;
use rota_node::class::{Health, HealthCheck, StartError, Values};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

/// How a session is looked after, as it is written down for a later agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Care {
    check: Check,
    every_ms: u64,
    timeout_ms: u64,
    failures: u32,
    after_ms: u64,
}

/// What is looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Check {
    /// Its port takes a connection.
    Port,
    /// A GET of that path is answered well.
    Http(String),
    /// A program ends well.
    Program(Vec<String>),
}

impl Care {
    /// As the class says, for a session with these values.
    ///
    /// # Errors
    /// What is missing for it.
    pub fn of(
        health: &Health,
        class: &rota_node::class::Class,
        values: &Values<'_>,
    ) -> Result<Self, StartError> {
        let program = health.command(class, values)?;
        let check = match (&health.check, program) {
            (HealthCheck::Port, _) => Check::Port,
            (HealthCheck::Http(path), _) => Check::Http(path.clone()),
            (HealthCheck::Program(_), argv) => Check::Program(argv.unwrap_or_default()),
        };
        let Health { every_ms, timeout_ms, failures, after_ms, .. } = *health;
        Ok(Self { check, every_ms, timeout_ms, failures, after_ms })
    }
}

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
        let mut failures = 0;
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
            let Err(why) = looked else {
                failures = 0;
                continue;
            };
            if self.gate.is_shut() {
                return None;
            }
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

    async fn look(&self, care: &Care) -> Result<(), String> {
        // Not part of its time: that is the session's.
        let _permit = self.settings.actions.looks().acquire().await;
        let _own = self.settings.in_use.own_look(&self.terms);
        let limit = Duration::from_millis(care.timeout_ms);
        let late = |_| format!("no answer within {} ms", care.timeout_ms);
        match &care.check {
            Check::Port => {
                let connect = timeout(limit, TcpStream::connect(self.address()?));
                let tried = connect.await.map_err(late)?;
                tried.map(drop).map_err(|error| format!("its port takes no connection: {error}"))
            }
            Check::Http(path) => timeout(limit, get(self.address()?, path)).await.map_err(late)?,
            Check::Program(argv) => self.look_by_program(care, argv).await,
        }
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let port = self.terms.port.ok_or("the session has no port")?;
        Ok(SocketAddr::from((target(self.settings.ip), port)))
    }

    async fn look_by_program(&self, care: &Care, argv: &[String]) -> Result<(), String> {
        let order = OnceOrder {
            argv: argv.to_vec(),
            timeout_ms: care.timeout_ms,
            ..beside(&self.settings, &self.folder, &self.terms, "look")?
        };
        let said = |report: String| if report.is_empty() { report } else { format!(": {report}") };
        match run(&order, &self.settings, &self.gate).await {
            Some(OnceEnd::Ended { exit: Exit::Code(0), .. }) => Ok(()),
            Some(OnceEnd::Ended { exit, report, .. }) => {
                Err(format!("{} ended with {exit}{}", argv[0], said(report)))
            }
            Some(OnceEnd::TimedOut(report)) => {
                let limit = care.timeout_ms;
                Err(format!("{} did not end within {limit} ms{}", argv[0], said(report)))
            }
            Some(OnceEnd::NotStarted(why)) => Err(why),
            Some(OnceEnd::TooMuch(report)) => Err(format!("it printed too much{}", said(report))),
            Some(OnceEnd::Cancelled) => Err("it is being ended".to_owned()),
            None => Err(format!("{} was killed with its minder", argv[0])),
        }
    }
}

/// No redirect is followed, and no proxy asked. The connection ends with the answer.
async fn get(address: SocketAddr, path: &str) -> Result<(), String> {
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.pool_max_idle_per_host(0).build_http::<Empty<Bytes>>();
    let url = format!("http://{address}{path}");
    let url: http::Uri = url.parse().map_err(|error| format!("{path} is no path: {error}"))?;
    let answer = client.get(url).await.map_err(|error| shown(&error))?;
    let status = answer.status();
    match status.is_success() || status.is_redirection() {
        true => Ok(()),
        false => Err(format!("GET {path} was answered with {status}")),
    }
}

/// The error and what caused it: the first one alone says little.
fn shown(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |it| it.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// How much of them is of use to people that read a file of terms.
#[cfg(test)]
pub fn care_by_port(every_ms: u64, failures: u32) -> Care {
    Care { check: Check::Port, every_ms, timeout_ms: 1_000, failures, after_ms: 0 }
}
