//! Connections to managers and sessions.
//!
//! Policy: up to [`CONNECTIONS_DEFAULT`] connections to each address, each opened when it is first
//! used. A call takes the connection with the fewest calls in flight, the first among equals: a
//! caller that does one thing at a time uses one connection, a busy one spreads over four (on
//! loopback four carried more than one and more than sixteen).

use rota_model::address::Address;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Most connections to one address unless configured.
pub const CONNECTIONS_DEFAULT: usize = 4;

/// HTTP/2 pings after this much silence; an answer must come within the same time. Without pings a
/// connection over a healed partition could hang for ever.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Most addresses whose connections are kept. Managers are at most 100; the rest are sessions'
/// addresses, which come and go.
const ADDRESSES_MAX: usize = 256;

/// What is wrong with a list of endpoints.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointsError {
    /// Nothing is listed.
    #[error("endpoint must name at least one manager, as host:port")]
    Empty,
    /// An entry is not `host:port`.
    #[error("endpoint {0:?} is not host:port")]
    NotAnAddress(String),
}

/// Splits a comma-separated list of `host:port` (an `http://` in front is accepted).
pub fn parse_endpoints(list: &str) -> Result<Vec<String>, EndpointsError> {
    let mut endpoints = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let address = entry.strip_prefix("http://").unwrap_or(entry).trim_end_matches('/');
        check_address(address)?;
        if !endpoints.iter().any(|it| it == address) {
            endpoints.push(address.to_owned());
        }
    }
    if endpoints.is_empty() { Err(EndpointsError::Empty) } else { Ok(endpoints) }
}

fn check_address(address: &str) -> Result<(), EndpointsError> {
    match Address::parse(address) {
        Some(_) => Ok(()),
        None => Err(EndpointsError::NotAnAddress(address.to_owned())),
    }
}

/// The connections to one address.
#[derive(Debug)]
struct Lines {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    channel: Channel,
    in_flight: Arc<AtomicUsize>,
}

/// A connection for one call. It counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pub(crate) channel: Channel,
    in_flight: Arc<AtomicUsize>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lines {
    fn new(address: &str, count: usize, connect_timeout: Duration) -> Result<Self, EndpointsError> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| EndpointsError::NotAnAddress(address.to_owned()))?
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true);
        let line = |_| Line { channel: endpoint.connect_lazy(), in_flight: Arc::default() };
        Ok(Self { lines: (0..count.max(1)).map(line).collect() })
    }

    fn borrow(&self) -> Borrowed {
        let load = |line: &&Line| line.in_flight.load(Ordering::Relaxed);
        let line = self.lines.iter().min_by_key(load).expect("made with at least one line");
        line.in_flight.fetch_add(1, Ordering::Relaxed);
        Borrowed { channel: line.channel.clone(), in_flight: line.in_flight.clone() }
    }
}

/// All connections of a client, by address.
#[derive(Debug)]
pub(crate) struct Connections {
    per_address: usize,
    connect_timeout: Duration,
    /// A lock because every clone of a client shares the connections; held for a look-up only.
    by_address: Mutex<BTreeMap<String, Arc<Lines>>>,
}

impl Connections {
    pub(crate) fn new(per_address: usize, connect_timeout: Duration) -> Self {
        Self { per_address, connect_timeout, by_address: Mutex::default() }
    }

    /// A connection to that address; nothing is sent yet. Needs a tokio runtime.
    pub(crate) fn to(&self, address: &str) -> Result<Borrowed, EndpointsError> {
        let mut known = self.by_address.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(lines) = known.get(address) {
            return Ok(lines.borrow());
        }
        check_address(address)?;
        if known.len() >= ADDRESSES_MAX {
            // Connections that calls still use live on in those calls.
            known.clear();
        }
        let lines = Arc::new(Lines::new(address, self.per_address, self.connect_timeout)?);
        let borrowed = lines.borrow();
        known.insert(address.to_owned(), lines);
        Ok(borrowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_endpoints_is_split_and_each_stands_once() {
        let list = parse_endpoints(" 127.0.0.1:7400, http://localhost:7401/ ,127.0.0.1:7400,");
        assert_eq!(list, Ok(vec!["127.0.0.1:7400".to_owned(), "localhost:7401".to_owned()]));
    }

    #[test]
    fn what_is_not_an_address_is_named() {
        assert_eq!(parse_endpoints(" , "), Err(EndpointsError::Empty));
        for wrong in ["7400", "host:", ":7400", "host:70000", "a/b:1"] {
            assert_eq!(
                parse_endpoints(wrong),
                Err(EndpointsError::NotAnAddress(wrong.to_owned())),
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn calls_spread_over_connections_only_while_others_are_in_flight() {
        let connections = Connections::new(2, Duration::from_secs(1));
        let flights = |it: &Borrowed| it.in_flight.load(Ordering::Relaxed);
        let first = connections.to("127.0.0.1:9").unwrap();
        let second = connections.to("127.0.0.1:9").unwrap();
        assert_eq!((flights(&first), flights(&second)), (1, 1));
        let third = connections.to("127.0.0.1:9").unwrap();
        assert_eq!((flights(&first), flights(&third)), (2, 2));
        drop((first, third));
        assert_eq!(flights(&second), 1);
    }
}
