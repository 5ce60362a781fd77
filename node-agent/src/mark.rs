//! What one process of this machine has at a time, named by a socket with an abstract name: such names are as
//! private to a network namespace as ports are, need no file, and vanish with the process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A name that nobody else has while this value lives.
#[derive(Debug)]
pub struct Mark {
    _socket: UnixDatagram,
}

impl Mark {
    /// `None` when somebody has it.
    pub fn take(name: &str) -> io::Result<Option<Self>> {
        let name = SocketAddr::from_abstract_name(name)?;
        let socket = unless_in_use(UnixDatagram::bind_addr(&name))?;
        Ok(socket.map(|socket| Self { _socket: socket }))
    }
}

/// `None` when the address has somebody.
pub fn unless_in_use<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_had_once_while_its_mark_lives() {
        let name = format!("rota-test-{}", uuid::Uuid::new_v4());
        let mark = Mark::take(&name).unwrap();
        assert!(mark.is_some());
        assert!(Mark::take(&name).unwrap().is_none());
        drop(mark);
        assert!(Mark::take(&name).unwrap().is_some());
    }
}
