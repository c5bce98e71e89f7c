// Package gcplog writes log lines as Cloud Logging reads them: one JSON object a line, with its own
// names for severity, message, trace and labels, so that the console filters by them.
package gcplog

import (
	"io"
	"log/slog"
	"strings"
)

// New returns a logger that writes to w.
func New(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: rename}))
}

func rename(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		a.Key = "severity"
		if level, ok := a.Value.Any().(slog.Level); ok && level == slog.LevelWarn {
			a.Value = slog.StringValue("WARNING")
		}
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// Trace ties a line to a W3C trace context, so that one filter shows the way from push to write. It
// is empty, and not written, where there is no trace.
func Trace(project, traceparent string) slog.Attr {
	id := TraceID(traceparent)
	if id == "" {
		return slog.Attr{}
	}
	return slog.String("logging.googleapis.com/trace", "projects/"+project+"/traces/"+id)
}

// Labels are what the log-based metrics count by.
func Labels(labels ...any) slog.Attr {
	return slog.Group("logging.googleapis.com/labels", labels...)
}

// TraceID returns the trace's id of a W3C traceparent: 32 hexadecimal digits, or nothing.
func TraceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0") == "" {
		return ""
	}
	for _, c := range parts[1] {
		if !strings.ContainsRune("0123456789abcdef", c) {
			return ""
		}
	}
	return parts[1]
}
