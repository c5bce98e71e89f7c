package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A figure is one line of a benchmark's result.
type figure struct {
	what  string
	value float64
	unit  string // empty for a ratio
	bound bound
}

// A bound is what a figure must keep; the zero bound is none.
type bound struct {
	word  string
	limit float64
	holds func(value float64) bool
}

func atMost(limit float64) bound {
	return bound{"at most", limit, func(v float64) bool { return v <= limit }}
}

func atLeast(limit float64) bound {
	return bound{"at least", limit, func(v float64) bool { return v >= limit }}
}

func (b bound) String() string {
	if b.holds == nil {
		return ""
	}
	return b.word + " " + number(b.limit)
}

func (f figure) kept() bool { return f.bound.holds == nil || f.bound.holds(f.value) }

func (f figure) verdict() string {
	switch {
	case f.bound.holds == nil:
		return ""
	case f.kept():
		return "kept"
	}
	return "MISSED"
}

func (f figure) text() string {
	if f.unit == "" {
		return fmt.Sprintf("%.3f", f.value)
	}
	return number(f.value) + " " + f.unit
}

// number gives three digits, or all before the point.
func number(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func microseconds(what string, d time.Duration) figure {
	return figure{what: what, value: float64(d) / float64(time.Microsecond), unit: "µs"}
}

func milliseconds(what string, d time.Duration) figure {
	return figure{what: what, value: float64(d) / float64(time.Millisecond), unit: "ms"}
}

// median of an odd or even number of samples, at least one. It sorts them.
func median[T time.Duration | float64](samples []T) T {
	slices.Sort(samples)
	middle := len(samples) / 2
	if len(samples)%2 == 1 {
		return samples[middle]
	}
	return (samples[middle-1] + samples[middle]) / 2
}
