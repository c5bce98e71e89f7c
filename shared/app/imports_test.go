package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module     = "mailyard.internal/mailyard"
	moduleRoot = "../.."
)

// A layer says what a package may import beside the standard library; /... at the end of a name
// stands for everything under it, too. Names without a dot in their first part are this module's.
type layer struct {
	packages string
	is       string
	may      []string
}

const adapter = "is an adapter: it knows its own SDK, and of Mailyard only the words"

// layers is the architecture: who is what, and so may import whom. The first that fits
// a package is the package's.
var layers = []layer{
	{"shared/mail", "is pure: it imports the standard library only", nil},
	{"shared/fault", "is pure: it imports the standard library only", nil},
	{"shared/lane", "is pure: it imports the standard library and mail", []string{"shared/mail"}},
	{"shared/ledger", "is pure: it imports the standard library, mail and fault", []string{"shared/mail", "shared/fault"}},
	{"shared/alert", "is pure: it imports the standard library only", nil},
	{"shared/notice", "is a page for everybody: it imports the standard library only", nil},
	{"shared/page", "is what pages have in common: it imports the standard library only", nil},
	{"shared/mailing", "is pure: it imports the standard library and mail", []string{"shared/mail"}},
	{"shared/config", "reads what it is given: it imports the standard library only", nil},
	{"shared/ticket", "signs tickets: it knows nothing but its library", []string{"github.com/golang-jwt/jwt/v5"}},
	{"shared/gcplog", "is about logging alone: it imports the standard library only", nil},
	{"shared/gmailsim", "stands for Gmail, not for Mailyard: it imports the standard library only", nil},

	{"shared/event", adapter, []string{"shared/mail", "github.com/cloudevents/sdk-go/v2/..."}},
	{"shared/firestoredb", adapter, []string{
		"shared/mail", "shared/mailing", "shared/lane", "shared/fault", "shared/ledger", "shared/alert", "shared/config",
		"cloud.google.com/go/firestore/...", "google.golang.org/api/iterator", "google.golang.org/api/option", "google.golang.org/grpc/...",
	}},
	{"shared/pubsubbus", adapter, []string{
		"shared/mail", "shared/lane", "shared/fault", "shared/ledger", "shared/event",
		"cloud.google.com/go/pubsub/...", "google.golang.org/api/option", "google.golang.org/grpc/...",
	}},
	{"shared/gmailapi/content", "reads a Gmail message: it knows no account, no call and no store", []string{
		"shared/mail", "google.golang.org/api/gmail/v1", "golang.org/x/net/html/...", "golang.org/x/text/...",
	}},
	{"shared/gmailapi", adapter, []string{
		"shared/mail", "shared/lane", "shared/fault", "shared/config", "shared/gmailapi/content",
		"google.golang.org/api/gmail/v1", "google.golang.org/api/iamcredentials/v1", "google.golang.org/api/googleapi", "google.golang.org/api/option", "golang.org/x/oauth2/...",
		"golang.org/x/time/rate",
	}},
	{"shared/keyset", adapter, []string{
		"shared/fault", "shared/config", "github.com/tink-crypto/...", "google.golang.org/api/option", "google.golang.org/api/transport/http",
	}},
	{"shared/webhook", adapter, []string{"shared/alert", "shared/fault", "shared/config"}},
	{"shared/pushauth", adapter, []string{"shared/fault", "shared/config", "google.golang.org/api/idtoken", "google.golang.org/api/option"}},
	{"shared/delivery", "stands between HTTP and the handlers: it knows no function and no store", []string{
		"shared/mail", "shared/lane", "shared/fault", "shared/ledger", "shared/event", "shared/gcplog", "shared/pushauth",
	}},

	{"functions/digest", "is a function, and alone builds mails and paces them", []string{
		"shared/mail", "shared/mailing", "shared/lane", "shared/fault", "shared/notice", "github.com/wneessen/go-mail", "golang.org/x/time/rate",
	}},
	{"functions/...", "is a function: it imports mail, lane, fault, ledger, alert, ticket, page and notice, declares the interfaces it needs, and knows no other function", []string{
		"shared/mail", "shared/lane", "shared/fault", "shared/ledger", "shared/alert", "shared/ticket", "shared/page", "shared/notice", "golang.org/x/time/rate",
	}},

	{"shared/app", "alone wires adapters and functions together, and knows no SDK but the transport's options", []string{
		"functions/...", "shared/mail", "shared/mailing", "shared/lane", "shared/fault", "shared/ledger", "shared/config", "shared/gcplog", "shared/event", "shared/ticket",
		"shared/firestoredb", "shared/pubsubbus", "shared/gmailapi", "shared/keyset", "shared/pushauth", "shared/webhook", "shared/delivery",
		"google.golang.org/grpc",
	}},
	{".", "registers the functions, and nothing else", []string{"shared/app", "github.com/GoogleCloudPlatform/functions-framework-go/functions"}},

	{"shared/apptest", "", anything},
	{"shared/apptest/chromium", "", anything},
	{"terraform", "is deployed by Terraform, and Go only tests it", nil},
	{"scripts/...", "", anything},
}

// anything is for what is never deployed.
var anything = []string{"*"}

// sdks are imported by one package each, so that an SDK's next version is one package's concern. What
// runs the emulators, measures, and tests is left out: it must not see them through our eyes.
var sdks = []struct {
	prefix    string
	importers []string
}{
	{"cloud.google.com/go/firestore", []string{"shared/firestoredb"}},
	{"cloud.google.com/go/pubsub", []string{"shared/pubsubbus"}},
	{"google.golang.org/api/gmail", []string{"shared/gmailapi", "shared/gmailapi/content"}},
	{"google.golang.org/api/idtoken", []string{"shared/pushauth"}},
	{"google.golang.org/api/iamcredentials", []string{"shared/gmailapi"}},
	{"github.com/golang-jwt", []string{"shared/ticket"}},
	{"golang.org/x/oauth2", []string{"shared/gmailapi"}},
	{"github.com/cloudevents", []string{"shared/event"}},
	{"github.com/wneessen/go-mail", []string{"functions/digest"}},
	{"github.com/tink-crypto", []string{"shared/keyset"}},
	{"github.com/GoogleCloudPlatform/functions-framework-go", []string{"."}},
}

var besideTheProduct = []string{"scripts/local/...", "scripts/bench/...", "shared/apptest"}

func TestWhoMayImportWhom(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range modulePackages(t) {
		name := shortName(p.ImportPath)
		i := slices.IndexFunc(layers, func(l layer) bool { return within(name, l.packages) })
		if i < 0 {
			t.Errorf("package %s has no layer: say what it is and what it may import, in the table layers of shared/app/imports_test.go", name)
			continue
		}
		l := layers[i]
		used[l.packages] = true
		for _, imported := range p.Imports {
			short := shortName(imported)
			for _, sdk := range sdks {
				if within(short, sdk.prefix+"/...") && !slices.Contains(sdk.importers, name) && !anyWithin(name, besideTheProduct) {
					t.Errorf("%s imports %s, which is for %s alone", name, imported, strings.Join(sdk.importers, " and "))
				}
			}
			if !isStandard(imported) && !anyWithin(short, l.may) {
				t.Errorf("%s imports %s, but %s %s; it may import %s", name, imported, name, l.is, listOf(l.may))
			}
		}
	}
	for _, l := range layers {
		if !used[l.packages] {
			t.Errorf("the table layers has %s, and there is no such package", l.packages)
		}
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string // not those of tests
}

func modulePackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = moduleRoot
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// shortName leaves the module's own name out; the root is a dot.
func shortName(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// within says whether a package is what a pattern names.
func within(name, pattern string) bool {
	if pattern == "*" || name == pattern {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "/...")
	return ok && (name == prefix || strings.HasPrefix(name, prefix+"/"))
}

func anyWithin(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return within(name, p) })
}

func listOf(packages []string) string {
	if len(packages) == 0 {
		return "the standard library"
	}
	return "the standard library, " + strings.Join(packages, ", ")
}

// The environment is read in one place: it comes in through function.go, or a command's main, and
// goes to config.Load as a function.
func TestEnvironmentIsReadInOnePlace(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir(moduleRoot, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, err := filepath.Rel(moduleRoot, name)
		if err != nil {
			return err
		}
		at = filepath.ToSlash(at)
		if entry.IsDir() {
			if at == "scripts" || at == "shared/apptest" || at != "." && strings.HasPrefix(path.Base(at), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(at) != ".go" || strings.HasSuffix(at, "_test.go") || at == "function.go" {
			return nil
		}
		files++
		for _, use := range environmentReads(t, name) {
			t.Errorf("%s: the environment is read outside function.go: take a config.Lookup, or the value itself", use)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Error("no file was looked at")
	}
}

// environmentReads returns the places where a file uses one of os's or syscall's ways to read the
// environment.
func environmentReads(t *testing.T, name string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	readers := map[string]bool{} // names under which a package that reads it is imported
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil || imported != "os" && imported != "syscall" {
			continue
		}
		if spec.Name != nil {
			imported = spec.Name.Name
		}
		readers[imported] = true
	}
	var reads []string
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := selector.X.(*ast.Ident)
		if ok && readers[from.Name] && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, selector.Sel.Name) {
			reads = append(reads, set.Position(selector.Pos()).String()+" "+from.Name+"."+selector.Sel.Name)
		}
		return true
	})
	return reads
}
