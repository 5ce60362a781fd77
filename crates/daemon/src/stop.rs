//! The signals that end a process in good order.

use tokio::signal::unix::{Signal, SignalKind, signal};

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
    pub fn listen() -> std::io::Result<Self> {
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
    use rustix::process::{Signal, getpid, kill_process};
    use std::time::Duration;

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
