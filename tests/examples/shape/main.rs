//! Prints the shape of the workspace: circles of files, big types, wide structs, long functions.
//!
//! `cargo run -q -p rota-tests --example shape` prints tables, with `-o json` one JSON object. Its tests keep the limit
//! of circles.

mod arrows;
mod counts;
#[cfg(test)]
mod house;
mod macros;
mod report;
mod tree;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use std::path::{Path, PathBuf};

/// Prints the shape of the Rust sources of a workspace.
#[derive(Parser)]
struct Arguments {
    /// The folder with the Cargo.toml of the workspace [default: this checkout].
    #[arg(long)]
    root: Option<PathBuf>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// Tables to read.
    Table,
    /// One JSON object.
    Json,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = arguments.root.unwrap_or(here.parent().unwrap_or(here).to_path_buf());
    let shape = report::Shape::of(&root)?;
    match arguments.output {
        Output::Table => print!("{shape}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&shape)?),
    }
    Ok(())
}
