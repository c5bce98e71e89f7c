package lane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// keys are the names that an object of the catalogue may have, each with those of its value.
type keys map[string]keys

var catalogueKeys = keys{"lanes": {
	"key":        nil,
	"entryPoint": nil,
	"optional":   nil,
	"match":      {"history": nil, "label": nil, "unlessLabel": nil},
	"effect":     {"kind": nil, "field": nil, "value": nil},
	"delivery": {
		"instances": nil, "concurrency": nil, "maxRetries": nil, "minBackoffSeconds": nil, "maxBackoffSeconds": nil,
		"ackDeadlineSeconds": nil, "maxDeliveryAttempts": nil,
	},
}}

// A keyMistake is a key that is unknown or repeated.
type keyMistake struct {
	lane    int // its place in the list; -1 for a key outside the list
	problem string
}

// checkKeys finds the keys that encoding/json would let pass silently: of a key that is there twice
// it takes the last, and it takes "Key" for "key", which Terraform does not. Its error is one of the
// JSON's syntax.
func checkKeys(data []byte) ([]keyMistake, error) {
	w := keyWalk{dec: json.NewDecoder(bytes.NewReader(data)), lane: -1}
	err := w.value(catalogueKeys, "the catalogue")
	return w.mistakes, err
}

type keyWalk struct {
	dec      *json.Decoder
	lane     int
	mistakes []keyMistake
}

func (w *keyWalk) refuse(format string, args ...any) {
	w.mistakes = append(w.mistakes, keyMistake{w.lane, fmt.Sprintf(format, args...)})
}

// value reads one value. known is nil where any key may stand.
func (w *keyWalk) value(known keys, where string) error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		if err := w.object(known, where); err != nil {
			return err
		}
	case json.Delim('['):
		lanes := where == "lanes" && w.lane < 0
		for i := 0; w.dec.More(); i++ {
			if lanes {
				w.lane, where = i, "it"
			}
			if err := w.value(known, where); err != nil {
				return err
			}
		}
		if lanes {
			w.lane = -1
		}
	default:
		return nil
	}
	_, err = w.dec.Token() // the closing bracket
	return err
}

func (w *keyWalk) object(known keys, where string) error {
	seen := map[string]bool{}
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		inner, ok := known[name]
		switch {
		case seen[name]:
			w.refuse("%s has the key %q twice; leave one", where, name)
		case known != nil && !ok:
			w.refuse("%s has the key %q, which is none of %s", where, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		seen[name] = true
		if err := w.value(inner, name); err != nil {
			return err
		}
	}
	return nil
}
