//! Starts nodes as containers of an engine on this machine, such as Docker, over its UNIX socket.
//!
//! ```text
//!   start ── create ─▶ created ── start ─▶ running ── the agent registers by itself
//!   end   ── stop, with grace ─▶ exited ── remove ─▶ nothing is left
//! ```
//! A container has a name that follows from its node, and labels of its cluster, pool and node ([`container`]). So a
//! repetition finds what was done, and `end` finds what is left. Nothing is ever pulled. Every call of the engine has
//! a deadline ([`engine`]).

mod container;
mod engine;

pub use container::{DockerOptions, HOST_NETWORK, Mount};

use crate::{ClusterOptions, NewNode, OldNode, Provision, Work, last_words};
use container::{is_of, labels, name_of};
use engine::{Engine, Failure, Found, State};
use rota_model::NodeId;
use std::time::Duration;
use tokio::time::Instant;

/// How many containers are started or ended at a time. More, and an engine on a small machine only swaps.
const AT_ONCE: usize = 16;

/// A node that ends sooner than this has not started: a wrong image, a wrong option. Longer, and each start waits for
/// it. Shorter, and such an end is told only when the node is overdue.
const EARLY_END: Duration = Duration::from_secs(1);

/// How long a name may be taken with no container to see. Longer, and a start hangs. Shorter, and one that comes
/// while another manager makes the container fails.
const NAME_WAIT: Duration = Duration::from_secs(30);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The provisioner of one image.
pub struct Containers {
    /// The engine, the image, and what containers of it get.
    pub options: DockerOptions,
    /// What every node is told.
    pub cluster: ClusterOptions,
}

impl Provision for Containers {
    fn start(&self, it: NewNode) -> Work<'_> {
        Box::pin(async move { self.start_one(&it).await.map_err(|why| self.told(&it.node, why)) })
    }

    fn end(&self, it: OldNode) -> Work<'_> {
        Box::pin(async move { self.end_one(&it).await.map_err(|why| self.told(&it.node, why)) })
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }
}

impl Containers {
    fn told(&self, node: &NodeId, why: String) -> String {
        format!("image {} for node {node}: {why}", self.options.image)
    }

    async fn start_one(&self, it: &NewNode) -> Result<(), String> {
        self.options.reaches(&it.managers)?;
        let name = name_of(&self.cluster.cluster, &it.node)?;
        let engine = Engine::connect(&self.options.socket).await?;
        if self.makes(&engine, &name, it).await? {
            return Ok(());
        }
        if let Err(why) = engine.start(&name).await {
            return Err(self.cleared(&engine, &name, why).await);
        }
        tracing::info!(node = %it.node, container = name, "a node was started");
        self.survives(&engine, &name).await
    }

    /// Makes the node's container, or finds it. `true`: it runs already.
    async fn makes(&self, engine: &Engine, name: &str, it: &NewNode) -> Result<bool, String> {
        let until = Instant::now() + NAME_WAIT;
        loop {
            let why = match engine.create(name, self.options.container(&self.cluster, it)).await {
                Ok(()) => return Ok(false),
                Err(Failure::Conflict(why)) => why,
                Err(Failure::Missing(why)) => return Err(self.no_image(&why)),
                Err(Failure::Other(why)) => return Err(why),
            };
            if let Some(found) = engine.look(name).await? {
                return self.runs(found, name, it, &why);
            }
            // The name is taken before its container is there, and for a moment after it has gone.
            if Instant::now() >= until {
                return Err(why);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether what stands under that name is the node and runs. `false`: it was made, and not started yet.
    fn runs(&self, found: Found, name: &str, it: &NewNode, why: &str) -> Result<bool, String> {
        let cluster = &self.cluster.cluster;
        if !found.labels.is_some_and(|labels| is_of(&labels, cluster, &it.node)) {
            return Err(format!("{why}; that container is not this node's: remove or rename it"));
        }
        match found.state {
            State::Running => Ok(true),
            State::Created => Ok(false),
            State::Ended(code) => Err(format!(
                "container {name} has ended with code {code}, and a node is started once"
            )),
        }
    }

    fn no_image(&self, why: &str) -> String {
        let (image, socket) = (&self.options.image, self.options.socket.display());
        format!(
            "the engine at {socket} says: {why}; images are never pulled here: have `docker pull {image}` \
             or deploy/docker/build put it there"
        )
    }

    /// Waits a moment, and tells what a container said that ended in it. Nothing of that one is left.
    async fn survives(&self, engine: &Engine, name: &str) -> Result<(), String> {
        let until = Instant::now() + EARLY_END;
        loop {
            let found = engine.look(name).await?;
            match found.map(|it| it.state) {
                Some(State::Ended(code)) => {
                    let said = engine.output(name).await.unwrap_or_default();
                    let why = format!(
                        "its container ended at once with code {code}; it said: {}",
                        last_words(&said)
                    );
                    return Err(self.cleared(engine, name, why).await);
                }
                Some(State::Running | State::Created) => {}
                None => return Err("its container was removed at once by somebody".to_owned()),
            }
            if Instant::now() >= until {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Removes a container that was of no use. Gives why, and what else went wrong.
    async fn cleared(&self, engine: &Engine, name: &str, why: String) -> String {
        match engine.remove(name).await {
            Ok(()) => why,
            Err(left) => format!("{why}; and container {name} is left: {left}"),
        }
    }

    /// Ends and removes each container that says by its labels that it is the node's.
    async fn end_one(&self, it: &OldNode) -> Result<(), String> {
        let engine = Engine::connect(&self.options.socket).await?;
        for id in engine.labelled(&labels(&self.cluster.cluster, &it.node)).await? {
            tracing::info!(node = %it.node, container = id, "what is left of a node is told to end");
            // What cannot be stopped is killed and removed all the same.
            if let Err(why) = engine.stop(&id).await {
                tracing::warn!(node = %it.node, container = id, why, "a container was not stopped");
            }
            engine.remove(&id).await?;
        }
        Ok(())
    }
}
