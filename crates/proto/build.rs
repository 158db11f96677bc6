//! Makes Rust from the schema, without protoc.

use std::path::PathBuf;

const FILES: [&str; 10] = [
    "ganger/v1/common.proto",
    "ganger/v1/job.proto",
    "ganger/v1/jobs.proto",
    "ganger/v1/leases.proto",
    "ganger/v1/queues.proto",
    "ganger/v1/schedules.proto",
    "ganger/v1/insight.proto",
    "ganger/v1/admin.proto",
    "ganger/v1/import.proto",
    "ganger/v1/peers.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(FILES)?;

    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(
        out.join("ganger.v1.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
