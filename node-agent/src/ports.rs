//! Free ports for programs.

use crate::mark::{Mark, unless_in_use};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use tokio::net::TcpSocket;

/// The ports that a node gives to programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRange(RangeInclusive<u16>);

impl PortRange {
    /// Reads `FROM-TO`.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ends = text.split_once('-').and_then(|(from, to)| {
            Some((from.trim().parse::<u16>().ok()?, to.trim().parse::<u16>().ok()?))
        });
        match ends {
            Some((from, to)) if from > 0 && from <= to => Ok(Self(from..=to)),
            Some(_) | None => Err(format!(
                "is {text:?}; it must be FROM-TO, two ports of 1 to 65535, as 30000-31999"
            )),
        }
    }

    /// How many ports it has.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The ports from which this machine takes those of outgoing connections, if some are in here too:
    /// such a connection may hold the port that a program was given.
    pub fn shared_with_outgoing(&self) -> Option<PortRange> {
        let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let mut ends = text.split_ascii_whitespace().map(str::parse::<u16>);
        let (from, to) = (ends.next()?.ok()?, ends.next()?.ok()?);
        let apart = to < *self.0.start() || from > *self.0.end();
        (!apart).then_some(Self(from..=to))
    }

    /// Every port once, from a drawn one on: nodes that share a range do not try the same ones.
    fn each_once(&self) -> impl Iterator<Item = u16> {
        let (first, count) = (u64::from(*self.0.start()), self.count() as u64);
        let begin = uuid::Uuid::new_v4().as_u64_pair().1 % count;
        let number = move |at: u64| u16::try_from(first + (begin + at) % count);
        (0..count).filter_map(move |at| number(at).ok())
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

/// A port that no other session on this machine is given while this value lives.
///
/// Between the choice and the program's own bind the port is free, and another node that looks for a
/// port meanwhile may find it too. So every node marks its choice.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// `None`: somebody else of this machine marked it while no agent of this node ran.
    _mark: Option<Mark>,
}

impl Port {
    /// Chooses a port of the range that is free on `host`, for TCP and for UDP.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub fn choose(host: IpAddr, range: &PortRange) -> Result<Self, String> {
        for number in range.each_once() {
            let taken = Self::take(host, number);
            match taken.map_err(|error| format!("port {number} cannot be used: {error}"))? {
                Some(port) => return Ok(port),
                None => continue,
            }
        }
        let count = range.count();
        Err(format!(
            "all {count} ports of --session-ports {range} are taken: by sessions of this machine's nodes, by \
             others, or for a minute after the end of a program that closed connections first (TIME_WAIT). \
             Close sessions, open them more slowly, or start the node with more ports"
        ))
    }

    /// `None` when somebody has it.
    fn take(host: IpAddr, number: u16) -> io::Result<Option<Self>> {
        let Some(mark) = Mark::take(&mark_name(number))? else { return Ok(None) };
        let is_free = unless_in_use(bind_strictly(SocketAddr::new(host, number)))?.is_some()
            && unless_in_use(UdpSocket::bind((host, number)))?.is_some();
        Ok(is_free.then_some(Self { number, _mark: Some(mark) }))
    }

    /// That of a program which runs: it has the port, and only the mark is taken again.
    pub fn again(number: u16) -> Self {
        let mark = Mark::take(&mark_name(number)).ok().flatten();
        if mark.is_none() {
            tracing::warn!(number, "the port of a program that runs has another mark");
        }
        Self { number, _mark: mark }
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Without reuse of an address that a closed connection still has: a program may not allow it either.
fn bind_strictly(address: SocketAddr) -> io::Result<()> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    socket?.bind(address)
}

fn mark_name(number: u16) -> String {
    format!("rota-port-{number}")
}

/// The ports of one program.
#[derive(Debug)]
pub struct Ports {
    /// Its address, when the class wants one.
    pub main: Option<Port>,
    /// The further ones, by name.
    pub named: BTreeMap<String, Port>,
}

impl Ports {
    /// Those of a program which runs.
    pub fn again(main: Option<u16>, named: &BTreeMap<String, u16>) -> Self {
        let named = named.iter().map(|(name, number)| (name.clone(), Port::again(*number)));
        Self { main: main.map(Port::again), named: named.collect() }
    }

    /// The numbers of the further ones.
    pub fn named_numbers(&self) -> BTreeMap<String, u16> {
        self.named.iter().map(|(name, port)| (name.clone(), port.number())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, TcpListener};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A range of that many ports, of which the first was free a moment ago; nobody else's tests use it.
    fn range(count: u16) -> PortRange {
        let first = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
        let first = first.min(u16::MAX - count);
        PortRange(first..=first + count - 1)
    }

    #[test]
    fn a_port_is_given_once_while_it_is_held() {
        let range = PortRange::parse("21000-29999").unwrap();
        let ports: Vec<Port> = (0..200).map(|_| Port::choose(HERE, &range).unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(numbers.iter().all(|it| (21_000..30_000).contains(it)));
        let first = ports[0].number();
        assert!(Mark::take(&mark_name(first)).unwrap().is_none());
        drop(ports);
        assert!(Mark::take(&mark_name(first)).unwrap().is_some());
    }

    #[test]
    fn the_ports_of_a_program_that_runs_are_held_again_although_they_are_in_use() {
        let program = TcpListener::bind((HERE, 0)).unwrap();
        let number = program.local_addr().unwrap().port();
        let named = BTreeMap::from([("admin".to_owned(), number)]);
        let ports = Ports::again(None, &named);
        assert_eq!(ports.named_numbers(), named);
        assert!(Mark::take(&mark_name(number)).unwrap().is_none());
        drop(ports);
        assert!(Mark::take(&mark_name(number)).unwrap().is_some());
    }

    #[test]
    fn taken_ports_are_passed_over_and_a_range_without_a_free_one_says_so() {
        let range = range(3);
        let (first, last) = (*range.0.start(), *range.0.end());
        // Somebody else may hold one of them, too.
        let _tcp = TcpListener::bind((HERE, first));
        let _udp = UdpSocket::bind((HERE, first + 1));
        let held = Port::choose(HERE, &range);
        if let Ok(port) = &held {
            assert_eq!(port.number(), last);
        }
        let error = Port::choose(HERE, &range).unwrap_err();
        let expected = format!("all 3 ports of --session-ports {first}-{last} are taken");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn a_range_is_two_ports_in_order() {
        assert_eq!(PortRange::parse("30000-31999").unwrap().count(), 2_000);
        assert_eq!(PortRange::parse("7-7").unwrap().count(), 1);
        for wrong in ["", "30000", "0-9", "9-8", "1-65536", "a-b", "1-2-3"] {
            let error = PortRange::parse(wrong).unwrap_err();
            assert!(error.contains("must be FROM-TO"), "{error}");
        }
    }

    #[test]
    fn a_range_that_outgoing_connections_use_is_told() {
        assert!(PortRange::parse("1-65535").unwrap().shared_with_outgoing().is_some());
        assert_eq!(PortRange::parse("1-2").unwrap().shared_with_outgoing(), None);
    }
}
