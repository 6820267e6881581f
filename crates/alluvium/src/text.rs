//! Bytes of strangers as text that a terminal can be given.

use serde::Serialize;
use serde::de::IgnoredAny;
use std::fmt::Write;

/// Bytes as JSON has them: a string where they are UTF-8, hex digits otherwise.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    Hex { hex: String },
}

impl Bytes {
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex { hex: hex(bytes) },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a character can steer a terminal, or hide or reorder what stands around it.
pub fn is_unsafe(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || is_format
}

/// Text on one line, with escapes for all that is unsafe and for bytes that are not UTF-8.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\r' | '\t' => text.extend(c.escape_default()),
                c if is_unsafe(c) => text.extend(c.escape_unicode()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _infallible = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The beginning of a text on one line, at most `most` characters.
pub fn cut(bytes: &[u8], most: usize) -> String {
    // No character is longer than four bytes.
    let text = escape(bytes.get(..most * 4).unwrap_or(bytes));
    let is_whole = bytes.len() <= most * 4 && text.chars().count() <= most;
    if is_whole { text } else { text.chars().take(most.saturating_sub(1)).chain(['…']).collect() }
}

/// Bytes as people want to see them: JSON indented, other text as lines, the rest as a hex dump.
pub fn pretty(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => lines(&indent(text)),
        Ok(text) => lines(text),
        Err(_) => hex_dump(bytes),
    }
}

/// Text of several lines, with escapes for all else that is unsafe.
pub fn lines(text: &str) -> String {
    text.split('\n').map(|line| escape(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

/// JSON text on many lines. Only its blanks change: its numbers, its order and its repeated keys stay.
fn indent(json: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    let mut characters = json.chars().peekable();
    while let Some(c) = characters.next() {
        if in_string {
            text.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\n' | '\r' | '\t' => {}
            '{' | '[' => {
                while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                text.push(c);
                if let Some(end) = characters.next_if(|c| matches!(c, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c => {
                in_string = c == '"';
                text.push(c);
            }
        }
    }
    text
}

fn line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

fn hex_dump(bytes: &[u8]) -> String {
    let row = |(index, row): (usize, &[u8])| {
        let digits: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        format!("{:08x}  {:<47}  {}", index * 16, digits.join(" "), row.iter().map(shown).collect::<String>())
    };
    bytes.chunks(16).enumerate().map(row).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        for c in (0..0x2_0000).filter_map(char::from_u32) {
            let text = c.to_string();
            for shown in [escape(text.as_bytes()), cut(text.as_bytes(), 20), pretty(text.as_bytes()), lines(&text)] {
                assert!(shown.chars().all(|c| c == '\n' || !is_unsafe(c)), "{c:?}");
            }
        }
        assert_eq!(escape(b"a\x1b[31m\xff\n\xc2\x9b"), r"a\u{1b}[31m\xff\n\u{9b}");
    }

    #[test]
    fn long_texts_are_cut_and_short_ones_are_not() {
        assert_eq!(cut(b"abc", 3), "abc");
        assert_eq!(cut(b"abcd", 3), "ab…");
        assert_eq!(cut("ééééé".as_bytes(), 4), "ééé…");
        assert_eq!(cut("🦀".repeat(100).as_bytes(), 3), "🦀🦀…");
    }

    #[test]
    fn json_keeps_its_numbers_and_its_order() {
        let shown = pretty(br#"{"b":1.10,"a":[1,{"c":"x\"}"}],"b":{},"e":[ ]}"#);
        assert_eq!(
            shown,
            "{\n  \"b\": 1.10,\n  \"a\": [\n    1,\n    {\n      \"c\": \"x\\\"}\"\n    }\n  ],\n  \"b\": {},\n  \"e\": []\n}"
        );
    }

    #[test]
    fn bytes_are_dumped() {
        assert_eq!(pretty(b"\xff\x00abc"), format!("00000000  {:<47}  ..abc", "ff 00 61 62 63"));
        assert_eq!(pretty(b"two\nlines\x07"), "two\nlines\\u{7}");
    }
}
