//! Durations, sizes and points in time.

use crate::ErrorKind;
use crate::reader::Item;
use crate::snippet::quoted;
use bytesize::ByteSize;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::DeValue;
use toml::value::{Date, Datetime, Offset, Time};

/// A duration in humantime's form, as in `"10s"` or `"1m 30s"`.
pub(crate) fn duration(item: &Item<'_>, range: RangeInclusive<Duration>) -> Option<Duration> {
    let span = || {
        let [least, most] = [*range.start(), *range.end()].map(|end| humantime::format_duration(end).to_string());
        format!("{least} to {most}, as in \"10s\" or \"500ms\"")
    };
    let DeValue::String(text) = item.value() else {
        let problem = item.wrong_type(format!("a duration from {}", span()));
        item.report().add(match item.value() {
            DeValue::Integer(number) => problem.hint(format!("say of what: \"{number}s\" are seconds")),
            _ => problem,
        });
        return None;
    };
    match humantime::parse_duration(text) {
        Ok(duration) if range.contains(&duration) => Some(duration),
        Ok(_) => {
            item.refuse(format!("{} is {}", item.shown(), quoted(text)), span());
            None
        }
        Err(error) => {
            let message = format!("{} is {}, not a duration", item.shown(), quoted(text));
            let problem = item.problem(ErrorKind::Value, message).allowed(span());
            item.report().add(match error {
                humantime::DurationError::UnknownUnit { unit, .. } if unit.is_empty() => {
                    problem.hint("add a unit: ms, s, m, h")
                }
                humantime::DurationError::UnknownUnit { unit, .. } => {
                    problem.hint(format!("the unit {} is not known; use ms, s, m, h", quoted(&unit)))
                }
                _ => problem,
            });
            None
        }
    }
}

/// A size in bytes: an integer, or a text as in `"128MiB"`.
pub(crate) fn size(item: &Item<'_>, range: RangeInclusive<u64>) -> Option<u64> {
    let span = || format!("{} to {}, as in \"128MiB\"", shown_size(*range.start()), shown_size(*range.end()));
    let size = match item.value() {
        DeValue::Integer(_) => item.number()?,
        DeValue::String(text) => match text.trim().parse::<ByteSize>() {
            Ok(size) => size.as_u64(),
            Err(_) => {
                let message = format!("{} is {}, not a size", item.shown(), quoted(text));
                let problem = item.problem(ErrorKind::Value, message).allowed(span());
                item.report().add(problem.hint("the units are B, kB, MB, GB (of 1000) and KiB, MiB, GiB (of 1024)"));
                return None;
            }
        },
        _ => {
            item.report().add(item.wrong_type(format!("a size from {}", span())));
            return None;
        }
    };
    if !range.contains(&size) {
        let written = match item.value() {
            DeValue::String(text) => quoted(text),
            _ => shown_size(size),
        };
        item.refuse(format!("{} is {written}", item.shown()), span());
        return None;
    }
    Some(size)
}

/// A size in the largest unit that divides it.
pub(crate) fn shown_size(bytes: u64) -> String {
    let units = [(bytesize::TIB, "TiB"), (bytesize::GIB, "GiB"), (bytesize::MIB, "MiB"), (bytesize::KIB, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// A point in time, in milliseconds since the epoch; what is finer is rounded up, so that no record
/// before it counts as one after it.
pub(crate) fn timestamp(item: &Item<'_>) -> Option<i64> {
    const EXAMPLE: &str = "a time with its offset, as in 2026-03-01T00:00:00Z";
    let datetime = match item.value() {
        DeValue::Datetime(datetime) => *datetime,
        DeValue::String(text) => match text.parse::<Datetime>() {
            Ok(datetime) => datetime,
            Err(_) => {
                item.refuse(format!("{} is {}, not a time", item.shown(), quoted(text)), EXAMPLE);
                return None;
            }
        },
        _ => {
            item.report().add(item.wrong_type(EXAMPLE));
            return None;
        }
    };
    let (Some(date), Some(time)) = (datetime.date, datetime.time) else {
        item.refuse(format!("{} is only a part of a time", item.shown()), EXAMPLE);
        return None;
    };
    let Some(offset) = datetime.offset else {
        let problem =
            item.problem(ErrorKind::Value, format!("{} has no offset from UTC", item.shown())).allowed(EXAMPLE);
        item.report().add(problem.hint("add `Z` for UTC, or an offset such as `+02:00`"));
        return None;
    };
    let millis = millis(date, time, offset);
    if millis < 0 {
        item.refuse(format!("{} is before 1970", item.shown()), "times from 1970-01-01T00:00:00Z on");
        return None;
    }
    Some(millis)
}

fn millis(date: Date, time: Time, offset: Offset) -> i64 {
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let minute = i64::from(time.hour) * 60 + i64::from(time.minute) - minutes;
    let second = days(date) * 86_400 + minute * 60 + i64::from(time.second.unwrap_or(0));
    second * 1000 + i64::from(time.nanosecond.unwrap_or(0).div_ceil(1_000_000))
}

/// Days since 1970-01-01 in the Gregorian calendar, by counting years from March on, so that the leap
/// day is a year's last.
fn days(date: Date) -> i64 {
    let (year, month, day) = (i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn times_are_counted_from_the_epoch() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("2000-03-01T00:00:00Z", 951_868_800_000),
            ("2026-03-01T00:00:00Z", 1_772_323_200_000),
            ("2026-03-01T02:00:00+02:00", 1_772_323_200_000),
            ("2026-02-28T23:30:00.0001-00:30", 1_772_323_200_001),
            ("1969-12-31T23:59:59.999Z", -1),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = text.parse().unwrap() else {
                unreachable!("{text} is complete")
            };
            assert_eq!(millis(date, time, offset), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_their_largest_whole_unit() {
        assert_eq!(shown_size(64 << 20), "64MiB");
        assert_eq!(shown_size(1536), "1536B");
        assert_eq!(shown_size(0), "0B");
        assert_eq!(shown_size(4 << 30), "4GiB");
    }
}
