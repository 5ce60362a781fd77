//! What somebody outside meets: faults that were found by trials of whole clusters, each with its test.

#[cfg(test)]
mod place;
