package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An installation is what the emulators are started from.
type installation struct {
	java, pubsubJar, firestoreJar string
}

// minJava is the oldest Java that the emulators are tried with.
const minJava = 17

// Where the jars lie in a Google Cloud CLI.
const (
	pubsubJar    = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
	firestoreJar = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
)

func findInstallation(ctx context.Context) (installation, error) {
	sdk, err := findJars(knownRoots())
	if err != nil {
		// Asking gcloud itself takes a second, so it comes last.
		if out, asked := exec.CommandContext(ctx, "gcloud", "info", "--format=value(installation.sdk_root)").Output(); asked == nil {
			sdk, err = findJars([]string{strings.TrimSpace(string(out))})
		}
	}
	if err != nil {
		return installation{}, err
	}
	sdk.java, err = findJava(ctx)
	return sdk, err
}

// knownRoots are the places where a Google Cloud CLI usually lies, the likeliest first.
func knownRoots() []string {
	var roots []string
	if root := os.Getenv("CLOUDSDK_ROOT_DIR"); root != "" {
		roots = append(roots, root)
	}
	if gcloud, err := exec.LookPath("gcloud"); err == nil {
		if real, err := filepath.EvalSymlinks(gcloud); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(real)))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, "google-cloud-sdk"))
	}
	return append(roots,
		"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/usr/local/google-cloud-sdk", "/opt/google-cloud-sdk",
		"/opt/homebrew/share/google-cloud-sdk", "/usr/local/share/google-cloud-sdk",
		"/opt/homebrew/Caskroom/google-cloud-sdk/latest/google-cloud-sdk", "/usr/local/Caskroom/google-cloud-sdk/latest/google-cloud-sdk",
		"/snap/google-cloud-cli/current")
}

// findJars returns the jars of the first root that has both.
func findJars(roots []string) (installation, error) {
	missing := errors.New("the Google Cloud CLI is not installed: install it as https://cloud.google.com/sdk/docs/install says " +
		"(macOS: brew install --cask google-cloud-sdk; Debian: apt-get install google-cloud-cli)" +
		" and add the emulators with gcloud components install pubsub-emulator cloud-firestore-emulator" +
		" (Debian: apt-get install google-cloud-cli-pubsub-emulator google-cloud-cli-firestore-emulator)")
	found := false
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, "bin", "gcloud")); err != nil {
			continue
		}
		pubsub, firestore := newest(filepath.Join(root, pubsubJar)), newest(filepath.Join(root, firestoreJar))
		if pubsub != "" && firestore != "" {
			return installation{pubsubJar: pubsub, firestoreJar: firestore}, nil
		}
		if found {
			continue // the first is the one in use; its lack is the one to name
		}
		found = true
		what := "neither the Pub/Sub nor the Firestore emulator"
		if pubsub != "" {
			what = "no Firestore emulator"
		} else if firestore != "" {
			what = "no Pub/Sub emulator"
		}
		missing = fmt.Errorf("the Google Cloud CLI in %s has %s: run gcloud components install pubsub-emulator cloud-firestore-emulator"+
			" (Debian: apt-get install google-cloud-cli-pubsub-emulator google-cloud-cli-firestore-emulator)", root, what)
	}
	return installation{}, missing
}

// newest returns the last match of a pattern, which is the newest version but for 10 before 9, or "".
func newest(pattern string) string {
	matches, err := filepath.Glob(pattern)
	if err != nil || len(matches) == 0 {
		return ""
	}
	return slices.Max(matches)
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findJava(ctx context.Context) (string, error) {
	const install = "install one (macOS: brew install --cask temurin; Debian: apt-get install default-jre-headless)"
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("the emulators need Java %d or newer and there is no java on PATH: %s", minJava, install)
	}
	// macOS has a java that only says that there is none, so being on PATH does not prove it.
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	match := javaVersion.FindSubmatch(out)
	if err != nil || match == nil {
		return "", fmt.Errorf("the emulators need Java %d or newer and %s does not run: %s", minJava, java, install)
	}
	if major, err := strconv.Atoi(string(match[1])); err != nil || major < minJava {
		return "", fmt.Errorf("the emulators need Java %d or newer and %s is version %s: %s", minJava, java, match[1], install)
	}
	return java, nil
}
