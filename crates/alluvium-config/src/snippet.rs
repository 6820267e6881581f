//! Places in the file, and the lines to show for them.

use std::borrow::Cow;
use std::ops::Range;
use unicode_width::UnicodeWidthChar;

/// A line of the file as a terminal shows it, with the part to mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snippet {
    pub line: String,
    /// Terminal columns before the mark.
    pub start: usize,
    /// Terminal columns of the mark, at least 1.
    pub length: usize,
}

/// Longer lines are cut around the mark.
const WIDTH: usize = 110;
/// What stays visible before the mark in a line that is cut.
const BEFORE: usize = 40;

/// A part of a line that is shown as a whole or not at all.
struct Cell {
    at: usize,
    shown: Cow<'static, str>,
    width: usize,
}

/// The text with the places of its lines.
#[derive(Debug)]
pub(crate) struct Lines<'t> {
    text: &'t str,
    /// Where each line starts; the first after a byte order mark.
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub fn new(text: &'t str) -> Self {
        let first = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { text, starts: std::iter::once(first).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    fn index(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// Line and column of a byte position, from 1; columns in characters.
    pub fn position(&self, at: usize) -> (usize, usize) {
        let index = self.index(at);
        let start = self.starts.get(index).copied().unwrap_or_default();
        let end = self.text.floor_char_boundary(at).max(start);
        let before = self.text.get(start..end).unwrap_or_default();
        (index + 1, before.chars().count() + 1)
    }

    /// The line of a byte position, without its end.
    pub fn line(&self, at: usize) -> Range<usize> {
        let index = self.index(at);
        let start = self.starts.get(index).copied().unwrap_or_default();
        let next = self.starts.get(index + 1).copied();
        let end = next.map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(start..end).unwrap_or_default();
        start..start + line.strip_suffix('\r').unwrap_or(line).len()
    }

    /// The line where `span` starts with the part in it marked; what lies in `secrets` is masked.
    pub fn snippet(&self, span: &Range<usize>, secrets: &[Range<usize>]) -> Snippet {
        let line = self.line(span.start);
        // Far more than is shown, and little enough for lines of any length.
        let near = line.start.max(self.text.floor_char_boundary(span.start.saturating_sub(8 * WIDTH)));
        let far = self.text.floor_char_boundary(span.start.saturating_add(8 * WIDTH)).min(line.end).max(near);
        let cells = self.cells(near..far, secrets);
        let marked = cells.partition_point(|cell| cell.at < span.start);
        // A mask stands for all that it hides: a mark inside of it marks the mask.
        let hidden = cells.get(marked).is_none_or(|cell| cell.at > span.start);
        let marked = match marked.checked_sub(1).and_then(|before| cells.get(before)) {
            Some(before) if hidden && secrets.iter().any(|s| s.contains(&before.at) && s.contains(&span.start)) => {
                marked - 1
            }
            _ => marked,
        };
        let width = |cells: &[Cell]| cells.iter().map(|cell| cell.width).sum::<usize>();
        let (before, rest) = cells.split_at(marked.min(cells.len()));
        let mut shown = String::new();
        let mut start = width(before);
        let mut kept = before;
        if start > WIDTH - BEFORE || near > line.start {
            while let [_, left @ ..] = kept
                && width(kept) > BEFORE
            {
                kept = left;
            }
            shown.push('…');
            start = 1 + width(kept);
        }
        shown.extend(kept.iter().map(|cell| cell.shown.as_ref()));
        let mut length = 0;
        let mut total = start;
        for cell in rest {
            if total + cell.width > WIDTH {
                shown.push('…');
                break;
            }
            total += cell.width;
            shown.push_str(&cell.shown);
            if cell.at < span.end {
                length += cell.width;
            }
        }
        Snippet { line: shown, start, length: length.max(1) }
    }

    fn cells(&self, line: Range<usize>, secrets: &[Range<usize>]) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        let mut masked: Option<&Range<usize>> = None;
        for (offset, character) in self.text.get(line.clone()).unwrap_or_default().char_indices() {
            let at = line.start + offset;
            if masked.is_some_and(|mask| mask.contains(&at)) {
                continue;
            }
            masked = secrets.iter().find(|secret| secret.contains(&at));
            let shown = if masked.is_some() { Cow::Borrowed("***") } else { shown(character) };
            let width = shown.chars().map(|c| c.width().unwrap_or(0)).sum();
            cells.push(Cell { at, shown, width });
        }
        cells
    }
}

/// A character as a terminal may see it.
fn shown(character: char) -> Cow<'static, str> {
    match character {
        '\t' => Cow::Borrowed("    "),
        c if is_unfit(c) => Cow::Borrowed("\u{fffd}"),
        c => Cow::Owned(c.to_string()),
    }
}

/// Characters that steer a terminal or turn the order of the text around them.
fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text with such characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unfit(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// A key or value from the file for a message: in backticks, cut when it is long.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", text.get(..end).unwrap_or_default()),
        None if text.is_empty() => "`\"\"`".to_owned(),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, span: Range<usize>) -> (String, usize, usize) {
        let snippet = Lines::new(text).snippet(&span, &[]);
        (snippet.line, snippet.start, snippet.length)
    }

    #[test]
    fn positions_count_characters() {
        let lines = Lines::new("\u{feff}a = 1\r\nß\t= '東京' x\n");
        assert_eq!(lines.position(3), (1, 1));
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(10), (2, 1));
        let x = lines.text().find('x').map(|at| lines.position(at));
        assert_eq!(x, Some((2, 10)));
        assert_eq!(lines.position(1000), (3, 1));
    }

    #[test]
    fn marks_stand_under_wide_characters_and_tabs() {
        assert_eq!(show("\tk = 1", 1..2), ("    k = 1".into(), 4, 1));
        assert_eq!(show("a = '東京' x", 13..14), ("a = '東京' x".into(), 11, 1));
        assert_eq!(show("a = '東京'", 4..12), ("a = '東京'".into(), 4, 6));
    }

    #[test]
    fn ends_of_lines_and_of_the_text_can_be_marked() {
        assert_eq!(show("a =\r\nb", 3..3), ("a =".into(), 3, 1));
        assert_eq!(show("a =\r\nb", 3..6), ("a =".into(), 3, 1));
        assert_eq!(show("", 0..0), (String::new(), 0, 1));
        assert_eq!(show("a\n", 2..2), (String::new(), 0, 1));
        assert_eq!(show("a", 7..9), ("a".into(), 1, 1));
    }

    #[test]
    fn long_lines_are_cut_around_the_mark() {
        let text = format!("{}HERE{}", "x".repeat(1000), "y".repeat(1000));
        let (line, start, length) = show(&text, 1000..1004);
        assert_eq!(line, format!("…{}HERE{}…", "x".repeat(40), "y".repeat(65)));
        assert_eq!((start, length), (41, 4));
    }

    #[test]
    fn secrets_are_masked_whatever_is_marked() {
        let text = "p = 'hunter2', q = 1";
        let lines = Lines::new(text);
        let secret = 4..13;
        for (span, mark) in [(0..1, (0, 1)), (4..13, (4, 3)), (6..9, (4, 3)), (15..16, (9, 1))] {
            let snippet = lines.snippet(&span, std::slice::from_ref(&secret));
            assert_eq!(snippet.line, "p = ***, q = 1");
            assert_eq!((snippet.start, snippet.length), mark, "{span:?}");
        }
    }

    #[test]
    fn what_steers_a_terminal_is_not_shown() {
        assert_eq!(show("a = \"\u{1b}[2J\u{202e}\"", 0..1).0, "a = \"\u{fffd}[2J\u{fffd}\"");
        assert_eq!(escaped("a\u{1b}[2J"), "a\\u{1b}[2J");
    }
}
