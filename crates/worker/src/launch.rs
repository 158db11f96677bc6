//! Starting a program: find it, make its place, tell the supervisor.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ganger_client::Delivery;

use crate::ending::{Ending, group};
use crate::environment::{Environment, MARKER};
use crate::handler::{Handler, Handlers};
use crate::hearing::{Caps, Hearing};
use crate::process::Process;
use crate::program::{self, Program};
use crate::scratch::{Scratch, WorkingDirectory};
use crate::supervise::{Order, Supervisor, kill_orphans};
use crate::{Settings, random};

/// What all slots of a worker share.
pub(crate) struct Shop {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) handlers: Handlers,
    pub(crate) environment: Environment,
    pub(crate) scratch: Scratch,
}

/// A supervisor and the mark by which all it has ever started is known.
pub(crate) struct Watch {
    pub(crate) supervisor: Supervisor,
    pub(crate) marker: String,
}

impl Watch {
    /// Starts a supervisor.
    pub(crate) fn start(binary: &Path) -> io::Result<Self> {
        let marker = format!("{:016x}", random::number()?);
        Ok(Self {
            supervisor: Supervisor::start(binary)?,
            marker,
        })
    }

    /// Ends a supervisor that failed, and all that it had started.
    pub(crate) fn give_up(self) {
        self.supervisor.kill();
        let killed = kill_orphans(&format!("{MARKER}={}", self.marker));
        tracing::error!(
            killed,
            "a supervisor was lost; what it watched over is killed"
        );
    }
}

/// A program that was started.
pub(crate) struct Launched {
    pub(crate) process: Process,
    /// Removed when dropped, so it must outlive the process.
    pub(crate) directory: WorkingDirectory,
}

/// Starts the program for `job`. `with_job`: its environment tells of the job too.
///
/// # Errors
/// The ending of the job, if its program cannot be started here and now.
pub(crate) fn launch(
    shop: &Shop,
    watch: &Watch,
    handler: &Handler,
    job: &Delivery,
    with_job: bool,
) -> Result<Launched, Ending> {
    let program = find(shop, &job.kind)?;
    let directory = shop
        .scratch
        .directory(handler.run_as())
        .map_err(|error| Ending::from_machine("no working directory could be made", &error))?;
    let order = order(shop, watch, handler, job, with_job, &program, &directory);
    let process = Process::start(&watch.supervisor, &order, program.file(), directory.fd())
        .map_err(|error| Ending::from_machine("the program could not be started", &error))?;
    Ok(Launched { process, directory })
}

fn find(shop: &Shop, kind: &str) -> Result<Program, Ending> {
    match program::find(&shop.settings.directory, kind) {
        Ok(Ok(program)) => Ok(program),
        Ok(Err(missing)) => Err(Ending::NoHandler(missing.to_string())),
        Err(error) => Err(Ending::from_machine(
            "the program could not be opened",
            &error,
        )),
    }
}

fn order(
    shop: &Shop,
    watch: &Watch,
    handler: &Handler,
    job: &Delivery,
    with_job: bool,
    program: &Program,
    directory: &WorkingDirectory,
) -> Order {
    let marker = &watch.marker;
    let mut environment =
        shop.environment
            .for_program(&directory.path, &program.path, &job.kind, marker);
    if with_job {
        environment.extend(Environment::of_job(job));
    }
    Order {
        limits: handler.limits(),
        user: handler.run_as(),
        is_script: program.is_script,
        is_sandboxed: handler.is_sandboxed,
        name: std::ffi::CString::new(program.path.as_os_str().as_bytes()).unwrap_or_default(),
        environment,
    }
}

/// The limits on what a handler's program writes.
pub(crate) fn caps(handler: &Handler) -> Caps {
    Caps {
        result_bytes_max: handler.result_bytes_max,
        log_bytes_max: handler.log_bytes_max,
    }
}

/// The ending of a run whose standard output is more than a result may be.
pub(crate) fn too_large(written: u64, hearing: &Hearing) -> Ending {
    let limit = hearing.result_bytes_max();
    Ending::permanent(
        group::BAD_OUTPUT,
        format!(
            "standard output is {written} bytes, a result has at most {limit}: write large results elsewhere \
             and return where, or raise result_bytes_max of the handler"
        ),
    )
}
