package mailing

import "time"

// A Day is a date, as 2026-11-30. Days compare as their texts do.
type Day string

const dayLayout = "2006-01-02"

// DayOf is the day of a moment in a zone.
func DayOf(at time.Time, zone *time.Location) Day { return Day(at.In(zone).Format(dayLayout)) }

// Valid reports whether the text is a date.
func (d Day) Valid() bool {
	_, err := time.Parse(dayLayout, string(d))
	return err == nil
}

func (d Day) date() time.Time {
	date, err := time.Parse(dayLayout, string(d))
	if err != nil {
		return time.Time{}
	}
	return date
}

// Last is the newest day of that weekday, up to the day itself.
func (d Day) Last(weekday time.Weekday) Day {
	date := d.date()
	back := (int(date.Weekday()) - int(weekday) + 7) % 7
	return Day(date.AddDate(0, 0, -back).Format(dayLayout))
}
