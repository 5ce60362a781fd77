//! `rota-manager`: one manager of a ring, with the operations that every manager knows. See the
//! library of the same name.

use rota_manager::Application;
use std::process::ExitCode;

/// Every request and every entry is many small allocations; the system's allocator took about a
/// sixth of a manager's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    rota_manager::main(Application::default())
}
