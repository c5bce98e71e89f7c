package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mailyard.internal/mailyard/shared/gmailsim"
	"mailyard.internal/mailyard/shared/mailing"
)

// A file's good lines are imported and counted; each bad one has its sentence, and changes nothing.
func TestImportSubscribers(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	account := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	file := filepath.Join(t.TempDir(), "subscribers.csv")
	write := func(text string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "ACC", account)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	r := p.run(1, "subscribers", "import", write("\uFEFFaccount,email,frequency,weekday,timezone\n"+
		"ACC,a@example.net,daily,,\n"+
		"ACC,b@example.net,hourly,,\n"+
		"ACC,c@example.net,weekly,friday,Europe/Zurich\n"+
		"ACC,d@example.net,weekly,someday,\n"+
		"ACC,e@example.net,,,Mars/Olympus\n"+
		"ACC,not an address,,,\n"+
		"ACC,f@example.net\n"+
		"nobody,g@example.net,,,\n"+
		"ACC,\"h@example.net,,,\n"+
		"ACC,i@example.net,,,\n"))
	if !strings.Contains(r.stdout, "2 subscribers imported") {
		t.Errorf("it says %s", r.stdout)
	}
	for _, want := range []string{
		`line 3: the frequency "hourly" is unknown; write daily or weekly`,
		`line 5: "someday" is no weekday`, `line 6: the timezone "Mars/Olympus" is none`,
		"line 7: the address is not a mail address", "line 8: it has 2 fields, and the first line names 5",
		"line 9: there is no account nobody", "line 10: its quotes are not in order", "7 lines were not imported",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not in %s", want, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "example.net") {
		t.Errorf("an address was repeated: %s", r.stderr)
	}
	list := read[[]subscriberJSON](p, "subscribers", "list")
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	for _, s := range list {
		if weekly := s.Email == "c@example.net"; s.Sequence != 1 || (s.Frequency == "weekly") != weekly || (s.Weekday == "friday") != weekly || s.CreatedAt == nil {
			t.Errorf("%+v", s)
		}
	}
	again := decode[importedJSON](t, p.run(0, "subscribers", "import", write("email,account\na@example.net,ACC\nz@example.net,ACC\n"), "--json").stdout)
	if again.Imported != 2 || len(again.Wrong) != 0 || len(read[[]subscriberJSON](p, "subscribers", "list")) != 3 {
		t.Errorf("%+v", again)
	}
	for text, want := range map[string]string{
		"":                         "the file is empty",
		"account,mail\nACC,x@y.z":  `the column "mail"`,
		"account\nACC":             "does not name the column email",
		"email,email,account\nx,y": "twice",
	} {
		if r := p.run(1, "subscribers", "import", write(text)); !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %s", text, r.stderr)
		}
	}
}

func TestSubscribersCommands(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.box("kim@example.com", "secret-of-kim")
	account := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	made := read[subscriberJSON](p, "subscribers", "add", "--account", account, "--email", "kim@example.com", "--frequency", "weekly", "--timezone", "Asia/Tokyo")
	if made.Weekday != "monday" || made.Timezone != "Asia/Tokyo" || made.DeletedAt != nil {
		t.Errorf("%+v", made)
	}
	p.run(0, "subscribers", "remove", made.ID)
	if list := read[[]subscriberJSON](p, "subscribers", "list"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if list := read[[]subscriberJSON](p, "subscribers", "list", "--all", "--account", account); len(list) != 1 || list[0].DeletedAt == nil {
		t.Errorf("%+v", list)
	}
	if back := read[subscriberJSON](p, "subscribers", "add", "--account", account, "--email", "Kim@example.com"); back.ID != made.ID || back.DeletedAt != nil || back.Frequency != "daily" {
		t.Errorf("%+v", back)
	}
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, "the frequency", []string{"subscribers", "add", "--account", account, "--email", "a@example.com", "--frequency", "hourly"}},
		{2, "the timezone", []string{"subscribers", "add", "--account", account, "--email", "a@example.com", "--timezone", "Nowhere"}},
		{1, "there is no account nobody", []string{"subscribers", "add", "--account", "nobody", "--email", "a@example.com"}},
		{1, "there is no subscriber", []string{"subscribers", "remove", "nobody"}},
		{1, "there is no subscriber", []string{"subscribers", "remove", "a/b/c"}},
		{1, "there has been no such run", []string{"digest", "report"}},
		{1, "there has been no such run", []string{"digest", "report", "2020-01-01"}},
		{2, "is not a date", []string{"digest", "report", "today"}},
		{2, "--as must be", []string{"digest", "resolve", "x.1"}},
		{2, "--reason is not given", []string{"digest", "resolve", "x.1", "--as", "sent"}},
		{2, "name them as arguments", []string{"digest", "resolve", "--as", "sent", "--reason", "r"}},
		{1, "not resolved", []string{"digest", "resolve", "x.1", "--as", "sent", "--reason", "r", "--yes"}},
		{1, "the answer was not yes", []string{"digest", "resolve", "x.1", "--as", "sent", "--reason", "r"}},
	} {
		if r := p.run(c.status, c.args...); !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: %s", c.args, r.stderr)
		}
	}
}

// An operator starts a run, looks at its report, and says what became of a mailing nobody knows of.
func TestDigestCommands(t *testing.T) {
	t.Parallel()
	p := newProg(t)
	p.LinkDigestSender()
	p.box("kim@example.com", "secret-of-kim")
	account := p.add("kim@example.com", "secret-of-kim", "--no-resync")
	made := read[subscriberJSON](p, "subscribers", "add", "--account", account, "--email", "kim@example.com")
	if _, err := p.DB.ChangeSubscriber(t.Context(), made.ID, func(s mailing.Subscriber) (mailing.Subscriber, bool) {
		s.CreatedAt = s.CreatedAt.Add(-time.Hour)
		return s, true
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Gmail.AddFault(gmailsim.Fault{Method: "messages.send", Drop: true, After: true, Times: 1}); err != nil {
		t.Fatal(err)
	}
	p.Env["MAILYARD_PUSH_AUTH"] = "off" // of the functions
	p.Start()
	type started struct {
		Run    mailing.Day `json:"run"`
		Phase  string      `json:"phase"`
		Joined bool        `json:"joined"`
	}
	run := read[started](p, "digest", "run")
	if run.Joined || run.Phase != "generate" {
		t.Errorf("%+v", run)
	}
	p.FinishRun(run.Run)
	if again := read[started](p, "digest", "run"); !again.Joined && again.Run == run.Run {
		t.Errorf("%+v", again)
	}
	report := read[reportJSON](p, "digest", "report", string(run.Run))
	if report.Phase != "done" || report.Processing != 1 || report.Sent != 0 || len(report.Differences) != 0 || report.FinishedAt == nil {
		t.Errorf("%+v", report)
	}
	if r := p.run(0, "digest", "report", string(run.Run)); !strings.Contains(r.stdout, "left PROCESSING") {
		t.Error(r.stdout)
	}
	uncertain := read[[]uncertainJSON](p, "digest", "resolve")
	if len(uncertain) != 1 || uncertain[0].Error != "no_answer" || uncertain[0].SubscriberID != made.ID {
		t.Fatalf("%+v", uncertain)
	}
	p.Clock.Advance(time.Hour)
	if r := p.run(0, "digest", "resolve"); !strings.Contains(r.stdout, "1h") {
		t.Error(r.stdout)
	}
	done := read[[]resolvedJSON](p, "digest", "resolve", uncertain[0].ID, "--as", "sent", "--reason", "it is in Sent", "--yes")
	if len(done) != 1 || done[0].Status != "DONE" || done[0].Error != "" {
		t.Errorf("%+v", done)
	}
	if r := p.Mailing(made.ID, 1).Resolutions; len(r) != 1 || r[0].Who != "tester" || r[0].Reason != "it is in Sent" {
		t.Errorf("%+v", r)
	}
	if left := read[[]uncertainJSON](p, "digest", "resolve"); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	p.run(1, "digest", "resolve", uncertain[0].ID, "--as", "again", "--reason", "r", "--yes")
	if p.SentTo()["kim@example.com"] != 1 {
		t.Errorf("mails went to %v", p.SentTo())
	}
}
