//! What happens in a simulated cluster, and when: the events of the queue.

use crate::calls::TakeBack;
use crate::network::Place;
use crate::packet::Packet;
use rota_docstore::Digest;
use rota_model::{ManagerNumber, NodeId, PoolName, SessionKey, Token};
use rota_node::NodeInput;
use rota_protocol::Input;
use rota_protocol::operate::Job;

/// Wall clock at the start of every run, in ms since 1970.
pub const WALL_START_MS: u64 = 1_750_000_000_000;

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A packet arrives.
    Arrive {
        /// From.
        from: Place,
        /// To.
        to: Place,
        /// Only if that run of the receiver is still there.
        run: Option<u64>,
        /// How many packets were sent before it.
        serial: u64,
        /// What.
        packet: Box<Packet>,
    },
    /// A manager carries out what it decided.
    Flush(ManagerNumber, u64),
    /// A manager's timer.
    Tick(ManagerNumber, u64, u64),
    /// A manager's disk finished a sync.
    Synced(ManagerNumber, u64),
    /// A manager looks at the config store's watch, and perhaps again later.
    Watch(ManagerNumber, u64, bool),
    /// A manager waits no longer for the config store: a read, or a compare-and-set.
    StoreTimeout(ManagerNumber, u64, StoreCall),
    /// A manager's link to a node tries to open a connection.
    Link(ManagerNumber, u64, usize),
    /// A node refuses connections for a while.
    Refuse,
    /// Something reaches a manager from outside the network.
    Tell(ManagerNumber, u64, Box<Input>),
    /// A manager starts again.
    StartManager(ManagerNumber),
    /// That run of a manager ends, since its number has left.
    EndManager(ManagerNumber, u64),
    /// A node starts, or starts again.
    BootNode(usize),
    /// The next agent of a boot starts.
    ResumeAgent(usize, u64),
    /// A node sends its registration.
    RegisterNode(usize, u64),
    /// A node's timer.
    NodeTick(usize, u64, u64),
    /// That run of a second agent under one id ends.
    Retire(usize, u64),
    /// Something reaches a node's agent from its runtime.
    TellNode(usize, u64, Box<NodeInput>),
    /// A client takes an item of a life cycle back.
    TakeBack(Box<TakeBack>),
    /// An action of a session comes to its end: by its number in the observer's book.
    Acted(usize, u64, usize, Box<NodeInput>),
    /// A program takes its next step.
    Program(usize, u64, SessionKey, Token, ProgramStep),
    /// A keeper looks at the lease.
    Keeper(usize, u64),
    /// Ordered nodes are there (or not).
    Provisioned(ManagerNumber, u64, u64, Vec<NodeId>),
    /// What was left of a node is ended (or not).
    NodeCleared(ManagerNumber, u64, PoolName, NodeId),
    /// Bodies that a manager asked for, for a partition, have come (or not).
    Fetched(ManagerNumber, u64, ManagerNumber, Vec<Digest>),
    /// A manager's worker has done an operation's work.
    Worked(ManagerNumber, u64, u64, Box<Job>),
    /// The program of a task comes to its end.
    TaskRan(ManagerNumber, u64, Box<Input>),
    /// A client does something.
    ClientNext(usize),
    /// A writer does something.
    WriterNext(usize),
    /// A client waits no longer for a call.
    ClientTimeout(u64),
    /// A watcher pulls from a partition.
    Pull(ManagerNumber),
    /// The watcher of documents polls a partition.
    Documents(ManagerNumber),
    /// Somebody describes the pool.
    Describe,
    /// The next disturbance.
    Disturb,
    /// A disturbance ends.
    Calm(u64),
    /// The observer looks at deadlines.
    Audit,
}

/// What a manager waits for at the config store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StoreCall {
    /// A read.
    Read(u64),
    /// A compare-and-set.
    Cas(u64),
}

/// How a program goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProgramStep {
    /// It begins to run.
    Run,
    /// It answers.
    Ready,
    /// It ends on its own.
    End,
    /// Its machine goes to another state; this many times so far.
    Change(u64),
    /// It does not get ready in time.
    StartTimeout,
    /// It has stopped, as it was asked.
    Stopped,
}

/// What the cluster is going through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Clients work, faults happen.
    Chaos,
    /// No faults, no new requests.
    Quiet,
    /// Clients work, no faults.
    Serve,
}
