//! The supervisor as a program of its own, for tests and for programs that embed the worker.

fn main() {
    ganger_worker::supervisor_main();
}
