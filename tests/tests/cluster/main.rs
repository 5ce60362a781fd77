//! Whole clusters of real processes, from the outside.

#[cfg(test)]
mod applications;
mod associations;
#[cfg(test)]
mod bad_provisioners;
#[cfg(test)]
mod bad_requests;
#[cfg(test)]
mod bad_starts;
#[cfg(test)]
mod benches;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod body_moves;
mod bulk_close;
#[cfg(test)]
mod cached_sessions;
#[cfg(test)]
mod changed_rings;
#[cfg(test)]
mod config_store;
#[cfg(test)]
mod consul;
#[cfg(test)]
mod consul_views;
#[cfg(test)]
mod containers;
mod content;
mod content_publishing;
#[cfg(test)]
mod content_rollouts;
#[cfg(test)]
mod dev;
#[cfg(test)]
mod document_watches;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod drains;
#[cfg(test)]
mod events;
#[cfg(test)]
mod exports;
#[cfg(test)]
mod filtered_watches;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod fresh_numbers;
#[cfg(test)]
mod inspection;
#[cfg(test)]
mod joins;
#[cfg(test)]
mod kept_output;
#[cfg(test)]
mod killed_under_load;
#[cfg(test)]
mod leaves;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod lives;
#[cfg(test)]
mod lost_managers;
#[cfg(test)]
mod lost_nodes;
#[cfg(test)]
mod machines;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod opens;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod pool_settings;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod program_output;
#[cfg(test)]
mod program_usage;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod provisioners;
#[cfg(test)]
mod readme_tour;
#[cfg(test)]
mod repairs;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod rest_description;
#[cfg(test)]
mod rest_lives;
#[cfg(test)]
mod rest_tasks;
#[cfg(test)]
mod rest_watches;
#[cfg(test)]
mod rest_writes;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod restores;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod searches;
#[cfg(test)]
mod session_numbers;
#[cfg(test)]
mod set_up;
#[cfg(test)]
mod shrinking;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod special_searches;
mod stable_numbers;
#[cfg(test)]
mod task_orders;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod tracing;
#[cfg(test)]
mod twin_nodes;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod watch_commands;
#[cfg(test)]
mod watches;
