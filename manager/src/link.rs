//! Connections that a manager opens: to its peers and to nodes.

use rota_docstore::WRITTEN_BYTES_MAX;
use std::error::Error;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Largest message between managers, and between managers and nodes. A batch ends at 256 KiB or
/// with the first message beyond; those that carry documents end at `Sizes::message_bytes`, or with
/// the first document or operation beyond. What a copy reports of its tail, and a page of a scan, are
/// bounded by counts.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
const _: () = assert!(MESSAGE_BYTES_MAX as u64 >= 2 * WRITTEN_BYTES_MAX);

/// Below the time after which silence is a suspicion: a host that does not even answer to a
/// connection is no faster found out by waiting longer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(800);

/// A connection whose other end is gone without a word (a power cut, a healed partition) must not
/// look alive for longer than interval + timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Flow control window of a stream, at both ends: large enough that a batch never waits for a
/// window update.
pub const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// The same of a connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// Why a connection could not be opened.
#[derive(Debug)]
pub struct ConnectFailed {
    /// The port refuses: no process listens there.
    pub refused: bool,
    /// For people.
    pub text: String,
}

/// Whether an error was at bottom a refused connection.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// Text of an error and of everything below it.
pub fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// Opens a connection to `address` (`host:port`).
pub async fn connect(address: &str) -> Result<Channel, ConnectFailed> {
    let failed = |error: tonic::transport::Error| ConnectFailed {
        refused: is_refused(&error),
        text: with_sources(&error),
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(failed)?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    endpoint.connect().await.map_err(failed)
}

/// Pauses between attempts to connect: none at first, then 20 ms, doubling to one second.
#[derive(Debug, Default)]
pub struct BackOff {
    failures: u32,
}

impl BackOff {
    const FIRST_MS: u64 = 20;
    const MOST_MS: u64 = 1_000;

    /// The pause before the next attempt.
    pub fn next(&mut self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(10);
        let pause = if self.failures == 0 { 0 } else { Self::FIRST_MS << doublings };
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(pause.min(Self::MOST_MS))
    }

    /// The other end answered: the next break is tried again at once.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second_and_begin_anew_after_an_answer() {
        let mut back_off = BackOff::default();
        let pauses: Vec<u128> = (0..9).map(|_| back_off.next().as_millis()).collect();
        assert_eq!(pauses, [0, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        back_off.reset();
        assert_eq!(back_off.next(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_told_apart_from_other_failures() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let free = listener.local_addr().unwrap().to_string();
        drop(listener);
        let failed = connect(&free).await.unwrap_err();
        assert!(failed.refused, "{failed:?}");
        let failed = connect("no such host:1").await.unwrap_err();
        assert!(!failed.refused, "{failed:?}");
    }
}
