//! The calls of an engine, each with a deadline.

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerState, ContainerStateStatusEnum};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptions, LogsOptions,
    RemoveContainerOptions, StartContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use tokio_stream::StreamExt;

/// How long a call may take. Longer, and an engine that hangs keeps others waiting. Shorter, and a start fails on a
/// busy machine.
const CALL_WAIT: Duration = Duration::from_secs(30);

/// How long an agent that is told to end may take: it gives its programs their grace. Then it is killed, and all in its
/// container with it.
const END_WAIT_S: i32 = 60;

/// After this nobody waits for what the engine makes of a call that is long over.
const LATE_WAIT: Duration = Duration::from_secs(600);

/// Most bytes of a container's output that are read.
const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Why a container was not made.
pub(super) enum Failure {
    /// There is one of that name.
    Conflict(String),
    /// There is no such image.
    Missing(String),
    /// Anything else.
    Other(String),
}

/// What a container does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It was made, and not started yet.
    Created,
    /// It runs, or stands still.
    Running,
    /// It has ended with that code.
    Ended(i64),
}

/// A container that was found.
pub(super) struct Found {
    pub(super) state: State,
    pub(super) labels: Option<HashMap<String, String>>,
}

/// An engine that answers.
pub(super) struct Engine {
    docker: Docker,
}

/// The answer, or why there is none in time.
async fn within<T>(
    what: &str,
    wait: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Error>, String> {
    tokio::time::timeout(wait, call)
        .await
        .map_err(|_| format!("the engine did not {what} within {wait:?}"))
}

/// What the engine answered, and its code of HTTP.
fn answered(error: &Error) -> Option<(u16, &str)> {
    if let Error::DockerResponseServerError { status_code, message } = error {
        return Some((*status_code, message));
    }
    None
}

fn text(what: &str, error: &Error) -> String {
    match answered(error) {
        Some((_, message)) => format!("the engine does not {what}: {}", message.trim()),
        None => format!("the engine does not {what}: {error}"),
    }
}

impl Engine {
    /// Asks the engine which version of its API it speaks.
    pub(super) async fn connect(socket: &Path) -> Result<Self, String> {
        let path = socket.to_str().ok_or("the path of the engine's socket is not UTF-8")?;
        let told = |error: Error| format!("no engine answers at {path}: {error}");
        // Each call has a deadline of its own; this one is above them all.
        let docker = Docker::connect_with_unix(path, LATE_WAIT.as_secs(), API_DEFAULT_VERSION);
        let docker = docker.map_err(told)?;
        let docker = within("answer", CALL_WAIT, docker.negotiate_version()).await?;
        Ok(Self { docker: docker.map_err(told)? })
    }

    /// Makes a container. When the engine takes longer than the deadline, what it makes in the end is removed.
    pub(super) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<(), Failure> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..Default::default() };
        let docker = self.docker.clone();
        let mut making =
            tokio::spawn(async move { docker.create_container(Some(options), body).await });
        let made = match tokio::time::timeout(CALL_WAIT, &mut making).await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(Failure::Other(format!("the task failed: {error}"))),
            Err(_) => {
                let docker = self.docker.clone();
                tokio::spawn(async move {
                    if let Ok(Ok(late)) = making.await {
                        // One that runs by now is somebody's, and stays.
                        let _ = docker.remove_container(&late.id, None).await;
                    }
                });
                let why = format!("the engine did not make a container within {CALL_WAIT:?}");
                return Err(Failure::Other(why));
            }
        };
        let Err(error) = made else { return Ok(()) };
        let why = text("make a container", &error);
        Err(match answered(&error) {
            Some((409, _)) => Failure::Conflict(why),
            Some((404, message)) => Failure::Missing(message.trim().to_owned()),
            Some(_) | None => Failure::Other(why),
        })
    }

    /// Starts a container; one that runs is left as it is.
    pub(super) async fn start(&self, name: &str) -> Result<(), String> {
        let what = "start the container";
        let call = self.docker.start_container(name, None::<StartContainerOptions>);
        within(what, CALL_WAIT, call).await?.map_err(|error| text(what, &error))
    }

    /// Looks at a container, if it is there.
    pub(super) async fn look(&self, name: &str) -> Result<Option<Found>, String> {
        let what = "show the container";
        let call = self.docker.inspect_container(name, None::<InspectContainerOptions>);
        match within(what, CALL_WAIT, call).await? {
            Ok(it) => {
                let labels = it.config.and_then(|it| it.labels);
                Ok(Some(Found { state: it.state.map_or(State::Created, state), labels }))
            }
            Err(error) if answered(&error).is_some_and(|it| it.0 == 404) => Ok(None),
            Err(error) => Err(text(what, &error)),
        }
    }

    /// The end of what a container printed.
    pub(super) async fn output(&self, name: &str) -> Result<Vec<u8>, String> {
        let options =
            LogsOptions { stdout: true, stderr: true, tail: "10".to_owned(), ..Default::default() };
        let mut lines = self.docker.logs(name, Some(options));
        let mut all = Vec::new();
        let read = async {
            while let Some(line) = lines.next().await {
                let (LogOutput::StdErr { message }
                | LogOutput::StdOut { message }
                | LogOutput::StdIn { message }
                | LogOutput::Console { message }) = line?;
                all.extend_from_slice(&message);
                if all.len() > OUTPUT_BYTES_MAX {
                    break;
                }
            }
            Ok(())
        };
        let what = "show what the container printed";
        within(what, CALL_WAIT, read).await?.map_err(|error| text(what, &error))?;
        Ok(all)
    }

    /// The containers with all of these labels, whatever they do.
    pub(super) async fn labelled(
        &self,
        labels: &[(String, String)],
    ) -> Result<Vec<String>, String> {
        let what = "list containers";
        let wanted = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let filters = Some(HashMap::from([("label".to_owned(), wanted)]));
        let options = ListContainersOptions { all: true, filters, ..Default::default() };
        let call = self.docker.list_containers(Some(options));
        let found = within(what, CALL_WAIT, call).await?.map_err(|error| text(what, &error))?;
        Ok(found.into_iter().filter_map(|it| it.id).collect())
    }

    /// Has a container end, and kills it after its grace. One that does not run, or is gone, is no failure.
    pub(super) async fn stop(&self, id: &str) -> Result<(), String> {
        let what = "stop the container";
        let options = StopContainerOptions { t: Some(END_WAIT_S), ..Default::default() };
        let wait = CALL_WAIT + Duration::from_secs(END_WAIT_S.unsigned_abs().into());
        let call = self.docker.stop_container(id, Some(options));
        gone_is_fine(what, within(what, wait, call).await?)
    }

    /// Removes a container with its volumes, and kills it if it runs. One that is gone is no failure.
    pub(super) async fn remove(&self, id: &str) -> Result<(), String> {
        let what = "remove the container";
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        let call = self.docker.remove_container(id, Some(options));
        gone_is_fine(what, within(what, CALL_WAIT, call).await?)
    }
}

fn gone_is_fine(what: &str, result: Result<(), Error>) -> Result<(), String> {
    match result {
        Err(error) if answered(&error).is_some_and(|it| it.0 == 404) => Ok(()),
        result => result.map_err(|error| text(what, &error)),
    }
}

fn state(it: ContainerState) -> State {
    if it.running == Some(true) {
        return State::Running;
    }
    if it.status == Some(ContainerStateStatusEnum::CREATED) {
        return State::Created;
    }
    State::Ended(it.exit_code.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_does_follows_from_what_the_engine_says_of_it() {
        let said = |running, status, code| {
            let status = Some(status);
            state(ContainerState {
                running: Some(running),
                status,
                exit_code: Some(code),
                ..Default::default()
            })
        };
        assert_eq!(said(true, ContainerStateStatusEnum::RUNNING, 0), State::Running);
        assert_eq!(said(true, ContainerStateStatusEnum::PAUSED, 0), State::Running);
        assert_eq!(said(false, ContainerStateStatusEnum::CREATED, 0), State::Created);
        assert_eq!(said(false, ContainerStateStatusEnum::EXITED, 2), State::Ended(2));
        assert_eq!(said(false, ContainerStateStatusEnum::DEAD, 137), State::Ended(137));
    }

    #[test]
    fn a_refusal_of_the_engine_is_told_in_its_words_and_what_is_gone_is_fine() {
        let refused = |status_code, message: &str| {
            Err(Error::DockerResponseServerError { status_code, message: message.to_owned() })
        };
        assert_eq!(gone_is_fine("remove it", refused(404, "No such container")), Ok(()));
        let told = gone_is_fine("remove it", refused(500, "device busy\n")).unwrap_err();
        assert_eq!(told, "the engine does not remove it: device busy");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_hangs_is_told_when_its_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let _hangs = tokio::net::UnixListener::bind(&socket).unwrap();
        let told = Engine::connect(&socket).await.err().unwrap();
        assert_eq!(told, "the engine did not answer within 30s");
    }

    #[tokio::test]
    async fn where_no_engine_listens_its_socket_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let told = Engine::connect(&socket).await.err().unwrap();
        assert!(told.contains("no engine answers at") && told.contains("engine.sock"), "{told}");
    }
}
