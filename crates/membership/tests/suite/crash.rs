//! What the embedded store's file survives, and what it must not survive silently.

use crate::conformance::{
    PATIENCE, done, first_view, name, next_node, next_view, node_id, only_node, revision,
};
use crate::process::{Folder, StoreProcess, command, run};
use rota_membership::{CasReply, ConfigStore, EmbeddedStore};
use rota_model::{NodeId, NodeState};
use rota_ring::{Change, ConfigState};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What a writer knows when its store is gone.
struct Known {
    id: NodeId,
    acknowledged: u64,
    index: u64,
}

/// Writes its own node (and, as writer 0, the View) until the outcome is unknown.
async fn write_on(store: EmbeddedStore, writer: usize, count: watch::Sender<u64>) -> Known {
    let id = node_id(&format!("n{writer}"));
    let mut state = store.read().await.unwrap();
    let mut known =
        Known { acknowledged: revision(&state, &id), index: state.index, id: id.clone() };
    loop {
        let node = next_node(&state, &id, NodeState::Ready, 1);
        let view = state.view.as_ref().filter(|_| writer == 0).map(|it| next_view(it, 1));
        let expect_epoch = view.as_ref().map(|_| state.epoch());
        match store.cas(Change { expect_epoch, view, node: Some(node) }).await {
            CasReply::Done(next) => {
                assert!(next.index > state.index);
                state = next;
                known.acknowledged += 1;
                known.index = state.index;
                count.send_modify(|it| *it += 1);
            }
            CasReply::Conflict(state) => panic!("nobody else writes {id}: {state:?}"),
            CasReply::Unknown(_) => return known,
        }
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_over_twenty_kills_under_load() {
    let folder = Folder::new();
    // Small, so that the file is written anew several times in each round.
    let flags = ["--compact-after", "20000"];
    let mut process = StoreProcess::start(&folder, &flags).await;
    done(process.client().cas(Change::view(first_view(name("suite")))).await);
    for round in 0..20 {
        let (count, mut counted) = watch::channel(0);
        let mut writers = JoinSet::new();
        for writer in 0..4 {
            writers.spawn(write_on(process.client(), writer, count.clone()));
        }
        let goal = 40 + round * 7 % 60;
        timeout(PATIENCE, counted.wait_for(|it| *it >= goal)).await.expect("it writes").unwrap();
        process.kill().await;
        let known = timeout(PATIENCE, writers.join_all()).await.expect("writers notice");
        process = StoreProcess::start(&folder, &flags).await;
        let state = process.client().read().await.unwrap();
        for known in known {
            let found = revision(&state, &known.id);
            let least = known.acknowledged;
            assert!((least..=least + 1).contains(&found), "round {round}: {found}, not {least}");
            assert!(state.index >= known.index, "round {round}: the index went back");
        }
        // Writer 0 moved the View with its node, always together.
        assert_eq!(state.epoch().0, revision(&state, &node_id("n0")) + 1, "round {round}");
    }
}

/// A stopped store whose file holds `nodes` changes, each a record of its own; and its state.
async fn stopped(folder: &Folder, nodes: u64) -> ConfigState {
    let process = StoreProcess::start(folder, &[]).await;
    let store = process.client();
    let mut state = store.read().await.unwrap();
    for _ in 0..nodes {
        let change = next_node(&state, &node_id("n"), NodeState::Ready, 1);
        state = done(store.cas(only_node(change)).await);
    }
    let ended = process.end(Signal::TERM).await;
    assert!(ended.status.success(), "{}", ended.stderr);
    state
}

#[tokio::test]
async fn a_torn_last_record_is_cut_off_with_a_log_line_and_the_store_goes_on() {
    let folder = Folder::new();
    stopped(&folder, 3).await;
    let whole = std::fs::read(folder.file()).unwrap();
    std::fs::write(folder.file(), &whole[..whole.len() - 5]).unwrap();

    let process = StoreProcess::start(&folder, &[]).await;
    let state = process.client().read().await.unwrap();
    assert_eq!((state.index, revision(&state, &node_id("n"))), (2, 2));
    let change = next_node(&state, &node_id("n"), NodeState::Draining, 1);
    let state = done(process.client().cas(only_node(change)).await);
    let ended = process.end(Signal::TERM).await;
    assert!(ended.stderr.contains("is torn"), "{}", ended.stderr);

    // Blocks that the file system gave and never filled.
    let mut longer = std::fs::read(folder.file()).unwrap();
    longer.extend([0; 300]);
    std::fs::write(folder.file(), longer).unwrap();
    let process = StoreProcess::start(&folder, &[]).await;
    assert_eq!(process.client().read().await.unwrap(), state);
    assert!(process.end(Signal::TERM).await.stderr.contains("is torn"));
}

#[tokio::test]
async fn a_damaged_record_in_the_middle_is_refused_with_file_and_offset() {
    let folder = Folder::new();
    stopped(&folder, 4).await;
    let whole = std::fs::read(folder.file()).unwrap();
    let frames: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == 0xFF).collect();
    assert_eq!(frames.len(), 5);
    // The content, the length (which then reaches over the file's end), the state itself.
    for (record, byte, bit) in [(2, 40, 1), (2, 7, 0x40), (0, 30, 1), (1, 0, 1)] {
        let mut damaged = whole.clone();
        damaged[frames[record] + byte] ^= bit;
        std::fs::write(folder.file(), &damaged).unwrap();
        let ended = run(command(&folder, &[])).await;
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        let offset = format!("is damaged at offset {}:", frames[record]);
        assert!(ended.stderr.contains(&offset), "{}", ended.stderr);
        assert!(ended.stderr.contains(folder.file().to_str().unwrap()), "{}", ended.stderr);
        assert_eq!(std::fs::read(folder.file()).unwrap(), damaged, "the file is left as it was");
    }
}

#[tokio::test]
async fn a_file_cut_inside_its_first_record_is_refused() {
    let folder = Folder::new();
    stopped(&folder, 2).await;
    let whole = std::fs::read(folder.file()).unwrap();
    std::fs::write(folder.file(), &whole[..40]).unwrap();
    let ended = run(command(&folder, &[])).await;
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("the first record is not whole"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_lost_record_in_the_middle_is_refused() {
    let folder = Folder::new();
    stopped(&folder, 4).await;
    let whole = std::fs::read(folder.file()).unwrap();
    let frames: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == 0xFF).collect();
    let without = [&whole[..frames[2]], &whole[frames[3]..]].concat();
    std::fs::write(folder.file(), without).unwrap();
    let ended = run(command(&folder, &[])).await;
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("record 3 stands where 2 belongs"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_failed_write_ends_the_process_and_loses_nothing_acknowledged() {
    let folder = Folder::new();
    // A limit of 32 KiB on the length of files, with an error instead of the signal.
    let store = command(&folder, &["--compact-after", "1000000"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]);
    limited.arg(store.as_std().get_program()).args(store.as_std().get_args());
    let process = StoreProcess::start_command(limited).await;
    let (count, _counted) = watch::channel(0);
    let known = timeout(PATIENCE, write_on(process.client(), 1, count)).await.expect("it fails");
    assert!(known.acknowledged > 10);
    let ended = process.ended().await;
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("rota-config-store: cannot write"), "{}", ended.stderr);

    let process = StoreProcess::start(&folder, &[]).await;
    let state = process.client().read().await.unwrap();
    assert_eq!(revision(&state, &known.id), known.acknowledged);
}
