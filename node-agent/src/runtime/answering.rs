//! Whether a program that starts takes connections on its port, and nobody else does.

use rota_daemon::listeners::{is_held, is_seen_with, listeners};
use rota_daemon::processes::{self, descendants};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Shortest and longest pause between two tries to connect to a program that starts.
const PROBE_PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// The pause is this part of the time waited so far: a program is seen to be ready at most so much
/// later than it was, and one that takes long is not asked often.
const PROBE_PART: u32 = 16;

/// A connection on this machine stands at once or not at all; this only bounds a lost packet.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A port, and the session whose processes are to take its connections.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    /// Where the node listens.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
    /// The keeper: what descends from it is the session.
    pub keeper: i32,
    /// The first process of the program, as the keeper told it.
    pub program: i32,
}

/// Who takes the connections of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answerer {
    Nobody,
    Session,
    Stranger,
}

/// Where what listens at that address of the node is reached from here.
pub fn target(ip: IpAddr) -> IpAddr {
    if ip.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { ip }
}

impl Awaited {
    fn target(self) -> IpAddr {
        target(self.ip)
    }

    /// Every listener that a connection may reach must be the session's.
    fn answerer(self) -> Answerer {
        let found = listeners(self.program, self.target(), self.port).unwrap_or_default();
        if found.is_empty() {
            return Answerer::Nobody;
        }
        let all_held = |by: &[i32]| found.iter().all(|it| is_held(*it, by));
        // Most programs listen themselves; the others take a longer look.
        if all_held(&[self.program]) || all_held(&descendants(self.keeper)) {
            return Answerer::Session;
        }
        Answerer::Stranger
    }

    /// Waits until the session takes connections. Meanwhile `stranger` tells whether somebody else was seen
    /// to do so at the last look.
    pub async fn answers(self, stranger: &mut bool) {
        let began = Instant::now();
        loop {
            let tried =
                timeout(PROBE_TIMEOUT, TcpStream::connect((self.target(), self.port))).await;
            // On loopback a connection may take its own port to come from, and answer itself.
            let is_itself = |it: &TcpStream| it.local_addr().ok() == it.peer_addr().ok();
            if tried.is_ok_and(|it| it.is_ok_and(|it| !is_itself(&it))) {
                let looked = tokio::task::spawn_blocking(move || self.answerer()).await;
                match looked.unwrap_or(Answerer::Nobody) {
                    Answerer::Session => return,
                    Answerer::Nobody => *stranger = false,
                    Answerer::Stranger => *stranger = true,
                }
            }
            sleep((began.elapsed() / PROBE_PART).clamp(PROBE_PAUSE.0, PROBE_PAUSE.1)).await;
        }
    }

    /// Who else has the port, as far as can be seen, for people. Looks at every process of the machine.
    pub fn stranger_is(self) -> String {
        let ours = std::process::id().try_into().unwrap_or(self.keeper);
        let found = listeners(ours, self.target(), self.port).unwrap_or_default();
        let others = processes::all().into_iter().map(|it| it.process.pid);
        let mut holders = others.filter(|pid| found.iter().any(|it| is_seen_with(*it, *pid)));
        match holders.next() {
            Some(pid) => {
                let line = processes::command_line(pid);
                let program = line.first().map_or("?", String::as_str);
                format!("process {pid} ({program})")
            }
            None => "a process that this node cannot see".to_owned(),
        }
    }
}
