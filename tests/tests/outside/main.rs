//! What trials from outside found: each test is such a trial on real processes.

#[cfg(test)]
mod connections;
#[cfg(test)]
mod files;
