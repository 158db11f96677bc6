//! Starts a program: finds it, makes its working directory, and sends the supervisor a start order.

use std::io;
use std::os::unix::ffi::OsStrExt;

use ganger_client::Delivery;

use crate::Settings;
use crate::ending::{Ending, group};
use crate::environment::Environment;
use crate::handler::{Handler, Handlers};
use crate::output_capture::{OutputCapture, OutputLimits};
use crate::prefetch::Prefetched;
use crate::process::Process;
use crate::program::{self, Program};
use crate::scratch::{Scratch, WorkingDirectory};
use crate::supervise::{ControlGroups, Limits, Order, Supervisor};

/// State shared by all slots of a worker.
pub(crate) struct WorkerContext {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) handlers: Handlers,
    pub(crate) environment: Environment,
    pub(crate) scratch: Scratch,
    pub(crate) prefetched: Prefetched,
    pub(crate) groups: ControlGroups,
}

/// Owner of the supervisor process.
pub(crate) struct SupervisorHandle {
    pub(crate) process: Supervisor,
}

impl SupervisorHandle {
    /// Starts a supervisor with the worker's settings.
    pub(crate) fn start(context: &WorkerContext) -> io::Result<Self> {
        Ok(Self {
            process: Supervisor::start(&context.settings.supervisor, &context.groups)?,
        })
    }

    /// Ends a failed supervisor and everything that it started.
    pub(crate) fn give_up(self) {
        let killed = self.process.kill();
        tracing::error!(
            killed,
            "a supervisor was lost; the processes of its program are killed"
        );
    }
}

/// A started program with its working directory.
pub(crate) struct LaunchedProgram {
    pub(crate) process: Process,
    /// The working directory, removed when dropped, so it must outlive the process.
    pub(crate) directory: WorkingDirectory,
}

/// Starts the program for `job`. `with_job`: whether the program runs for this job alone, so that its environment
/// describes the job.
///
/// # Errors
/// The ending of the job, if its program cannot be started.
pub(crate) fn launch(
    context: &WorkerContext,
    supervisor: &SupervisorHandle,
    handler: &Handler,
    job: &Delivery,
    with_job: bool,
) -> Result<LaunchedProgram, Ending> {
    let program = find(context, &job.kind)?;
    let directory = context
        .scratch
        .directory(handler.run_as(), handler.directory_size)
        .map_err(|error| no_directory(handler, &error))?;
    let order = order(
        context, supervisor, handler, job, with_job, &program, &directory,
    );
    let process = Process::start(
        &supervisor.process,
        &order,
        program.file(),
        directory.fd(),
        !with_job,
    )
    .map_err(|error| Ending::from_machine("the program could not be started", &error))?;
    Ok(LaunchedProgram { process, directory })
}

fn no_directory(handler: &Handler, error: &io::Error) -> Ending {
    if handler.directory_size.is_some() && error.kind() == io::ErrorKind::PermissionDenied {
        let words = "directory_size cannot be enforced here: only root may mount a file system of that size";
        return Ending::NoHandler(words.into());
    }
    Ending::from_machine("no working directory could be made", error)
}

fn find(context: &WorkerContext, kind: &str) -> Result<Program, Ending> {
    match program::find(&context.settings.directory, kind) {
        Ok(Ok(program)) => Ok(program),
        Ok(Err(missing)) => Err(Ending::NoHandler(missing.to_string())),
        Err(error) => Err(Ending::from_machine(
            "the program could not be opened",
            &error,
        )),
    }
}

fn order(
    context: &WorkerContext,
    supervisor: &SupervisorHandle,
    handler: &Handler,
    job: &Delivery,
    with_job: bool,
    program: &Program,
    directory: &WorkingDirectory,
) -> Order {
    let mut environment =
        context
            .environment
            .for_program(&directory.path, &program.path, &job.kind);
    if with_job {
        environment.extend(Environment::of_job(job));
    }
    Order {
        limits: limits(supervisor, handler),
        user: handler.run_as(),
        is_script: program.is_script,
        is_sandboxed: handler.is_sandboxed,
        is_confined: handler.is_confined(),
        name: std::ffi::CString::new(program.path.as_os_str().as_bytes()).unwrap_or_default(),
        environment,
    }
}

/// Returns the limits for the program's own processes, without those that its control group enforces.
fn limits(supervisor: &SupervisorHandle, handler: &Handler) -> Limits {
    let limits = handler.limits();
    if supervisor
        .process
        .bound(limits.memory_bytes, limits.processes)
    {
        return Limits {
            memory_bytes: None,
            processes: None,
            ..limits
        };
    }
    limits
}

/// Returns the cause of a failed run if it was the machine and the kernel can tell: the run's memory limit, the
/// machine's memory, or a full working directory.
pub(crate) fn refusal(
    supervisor: &SupervisorHandle,
    handler: &Handler,
    directory: &WorkingDirectory,
    captured: &mut OutputCapture,
) -> Option<Ending> {
    let refused = supervisor.process.refused();
    if let Some(limit) = handler.processes.filter(|_| refused.processes > 0) {
        captured.note(&format!(
            "the kernel refused it a process {} times: it may have {limit} at a time",
            refused.processes
        ));
    }
    let killed = refused.killed_for_memory;
    match (killed, handler.memory) {
        (0, _) => {}
        (_, Some(limit)) => {
            let words = format!(
                "the run exceeded its limit of {limit} bytes of memory: the kernel killed {killed} processes"
            );
            return Some(Ending::retriable(group::MEMORY_LIMIT, words));
        }
        (_, None) => {
            let words = format!(
                "this machine has no memory left: the kernel killed {killed} processes of the run"
            );
            return Some(Ending::retriable(group::OUT_OF_MEMORY, words));
        }
    }
    let limit = handler.directory_size.filter(|_| directory.is_full())?;
    let words = format!("its working directory is full: the limit is {limit} bytes");
    Some(Ending::retriable(group::DISK_FULL, words))
}

/// Returns the limits on a handler's output.
pub(crate) fn output_limits(handler: &Handler) -> OutputLimits {
    OutputLimits {
        result_bytes_max: handler.result_bytes_max,
        log_bytes_max: handler.log_bytes_max,
    }
}

/// Returns the ending of a run whose standard output exceeds the limit of a result.
pub(crate) fn too_large(written: u64, captured: &OutputCapture) -> Ending {
    let limit = captured.result_bytes_max();
    Ending::permanent(
        group::BAD_OUTPUT,
        format!(
            "standard output is {written} bytes, a result has at most {limit}: write large results elsewhere \
             and return where, or raise result_bytes_max of the handler"
        ),
    )
}
