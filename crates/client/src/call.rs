//! One call from its first attempt to its answer or its deadline.

use crate::attempt::Call;
use crate::error::{CallError, causes};
use crate::retry::{self, Attempts, Failure, Step, is_cut_off};
use crate::routing::Routes;
use crate::session::{Client, OnWait};
use rota_model::{Changed, RefusalKind, SlotId};
use rota_proto::v1;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{ConnectError, Request, Status};
use tracing::Instrument;

/// Longest wait for a View; a manager that does not give one at once is passed over.
const VIEW_WAIT: Duration = Duration::from_secs(1);

/// An answer and who gave it.
pub(crate) struct Answered<A> {
    pub(crate) answer: A,
    pub(crate) endpoint: Arc<str>,
}

/// Where an attempt begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Index of the entry that is asked, over all endpoints, without wrapping.
    pub(crate) entry: usize,
    /// Go to the owner by the View.
    pub(crate) may_route: bool,
}

/// Where the attempts of one call stand.
struct Progress {
    began: Instant,
    deadline: Instant,
    attempts: u32,
    /// Index of the entry that is asked, over all endpoints, without wrapping.
    entry: usize,
    /// False once the owner of the View was tried in vain: entries know newer Views.
    may_route: bool,
    failed: Attempts,
    last: Option<CallError>,
    /// The reason that the caller was told last while it waits.
    told: String,
}

impl Progress {
    fn new(entry: usize, wait: Duration, may_change: bool) -> Self {
        let began = Instant::now();
        let deadline = began + wait;
        Self {
            began,
            deadline,
            attempts: 0,
            entry,
            may_route: true,
            failed: Attempts::new(may_change),
            last: None,
            told: String::new(),
        }
    }

    fn tell(&mut self, failed: &CallError, on_wait: OnWait) {
        if self.told != failed.reason() {
            failed.reason().clone_into(&mut self.told);
            on_wait(failed);
        }
    }

    /// The error at the deadline: the last one that says more than "time is up".
    fn out_of_time(self, endpoint: &str) -> CallError {
        let (waited, attempts, changed) =
            (self.deadline - self.began, self.attempts, self.failed.changed());
        let endpoint = endpoint.to_owned();
        let nothing = || CallError::TimedOut { endpoint, waited, attempts, changed };
        self.last.map_or_else(nothing, |it| it.with_changed(changed))
    }
}

/// What a status means: Rota's own refusal or exception if it carries one.
pub(crate) fn failure(status: &Status) -> Failure {
    if let Some(exception) = rota_proto::documents::exception(status) {
        return Failure::Raised(Box::new(exception));
    }
    if status.details().is_empty() {
        // Of gRPC itself or of something between: not a decision of Rota.
        let is_unsent = causes(status).any(|it| it.is::<ConnectError>());
        return Failure::Broken { code: status.code(), message: what_broke(status), is_unsent };
    }
    Failure::Refused(Box::new(rota_proto::refusal::refusal(status)))
}

/// The status's text, and the error at the bottom of what caused it: "tcp connect error" alone
/// does not tell a refused connection from a host that is away.
fn what_broke(status: &Status) -> String {
    let text = match status.message() {
        "" => status.code().description(),
        said => said,
    };
    let bottom = causes(status).last();
    match bottom.map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        Some(_) | None => text.to_owned(),
    }
}

/// `changed`: what is known of all attempts.
pub(crate) fn error(
    failure: Failure,
    endpoint: &str,
    attempts: u32,
    changed: Changed,
) -> CallError {
    let endpoint = endpoint.to_owned();
    let error = match failure {
        Failure::Refused(refusal) => CallError::Refused { refusal, endpoint, attempts },
        Failure::Raised(exception) => CallError::Raised { exception, endpoint, attempts, changed },
        Failure::Broken { code, message, is_unsent: _ } => {
            CallError::Broken { code, message, endpoint, attempts, changed }
        }
    };
    error.with_changed(changed)
}

impl Client {
    /// Sends a call until it is answered, finally refused, or `wait` is over. What is logged on
    /// the way stands in a span with the request id, which managers and nodes log too.
    pub(crate) async fn call<C: Call>(
        &self,
        request: C,
        wait: Duration,
    ) -> Result<Answered<C::Answer>, CallError> {
        let span = tracing::debug_span!("call", kind = C::NAME, request = request.request_id());
        self.until_answered(request, wait).instrument(span).await
    }

    async fn until_answered<C: Call>(
        &self,
        request: C,
        wait: Duration,
    ) -> Result<Answered<C::Answer>, CallError> {
        let mut progress = Progress::new(self.endpoints.next_entry(), wait, request.may_change());
        loop {
            let slot = |m| request.slot(m);
            progress.entry = self.endpoints.awake(progress.entry, progress.deadline).await;
            let route = Route { entry: progress.entry, may_route: progress.may_route };
            let endpoint = self.target(&slot, route, progress.deadline).await;
            progress.attempts += 1;
            let sent = self.attempt(&endpoint, request.clone(), progress.deadline).await?;
            let failure = match sent {
                None => {
                    progress.failed.add(Changed::Unknown);
                    return Err(self.out_of_time(progress, &endpoint));
                }
                Some(Ok(answer)) => {
                    tracing::debug!(%endpoint, attempts = progress.attempts, "answered");
                    return Ok(Answered { answer, endpoint });
                }
                Some(Err(failure)) => failure,
            };
            progress.failed.add(failure.changed());
            let step = match failure.changed() {
                Changed::Unknown if !request.may_repeat() => Step::Stop,
                Changed::Unknown | Changed::No => {
                    retry::after(&failure, progress.attempts, self.endpoints().len())
                }
            };
            let at_deadline = Instant::now() >= progress.deadline;
            let timer = at_deadline && matches!(failure, Failure::Broken { .. });
            if timer {
                return Err(self.out_of_time(progress, &endpoint));
            }
            // That one of several is not there says less than what another one answered.
            let is_unreached = matches!(failure, Failure::Broken { is_unsent: true, .. });
            let says_less = is_unreached && self.has_answer(&progress);
            let changed = progress.failed.changed();
            let failed = error(failure, &endpoint, progress.attempts, changed);
            let Step::Again { pause, elsewhere, refresh } = step else {
                return Err(self.given_up(failed, progress.entry));
            };
            if Instant::now() + pause >= progress.deadline {
                // That the time is up says less than what stood in the way before.
                let is_late = failed.reason() == RefusalKind::DeadlineExceeded.as_str();
                if says_less || (is_late && progress.last.is_some()) {
                    return Err(self.out_of_time(progress, &endpoint));
                }
                return Err(self.given_up(failed, progress.entry));
            }
            tracing::debug!(reason = failed.reason(), %endpoint, ?pause, "sending again: {failed}");
            if let Some(on_wait) = self.on_wait().filter(|_| !pause.is_zero()) {
                progress.tell(&failed, on_wait);
            }
            if !says_less {
                progress.last = Some(failed);
            }
            if refresh {
                self.routes.mark_stale();
                progress.may_route = progress.attempts.is_multiple_of(2);
            }
            if elsewhere {
                self.endpoints.leave(progress.entry);
                progress.entry = progress.entry.wrapping_add(1);
            }
            sleep(pause).await;
        }
    }

    /// Whether the last that is known of this call is an answer, and of one endpoint of several.
    fn has_answer(&self, progress: &Progress) -> bool {
        let last = progress.last.as_ref();
        let answered = last
            .is_some_and(|it| matches!(it, CallError::Refused { .. } | CallError::Raised { .. }));
        answered && self.endpoints().len() > 1
    }

    /// Nobody answered in time. The next call begins elsewhere.
    fn out_of_time(&self, progress: Progress, endpoint: &str) -> CallError {
        self.endpoints.leave(progress.entry);
        progress.out_of_time(endpoint)
    }

    /// The caller gets this failure. If it is of a manager that may be cut off, the next call begins
    /// elsewhere.
    fn given_up(&self, failed: CallError, entry: usize) -> CallError {
        if matches!(&failed, CallError::Refused { refusal, .. } if is_cut_off(refusal.kind)) {
            self.endpoints.leave(entry);
        }
        failed
    }

    /// Sends once. `None`: the deadline passed first.
    async fn attempt<C: Call>(
        &self,
        endpoint: &str,
        request: C,
        deadline: Instant,
    ) -> Result<Option<Result<C::Answer, Failure>>, CallError> {
        let borrowed = self.endpoints.connect_to(endpoint)?;
        let mut request = Request::new(request);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let sent = timeout_at(deadline, C::send(request, borrowed.channel.clone())).await;
        Ok(sent.ok().map(|sent| match sent {
            Ok(response) => {
                self.endpoints.heard_at(endpoint);
                Ok(response.into_inner())
            }
            Err(status) => {
                if causes(&status).next().is_none() {
                    self.endpoints.heard_at(endpoint);
                }
                Err(failure(&status))
            }
        }))
    }

    /// Whom to ask about a slot: the owner when routing is on and its View is known, else the
    /// entry.
    pub(crate) async fn target(
        &self,
        slot: &(dyn Fn(u32) -> Option<SlotId> + Sync),
        route: Route,
        deadline: Instant,
    ) -> Arc<str> {
        let entry = self.endpoints.at(route.entry);
        if !self.routes_by_view() || slot(1).is_none() {
            return entry;
        }
        if self.routes.should_fetch(std::time::Instant::now()) {
            let until = (Instant::now() + VIEW_WAIT).min(deadline);
            let asked = self.attempt(&entry, v1::InspectRequest {}, until).await;
            if let Ok(Some(Ok(v1::InspectResponse { view: Some(view), .. }))) = asked {
                self.routes.put(Routes::of(&view));
            }
        }
        if !route.may_route {
            return entry;
        }
        let Some(routes) = self.routes.routes() else {
            return entry;
        };
        slot(routes.m()).and_then(|slot| routes.owner_address(slot)).unwrap_or(entry)
    }
}
