//! Scripts: ganger runs no Lua. It knows the script of qless when it sees it, and carries its calls out itself, unless it
//! was built without qless.

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

/// Which right a call takes, its own command says.
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

/// What a build without qless answers to every script.
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
