//! See `ganger_fuzz::resp`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::resp::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    ganger_fuzz::driver::main("resp", ganger_fuzz::resp::run, ganger_fuzz::resp::seeds())
}
