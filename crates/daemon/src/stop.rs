//! The signals that end a process in good order, and a process that they do not end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From here on SIGTERM, SIGINT and SIGHUP do not end this process: for one that guards another, which
/// needs it until its own end. Who stops a service or a machine sends them to everybody at once.
///
/// They have handlers and are not ignored, so what this process starts takes them as ever. A wait that
/// one interrupts must go on.
///
/// # Errors
/// The system gives no signal handlers.
pub fn outlive_stop_signals() -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // Nobody asks whether it came.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// The wish that this process ends: SIGTERM, SIGINT (Ctrl-C) or SIGHUP (its terminal closed).
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Stop {
    /// From here on these signals no longer end this process by themselves. Needs a tokio
    /// runtime; fails when the system gives no signal handlers.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves at the next such signal, with its name. May be dropped and called again.
    pub async fn wished(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, getpid, kill_process};
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    #[test]
    fn a_process_that_outlives_the_signals_hands_them_on_to_what_it_starts() {
        outlive_stop_signals().unwrap();
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            kill_process(getpid(), signal).unwrap();
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
            kill_process(pid, signal).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        }
    }

    #[tokio::test]
    async fn each_of_the_signals_is_a_wish_and_none_ends_the_process() {
        let mut stop = Stop::listen().unwrap();
        for (signal, name) in
            [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT"), (Signal::HUP, "SIGHUP")]
        {
            kill_process(getpid(), signal).unwrap();
            let wished = tokio::time::timeout(Duration::from_secs(20), stop.wished()).await;
            assert_eq!(wished, Ok(name));
        }
    }
}
