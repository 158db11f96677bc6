//! See `ganger_fuzz::qless`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::qless::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    ganger_fuzz::driver::main(
        "qless",
        ganger_fuzz::qless::run,
        ganger_fuzz::qless::seeds(),
    )
}
