//! Columns' paths: parts joined by dots; a part that holds a dot stands in backticks.

/// The parts of a path; a backtick within backticks is doubled.
pub(crate) fn split(path: &str) -> Result<Vec<String>, String> {
    let wrong = |what: &str| Err(format!("the path '{path}' {what}"));
    let mut parts = Vec::new();
    let mut rest = path;
    loop {
        let mut part = String::new();
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
        if part.is_empty() {
            return wrong("has an empty part");
        }
        parts.push(part);
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
    use super::split;

    #[test]
    fn parts() {
        assert_eq!(split("a").unwrap(), ["a"]);
        assert_eq!(split("customer.email").unwrap(), ["customer", "email"]);
        assert_eq!(split("`a.b`.c").unwrap(), ["a.b", "c"]);
        assert_eq!(split("`a``b`").unwrap(), ["a`b"]);
        assert_eq!(split("ä.`日.本`").unwrap(), ["ä", "日.本"]);
    }

    #[test]
    fn refused() {
        for path in ["", ".", "a.", ".a", "a..b", "`a", "``", "`a`b", "a`b", "`a`.", "`"] {
            assert!(split(path).is_err(), "{path}");
        }
    }
}
