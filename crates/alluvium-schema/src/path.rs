//! Paths into records and columns, as people write them.
//!
//! Parts are joined by dots. A part that is empty or holds a dot or a backtick stands in backticks,
//! a backtick in it doubled: `` order.`unit.price` `` is the field `unit.price` of `order`.

/// A text that is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} in path {text:?}")]
pub struct PathError {
    pub text: String,
    pub message: &'static str,
}

/// The text of a path; the empty path is an empty text.
pub fn join<S: AsRef<str>>(parts: &[S]) -> String {
    let mut text = String::new();
    for part in parts {
        push(&mut text, part.as_ref());
    }
    text
}

/// Appends one part to the text of a path.
pub fn push(text: &mut String, part: &str) {
    if !text.is_empty() {
        text.push('.');
    }
    if part.is_empty() || part.contains(['.', '`']) {
        text.push('`');
        text.push_str(&part.replace('`', "``"));
        text.push('`');
    } else {
        text.push_str(part);
    }
}

/// The parts of a path; at least one.
pub fn parse(text: &str) -> Result<Vec<String>, PathError> {
    let error = |message| PathError { text: text.to_owned(), message };
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.strip_prefix('`') {
            Some(inner) => quoted_part(inner).ok_or_else(|| error("a backtick is not closed"))?,
            None => plain_part(rest),
        };
        if part.is_empty() && !rest.starts_with('`') {
            return Err(error("a part is empty"));
        }
        parts.push(part);
        if after.is_empty() {
            return Ok(parts);
        }
        rest = after.strip_prefix('.').ok_or_else(|| error("expected a dot after a backtick"))?;
    }
}

fn plain_part(text: &str) -> (String, &str) {
    let end = text.find('.').unwrap_or(text.len());
    let (part, after) = text.split_at(end);
    (part.to_owned(), after)
}

/// The part up to the closing backtick, and what follows it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('`')?;
        part.push_str(before);
        let Some(more) = after.strip_prefix('`') else {
            return Some((part, after));
        };
        part.push('`');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse("amount.price").unwrap(), ["amount", "price"]);
        assert_eq!(parse("a b").unwrap(), ["a b"]);
        assert_eq!(parse("`a.b`.c").unwrap(), ["a.b", "c"]);
        assert_eq!(parse("``").unwrap(), [""]);
        assert_eq!(parse("`a``b`").unwrap(), ["a`b"]);
        for bad in ["", ".", "a.", ".a", "a..b", "`a", "`a`b", "`a``"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn comes_back_as_it_went(parts in prop::collection::vec("[a.`é ]{0,4}", 1..5)) {
            prop_assert_eq!(parse(&join(&parts)).unwrap(), parts);
        }
    }
}
