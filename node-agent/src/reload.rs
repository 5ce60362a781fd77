//! SIGHUP, a reload: the class files are read again.

use crate::catalog::Catalog;
use rota_daemon::HangUp;
use std::path::{Path, PathBuf};

/// Reads the folder's classes at each SIGHUP, also one that came during the start, and gives them to the agent,
/// unless there is a mistake in them.
pub fn on_hang_up(mut hang_up: HangUp, folder: Option<PathBuf>, catalog: Catalog) {
    tokio::spawn(async move {
        loop {
            hang_up.came().await;
            match &folder {
                Some(folder) => read_again(folder, &catalog).await,
                None => tracing::warn!("SIGHUP: without --classes there is nothing to read again"),
            }
        }
    });
}

async fn read_again(folder: &Path, catalog: &Catalog) {
    let (from, reader) = (folder.to_owned(), catalog.clone());
    let read = tokio::task::spawn_blocking(move || reader.read(&from)).await;
    match read {
        Ok(Ok(offer)) => catalog.offer_local(offer).await,
        Ok(Err(mistakes)) => {
            mistakes.iter().for_each(|mistake| tracing::error!("{mistake}"));
            let (folder, mistakes) = (folder.display(), mistakes.len());
            tracing::error!(%folder, mistakes, "SIGHUP: the classes stay as they were");
        }
        Err(error) => tracing::error!(%error, "SIGHUP: the classes could not be read again"),
    }
}
