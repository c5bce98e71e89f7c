// Package mailing says who gets digests, what a digest mail is, and how a run of them goes from one
// phase to the next. It does no I/O: each transition is a pure function, and a store repeats it on what
// it reads until its conditional write succeeds.
//
// Its rule is at most once. A mailing is taken by one claim before it is sent, and from then on only
// that claim, or an operator with a reason, moves it: whoever else finds it leaves it alone, since
// nobody can know whether it was sent.
package mailing

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the platform's image need not have the zones

	"mailyard.internal/mailyard/shared/mail"
)

// A Frequency is how often a subscriber gets a digest.
type Frequency string

// The frequencies.
const (
	Daily  Frequency = "daily"
	Weekly Frequency = "weekly"
)

// A Subscriber gets digests of one mailbox at one address.
type Subscriber struct {
	ID        string
	AccountID string // whose mailbox it is told about
	Email     string // where the digests go
	Frequency Frequency
	Weekday   time.Weekday // of weekly digests
	Timezone  string       // in which the mail gives its times, as Europe/Zurich

	// Sequence numbers the next mailing, from 1. It moves on when that one has been sent, or may have
	// been.
	Sequence int64
	// DigestedDay is the run of the last mailing, and DigestedUntil the moment up to which it told of new
	// messages; both empty before the first.
	DigestedDay   Day
	DigestedUntil time.Time

	CreatedAt time.Time
	DeletedAt time.Time // zero while it wants digests

	// Version marks what the store read, for a write that checks what it replaces.
	Version time.Time
}

// Deleted reports whether the subscriber wants no digests any more.
func (s Subscriber) Deleted() bool { return !s.DeletedAt.IsZero() }

// SubscriberID names who gets digests of an account at an address. It follows from both, so subscribing
// twice makes one subscriber, and it holds neither: 20 lower-case hexadecimal digits.
func SubscriberID(account, email string) string {
	sum := sha256.Sum256([]byte("subscriber\x00" + account + "\x00" + mail.NormalizeAddress(email)))
	return hex.EncodeToString(sum[:10])
}

// A Subscription is what an operator writes down, each field as a word.
type Subscription struct {
	Account, Email, Frequency, Weekday, Timezone string
}

// Check reads a subscription. The error joins a sentence for each mistake; no sentence repeats the address.
func (s Subscription) Check() (Subscriber, error) {
	out := Subscriber{
		AccountID: strings.TrimSpace(s.Account), Email: strings.TrimSpace(s.Email), Sequence: 1,
		Frequency: Frequency(strings.ToLower(strings.TrimSpace(s.Frequency))), Timezone: strings.TrimSpace(s.Timezone),
	}
	var errs []error
	if !mail.PlainID(out.AccountID) {
		errs = append(errs, errors.New("the account is not an account's id; mailyard account list shows them"))
	}
	if mail.CheckAddress(out.Email) != nil || strings.ContainsAny(out.Email, "\r\n\x00") {
		errs = append(errs, errors.New("the address is not a mail address; write it as name@example.com"))
	}
	switch weekday, known := weekdays[strings.ToLower(strings.TrimSpace(s.Weekday))]; {
	case out.Frequency == "":
		out.Frequency = Daily
		fallthrough
	case out.Frequency == Daily:
		if strings.TrimSpace(s.Weekday) != "" {
			errs = append(errs, errors.New("a weekday is for weekly digests; leave it out, or write weekly"))
		}
	case out.Frequency != Weekly:
		errs = append(errs, fmt.Errorf("the frequency %q is unknown; write daily or weekly", short(s.Frequency)))
	case strings.TrimSpace(s.Weekday) == "":
		out.Weekday = time.Monday
	case !known:
		errs = append(errs, fmt.Errorf("%q is no weekday; write it as monday", short(s.Weekday)))
	default:
		out.Weekday = weekday
	}
	if out.Timezone == "" {
		out.Timezone = "UTC"
	}
	if err := CheckTimezone(out.Timezone); err != nil {
		errs = append(errs, err)
	}
	out.ID = SubscriberID(out.AccountID, out.Email)
	return out, errors.Join(errs...)
}

// short keeps a sentence readable whatever was written.
func short(word string) string {
	runes := []rune(strings.TrimSpace(word))
	return string(runes[:min(len(runes), 40)])
}

var weekdays = func() map[string]time.Weekday {
	days := map[string]time.Weekday{}
	for d := time.Sunday; d <= time.Saturday; d++ {
		days[WeekdayName(d)] = d
	}
	return days
}()

// WeekdayName is a weekday in one lower-case word, as it is stored and written.
func WeekdayName(d time.Weekday) string { return strings.ToLower(d.String()) }

// ParseWeekday reads what WeekdayName writes; anything else is Sunday.
func ParseWeekday(name string) time.Weekday { return weekdays[name] }

// CheckTimezone refuses what is no zone of the tz database.
func CheckTimezone(name string) error {
	if _, err := time.LoadLocation(name); err != nil || name == "" || name == "Local" {
		return fmt.Errorf("the timezone %q is none; write one of the tz database, as Europe/Zurich", short(name))
	}
	return nil
}

// Zone is where the subscriber's times are given.
func (s Subscriber) Zone() *time.Location {
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return time.UTC // it was checked when it was stored
	}
	return zone
}

// Renewed is a subscription written down again: the frequency may be another, a deleted one wants
// digests again from now on, and the numbers go on, so that no mailing is made twice.
func (s Subscriber) Renewed(wanted Subscriber, now time.Time) Subscriber {
	if s.Version.IsZero() {
		wanted.CreatedAt = now
		return wanted
	}
	if s.Deleted() {
		s.CreatedAt, s.DeletedAt = now, time.Time{}
	}
	s.Email, s.Frequency, s.Weekday, s.Timezone = wanted.Email, wanted.Frequency, wanted.Weekday, wanted.Timezone
	return s
}

// Due reports whether the run of a day has a digest for the subscriber. A daily one is due on every day
// that none was made for. A weekly one is due from its weekday on until it has been made: a run that was
// missed, or that failed, is caught up once by the next.
func (s Subscriber) Due(day Day, zone *time.Location) bool {
	wanted := day
	if s.Frequency == Weekly {
		wanted = day.Last(s.Weekday)
	}
	return s.DigestedDay < wanted && wanted >= DayOf(s.CreatedAt, zone)
}
