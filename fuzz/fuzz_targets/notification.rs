//! See `ganger_fuzz::notification`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::notification::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    ganger_fuzz::driver::main(
        "notification",
        ganger_fuzz::notification::run,
        ganger_fuzz::notification::seeds(),
    )
}
