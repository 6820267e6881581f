//! Paths: parts joined by dots; a part that holds a dot stands in backticks.

use crate::Error;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// A path, in a configuration or elsewhere: parts joined by dots, as in `customer.email`; a part
/// that holds a dot stands in backticks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    text: String,
    parts: Vec<String>,
}

impl Path {
    /// The path of a single part.
    pub fn of(part: impl Into<String>) -> Self {
        let part = part.into();
        let plain = !part.is_empty() && part != "[]" && !part.contains(['.', '`']);
        let text = if plain { part.clone() } else { format!("`{}`", part.replace('`', "``")) };
        Self { text, parts: vec![part] }
    }

    /// The parts, at least one.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The path as it is spelled.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { text: text.to_owned(), parts: split(text)? })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parts = split(&text).map_err(serde::de::Error::custom)?;
        Ok(Self { text, parts })
    }
}

/// The parts of a path; a backtick within backticks is doubled.
pub(crate) fn split(path: &str) -> Result<Vec<String>, String> {
    let parts = parts(path)?;
    if parts.iter().any(|(part, _)| part.is_empty()) {
        return Err(format!("the path '{path}' has an empty part"));
    }
    Ok(parts.into_iter().map(|(part, _)| part).collect())
}

/// A step of a path into records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To a field; keys can be empty.
    Key(String),
    /// To the elements of a list.
    Element,
}

/// The steps of a path into records.
pub(crate) fn steps(path: &str) -> Result<Vec<Step>, String> {
    let step = |(part, quoted): (String, bool)| if part == "[]" && !quoted { Step::Element } else { Step::Key(part) };
    Ok(parts(path)?.into_iter().map(step).collect())
}

/// The path of these steps, as the host spells it.
pub(crate) fn spell(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        if !path.is_empty() {
            path.push('.');
        }
        match step {
            Step::Key(key) if key.is_empty() || key == "[]" || key.contains(['.', '`']) => {
                path.push('`');
                path.push_str(&key.replace('`', "``"));
                path.push('`');
            }
            Step::Key(key) => path.push_str(key),
            Step::Element => path.push_str("[]"),
        }
    }
    path
}

/// The parts of a path, and whether they stand in backticks; others are not empty.
fn parts(path: &str) -> Result<Vec<(String, bool)>, String> {
    let wrong = |what: &str| Err(format!("the path '{path}' {what}"));
    let mut parts = Vec::new();
    let mut rest = path;
    loop {
        let mut part = String::new();
        let quoted = rest.starts_with('`');
        if let Some(quoted) = rest.strip_prefix('`') {
            rest = quoted;
            loop {
                let Some((inside, after)) = rest.split_once('`') else {
                    return wrong("has a backtick that is not closed");
                };
                part.push_str(inside);
                match after.strip_prefix('`') {
                    Some(more) => {
                        part.push('`');
                        rest = more;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            let (plain, after) = rest.split_at(end);
            if plain.contains('`') {
                return wrong("has a backtick inside a part; quote the whole part");
            }
            part.push_str(plain);
            rest = after;
        }
        if part.is_empty() && !quoted {
            return wrong("has an empty part");
        }
        parts.push((part, quoted));
        if rest.is_empty() {
            return Ok(parts);
        }
        let Some(next) = rest.strip_prefix('.') else {
            return wrong("goes on after a closing backtick; a dot must follow");
        };
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Path, Step, spell, split, steps};

    #[test]
    fn parts() {
        assert_eq!(split("a").unwrap(), ["a"]);
        assert_eq!(split("customer.email").unwrap(), ["customer", "email"]);
        assert_eq!(split("`a.b`.c").unwrap(), ["a.b", "c"]);
        assert_eq!(split("`a``b`").unwrap(), ["a`b"]);
        assert_eq!(split("ä.`日.本`").unwrap(), ["ä", "日.本"]);
    }

    #[test]
    fn a_path_is_spelled_as_it_is_read() {
        for part in ["a", "a.b", "a`b", "`"] {
            let path = Path::of(part);
            assert_eq!(path.parts(), [part]);
            assert_eq!(path.as_str().parse::<Path>().unwrap(), path);
        }
        assert_eq!(serde_json::from_str::<Path>("\"a.`b.c`\"").unwrap().parts(), ["a", "b.c"]);
        assert!(serde_json::from_str::<Path>("\"a..b\"").unwrap_err().to_string().contains("has an empty part"));
    }

    #[test]
    fn steps_lead_into_lists() {
        let key = |key: &str| Step::Key(key.to_owned());
        for (path, expected) in [
            ("items.[].sku", vec![key("items"), Step::Element, key("sku")]),
            ("[].[]", vec![Step::Element, Step::Element]),
            ("`[]`.[x]", vec![key("[]"), key("[x]")]),
            ("``.`a.b`.`c``d`", vec![key(""), key("a.b"), key("c`d")]),
        ] {
            assert_eq!(steps(path).unwrap(), expected);
            assert_eq!(spell(&expected), path);
        }
        assert_eq!(spell(&steps("`plain`.x").unwrap()), "plain.x");
        assert!(steps("a..b").is_err() && steps("").is_err());
    }

    #[test]
    fn refused() {
        for path in ["", ".", "a.", ".a", "a..b", "`a", "``", "`a`b", "a`b", "`a`.", "`"] {
            assert!(split(path).is_err(), "{path}");
        }
    }
}
