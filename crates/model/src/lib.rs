//! The words of Rota, as types. This crate is a leaf: everything else may use it.
//!
//! * [`ids`]: names that people choose (session, namespace, node, class) and numbers of the ring.
//! * [`address`]: where something is reached, `host:port`.
//! * [`class_facts`]: what managers decide by of a class.
//! * [`cron`]: the short text that says when something happens again and again.
//! * [`digest`]: which text of a class a node has, and what is kept of the attributes of an ended session.
//! * [`sandbox`]: what a program is kept from.
//! * [`epoch`]: epochs, log positions, tokens, incarnations, boot ids: what orders things.
//! * [`stamp`]: readable time stamps `YYMMDDhhmmssmmm`, used as versions.
//! * [`state`]: states and reasons of sessions, nodes and managers.
//! * [`session`]: a session as managers decide about it; [`items`]: the same as items of documents.
//! * [`refusal`]: every way to say no, with its advice on retrying.
//! * [`api`]: validated requests of clients and their answers.
//! * [`life`]: how long a session lives, and what comes after it.
//! * [`mend`]: looks of an owner at what a node has of a session.
//! * [`numbers`]: the stable numbers of a node's sessions.
//! * [`pool`]: what operators say of a pool of nodes; [`pool_schedule`]: what it keeps by the time of day.
//! * [`node_msg`]: messages between managers and node-agents.
//! * [`text`]: characters that must not stand in names.
//! * [`timing`]: the order that time limits must keep.
//!
//! A value of one of these types proves that its text was checked: parsing is the only way in.

pub mod address;
pub mod api;
pub mod class_facts;
pub mod cron;
pub mod digest;
pub mod epoch;
pub mod ids;
pub mod items;
pub mod life;
pub mod mend;
pub mod node_msg;
pub mod numbers;
pub mod pool;
pub mod pool_schedule;
pub mod refusal;
pub mod resources;
pub mod sandbox;
pub mod session;
pub mod stamp;
pub mod state;
pub mod text;
pub mod timing;

pub use api::*;
pub use class_facts::*;
pub use cron::*;
pub use digest::*;
pub use epoch::*;
pub use ids::*;
pub use life::*;
pub use mend::*;
pub use numbers::*;
pub use pool::*;
pub use pool_schedule::*;
pub use refusal::*;
pub use resources::*;
pub use sandbox::*;
pub use session::*;
pub use stamp::*;
pub use state::*;
pub use timing::*;
