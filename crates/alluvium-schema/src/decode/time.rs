//! Dates and timestamps of RFC 3339.

use crate::{Coercion, json::Number};

const MICROS: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Days of the years 1 to 9999, which is what SQL and Spark can hold.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// The days of the date that was read last: neighbouring records are mostly of one day.
pub(super) struct DateCache {
    date: [u8; 10],
    days: i64,
}

impl Default for DateCache {
    fn default() -> Self {
        Self { date: *b"1970-01-01", days: 0 }
    }
}

/// Days since the epoch of a full-date, as in `2026-01-31`.
pub(super) fn date(text: &[u8]) -> Option<i32> {
    let days = full_date(text.try_into().ok()?)?;
    i32::try_from(days).ok()
}

/// Microseconds since the epoch of a date-time with its offset from UTC. Finer than a microsecond
/// is cut off, which is towards the past.
#[inline(always)]
pub(super) fn timestamp(text: &[u8], cache: &mut DateCache) -> Option<i64> {
    let (micros, offset) = date_time(text, cache)?;
    let micros = micros - offset_seconds(offset)? * MICROS;
    in_range(micros)
}

/// Microseconds since the epoch's midnight of a date-time without an offset.
pub(super) fn wall_clock(text: &[u8], cache: &mut DateCache) -> Option<i64> {
    let (micros, offset) = date_time(text, cache)?;
    offset.is_empty().then_some(micros)
}

/// Microseconds since the epoch of a number of the unit that `coercion` names; finer than a
/// microsecond is truncated towards the past.
pub(super) fn epoch(number: Number<'_>, coercion: Coercion) -> Option<i64> {
    let shift = match coercion {
        Coercion::EpochS => 6,
        Coercion::EpochMs => 3,
        Coercion::EpochUs => 0,
        Coercion::EpochNs => -3,
        _ => return None,
    };
    in_range(i64::try_from(number.floor_shifted(shift)?).ok()?)
}

/// The date in UTC of a timestamp in microseconds.
pub(super) fn date_of(micros: i64) -> Option<i32> {
    i32::try_from(micros.div_euclid(DAY_SECONDS * MICROS)).ok()
}

/// Days since the epoch of a whole number of them.
pub(super) fn epoch_days(number: Number<'_>) -> Option<i32> {
    let days = number.to_i64().filter(|days| DAYS.contains(days))?;
    i32::try_from(days).ok()
}

fn in_range(micros: i64) -> Option<i64> {
    DAYS.contains(&micros.div_euclid(DAY_SECONDS * MICROS)).then_some(micros)
}

/// Microseconds of date and time, and the text after them.
#[inline(always)]
fn date_time<'t>(text: &'t [u8], cache: &mut DateCache) -> Option<(i64, &'t [u8])> {
    let (date, rest) = text.split_first_chunk::<10>()?;
    if *date != cache.date {
        cache.days = full_date(*date)?;
        cache.date = *date;
    }
    let (time, rest) = rest.split_first_chunk::<9>()?;
    let [b'T' | b't' | b' ', h1, h2, b':', m1, m2, b':', s1, s2] = *time else { return None };
    let (hour, minute, second) = (two_digits(h1, h2)?, two_digits(m1, m2)?, two_digits(s1, s2)?);
    // A leap second has no place on a scale of 86,400 seconds a day.
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction, rest) = fraction(rest)?;
    let seconds = cache.days * DAY_SECONDS + hour * 3600 + minute * 60 + second;
    Some((seconds * MICROS + fraction, rest))
}

/// Microseconds of a fraction of a second, and the text after it; 0 when there is none.
#[inline(always)]
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let count = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(count);
    if digits.is_empty() {
        return None;
    }
    let mut micros = 0;
    for place in 0..6 {
        micros = micros * 10 + digits.get(place).map_or(0, |digit| i64::from(digit - b'0'));
    }
    Some((micros, rest))
}

#[inline(always)]
fn offset_seconds(text: &[u8]) -> Option<i64> {
    match *text {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (two_digits(h1, h2)?, two_digits(m1, m2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = (hours * 60 + minutes) * 60;
            Some(if sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

/// Days since the epoch.
#[inline(never)]
fn full_date(text: [u8; 10]) -> Option<i64> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return None };
    let year = two_digits(y1, y2)? * 100 + two_digits(y3, y4)?;
    let (month, day) = (two_digits(m1, m2)?, two_digits(d1, d2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || !(1..=last).contains(&day) {
        return None;
    }
    // The year is taken to begin in March, so that a leap day is its last.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let shifted_month = (month + 9) % 12;
    let leap_days = shifted_year / 4 - shifted_year / 100 + shifted_year / 400;
    let days_before_month = (153 * shifted_month + 2) / 5;
    Some(shifted_year * 365 + leap_days + days_before_month + day - 1 - 719_468)
}

#[inline(always)]
fn two_digits(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then_some(i64::from(tens) * 10 + i64::from(ones))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn instant(text: &str) -> Option<i64> {
        timestamp(text.as_bytes(), &mut DateCache::default())
    }

    /// Every day of the calendar, counted one by one.
    #[test]
    fn days_follow_each_other() {
        let mut expected = *DAYS.start();
        for year in 1..=9999 {
            for month in 1..=12 {
                for day in 1..=31 {
                    if let Some(days) = date(format!("{year:04}-{month:02}-{day:02}").as_bytes()) {
                        assert_eq!(i64::from(days), expected, "{year}-{month}-{day}");
                        expected += 1;
                    }
                }
            }
        }
        assert_eq!(expected, DAYS.end() + 1);
        assert_eq!(date(b"1970-01-01"), Some(0));
        assert_eq!(date(b"0000-01-01"), None);
    }

    #[test]
    fn instants() {
        assert_eq!(instant("1969-12-31T23:59:59.9999999Z"), Some(-1));
        assert_eq!(instant("1970-01-01t00:00:00z"), Some(0));
        assert_eq!(instant("1970-01-01 00:00:00-00:00"), Some(0));
        assert_eq!(instant("1970-01-01T00:00:00.1-23:59"), Some(86_340_100_000));
        assert_eq!(instant("0001-01-01T00:00:00Z"), Some(-62_135_596_800_000_000));
        assert_eq!(instant("9999-12-31T23:59:59.999999Z"), Some(253_402_300_799_999_999));
        let long = format!("1970-01-01T00:00:00.{}Z", "9".repeat(500));
        assert_eq!(instant(&long), Some(999_999));
        for bad in [
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:00",
            "1970-01-01T00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00,5Z",
            "1970-01-01T00:00:00ZZ",
            "1970-01-01T00:00:00+0100",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+00:60",
            "1970-01-01T00:00:00 +00:00",
            "1970-01-01_00:00:00Z",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:0:Z",
            "",
        ] {
            assert_eq!(instant(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bad_date_does_not_stay_in_the_cache() {
        let mut cache = DateCache::default();
        for _ in 0..2 {
            assert_eq!(timestamp(b"2023-02-29T00:00:00Z", &mut cache), None);
        }
        assert_eq!(timestamp(b"1970-01-02T00:00:00Z", &mut cache), Some(86_400_000_000));
        assert_eq!(instant("\0\0\0\0\0\0\0\0\0\0T00:00:00Z"), None);
    }
}
