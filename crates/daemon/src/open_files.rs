//! How many files and connections a process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as the system allows: with the usual one of 1,024, clients
/// that connect could keep a process from opening its own files. Gives the limit that was there
/// before, for programs that it starts.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.current,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it is");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_open_as_many_files_as_the_system_allows() {
        raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
