//! A strict scanner of JSON text.

mod number;
mod text;

pub(crate) use number::Number;
pub(crate) use text::{Text, quote};

/// The deepest nesting that is accepted; the record itself is level 1.
pub(crate) const MAX_DEPTH: u32 = 128;

/// Why a record is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Missing,
    Utf8,
    NotObject,
    Value,
    Number,
    String,
    Escape,
    Surrogate,
    Control,
    Unclosed,
    Colon,
    ObjectEnd,
    ListEnd,
    Trailing,
    Depth,
    Sparse,
    ChunkFull,
}

impl Fault {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Missing => "the record has no value",
            Self::Utf8 => "not UTF-8",
            Self::NotObject => "expected a JSON object",
            Self::Value => "expected a JSON value",
            Self::Number => "not a JSON number",
            Self::String => "expected a string",
            Self::Escape => "not an escape sequence of JSON",
            Self::Surrogate => "a lone surrogate, which has no UTF-8 form",
            Self::Control => "a raw control character in a string",
            Self::Unclosed => "a string is not closed",
            Self::Colon => "expected ':' after a key",
            Self::ObjectEnd => "expected ',' or '}' in an object",
            Self::ListEnd => "expected ',' or ']' in a list",
            Self::Trailing => "unexpected text after the object",
            Self::Depth => "nested deeper than 128 levels",
            Self::Sparse => "too few bytes for the many missing fields that they stand for",
            Self::ChunkFull => "its chunk holds 2 GiB of records already",
        }
    }
}

/// A position in the JSON text of one record, which is known to be UTF-8.
pub(crate) struct Scanner<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next byte that is not white space, without passing it; 0, which no JSON text holds
    /// there, at the end.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> u8 {
        let byte = self.byte();
        if byte > b' ' {
            return byte;
        }
        // One space, as many writers put after colons and commas.
        match self.bytes.get(self.at + 1) {
            Some(next) if byte == b' ' && *next > b' ' => {
                self.at += 1;
                *next
            }
            _ => self.skip_space(),
        }
    }

    #[inline(always)]
    fn byte(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline(never)]
    fn skip_space(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.byte()
    }

    /// The text between two positions.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn colon(&mut self) -> Result<(), Fault> {
        if self.peek() != b':' {
            return Err(Fault::Colon);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes `true`, `false` or `null`.
    #[inline(always)]
    pub(crate) fn literal(&mut self, literal: &[u8]) -> Result<(), Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !rest.starts_with(literal) {
            return Err(Fault::Value);
        }
        self.at += literal.len();
        Ok(())
    }

    /// Passes a string, the scanner being at its opening quote.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Result<Text<'a>, Fault> {
        if self.byte() != b'"' {
            return Err(Fault::String);
        }
        let start = self.at + 1;
        let stop = self.find_special(start);
        if self.bytes.get(stop) == Some(&b'"') {
            self.at = stop + 1;
            return Ok(Text::Plain(self.slice(start, stop)));
        }
        self.string_with_escapes(start, stop)
    }

    #[cold]
    #[inline(never)]
    fn string_with_escapes(&mut self, start: usize, first: usize) -> Result<Text<'a>, Fault> {
        self.at = first;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    let raw = self.slice(start, self.at);
                    self.at += 1;
                    return Ok(Text::Escaped(raw));
                }
                Some(b'\\') => self.at = text::check_escape(self.bytes, self.at)?,
                Some(_) => return Err(Fault::Control),
                None => return Err(Fault::Unclosed),
            }
            self.at = self.find_special(self.at);
        }
    }

    /// Where the first quote, backslash or control character stands at or after `from`; the end of
    /// the text when there is none. Looks at eight bytes at a time.
    #[inline(always)]
    fn find_special(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(word) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let found = special_bytes(u64::from_le_bytes(*word));
            if found != 0 {
                return at + found.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        while let Some(byte) = self.bytes.get(at) {
            if matches!(byte, b'"' | b'\\' | 0..0x20) {
                return at;
            }
            at += 1;
        }
        at
    }

    /// Passes a number.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Result<Number<'a>, Fault> {
        let (number, end) = Number::scan(self.bytes, self.at).ok_or(Fault::Number)?;
        self.at = end;
        Ok(number)
    }

    /// Checks and passes any value that stands at nesting level `depth`; what it is made of lies
    /// one level deeper.
    pub(crate) fn skip_value(&mut self, depth: u32) -> Result<(), Fault> {
        match self.peek() {
            b'"' => self.string().map(|_| ()),
            b'{' => self.skip_object(depth),
            b'[' => self.skip_list(depth),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            _ => Err(Fault::Value),
        }
    }

    fn skip_object(&mut self, depth: u32) -> Result<(), Fault> {
        self.enter(depth)?;
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.peek();
            self.string()?;
            self.colon()?;
            self.skip_value(depth + 1)?;
            if self.object_ends()? {
                return Ok(());
            }
        }
    }

    fn skip_list(&mut self, depth: u32) -> Result<(), Fault> {
        self.enter(depth)?;
        if self.peek() == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_value(depth + 1)?;
            if self.list_ends()? {
                return Ok(());
            }
        }
    }

    /// Passes the opening bracket of an object or a list inside nesting level `depth`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, depth: u32) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return Err(Fault::Depth);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes what follows a member of an object: a comma, or the end.
    #[inline(always)]
    pub(crate) fn object_ends(&mut self) -> Result<bool, Fault> {
        let byte = self.peek();
        if byte != b',' && byte != b'}' {
            return Err(Fault::ObjectEnd);
        }
        self.at += 1;
        Ok(byte == b'}')
    }

    /// Passes what follows an element of a list: a comma, or the end.
    #[inline(always)]
    pub(crate) fn list_ends(&mut self) -> Result<bool, Fault> {
        let byte = self.peek();
        if byte != b',' && byte != b']' {
            return Err(Fault::ListEnd);
        }
        self.at += 1;
        Ok(byte == b']')
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte that is a quote, a backslash or a control character. Bytes above the
/// first found may be marked wrongly: a borrow runs upwards.
#[inline(always)]
fn special_bytes(word: u64) -> u64 {
    // With this bit turned a quote is 0x20, just above the control characters, which stay below it.
    let low = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslashes = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (low | backslashes) & !word & HIGH_BITS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn accepts(json: &[u8]) -> bool {
        let mut scanner = Scanner::new(json);
        scanner.skip_value(0).is_ok() && scanner.peek() == 0 && scanner.at == json.len()
    }

    #[test]
    fn depth_is_counted_from_the_outermost_value() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |levels: usize| {
                let inner = if open == "[" { "[]" } else { "{}" };
                format!("{}{inner}{}", open.repeat(levels - 1), close.repeat(levels - 1))
            };
            assert!(accepts(nested(128).as_bytes()));
            assert!(!accepts(nested(129).as_bytes()));
        }
    }

    #[test]
    fn a_nul_byte_is_no_end() {
        assert!(!accepts(b"{}\0"));
        assert!(!accepts(b"[1\0]"));
        assert!(!accepts(b"\0"));
    }

    proptest! {
        #[test]
        fn special_bytes_are_found_wherever_they_stand(text in prop::collection::vec(any::<u8>(), 0..40), from in 0usize..40) {
            let from = from.min(text.len());
            let plain = text[from..].iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20));
            let expected = plain.map_or(text.len(), |at| from + at);
            prop_assert_eq!(Scanner::new(&text).find_special(from), expected);
        }

        /// serde_json accepts the same texts, but for what it does not check when skipping
        /// (surrogates) and the depth.
        #[test]
        fn accepts_what_serde_json_accepts(text in r#"[\[\]{}:,"a\\u0-9dD8.eE+\- tnrulfase]{0,12}"#) {
            let theirs = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text).is_ok();
            let surrogate = text.to_lowercase().contains("\\ud");
            prop_assert!(accepts(text.as_bytes()) == theirs || (theirs && surrogate), "{}", text);
        }
    }
}
