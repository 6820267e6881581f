//! Dates and timestamps of the proleptic Gregorian calendar.

use std::fmt;
use std::str::FromStr;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// 0001-01-01 and 9999-12-31: what tables' readers agree on.
const FIRST_DAY: i32 = -719_162;
const LAST_DAY: i32 = 2_932_896;

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    days: i32,
}

impl Date {
    /// The day that is this many days after 1970-01-01.
    pub const fn from_days(days: i32) -> Self {
        Self { days }
    }

    /// Whether it lies in the years 1 to 9999; no other date can be written.
    pub const fn is_writable(self) -> bool {
        FIRST_DAY <= self.days && self.days <= LAST_DAY
    }

    /// Days since 1970-01-01.
    pub const fn days(self) -> i32 {
        self.days
    }

    /// The day of a year, month (1 to 12) and day of the month; `None` when the calendar has no such day.
    pub fn from_ymd(year: i32, month: u32, day: u32) -> Option<Self> {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        if !(1..=last).contains(&day) {
            return None;
        }
        // Years begin in March here, so that the leap day is a year's last.
        let (month, day) = (i64::from(month), i64::from(day));
        let year = i64::from(year) - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        i32::try_from(era * 146_097 + day_of_era - 719_468).ok().map(Self::from_days)
    }

    /// Year, month (1 to 12) and day of the month.
    pub fn ymd(self) -> (i32, u32, u32) {
        let days = i64::from(self.days) + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        // Every count of days in an i32 is a year that fits in one.
        (year as i32, month as u32, day as u32)
    }
}

/// Microseconds since 1970-01-01T00:00:00, in UTC for a `timestamp`, on a wall clock for a
/// `timestamp_ntz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    micros: i64,
}

impl Timestamp {
    /// Microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self { micros }
    }

    /// Milliseconds since the epoch; `None` when too far from it.
    pub const fn from_millis(millis: i64) -> Option<Self> {
        match millis.checked_mul(1000) {
            Some(micros) => Some(Self { micros }),
            None => None,
        }
    }

    /// Whether it lies in the years 1 to 9999; no other timestamp can be written.
    pub const fn is_writable(self) -> bool {
        const FIRST: i64 = FIRST_DAY as i64 * MICROS_PER_DAY;
        const END: i64 = (LAST_DAY as i64 + 1) * MICROS_PER_DAY;
        FIRST <= self.micros && self.micros < END
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.micros
    }

    /// The day it lies in.
    pub const fn date(self) -> Date {
        // 2^63 microseconds are about 10^8 days: the count always fits.
        Date::from_days(self.micros.div_euclid(MICROS_PER_DAY) as i32)
    }

    /// Microseconds since the day began.
    pub const fn micros_of_day(self) -> i64 {
        self.micros.rem_euclid(MICROS_PER_DAY)
    }
}

/// The start of a day.
impl From<Date> for Timestamp {
    fn from(date: Date) -> Self {
        // The extremes of both ranges do not meet; days beyond a timestamp's range become its limits.
        Self::from_micros(i64::from(date.days).saturating_mul(MICROS_PER_DAY))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.ymd();
        let sign = if year < 0 { "-" } else { "" };
        write!(f, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs())
    }
}

/// As in `2026-03-01T12:30:00.5Z`, with as many digits as it needs.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.micros_of_day();
        let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
        write!(f, "{}T{:02}:{:02}:{:02}", self.date(), seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if fraction > 0 {
            f.write_str(".")?;
            f.write_str(format!("{fraction:06}").trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// A text that is not what its type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATime {
    expected: &'static str,
}

const NOT_A_DATE: NotATime = NotATime { expected: "not a date like 2026-03-01" };
const NOT_A_TIMESTAMP: NotATime = NotATime { expected: "not a timestamp like 2026-03-01T12:30:00Z" };

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }
}

impl std::error::Error for NotATime {}

/// Reads `YYYY-MM-DD`.
impl FromStr for Date {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        let mut scanner = Scanner(text.as_bytes());
        scanner.date().filter(|_| scanner.0.is_empty()).ok_or(NOT_A_DATE)
    }
}

/// Reads RFC 3339: `YYYY-MM-DDTHH:MM:SS`, `T` or a space, with an optional fraction of a second,
/// and `Z`, an offset like `+02:00`, or neither, which counts as UTC. Digits below a microsecond
/// must be zeros.
impl FromStr for Timestamp {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        let mut scanner = Scanner(text.as_bytes());
        scanner.timestamp().filter(|_| scanner.0.is_empty()).ok_or(NOT_A_TIMESTAMP)
    }
}

struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    fn eat(&mut self, symbols: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        symbols.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
    }

    fn date(&mut self) -> Option<Date> {
        let year = self.digits(4)?;
        self.eat(b"-")?;
        let month = self.digits(2)?;
        self.eat(b"-")?;
        let day = self.digits(2)?;
        Date::from_ymd(year as i32, month, day)
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        let date = self.date()?;
        self.eat(b"Tt ")?;
        let hour = self.digits(2).filter(|hour| *hour < 24)?;
        self.eat(b":")?;
        let minute = self.digits(2).filter(|minute| *minute < 60)?;
        self.eat(b":")?;
        let second = self.digits(2).filter(|second| *second < 60)?;
        let fraction = if self.eat(b".").is_some() { self.fraction()? } else { 0 };
        let seconds = i64::from(hour * 3600 + minute * 60 + second) - self.offset()?;
        let micros = seconds * MICROS_PER_SECOND + fraction;
        Some(Timestamp::from_micros(Timestamp::from(date).micros() + micros))
    }

    /// Microseconds; at least one digit.
    fn fraction(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        if count == 0 || digits.iter().skip(6).any(|digit| *digit != b'0') {
            return None;
        }
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(6);
        Some(padded.fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Option<i64> {
        let Some(sign) = self.eat(b"Zz+-") else { return Some(0) };
        if matches!(sign, b'Z' | b'z') {
            return Some(0);
        }
        let hours = self.digits(2).filter(|hours| *hours < 24)?;
        self.eat(b":");
        let minutes = self.digits(2).filter(|minutes| *minutes < 60)?;
        let seconds = i64::from(hours * 3600 + minutes * 60);
        Some(if sign == b'-' { -seconds } else { seconds })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Date, Timestamp};

    #[test]
    fn days_and_calendar_agree() {
        assert_eq!(Date::from_ymd(1970, 1, 1).unwrap().days(), 0);
        assert_eq!(Date::from_ymd(2000, 3, 1).unwrap().days(), 11_017);
        assert_eq!(Date::from_ymd(1600, 2, 29).unwrap().days(), -135_081);
        let mut before = Date::from_days(-800_001).ymd();
        for days in -800_000..800_000 {
            let (year, month, day) = Date::from_days(days).ymd();
            assert_eq!(Date::from_ymd(year, month, day), Some(Date::from_days(days)));
            assert!((year, month, day) > before);
            before = (year, month, day);
        }
        for days in [i32::MIN, i32::MAX] {
            let (year, month, day) = Date::from_days(days).ymd();
            assert_eq!(Date::from_ymd(year, month, day), Some(Date::from_days(days)));
        }
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (2024, 4, 31), (2024, 0, 1), (2024, 13, 1), (2024, 1, 0)]
        {
            assert_eq!(Date::from_ymd(year, month, day), None);
        }
        assert_eq!(Date::from_ymd(i32::MAX, 1, 1), None);
    }

    #[test]
    fn a_timestamp_lies_in_its_day() {
        assert_eq!(Timestamp::from_micros(-1).date().to_string(), "1969-12-31");
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::from_micros(86_400_000_000).date().days(), 1);
        assert_eq!(Timestamp::from_micros(i64::MIN).date().days(), -106_751_992);
        assert_eq!(Timestamp::from_millis(i64::MAX), None);
        for (text, micros) in [("0001-01-01T00:00:00Z", -1), ("9999-12-31T23:59:59.999999Z", 1)] {
            let last: Timestamp = text.parse().unwrap();
            assert!(last.is_writable() && !Timestamp::from_micros(last.micros() + micros).is_writable());
        }
    }

    #[test]
    fn text() {
        for (text, canonical) in [
            ("2026-03-01T00:00:01.115Z", "2026-03-01T00:00:01.115Z"),
            ("2026-03-01 12:30:00", "2026-03-01T12:30:00Z"),
            ("2026-03-01T00:30:00+02:00", "2026-02-28T22:30:00Z"),
            ("2026-03-01t23:30:00.1234560-0130", "2026-03-02T01:00:00.123456Z"),
            ("0001-01-01T00:00:00z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), canonical, "{text}");
        }
        for text in [
            "",
            "2026-03-01",
            "2026-02-30T00:00:00Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T00:00:60Z",
            "2026-03-01T00:00:00.Z",
            "2026-03-01T00:00:00.1234567Z",
            "2026-03-01T00:00:00+",
            "2026-03-01T00:00:00Zx",
            "2026-3-1T00:00:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
        assert_eq!("2026-03-01".parse::<Date>().unwrap().to_string(), "2026-03-01");
        assert!("2026-03-01x".parse::<Date>().is_err() && "26-03-01".parse::<Date>().is_err());
        assert_eq!(Date::from_days(-800_000).to_string(), "-0221-09-04");
    }
}
