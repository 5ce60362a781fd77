//! The node-agent as a process, with a manager that this test plays: real keepers, real programs,
//! real connections.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod guardian;
#[cfg(test)]
mod keeper;
#[cfg(test)]
mod keepers;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod manager;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod start;
#[cfg(test)]
mod waiting;
