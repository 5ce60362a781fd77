use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Far above what anything here takes.
const WITHIN: Duration = Duration::from_secs(20);

/// Of `PLACES`, which end silence after three bytes.
const HELLO: &[u8] = b"hey";

fn places(strangers: usize, members: usize) -> Places {
    let silence = Duration::from_secs(3_600);
    let (first_bytes, full_waits, answers_bytes_max) = (HELLO.len(), false, 1_000_000);
    Places { strangers, members, first_bytes, silence, full_waits, answers_bytes_max }
}

struct Door {
    incoming: Incoming,
    gate: Gate,
    address: std::net::SocketAddr,
}

impl Door {
    async fn new(places: Places) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Gate::new(places);
        Self { incoming: Incoming::new(listener, gate.clone()), gate, address }
    }

    /// Somebody who says nothing, and the connection.
    async fn silent(&mut self) -> (TcpStream, Connection) {
        let outside = TcpStream::connect(self.address).await.unwrap();
        let inside = timeout(WITHIN, self.incoming.next()).await.expect("it comes in");
        (outside, inside)
    }

    /// Somebody who said enough.
    async fn heard(&mut self) -> (TcpStream, Connection) {
        let (mut outside, mut inside) = self.silent().await;
        outside.write_all(HELLO).await.unwrap();
        let mut bytes = [0; HELLO.len()];
        inside.read_exact(&mut bytes).await.unwrap();
        (outside, inside)
    }
}

#[tokio::test]
async fn a_silent_connection_gives_its_place_to_a_newcomer_and_one_that_spoke_does_not() {
    let mut door = Door::new(places(2, 0)).await;
    let (_spoke, mut spoken) = door.heard().await;
    let (_first, mut silent) = door.silent().await;
    let (_second, _newcomer) = door.silent().await;
    let cut = timeout(WITHIN, silent.read_u8()).await.expect("it is cut");
    assert!(cut.unwrap_err().to_string().contains("silent"));
    let still = timeout(Duration::from_millis(50), spoken.read_u8()).await;
    assert!(still.is_err(), "whoever spoke stays: {still:?}");
    let Counts { strangers, silent_total, refused_total, .. } = door.gate.counts();
    assert_eq!((strangers, silent_total, refused_total), (2, 1, 0));
    drop(silent);
    assert_eq!(door.gate.counts().strangers, 2, "a place is given back once");
}

#[tokio::test]
async fn silence_ends_by_itself_also_after_a_part_of_the_first_bytes() {
    let mut door = Door::new(Places { silence: Duration::from_secs(1), ..places(4, 0) }).await;
    let (_nothing, mut silent) = door.silent().await;
    let (mut part, mut half) = door.silent().await;
    part.write_all(&HELLO[..1]).await.unwrap();
    half.read_u8().await.unwrap();
    for connection in [&mut silent, &mut half] {
        let error = timeout(WITHIN, connection.read_u8()).await.expect("it is cut").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
    drop((silent, half));
    let counts = door.gate.counts();
    assert_eq!((counts.strangers, counts.silent_total), (0, 2));
}

#[tokio::test]
async fn strangers_that_take_all_their_places_do_not_shut_members_out() {
    let mut door = Door::new(places(1, 1)).await;
    let (_stranger, stranger) = door.heard().await;
    assert!(stranger.caller().may_call(false));
    let (_member, member) = door.heard().await;
    assert!(!member.caller().may_call(false), "its place is for members");
    assert!(member.caller().may_call(true));
    assert!(member.caller().may_call(false), "members may ask like anybody");
    let (mut outside, counts) = {
        let outside = TcpStream::connect(door.address).await.unwrap();
        let turned_away = timeout(Duration::from_millis(100), door.incoming.next()).await;
        assert!(turned_away.is_err(), "there is no place for a third one");
        (outside, door.gate.counts())
    };
    assert_eq!((counts.strangers, counts.members, counts.refused_total), (1, 1, 1));
    let end = timeout(WITHIN, outside.read_u8()).await.expect("it is told at once");
    assert!(end.is_err());
    drop(member);
    assert_eq!(door.gate.counts().members, 0);
}

#[tokio::test]
async fn a_stranger_that_makes_a_call_of_members_leaves_its_place_to_others() {
    let mut door = Door::new(places(1, 1)).await;
    let (_first, first) = door.heard().await;
    assert!(first.caller().may_call(true));
    let counts = door.gate.counts();
    assert_eq!((counts.strangers, counts.members), (0, 1));
    let (_second, second) = door.heard().await;
    assert!(second.caller().may_call(false));
}

#[tokio::test]
async fn who_is_on_probation_and_makes_no_call_is_cut() {
    let mut door = Door::new(Places { silence: Duration::from_secs(1), ..places(1, 1) }).await;
    let (_stranger, _kept) = door.heard().await;
    let (_other, mut other) = door.heard().await;
    let error = timeout(WITHIN, other.read_u8()).await.expect("it is cut").unwrap_err();
    assert!(error.to_string().contains("no member"), "{error}");
}

#[tokio::test]
async fn a_gate_that_lets_wait_takes_the_next_when_a_place_is_free() {
    let mut door = Door::new(Places { full_waits: true, ..places(1, 0) }).await;
    let (_first, first) = door.heard().await;
    let _second = TcpStream::connect(door.address).await.unwrap();
    assert!(timeout(Duration::from_millis(50), door.incoming.next()).await.is_err());
    drop(first);
    let _third = TcpStream::connect(door.address).await.unwrap();
    timeout(WITHIN, door.incoming.next()).await.expect("there is a place again");
}

#[test]
fn a_quarter_of_the_files_is_left_for_the_disk() {
    for files in [4, 128, 1024, 20_000, usize::MAX] {
        let Places { strangers, members, .. } = Places::for_grpc_within(files);
        assert!(strangers >= 1 && members >= 1);
        assert!(strangers + members <= files - files / 4, "{files}");
    }
}
