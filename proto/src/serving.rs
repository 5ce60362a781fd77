//! What every gRPC server of Rota bounds in the same way.

use tonic::transport::Server;

/// Most calls of one connection that were given up before the server looked at them; beyond it the
/// connection is ended (`too_many_resets`), with every other call on it. h2's own 20 are an attack's where a
/// server is never late: when a process stands still for 0.15 s, a busy client gives up more than that. As
/// many as a manager takes at once of one connection, so that all of them may.
pub const RESETS_MAX: usize = 8_192;

/// A server with these bounds.
pub fn server() -> Server {
    Server::builder().http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
}
