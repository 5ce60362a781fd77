//! Who listens on a port, as `/proc` tells.

use crate::processes::maker;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// A socket that listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Its number, as `/proc/PID/fd` shows it.
    pub inode: u64,
    /// The user that made it.
    pub uid: u32,
}

/// `LISTEN` in the tables of the kernel.
const LISTENS: &str = "0A";

/// How closely a listener's own address fits one that is connected to; the kernel takes the closest.
fn fit(own: IpAddr, target: IpAddr) -> u8 {
    match own {
        _ if own.to_canonical() == target.to_canonical() => 3,
        IpAddr::V4(own) if own.is_unspecified() && target.to_canonical().is_ipv4() => 2,
        IpAddr::V6(own) if own.is_unspecified() => 1,
        IpAddr::V4(_) | IpAddr::V6(_) => 0,
    }
}

/// An address of the tables: words of 32 bits in the machine's own order of bytes, then the port.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = words.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match words.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((ip, port))
}

/// A line of a table: own address, state, user, inode.
fn parse_line(line: &str) -> Option<((IpAddr, u16), &str, Listener)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (own, state) = (parse_address(fields.get(1)?)?, *fields.get(3)?);
    let (uid, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
    Some((own, state, Listener { inode, uid }))
}

/// Those that would take a connection to that address, in the network of a process: more than one where
/// several share a port. Empty when nobody listens, and when the process is gone.
pub fn listeners(pid: i32, ip: IpAddr, port: u16) -> io::Result<Vec<Listener>> {
    let mut closest = (1, Vec::new());
    each(pid, |own, listener| {
        let fit = fit(own.ip(), ip);
        if own.port() != port || fit < closest.0 {
            return;
        }
        if fit > closest.0 {
            closest = (fit, Vec::new());
        }
        closest.1.push(listener);
    })?;
    Ok(closest.1)
}

/// `ESTABLISHED` in the tables of the kernel.
const CONNECTED: &str = "01";

/// The ports of this machine's own ends of connections that stand, in the network of this process, and how many
/// connections each has.
///
/// # Errors
/// The kernel's tables cannot be read.
pub fn connected_ports() -> io::Result<BTreeMap<u16, usize>> {
    let mut ports = BTreeMap::new();
    for table in ["tcp", "tcp6"] {
        let file = match File::open(format!("/proc/self/net/{table}")) {
            Ok(file) => file,
            // No IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines().skip(1) {
            let line = line?;
            let Some(((_, port), state, _)) = parse_line(&line) else { continue };
            if state == CONNECTED {
                *ports.entry(port).or_default() += 1;
            }
        }
    }
    Ok(ports)
}

/// Where these processes listen, in the network of `pid` and in order.
pub fn held(pid: i32, by: &[i32]) -> io::Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    each(pid, |own, listener| all.push((own, listener)))?;
    let mut held: Vec<SocketAddr> =
        all.into_iter().filter(|(_, it)| is_held(*it, by)).map(|(own, _)| own).collect();
    held.sort_unstable();
    held.dedup();
    Ok(held)
}

/// Every listener in the network of a process, with its address. None when the process is gone.
fn each(pid: i32, mut take: impl FnMut(SocketAddr, Listener)) -> io::Result<()> {
    for table in ["tcp", "tcp6"] {
        let file = match File::open(format!("/proc/{pid}/net/{table}")) {
            Ok(file) => file,
            // No such process, or no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines().skip(1) {
            let line = line?;
            let Some(((ip, port), state, listener)) = parse_line(&line) else { continue };
            // The kernel lists those that listen first.
            if state != LISTENS {
                break;
            }
            take(SocketAddr::new(ip, port), listener);
        }
    }
    Ok(())
}

/// Whether one of these processes holds the listener. What is open in a process of another user may be
/// hidden: then the user decides, who made the one and runs the other.
pub fn is_held(listener: Listener, by: &[i32]) -> bool {
    by.iter().any(|pid| match has_open(*pid, listener.inode) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            maker(*pid) == Some(listener.uid)
        }
        // It is gone.
        Err(_) => false,
    })
}

/// Whether this process was seen to hold the listener.
pub fn is_seen_with(listener: Listener, pid: i32) -> bool {
    has_open(pid, listener.inode).unwrap_or(false)
}

fn has_open(pid: i32, inode: u64) -> io::Result<bool> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?;
    is_among(entries.flatten().map(|it| fs::read_link(it.path())), inode)
}

/// Whether a socket is among open files. In a container the list of another user's may be seen, and not what each
/// file is: then it is not known.
fn is_among(mut files: impl Iterator<Item = io::Result<PathBuf>>, inode: u64) -> io::Result<bool> {
    let name = format!("socket:[{inode}]");
    let mut hidden = None;
    let found = files.any(|file| match file {
        Ok(file) => file.as_os_str() == name.as_str(),
        Err(error) => {
            if error.kind() == io::ErrorKind::PermissionDenied {
                hidden = Some(error);
            }
            false
        }
    });
    match hidden {
        Some(error) if !found => Err(error),
        Some(_) | None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn a_file_that_is_hidden_may_be_the_socket_and_one_that_was_closed_is_not() {
        let closed = || Err(io::ErrorKind::NotFound.into());
        let hidden = || Err(io::ErrorKind::PermissionDenied.into());
        let socket = |it: u64| Ok(PathBuf::from(format!("socket:[{it}]")));
        assert!(is_among([closed(), hidden(), socket(7)].into_iter(), 7).unwrap());
        assert!(!is_among([closed(), socket(8)].into_iter(), 7).unwrap());
        let told = is_among([hidden(), socket(8)].into_iter(), 7).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let v4 = u32::from_ne_bytes([127, 0, 0, 1]);
        let parsed = parse_address(&format!("{v4:08X}:1F90")).unwrap();
        assert_eq!(parsed, (Ipv4Addr::LOCALHOST.into(), 8080));
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        let parsed = parse_address(&format!("{:024X}{last:08X}:0001", 0)).unwrap();
        assert_eq!(parsed, (Ipv6Addr::LOCALHOST.into(), 1));
        for wrong in ["", "0100007F", "0100007F:x", "01:1F90"] {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_listener_that_a_connection_would_reach_is_found_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let here = Ipv4Addr::LOCALHOST.into();
        let found = listeners(me(), here, port).unwrap();
        assert_eq!(found.len(), 1);
        assert!(is_held(found[0], &[me()]));
        assert!(!is_held(found[0], &[]));
        assert_eq!(listeners(me(), Ipv6Addr::LOCALHOST.into(), port).unwrap(), []);
        assert_eq!(listeners(me(), Ipv4Addr::new(127, 0, 0, 2).into(), port).unwrap(), []);
        let mine = held(me(), &[me()]).unwrap();
        assert!(mine.contains(&SocketAddr::new(here, port)), "{mine:?}");
        assert_eq!(held(me(), &[]).unwrap(), []);
        drop(listener);
        assert_eq!(listeners(me(), here, port).unwrap(), []);
    }

    #[test]
    fn an_address_is_closer_than_all_addresses() {
        let (here, all) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into());
        let all_six: IpAddr = Ipv6Addr::UNSPECIFIED.into();
        assert_eq!([here, all, all_six].map(|it| fit(it, here)), [3, 2, 1]);
        assert_eq!(fit(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), here), 3);
        assert_eq!(fit(all, Ipv6Addr::LOCALHOST.into()), 0);
        assert_eq!(fit(Ipv4Addr::new(10, 0, 0, 1).into(), here), 0);
    }
}
