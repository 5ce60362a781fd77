//! SIGHUP, a reload: the class files are read again.

use crate::mailbox::{Event, Mailbox};
use crate::settings::read_classes;
use anyhow::Context;
use rota_daemon::HangUp;
use std::path::{Path, PathBuf};

/// Reads the folder's classes at each SIGHUP and gives them to the agent, unless there is a mistake in them.
///
/// # Errors
/// The system gives no signal handlers.
pub fn on_hang_up(folder: Option<PathBuf>, mailbox: Mailbox) -> anyhow::Result<()> {
    let mut hang_up = HangUp::listen().context("cannot listen for signals")?;
    tokio::spawn(async move {
        loop {
            hang_up.came().await;
            match &folder {
                Some(folder) => read_again(folder, &mailbox).await,
                None => tracing::warn!("SIGHUP: without --classes there is nothing to read again"),
            }
        }
    });
    Ok(())
}

async fn read_again(folder: &Path, mailbox: &Mailbox) {
    let from = folder.to_owned();
    let read = tokio::task::spawn_blocking(move || read_classes(&from)).await;
    match read {
        Ok(Ok(classes)) => mailbox.give(Event::Classes(classes)).await,
        Ok(Err(mistakes)) => {
            mistakes.iter().for_each(|mistake| tracing::error!("{mistake}"));
            let (folder, mistakes) = (folder.display(), mistakes.len());
            tracing::error!(%folder, mistakes, "SIGHUP: the classes stay as they were");
        }
        Err(error) => tracing::error!(%error, "SIGHUP: the classes could not be read again"),
    }
}
