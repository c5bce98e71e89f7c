package digest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mailyard.internal/mailyard/shared/lane"
	"mailyard.internal/mailyard/shared/mailing"
)

// A Starter starts the run of a day, or joins the one there is.
//
// The day is that of the schedule's own time in the declared zone, so that a retry after midnight is not
// a new day. A day that no schedule called for has no run: the next one makes up for it, once, as who is
// due has been since then.
type Starter struct {
	runs      runStore
	publisher publisher
	zone      *time.Location
	now       func() time.Time
}

// NewStarter returns what starts runs, by the days of a zone.
func NewStarter(runs runStore, p publisher, zone *time.Location, now func() time.Time) *Starter {
	return &Starter{runs, p, zone, now}
}

// Start starts the run of that moment's day, or joins it, or one of a later day. It reports whether it
// joined. Starting twice, also at the same time, makes one run.
func (s *Starter) Start(ctx context.Context, scheduled time.Time) (run mailing.Run, joined bool, err error) {
	day := mailing.DayOf(scheduled, s.zone)
	newest, found, err := s.runs.NewestRun(ctx)
	if err != nil {
		return newest, false, err
	}
	if found && newest.Day >= day {
		if !newest.Open() {
			return newest, true, nil
		}
		return newest, true, ask(ctx, s.publisher, newest)
	}
	if err := s.closeOlder(ctx, day); err != nil {
		return mailing.Run{}, false, err
	}
	run = mailing.Run{Day: day, Phase: mailing.Generate, StartedAt: s.now(), DueAt: s.now().Add(resumeAfter)}
	// Recorded first: a crash before the message leaves the run to Tick.
	saved, err := s.runs.SaveRun(ctx, mailing.Run{}, run)
	if err != nil {
		return run, false, fmt.Errorf("record run %s: %w", day, err)
	}
	if !saved { // somebody else has, or the reply of our own write was lost
		there, found, err := s.runs.Run(ctx, day)
		if err != nil || !found {
			return run, false, errors.Join(err, fmt.Errorf("run %s was not recorded", day))
		}
		run = there
	}
	return run, !saved, ask(ctx, s.publisher, run)
}

// closeOlder has earlier runs that may still send end: the new one takes over what they have not sent,
// so that nobody gets yesterday's digest right before today's.
func (s *Starter) closeOlder(ctx context.Context, day mailing.Day) error {
	open, err := s.runs.OpenRuns(ctx)
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.Day >= day || !r.Sending() {
			continue
		}
		closed, err := changeRun(ctx, s.runs, r.Day, func(r mailing.Run) (mailing.Run, bool) {
			return r.Closed(day, s.now()), r.Sending()
		})
		if err != nil {
			return fmt.Errorf("close run %s: %w", r.Day, err)
		}
		if err := ask(ctx, s.publisher, closed); err != nil {
			return err
		}
	}
	return nil
}

// changeRun replaces a run by what next makes of it; where next returns false nothing is written.
func changeRun(ctx context.Context, runs runStore, day mailing.Day, next func(mailing.Run) (mailing.Run, bool)) (mailing.Run, error) {
	for range maxWrites {
		read, found, err := runs.Run(ctx, day)
		if err != nil || !found {
			return read, errors.Join(err, notFound(found, day))
		}
		become, changes := next(read)
		if !changes {
			return read, nil
		}
		saved, err := runs.SaveRun(ctx, read, become)
		if err != nil {
			return read, err
		}
		if saved {
			return become, nil
		}
	}
	return mailing.Run{}, fmt.Errorf("run %s kept changing", day)
}

func notFound(found bool, day mailing.Day) error {
	if found {
		return nil
	}
	return fmt.Errorf("there is no run of %s", day)
}

// ask asks for a run's next step.
func ask(ctx context.Context, p publisher, r mailing.Run) error {
	data, err := r.At().Encode()
	if err != nil {
		return err
	}
	if err := p.PublishRaw(ctx, lane.DigestTopic, data, nil); err != nil {
		return fmt.Errorf("ask for the next step of run %s: %w", r.Day, err)
	}
	return nil
}
