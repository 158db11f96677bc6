//! Values as Python's pickle writes them. Reading runs nothing: classes and functions are only named.
//!
//! Containers are written before their members, and may be written into later, so all values are in one list and refer to
//! each other by their places there. A value may contain itself.

mod decimal;
mod read;
#[cfg(test)]
mod tests;

use ganger_ngsi::python;
use serde_json::{Map, Number, Value as Json};

/// Most values of a pickle, and most entries of each of the reader's tables.
const VALUES_MAX: usize = 1_000_000;
/// Most levels of values in values that are written as JSON.
const DEPTH_MAX: usize = 120;

/// The index of a value in a pickle.
pub(super) type ValueIndex = usize;

/// A value. Texts, bytes and names are those of the input.
#[derive(Debug)]
enum Value<'a> {
    None,
    Bool(bool),
    /// A whole number that fits.
    Int(i64),
    /// A whole number: two's complement, the lowest byte first.
    Long(&'a [u8]),
    Float(f64),
    Text(&'a str),
    /// Bytes, or a set: nothing that JSON has.
    Opaque,
    /// A list or a tuple.
    List(Vec<ValueIndex>),
    Dict(Vec<(ValueIndex, ValueIndex)>),
    /// A class or a function: its module and its name.
    Named(&'a str, &'a str),
    Object(Box<Object>),
}

/// What a class makes of arguments.
#[derive(Debug)]
struct Object {
    /// Where its class is: a [`Value::Named`].
    class: ValueIndex,
    arguments: ValueIndex,
    /// What was written into it, mostly a dictionary of its attributes.
    state: Option<ValueIndex>,
    /// Keys and values, if its class is one of dictionaries.
    items: Vec<(ValueIndex, ValueIndex)>,
}

/// All values of a pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    top: ValueIndex,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle of the protocols 2 to 5.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let (values, top) = read::all(bytes)?;
        Ok(Self { values, top })
    }

    /// The value that contains all others.
    pub(super) fn top(&self) -> ValueIndex {
        self.top
    }

    /// The elements of a list or tuple; none of anything else.
    pub(super) fn elements(&self, index: ValueIndex) -> &[ValueIndex] {
        match &self.values[index] {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// A text; `None` for anything else.
    pub(super) fn text(&self, index: ValueIndex) -> Option<&'a str> {
        match &self.values[index] {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Module and name of an object's class; `None` for what is no object.
    pub(super) fn class(&self, index: ValueIndex) -> Option<(&'a str, &'a str)> {
        match &self.values[index] {
            Value::Object(object) => self.named(object.class),
            _ => None,
        }
    }

    fn named(&self, index: ValueIndex) -> Option<(&'a str, &'a str)> {
        match &self.values[index] {
            Value::Named(module, name) => Some((module, name)),
            _ => None,
        }
    }

    /// The value under a key of a dictionary.
    pub(super) fn entry(&self, dict: ValueIndex, key: &str) -> Option<ValueIndex> {
        let Value::Dict(pairs) = &self.values[dict] else {
            return None;
        };
        let mut pairs = pairs.iter().rev();
        let found = pairs.find(|(it, _)| self.text(*it) == Some(key));
        found.map(|(_, value)| *value)
    }

    /// An attribute of an object. Models of pydantic keep theirs one level deeper, under `__dict__`.
    pub(super) fn attribute(&self, object: ValueIndex, name: &str) -> Option<ValueIndex> {
        let Value::Object(object) = &self.values[object] else {
            return None;
        };
        let state = object.state?;
        let inner = self.entry(state, "__dict__").unwrap_or(state);
        self.entry(inner, name)
    }

    /// The value as JSON of at most about so many bytes.
    pub(super) fn json(&self, index: ValueIndex, bytes_max: usize) -> Result<Json, String> {
        let mut left = bytes_max;
        self.to_json(index, 0, &mut left)
            .map_err(|wrong| match wrong {
                Some(wrong) => wrong,
                None => format!("it has more than {bytes_max} bytes as JSON"),
            })
    }

    /// `Err(None)`: it is too large.
    fn to_json(
        &self,
        index: ValueIndex,
        depth: usize,
        left: &mut usize,
    ) -> Result<Json, Option<String>> {
        if depth > DEPTH_MAX {
            return Err(Some(format!("it has more than {DEPTH_MAX} levels")));
        }
        let value = &self.values[index];
        // A value and what stands between it and the next one.
        spend(left, 2)?;
        Ok(match value {
            Value::None => Json::Null,
            Value::Bool(is_true) => Json::Bool(*is_true),
            Value::Int(number) => Json::from(*number),
            Value::Long(bytes) => {
                // Three decimal digits for each byte, or fewer.
                spend(left, 3 * bytes.len())?;
                number(&decimal::of(bytes))?
            }
            Value::Float(float) => number(&python::float(*float))?,
            Value::Text(text) => {
                spend(left, text.len())?;
                Json::String((*text).to_owned())
            }
            Value::List(list) => {
                let each = list.iter().map(|it| self.to_json(*it, depth + 1, left));
                Json::Array(each.collect::<Result<_, _>>()?)
            }
            Value::Dict(pairs) => self.map_to_json(pairs, depth, left)?,
            Value::Opaque => {
                return Err(Some("it holds bytes or a set, which JSON has not".into()));
            }
            Value::Object(object) if !object.items.is_empty() => {
                self.map_to_json(&object.items, depth, left)?
            }
            Value::Object(object) => return Err(Some(self.no_json(object.class))),
            Value::Named(..) => return Err(Some(self.no_json(index))),
        })
    }

    fn map_to_json(
        &self,
        pairs: &[(ValueIndex, ValueIndex)],
        depth: usize,
        left: &mut usize,
    ) -> Result<Json, Option<String>> {
        let mut map = Map::new();
        for (key, value) in pairs {
            let key = self.text(*key);
            let key = key.ok_or_else(|| Some("a key of a dictionary is no text".to_owned()))?;
            spend(left, key.len() + 2)?;
            map.insert(key.to_owned(), self.to_json(*value, depth + 1, left)?);
        }
        Ok(Json::Object(map))
    }

    fn no_json(&self, class: ValueIndex) -> String {
        let (module, name) = self.named(class).unwrap_or_default();
        let (module, name) = (short(module), short(name));
        format!("it holds {module:?}.{name:?}, which JSON has not")
    }

    /// An exception as Python shows it: its class without the module, and its arguments; `None` for what is no object.
    pub(super) fn exception(&self, index: ValueIndex, bytes_max: usize) -> Option<String> {
        let Value::Object(object) = &self.values[index] else {
            return None;
        };
        let (_, name) = self.named(object.class)?;
        let arguments = self.elements(object.arguments).iter().take(ARGUMENTS_MAX);
        let shown = arguments.map(|argument| {
            let json = self.json(*argument, bytes_max);
            json.map_or_else(|_| "...".to_owned(), |json| python::repr(&json))
        });
        let shown: Vec<_> = shown.collect();
        Some(format!("{}({})", short(name), shown.join(", ")))
    }
}

/// Most arguments of an exception that are shown.
const ARGUMENTS_MAX: usize = 10;

fn spend(left: &mut usize, bytes: usize) -> Result<(), Option<String>> {
    *left = left.checked_sub(bytes).ok_or(None)?;
    Ok(())
}

fn number(text: &str) -> Result<Json, Option<String>> {
    let number: Result<Number, _> = text.parse();
    let wrong = |_| Some(format!("{text} is no number of JSON"));
    number.map(Json::Number).map_err(wrong)
}

/// The beginning of a name.
fn short(name: &str) -> String {
    name.chars().take(100).collect()
}
