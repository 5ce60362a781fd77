//! Which ports a cluster takes.

use super::layout::Layout;
use crate::failure::UsageMistake;
use anyhow::bail;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Free ports are looked for in here: below what the kernel hands out for outgoing connections,
/// so that none of those takes a port between our look and the process that binds it.
const FREE_FIRST: u16 = 10_000;
const FREE_LAST: u16 = 32_000;
/// Free ports are taken in blocks that begin at a multiple of this.
const BLOCK: u16 = 64;

/// The ports of every process of a cluster.
#[derive(Debug)]
pub struct Ports {
    /// Managers' gRPC, in order of their numbers.
    pub grpc: Vec<SocketAddr>,
    /// Managers' HTTP.
    pub http: Vec<SocketAddr>,
    /// Nodes.
    pub nodes: Vec<SocketAddr>,
    /// The config store.
    pub store: SocketAddr,
    /// What a Consul agent needs besides: for its servers and for its gossip. Else empty.
    pub consul: Vec<SocketAddr>,
    /// Ports that other clusters with free ports must see as taken: those look at the first port
    /// of each block, and this holds them as long as the cluster lives.
    _guards: Vec<TcpListener>,
}

/// A port of this machine; 0 stands for a free one.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(loopback(port))
}

/// What each port is for, in order.
fn purposes(layout: &Layout) -> Vec<String> {
    let managers = &layout.managers;
    let grpc = managers.iter().map(|it| format!("gRPC of manager {}", it.id));
    let http = managers.iter().map(|it| format!("HTTP of manager {}", it.id));
    let nodes = layout.nodes.iter().map(|it| format!("node {it}"));
    let consul: &[&str] =
        if layout.consul { &["Consul's servers", "Consul's gossip"] } else { &[] };
    let store = ["config store"].iter().chain(consul).map(|it| (*it).to_owned());
    grpc.chain(http).chain(nodes).chain(store).collect()
}

fn divide(layout: &Layout, ports: &[u16], guards: Vec<TcpListener>) -> Ports {
    let mut all = ports.iter().copied().map(loopback);
    let (managers, nodes) = (layout.managers.len(), layout.nodes.len());
    Ports {
        grpc: all.by_ref().take(managers).collect(),
        http: all.by_ref().take(managers).collect(),
        nodes: all.by_ref().take(nodes).collect(),
        store: all.next().unwrap_or_else(|| loopback(0)),
        consul: all.collect(),
        _guards: guards,
    }
}

impl Ports {
    /// Finds the ports and makes sure that nobody listens there now.
    pub fn find(layout: &Layout) -> anyhow::Result<Self> {
        match layout.port_base {
            0 => Self::free(layout),
            base => Self::given(layout, base),
        }
    }

    fn given(layout: &Layout, base: u16) -> anyhow::Result<Self> {
        let purposes = purposes(layout);
        let last = usize::from(base) + purposes.len() - 1;
        if last > usize::from(u16::MAX) {
            let count = purposes.len();
            let text =
                format!("--port-base {base} leaves too few ports: the cluster needs {count}");
            bail!(UsageMistake(text));
        }
        let mut taken: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut hint =
            "is another `ringctl dev` running? Choose another --port-base, or 0 for free ports";
        for (port, purpose) in (base..).zip(&purposes) {
            if let Err(error) = bind(port) {
                if error.kind() == ErrorKind::PermissionDenied {
                    hint = "ports below 1024 are root's: choose another --port-base, or 0 for free ports";
                }
                taken.entry(error.to_string()).or_default().push(format!("{port} ({purpose})"));
            }
        }
        if !taken.is_empty() {
            let taken =
                taken.iter().map(|(why, ports)| format!("port {}: {why}", ports.join(", ")));
            let taken: Vec<String> = taken.collect();
            bail!("{}; {hint}", taken.join("; "));
        }
        let ports: Vec<u16> = (base..).take(purposes.len()).collect();
        Ok(divide(layout, &ports, Vec::new()))
    }

    fn free(layout: &Layout) -> anyhow::Result<Self> {
        let count = purposes(layout).len();
        // The first port of each block is its guard and stays with us.
        let blocks = count.div_ceil(usize::from(BLOCK) - 1);
        let choices = usize::from((FREE_LAST - FREE_FIRST) / BLOCK).saturating_sub(blocks);
        let random = uuid::Uuid::new_v4().as_fields().0;
        let starts = (FREE_FIRST..).step_by(usize::from(BLOCK)).take(choices);
        let first = random as usize % choices.max(1);
        for base in starts.clone().skip(first).chain(starts.take(first)) {
            if let Some((ports, guards)) = free_from(base, count) {
                return Ok(divide(layout, &ports, guards));
            }
        }
        bail!("no block of {count} free ports was found between {FREE_FIRST} and {FREE_LAST}")
    }
}

/// `count` free ports from `base` on, and the guards of their blocks.
fn free_from(base: u16, count: usize) -> Option<(Vec<u16>, Vec<TcpListener>)> {
    let (mut guards, mut held, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for port in base.. {
        if ports.len() == count {
            break;
        }
        let listener = bind(port).ok()?;
        if (port - base).is_multiple_of(BLOCK) {
            guards.push(listener);
        } else {
            held.push(listener);
            ports.push(port);
        }
    }
    Some((ports, guards))
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Folder, Settings};
    use super::*;

    fn layout(settings: Settings) -> Layout {
        let folder = tempfile::tempdir().unwrap();
        Folder::open(folder.path(), &settings).unwrap().layout
    }

    #[test]
    fn clusters_with_free_ports_never_share_one() {
        let layout = layout(Settings { port_base: Some(0), ..Settings::default() });
        let clusters: Vec<Ports> = (0..5).map(|_| Ports::find(&layout).unwrap()).collect();
        let mut all: Vec<u16> = Vec::new();
        for it in &clusters {
            assert_eq!((it.grpc.len(), it.http.len(), it.nodes.len()), (3, 3, 1));
            let ports = it.grpc.iter().chain(&it.http).chain(&it.nodes).chain([&it.store]);
            all.extend(ports.map(SocketAddr::port));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_port_in_use_is_named_with_what_it_was_for() {
        let holder = Ports::find(&layout(Settings { port_base: Some(0), ..Settings::default() }));
        let base = holder.unwrap().grpc[0].port();
        let taken = bind(base + 1).unwrap();
        let settings = Settings { port_base: Some(base), ..Settings::default() };
        let error = Ports::find(&layout(settings)).unwrap_err().to_string();
        let port = taken.local_addr().unwrap().port();
        assert!(error.contains(&format!("port {port} (gRPC of manager m2)")), "{error}");
        assert!(!error.contains("manager m1"), "{error}");
    }

    #[test]
    fn a_base_too_close_to_the_end_is_refused() {
        let settings = Settings { port_base: Some(65_530), ..Settings::default() };
        let error = Ports::find(&layout(settings)).unwrap_err().to_string();
        assert!(error.contains("65530") && error.contains('8'), "{error}");
    }
}
