//! What was found from outside, each as a program that shows it: real processes, and only what a user sees.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod copied_folders;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod files;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod large_documents;
#[cfg(test)]
mod memories;
#[cfg(test)]
mod operators;
#[cfg(test)]
mod place;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod private;
#[cfg(test)]
mod reloads;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod units;
#[cfg(test)]
mod unread_answers;
#[cfg(test)]
mod work;
