//! See `ganger_fuzz::configuration`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::configuration::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    ganger_fuzz::driver::main("configuration", ganger_fuzz::configuration::run, Vec::new())
}
