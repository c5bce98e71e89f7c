package main

import (
	"errors"
	"flag"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		figure        figure
		text, verdict string
	}{
		{figure{value: 0.0333, bound: atMost(0.1)}, "0.033", "kept"},
		{figure{value: 1.5, bound: atMost(1.5)}, "1.500", "kept"},
		{figure{value: 1.51, bound: atMost(1.5)}, "1.510", "MISSED"},
		{figure{value: 0.89, bound: atLeast(0.9)}, "0.890", "MISSED"},
		{figure{value: 1234.5, unit: "events/s"}, "1234 events/s", ""},
		{milliseconds("", 5470*time.Microsecond), "5.47 ms", ""},
	} {
		if got := c.figure.text(); got != c.text {
			t.Errorf("%v reads %q, not %q", c.figure.value, got, c.text)
		}
		if got := c.figure.verdict(); got != c.verdict {
			t.Errorf("%v is judged %q, not %q", c.figure.value, got, c.verdict)
		}
	}
}

func TestMedian(t *testing.T) {
	if got := median([]float64{9, 1, 2}); got != 2 {
		t.Errorf("of three: %v", got)
	}
	if got := median([]float64{9, 1, 2, 4}); got != 3 {
		t.Errorf("of four: %v", got)
	}
}

func TestInTurns(t *testing.T) {
	var order string
	side := func(name string) func(int) (float64, error) {
		return func(turn int) (float64, error) { order += name; return float64(turn), nil }
	}
	medians, err := inTurns(3, side("a"), side("b"))
	if err != nil || order != "abbaabba" || medians[0] != 2 || medians[1] != 2 {
		t.Errorf("order %s, medians %v, error %v", order, medians, err)
	}
}

func TestChoose(t *testing.T) {
	chosen, err := choose([]string{"-run", "start,apply"})
	if err != nil || len(chosen) != 2 || chosen[0].name != "start" {
		t.Errorf("chose %v, error %v", chosen, err)
	}
	for _, args := range [][]string{{"-run", "nothing"}, {"start"}, {"-what"}} {
		if _, err := choose(args); err == nil {
			t.Errorf("%q was understood", args)
		}
	}
	if _, err := choose([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
