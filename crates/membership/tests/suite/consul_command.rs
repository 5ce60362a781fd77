//! How tests run a real Consul server. The black-box tests take this file, too.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A loopback address that nobody else takes between two runs: so ports can be the usual ones.
pub fn own_loopback() -> Ipv4Addr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // 16 addresses for each of the 2^18 processes that ran last; no byte is 0 or 255, for a network's
    // own address and its broadcast are looked at with suspicion.
    let mine = std::process::id() * 16 + COUNT.fetch_add(1, Ordering::Relaxed) % 16;
    let byte = |it: u32| u8::try_from(it % 254 + 1).expect("it is at most 254");
    let [high, middle, low] = [mine / (254 * 254) % 64, mine / 254, mine];
    Ipv4Addr::new(127, 100 + byte(high), byte(middle), byte(low))
}

/// The command line of the server at `ip`, with the usual ports there. `servers`: the addresses of all,
/// this one's included.
pub fn server(ip: Ipv4Addr, servers: &[Ipv4Addr], data: &Path) -> Command {
    let text = ip.to_string();
    let mut command = Command::new("consul");
    command.args(["agent", "-server", "-node", &format!("n{text}"), "-log-level", "info"]);
    command.args(["-bind", &text, "-advertise", &text, "-client", &text, "-serf-wan-port", "-1"]);
    command.args(["-dns-port", "-1", "-grpc-port", "-1"]);
    command.args(["-bootstrap-expect", &servers.len().to_string()]);
    // Elections within a second or two, not ten.
    command.args(["-hcl", "performance { raft_multiplier = 1 }"]);
    command.args(["-hcl", "disable_update_check = true"]);
    command.arg("-data-dir").arg(data);
    for other in servers.iter().filter(|it| **it != ip) {
        command.args(["-retry-join", &other.to_string(), "-retry-interval", "1s"]);
    }
    command
}
