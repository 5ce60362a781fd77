//! Managers that come into an assembled cluster.

use super::{Assembled, PATIENCE, command_line};
use crate::launched::Launched;
use tokio::time::timeout;

/// A manager that was started outside of the ring, with a folder of its own.
#[derive(Debug)]
pub struct Newcomer {
    id: String,
    line: Vec<String>,
    grpc: String,
    runs: Option<Launched>,
}

impl Newcomer {
    /// Where it takes requests.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }

    /// Kills it and waits until it is gone.
    pub async fn kill(&mut self) {
        self.runs.take().expect("it runs").kill().await;
    }

    /// Starts it with its own command line and folder.
    pub async fn start(&mut self, cluster: &Assembled) {
        self.runs = Some(Launched::again(&cluster.folder, &self.id, &self.line).await);
    }

    /// Fails unless it ends well by itself, as one whose number has left.
    pub async fn has_left(self) {
        let ended = timeout(PATIENCE, self.runs.expect("it runs").ended()).await;
        assert_eq!(ended, Ok(Some(0)), "{} has left", self.id);
    }
}

impl Assembled {
    /// Starts one more manager, which waits outside. Each has a number of its own from 0 on.
    pub async fn newcomer(&self, count: u16) -> Newcomer {
        let (id, ip, port) = (format!("newcomer-{count}"), self.places.nodes, 7500 + 2 * count);
        let line = command_line(&self.folder, &self.places, 0, &id, (ip, port), &["--join"]);
        let mut newcomer = Newcomer { id, line, grpc: format!("{ip}:{port}"), runs: None };
        newcomer.start(self).await;
        newcomer
    }
}
