//! JSON, as much of it as the protocol has: objects, lists, strings, integers up to 2^53, booleans and null. Fractions are
//! refused. Depth, and through the caller length, are bounded. Own code for the reason given in `crc.rs`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::failure::Failure;

const MAX_DEPTH: usize = 16;
const MAX_INTEGER: i64 = 1 << 53;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}
impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}
impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Int(value.min(MAX_INTEGER as u64) as i64)
    }
}
impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Int(i64::from(value))
    }
}
impl From<Vec<Value>> for Value {
    fn from(list: Vec<Value>) -> Value {
        Value::List(list)
    }
}
impl From<Failure> for Value {
    fn from(failure: Failure) -> Value {
        Value::Map(alloc::vec![("code".into(), failure.code.into()), ("message".into(), failure.message.into())])
    }
}

/// `object! { "a": 1u64, "b": "text" }`
#[macro_export]
macro_rules! object {
    ($($name:literal : $value:expr),* $(,)?) => {
        $crate::json::Value::Map(alloc::vec![$(($name.into(), $crate::json::Value::from($value))),*])
    };
}

impl Value {
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Value::Text(text) => write_text(out, text),
            Value::List(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Value::Map(fields) => {
                out.push(b'{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_text(out, name);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// The field of an object; `None` if it is absent, null or this is no object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Map(fields) => fields.iter().find(|(n, _)| n == name).map(|(_, v)| v).filter(|v| **v != Value::Null),
            _ => None,
        }
    }

    fn wrong(name: &str, expected: &str) -> Failure {
        Failure::invalid(format!("Invalid {name}: must be {expected}"))
    }

    pub fn opt_text(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Value::wrong(name, "a string")),
        }
    }
    pub fn text(&self, name: &str) -> Result<&str, Failure> {
        self.opt_text(name)?.ok_or_else(|| Value::wrong(name, "given"))
    }
    pub fn opt_u64(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Int(number)) if *number >= 0 => Ok(Some(*number as u64)),
            Some(_) => Err(Value::wrong(name, "a non-negative integer")),
        }
    }
    pub fn u64(&self, name: &str) -> Result<u64, Failure> {
        self.opt_u64(name)?.ok_or_else(|| Value::wrong(name, "given"))
    }
    /// Absent is false.
    pub fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(Value::wrong(name, "a boolean")),
        }
    }
    /// Absent is empty.
    pub fn list(&self, name: &str) -> Result<&[Value], Failure> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::List(items)) => Ok(items),
            Some(_) => Err(Value::wrong(name, "a list")),
        }
    }
    pub fn texts(&self, name: &str) -> Result<Vec<String>, Failure> {
        self.list(name)?
            .iter()
            .map(|item| match item {
                Value::Text(text) => Ok(text.clone()),
                _ => Err(Value::wrong(name, "a list of strings")),
            })
            .collect()
    }
    /// A list of `[key, value]` pairs.
    pub fn pairs(&self, name: &str) -> Result<Vec<(String, String)>, Failure> {
        self.list(name)?
            .iter()
            .map(|item| match item {
                Value::List(pair) => match pair.as_slice() {
                    [Value::Text(key), Value::Text(value)] => Ok((key.clone(), value.clone())),
                    _ => Err(Value::wrong(name, "a list of pairs of strings")),
                },
                _ => Err(Value::wrong(name, "a list of pairs of strings")),
            })
            .collect()
    }

    /// Refuses fields we do not know, by name.
    pub fn only(&self, known: &[&str]) -> Result<(), Failure> {
        let Value::Map(fields) = self else {
            return Err(Failure::invalid("The request must be a JSON object"));
        };
        match fields.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(Failure::new("FIELD_UNKNOWN", format!("Unknown field {name}"))),
            None => Ok(()),
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Parses one value and nothing after it.
pub fn parse(bytes: &[u8]) -> Result<Value, Failure> {
    let text = core::str::from_utf8(bytes).map_err(|_| Failure::invalid("The request is not UTF-8"))?;
    let mut parser = Parser { bytes: text.as_bytes(), at: 0 };
    let value = parser.value(0)?;
    parser.space();
    if parser.at == bytes.len() { Ok(value) } else { Err(parser.wrong()) }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self) -> Failure {
        Failure::invalid(format!("Malformed JSON at byte {}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Failure> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.wrong())
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Failure> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.wrong())
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        if depth > MAX_DEPTH {
            return Err(self.wrong());
        }
        self.space();
        match self.peek() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'"') => self.text().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.integer(),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.map(depth),
            _ => Err(self.wrong()),
        }
    }

    fn integer(&mut self) -> Result<Value, Failure> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return Err(self.wrong());
        }
        let digits = core::str::from_utf8(&self.bytes[start..self.at]).unwrap_or("");
        match digits.parse::<i64>() {
            Ok(number) if (-MAX_INTEGER..=MAX_INTEGER).contains(&number) => Ok(Value::Int(number)),
            _ => Err(self.wrong()),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Failure> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::List(items));
                }
                _ => return Err(self.wrong()),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Failure> {
        self.at += 1;
        let mut fields: Vec<(String, Value)> = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(fields));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong());
            }
            let name = self.text()?;
            self.space();
            self.expect(b':')?;
            let value = self.value(depth + 1)?;
            if fields.iter().any(|(n, _)| *n == name) {
                return Err(Failure::invalid(format!("Field {name} is given twice")));
            }
            fields.push((name, value));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Map(fields));
                }
                _ => return Err(self.wrong()),
            }
        }
    }

    fn text(&mut self) -> Result<String, Failure> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.wrong())?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|_| self.wrong()),
                b'\\' => self.escape(&mut out)?,
                0..=0x1f => return Err(self.wrong()),
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let byte = self.peek().ok_or_else(|| self.wrong())?;
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let unit = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&unit) {
                    self.expect(b'\\')?;
                    self.expect(b'u')?;
                    let low = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.wrong());
                    }
                    0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    unit
                };
                let character = char::from_u32(code).ok_or_else(|| self.wrong())?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.wrong()),
        });
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Failure> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or_else(|| self.wrong())?;
        let mut unit = 0;
        for digit in digits {
            unit = unit * 16 + (*digit as char).to_digit(16).ok_or_else(|| self.wrong())?;
        }
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        String::from_utf8(parse(text.as_bytes()).expect("valid").to_bytes()).expect("UTF-8")
    }

    #[test]
    fn reads_and_writes_each_kind() {
        assert_eq!(round_trip(r#" {"a": [1, -2, null, true, false], "b": {"c": "x\ny"}} "#), r#"{"a":[1,-2,null,true,false],"b":{"c":"x\ny"}}"#);
        assert_eq!(round_trip(r#""\u00e9\ud83d\ude00\u0001\/""#), "\"é😀\\u0001/\"");
        assert_eq!(round_trip("9007199254740992"), "9007199254740992");
    }

    #[test]
    fn refuses_what_is_not_in_the_protocol() {
        let deep = "[".repeat(100);
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "1.5",
            "1e3",
            "9007199254740993",
            "\"\\ud800\"",
            "\"\\udc00x\"",
            "\"a",
            "nul",
            "1 2",
            "{\"a\":1,\"a\":2}",
            "\"\n\"",
            "-",
            &deep,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn typed_access_names_the_field() {
        let value = parse(br#"{"n":-1,"t":"x","e":[["A","1"]],"bad":[1]}"#).expect("valid");
        assert_eq!(value.u64("n").unwrap_err().message, "Invalid n: must be a non-negative integer");
        assert_eq!(value.u64("missing").unwrap_err().code, "REQUEST_INVALID");
        assert_eq!(value.text("t"), Ok("x"));
        assert_eq!(value.pairs("e"), Ok(vec![("A".to_string(), "1".to_string())]));
        assert!(value.texts("bad").is_err());
        assert!(value.pairs("bad").is_err());
        assert_eq!(value.only(&["n", "t", "e"]).unwrap_err().message, "Unknown field bad");
    }

    #[test]
    fn survives_mutated_input() {
        let seed = br#"{"op":"exec.start","argv":["a","\u00e9"],"n":[1,2,{"x":null}],"t":true}"#;
        let mut state = 1u32;
        for _ in 0..20_000 {
            let mut bytes = seed.to_vec();
            for _ in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % bytes.len();
                bytes[at] = (state >> 24) as u8;
            }
            if let Ok(value) = parse(&bytes) {
                assert_eq!(parse(&value.to_bytes()), Ok(value));
            }
        }
    }
}
