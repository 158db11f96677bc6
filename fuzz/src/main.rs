//! `ganger-fuzz TARGET`: runs one fuzz target on the stable toolchain.

use std::process::ExitCode;

fn main() -> ExitCode {
    ganger_fuzz::driver::main(ganger_fuzz::TARGETS)
}
