//! What keeps the records of a cluster's managers.

use super::layout::Settings;
use crate::failure::UsageMistake;
use clap::ValueEnum;
use rota_daemon::private::read_secret;
use std::path::{Path, PathBuf};

/// Longest URL of a server, as managers take it.
const URL_BYTES_MAX: usize = 4096;
const FLAG: &str = "--engine-url-file";

/// The engines that managers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum EngineName {
    /// Files of each manager's folder.
    Log,
    /// A schema for each manager, of one PostgreSQL server.
    Postgres,
}

/// The file with the server's URL that was asked for, its path whole.
pub fn url_file(settings: &Settings) -> Result<Option<PathBuf>, UsageMistake> {
    let mistake = |problem: &str| UsageMistake(format!("{FLAG} {problem}"));
    match (settings.engine, &settings.engine_url_file) {
        (_, None) => Ok(None),
        (Some(EngineName::Log), Some(_)) => {
            Err(mistake("is given, and --engine is log: it must be postgres"))
        }
        (Some(EngineName::Postgres) | None, Some(path)) => Ok(Some(checked(path)?)),
    }
}

/// Managers say more of what is wrong with it; here it is seen before anything is started.
fn checked(path: &Path) -> Result<PathBuf, UsageMistake> {
    read_secret(FLAG, path, URL_BYTES_MAX).map_err(|it| UsageMistake(it.to_string()))?;
    std::fs::canonicalize(path).map_err(|it| UsageMistake(format!("{FLAG}: {it}")))
}

/// What asks for another engine than a folder's cluster has.
pub fn difference(settings: &Settings, has_server: bool) -> Option<String> {
    let text = match (settings.engine, has_server) {
        (Some(EngineName::Log), true) => "--engine is log, but the folder's cluster has postgres",
        (Some(EngineName::Postgres), false) => {
            "--engine is postgres, but the folder's cluster has log"
        }
        (None, false) if settings.engine_url_file.is_some() => {
            "--engine-url-file is given, but the folder's cluster has engine log"
        }
        (Some(EngineName::Log), false) | (Some(EngineName::Postgres), true) | (None, _) => {
            return None;
        }
    };
    Some(text.to_owned())
}

/// Refuses a new cluster whose engine and file do not go together.
pub fn check_new(settings: &Settings) -> Result<(), UsageMistake> {
    let has_file = settings.engine_url_file.is_some();
    let problem = match settings.engine {
        Some(EngineName::Postgres) if !has_file => {
            "is missing: --engine postgres needs a file with the server's URL"
        }
        None if has_file => "is given without --engine postgres",
        Some(EngineName::Postgres | EngineName::Log) | None => return Ok(()),
    };
    Err(UsageMistake(format!("{FLAG} {problem}")))
}

#[cfg(test)]
mod tests {
    use super::super::layout::Folder;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_keeps_its_engine_and_takes_another_file() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("url");
        std::fs::write(&file, "postgresql://u@127.0.0.1/rota").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let data = root.path().join("data");
        let asked = |engine, file: Option<&PathBuf>| Settings {
            engine,
            engine_url_file: file.cloned(),
            ..Settings::default()
        };
        let told = |asked: &Settings| format!("{:#}", Folder::open(&data, asked).unwrap_err());
        let postgres = Some(EngineName::Postgres);
        assert!(told(&asked(postgres, None)).contains("--engine-url-file is missing"));
        assert!(told(&asked(None, Some(&file))).contains("without --engine postgres"));
        assert!(told(&asked(Some(EngineName::Log), Some(&file))).contains("--engine is log"));
        let nowhere = root.path().join("none");
        assert!(told(&asked(postgres, Some(&nowhere))).contains("cannot be read"));
        let mut folder = Folder::open(&data, &asked(postgres, Some(&file))).unwrap();
        folder.keep().unwrap();
        drop(folder);
        let again = Folder::open(&data, &Settings::default()).unwrap();
        let file = std::fs::canonicalize(&file).unwrap();
        assert_eq!(again.layout.engine_url_file, Some(file.clone()));
        drop(again);
        let error = told(&asked(Some(EngineName::Log), None));
        assert!(error.contains("the folder's cluster has postgres"), "{error}");
        Folder::open(&data, &asked(None, Some(&file))).unwrap();
    }
}
