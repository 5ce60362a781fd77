//! Free ports for programs.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// How many ports are tried before giving up. Each try meets another node's reservation only by
/// chance, so many in a row mean that something else is wrong.
const TRIES_MAX: u32 = 64;

/// A port that no other session on this machine is given while this value lives.
///
/// Between the choice and the program's own bind the port is free, and a node that asks the
/// kernel meanwhile may get it too. So every node marks its choice by a socket with an abstract
/// name: names are as private to a network namespace as ports are, need no file, and vanish with
/// the node.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _mark: UnixDatagram,
}

impl Port {
    /// Chooses a port that is free on `host`.
    pub fn choose(host: IpAddr) -> io::Result<Self> {
        for _ in 0..TRIES_MAX {
            let number = TcpListener::bind((host, 0))?.local_addr()?.port();
            let name = SocketAddr::from_abstract_name(format!("rota-port-{number}"))?;
            match UnixDatagram::bind_addr(&name) {
                Ok(mark) => return Ok(Self { number, _mark: mark }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port was found"))
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    #[test]
    fn a_port_is_given_once_while_it_is_held() {
        let ports: Vec<Port> =
            (0..200).map(|_| Port::choose(Ipv4Addr::LOCALHOST.into()).unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        let first = ports[0].number();
        let name = SocketAddr::from_abstract_name(format!("rota-port-{first}")).unwrap();
        assert!(UnixDatagram::bind_addr(&name).is_err());
        drop(ports);
        assert!(UnixDatagram::bind_addr(&name).is_ok());
    }
}
