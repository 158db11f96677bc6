//! Decodes values in Python's pickle format. Decoding runs no code: classes and functions stay names.
//!
//! A container is written before its members, and may be changed later, so all values are in one list and refer to each
//! other by index. A value may contain itself.

mod decimal;
mod read;
#[cfg(test)]
mod tests;

use ganger_ngsi::python;
use serde_json::{Map, Number, Value as Json};

/// Maximum number of values of a pickle, and of entries in each table of the reader.
const VALUES_MAX: usize = 1_000_000;
/// Maximum depth of values that are converted to JSON.
const DEPTH_MAX: usize = 120;

/// The index of a value in a pickle.
pub(super) type ValueIndex = usize;

/// A decoded value. Texts and names borrow from the input.
#[derive(Debug)]
enum Value<'a> {
    None,
    Bool(bool),
    /// A whole number of 64 bits.
    Int(i64),
    /// A larger whole number: two's complement, little-endian.
    Long(&'a [u8]),
    Float(f64),
    Text(&'a str),
    /// Bytes or a set, which JSON does not have.
    Opaque,
    /// A list or a tuple.
    List(Vec<ValueIndex>),
    Dict(Vec<(ValueIndex, ValueIndex)>),
    /// A class or a function: its module and its name.
    Named(&'a str, &'a str),
    Object(Box<Object>),
}

/// An object made by a class.
#[derive(Debug)]
struct Object {
    /// Index of its class, a [`Value::Named`].
    class: ValueIndex,
    arguments: ValueIndex,
    /// Its state, usually a dictionary of its attributes; `None` if none was set.
    state: Option<ValueIndex>,
    /// Keys and values, if its class is a kind of dictionary.
    items: Vec<(ValueIndex, ValueIndex)>,
}

/// A decoded pickle: all of its values.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    top: ValueIndex,
}

impl<'a> Pickle<'a> {
    /// Decodes a pickle of the protocols 2 to 5.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let (values, top) = read::all(bytes)?;
        Ok(Self { values, top })
    }

    /// Returns the value that contains all others.
    pub(super) fn top(&self) -> ValueIndex {
        self.top
    }

    /// Returns the elements of a list or tuple; none for any other value.
    pub(super) fn elements(&self, index: ValueIndex) -> &[ValueIndex] {
        match &self.values[index] {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// Returns a text; `None` for any other value.
    pub(super) fn text(&self, index: ValueIndex) -> Option<&'a str> {
        match &self.values[index] {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the module and name of an object's class; `None` for any other value.
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

    /// Returns the value of a dictionary's key; `None` if it has no such key.
    pub(super) fn entry(&self, dict: ValueIndex, key: &str) -> Option<ValueIndex> {
        let Value::Dict(pairs) = &self.values[dict] else {
            return None;
        };
        let mut pairs = pairs.iter().rev();
        let found = pairs.find(|(it, _)| self.text(*it) == Some(key));
        found.map(|(_, value)| *value)
    }

    /// Returns an attribute of an object. Models of pydantic have theirs one level deeper, in `__dict__`.
    pub(super) fn attribute(&self, object: ValueIndex, name: &str) -> Option<ValueIndex> {
        let Value::Object(object) = &self.values[object] else {
            return None;
        };
        let state = object.state?;
        let inner = self.entry(state, "__dict__").unwrap_or(state);
        self.entry(inner, name)
    }

    /// Converts the value to JSON of approximately at most `bytes_max` bytes.
    pub(super) fn json(&self, index: ValueIndex, bytes_max: usize) -> Result<Json, String> {
        let mut left = bytes_max;
        self.to_json(index, 0, &mut left)
            .map_err(|wrong| match wrong {
                Some(wrong) => wrong,
                None => format!("it has more than {bytes_max} bytes as JSON"),
            })
    }

    /// Converts a value to JSON; `Err(None)` if it is too large.
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
        // A value and its separator.
        spend(left, 2)?;
        Ok(match value {
            Value::None => Json::Null,
            Value::Bool(is_true) => Json::Bool(*is_true),
            Value::Int(number) => Json::from(*number),
            Value::Long(bytes) => {
                // At most three decimal digits for each byte.
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
                return Err(Some(
                    "it has bytes or a set, which JSON does not have".into(),
                ));
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
            let key = key.ok_or_else(|| Some("a key of a dictionary is not a text".to_owned()))?;
            spend(left, key.len() + 2)?;
            map.insert(key.to_owned(), self.to_json(*value, depth + 1, left)?);
        }
        Ok(Json::Object(map))
    }

    fn no_json(&self, class: ValueIndex) -> String {
        let (module, name) = self.named(class).unwrap_or_default();
        let (module, name) = (short(module), short(name));
        format!("it holds {module:?}.{name:?}, which JSON does not have")
    }

    /// Returns an exception as Python prints it: its class without the module, and its arguments; `None` if the value
    /// is not an object.
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

/// Maximum number of an exception's arguments that are shown.
const ARGUMENTS_MAX: usize = 10;

fn spend(left: &mut usize, bytes: usize) -> Result<(), Option<String>> {
    *left = left.checked_sub(bytes).ok_or(None)?;
    Ok(())
}

fn number(text: &str) -> Result<Json, Option<String>> {
    let number: Result<Number, _> = text.parse();
    let wrong = |_| Some(format!("{text} is not a number in JSON"));
    number.map(Json::Number).map_err(wrong)
}

/// Returns the start of a name.
fn short(name: &str) -> String {
    name.chars().take(100).collect()
}
