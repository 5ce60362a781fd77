//! A node's programs under their keepers: what really runs, and how it ends.

use crate::counters::Fault;
use crate::event::{Event, Phase, ProgramStep};
use crate::ledger::{EndCause, Instance};
use crate::mutants::bug::Bug;
use crate::network::Place;
use crate::node_host::{Leaving, Program};
use crate::site::AtNode;
use rota_model::{Exit, Reason, SessionKey, Token};
use rota_node::{NodeInput, StopHow};
use std::collections::BTreeSet;

/// A start that takes longer than any run.
const HANGS_US: u64 = 100_000_000_000;

impl AtNode<'_> {
    /// The runtime starts a program, which may be slow or fail.
    pub fn start_program(&mut self, key: SessionKey, token: Token, not_after_mono_ms: u64) {
        let chaos = self.ground.phase == Phase::Chaos;
        let fails = chaos && self.ground.rng.permille(self.ground.setup.start_fails_permille);
        let slow = chaos && self.ground.rng.permille(40);
        if slow {
            self.ground.counters.fault(Fault::SlowStart);
        }
        let delay_us = if slow {
            self.ground.rng.within(100_000, 2_500_000)
        } else {
            self.ground.rng.skewed(200, 40_000)
        };
        let delay_us =
            if slow && self.bug() == Some(Bug::DeadlineIgnored) { HANGS_US } else { delay_us };
        let program =
            Program { instance: None, stopping: None, ready: false, fails, not_after_mono_ms };
        self.host.programs.insert((key.clone(), token), program);
        self.steps(delay_us, key, token, ProgramStep::Run);
    }

    /// A program of this boot takes its next step later.
    fn steps(&mut self, delay_us: u64, key: SessionKey, token: Token, step: ProgramStep) {
        let event = Event::Program(self.index, self.host.run, key, token, step);
        self.ground.queue.after(delay_us, event);
    }

    /// The runtime stops a program.
    pub fn stop_program(&mut self, key: SessionKey, token: Token, how: StopHow) {
        if is_of_lease(how) && self.ignores_lease() {
            return;
        }
        let Some(program) = self.host.programs.get_mut(&(key.clone(), token)) else { return };
        let before = program.stopping.filter(|before| !how.may_hasten(*before));
        program.stopping = Some(before.unwrap_or(how));
        let delay_us = match how {
            StopHow::Class | StopHow::Within(_) => self.ground.rng.skewed(200, 300_000),
            StopHow::Term => self.ground.rng.skewed(200, 900_000),
            StopHow::Kill => self.ground.rng.within(100, 3_000),
        };
        self.steps(delay_us, key, token, ProgramStep::Stopped);
    }

    /// A program takes its next step, and the agent is told.
    pub fn on_program(&mut self, key: SessionKey, token: Token, step: ProgramStep) {
        let now_us = self.ground.now_us();
        let name = (key.clone(), token);
        if step == ProgramStep::End && self.ground.phase != Phase::Chaos {
            return;
        }
        // A machine makes its steps in its agent.
        if matches!(step, ProgramStep::Change(_)) && self.host.agent.is_none() {
            return self.steps(50_000, key, token, step);
        }
        let host = &mut *self.host;
        let mono_ms = host.mono_ms(now_us);
        let Some(program) = host.programs.get_mut(&name) else { return };
        let input = match step {
            ProgramStep::Run => {
                let late = mono_ms > program.not_after_mono_ms || program.stopping.is_some();
                if program.instance.is_some() {
                    return;
                }
                if program.fails || late {
                    if program.fails {
                        self.ground.counters.fault(Fault::StartFailed);
                    }
                    host.programs.remove(&name);
                    let detail = "the simulator lets it fail".into();
                    self.tell_agent(NodeInput::StartFailed { key, token, detail });
                    return;
                }
                self.run_program(key, token)
            }
            ProgramStep::Ready if program.stopping.is_none() => {
                program.ready = true;
                let address = format!("{}/{token}", host.id);
                NodeInput::Ready { key, token, address }
            }
            ProgramStep::Change(change) if program.instance.is_some() => {
                self.ground.checker.ledger.on_change(program.instance, change);
                self.schedule_change(&key, token, change + 1);
                let state = format!("state-{change}");
                NodeInput::MachineState { key, token, state, change, told: true }
            }
            ProgramStep::End | ProgramStep::StartTimeout if program.stopping.is_none() => {
                let (cause, reason) = if step == ProgramStep::End {
                    self.ground.counters.fault(Fault::SessionEnded);
                    (EndCause::Own, Reason::Exited)
                } else {
                    (EndCause::StartTimeout, Reason::StartTimeout)
                };
                let instance = program.instance;
                host.programs.remove(&name);
                self.end_instance(instance, cause);
                let exit = Some(exit_of(token));
                NodeInput::Ended { key, token, reason, exit, detail: String::new() }
            }
            ProgramStep::Stopped => {
                let Some(how) = program.stopping else { return };
                let instance = program.instance;
                host.programs.remove(&name);
                let cause = self.stop_cause(&key, how);
                self.end_instance(instance, cause);
                if instance.is_some() { stopped(key, token, 15) } else { never_ran(key, token) }
            }
            ProgramStep::Ready
            | ProgramStep::Change(_)
            | ProgramStep::End
            | ProgramStep::StartTimeout => return,
        };
        self.tell_agent(input);
    }

    /// A machine that changed mostly changes again.
    fn schedule_change(&mut self, key: &SessionKey, token: Token, change: u64) {
        if self.ground.phase == Phase::Chaos && self.ground.rng.permille(700) {
            let delay_us = self.ground.rng.within(1_000, 800_000);
            self.steps(delay_us, key.clone(), token, ProgramStep::Change(change));
        }
    }

    fn stop_cause(&self, key: &SessionKey, how: StopHow) -> EndCause {
        if self.host.leaving != Leaving::No {
            return EndCause::Drained;
        }
        let slot = rota_ring::slot_of_session(key, self.ground.setup.m);
        let lease = self.host.agent.as_ref().map(|it| it.lease_of(slot));
        let over = lease.is_some_and(|it| it != rota_node::LeaseState::Valid);
        if is_of_lease(how) || over { EndCause::Lease } else { EndCause::Destroyed }
    }

    fn run_program(&mut self, key: SessionKey, token: Token) -> NodeInput {
        let now_us = self.ground.now_us();
        let chaos = self.ground.phase == Phase::Chaos;
        let (ready_at_once, never_ready) =
            (self.ground.rng.permille(500), self.ground.rng.permille(15));
        let never_ready = chaos && never_ready;
        let ends = chaos && self.ground.rng.permille(self.ground.setup.ends_permille);
        let changes = chaos && self.ground.rng.permille(150);
        let (node, boot) = self.host.name();
        let address = format!("{node}/{token}");
        let instance = self.ground.checker.ledger.instances.len();
        self.ground.checker.ledger.instances.push(Instance {
            key: key.clone(),
            node,
            boot,
            token,
            address: address.clone(),
            from_us: now_us,
            change: 0,
            to: None,
        });
        let (me, index, run) = (self.place(), self.index, self.host.run);
        self.ground.trace.mark((now_us, "run", index, token));
        self.ground.trace.line(now_us, me, || format!("RUNS {key} token {token}"));
        if let Some(program) = self.host.programs.get_mut(&(key.clone(), token)) {
            program.instance = Some(instance);
            program.ready = ready_at_once && !never_ready;
        }
        let ready = ready_at_once && !never_ready;
        let mut later = |delay_us: u64, step| {
            let event = Event::Program(index, run, key.clone(), token, step);
            self.ground.queue.after(delay_us, event);
        };
        if never_ready {
            later(self.ground.rng.within(50_000, 400_000), ProgramStep::StartTimeout);
        } else if !ready {
            later(self.ground.rng.skewed(500, 150_000), ProgramStep::Ready);
        }
        if changes {
            later(self.ground.rng.within(1_000, 300_000), ProgramStep::Change(1));
        }
        if ends && !never_ready {
            later(self.ground.rng.within(150_000, 3_000_000), ProgramStep::End);
        }
        NodeInput::Started { key, token, address, ready, remark: String::new() }
    }

    /// The observer notes the end of an execution.
    pub fn end_instance(&mut self, instance: Option<usize>, cause: EndCause) {
        let now_us = self.ground.now_us();
        let Some(instance) =
            instance.and_then(|it| self.ground.checker.ledger.instances.get_mut(it))
        else {
            return;
        };
        instance.to = Some((now_us, cause));
        let (key, token, boot) = (&instance.key, instance.token, instance.boot);
        let index = self.ground.machines.of_node(&instance.node).unwrap_or_default();
        self.ground.trace.mark((now_us, "end", index, token));
        let line = || format!("ENDS {key} token {token}: {cause:?}");
        self.ground.trace.line(now_us, Place::Node(index), line);
        self.ground.checker.ledger.actions.end_of(now_us, boot, token);
    }

    /// Whether programs outlive their lease.
    fn ignores_lease(&self) -> bool {
        self.bug() == Some(Bug::LeaseIgnored)
    }

    /// The keepers look at the lease: when it has passed, they end every program by themselves,
    /// whatever the agent does.
    pub fn on_keeper(&mut self) {
        let now_us = self.ground.now_us();
        let host = &mut *self.host;
        let (m, now_ms) = (self.ground.setup.m, host.mono_ms(now_us));
        let is_over = |key: &SessionKey| {
            let kill_at_ms = host.kill_at_ms(rota_ring::slot_of_session(key, m));
            kill_at_ms.is_some_and(|it| now_ms >= it)
        };
        let over = host.programs.keys().filter(|(key, _)| is_over(key));
        let over: BTreeSet<_> = over.cloned().collect();
        if self.ignores_lease() {
            return;
        }
        let programs: Vec<_> =
            self.host.programs.extract_if(.., |name, _| over.contains(name)).collect();
        if !programs.is_empty() {
            self.ground.counters.fault(Fault::LeaseKill);
        }
        for ((key, token), program) in programs {
            self.end_instance(program.instance, EndCause::Lease);
            let input = if program.instance.is_none() {
                let detail = "the lease passed".into();
                NodeInput::StartFailed { key, token, detail }
            } else if program.stopping.is_some() {
                stopped(key, token, 9)
            } else {
                let (reason, exit) = (Reason::LeaseNotRenewed, Some(Exit::Signal(9)));
                NodeInput::Ended { key, token, reason, exit, detail: String::new() }
            };
            self.tell_agent(input);
        }
    }
}

/// How a program ends by itself: its attempt decides, so that no rng is drawn for it.
fn exit_of(token: Token) -> Exit {
    match token.0.seq.0 % 3 {
        0 => Exit::Code(0),
        1 => Exit::Code(3),
        _ => Exit::Signal(11),
    }
}

/// No client here asks for a kill at once, so only a lease that is over does.
fn is_of_lease(how: StopHow) -> bool {
    match how {
        StopHow::Class | StopHow::Within(_) => false,
        StopHow::Term | StopHow::Kill => true,
    }
}

fn never_ran(key: SessionKey, token: Token) -> NodeInput {
    let detail = "it was stopped before it began".into();
    NodeInput::StartFailed { key, token, detail }
}

pub(crate) fn stopped(key: SessionKey, token: Token, signal: i32) -> NodeInput {
    let (exit, detail) = (Some(Exit::Signal(signal)), String::new());
    NodeInput::Stopped { key, token, exit, detail }
}
