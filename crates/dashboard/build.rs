//! Names the files in `assets/` by their hash, and compresses them once, so that a server never does it at run time.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Name in the source, file, extension, media type.
const FILES: &[(&str, &str, &str, &str)] = &[
    ("STYLE", "style.css", "css", "text/css; charset=utf-8"),
    ("LIVE", "live.js", "js", "text/javascript; charset=utf-8"),
    (
        "IDIOMORPH",
        "idiomorph.js",
        "js",
        "text/javascript; charset=utf-8",
    ),
    ("ICON", "icon.svg", "svg", "image/svg+xml"),
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=assets");
    println!("cargo::rerun-if-changed=build.rs");
    let mut source = String::new();
    let mut all = Sha256::new();
    let mut names = Vec::new();
    for (constant, file, extension, media_type) in FILES {
        let bytes = fs::read(root.join("assets").join(file)).expect("an asset is readable");
        all.update(&bytes);
        let name = format!("{}.{extension}", hash(Sha256::digest(&bytes).as_slice()));
        write(&out, &name, &bytes);
        write(&out, &format!("{name}.gz"), &gzip(&bytes));
        write(&out, &format!("{name}.br"), &brotli(&bytes));
        let path = |ending: &str| {
            format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}{ending}\"))")
        };
        writeln!(
            source,
            "pub(crate) static {constant}: Asset = Asset {{ file: \"{name}\", media_type: \"{media_type}\", plain: {}, gzip: {}, brotli: {} }};",
            path(""),
            path(".gz"),
            path(".br")
        )
        .expect("strings take everything");
        names.push(*constant);
    }
    let list: Vec<String> = names.iter().map(|name| format!("&{name}")).collect();
    writeln!(
        source,
        "pub(crate) static ALL: &[&Asset] = &[{}];\npub(crate) const VERSION: &str = \"{}\";",
        list.join(", "),
        hash(all.finalize().as_slice())
    )
    .expect("strings take everything");
    write(&out, "assets.rs", source.as_bytes());
}

/// The first 16 hexadecimal digits of a hash: enough to tell the versions of a file apart.
fn hash(digest: &[u8]) -> String {
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take everything");
        text
    })
}

fn write(out: &Path, name: &str, bytes: &[u8]) {
    fs::write(out.join(name), bytes).expect("the build directory is writable");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let parameters = brotli::enc::BrotliEncoderParams::default();
    brotli::BrotliCompress(&mut &bytes[..], &mut out, &parameters)
        .expect("memory takes everything");
    out
}
