package terraform_test

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mailyard.internal/mailyard/shared/app"
	"mailyard.internal/mailyard/shared/config"
	"mailyard.internal/mailyard/shared/lane"
)

func catalogue(t *testing.T) *lane.Catalogue {
	t.Helper()
	c, err := lane.All()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRoutesAreTheSame(t *testing.T) {
	t.Parallel()
	c := catalogue(t)
	lanes := map[string]bool{}
	for _, l := range c.Lanes {
		lanes[l.Topic()] = true
	}
	inGo := map[string]lane.Route{}
	for _, r := range c.Routes() {
		if !lanes[r.Topic] {
			inGo[r.Topic] = r
		}
	}
	var routes map[string]struct {
		Topic      string        `json:"topic"`
		Suffix     string        `json:"suffix"`
		EntryPoint string        `json:"entry_point"`
		Delivery   lane.Delivery `json:"delivery"`
	}
	local(t, "other_routes", &routes)
	inTerraform := map[string]lane.Route{}
	for _, r := range routes {
		inTerraform[r.Topic] = lane.Route{
			Topic: r.Topic, Subscription: r.Topic + "-" + r.Suffix, EntryPoint: r.EntryPoint, Delivery: r.Delivery, DeadLetters: true,
		}
	}
	if diff := cmp.Diff(inGo, inTerraform); diff != "" {
		t.Errorf("shared/lane/route.go and local.other_routes differ (-Go, +Terraform):\n%s", diff)
	}
	var monitor lane.Delivery
	local(t, "monitor_delivery", &monitor)
	for _, r := range c.MonitorRoutes() {
		if r.Delivery != monitor {
			t.Errorf("%s is delivered as %+v in Go, as %+v in Terraform", r.Subscription, r.Delivery, monitor)
		}
	}
}

func TestEntryPointsAreTheSame(t *testing.T) {
	t.Parallel()
	registered, err := app.New(func(string) (string, bool) { return "", false }, io.Discard).EntryPoints()
	if err != nil {
		t.Fatal(err)
	}
	var inGo, inTerraform []string
	for _, e := range registered {
		inGo = append(inGo, e.Name)
	}
	var functions map[string]struct {
		EntryPoint string `json:"entry_point"`
	}
	local(t, "other_functions", &functions, "monitor_delivery")
	for _, f := range functions {
		inTerraform = append(inTerraform, f.EntryPoint)
	}
	for _, l := range catalogue(t).Lanes {
		inTerraform = append(inTerraform, l.EntryPoint)
	}
	slices.Sort(inGo)
	slices.Sort(inTerraform)
	if diff := cmp.Diff(inGo, inTerraform); diff != "" {
		t.Errorf("what is registered and what is deployed differ (-Go, +Terraform):\n%s", diff)
	}
}

// A variable that nothing reads is a misspelt one.
func TestFunctionsReadTheirEnvironment(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	_, _ = config.Load(func(name string) (string, bool) { // that nothing is set is no concern here
		read[name] = true
		return "", false
	})
	set := map[string]bool{}
	for _, name := range find(t, "functions.tf", `\b(GOOGLE_CLOUD_PROJECT|FIRESTORE_DATABASE|MAILYARD_[A-Z][A-Z_]+[A-Z])\b`) {
		set[name] = true
	}
	for _, name := range find(t, "variables.tf", `(?m)^\s+(\w+)\s+= optional\(number`) { // the secrets
		set["MAILYARD_"+strings.ToUpper(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !read[name] {
			t.Errorf("functions have %s, and shared/config does not read it", name)
		}
	}
	if len(set) < 10 {
		t.Errorf("only %d variables were found", len(set))
	}
}

// find returns what a pattern's group matches in a file.
func find(t *testing.T, name, pattern string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(data), -1) {
		found = append(found, match[1])
	}
	return found
}

func TestAlertsLinkThePlaybook(t *testing.T) {
	t.Parallel()
	anchors := map[string]bool{}
	for _, heading := range find(t, "../README.md", `(?m)^#+ (.+)$`) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading), "")
		anchors[strings.ReplaceAll(plain, " ", "-")] = true
	}
	sections := find(t, "monitoring.tf", `\bplaybook\s+= "([^"]+)"`)
	for _, section := range sections {
		if !anchors[section] {
			t.Errorf("an alert links README.md#%s, and the README has no such section", section)
		}
	}
	if alerts := find(t, "monitoring.tf", `\b(title)\s+= .+\n\s+text `); len(sections) != len(alerts) {
		t.Errorf("%d alerts link %d sections", len(alerts), len(sections))
	}
}

// The cases of Terraform among those of real programs that failed are runs of the same name.
func TestCasesAreRuns(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../shared/app/testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name string
			Want struct{ Terraform string }
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	runs := map[string]bool{}
	for _, body := range parse(t, "tests/*.tftest.hcl") {
		for _, block := range body.Blocks {
			if block.Type == "run" {
				runs[block.Labels[0]] = true
			}
		}
	}
	found := 0
	for _, c := range file.Cases {
		if c.Want.Terraform == "" {
			continue
		}
		found++
		if name := strings.NewReplacer(" ", "_", "-", "_").Replace(c.Name); !runs[name] {
			t.Errorf("the case %q has no run %s in terraform/tests", c.Name, name)
		}
	}
	if found == 0 {
		t.Error("no case is about Terraform")
	}
}
