//! What the runtime says of sessions.

use super::Node;
use super::calls::Attempt;
use crate::io::NodeInput;
use crate::live::{HeldState, Live, Stage, StopCause, Wants};
use rota_model::node_msg::{Blame, DeadToken, ReportEvent};
use rota_model::{Exit, Reason, SessionKey, Token};
use std::collections::VecDeque;

impl Node {
    pub(super) fn on_runtime(&mut self, now: u64, input: NodeInput) {
        match input {
            NodeInput::Started { key, token, address, ready, remark } => {
                self.live.change(&key, token, |live| live.remark = remark);
                self.on_running(&key, token, address, ready);
            }
            NodeInput::Ready { key, token, address } => self.on_ready(&key, token, address),
            NodeInput::StartFailed { key, token, detail } => {
                self.on_start_failed(now, &key, token, detail);
            }
            NodeInput::Ended { key, token, reason, exit, detail } => {
                self.on_end(now, &key, token, DeadToken::Ended { reason, exit, detail });
            }
            NodeInput::Stopped { key, token, exit, detail } => {
                self.on_stopped(now, &key, token, exit, &detail);
            }
            NodeInput::MachineState { key, token, state, change, told } => {
                self.on_machine_state(&key, token, HeldState { state, change, told });
            }
            acted @ NodeInput::Acted { .. } => self.on_acted(acted),
            NodeInput::Registered { .. }
            | NodeInput::Call { .. }
            | NodeInput::StreamClosed { .. }
            | NodeInput::Renewed { .. }
            | NodeInput::ReportsAcked { .. }
            | NodeInput::Reached
            | NodeInput::Leave
            | NodeInput::Tick => {}
        }
    }

    /// Answers the creates that wait, if this is the news that they wait for.
    fn on_running(&mut self, key: &SessionKey, token: Token, address: String, ready: bool) {
        let waiters = self.live.change(key, token, |live| match live.stage {
            Stage::Starting { .. } => {
                live.stage = Stage::Running;
                live.address = address;
                live.ready = ready;
                std::mem::take(&mut live.waiters)
            }
            Stage::Stopping { .. } => {
                live.address = address;
                VecDeque::new()
            }
            Stage::Running => VecDeque::new(),
        });
        for waiter in waiters.unwrap_or_default() {
            debug_assert!(waiter.wants == Wants::Create, "a destroy would have stopped it");
            if let Some(answer) = self.live.get(key).and_then(Live::running) {
                self.answer(waiter.stream, waiter.call, answer);
            }
        }
    }

    fn on_ready(&mut self, key: &SessionKey, token: Token, address: String) {
        match self.live.of(key, token).map(|it| (it.stage, it.ready)) {
            None | Some((Stage::Stopping { .. }, _) | (Stage::Running, true)) => {}
            Some((Stage::Starting { .. }, _)) => self.on_running(key, token, address, true),
            Some((Stage::Running, false)) => {
                let remark = self.live.change(key, token, |live| {
                    live.ready = true;
                    live.address.clone_from(&address);
                    live.remark.clone()
                });
                let remark = remark.unwrap_or_default();
                self.outbox.push(key, token, ReportEvent::Ready { address, remark });
            }
        }
    }

    fn on_start_failed(&mut self, now: u64, key: &SessionKey, token: Token, detail: String) {
        let live = self.live.of(key, token);
        // The agent that was to start it ended: that says nothing of the session.
        let blame = if live.is_some_and(|it| it.resumed) { Blame::Node } else { Blame::Session };
        let why = match live.map(|it| it.stage) {
            None => return,
            // The runtime said before that it runs, so "never" would not be true.
            Some(Stage::Running) => {
                DeadToken::Ended { reason: Reason::Internal, exit: None, detail }
            }
            Some(Stage::Stopping { cause, .. }) => {
                DeadToken::NeverStarted { blame: cause.blame(), detail }
            }
            Some(Stage::Starting { .. }) => DeadToken::NeverStarted { blame, detail },
        };
        self.on_end(now, key, token, why);
    }

    fn on_stopped(
        &mut self,
        now: u64,
        key: &SessionKey,
        token: Token,
        exit: Option<Exit>,
        detail: &str,
    ) {
        let Some(live) = self.live.of(key, token) else {
            return;
        };
        let why = ended_by(live, exit, detail);
        self.on_end(now, key, token, why);
    }

    fn on_end(&mut self, now: u64, key: &SessionKey, token: Token, why: DeadToken) {
        let Some(slot) = self.live.of(key, token).map(|it| it.slot) else {
            return;
        };
        self.finish(now, &Attempt { key, slot, token }, why);
    }

    fn on_machine_state(&mut self, key: &SessionKey, token: Token, now: HeldState) {
        let is_news = self.live.change(key, token, |live| {
            let is_later = live.machine.as_ref().is_none_or(|it| it.change < now.change);
            let wanted = live.destroyed_by.is_none() && is_later;
            if wanted {
                live.machine = Some(now.clone());
            }
            wanted
        });
        if is_news == Some(true) && now.told {
            let HeldState { state, change, .. } = now;
            self.outbox.push(key, token, ReportEvent::MachineState { state, change });
        }
    }
}

/// An end that was asked for: why, and then what its runtime says of it.
fn ended_by(live: &Live, exit: Option<Exit>, told: &str) -> DeadToken {
    let cause: Option<StopCause> = live.cause();
    let reason = cause.map_or(Reason::Exited, StopCause::reason);
    let why = cause.map_or("", StopCause::detail);
    let between = if why.is_empty() || told.is_empty() { "" } else { "; " };
    DeadToken::Ended { reason, exit, detail: format!("{why}{between}{told}") }
}
