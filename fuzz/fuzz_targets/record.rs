//! See `ganger_fuzz::record`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::record::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    ganger_fuzz::driver::main(
        "record",
        ganger_fuzz::record::run,
        ganger_fuzz::record::seeds(),
    )
}
