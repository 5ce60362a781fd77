//! What keeps this manager's records.

use clap::ValueEnum;
use rota_daemon::private::{read_secret, secret_on_the_line};
use rota_model::FieldError;
use rota_storage_postgres::Address;
use std::path::PathBuf;

/// Longest URL of a server.
const URL_BYTES_MAX: usize = 4096;

/// The engines that a manager may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum EngineName {
    /// Files of the data folder.
    #[default]
    Log,
    /// A schema of a PostgreSQL server.
    Postgres,
}

/// Options for the engine.
#[derive(clap::Args, Debug, Default)]
pub struct EngineArguments {
    /// What keeps this manager's records: files of its data folder, or a schema of a PostgreSQL server. Bodies of
    /// attachments stay in the data folder.
    #[arg(long, value_enum, default_value = "log", value_name = "ENGINE")]
    pub engine: EngineName,
    /// File with the server's URL, postgresql://USER:PASSWORD@HOST:PORT/DATABASE. Nobody else may be able to read it.
    #[arg(long, value_name = "FILE")]
    pub engine_url_file: Option<PathBuf>,
    /// Refused: a command line is no place for a secret.
    #[arg(long, hide = true, allow_hyphen_values = true)]
    pub engine_url: Option<String>,
    /// Allow a PostgreSQL server outside of this machine, although nothing is encrypted on the way.
    #[arg(long)]
    pub insecure_engine: bool,
}

/// What keeps the records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum EngineOptions {
    /// Files of the data folder.
    #[default]
    Log,
    /// A schema of that server.
    Postgres(Box<Address>),
}

impl EngineArguments {
    pub(super) fn check(&self, wrong: &mut Vec<FieldError>) -> EngineOptions {
        let file_flag = "--engine-url-file";
        if self.engine_url.is_some() {
            wrong.push(secret_on_the_line("--engine-url", file_flag, None));
        }
        match (self.engine, &self.engine_url_file) {
            (EngineName::Log, None) => EngineOptions::Log,
            (EngineName::Log, Some(_)) => {
                let problem = "is given, and --engine is log: it must be postgres";
                wrong.push(FieldError::new(file_flag, problem));
                EngineOptions::Log
            }
            (EngineName::Postgres, None) => {
                let problem = "is missing: --engine postgres needs a file with the server's URL";
                wrong.push(FieldError::new(file_flag, problem));
                EngineOptions::Log
            }
            (EngineName::Postgres, Some(path)) => {
                let address = read_secret(file_flag, path, URL_BYTES_MAX)
                    .and_then(|url| Address::parse(file_flag, &url, self.insecure_engine));
                address.map_or_else(
                    |mistake| {
                        wrong.push(mistake);
                        EngineOptions::Log
                    },
                    |address| EngineOptions::Postgres(Box::new(address)),
                )
            }
        }
    }
}
