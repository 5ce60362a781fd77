//! What may fill this manager's memory, beside documents.

use super::number;
use rota_daemon::accept::{ANSWERS_BYTES_MAX, ONE_BYTES};
use rota_model::FieldError;
use rota_protocol::Sizes;

/// What two connections may have.
const ANSWERS_BYTES_MIN: u64 = 2 * ONE_BYTES as u64;
/// A thousand sessions with the largest attributes.
const SESSIONS_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Options for memory.
#[derive(clap::Args, Debug, Default)]
pub struct MemoryArguments {
    /// What answers to clients may fill until they are read, in bytes, those of one connection 8 MiB of it. Calls
    /// beyond it wait, and are refused after 10 s [default: 256 MiB].
    #[arg(long, value_name = "BYTES")]
    pub answers_bytes_max: Option<String>,
    /// Most bytes of records of sessions in all copies at this manager, those of the last ten minutes that have
    /// ended included. Opens beyond it are refused; the same at all managers [default: 1 GiB].
    #[arg(long, value_name = "BYTES")]
    pub sessions_bytes_max: Option<String>,
}

/// What may fill the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryOptions {
    /// Answers, until they are read.
    pub answers_bytes_max: usize,
    /// Records of sessions.
    pub sessions_bytes_max: u64,
}

impl MemoryArguments {
    pub(super) fn check(&self, wrong: &mut Vec<FieldError>) -> MemoryOptions {
        let mut options = MemoryOptions {
            answers_bytes_max: ANSWERS_BYTES_MAX,
            sessions_bytes_max: Sizes::default().session_bytes,
        };
        if let Some(text) = &self.answers_bytes_max {
            let (low, high) = (ANSWERS_BYTES_MIN, u64::from(u32::MAX));
            let bytes = number("--answers-bytes-max", text, low, high, wrong);
            options.answers_bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        if let Some(text) = &self.sessions_bytes_max {
            let (low, high) = (SESSIONS_BYTES_MIN, super::MEMORY_BYTES_MAX);
            options.sessions_bytes_max = number("--sessions-bytes-max", text, low, high, wrong);
        }
        options
    }
}
