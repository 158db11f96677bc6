//! Generates Rust code from the schema, without protoc.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use protox::prost_reflect::{DescriptorPool, MethodDescriptor, ReflectMessage as _, Value};

const FILES: [&str; 13] = [
    "ganger/v1/right.proto",
    "ganger/v1/common.proto",
    "ganger/v1/job.proto",
    "ganger/v1/jobs.proto",
    "ganger/v1/graphs.proto",
    "ganger/v1/leases.proto",
    "ganger/v1/queues.proto",
    "ganger/v1/schedules.proto",
    "ganger/v1/operations.proto",
    "ganger/v1/insight.proto",
    "ganger/v1/admin.proto",
    "ganger/v1/import.proto",
    "ganger/v1/peers.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(FILES)?;

    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(
        out.join("ganger.v1.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    let rights = rights(&compiler.descriptor_pool())?;
    std::fs::write(out.join("rights.rs"), rights)?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// The option `right` of each method as a Rust table, sorted by the method's name.
fn rights(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let services: Vec<_> = pool.services().collect();
    let mut rows = Vec::new();
    for method in services
        .iter()
        .flat_map(protox::prost_reflect::ServiceDescriptor::methods)
    {
        let name = format!("{}/{}", method.parent_service().full_name(), method.name());
        let (verb, scope) =
            right(pool, &method).ok_or_else(|| format!("{name} has no option (right)"))?;
        rows.push(format!(
            "MethodRight {{ method: {name:?}, verb: Verb::{verb}, scope: Scope::{scope} }}"
        ));
    }
    rows.sort();
    let mut table = String::from("&[\n");
    for row in rows {
        writeln!(table, "    {row},")?;
    }
    table.push(']');
    Ok(table)
}

/// The names of the two enum values, as prost writes them.
fn right(pool: &DescriptorPool, method: &MethodDescriptor) -> Option<(String, String)> {
    let extension = pool.get_extension_by_name("ganger.v1.right")?;
    let options = method.options();
    if !options.has_extension(&extension) {
        return None;
    }
    let right = options.get_extension(&extension);
    let right = right.as_message()?;
    let word = |field: &str| {
        let Value::EnumNumber(number) = right.get_field_by_name(field)?.into_owned() else {
            return None;
        };
        let kind = right.descriptor().get_field_by_name(field)?.kind();
        let value = kind.as_enum()?.get_value(number)?;
        let (first, rest) = value.name().split_at(1);
        Some(format!("{first}{}", rest.to_lowercase()))
    };
    Some((word("verb")?, word("scope")?))
}
