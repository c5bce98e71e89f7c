package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mailyard.internal/mailyard/shared/mailing"
)

// A subscriptionLine is one line of a file of subscribers, or what is wrong with it.
type subscriptionLine struct {
	number       int
	subscription mailing.Subscription
	err          error
}

// readSubscriptions reads a CSV file. A line that cannot be read is one of its own; a file whose columns
// are not understood is an error, and nothing is read of it.
func readSubscriptions(file io.Reader) ([]subscriptionLine, error) {
	reader := csv.NewReader(file)
	reader.FieldsPerRecord = -1
	reader.TrimLeadingSpace = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty; its first line must name the columns, as account,email,frequency,weekday,timezone")
	}
	if err != nil {
		return nil, fmt.Errorf("the first line cannot be read: %w", csvError(err))
	}
	columns, err := subscriptionColumns(header)
	if err != nil {
		return nil, err
	}
	var lines []subscriptionLine
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		number, _ := reader.FieldPos(0)
		line := subscriptionLine{number: number}
		var wrong *csv.ParseError
		switch {
		case errors.As(err, &wrong):
			line.number, line.err = wrong.StartLine, csvError(err)
		case err != nil:
			return nil, fmt.Errorf("read the file: %w", err)
		case len(record) != len(header):
			line.err = fmt.Errorf("it has %s, and the first line names %d", counted(len(record), "field", "fields"), len(header))
		default:
			for i, column := range columns {
				*column(&line.subscription) = record[i]
			}
		}
		lines = append(lines, line)
	}
}

// csvError leaves out the position, which the line's number tells.
func csvError(err error) error {
	var wrong *csv.ParseError
	if errors.As(err, &wrong) {
		return fmt.Errorf("its quotes are not in order (%w)", wrong.Err)
	}
	return err
}

func subscriptionColumns(header []string) ([]func(*mailing.Subscription) *string, error) {
	known := map[string]func(*mailing.Subscription) *string{
		"account":   func(s *mailing.Subscription) *string { return &s.Account },
		"email":     func(s *mailing.Subscription) *string { return &s.Email },
		"frequency": func(s *mailing.Subscription) *string { return &s.Frequency },
		"weekday":   func(s *mailing.Subscription) *string { return &s.Weekday },
		"timezone":  func(s *mailing.Subscription) *string { return &s.Timezone },
	}
	var columns []func(*mailing.Subscription) *string
	var names []string
	for i, name := range header {
		if i == 0 {
			name = strings.TrimPrefix(name, "\uFEFF") // as spreadsheets write it
		}
		name = strings.ToLower(strings.TrimSpace(name))
		if known[name] == nil || slices.Contains(names, name) {
			return nil, fmt.Errorf("the first line has the column %q, unknown or twice; it must name account, email, frequency, weekday and timezone, the last three where they are wanted", short(name))
		}
		names = append(names, name)
		columns = append(columns, known[name])
	}
	for _, name := range []string{"account", "email"} {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("the first line does not name the column %s", name)
		}
	}
	return columns, nil
}

// short keeps a sentence readable whatever was written.
func short(word string) string { return shorten(word, 40) }
