//! The signals that end a process in good order, and a process that they do not end.

use nix::sys::signal::SigSet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From here on this thread blocks no signal, nor does what it starts. Who starts a process may hand on blocked
/// signals, and a signal that is blocked never comes.
pub fn unblock_signals() {
    if let Err(error) = SigSet::empty().thread_set_mask() {
        tracing::warn!(%error, "signals that were blocked at the start stay blocked");
    }
}

/// From here on SIGTERM, SIGINT and SIGHUP do not end this process: for one that guards another, which
/// needs it until its own end. Who stops a service or a machine sends them to everybody at once.
///
/// They have handlers and are not ignored, so what this process starts takes them as ever. A wait that
/// one interrupts must go on.
///
/// # Errors
/// The system gives no signal handlers.
pub fn outlive_stop_signals() -> io::Result<()> {
    unblock_signals();
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // Nobody asks whether it came.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// The wish that this process ends.
#[derive(Debug)]
pub struct Stop(Vec<(&'static str, Signal)>);

impl Stop {
    /// SIGTERM, SIGINT (Ctrl-C) and SIGHUP (its terminal closed). From here on these signals no longer end
    /// this process by themselves. Needs a tokio runtime; fails when the system gives no signal handlers.
    pub fn listen() -> io::Result<Self> {
        let mut stop = Self::but_for_hang_up()?;
        stop.0.push(("SIGHUP", signal(SignalKind::hangup())?));
        Ok(stop)
    }

    /// The same without SIGHUP, for a process to which that means something else.
    pub fn but_for_hang_up() -> io::Result<Self> {
        unblock_signals();
        let terminate = ("SIGTERM", signal(SignalKind::terminate())?);
        Ok(Self(vec![terminate, ("SIGINT", signal(SignalKind::interrupt())?)]))
    }

    /// The same with all others that people send to end a process (SIGQUIT is Ctrl-\\), for one that must not
    /// leave behind what it started.
    pub fn whatever_ends() -> io::Result<Self> {
        let mut stop = Self::listen()?;
        let others = [
            ("SIGQUIT", SignalKind::quit()),
            ("SIGALRM", SignalKind::alarm()),
            ("SIGUSR1", SignalKind::user_defined1()),
            ("SIGUSR2", SignalKind::user_defined2()),
        ];
        for (name, kind) in others {
            stop.0.push((name, signal(kind)?));
        }
        Ok(stop)
    }

    /// Resolves at the next such signal, with its name. May be dropped and called again.
    pub async fn wished(&mut self) -> &'static str {
        poll_fn(|context| {
            let mut all = self.0.iter_mut();
            let came = all.find_map(|(name, it)| it.poll_recv(context).is_ready().then_some(*name));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// SIGHUP, for a process to which it means that it is to read its files again.
#[derive(Debug)]
pub struct HangUp(Signal);

impl HangUp {
    /// From here on the signal does not end this process. As [`Stop::listen`].
    pub fn listen() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Resolves at the next one; several that came meanwhile are one.
    pub async fn came(&mut self) {
        // It has no end.
        self.0.recv().await;
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
        let mut stop = Stop::whatever_ends().unwrap();
        for (signal, name) in [
            (Signal::TERM, "SIGTERM"),
            (Signal::INT, "SIGINT"),
            (Signal::HUP, "SIGHUP"),
            (Signal::QUIT, "SIGQUIT"),
            (Signal::USR1, "SIGUSR1"),
        ] {
            kill_process(getpid(), signal).unwrap();
            let wished = tokio::time::timeout(Duration::from_secs(20), stop.wished()).await;
            assert_eq!(wished, Ok(name));
        }
    }
}
