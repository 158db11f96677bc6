//! The commands for scripts. ganger runs no Lua: it recognises the script of qless and runs its commands itself. A
//! build without qless refuses every script.

use bytes::Bytes;

use crate::command::{Command, Run};
use crate::plan::Plan;
#[cfg(feature = "qless")]
use crate::qless::scripts::{eval, eval_ro, evalsha, evalsha_ro, exists, flush, load};
use crate::rights::Right;
use crate::session::Session;

#[cfg(not(feature = "qless"))]
use absent::{call as eval, call as eval_ro, call as evalsha, call as evalsha_ro};
#[cfg(not(feature = "qless"))]
use absent::{word as exists, word as flush, word as load};

/// The rows of the commands for scripts. The right that a call needs depends on the command of the script, so the rows
/// ask only for a valid identity.
pub(crate) const COMMANDS: &[Command] = &[
    script("eval", eval),
    script("eval_ro", eval_ro),
    script("evalsha", evalsha),
    script("evalsha_ro", evalsha_ro),
    Command {
        name: "script",
        arity: -2,
        right: Right::Known,
        run: Run::Scripts(&[
            ("load", 3, load),
            ("exists", -3, exists),
            ("flush", -2, flush),
        ]),
        is_wide: false,
    },
];

const fn script(name: &'static str, plan: fn(&mut Session, &[Bytes]) -> Plan) -> Command {
    Command {
        name,
        arity: -3,
        right: Right::Known,
        run: Run::Script(plan),
        is_wide: false,
    }
}

/// The replies of a build without qless: it refuses every script.
#[cfg(not(feature = "qless"))]
mod absent {
    use bytes::Bytes;

    use crate::plan::Plan;
    use crate::session::Session;
    use crate::value::Value;

    pub(super) fn call(_: &mut Session, _: &[Bytes]) -> Plan {
        Err(refusal())
    }

    pub(super) fn word(_: &mut Session, _: &[Bytes]) -> Value {
        refusal()
    }

    fn refusal() -> Value {
        Value::error(
            "ERR ganger does not run Lua, and this build has no qless: build ganger-cli with the Cargo feature `qless`",
        )
    }
}
