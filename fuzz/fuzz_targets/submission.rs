//! See `ganger_fuzz::submission`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::submission::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    ganger_fuzz::driver::main("submission", ganger_fuzz::submission::run, Vec::new())
}
