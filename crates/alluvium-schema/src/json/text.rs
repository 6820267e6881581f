//! The text of JSON strings.

use super::Fault;

/// What stands between the quotes of a string that was scanned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'a> {
    /// The characters themselves.
    Plain(&'a [u8]),
    /// With escape sequences, which are valid.
    Escaped(&'a [u8]),
}

impl<'a> Text<'a> {
    /// The characters that the string stands for; `scratch` is used when they have to be unescaped.
    #[inline(always)]
    pub(crate) fn unescaped<'s>(self, scratch: &'s mut Vec<u8>) -> &'s [u8]
    where
        'a: 's,
    {
        match self {
            Self::Plain(raw) => raw,
            Self::Escaped(raw) => {
                scratch.clear();
                unescape(raw, scratch);
                scratch
            }
        }
    }

    /// Appends the characters that the string stands for.
    #[inline(always)]
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(raw) => out.extend_from_slice(raw),
            Self::Escaped(raw) => unescape(raw, out),
        }
    }
}

#[inline(never)]
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        let character = escaped_char(rest, at);
        let (character, end) = character.unwrap_or((char::REPLACEMENT_CHARACTER, rest.len()));
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = rest.get(end..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// Checks the escape sequence whose backslash stands at `at`; where it ends.
pub(super) fn check_escape(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    if let Some((_, end)) = escaped_char(bytes, at) {
        return Ok(end);
    }
    let surrogate = hex_unit(bytes, at).is_some_and(|unit| (0xd800..0xe000).contains(&unit));
    Err(if surrogate { Fault::Surrogate } else { Fault::Escape })
}

/// The character that the escape sequence at `at` stands for, and where it ends.
fn escaped_char(bytes: &[u8], at: usize) -> Option<(char, usize)> {
    let character = match bytes.get(at + 1)? {
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let unit = hex_unit(bytes, at)?;
            if !(0xd800..0xdc00).contains(&unit) {
                return Some((char::from_u32(unit)?, at + 6));
            }
            let low = hex_unit(bytes, at + 6).filter(|low| (0xdc00..0xe000).contains(low))?;
            return Some((char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?, at + 12));
        }
        _ => return None,
    };
    Some((character, at + 2))
}

/// The UTF-16 unit that `\u` and four hex digits at `at` stand for.
fn hex_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..)?.strip_prefix(b"\\u")?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// Appends `text` as a JSON string. No longer than any JSON spelling of the same text.
pub(crate) fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        let short = match character {
            '"' => b'"',
            '\\' => b'\\',
            '\u{8}' => b'b',
            '\u{c}' => b'f',
            '\n' => b'n',
            '\r' => b'r',
            '\t' => b't',
            '\0'..='\u{1f}' => {
                let digits = format!("\\u{:04x}", character as u32);
                out.extend_from_slice(digits.as_bytes());
                continue;
            }
            _ => {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::json::Scanner;
    use proptest::prelude::*;

    fn unescape(json: &str) -> Result<String, Fault> {
        let mut scratch = Vec::new();
        let text = Scanner::new(json.as_bytes()).string()?;
        Ok(String::from_utf8(text.unescaped(&mut scratch).to_vec()).unwrap())
    }

    #[test]
    fn surrogates_come_in_pairs() {
        assert_eq!(unescape(r#""\ud83d\ude00""#).unwrap(), "\u{1f600}");
        for bad in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx\ude00""#, r#""\ud83d\ud83d""#, r#""\ud83d\u0041""#] {
            assert_eq!(unescape(bad), Err(Fault::Surrogate), "{bad}");
        }
        for bad in [r#""\u12""#, r#""\u12g4""#, r#""\u+123""#, r#""\x""#, r#""\""#, r#""\"#] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn quoting_and_unescaping_are_inverse(text in "\\PC*|[\\x00-\\x7f]*") {
            let mut json = Vec::new();
            quote(&text, &mut json);
            let json = String::from_utf8(json).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text.clone());
            prop_assert_eq!(unescape(&json).unwrap(), text);
        }

        #[test]
        fn unescapes_as_serde_json_does(body in r#"(\\[u"\\/bfnrtx]|[0-9a-fA-FdD8é]){0,20}"#) {
            let json = format!("\"{body}\"");
            prop_assert_eq!(unescape(&json).ok(), serde_json::from_str::<String>(&json).ok());
        }
    }
}
