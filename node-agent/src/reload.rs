//! SIGHUP, a reload: the class files are read again.

use crate::mailbox::{Event, Mailbox};
use crate::offer::Offer;
use crate::sandbox::Ability;
use crate::settings::{mistakes_of_sandboxes, read_classes};
use anyhow::Context;
use rota_daemon::HangUp;
use std::path::{Path, PathBuf};

/// Reads the folder's classes at each SIGHUP and gives them to the agent, unless there is a mistake in them.
///
/// # Errors
/// The system gives no signal handlers.
pub fn on_hang_up(
    folder: Option<PathBuf>,
    ability: Ability,
    mailbox: Mailbox,
) -> anyhow::Result<()> {
    let mut hang_up = HangUp::listen().context("cannot listen for signals")?;
    tokio::spawn(async move {
        loop {
            hang_up.came().await;
            match &folder {
                Some(folder) => read_again(folder, &ability, &mailbox).await,
                None => tracing::warn!("SIGHUP: without --classes there is nothing to read again"),
            }
        }
    });
    Ok(())
}

async fn read_again(folder: &Path, ability: &Ability, mailbox: &Mailbox) {
    let from = folder.to_owned();
    let read = tokio::task::spawn_blocking(move || read_classes(&from)).await;
    // A class that is new must not get more rights than one that was there at the start.
    let read = read.map(|read| {
        read.and_then(|classes| match mistakes_of_sandboxes(ability, &classes) {
            mistakes if mistakes.is_empty() => Ok(classes),
            mistakes => Err(mistakes),
        })
    });
    match read {
        Ok(Ok(classes)) => {
            let offer = Offer::of(classes, ability);
            offer.tell();
            mailbox.give(Event::Classes(offer.classes)).await;
        }
        Ok(Err(mistakes)) => {
            mistakes.iter().for_each(|mistake| tracing::error!("{mistake}"));
            let (folder, mistakes) = (folder.display(), mistakes.len());
            tracing::error!(%folder, mistakes, "SIGHUP: the classes stay as they were");
        }
        Err(error) => tracing::error!(%error, "SIGHUP: the classes could not be read again"),
    }
}
