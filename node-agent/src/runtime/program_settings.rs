//! What all programs of a node share.

use super::in_use::InUse;
use super::orphans::Keepers;
use crate::actions::Actions;
use crate::kept_output::Outputs;
use crate::limits::Limiter;
use crate::observe::Listing;
use crate::ports::PortRange;
use crate::sandbox::Sandboxes;
use rota_daemon::Log;
use std::net::IpAddr;
use std::path::PathBuf;

/// What all programs of a node share.
#[derive(Debug)]
pub struct ProgramSettings {
    /// The data folder.
    pub data: PathBuf,
    /// The lease file.
    pub lease: PathBuf,
    /// The folder of session folders.
    pub sessions: PathBuf,
    /// The host in the addresses of programs.
    pub host: String,
    /// The address on which ports are chosen and tried.
    pub ip: IpAddr,
    /// The ports to choose from.
    pub ports: PortRange,
    /// Most bytes kept of each of a program's outputs.
    pub output_bytes_max: u64,
    /// Bytes that they leave free of the disk.
    pub disk_reserve_bytes: u64,
    /// Until KILL when the lease has run out.
    pub lease_grace_ms: u64,
    /// No lease of this node goes on for longer.
    pub lease_ms_max: u64,
    /// Names of variables of this process's environment that programs get, too.
    pub env_pass: Vec<String>,
    /// What programs are kept from.
    pub sandboxes: Sandboxes,
    /// Limit of open files that the agent itself was started with.
    pub open_files: Option<u64>,
    /// What this machine can hold programs to.
    pub limiter: Limiter,
    /// What runs beside programs.
    pub actions: Actions,
    /// Whose connections are looked for.
    pub in_use: InUse,
    /// Where the end of what programs printed goes.
    pub outputs: Outputs,
    /// Keepers that run.
    pub keepers: Keepers,
    /// What runs, for operators.
    pub listing: Listing,
    /// The node's log, which keepers share.
    pub log: Log,
}
