package gcplog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/gcplog"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// line writes one line and reads it as Cloud Logging does.
func line(t *testing.T, level slog.Level, attrs ...slog.Attr) map[string]any {
	t.Helper()
	var out bytes.Buffer
	gcplog.New(&out).LogAttrs(t.Context(), level, "MessageRead applied", attrs...)
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.HasSuffix(out.String(), "\n") {
		t.Fatalf("written in %d lines: %q", n, out.String())
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	moment, _ := fields["time"].(string)
	if _, err := time.Parse(time.RFC3339Nano, moment); err != nil {
		t.Errorf("the time is %q", moment)
	}
	delete(fields, "time")
	return fields
}

func TestSeverities(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelInfo: "INFO", slog.LevelWarn: "WARNING", slog.LevelError: "ERROR",
	} {
		got := line(t, level)
		if d := cmp.Diff(map[string]any{"severity": want, "message": "MessageRead applied"}, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", level, d)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	got := line(t, slog.LevelWarn,
		slog.String("event", "a1.message-read.m1.110"), slog.Int("attempt", 2), slog.String("error", "two\nlines \"quoted\""),
		gcplog.Trace("yard", traceparent), gcplog.Labels("lane", "message-read", "outcome", "retry", "level", "kept", "msg", "kept"))
	want := map[string]any{
		"severity": "WARNING", "message": "MessageRead applied",
		"event": "a1.message-read.m1.110", "attempt": 2.0, "error": "two\nlines \"quoted\"",
		"logging.googleapis.com/trace":  "projects/yard/traces/0af7651916cd43dd8448eb211c80319c",
		"logging.googleapis.com/labels": map[string]any{"lane": "message-read", "outcome": "retry", "level": "kept", "msg": "kept"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := line(t, slog.LevelInfo, gcplog.Trace("yard", "")); len(got) != 2 {
		t.Errorf("without a trace the line is %v", got)
	}
	if got := line(t, slog.LevelInfo, slog.Any("cause", errors.New("x"))); got["cause"] != "x" {
		t.Errorf("an error is written as %v", got["cause"])
	}
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, traceparent, want string }{
		{"as W3C has it", traceparent, "0af7651916cd43dd8448eb211c80319c"},
		{"of a later version", "01" + traceparent[2:] + "-more", "0af7651916cd43dd8448eb211c80319c"},
		{"none", "", ""},
		{"no trace", "00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		{"too short", "00-0af7-b7ad6b7169203331-01", ""},
		{"upper case", strings.ToUpper(traceparent), ""},
		{"not hexadecimal", "00-zaf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
		{"a part missing", "00-0af7651916cd43dd8448eb211c80319c-01", ""},
		{"with a path in it", "00-0af7651916cd43dd8448eb211c8031/c-b7ad6b7169203331-01", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := gcplog.TraceID(c.traceparent); got != c.want {
				t.Errorf("the trace is %q, want %q", got, c.want)
			}
		})
	}
}
