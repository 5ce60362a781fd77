//! What every process of Rota does alike at its rim.
//!
//! ```text
//!  command line ─▶ LogArguments ─check─▶ Log ─install─▶ standard error: text or JSON lines
//!  address of a listener ─▶ may_listen ─▶ loopback, or a flag that says insecure
//!  folder of --data ─▶ may_hold_data ─▶ a path that the system takes
//!  umask, open folders, key files ─▶ [`private`] ─▶ what is kept is its user's alone
//!  gRPC ─▶ [`accept`] ─▶ so many connections of each kind, and none that says nothing or reads nothing
//!  HTTP ─▶ serve_http ─▶ so many connections, each with a deadline; no foreign page, no foreign name
//!  limit of open files ─▶ raise_open_files
//!  listeners are up ─▶ announce ─▶ one JSON line on standard output
//!  mistakes ─▶ refuse, why it ends ─▶ say_fatal ─▶ standard error, in the form of the log
//!  /proc ─▶ [`processes`] ─▶ who runs, whose child, since when
//!        ─▶ [`listeners`] ─▶ who listens on a port
//!  a program to run ─▶ [`program`] ─▶ how it ended, and nothing of it is left
//!  SIGTERM, SIGINT, SIGHUP ─▶ Stop ─▶ the process ends in its own order
//!                          ─▶ outlive_stop_signals ─▶ it does not end, since it guards another
//!  SIGHUP ─▶ HangUp ─▶ it reads its files again
//!  signals that were blocked at its start ─▶ unblock_signals ─▶ they arrive
//! ```

pub mod accept;
mod announcement;
mod data_folder;
mod http;
mod http_rules;
mod last_words;
pub mod listeners;
mod listening;
mod log;
mod open_files;
pub mod private;
pub mod processes;
pub mod program;
mod stop;

pub use announcement::announce;
pub use data_folder::{DATA_BYTES_MAX, may_hold_data};
pub use http::{HttpLimits, serve_http};
pub use http_rules::HttpNames;
pub use last_words::{HAS_LEFT, USAGE, refuse, say_fatal};
pub use listening::may_listen;
pub use log::{Log, LogArguments, LogFormat};
pub use open_files::raise_open_files;
pub use stop::{HangUp, Stop, outlive_stop_signals, unblock_signals};
