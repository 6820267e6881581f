//! Where tables are: paths and URLs, checked for form.

use crate::ErrorKind;
use crate::reader::Item;
use url::Url;

/// A location as it can be compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// `s3://bucket`; `/` for local paths; empty for relative ones.
    root: String,
    parts: Vec<String>,
}

impl Location {
    /// Whether one of the two lies in the other, or is the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.root == other.root && self.parts.iter().zip(&other.parts).all(|(left, right)| left == right)
    }
}

const ALLOWED: &str = "a path, or a URL as in \"s3://bucket/path\"";

/// Reads the location of a table.
pub(crate) fn read(item: &Item<'_>) -> Option<Location> {
    let text = item.word("s3://lake/orders")?;
    let fault = |message: &str, hint: &str| {
        let problem = item.problem(ErrorKind::Value, format!("{} {message}", item.shown())).allowed(ALLOWED);
        item.report().add(if hint.is_empty() { problem } else { problem.hint(hint) });
    };
    if text.trim() != text {
        fault("has spaces around it", "leave them out");
        return None;
    }
    if text.contains("${") || text.starts_with('$') {
        fault("holds a variable", "variables are not replaced in this file; write the location itself");
        return None;
    }
    if text.starts_with("~/") || text == "~" {
        fault("starts with `~`", "only a shell knows what that is; write the whole path");
        return None;
    }
    let location = if text.contains("://") {
        url(text, item, &fault)?
    } else {
        // "s3:/bucket" and "s3:bucket", but not a drive such as "C:".
        if let Some((scheme, rest)) = text.split_once(':')
            && scheme.len() > 1
            && scheme.chars().all(|c| c.is_ascii_alphanumeric())
        {
            fault(
                "starts like a URL, but has no `//`",
                &format!("write \"{scheme}://{}\"", rest.trim_start_matches('/')),
            );
            return None;
        }
        Location { root: if text.starts_with('/') { "/".to_owned() } else { String::new() }, parts: parts(text) }
    };
    if location.parts.last().is_none_or(|last| last == "..") {
        fault("names no directory of its own", "add a name, as in \"s3://lake/orders\" or \"./orders\"");
        return None;
    }
    Some(location)
}

fn url(text: &str, item: &Item<'_>, fault: &dyn Fn(&str, &str)) -> Option<Location> {
    let Ok(url) = Url::parse(text) else {
        fault("is not a valid URL", "");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        item.report().hide(item.span());
        fault("holds credentials", "put them into `storage`, as { env = \"NAME\" } or { file = \"path\" }");
        return None;
    }
    if url.query().is_some() || url.fragment().is_some() {
        fault("has something after `?` or `#`", "options of the object store belong into `storage`");
        return None;
    }
    let root = match (url.scheme(), url.host_str()) {
        ("s3" | "s3a", Some(bucket)) if !bucket.is_empty() && url.port().is_none() => format!("s3://{bucket}"),
        ("s3" | "s3a", _) => {
            fault("names no bucket", "write \"s3://bucket/path\"; an endpoint is told by `storage`");
            return None;
        }
        ("file", None | Some("")) => "/".to_owned(),
        ("file", Some(_)) => {
            fault("is a file on another machine", "write \"file:///path\", with three slashes");
            return None;
        }
        (scheme, _) => {
            let message = format!("{} has the scheme `{scheme}`", item.shown());
            item.report().add(item.problem(ErrorKind::Value, message).allowed("`s3`, `file`, or a path"));
            return None;
        }
    };
    Some(Location { root, parts: parts(url.path()) })
}

/// The parts of a path, with `.` and `..` resolved as far as they can be.
fn parts(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| last != "..") => {
                parts.pop();
            }
            part => parts.push(part.to_owned()),
        }
    }
    parts
}
