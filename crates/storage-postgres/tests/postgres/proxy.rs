//! A way to the server that a test can cut, or on which it can change words.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the proxy does with what passes.
#[derive(Default)]
struct Rules {
    /// Once a COMMIT passes: it goes to the server or not, and both sides are cut.
    cut_at_commit: Mutex<Option<Cut>>,
    /// Nothing is passed on any more, and nothing is closed.
    is_mute: AtomicBool,
    /// Nobody gets through.
    is_shut: AtomicBool,
    /// In answers: words that are changed into others of the same length.
    change: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    cuts: AtomicUsize,
}

/// Where the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The server gets the COMMIT, and its answer is lost.
    BehindCommit,
    /// The server never gets it.
    BeforeCommit,
}

/// A proxy at a free port of this machine, to the server at another.
pub struct Proxy {
    pub port: u16,
    rules: Arc<Rules>,
}

impl Proxy {
    pub fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let rules = Arc::new(Rules::default());
        let shared = rules.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_shut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                carry(client, server, &shared);
            }
        });
        Self { port, rules }
    }

    /// The next COMMIT ends its connection.
    pub fn cut_at_commit(&self, cut: Cut) {
        *self.rules.cut_at_commit.lock().expect("whole") = Some(cut);
    }

    pub fn cuts(&self) -> usize {
        self.rules.cuts.load(Ordering::SeqCst)
    }

    /// Passes nothing on any more, as a server that hangs.
    pub fn mute(&self) {
        self.rules.is_mute.store(true, Ordering::SeqCst);
    }

    /// Lets no new connection through.
    pub fn shut(&self) {
        self.rules.is_shut.store(true, Ordering::SeqCst);
    }

    pub fn change_answers(&self, from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len());
        *self.rules.change.lock().expect("whole") = Some((from.to_vec(), to.to_vec()));
    }
}

fn carry(client: TcpStream, server: TcpStream, rules: &Arc<Rules>) {
    let again = |it: &TcpStream| it.try_clone().expect("a socket can be shared");
    let (mut from_server, mut to_client) = (again(&server), again(&client));
    let shared = rules.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            let part = &mut buffer[..count];
            if let Some((from, to)) = &*shared.change.lock().expect("whole") {
                replace(part, from, to);
            }
            if to_client.write_all(part).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let (mut client, mut server, rules) = (client, server, rules.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let part = &buffer[..count];
            if rules.is_mute.load(Ordering::SeqCst) {
                continue;
            }
            let is_commit = part.windows(7).any(|it| it == b"COMMIT\0");
            let cut =
                if is_commit { rules.cut_at_commit.lock().expect("whole").take() } else { None };
            if let Some(cut) = cut {
                rules.cuts.fetch_add(1, Ordering::SeqCst);
                let _ = client.shutdown(Shutdown::Both);
                if cut == Cut::BehindCommit {
                    let _ = server.write_all(part);
                }
                break;
            }
            if server.write_all(part).is_err() {
                break;
            }
        }
        // The server reads what was sent, and sees the end of it.
        let _ = server.shutdown(Shutdown::Write);
    });
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    for at in 0..(bytes.len() + 1).saturating_sub(from.len()) {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }
}
