//! Where log lines go: standard error, as text or as JSON.

use crate::options::LogFormat;
use anyhow::{Context, Result};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Installs the process's log. `filter` was checked with the command line.
pub fn install(filter: &str, format: LogFormat) -> Result<()> {
    let filter = EnvFilter::try_new(filter).context("--log is no filter")?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| anyhow::anyhow!("the log could not be installed: {error}"))
}
