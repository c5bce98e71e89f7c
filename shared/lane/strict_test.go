package lane_test

import (
	"fmt"
	"strings"
	"testing"

	"mailyard.internal/mailyard/shared/lane"
)

const delivery = `{"instances":1,"concurrency":1,"maxRetries":3,"minBackoffSeconds":10,"maxBackoffSeconds":300,"ackDeadlineSeconds":30,"maxDeliveryAttempts":100}`

// entry writes a lane that is right but for what is replaced in it: old, new, old, new…
func entry(replacements ...string) string {
	text := `{"key":"message-starred","entryPoint":"MessageStarred","match":[{"history":"labelsAdded","label":"STARRED"}],` +
		`"effect":{"kind":"flag","field":"starred","value":true},"delivery":` + delivery + `}`
	return strings.NewReplacer(replacements...).Replace(text)
}

const fetching = `{"key":"message-added","entryPoint":"MessageAdded","match":[{"history":"messagesAdded"}],"effect":{"kind":"fetch"},"delivery":` + delivery + `}`

func catalogueOf(lanes ...string) string {
	return `{"lanes":[` + strings.Join(lanes, ",") + `]}`
}

func TestCatalogueIsStrict(t *testing.T) {
	t.Parallel()
	const starred = `catalogue: lane "message-starred": `
	for _, c := range []struct{ name, text, want string }{
		{"nothing", ``, `catalogue: it is not one JSON object`},
		{"not JSON", `lanes: []`, `catalogue: it is not one JSON object`},
		{"cut off", `{"lanes":[` + fetching, `catalogue: it is not one JSON object`},
		{"trailing data", catalogueOf(fetching) + `{}`, `catalogue: it is not one JSON object`},
		{"a list", `[` + fetching + `]`, `catalogue: write it as {"lanes": [...]}`},
		{"lanes that are no list", `{"lanes":{"message-added":` + fetching + `}}`, `catalogue: write it as {"lanes": [...]}`},
		{"no lanes", `{"lanes":[]}`, `catalogue: exactly one lane must have the effect fetch, not 0`},
		{"null", `null`, `catalogue: exactly one lane must have the effect fetch, not 0`},
		{"a lane that is text", catalogueOf(fetching, `"message-starred"`), `catalogue: lane 2 of the list: it is a JSON string`},

		{"an unknown key at the top", `{"lanes":[` + fetching + `],"version":2}`, `catalogue: the catalogue has the key "version", which is none of lanes`},
		{"an unknown key of a lane", catalogueOf(fetching, entry(`"effect"`, `"colour":"red","effect"`)), starred + `it has the key "colour", which is none of delivery, effect, entryPoint, key, match`},
		{"an unknown key of a match", catalogueOf(fetching, entry(`"label"`, `"labels":[],"label"`)), starred + `match has the key "labels", which is none of history, label, unlessLabel`},
		{"an unknown key of an effect", catalogueOf(fetching, entry(`"field"`, `"fields":1,"field"`)), starred + `effect has the key "fields"`},
		{"an unknown key of the delivery", catalogueOf(fetching, entry(`"instances"`, `"retries":3,"instances"`)), starred + `delivery has the key "retries"`},
		{"a key in other letter case", catalogueOf(fetching, entry(`"entryPoint"`, `"EntryPoint"`)), starred + `it has the key "EntryPoint"`},

		{"lanes twice", `{"lanes":[],"lanes":[` + fetching + `]}`, `catalogue: the catalogue has the key "lanes" twice`},
		{"a lane's key twice", catalogueOf(fetching, entry(`"effect"`, `"entryPoint":"X","effect"`)), starred + `it has the key "entryPoint" twice`},
		{"a match's key twice", catalogueOf(fetching, entry(`"label"`, `"label":"SPAM","label"`)), starred + `match has the key "label" twice`},
		{"an effect's key twice", catalogueOf(fetching, entry(`"value":true`, `"value":true,"value":true`)), starred + `effect has the key "value" twice`},
		{"a delivery value twice", catalogueOf(fetching, entry(`"instances":1`, `"instances":1,"instances":2`)), starred + `delivery has the key "instances" twice`},
		{"a key twice, once escaped", catalogueOf(fetching, entry(`"instances":1`, `"instances":1,"\u0069nstances":2`)), starred + `delivery has the key "instances" twice`},
		{"a key twice deep in something unknown", catalogueOf(fetching, entry(`"effect"`, `"x":[{"y":{"z":1,"z":2}}],"effect"`)), starred + `y has the key "z" twice`},

		{"a number as text", catalogueOf(fetching, entry(`"instances":1`, `"instances":"1"`)), starred + `delivery.instances is a JSON string`},
		{"a fraction", catalogueOf(fetching, entry(`"instances":1`, `"instances":1.5`)), starred + `delivery.instances is a JSON number 1.5`},
		{"a value as text", catalogueOf(fetching, entry(`"value":true`, `"value":"true"`)), starred + `effect.value is a JSON string`},

		{"no key", catalogueOf(fetching, entry(`"message-starred"`, `""`)), `catalogue: lane 2 of the list: key must be lower-case words`},
		{"a key with capitals", catalogueOf(fetching, entry(`message-starred`, `Message-starred`)), `catalogue: lane "Message-starred": key must be lower-case words`},
		{"a key that ends in a hyphen", catalogueOf(fetching, entry(`message-starred`, `message-`)), `catalogue: lane "message-": key must be`},
		{"a key too long for Pub/Sub's names", catalogueOf(fetching, entry(`message-starred`, strings.Repeat("a", 61))), `key must be lower-case words`},
		{"two lanes of one key", catalogueOf(fetching, entry(), entry(`MessageStarred`, `Other`, `"field":"starred"`, `"field":"other"`)), `the key is there twice`},
		{"no entry point", catalogueOf(fetching, entry(`"MessageStarred"`, `""`)), starred + `entryPoint must be an exported Go name`},
		{"an entry point in lower case", catalogueOf(fetching, entry(`MessageStarred`, `messageStarred`)), starred + `entryPoint must be an exported Go name`},
		{"an entry point of another lane", catalogueOf(fetching, entry(`MessageStarred`, `MessageAdded`)), starred + `entryPoint MessageAdded is another function's`},

		{"no match", catalogueOf(fetching, entry(`{"history":"labelsAdded","label":"STARRED"}`, ``)), starred + `match is empty`},
		{"an unknown list", catalogueOf(fetching, entry(`labelsAdded`, `labelsChanged`)), starred + `history "labelsChanged" is none of messagesAdded`},
		{"a list of labels without a label", catalogueOf(fetching, entry(`,"label":"STARRED"`, ``)), starred + `a match on labelsAdded needs the label`},
		{"a list of messages with a label", catalogueOf(fetching, entry(`labelsAdded`, `messagesAdded`)), starred + `a match on messagesAdded takes unlessLabel, but no label`},

		{"an unknown effect", catalogueOf(fetching, entry(`"flag"`, `"archive"`)), starred + `effect "archive" is none of fetch, flag`},
		{"no effect", catalogueOf(fetching, entry(`{"kind":"flag","field":"starred","value":true}`, `{}`)), starred + `effect "" is none of`},
		{"a flag without a value", catalogueOf(fetching, entry(`,"value":true`, ``)), starred + `effect flag needs a value, true or false`},
		{"a flag without a field", catalogueOf(fetching, entry(`"field":"starred",`, ``)), starred + `effect flag needs a field`},
		{"a field with a dot", catalogueOf(fetching, entry(`"field":"starred"`, `"field":"guards.unread"`)), starred + `effect flag needs a field`},
		{"a deletion with a value", catalogueOf(fetching, entry(`"kind":"flag","field":"starred"`, `"kind":"delete"`)), starred + `effect delete takes no field and no value`},
		{"two lanes that fetch", catalogueOf(fetching, entry(`{"kind":"flag","field":"starred","value":true}`, `{"kind":"fetch"}`)), `exactly one lane must have the effect fetch, not 2`},
		{"a flag of no label", catalogueOf(fetching, entry(`{"history":"labelsAdded","label":"STARRED"}`, `{"history":"messagesAdded"}`)), starred + `a flag follows a label: match labelsAdded or labelsRemoved`},
		{"flags that disagree on the label", catalogueOf(fetching, entry(), entry(`message-starred`, `message-x`, `MessageStarred`, `X`, `STARRED`, `SPAM`)), `catalogue: lane "message-x": field starred already follows label STARRED in another way`},
		{"flags that disagree on the value", catalogueOf(fetching, entry(), entry(`message-starred`, `message-x`, `MessageStarred`, `X`, `labelsAdded`, `labelsRemoved`)), `catalogue: lane "message-x": field starred already follows label STARRED in another way`},
		{"a lane that disagrees with itself", catalogueOf(fetching, entry(`"label":"STARRED"}`, `"label":"STARRED"},{"history":"labelsAdded","label":"SPAM"}`)), starred + `field starred already follows label STARRED`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, c.text, c.want)
		})
	}
	if _, err := lane.Parse([]byte(catalogueOf(fetching, entry()))); err != nil {
		t.Errorf("the catalogue that the mistakes were put in is refused itself: %v", err)
	}
}

func TestNamesOfOthersAreTaken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Ingest", "DeadLetter", "Connect", "Renew", "Tick", "Resync", "Digest", "DigestSend", "Unsubscribe", "Console"} {
		checkRefused(t, catalogueOf(fetching, entry("MessageStarred", name)), "entryPoint "+name+" is another function's")
	}
	for _, field := range []string{
		"threadId", "from", "to", "cc", "subject", "snippet", "date", "sizeEstimate", "hasContent", "content", "deleted",
		"guards", "fetchDueAt", "fetchHistoryId", "updatedAt", "expireAt", "labelIds",
	} {
		checkRefused(t, catalogueOf(fetching, entry(`"field":"starred"`, `"field":"`+field+`"`)), "effect flag needs a field of its own")
	}
}

func TestDeliveryValuesOutOfRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		low, high int
	}{
		{"instances", 1, 1000},
		{"concurrency", 1, 1000},
		{"maxRetries", 0, 20},
		{"minBackoffSeconds", 0, 300}, // not above the maximum of the lane it is put in
		{"maxBackoffSeconds", 10, 600},
		{"ackDeadlineSeconds", 10, 600},
		{"maxDeliveryAttempts", 5, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			with := func(value int) string {
				text := entry()
				i := strings.Index(text, `"`+c.name+`":`) + len(c.name) + 3
				end := i + strings.IndexAny(text[i:], ",}")
				return catalogueOf(fetching, text[:i]+fmt.Sprint(value)+text[end:])
			}
			for _, value := range []int{c.low, c.high} {
				if _, err := lane.Parse([]byte(with(value))); err != nil {
					t.Errorf("%d is refused: %v", value, err)
				}
			}
			for _, value := range []int{c.low - 1, c.high + 1} {
				checkRefused(t, with(value), "must be ")
			}
		})
	}
	// Pub/Sub's own net must not take events that still have retries left.
	checkRefused(t, catalogueOf(fetching, entry(`"maxRetries":3`, `"maxRetries":10`, `"maxDeliveryAttempts":100`, `"maxDeliveryAttempts":11`)),
		"maxDeliveryAttempts is 11, must be 12 to 100")
}

func TestMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	text := catalogueOf(fetching,
		entry(`"instances":1`, `"instances":0`, `"concurrency":1`, `"concurrency":"many"`, `"effect"`, `"colour":1,"Effect":{},"effect"`),
		entry(`message-starred`, `message-spam`, `MessageStarred`, `Tick`, `"starred"`, `"guards"`))
	_, err := lane.Parse([]byte(text))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`lane "message-starred": it has the key "colour"`,
		`lane "message-starred": it has the key "Effect"`,
		`lane "message-starred": delivery.concurrency is a JSON string`,
		`lane "message-starred": delivery: instances is 0, must be 1 to 1000`,
		`lane "message-spam": entryPoint Tick is another function's`,
		`lane "message-spam": effect flag needs a field of its own`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among\n%v", want, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "catalogue: ") {
			t.Errorf("a mistake is not one line: %q", line)
		}
	}
}

func checkRefused(t *testing.T, text, want string) {
	t.Helper()
	_, err := lane.Parse([]byte(text))
	switch {
	case err == nil:
		t.Errorf("accepted: %s", text)
	case !strings.Contains(err.Error(), want):
		t.Errorf("the error is\n%v\nwant\n%s", err, want)
	}
}
