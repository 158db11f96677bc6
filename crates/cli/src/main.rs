//! The `ganger` program. The crate `commands` has its command line; this one has the allocator and the start.
//!
//! The last package of a program decides how the compiler inlines code across packages. This one is optimised for
//! speed, so it is small, and the command line is optimised for size.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A server allocates and frees small objects on several threads, for which the system's allocator takes twice the
/// time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ganger_commands::main()
}
