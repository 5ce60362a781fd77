//! Readable time stamps `AAMMJJhhmmssmmm`: two digits each for year (of the 21st century), month,
//! day, hour, minute, second, and three for the millisecond, as one integer.
//! Source: the versioned document store's text, section on stamps.

use crate::refusal::FieldError;
use serde::{Deserialize, Serialize};
use std::fmt;

const MS_PER_DAY: u64 = 86_400_000;
const DAYS_1970_TO_2000: u64 = 10_957;
const DAYS_PER_MONTH: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A moment of the 21st century (UTC), readable as decimal digits. Orders as time does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(u64);

fn days_in_month(year: u64, month: u64) -> u64 {
    let leap_day = u64::from(month == 2 && year.is_multiple_of(4));
    let index = usize::try_from(month - 1).unwrap_or(usize::MAX);
    DAYS_PER_MONTH.get(index).copied().unwrap_or(0) + leap_day
}

impl Stamp {
    /// 2000-01-01 00:00:00.000.
    pub const MIN: Stamp = Stamp(101_000_000_000);
    /// 2099-12-31 23:59:59.999.
    pub const MAX: Stamp = Stamp(991_231_235_959_999);

    /// From milliseconds since 1970; earlier than 2000 gives [`Stamp::MIN`], later than 2099
    /// [`Stamp::MAX`].
    pub fn from_epoch_ms(epoch_ms: u64) -> Self {
        let Some(ms) = epoch_ms.checked_sub(DAYS_1970_TO_2000 * MS_PER_DAY) else {
            return Self::MIN;
        };
        let (mut days, ms) = (ms / MS_PER_DAY, ms % MS_PER_DAY);
        let mut year = days / 1461 * 4;
        days %= 1461;
        while days >= 365 + u64::from(year.is_multiple_of(4)) {
            days -= 365 + u64::from(year.is_multiple_of(4));
            year += 1;
        }
        if year > 99 {
            return Self::MAX;
        }
        let mut month = 1;
        while days >= days_in_month(year, month) {
            days -= days_in_month(year, month);
            month += 1;
        }
        let date = (year * 100 + month) * 100 + days + 1;
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let clock = (hour * 100 + minute) * 100_000 + ms % 60_000;
        Self(date * 1_000_000_000 + clock)
    }

    /// Milliseconds since 1970.
    pub fn to_epoch_ms(self) -> u64 {
        let (date, clock) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let (year, month, day) = (date / 10_000, date / 100 % 100, date % 100);
        let months: u64 = (1..month).map(|it| days_in_month(year, it)).sum();
        let days = DAYS_1970_TO_2000 + year * 365 + year.div_ceil(4) + months + day - 1;
        let (hour, minute) = (clock / 10_000_000, clock / 100_000 % 100);
        days * MS_PER_DAY + hour * 3_600_000 + minute * 60_000 + clock % 100_000
    }

    /// From its integer form; refuses what is not a moment (month 13, 31 April).
    pub fn parse(number: u64) -> Result<Self, FieldError> {
        let stamp = Self(number);
        let parts_fit = (1..=12).contains(&(number / 100_000_000_000 % 100));
        if !(Self::MIN.0..=Self::MAX.0).contains(&number) || !parts_fit {
            return Err(FieldError::new("stamp", format!("{number} is not a moment")));
        }
        if Self::from_epoch_ms(stamp.to_epoch_ms()) != stamp {
            return Err(FieldError::new("stamp", format!("{number} is not a moment")));
        }
        Ok(stamp)
    }

    /// The integer form.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// One millisecond later; [`Stamp::MAX`] stays.
    pub fn next(self) -> Self {
        Self::from_epoch_ms(self.to_epoch_ms() + 1)
    }
}

impl Default for Stamp {
    fn default() -> Self {
        Self::MIN
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:015}", self.0)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_read_as_their_digits() {
        assert_eq!(Stamp::from_epoch_ms(1_709_210_096_789).as_u64(), 240_229_123_456_789);
        assert_eq!(Stamp::from_epoch_ms(946_684_800_000), Stamp::MIN);
        assert_eq!(Stamp::from_epoch_ms(4_102_444_799_999), Stamp::MAX);
        assert_eq!(Stamp::from_epoch_ms(0), Stamp::MIN);
        assert_eq!(Stamp::from_epoch_ms(u64::MAX), Stamp::MAX);
    }

    #[test]
    fn every_day_of_the_century_comes_back() {
        for day in 0..36_525_u64 {
            let ms = (DAYS_1970_TO_2000 + day) * MS_PER_DAY + day * 1_009 % MS_PER_DAY;
            let stamp = Stamp::from_epoch_ms(ms);
            assert_eq!(stamp.to_epoch_ms(), ms);
            assert_eq!(Stamp::parse(stamp.as_u64()), Ok(stamp));
        }
    }

    #[test]
    fn what_is_not_a_moment_is_refused() {
        for wrong in [0, 241_301_000_000_000, 240_431_000_000_000, 230_229_000_000_000] {
            assert!(Stamp::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in [240_101_240_000_000, 240_101_006_000_000, 240_101_000_060_000] {
            assert!(Stamp::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Stamp::parse(240_100_000_000_000).is_err());
    }
}
