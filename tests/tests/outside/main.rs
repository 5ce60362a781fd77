//! What was found from outside, each as a program that shows it: real processes, and only what a user sees.

/// So that `test(outside)` names all of them.
#[cfg(test)]
#[path = "."]
mod outside {
    mod acting;
    mod actions;
    mod adopt;
    mod answers;
    mod connections;
    mod content;
    mod content_downloads;
    mod content_views;
    mod copied_folders;
    mod ends;
    mod files;
    mod full_disk;
    mod large_documents;
    mod limits;
    mod lives;
    mod memories;
    mod operators;
    mod place;
    mod ports;
    mod private;
    mod reloads;
    mod sandbox;
    mod signals;
    mod systemd;
    mod units;
    mod unread_answers;
    mod work;
}
