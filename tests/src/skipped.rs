//! Tests that cannot run here.

/// Notes that a test was skipped, and why: in a file of that name in the folder ROTA_SKIPPED, from
/// which `deploy/test` counts and names them, and on stderr.
pub fn skipped(test: &str, why: &str) {
    eprintln!("skipped: {test}: {why}");
    if let Some(folder) = std::env::var_os("ROTA_SKIPPED") {
        let file = std::path::Path::new(&folder).join(test);
        std::fs::write(file, why).expect("the list of skipped tests can be written");
    }
}
