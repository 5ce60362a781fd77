//! Faults of real processes over real Consul, again and again, while a recorded load runs.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod consul_leader;
#[cfg(test)]
mod cut_off;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod joins;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod rounds;
#[cfg(test)]
mod stale_disk;
#[cfg(test)]
mod stopped;
#[cfg(test)]
mod upgrades;
