//! Runs the opcodes of a pickle: each is a byte with arguments, and works on a stack of values.
//!
//! The work is linear in the input: each opcode consumes at least one byte, and copies no more than it consumes.

use std::collections::HashMap;

use super::{Object, VALUES_MAX, Value, ValueIndex};

/// Maximum bytes of a whole number: about 4,900 digits. Python itself prints at most 4,300.
const LONG_BYTES_MAX: usize = 2_048;
/// Newest supported protocol, which Python 3.8 and later write.
const PROTOCOL_MAX: u8 = 5;

/// Decodes all values of a pickle; returns them with the index of the one that contains the others.
pub(super) fn all(bytes: &[u8]) -> Result<(Vec<Value<'_>>, ValueIndex), String> {
    let mut reader = Reader {
        rest: bytes,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    let top = reader.run()?;
    Ok((reader.values, top))
}

struct Reader<'a> {
    rest: &'a [u8],
    values: Vec<Value<'a>>,
    stack: Vec<ValueIndex>,
    /// Lengths of the stack at its marks.
    marks: Vec<usize>,
    /// Memo: values that later opcodes refer to by number.
    memo: HashMap<usize, ValueIndex>,
}

impl<'a> Reader<'a> {
    fn run(&mut self) -> Result<ValueIndex, String> {
        loop {
            let step = self.take(1)?[0];
            if step == b'.' {
                return self.pop();
            }
            let is_known = self.scalar(step)?
                || self.container(step)?
                || self.object(step)?
                || self.reference(step)?;
            if !is_known {
                return Err(format!("its opcode {step:#04x} is not supported"));
            }
            let sizes = [self.values.len(), self.stack.len(), self.memo.len()];
            if sizes.iter().any(|size| *size > VALUES_MAX) || self.marks.len() > VALUES_MAX {
                return Err(format!("it has more than {VALUES_MAX} values"));
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let taken = self.rest.split_at_checked(count);
        let (taken, rest) = taken.ok_or("it is cut short")?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a little-endian size of `bytes` bytes, at most 8.
    fn size(&mut self, bytes: usize) -> Result<usize, String> {
        let digits = self.take(bytes)?.iter().rev();
        let size = digits.fold(0_u64, |sum, digit| sum << 8 | u64::from(*digit));
        usize::try_from(size).map_err(|_| "a size is too large".to_owned())
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let line = self.take(end.ok_or("it is cut short")?)?;
        self.take(1)?;
        utf8(line)
    }

    fn push(&mut self, value: Value<'a>) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    /// Returns the top of the stack above the last mark.
    fn last(&self) -> Result<ValueIndex, String> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(bottom..).unwrap_or_default();
        above.last().copied().ok_or_else(missing)
    }

    fn pop(&mut self) -> Result<ValueIndex, String> {
        let last = self.last()?;
        self.stack.pop();
        Ok(last)
    }

    /// Pops the values above the last mark, and the mark.
    fn above_mark(&mut self) -> Result<Vec<ValueIndex>, String> {
        let bottom = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.drain(bottom..).collect())
    }

    fn text(&mut self, size: usize) -> Result<(), String> {
        let text = utf8(self.take(size)?)?;
        self.push(Value::Text(text));
        Ok(())
    }

    fn opaque(&mut self, size: usize) -> Result<(), String> {
        self.take(size)?;
        self.push(Value::Opaque);
        Ok(())
    }

    fn long(&mut self, size: usize) -> Result<(), String> {
        if size > LONG_BYTES_MAX {
            return Err(format!("a number has more than {LONG_BYTES_MAX} bytes"));
        }
        let bytes = self.take(size)?;
        self.push(Value::Long(bytes));
        Ok(())
    }

    fn scalar(&mut self, step: u8) -> Result<bool, String> {
        match step {
            b'N' => self.push(Value::None),
            0x88 | 0x89 => self.push(Value::Bool(step == 0x88)),
            b'K' | b'M' => {
                let size = self.size(if step == b'K' { 1 } else { 2 })?;
                self.push(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)));
            }
            b'J' => {
                let bytes = self.take(4)?.try_into().expect("four were taken");
                self.push(Value::Int(i32::from_le_bytes(bytes).into()));
            }
            0x8a => self.size(1).and_then(|size| self.long(size))?,
            0x8b => self.size(4).and_then(|size| self.long(size))?,
            b'G' => {
                let bytes = self.take(8)?.try_into().expect("eight were taken");
                self.push(Value::Float(f64::from_be_bytes(bytes)));
            }
            0x8c => self.size(1).and_then(|size| self.text(size))?,
            b'X' => self.size(4).and_then(|size| self.text(size))?,
            0x8d => self.size(8).and_then(|size| self.text(size))?,
            b'C' => self.size(1).and_then(|size| self.opaque(size))?,
            b'B' => self.size(4).and_then(|size| self.opaque(size))?,
            0x8e | 0x96 => self.size(8).and_then(|size| self.opaque(size))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn container(&mut self, step: u8) -> Result<bool, String> {
        match step {
            b'(' => self.marks.push(self.stack.len()),
            b']' | b')' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            0x8f => self.push(Value::Opaque),
            b't' | b'l' => {
                let list = self.above_mark()?;
                self.push(Value::List(list));
            }
            b'd' => {
                let pairs = pairs(&self.above_mark()?)?;
                self.push(Value::Dict(pairs));
            }
            0x91 => {
                self.above_mark()?;
                self.push(Value::Opaque);
            }
            0x85..=0x87 => {
                let mut list = Vec::with_capacity(3);
                for _ in 0x84..step {
                    list.push(self.pop()?);
                }
                list.reverse();
                self.push(Value::List(list));
            }
            b'a' => {
                let value = self.pop()?;
                self.append(&[value])?;
            }
            b'e' | 0x90 => {
                let values = self.above_mark()?;
                self.append(&values)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let values = self.above_mark()?;
                self.set(&values)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn append(&mut self, more: &[ValueIndex]) -> Result<(), String> {
        let list = self.last()?;
        match &mut self.values[list] {
            Value::List(list) => list.extend(more),
            // The members of a set are not needed.
            Value::Opaque => {}
            _ => return Err("a value is appended to something that is not a list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, more: &[ValueIndex]) -> Result<(), String> {
        let dict = self.last()?;
        let items = match &mut self.values[dict] {
            Value::Dict(items) => items,
            Value::Object(object) => &mut object.items,
            _ => return Err("a key is set in something that is not a dictionary".to_owned()),
        };
        items.extend(pairs(more)?);
        Ok(())
    }

    fn object(&mut self, step: u8) -> Result<bool, String> {
        match step {
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(module), Value::Text(name)) =
                    (&self.values[module], &self.values[name])
                else {
                    return Err("a class has no name".to_owned());
                };
                let (module, name) = (*module, *name);
                self.push(Value::Named(module, name));
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Named(module, name));
            }
            0x81 | b'R' => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                self.make(class, arguments)?;
            }
            0x92 => {
                let (_, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.make(class, arguments)?;
            }
            b'b' => {
                let (state, object) = (self.pop()?, self.last()?);
                let Value::Object(object) = &mut self.values[object] else {
                    return Err("attributes are set in something that is not an object".to_owned());
                };
                object.state = Some(state);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn make(&mut self, class: ValueIndex, arguments: ValueIndex) -> Result<(), String> {
        let Value::Named(..) = &self.values[class] else {
            return Err("an object is made by something that is not a class".to_owned());
        };
        self.push(Value::Object(Box::new(Object {
            class,
            arguments,
            state: None,
            items: Vec::new(),
        })));
        Ok(())
    }

    fn reference(&mut self, step: u8) -> Result<bool, String> {
        match step {
            0x80 => {
                let protocol = self.take(1)?[0];
                if protocol > PROTOCOL_MAX {
                    return Err(format!(
                        "its protocol is {protocol}, and the newest supported one is {PROTOCOL_MAX}"
                    ));
                }
            }
            // FRAME: the number of bytes up to the next frame.
            0x95 => drop(self.take(8)?),
            0x94 => {
                let index = self.last()?;
                self.memo.insert(self.memo.len(), index);
            }
            b'q' | b'r' => {
                let number = self.size(if step == b'q' { 1 } else { 4 })?;
                let index = self.last()?;
                self.memo.insert(number, index);
            }
            b'h' | b'j' => {
                let number = self.size(if step == b'h' { 1 } else { 4 })?;
                let index = self.memo.get(&number).copied();
                self.stack.push(index.ok_or_else(missing)?);
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.above_mark()?),
            b'2' => self.stack.push(self.last()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn pairs(values: &[ValueIndex]) -> Result<Vec<(ValueIndex, ValueIndex)>, String> {
    let (each, rest) = values.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a key has no value".to_owned());
    }
    Ok(each.iter().map(|[key, value]| (*key, *value)).collect())
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())
}

fn missing() -> String {
    "an opcode refers to a value that does not exist".to_owned()
}
