//! The supervisor as a separate program, for tests and for programs that embed the worker.

fn main() {
    ganger_worker::supervisor_main();
}
