package apptest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// A Push is one HTTP request as Pub/Sub makes it.
type Push struct {
	Data       []byte
	Attributes map[string]string
	MessageID  string
	Attempt    int // 0: not said
	Header     http.Header
}

// Post pushes a message to a function and returns the answer's status.
func (y *Yard) Post(entryPoint string, p Push) int {
	y.t.Helper()
	return y.PostBody(entryPoint, y.Body(p), p.Header)
}

// Body gives the body of a push.
func (y *Yard) Body(p Push) []byte {
	y.t.Helper()
	message := map[string]any{"data": p.Data, "attributes": p.Attributes, "messageId": p.MessageID, "publishTime": y.Clock.Now().UTC().Format(time.RFC3339Nano)}
	push := map[string]any{"message": message, "subscription": "projects/" + y.Project + "/subscriptions/test"}
	if p.Attempt > 0 {
		push["deliveryAttempt"] = p.Attempt
	}
	body, err := json.Marshal(push)
	y.must(err, "encode the push")
	return body
}

// PostBody posts any body to a function and returns the answer's status.
func (y *Yard) PostBody(entryPoint string, body []byte, header http.Header) int {
	y.t.Helper()
	return y.PostTo(y.Functions.URL, entryPoint, body, header)
}

// PostTo posts any body to a function of one instance and returns the answer's status.
func (y *Yard) PostTo(instance, entryPoint string, body []byte, header http.Header) int {
	y.t.Helper()
	request, err := http.NewRequestWithContext(y.t.Context(), http.MethodPost, instance+"/"+entryPoint, bytes.NewReader(body))
	y.must(err, "make the request")
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	y.must(err, "post")
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	y.must(err, "read the answer")
	return response.StatusCode
}
