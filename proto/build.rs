//! Compiles rota/v1/*.proto without a system protoc.

use prost::Message;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=rota/v1");
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = Vec::new();
    for entry in std::fs::read_dir("rota/v1")? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "proto") {
            files.push(path);
        }
    }
    files.sort();
    let descriptors = protox::compile(files, ["."])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("rota.v1.bin"), descriptors.encode_to_vec())?;
    // Ordered maps: equal messages have equal bytes, and attributes move into the model as they are.
    tonic_prost_build::configure().btree_map(".").bytes(".").compile_fds(descriptors)?;
    Ok(())
}
