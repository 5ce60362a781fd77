//! Whether this agent goes on with the boot of the one before it.
//!
//! It does when the earlier one ran here (this boot of the kernel, this pid namespace, this folder), was reached
//! where this one is, and left a whole journal. Else everything that it left is ended, and a new boot begins.

use crate::boots::Boots;
use crate::data_folder::DataFolder;
use crate::journal::{Found, Journal};
use crate::lease::Leases;
use crate::runtime::adoptable;
use anyhow::{Context, bail, ensure};
use rota_model::address::Address;
use rota_node::{Node, NodeConfig, NotResumed};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A boot that goes on.
pub struct Resumed {
    /// Its decisions.
    pub node: Node,
    /// The folders of programs that it goes on with.
    pub spare: BTreeSet<PathBuf>,
}

/// Where to listen: a port that is left to the system is the one that managers know, if that is free.
pub fn listen(wanted: SocketAddr, data: &Path) -> Vec<SocketAddr> {
    if wanted.port() != 0 {
        return vec![wanted];
    }
    let known = match Journal::read(data) {
        Ok(Some(found)) => Address::parse(&found.address).map(|it| it.port()),
        Ok(None) | Err(_) => None,
    };
    let known = known.map(|port| SocketAddr::new(wanted.ip(), port));
    known.into_iter().chain([wanted]).collect()
}

/// The boot to go on with; `None` when there is none. Its log says why not, where something may have run.
pub fn resume(
    folder: &DataFolder,
    boots: &Boots,
    config: &NodeConfig,
    address: &str,
) -> Option<Resumed> {
    let found = match Journal::read(folder.path()) {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!("what an earlier agent left cannot go on: {error:#}");
            return None;
        }
    };
    match go_on(found, folder, boots, config, address) {
        Ok(resumed) => resumed,
        Err(error) => {
            tracing::warn!("what an earlier agent left cannot go on: {error:#}");
            None
        }
    }
}

fn go_on(
    found: Found,
    folder: &DataFolder,
    boots: &Boots,
    config: &NodeConfig,
    address: &str,
) -> anyhow::Result<Option<Resumed>> {
    let Some(last) = boots.last_here() else {
        bail!(
            "it ran under another boot of the kernel, in another pid namespace or another folder"
        );
    };
    let first = found.entries.first().and_then(|it| it.boot());
    let (boot, ended_boots) = first.context("its journal does not begin with a boot")?;
    ensure!(boot == last, "its journal is of boot {boot}, and the last one was {last}");
    let was_at = &found.address;
    ensure!(
        was_at == address,
        "managers reach it at {was_at}, and this agent listens at {address}"
    );
    let ended_boots = ended_boots.to_vec();
    // Without a lease nothing lives for which one is needed.
    let leases = Leases::read(&folder.lease()).unwrap_or_default();
    let leases = leases.within(config.timing.lease_term_ms, config.timing.lease_kill_ms);
    let config = NodeConfig { boot, ended_boots, ..config.clone() };
    let node = match Node::resumed(config, found.entries, &leases.slots()) {
        Ok(node) => node,
        Err(NotResumed::NeverRegistered) => return Ok(None),
        Err(error @ (NotResumed::NoBoot | NotResumed::Lost | NotResumed::NoLease)) => {
            return Err(error.into());
        }
    };
    let folders = adoptable(folder.path())?;
    let lives = |it: rota_node::LiveSession<'_>| folders.get(&(it.key.clone(), it.token)).cloned();
    let spare = node.live().filter_map(lives).collect();
    let sessions = node.live().count();
    tracing::info!(%boot, sessions, "going on with the boot of the agent before this one");
    Ok(Some(Resumed { node, spare }))
}
